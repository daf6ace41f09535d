//! The contract of the laboratory's commands, typed as `highwire`'s and by the laboratory's own name.

mod common;

use std::process::Output;

use common::{highwire, lab};

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

#[test]
fn help_shows_examples() {
    for command in [&["nanopu", "run"][..], &["nanopu", "theory"], &["nanopu", "bench"], &["store", "check"]]
    {
        let words = [command, &["--help"]].concat();
        for (output, name) in
            [(highwire(&words).output(), "highwire"), (lab(&words).output(), "highwire-lab")]
        {
            let output = output.expect("it starts");
            let (text, usage) = (text(&output), format!("Usage: {name} {}", command.join(" ")));
            assert_eq!(output.status.code(), Some(0), "{words:?}: {text}");
            assert!(text.contains("Example") && text.contains(&usage), "{words:?}: {text}");
        }
    }
}

#[test]
fn the_product_runs_what_the_laboratory_has() {
    let listed = |output: std::io::Result<Output>| text(&output.expect("it starts"));
    let own = listed(lab(["sim", "list"]).output());
    assert!(own.contains("fig01"), "{own}");
    assert_eq!(listed(highwire(["sim", "list"]).output()), own);
    let wrong = highwire(["store", "check", "--seed", "many"]).output().expect("it starts");
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
}
