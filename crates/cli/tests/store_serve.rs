//! `highwire store serve` with a folder: one supervisor at a time, and a cluster that is as it was.

mod common;

use common::highwire;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// A folder that is removed with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("highwire-serve-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("cluster.toml")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The first of some ports in a row that are free now. Each call looks at a stretch of its own: tests run side by side, and a
/// port that one has chosen is free until its node listens.
fn ports(count: u16) -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let start = 20_000 + (std::process::id() % 300) as u16 * 100 + CALLS.fetch_add(1, Ordering::Relaxed) * 20;
    let found = (start..start + 20).step_by(5).find(|&first| (first..first + count).all(is_free));
    found.expect("ports in a row")
}

fn words(folder: &Path, port: u16, more: &[&str]) -> Vec<String> {
    let mut words: Vec<String> = ["store", "serve", "--data"].map(str::to_string).to_vec();
    words.push(folder.display().to_string());
    words.extend(["--port".into(), port.to_string()]);
    words.extend(more.iter().map(|word| word.to_string()));
    words
}

/// A supervisor whose cluster serves, and the lines that it wrote until then.
struct Serving {
    child: Child,
    lines: Vec<String>,
    out: BufReader<ChildStdout>,
}

impl Serving {
    fn start(words: &[String]) -> Serving {
        let mut child = highwire(words).stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let mut serving = Serving { child, lines: Vec::new(), out };
        while !serving.lines.last().is_some_and(|line| line.starts_with("the store serves")) {
            let mut line = String::new();
            let read = serving.out.read_line(&mut line).expect("text");
            assert!(read > 0, "it ended: {:?}", serving.lines);
            serving.lines.push(line.trim_end().to_string());
        }
        serving
    }

    fn end(mut self) {
        let id = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
        let _ = self.out.read_to_end(&mut Vec::new());
        assert!(self.child.wait().expect("it ends").success());
    }
}

/// A test that fails leaves no supervisor behind.
impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn store(port: u16, words: &[&str]) -> Output {
    let at = format!("127.0.0.1:{port}");
    highwire([&["store"], words, &["--at", &at]].concat()).output().expect("it starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_second_supervisor_of_a_folder_is_refused_before_it_writes_anything() {
    let scratch = Scratch::new("second");
    let port = ports(4);
    let one = ["--nodes", "1"];
    let first = Serving::start(&words(&scratch.0, port, &one));
    let snapshot = || {
        let entries = std::fs::read_dir(&scratch.0).expect("a folder").flatten();
        let mut files: Vec<(PathBuf, Option<Vec<u8>>)> =
            entries.map(|entry| (entry.path(), std::fs::read(entry.path()).ok())).collect();
        files.sort();
        files
    };
    let before = snapshot();
    for more in [&["--nodes", "1"][..], &["--nodes", "1", "--lease-ms", "900"], &["--nodes", "3"]] {
        let output = highwire(words(&scratch.0, port + 1, more)).output().expect("it starts");
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let holder = format!("in use by process {}, whose nodes are at 127.0.0.1:{port}", first.child.id());
        assert!(said.contains(&holder), "{said}");
        assert_eq!(snapshot(), before, "it has written");
    }
    assert!(store(port, &["put", "t", "k", "v"]).status.success());
    first.end();

    // The folder is free again. What the cluster is cannot be changed by the way.
    let text = std::fs::read(scratch.file()).expect("a file");
    for more in
        [&["--nodes", "1", "--lease-ms", "900"][..], &["--nodes", "1", "--rows-max", "7"], &["--nodes", "2"]]
    {
        let output = highwire(words(&scratch.0, port + 1, more)).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(
            said(&output).contains("holds a cluster of --nodes 1 --f 0 --lease-ms 300"),
            "{}",
            said(&output)
        );
        assert_eq!(std::fs::read(scratch.file()).expect("a file"), text);
    }
    // Other doors can be had.
    let again = Serving::start(&words(&scratch.0, port + 2, &one));
    let output = store(port + 2, &["get", "t", "k"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), "v", "{}", said(&output));
    again.end();
}

#[test]
fn a_taken_port_leaves_the_folder_as_it_was() {
    let scratch = Scratch::new("taken");
    let port = ports(2);
    Serving::start(&words(&scratch.0, port, &["--nodes", "1"])).end();
    let text = std::fs::read(scratch.file()).expect("a file");
    let holder = TcpListener::bind(("127.0.0.1", port + 1)).expect("a free port");
    let output = highwire(words(&scratch.0, port + 1, &["--nodes", "1"])).output().expect("it starts");
    assert!(said(&output).contains("is taken"), "{}", said(&output));
    assert_eq!(std::fs::read(scratch.file()).expect("a file"), text);
    drop(holder);
}

#[test]
fn a_damaged_journal_keeps_one_node_out_and_the_others_serve() {
    let scratch = Scratch::new("damaged");
    let port = ports(3);
    // A lease that is long enough for three processes of a busy machine.
    let three = ["--nodes", "3", "--lease-ms", "3000", "--no-restart"];
    let first = Serving::start(&words(&scratch.0, port, &three));
    for key in 0..20 {
        let output = store(port, &["put", "t", &key.to_string(), "kept"]);
        assert!(output.status.success(), "{}", said(&output));
    }
    first.end();
    let folder = scratch.0.join("node-2");
    let log = std::fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path());
    let log =
        log.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-")));
    let log = log.max().expect("a log");
    let mut bytes = std::fs::read(&log).expect("a file");
    let place = bytes.len() / 3;
    bytes[place] ^= 0xFF;
    std::fs::write(&log, bytes).expect("written");

    let second = Serving::start(&words(&scratch.0, port, &three));
    let is_out = |line: &String| line == "node 2 does not serve; the others do, as f = 1 promises";
    assert!(second.lines.iter().any(is_out), "{:?}", second.lines);
    for key in 0..20 {
        let output = store(port, &["get", "t", &key.to_string()]);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), "kept", "{}", said(&output));
    }
    second.end();

    // With an empty folder it is a new member, and gets its copies from the others.
    std::fs::remove_dir_all(&folder).expect("removed");
    let third = Serving::start(&words(&scratch.0, port, &three));
    assert!(!third.lines.iter().any(is_out), "{:?}", third.lines);
    let output = store(port + 2, &["get", "t", "7"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), "kept", "{}", said(&output));
    third.end();
}

