//! Tests of the boundary itself: layouts against a C compiler, exports against real programs, wrong arguments.

mod arguments;
mod exports;
mod layout;
mod steering;

use std::process::Command;

/// Says why a test cannot run, in the form that `cargo xtask test` counts.
fn skip(reason: &str) {
    println!("skipped: {reason}");
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
