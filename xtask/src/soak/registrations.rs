//! The program `registrations` of the C face's tests, for longer. Its own arguments are the short form.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::programs::{self, Built};
use crate::shell::Log;

/// A guard against hangs.
const SECONDS_MAX: u64 = 6 * 3600;

/// Options of `cargo xtask soak registrations`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Cycles of three registrations, for each of the runs.
    #[arg(long, default_value_t = 100_000)]
    rounds: u64,
    /// How memory is kept still while it moves: any, faults, thread-faults or protection.
    #[arg(long, default_value = "any")]
    way: String,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("soak-registrations")?;
    let Some(built) = Built::new(false, &log)? else {
        bail!("the libraries do not build; {} says why", log.name())
    };
    let Some(program) = programs::compile(&programs::source("registrations"), &log)? else {
        bail!("the program does not compile; {} says why", log.name());
    };
    for threads in [0, 1, 8] {
        println!("{} cycles beside {threads} threads:", args.rounds);
        let arguments = format!("{} {threads} {}", args.way, args.rounds);
        if !built.line(&program, "shm", "", &arguments, SECONDS_MAX).run()? {
            println!("FAILED");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
