//! `highwire fault`: scenarios are read strictly, and those that ship are right.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn fault(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwire"));
    command.arg("fault").args(words).output().expect("it starts")
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios")
}

#[test]
fn every_scenario_that_ships_is_right() {
    let mut seen = 0;
    for entry in std::fs::read_dir(examples()).expect("a folder") {
        let path = entry.expect("an entry").path();
        let output = fault(&["check", &path.to_string_lossy()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        seen += 1;
    }
    assert!(seen >= 20, "{seen}");
}

#[test]
fn a_mistake_is_named_with_its_line_before_a_program_starts() {
    let file = std::env::temp_dir().join(format!("highwire-fault-{}.toml", std::process::id()));
    std::fs::write(&file, "seed = 1\n[[call]]\nfunction = \"ibv_create_qc\"\n").expect("a file");
    let shown = file.to_string_lossy().into_owned();
    let run = ["run", "--scenario", &shown, "--", "true"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwire"));
    let run = command.args(run).env("HIGHWIRE_LIBS", "/nowhere").output().expect("it starts");
    for output in [fault(&["check", &shown]), run] {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains(&format!("{shown}:3:")) && stderr.contains("is it `ibv_create_cq`?"),
            "{stderr}"
        );
    }
    std::fs::remove_file(&file).expect("ours");
}

#[test]
fn an_order_without_a_program_that_takes_it_fails() {
    let folder = format!("/dev/shm/highwire-fault-test-{}", std::process::id());
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwire"));
    let output = command.args(["fault", "event", "port-down"]).env("HIGHWIRE_SHM_DIR", &folder).output();
    let output = output.expect("it starts");
    let _ = std::fs::remove_dir_all(&folder);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("control = true"), "{stderr}");
}
