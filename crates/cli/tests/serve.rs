//! `highwire serve` in the background: it says where it is, ends with its last program, and leaves nothing.

mod common;

use common::highwire;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Far longer than any step takes; a guard against hangs only.
const PATIENCE: Duration = Duration::from_secs(120);

/// A registry of the test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = Path::new("/dev/shm").join(format!("highwire-idle-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }

    /// Folders of devices.
    fn devices(&self) -> usize {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().is_dir()).count()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what} did not come to pass");
        std::thread::yield_now();
    }
}

/// Connects a program, which keeps its session as long as the socket is open.
fn visit(door: &Path) -> UnixStream {
    UnixStream::connect(door).expect("it serves")
}

fn door_in(line: &str) -> PathBuf {
    let (_, door) = line.trim_end().split_once(" serves at ").expect("a line that says where it serves");
    PathBuf::from(door)
}

#[test]
fn it_goes_on_in_the_background_until_its_last_program_has_gone() {
    let scratch = Scratch::new("background");
    let mut command = highwire(["serve", "--detach", "--idle", "1"]);
    let output = command.env("HIGHWIRE_SHM_DIR", &scratch.0).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stderr, b"");
    let door = door_in(std::str::from_utf8(&output.stdout).expect("text"));
    let (first, second) = (visit(&door), visit(&door));
    drop(first);
    assert!(door.exists());
    drop(second);
    until("its end", || !door.exists());
    until("the end of its files", || scratch.devices() == 0);
}

#[test]
fn a_signal_ends_it_before_it_is_idle() {
    let scratch = Scratch::new("signal");
    let mut command = highwire(["serve", "--idle", "1000000"]);
    let mut child: Child =
        command.env("HIGHWIRE_SHM_DIR", &scratch.0).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("a line");
    let mut socket = visit(&door_in(&line));
    let kill = std::process::Command::new("kill").arg(child.id().to_string()).status().expect("kill");
    assert!(kill.success());
    assert!(child.wait().expect("it ends").success());
    let _ = socket.write(&[0]);
    assert_eq!(scratch.devices(), 0, "nothing is left behind");
}

#[test]
fn one_that_cannot_serve_says_why_although_it_goes_to_the_background() {
    let scratch = Scratch::new("refused");
    let mut command = highwire(["serve", "--detach", "--idle", "1", "--address", "192.0.2.1"]);
    let output = command.env("HIGHWIRE_SHM_DIR", &scratch.0).output().expect("it starts");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("192.0.2.1"), "{output:?}");
}
