//! Commands of the laboratory, typed as the product's: a stand-in for `highwire-lab` prints what reaches it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Prints each argument on a line of its own, and ends with status 42.
const STAND_IN: &str = "#!/bin/sh\nprintf '<%s>\\n' \"$@\"\nexit 42\n";

/// A folder with the product, away from the laboratory that may be built.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("path")).expect("a folder");
        fs::hard_link(env!("CARGO_BIN_EXE_highwire"), folder.join("highwire")).expect("the same file system");
        Place(folder)
    }

    fn with_laboratory(self, folder: &str) -> Place {
        let file = self.0.join(folder).join("highwire-lab");
        fs::write(&file, STAND_IN).expect("a file");
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("its owner may");
        self
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words.iter().map(OsString::from).collect())
    }

    fn command(&self, words: Vec<OsString>) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.0.join("path").display());
        Command::new(self.0.join("highwire")).args(words).env("PATH", path).output().expect("it starts")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

#[test]
fn arguments_and_status_are_the_laboratory_s_own() {
    for folder in ["", "path"] {
        let place = Place::new(&format!("found-{folder}")).with_laboratory(folder);
        for (words, printed) in [
            (&["sim", "run", "a b", "", "--json"][..], "<sim>\n<run>\n<a b>\n<>\n<--json>\n"),
            (&["bench", "--help"], "<bench>\n<--help>\n"),
            (&["help", "nanopu"], "<help>\n<nanopu>\n"),
            (&["store", "check", "--seed", "7"], "<store>\n<check>\n<--seed>\n<7>\n"),
            (&["store", "faults", "--help"], "<store>\n<faults>\n<--help>\n"),
            (&["of-tomorrow", "-x"], "<of-tomorrow>\n<-x>\n"),
            (&["parse-only", "--", "sim", "list"], "<parse-only>\n<-->\n<sim>\n<list>\n"),
        ] {
            let output = place.run(words);
            assert_eq!((output.status.code(), text(&output).as_str()), (Some(42), printed), "{words:?}");
        }
        let strange = OsString::from_vec(b"\xff\xfe.toml".to_vec());
        let output = place.command(vec!["sim".into(), strange.clone()]);
        assert_eq!(output.stdout, [b"<sim>\n<", strange.as_bytes(), b">\n"].concat());
    }
}

#[test]
fn what_the_product_has_stays_there() {
    let place = Place::new("own").with_laboratory("");
    for (words, status, mention) in [
        (&["store", "chek"][..], 2, "unrecognized subcommand"),
        (&["prf"], 2, "perf"),
        (&["perf", "sim"], 2, "sim"),
        (&["--help"], 0, "\n  nanopu  Programs on the nanoPU"),
        (&["store", "--help"], 0, "\n  faults  Do real faults"),
        (&["help", "store"], 0, "\n  check   Run simulated clusters"),
        (&["parse-only", "--", "perf", "floor"], 0, ""),
    ] {
        let output = place.run(words);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {}", text(&output));
        assert!(text(&output).contains(mention), "{words:?}: {}", text(&output));
    }
}

#[test]
fn without_the_laboratory_it_is_said_where_to_get_it() {
    let place = Place::new("alone");
    for words in [&["sim", "list"][..], &["help", "bench"], &["store", "check"]] {
        let output = place.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", text(&output));
        assert!(text(&output).contains("highwire-lab") && text(&output).contains("--path crates/lab"));
    }
    let output = place.run(&["of-tomorrow"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("'of-tomorrow'"), "{}", text(&output));
}

/// A folder or a file that nobody may execute is no program.
#[test]
fn only_a_program_is_found() {
    let place = Place::new("no-program").with_laboratory("path");
    fs::create_dir(place.0.join("highwire-lab")).expect("a folder");
    assert_eq!(place.run(&["sim"]).status.code(), Some(42));
}
