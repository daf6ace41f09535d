//! Passive targets at length: the test `passive` of `crates/host`, whose threads spin on memory and call nothing while a peer
//! writes and sends. No bell may be lost. Its short form is the test itself.

use std::process::ExitCode;

use anyhow::Result;

use crate::shell::Line;

/// Options of `cargo xtask soak bells`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Messages of each conversation.
    #[arg(long, default_value_t = 100_000)]
    messages: u64,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let test = Line::cargo("test --package highwire-host --test passive")
        .env("HIGHWIRE_SOAK_MESSAGES", args.messages.to_string());
    let is_good = test.run()?;
    println!("{}", if is_good { "no bell was lost" } else { "FAILED" });
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
