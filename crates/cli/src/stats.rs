//! `highwire stats`: the counters of the devices that run now, by name and reason.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use highwire_host::{RunningDevice, running_brokers, running_devices};
use highwire_link::shm::EngineName;
use highwire_stdx::words::counted;
use serde::Serialize;

use crate::console::{Console, Tone};

/// Options of `highwire stats`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Counters that stand at zero are left out; --all shows them. dropped_… and refused_… name the reason. Channels are named by their descriptors,
completion queues by the order in which they were made, and both only where a thread has waited.

Examples:
  highwire stats
  highwire stats 127.83.20.7 --all
  highwire stats --json"
)]
pub(crate) struct Args {
    /// Only the device with this address.
    address: Option<IpAddr>,
    /// Also the counters that stand at zero.
    #[arg(short, long)]
    all: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct DeviceJson<'a> {
    address: IpAddr,
    /// Whether this is the broker of an address, which has its queue pair 1, and no device.
    broker: bool,
    pid: u32,
    counters: BTreeMap<&'a str, u64>,
    /// What is in use, rather than counted.
    flags: BTreeMap<&'a str, bool>,
    /// By channel, or by completion queue if a thread waits on one without a channel.
    channels: BTreeMap<&'a str, BTreeMap<&'a str, u64>>,
    channels_left_out: u32,
}

/// Among the counters, figures that say whether something is in use.
const FLAGS: [&str; 2] = ["udp_gso", "udp_gro"];

/// The figures that count, and those that are flags.
fn parted(figures: &[(String, u64)]) -> (Vec<(String, u64)>, BTreeMap<&str, bool>) {
    let is_flag = |name: &str| FLAGS.contains(&name);
    let flags =
        figures.iter().filter(|(name, _)| is_flag(name)).map(|(name, value)| (name.as_str(), *value > 0));
    (figures.iter().filter(|(name, _)| !is_flag(name)).cloned().collect(), flags.collect())
}

fn is_broker(device: &RunningDevice) -> bool {
    device.shard == Some(EngineName::BROKER)
}

/// Shows the counters.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut devices = running_devices().context("cannot list the devices that run")?;
    // After the devices at its address.
    devices.extend(running_brokers().context("cannot list the brokers that run")?);
    devices.sort_by_key(|device| (device.address, is_broker(device), device.shard));
    if let Some(address) = args.address {
        let others: Vec<String> = devices.iter().map(|device| device.address.to_string()).collect();
        devices.retain(|device| device.address == address);
        if devices.is_empty() {
            let others = if others.is_empty() { "none runs".into() } else { others.join(", ") };
            bail!("no device of yours runs at {address}; of those that run: {others}");
        }
    }
    let mut console = Console::new();
    if args.json {
        let documents: Vec<_> = devices.iter().map(|device| json(device, args.all)).collect();
        console.json(&documents)?;
    } else {
        show(&devices, args.all, &mut console)?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn json(device: &RunningDevice, all: bool) -> DeviceJson<'_> {
    let channels = device.channels.iter();
    let (_, flags) = parted(&device.counters);
    let mut counters = named(&device.counters, all);
    counters.retain(|name, _| !FLAGS.contains(name));
    DeviceJson {
        address: device.address,
        broker: is_broker(device),
        pid: device.pid,
        counters,
        flags,
        channels: channels.map(|channel| (channel.name.as_str(), named(&channel.figures, all))).collect(),
        channels_left_out: device.channels_left_out,
    }
}

/// Figures by name, without those that are zero unless `all`.
fn named(figures: &[(String, u64)], all: bool) -> BTreeMap<&str, u64> {
    let shown = figures.iter().filter(|(_, value)| all || *value > 0);
    shown.map(|(name, value)| (name.as_str(), *value)).collect()
}

fn show(devices: &[RunningDevice], all: bool, console: &mut Console) -> Result<()> {
    if devices.is_empty() {
        return console.line("no device of yours runs on this machine");
    }
    for device in devices {
        let title = match is_broker(device) {
            true => format!("broker of {}, process {}: connection management", device.address, device.pid),
            false => format!("{} in process {}", device.address, device.pid),
        };
        console.line(console.paint(Tone::Heading, &title))?;
        let (counters, flags) = parted(&device.counters);
        for (name, is_on) in flags {
            console.line(format!("  {name:<32}{:>16}", if is_on { "on" } else { "off" }))?;
        }
        for (name, value) in counters.iter().filter(|(_, value)| all || *value > 0) {
            let line = format!("  {name:<32}{value:>16}");
            let is_trouble =
                *value > 0 && ["dropped_", "refused_"].iter().any(|prefix| name.starts_with(prefix));
            console.line(if is_trouble { console.paint(Tone::Bad, &line) } else { line })?;
        }
        for channel in &device.channels {
            console.line(format!("  {}", channel.name))?;
            for (name, value) in channel.figures.iter().filter(|(_, value)| all || *value > 0) {
                console.line(format!("    {name:<30}{value:>16}"))?;
            }
        }
        if device.channels_left_out > 0 {
            console.line(format!(
                "  and {} that counted less",
                counted(device.channels_left_out.into(), "channel")
            ))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_no_count() {
        let figures = [("udp_gso", 1), ("udp_gro", 0), ("packets_sent", 3)];
        let figures = figures.map(|(name, value)| (name.to_string(), value));
        let (counters, flags) = parted(&figures);
        assert_eq!(counters, [("packets_sent".to_string(), 3)]);
        assert_eq!(flags, BTreeMap::from([("udp_gso", true), ("udp_gro", false)]));
    }
}
