//! A program with another user's privileges ignores the environment that its user has set.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::skip;

/// The user in whose name the program runs: nobody.
const OTHER: u32 = 65534;
/// Tells the test below that it is the program.
const IS_PROGRAM: &str = "HIGHWIRE_TEST_IS_PRIVILEGED_PROGRAM";

/// The first calls of a program that uses verbs. Does nothing as a test of its own.
#[test]
fn program() {
    if std::env::var_os(IS_PROGRAM).is_none() {
        return;
    }
    println!("privileged: {}", highwire_link::environment::is_privileged());
    println!("settings: {:?}", crate::env::settings());
    let mut count = 0;
    // SAFETY: the count is writable, and the list's devices live until it is freed.
    unsafe {
        let list = crate::device::ibv_get_device_list(&mut count);
        if count > 0 {
            println!("opened: {}", !crate::context::ibv_open_device(*list).is_null());
        }
    }
}

/// A folder with a copy of this program in it, and a trap for each thing that the environment can name.
struct Traps(PathBuf);

impl Traps {
    fn new() -> Traps {
        let folder = std::env::temp_dir().join(format!("highwire-privileged-{}", std::process::id()));
        fs::create_dir_all(folder.join("path")).expect("a folder");
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("it is ours");
        let traps = Traps(folder);
        for (program, sprung) in [("broker", "broker-ran"), ("path/highwire", "path-ran")] {
            let script = format!("#!/bin/sh\n: > {}\n", traps.0.join(sprung).display());
            fs::write(traps.0.join(program), script).expect("a script");
            fs::set_permissions(traps.0.join(program), Permissions::from_mode(0o755)).expect("it is ours");
        }
        traps
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs the copy as the other user, by the mode of its file or from the beginning.
    fn run(&self, mode: u32, variables: &[(&str, OsString)]) -> Output {
        let copy = self.path("program");
        fs::copy(std::env::current_exe().expect("this program has a file"), &copy).expect("a copy");
        chown(&copy, Some(OTHER), None).expect("root may do that");
        fs::set_permissions(&copy, Permissions::from_mode(mode)).expect("root may do that");
        let mut command = Command::new(&copy);
        command.args(["--exact", "tests::privileged::program", "--nocapture"]).env_clear();
        command.env(IS_PROGRAM, "1").envs(variables.iter().map(|(name, value)| (name, value)));
        if mode & 0o4000 == 0 {
            command.uid(OTHER);
        }
        command.output().expect("it starts")
    }

    /// Which of the scripts have run since the last time.
    fn sprung(&self) -> Vec<&'static str> {
        ["broker-ran", "path-ran"]
            .into_iter()
            .filter(|sprung| fs::remove_file(self.path(sprung)).is_ok())
            .collect()
    }
}

impl Drop for Traps {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn is_root() -> bool {
    // SAFETY: the call has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn a_setuid_program_heeds_no_variable_and_searches_no_path() {
    if !is_root() {
        return skip("needs root, to make a program run in another user's name");
    }
    let traps = Traps::new();
    let registry = traps.path("registry");
    let value = |path: &Path| path.as_os_str().to_owned();
    let named = [
        ("HIGHWIRE_SHM_DIR", value(&registry)),
        ("HIGHWIRE_PASS_THROUGH", value(&traps.path("stock.so"))),
        ("HIGHWIRE_PCAP", value(&traps.path("evil.pcap"))),
        ("HIGHWIRE_BROKER", value(&traps.path("broker"))),
    ];
    let mut searched = named.clone();
    searched[3] = ("PATH", value(&traps.path("path")));
    for (variables, trap) in [(&named, "broker-ran"), (&searched, "path-ran")] {
        let setuid = traps.run(0o4755, variables);
        let (said, sprung) = (text(&setuid), traps.sprung());
        if said.contains("privileged: false") {
            return skip("programs in the folder for temporary files get no other user's privileges");
        }
        assert!(said.contains("privileged: true"), "{said}");
        assert_eq!(sprung, Vec::<&str>::new(), "{said}");
        assert!(!registry.exists(), "{said}");
        assert!(!said.contains("stock.so") && !said.contains("evil.pcap"), "{said}");
        // The traps work: the same program of the same user, without privileges, walks into each.
        let plain = traps.run(0o755, variables);
        let (said, sprung) = (text(&plain), traps.sprung());
        assert_eq!(sprung, [trap], "{said}");
        assert!(registry.exists(), "{said}");
        assert!(said.contains("stock.so") && said.contains("evil.pcap"), "{said}");
        fs::remove_dir_all(&registry).expect("it was made");
    }
}
