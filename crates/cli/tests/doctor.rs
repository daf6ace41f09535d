//! `highwire doctor` on this machine, and on one that is made worse by its settings.

mod common;

use common::highwire;
use serde_json::Value;
use std::process::Output;

fn doctor(settings: &[(&str, &str)]) -> Output {
    let mut command = highwire(["doctor"]);
    command.env_remove("HIGHWIRE_ADDR").envs(settings.iter().copied());
    command.output().expect("the program")
}

fn findings(settings: &[(&str, &str)]) -> (bool, Vec<Value>) {
    let mut command = highwire(["doctor", "--json"]);
    command.env_remove("HIGHWIRE_ADDR").envs(settings.iter().copied());
    let output = command.output().expect("the program");
    let findings = serde_json::from_slice(&output.stdout).expect("a list of findings");
    (output.status.success(), findings)
}

fn of<'a>(findings: &'a [Value], what: &str) -> &'a Value {
    findings.iter().find(|finding| finding["of"] == what).unwrap_or_else(|| panic!("nothing of {what}"))
}

#[test]
fn a_machine_on_which_tests_run_is_not_broken() {
    let (succeeds, findings) = findings(&[]);
    assert!(succeeds, "{findings:?}");
    for what in ["cores", "shared memory", "device", "path MTU", "UDP", "descriptors", "drop-in"] {
        let finding = of(&findings, what);
        assert_ne!(finding["verdict"], "broken", "{finding}");
        assert_eq!(finding["change"].is_null(), finding["verdict"] == "good", "{finding}");
    }
    let text = String::from_utf8(doctor(&[]).stdout).expect("text");
    assert!(text.contains("shared memory") && text.lines().count() > findings.len(), "{text}");
}

#[test]
fn a_folder_and_an_address_that_cannot_be_had_are_named_and_fail() {
    let (succeeds, without) = findings(&[("HIGHWIRE_SHM_DIR", "/proc/no/such/folder")]);
    assert!(!succeeds);
    let memory = of(&without, "shared memory");
    assert_eq!(memory["verdict"], "broken");
    assert!(memory["found"].as_str().expect("text").contains("/proc/no/such/folder"), "{memory}");
    assert!(memory["change"].as_str().expect("text").contains("HIGHWIRE_SHM_DIR"), "{memory}");

    // An address for documentation, which no machine has.
    let (succeeds, elsewhere) = findings(&[("HIGHWIRE_ADDR", "192.0.2.7")]);
    assert!(!succeeds);
    let device = of(&elsewhere, "device");
    assert_eq!(device["verdict"], "broken");
    assert!(device["found"].as_str().expect("text").contains("192.0.2.7"), "{device}");

    let output = doctor(&[("HIGHWIRE_ADDR", "nowhere")]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("`nowhere`, which is no IP address"), "{said}");
}

#[test]
fn libraries_that_are_missing_only_limit_it() {
    let (succeeds, findings) = findings(&[("HIGHWIRE_LIBS", "/proc")]);
    assert!(succeeds, "{findings:?}");
    let libraries = of(&findings, "drop-in");
    assert_eq!(libraries["verdict"], "limits");
    assert!(libraries["change"].as_str().expect("text").contains("cargo xtask libs"), "{libraries}");
}
