//! Highwire's end of the interop conversations, and the judge of their capture.
//!
//! `interop-peer serve` speaks the lines of the guest's verbs agent (`interop/guest/agent.h`) on its standard input and
//! output, with Highwire's Rust API behind them. `interop-peer capture FILE` decodes a capture and checks every ICRC.
//!
//! `interop-peer broker --address ADDRESS --registry DIRECTORY` owns the address for programs over the
//! drop-in libraries, as `highwire broker` does otherwise.
//!
//! `interop-peer door` serves `HIGHWIRE_ADDR` to programs that map its queues, as `highwire serve` does, and
//! prints its door.
//!
//! A program of its own, so that `cargo xtask` builds whatever state the crates below are in, and so that a crash here is
//! a failed scenario there.

mod capture;
mod memory;
mod objects;
mod request;
mod serve;
mod work;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use highwire_host::{DeviceConfig, door};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["capture", file] => capture::print(file),
        ["serve"] => serve::serve(),
        ["door"] => open_door(),
        ["broker", "--address", address, "--registry", registry] => own(address, registry, false),
        ["broker", "--address", address, "--registry", registry, "--succeed"] => own(address, registry, true),
        _ => usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop-peer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn own(address: &str, registry: &str, succeeds: bool) -> Result<()> {
    Ok(highwire_host::broker::serve(Some(Path::new(registry)), address.parse()?, succeeds)?)
}

/// Prints a line with the door's path, and then serves a device to the programs that connect, until a signal
/// ends this process.
fn open_door() -> Result<()> {
    let mut said = Ok(());
    door::serve(&DeviceConfig::default(), None, |_, door| {
        let mut out = std::io::stdout().lock();
        said = writeln!(out, "{}", door.path().display()).and_then(|()| out.flush());
    })?;
    Ok(said?)
}

fn usage() -> Result<()> {
    bail!("usage: interop-peer serve | door | capture FILE")
}
