//! `highwire run` and `highwire env`, with a folder of empty files instead of the libraries: how they find,
//! warn, refuse and pass options on. `cargo xtask compat` tests programs with the real libraries.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use common::highwire;

/// A folder that looks like one with the libraries.
struct Libraries(PathBuf);

impl Libraries {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("highwire-run-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("libibverbs.so.1"), "").expect("a file");
        Self(folder)
    }

    fn run(&self, words: &[&str]) -> Command {
        let mut command = highwire(["run"]);
        command.args(words).env("HIGHWIRE_LIBS", &self.0).env_remove("LD_LIBRARY_PATH");
        command
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> (String, String) {
    let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (read(&output.stdout), read(&output.stderr))
}

#[test]
fn the_exit_status_is_the_program_s_own() {
    let libraries = Libraries::new("status");
    let status = |words: &[&str]| libraries.run(words).output().expect("it starts").status;
    assert_eq!(status(&["--", "true"]).code(), Some(0));
    assert_eq!(status(&["--", "sh", "-c", "exit 42"]).code(), Some(42));
    assert_eq!(status(&["--", "sh", "-c", "kill -TERM $$"]).signal(), Some(15));
    assert_eq!(status(&["--", "no-such-program-anywhere"]).code(), Some(127));
    assert_eq!(status(&["--", "/etc/passwd"]).code(), Some(126));
    assert_eq!(status(&[]).code(), Some(2));
    assert_eq!(status(&["--loss", "101%", "--", "true"]).code(), Some(2));
    assert_eq!(status(&["--loss", "60%", "--reorder", "60%", "--", "true"]).code(), Some(2));
    assert_eq!(status(&["--address", "192.0.2.1", "--", "true"]).code(), Some(2));
}

/// Two dashes may be left out: what follows the program is the program's, whatever it looks like.
#[test]
fn the_dashes_may_be_left_out() {
    let libraries = Libraries::new("dashes");
    let output =
        libraries.run(&["--loss", "1%", "sh", "-c", "echo $HIGHWIRE_LOSS $0 $@", "--seed", "-x", "--", "y"]);
    let (stdout, stderr) = text(&{ output }.output().expect("it starts"));
    assert_eq!(stdout, "1% --seed -x -- y\n", "{stderr}");
    // A mistake before the program is a mistake, and not a program's name.
    let output = libraries.run(&["--los", "1%", "true"]).output().expect("it starts");
    let (_, stderr) = text(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("--loss"), "{stderr}");
}

#[test]
fn options_become_variables() {
    let libraries = Libraries::new("variables");
    let options = "--address 127.1.2.3 --link shm --recovery go-back-n --loss 1% --dup 0.5% --reorder 0.1 --corrupt 1e-3 \
                   --delay 10us --seed 7 --pcap x.pcap -- env";
    let output = libraries.run(&options.split_whitespace().collect::<Vec<_>>()).output().expect("it starts");
    let (stdout, stderr) = text(&output);
    let here = std::env::current_dir().expect("a folder");
    for expected in [
        "HIGHWIRE_ADDR=127.1.2.3".to_string(),
        "HIGHWIRE_LINK=shm".into(),
        "HIGHWIRE_RECOVERY=go-back-n".into(),
        "HIGHWIRE_LOSS=1%".into(),
        "HIGHWIRE_DUPLICATE=0.5%".into(),
        "HIGHWIRE_REORDER=0.1".into(),
        "HIGHWIRE_CORRUPT=1e-3".into(),
        "HIGHWIRE_DELAY=10us".into(),
        "HIGHWIRE_SEED=7".into(),
        format!("HIGHWIRE_PCAP={}", here.join("x.pcap").display()),
        format!("LD_LIBRARY_PATH={}", libraries.0.display()),
        format!("LD_PRELOAD={}", libraries.0.join("libibverbs.so.1").display()),
    ] {
        assert!(stdout.lines().any(|line| line == expected), "{expected} is not in\n{stdout}{stderr}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_set() {
    let libraries = Libraries::new("nothing");
    let (stdout, _) =
        text(&libraries.run(&["--", "env"]).env_remove("HIGHWIRE_LOSS").output().expect("it starts"));
    for name in ["HIGHWIRE_ADDR=", "HIGHWIRE_LINK=", "HIGHWIRE_LOSS=", "HIGHWIRE_SEED=", "HIGHWIRE_PCAP="] {
        assert!(!stdout.lines().any(|line| line.starts_with(name)), "{name}\n{stdout}");
    }
}

#[test]
fn libraries_that_are_not_there_are_named_with_what_builds_them() {
    let output = highwire(["run", "--libs", "/nowhere", "--", "true"]).output().expect("it starts");
    let (_, stderr) = text(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("/nowhere") && stderr.contains("cargo xtask libs"), "{stderr}");
}

#[test]
fn a_mistake_in_an_option_is_named_first_where_there_are_no_libraries() {
    for words in [
        &["--loss", "60%", "--reorder", "60%", "--", "true"][..],
        &["--address", "192.0.2.1", "--", "true"],
        &["--scenario", "/dev/null/none", "--", "true"],
    ] {
        let output = highwire(["run", "--libs", "/nowhere"]).args(words).output().expect("it starts");
        let (_, stderr) = text(&output);
        assert!(!output.status.success() && !stderr.contains("/nowhere"), "{words:?}: {stderr}");
    }
}

#[test]
fn a_program_that_cannot_take_libraries_is_warned_about() {
    let libraries = Libraries::new("static");
    let mut head = vec![0_u8; 128];
    head[..6].copy_from_slice(b"\x7fELF\x02\x01");
    head[18] = 40; // a 32-bit ARM's number
    let program = libraries.0.join("of-another-machine");
    fs::write(&program, head).expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
    let output = libraries.run(&["--", &program.to_string_lossy()]).output().expect("it starts");
    let (_, stderr) = text(&output);
    assert!(stderr.contains("another architecture"), "{stderr}");
}

#[test]
fn a_shell_evaluates_the_settings() {
    let libraries = Libraries::new("env");
    let script = r#"eval "$("$0" env --loss 1% --seed 7)"; echo "$HIGHWIRE_LOSS $HIGHWIRE_SEED $LD_LIBRARY_PATH"
                    eval "$("$0" env --unset)"; echo "${HIGHWIRE_LOSS-unset} ${LD_PRELOAD-unset}""#;
    let mut shell = Command::new("sh");
    shell.args(["-ec", script, env!("CARGO_BIN_EXE_highwire")]).env("SHELL", "/bin/sh");
    shell.env("HIGHWIRE_LIBS", &libraries.0).env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
    let (stdout, stderr) = text(&shell.output().expect("it starts"));
    let expected = format!("1% 7 {}\nunset unset\n", libraries.0.display());
    assert_eq!(stdout, expected, "{stderr}");
}

/// A program that tells as the libraries do, and then ends in the way of `end`.
fn tell(end: &str) -> String {
    let state = r"process\tx\ndevice\thw0\t127.1.2.3\tAuto\nqp\t18\tRC\tRTS\t19\t127.1.2.3\t1\tthere\n";
    format!("printf '{state}' > $HIGHWIRE_REPORT/$$.state; echo it fails > $HIGHWIRE_REPORT/$$.lines; {end}")
}

#[test]
fn a_report_comes_at_every_end_and_the_exit_status_is_the_program_s() {
    let libraries = Libraries::new("report");
    let killed = 128 + 9;
    for (end, status) in [("exit 0", 0), ("exit 42", 42), ("kill -KILL $$", killed)] {
        let output = libraries.run(&["--report", "--", "sh", "-c", &tell(end)]).output().expect("it starts");
        let (stdout, stderr) = text(&output);
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert_eq!(stdout, "", "what the program prints stays by itself");
        for part in ["opened hw0 at 127.1.2.3", "queue pair 0x12 (RC): last in RTS, peer 0x13", "it fails"] {
            assert!(stderr.contains(part), "{end}: {part} is not in {stderr}");
        }
    }
    let output = libraries.run(&["--report", "true"]).output().expect("it starts");
    assert!(text(&output).1.contains("no process opened a device"), "the dashes may be left out");
    let output = libraries.run(&["--report"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "a program is missing");
    let output = libraries.run(&["--report", "--", "no-such-program-anywhere"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(127));
}

#[test]
fn a_report_has_the_form_that_its_file_s_name_asks_for() {
    let libraries = Libraries::new("forms");
    for (name, part) in
        [("r.json", "\"state\": \"RTS\""), ("r.html", "<td>RTS</td>"), ("r.txt", "last in RTS")]
    {
        let file = libraries.0.join(name);
        let words = ["--report", file.to_str().expect("plain"), "--", "sh", "-c", &tell("exit 3")];
        let output = libraries.run(&words).output().expect("it starts");
        let (_, stderr) = text(&output);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(!stderr.contains("highwire:"), "it goes to the file alone: {stderr}");
        let report = fs::read_to_string(&file).expect("it was written");
        assert!(report.contains(part), "{report}");
    }
    let nowhere = ["--report", "/nowhere/r.json", "--", "true"];
    let output = libraries.run(&nowhere).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).1.contains("/nowhere/r.json"), "before the program starts");
}

/// A signal for the command is one for the program, whose end is reported as always, and no folder is left. The program is told at once, or
/// tells its parent as the first thing that it does.
#[test]
fn a_signal_is_passed_on_and_the_report_written() {
    let libraries = Libraries::new("signal");
    let temporary = libraries.0.join("tmp");
    fs::create_dir_all(&temporary).expect("a folder");
    let run = |end: &str| {
        let mut command = libraries.run(&["--report", "--", "sh", "-c", &tell(end)]);
        command.env("TMPDIR", &temporary).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let has_ended = |child: Child| {
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(7), "{}", text(&output).1);
        assert!(text(&output).1.contains("last in RTS"));
        assert_eq!(fs::read_dir(&temporary).expect("a folder").count(), 0);
    };
    let mut child = run("trap 'exit 7' TERM; echo ready; while :; do sleep 0.1; done");
    let mut ready = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut ready).expect("it says so");
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(kill.success());
    has_ended(child);
    for _ in 0..20 {
        has_ended(run(
            "trap 'exit 7' TERM; kill -TERM $PPID; n=0; while [ $n -lt 600 ]; do n=$((n+1)); sleep 0.1; done",
        ));
    }
}
