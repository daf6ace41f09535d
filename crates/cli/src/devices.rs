//! `highwire devices`: the device that programs get here and the processes that share it, and the devices of
//! single processes.

use std::fmt::Write;
use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use highwire_host::broker::{Sharer, sharers};
use highwire_host::{ADDRESS_VARIABLE, RunningDevice, default_shared_address, running_devices};
use highwire_link::shm::{EngineName, Registry};
use highwire_link::{UdpConfig, UdpLink, netdev_mtu_of, roce_mtu_bytes};
use serde::Serialize;

use crate::console::{Console, Tone};

/// Options of `highwire devices`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Programs written for RDMA cards all get one device at one address: HIGHWIRE_ADDR, or one of 127.83.0.0/16
that depends on the user. Other programs may have devices of their own.

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
pub(crate) struct Row {
    name: &'static str,
    pub(crate) address: IpAddr,
    protocol: &'static str,
    /// Which links reach it: `shm` for processes of this user, `udp` for everybody.
    links: Vec<&'static str>,
    /// `active`, or `unavailable` if its address cannot be had.
    state: &'static str,
    /// Why it is unavailable.
    pub(crate) reason: Option<String>,
    pub(crate) path_mtu_bytes: Option<u32>,
    /// Whether all processes of the user share it.
    shared: bool,
    processes: Vec<Process>,
}

#[derive(Debug, Serialize)]
struct Process {
    pid: u32,
    command: String,
    /// Its part of a shared address.
    shard: Option<u8>,
}

/// Lists the devices.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let registry = Registry::open()?;
    let running = running_devices().context("cannot list the devices that run")?;
    let ours = shared_address()?;
    let others = registry.shared_gids().context("cannot list the addresses that are shared")?;
    let mut rows = vec![shared(&registry, ours)];
    // Devices with an entry in the directory and no process are about to end.
    let others =
        others.into_iter().filter(|address| *address != ours).map(|address| shared(&registry, address));
    rows.extend(others.filter(|row| !row.processes.is_empty()));
    rows.extend(running.iter().filter(|device| device.shard.is_none()).map(|device| own(&registry, device)));
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

/// The device that programs get here.
pub(crate) fn shared_device(registry: &Registry) -> Result<Row> {
    Ok(shared(registry, shared_address()?))
}

fn shared_address() -> Result<IpAddr> {
    match std::env::var(ADDRESS_VARIABLE) {
        Ok(text) if !text.trim().is_empty() => {
            text.trim().parse().map_err(|_| anyhow!("{ADDRESS_VARIABLE} is `{text}`, which is no IP address"))
        }
        _ => Ok(default_shared_address()),
    }
}

/// The device that all processes share, whether or not any uses it now.
fn shared(registry: &Registry, address: IpAddr) -> Row {
    let mut sharers = sharers_of(registry, address);
    let mut reason = None;
    if sharers.is_none() {
        // A process that starts a broker now must not find the port taken by this check.
        let _lock = registry.lock_broker(address);
        sharers = sharers_of(registry, address);
        if sharers.is_none() {
            // As the first process would open it.
            reason = UdpLink::open(&UdpConfig::new(address)).err().map(|error| error.to_string());
        }
    }
    let sharers = sharers.unwrap_or_default();
    let processes: Vec<Process> =
        sharers.iter().map(|sharer| Process { shard: Some(sharer.shard), ..process(sharer.pid) }).collect();
    let has_shm = |process: &Process| {
        process.shard.is_some_and(|shard| registry.directory(EngineName::shared(address, shard)).exists())
    };
    let is_shm = processes.is_empty() || processes.iter().any(has_shm);
    Row {
        name: "hw0",
        address,
        protocol: "RoCEv2",
        links: links(is_shm),
        state: if reason.is_none() { "active" } else { "unavailable" },
        reason,
        path_mtu_bytes: path_mtu_bytes(address),
        shared: true,
        processes,
    }
}

/// The processes that share an address; `None` if it has no broker and no process that would restore one.
fn sharers_of(registry: &Registry, address: IpAddr) -> Option<Vec<Sharer>> {
    let known = sharers(registry, address);
    let is_served = known.is_some();
    let mut sharers = known.unwrap_or_default();
    // If a broker was killed its processes go on meanwhile, and the next broker learns of them one by one.
    for device in running_devices().unwrap_or_default() {
        let shard = device.shard.filter(|_| device.address == address);
        if let Some(shard) = shard.filter(|&shard| sharers.iter().all(|known| known.shard != shard)) {
            sharers.push(Sharer { shard, pid: device.pid });
        }
    }
    sharers.sort_by_key(|sharer| sharer.shard);
    (is_served || !sharers.is_empty()).then_some(sharers)
}

/// A device of a single process.
fn own(registry: &Registry, running: &RunningDevice) -> Row {
    Row {
        name: "hw0",
        address: running.address,
        protocol: "RoCEv2",
        links: links(registry.directory(running.address).exists()),
        state: "active",
        reason: None,
        path_mtu_bytes: path_mtu_bytes(running.address),
        shared: false,
        processes: vec![process(running.pid)],
    }
}

fn links(is_shm: bool) -> Vec<&'static str> {
    if is_shm { vec!["shm", "udp"] } else { vec!["udp"] }
}

fn path_mtu_bytes(address: IpAddr) -> Option<u32> {
    roce_mtu_bytes(netdev_mtu_of(address)?)
}

fn process(pid: u32) -> Process {
    let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Process { pid, command: command.trim().to_owned(), shard: None }
}

fn text(row: &Row, console: &Console) -> String {
    let mut remark = String::new();
    for (index, process) in row.processes.iter().enumerate() {
        let before = match (index, row.shared) {
            (0, true) => "shared by ",
            (0, false) => "of ",
            _ => ", ",
        };
        let _ = write!(remark, "{before}{} {}", process.command, process.pid);
        if index == 0 && !row.shared {
            remark.push_str(" alone");
        }
    }
    if remark.is_empty() {
        remark.push_str("user space; no card, no module, no root");
    }
    let remark = match &row.reason {
        Some(reason) => console.paint(Tone::Bad, reason),
        None => console.paint(Tone::Faint, &format!("({remark})")),
    };
    format!(
        "{}  {:<15} {}   {:<8} {:<11}  {remark}",
        row.name,
        row.address,
        row.protocol,
        row.links.join("+"),
        row.state
    )
}