/// Runs the program with a line on its standard input.
fn with_line(words: &[&str], line: &str) -> Output {
    let mut command = highwire(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // A command that refuses its words ends without reading.
    let _ = writeln!(child.stdin.take().expect("piped"), "{line}");
    child.wait_with_output().expect("it ends")
}

#[test]
fn users_of_a_file_are_let_in_and_the_folder_has_a_key_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new("users");
    let folder = Scratch::new("users-file");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let file = folder.0.join("users.toml").display().to_string();
    for (name, role) in [("will", "write"), ("rita", "read")] {
        let output =
            with_line(&["store", "user", "add", name, "--role", role, "--file", &file], "a password");
        assert!(output.status.success(), "{}", said(&output));
    }
    let output = with_line(&["store", "user", "add", "eve", "--role", "root", "--file", &file], "x");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let list = highwire(["store", "user", "list", "--file", &file]).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&list.stdout), "will: write\nrita: read\n");

    let port = ports(1);
    let serving = Serving::start(&words(&scratch.0, port, &["--nodes", "1", "--users", &file]));
    let key = scratch.0.join("cluster.key");
    assert_eq!(std::fs::metadata(&key).expect("a key").permissions().mode() & 0o777, 0o600);
    let as_user = |user: &str, password: &str, words: &[&str]| {
        let at = format!("127.0.0.1:{port}");
        let mut command = highwire([&["store"], words, &["--at", &at, "--user", user]].concat());
        command.env("HIGHWIRE_STORE_PASSWORD", password).output().expect("it starts")
    };
    let stranger = store(port, &["put", "t", "k", "stolen"]);
    assert_eq!(stranger.status.code(), Some(1), "{}", said(&stranger));
    assert!(said(&stranger).contains("say who you are"), "{}", said(&stranger));
    assert!(as_user("will", "a password", &["put", "t", "k", "v"]).status.success());
    for (user, password) in [("rita", "a password"), ("will", "a passwor"), ("eve", "x")] {
        let output = as_user(user, password, &["put", "t", "k", "stolen"]);
        assert_eq!(output.status.code(), Some(1), "{user}: {}", said(&output));
    }
    let output = as_user("rita", "a password", &["get", "t", "k"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), "v", "{}", said(&output));
    assert!(as_user("rita", "a password", &["status"]).status.success());
    serving.end();
    let removed = highwire(["store", "user", "remove", "eve", "--file", &file]).output().expect("it starts");
    assert_eq!(removed.status.code(), Some(1), "{}", said(&removed));
    let again = highwire(["store", "key", &key.display().to_string()]).output().expect("it starts");
    assert_eq!(again.status.code(), Some(1), "a key is not replaced: {}", said(&again));
}
