//! `highwire devices`: what a program that opens a device here gets, and which run now.

use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_host::{Device, DeviceConfig, RunningDevice, running_devices};
use serde::Serialize;

use crate::console::{Console, Tone};

/// Options of `highwire devices`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "HIGHWIRE_ADDR names the address of a new device; without it a device takes an unused one of 127.0.0.0/8.

Examples:
  highwire devices
  HIGHWIRE_ADDR=192.0.2.7 highwire devices"
)]
pub(crate) struct Args {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// One device.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    address: String,
    protocol: &'static str,
    state: &'static str,
    path_mtu_bytes: Option<u32>,
    /// The process that it runs in; none for the one that a new program would get.
    pid: Option<u32>,
}

/// Opens a device as any program would, and lists it with those that run.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before ours is among them.
    let running = running_devices().context("cannot list the devices that run")?;
    let device = Device::open(&DeviceConfig::default())?;
    let new = Row {
        name: "hw0".into(),
        address: device.gid().to_string(),
        protocol: "RoCEv2",
        state: "active",
        path_mtu_bytes: Some(device.mtu().bytes()),
        pid: None,
    };
    let rows: Vec<Row> = std::iter::once(new).chain(running.iter().map(row)).collect();
    let mut console = Console::new();
    if args.json {
        console.json(&rows)?;
    } else {
        for row in &rows {
            console.line(text(row, &console))?;
        }
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn row(running: &RunningDevice) -> Row {
    Row {
        name: "hw0".into(),
        address: running.address.to_string(),
        protocol: "RoCEv2",
        state: "active",
        path_mtu_bytes: None,
        pid: Some(running.pid),
    }
}

fn text(row: &Row, console: &Console) -> String {
    let remark = match row.pid {
        None => "(user space; no card, no module, no root)".to_string(),
        Some(pid) => format!("(runs in process {pid})"),
    };
    let remark = console.paint(Tone::Faint, &remark);
    format!("{}  {:<15} {}   {}   {remark}", row.name, row.address, row.protocol, row.state)
}
