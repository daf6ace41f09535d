//! `highwire serve`: a device for programs that map its queues and call no native code.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use highwire_host::door::Door;
use highwire_host::{DOOR_SHARE, Device, DeviceConfig, broker, door};

use crate::console::Console;

/// Options of `highwire serve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Says where it listens, serves until it is told to end (Ctrl-C), and leaves nothing behind.
With --detach the command ends as soon as programs may come, and the device goes on.

Examples:
  highwire serve
  highwire serve --address 192.0.2.7 &
  highwire serve --share 4096
  highwire serve --detach --idle 10"
)]
pub(crate) struct Args {
    /// The device's address; HIGHWIRE_ADDR, or an unused one of 127.0.0.0/8, unless given.
    #[arg(long)]
    address: Option<IpAddr>,
    /// Queue pairs and shared receive queues that each program may have, of 4096 for all together.
    #[arg(long, default_value_t = DOOR_SHARE, value_parser = clap::value_parser!(u32).range(1..=4096))]
    share: u32,
    /// End once no program has been connected for so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    idle: Option<u32>,
    /// Say where it listens, and go on in the background.
    #[arg(long)]
    detach: bool,
}

/// Serves until a signal ends it, or until it is not used.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let config = DeviceConfig { address: args.address, door_share: args.share, ..DeviceConfig::default() };
    let mut background = match args.detach {
        true => Some(broker::Background::enter().context("cannot go on in the background")?),
        false => None,
    };
    let idle = args.idle.map(|seconds| Duration::from_secs(seconds.into()));
    let mut said = Ok(());
    let is_open = |device: &Device, door: &Door| {
        said = announce(device, door);
        if let Some(background) = background.take_if(|_| said.is_ok()) {
            said = background.ready().context("cannot leave the terminal");
        }
    };
    door::serve(&config, idle, is_open).context("cannot serve")?;
    said?;
    Ok(ExitCode::SUCCESS)
}

/// Tells the process that started this one that programs may come now.
fn announce(device: &Device, door: &Door) -> Result<()> {
    let mut console = Console::new();
    console.line(format_args!("{} serves at {}", device.gid(), door.path().display()))?;
    console.finish()
}
