//! Tests of the boundary itself: layouts against a C compiler and rdma-core v65, exports against real programs, wrong arguments.

mod arguments;
mod exports;
mod golden;
mod layout;
mod pair;
mod privileged;
mod rules;
mod steering;
mod windows;

use std::process::Command;

/// Says why a test cannot run, in the form that `cargo xtask test` counts.
fn skip(reason: &str) {
    println!("skipped: {reason}");
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
