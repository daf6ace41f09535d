//! Programs that do not know Highwire, with the object preloaded: shells, Python, the core utilities, and a
//! test program in C that calls every function of the object.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ADDRESS: &str = "127.9.8.7";
const GID: &str = "0000:0000:0000:0000:0000:ffff:7f09:0807";

/// A place of its own for the files, and the object that cargo has built.
struct World {
    place: PathBuf,
    object: PathBuf,
}

impl World {
    fn new(name: &str) -> Self {
        let test = std::env::current_exe().expect("a path");
        let deps = test.parent().expect("target/<profile>/deps");
        let object = deps.join("libhighwire_paths.so");
        let place = PathBuf::from(format!("/dev/shm/highwire-paths-{}-{name}", std::process::id()));
        Self { place, object }
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &self.object).env("HIGHWIRE_SHM_DIR", &self.place);
        command.env("HIGHWIRE_ADDR", ADDRESS).env_remove("HIGHWIRE_DEVICE_NAME");
        command
    }

    /// Runs a program and returns its output; it must succeed and print no error.
    fn check(&self, program: &str, args: &[&str]) -> String {
        let output = self.command(program).args(args).output().expect("it starts");
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && stderr.is_empty(), "{program} {args:?}: {stdout}{stderr}");
        stdout.trim_end().to_string()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

fn has(program: &str) -> bool {
    let there = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(program).is_file());
    if !there {
        println!("skipped: no {program} here");
    }
    there
}

#[test]
fn files_are_kept_for_as_long_as_a_process_that_has_seen_them_lives() {
    let world = World::new("held");
    let script = "read guid < /sys/class/infiniband/hw0/node_guid; echo ready; read end";
    let mut shell = world.command("sh");
    shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(shell.stdout.take().expect("it is piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let names =
        || std::fs::read_dir(&world.place).expect("a folder").map(|entry| entry.expect("an entry").path());
    let files: Vec<_> = names().filter(|path| path.is_dir()).collect();
    let [files] = &files[..] else { panic!("{files:?}") };
    // The check that a process makes before it removes folders.
    let is_free = || File::open(files).expect("it is there").try_lock().is_ok();
    assert!(!is_free(), "a living process uses it");
    shell.kill().expect("it lives");
    shell.wait().expect("it is ours");
    assert!(is_free(), "it was killed");
    // The next program uses the folder again.
    let gid = world.check("cat", &["/sys/class/infiniband/hw0/ports/1/gids/0"]);
    assert_eq!(gid, GID);
}

#[test]
fn a_shell_finds_the_device() {
    let world = World::new("shell");
    let sh = |script: &str| world.check("sh", &["-c", script]);
    assert!(sh("echo /sys/class/infiniband/*").contains("/sys/class/infiniband/hw0"));
    assert_eq!(sh("cat /sys/class/infiniband/hw0/ports/1/gids/1"), GID);
    assert_eq!(sh("read state < /sys/class/infiniband/hw0/ports/1/state; echo $state"), "4: ACTIVE");
    assert_eq!(sh("test -d /sys/class/infiniband/hw0 && test -c /dev/infiniband/rdma_cm && echo yes"), "yes");
    assert_eq!(sh("cd /sys/class/infiniband_verbs && cat uverbs*/ibdev | tail -1"), "hw0");
    assert_eq!(sh("test -e /sys/class/infiniband/none || echo no"), "no");
}

#[test]
fn the_core_utilities_list_it() {
    let world = World::new("utilities");
    let list = world.check("ls", &["-l", "/dev/infiniband/"]);
    assert!(list.lines().any(|line| line.starts_with("crw-rw-rw-") && line.ends_with("rdma_cm")), "{list}");
    assert!(world.check("stat", &["-c", "%F", "/dev/infiniband/rdma_cm"]).contains("character special file"));
    let found = world.check("find", &["/sys/class/infiniband/", "-name", "gids"]);
    assert!(found.contains("hw0/ports/1/gids"), "{found}");
    assert!(
        world.check("readlink", &["/sys/class/infiniband/hw0/device/net/lo"]).ends_with("/sys/class/net/lo")
    );
}

#[test]
fn python_finds_the_device() {
    if !has("python3") {
        return;
    }
    let world = World::new("python");
    let script = "
import os, glob, pathlib, stat
assert 'hw0' in os.listdir('/sys/class/infiniband')
assert any(entry.name == 'hw0' and entry.is_dir() for entry in os.scandir('/sys/class/infiniband'))
gids = glob.glob('/sys/class/infiniband/hw0/ports/*/gids/*')
assert len(gids) == 16
assert sum(pathlib.Path(gid).read_text().strip('0:\\n') != '' for gid in gids) == 2
assert stat.S_ISCHR(os.stat('/dev/infiniband/rdma_cm').st_mode)
assert stat.S_ISCHR(os.lstat('/dev/infiniband/rdma_cm').st_mode)
assert os.access('/dev/infiniband/rdma_cm', os.R_OK | os.W_OK)
assert not os.path.exists('/sys/class/infiniband/none')
assert os.path.isdir(os.path.realpath('/sys/class/infiniband/hw0/device'))
print(pathlib.Path('/sys/class/infiniband/hw0/ports/1/gids/0').read_text().strip())
";
    assert_eq!(world.check("python3", &["-c", script]), GID);
}

#[test]
fn every_function_answers_in_threads_and_after_a_fork() {
    if !has("cc") {
        return;
    }
    let world = World::new("c");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/every_call.c");
    let program = std::env::temp_dir().join(format!("highwire-every-call-{}", std::process::id()));
    for options in [&["-O0"][..], &["-O2", "-D_FORTIFY_SOURCE=2"], &["-D_FILE_OFFSET_BITS=64"]] {
        let mut compiler = Command::new("cc");
        compiler.args(["-Wall", "-Werror", "-pthread", "-o"]).arg(&program).args(options).arg(&source);
        assert!(compiler.status().expect("a compiler").success());
        assert_eq!(world.check(&program.to_string_lossy(), &[]), "every call answered");
    }
    std::fs::remove_file(program).expect("ours");
}

#[test]
fn a_folder_that_is_taken_away_comes_back() {
    let world = World::new("again");
    let script = "cat /sys/class/infiniband/hw0/ports/1/link_layer; rm -r \"$HIGHWIRE_SHM_DIR\"; \
                  read again < /sys/class/infiniband/hw0/ports/1/link_layer; echo $again";
    assert_eq!(world.check("sh", &["-c", script]), "Ethernet\nEthernet");
}

#[test]
fn an_unsafe_place_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new("unsafe");
    std::fs::create_dir(&world.place).expect("a folder");
    std::fs::set_permissions(&world.place, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    world.check("sh", &["-c", "test ! -e /sys/class/infiniband/hw0"]);
}
