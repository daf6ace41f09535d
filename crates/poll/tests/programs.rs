//! Programs in C with the object preloaded. They play the verbs library themselves, and a library of theirs sits before the C
//! library and notes what reaches it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How the programs are built: functions with and without a check of the array's length.
const OPTIONS: [&[&str]; 2] = [&["-O0"], &["-O2", "-D_FORTIFY_SOURCE=2"]];

/// The object that cargo has built.
fn object() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.parent().expect("target/<profile>/deps").join("libhighwire_poll.so")
}

/// A folder for one test's programs.
struct Workshop(PathBuf);

impl Workshop {
    /// Nothing, and the reason printed, without a compiler.
    fn open(name: &str) -> Option<Self> {
        if Command::new("cc").arg("--version").output().is_err() {
            println!("skipped: no cc, from Debian's gcc");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("highwire-poll-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Some(Self(folder))
    }

    fn build(&self, name: &str, options: &[&str]) -> PathBuf {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let (program, spy) = (self.0.join(name), self.0.join("libspy.so"));
        let cc = |words: &[&str], source: &str, output: &Path| {
            let mut compiler = Command::new("cc");
            compiler
                .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-pthread", "-fexceptions"])
                .args(words);
            compiler.arg("-o").arg(output).arg(sources.join(source));
            compiler
        };
        let mut library = cc(&["-O2", "-shared", "-fPIC"], "spy.c", &spy);
        assert!(library.arg("-ldl").status().expect("a compiler").success());
        let mut compiler = cc(options, &format!("{name}.c"), &program);
        compiler.arg(&spy).args(["-ldl", "-lrt"]).arg(format!("-Wl,-rpath,{}", self.0.display()));
        assert!(compiler.status().expect("a compiler").success());
        program
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a program in every build; it must print this line and no error.
fn check(name: &str, expected: &str) {
    let Some(workshop) = Workshop::open(name) else { return };
    for options in OPTIONS {
        let program = workshop.build(name, options);
        let output = Command::new(program).env("LD_PRELOAD", object()).output().expect("it starts");
        let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (read(&output.stdout), read(&output.stderr));
        let is_right = output.status.success() && stderr.is_empty() && stdout.trim_end() == expected;
        assert!(is_right, "{name} {options:?}: {}: {stdout}{stderr}", output.status);
    }
}

#[test]
fn every_function_answers_as_the_c_library_s() {
    check("every_call", "every call answered");
}

#[test]
fn threads_are_cancelled_and_signalled_and_forked() {
    check("threads", "every thread answered");
}

#[test]
fn programs_that_know_nothing_of_channels_run() {
    let output = Command::new("sh")
        .args(["-c", "echo one | cat; exec 7>&1; echo two >&7; exec 7>&-; echo three >&7 || echo closed"])
        .env("LD_PRELOAD", object())
        .output()
        .expect("it starts");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\nclosed\n");
}
