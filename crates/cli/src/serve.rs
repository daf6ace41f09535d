//! `highwire serve`: a device for programs that map its queues and call no native code.

use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_host::door::Door;
use highwire_host::{DOOR_SHARE, Device, DeviceConfig, door};

use crate::console::Console;

/// Options of `highwire serve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Says where it listens, serves until it is told to end (Ctrl-C), and leaves nothing behind.

Examples:
  highwire serve
  highwire serve --address 192.0.2.7 &
  highwire serve --share 4096"
)]
pub(crate) struct Args {
    /// The device's address; HIGHWIRE_ADDR, or an unused one of 127.0.0.0/8, unless given.
    #[arg(long)]
    address: Option<IpAddr>,
    /// Queue pairs and shared receive queues that each program may have, of 4096 for all together.
    #[arg(long, default_value_t = DOOR_SHARE, value_parser = clap::value_parser!(u32).range(1..=4096))]
    share: u32,
}

/// Serves until a signal ends it.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let config = DeviceConfig { address: args.address, door_share: args.share, ..DeviceConfig::default() };
    let mut said = Ok(());
    door::serve(&config, |device, door| said = announce(device, door)).context("cannot serve")?;
    said?;
    Ok(ExitCode::SUCCESS)
}

/// Tells the process that started this one that programs may come now.
fn announce(device: &Device, door: &Door) -> Result<()> {
    let mut console = Console::new();
    console.line(format_args!("{} serves at {}", device.gid(), door.path().display()))?;
    console.finish()
}
