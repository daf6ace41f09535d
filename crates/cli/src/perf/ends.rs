//! The options of every command with two ends: their addresses, their connection, faults.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use highwire_link::{FaultConfig, parse_duration, parse_rate};

use crate::exchange::DEFAULT_PORT;
use crate::failure::usage;

use super::local::Local;
use super::plan::{Link, Plan, Recovery, Service};
use super::session;

/// Options of both ends.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EndArgs {
    /// The machine where the other end listens; without it this program runs both ends, as two processes.
    #[arg(conflicts_with = "listen")]
    server: Option<String>,
    /// Be the other end: wait for one test and serve it.
    #[arg(long, num_args = 0..=1, default_missing_value = "0.0.0.0", value_name = "ADDRESS")]
    listen: Option<String>,
    /// TCP port on which the two ends agree on the test.
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Service of the queue pair.
    #[arg(short = 'c', long, value_enum, default_value_t = Service::Rc)]
    pub(crate) service: Service,
    /// Loss recovery of an RC queue pair.
    #[arg(long, value_enum, default_value_t = Recovery::Irn)]
    pub(crate) recovery: Recovery,
    /// How packets travel; with faults or --pcap, auto means udp.
    #[arg(long, value_enum, default_value_t = Link::Auto)]
    link: Link,
    /// Payload bytes of a packet at most [default: what the interface carries]
    #[arg(short, long, value_parser = ["256", "512", "1024", "2048", "4096"])]
    mtu: Option<String>,
    /// Who runs the engine: the polling thread, a thread of the device's own, or either.
    #[arg(long, default_value = "both", value_parser = ["inline", "background", "both"])]
    engine: String,
    /// Bind this end to a core; both ends on this machine take one each anyway.
    #[arg(long)]
    core: Option<usize>,
    #[command(flatten)]
    faults: FaultArgs,
    /// Write every packet that this end sends and receives to a capture file.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Print the port that was bound, for the process that started this one.
    #[arg(long, hide = true, requires = "listen")]
    announce: bool,
}

/// What goes wrong on purpose, in both directions.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Faults, in both directions")]
struct FaultArgs {
    /// Packets lost: 1% or 0.01
    #[arg(long, default_value = "0", hide_default_value = true, value_parser = parse_rate, value_name = "SHARE")]
    loss: f64,
    /// Packets sent twice.
    #[arg(long, default_value = "0", hide_default_value = true, value_parser = parse_rate, value_name = "SHARE")]
    dup: f64,
    /// Packets overtaken by later ones.
    #[arg(long, default_value = "0", hide_default_value = true, value_parser = parse_rate, value_name = "SHARE")]
    reorder: f64,
    /// Packets with one bit flipped.
    #[arg(long, default_value = "0", hide_default_value = true, value_parser = parse_rate, value_name = "SHARE")]
    corrupt: f64,
    /// Added to every packet's way: 10us, 5ms
    #[arg(long, default_value = "0", hide_default_value = true, value_parser = parse_duration, value_name = "TIME")]
    delay: highwire_stdx::Duration,
    /// Added by chance, up to that much.
    #[arg(long, default_value = "0", hide_default_value = true, value_parser = parse_duration, value_name = "TIME")]
    jitter: highwire_stdx::Duration,
    /// The same seed gives the same faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl EndArgs {
    /// Payload bytes of a packet, if the user has said so.
    pub(crate) fn mtu_bytes(&self) -> Option<u32> {
        self.mtu.as_ref().map(|mtu| mtu.parse().expect("clap lets only the five MTUs pass"))
    }

    /// The faults to inject.
    ///
    /// # Errors
    /// The shares exceed all packets.
    pub(crate) fn faults(&self) -> Result<FaultConfig> {
        let faults = FaultConfig {
            loss: self.faults.loss,
            duplicate: self.faults.dup,
            reorder: self.faults.reorder,
            corrupt: self.faults.corrupt,
            delay: self.faults.delay,
            jitter: self.faults.jitter,
            seed: self.faults.seed,
            ..FaultConfig::default()
        };
        faults.check().map_err(|error| usage(error.to_string()))?;
        Ok(faults)
    }

    /// The link for the packets. Faults belong to a network, unless the user asks for shared memory by name.
    pub(crate) fn link(&self, faults: &FaultConfig) -> Link {
        if self.link == Link::Auto && !faults.is_harmless() { Link::Udp } else { self.link }
    }

    /// Runs the test from the end that the options name.
    ///
    /// # Errors
    /// The plan contradicts itself, or the test fails.
    pub(crate) fn run(&self, plan: &Plan, with_floor: bool) -> Result<ExitCode> {
        if let Some(message) = plan.contradiction() {
            return Err(usage(message));
        }
        let local = Local {
            pcap: self.pcap.clone(),
            peer_pcap: None,
            engine: self.engine.parse().expect("clap lets only the engine's three choices pass"),
            core: self.core,
            with_floor,
            json: self.json,
        };
        match (&self.listen, &self.server) {
            (Some(address), _) => session::listen(plan, address, self.port, self.announce, &local),
            (None, Some(server)) => session::measure_against(plan, server, self.port, &local),
            (None, None) => session::measure_both_ends(plan, &local),
        }
    }
}
