//! `highwire bench memory`: how many bytes a queue pair takes.

use std::env;
use std::fs;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use highwire_host::verbs::{Access, CompletionStatus, Operation, QpCaps, Recovery, SendWr, Service};
use highwire_host::{ConnectOptions, Device, DeviceConfig, LinkChoice, QueuePair, QueuePairConfig, WaitFor};
use highwire_rnic::{Rnic, RnicConfig};
use highwire_stdx::{Instant, Rng};
use highwire_verbs::{Address, Gid, Mtu, QpAttr, QpConfig, QpState};
use highwire_wire::{Psn, Qpn};
use serde::{Deserialize, Serialize};

use crate::console::{Console, show};

/// Far longer than a WRITE takes.
const PATIENCE: Duration = Duration::from_secs(30);
const WRITE_BYTES: u32 = 64 << 10;

/// Options of `highwire bench memory`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The memory of a process is what the kernel counts for it (`Pss` in /proc/self/smaps_rollup), shared memory included. A device is opened first, and what
two queue pairs take that are connected with each other is divided by two. Each row is a process of its own.

Examples:
  highwire bench memory
  highwire bench memory --queue-pairs 4000 --sends 16 --receives 16 --json"
)]
pub(crate) struct Args {
    /// Connections; each has two queue pairs.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..=4000))]
    queue_pairs: u32,
    /// Places of a send queue.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    sends: u32,
    /// Places of a receive queue.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    receives: u32,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Measure one place, and print it as JSON.
    #[arg(long, hide = true)]
    only: Option<Place>,
}

/// Where queue pairs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Place {
    /// A device that sends through sockets.
    Udp,
    /// A device with its neighbour in shared memory.
    SharedMemory,
    /// The state machines alone, as a simulated host has them.
    Simulator,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Udp => "a device, over UDP",
            Place::SharedMemory => "a device, through shared memory",
            Place::Simulator => "a host of the simulator",
        }
    }
}

/// Bytes of one queue pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    place: Place,
    /// Once it is connected.
    connected: u64,
    /// Once it has carried a WRITE.
    used: u64,
}

/// Measures.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(place) = args.only {
        let row = match place {
            Place::Udp => of_device(args, place, LinkChoice::Udp)?,
            Place::SharedMemory => of_device(args, place, LinkChoice::Auto)?,
            Place::Simulator => of_simulator(args)?,
        };
        let mut console = Console::new();
        console.json(&row)?;
        console.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Row> =
        Place::value_variants().iter().map(|place| apart(args, *place)).collect::<Result<_>>()?;
    show(args.json, &rows, |console| table(&rows, console))
}

/// A row by a process of its own, whose memory nobody has used before.
fn apart(args: &Args, place: Place) -> Result<Row> {
    let value = place.to_possible_value().context("every place has a name")?;
    let mut command = Command::new(env::current_exe()?);
    command.args(["bench", "memory", "--only", value.get_name()]);
    for (name, number) in
        [("--queue-pairs", args.queue_pairs), ("--sends", args.sends), ("--receives", args.receives)]
    {
        command.arg(name).arg(number.to_string());
    }
    let output = command.output()?;
    if !output.status.success() {
        bail!("{}: {}", place.name(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn of_device(args: &Args, place: Place, link: LinkChoice) -> Result<Row> {
    let config = DeviceConfig { link, ..DeviceConfig::default() };
    let open = || Device::open(&config).context("cannot open a device");
    let (here, there) = (open()?, open()?);
    let (pd, peer_pd) = (here.protection_domain(), there.protection_domain());
    let (cq, peer_cq) = (here.completion_queue(args.queue_pairs)?, there.completion_queue(1)?);
    let from = pd.allocate(WRITE_BYTES as usize, Access::LOCAL_WRITE)?;
    let to = peer_pd.allocate(WRITE_BYTES as usize, Access::ALL)?;
    let options = ConnectOptions { recovery: Recovery::Irn, ..ConnectOptions::default() };
    let caps = QpCaps { max_send_wr: args.sends, max_recv_wr: args.receives, ..QpCaps::default() };
    let write = |qp: &QueuePair| -> Result<()> {
        let sges = [from.sge(0, WRITE_BYTES)];
        qp.post_send(&[SendWr::new(1, Operation::Write(to.remote(0)), &sges)])?;
        if !cq.wait(WaitFor::Any, PATIENCE) {
            bail!("a WRITE did not complete");
        }
        match cq.poll_one() {
            Some(done) if done.status == CompletionStatus::Success => Ok(()),
            other => bail!("a WRITE failed: {other:?}"),
        }
    };
    let connect = || -> Result<[QueuePair; 2]> {
        let qp = pd.queue_pair(&QueuePairConfig { caps, ..QueuePairConfig::new(Service::Rc, &cq) })?;
        let peer =
            peer_pd.queue_pair(&QueuePairConfig { caps, ..QueuePairConfig::new(Service::Rc, &peer_cq) })?;
        qp.connect(&peer.endpoint(), &options)?;
        peer.connect(&qp.endpoint(), &options)?;
        Ok([qp, peer])
    };
    // What the first connection brings along belongs to the devices.
    let first = connect()?;
    write(&first[0])?;
    let before = resident()?;
    let pairs: Vec<_> = (0..args.queue_pairs).map(|_| connect()).collect::<Result<_>>()?;
    let connected = resident()?;
    pairs.iter().try_for_each(|[qp, _]| write(qp))?;
    let used = resident()?;
    Ok(row(place, args.queue_pairs, [before, connected, used]))
}

/// As the simulator's hosts make them, with the sizes of the other rows. A WRITE over a simulated wire leaves nothing.
fn of_simulator(args: &Args) -> Result<Row> {
    let gid = Gid([1; 16]);
    let mut rnic = Rnic::new(RnicConfig::new(gid), Rng::new(1));
    let (pd, cq, now) = (rnic.alloc_pd(), rnic.create_cq(), Instant::ZERO);
    let caps = QpCaps { max_send_wr: args.sends, max_recv_wr: args.receives, ..QpCaps::default() };
    let config =
        QpConfig { service: Service::Rc, pd, send_cq: cq, recv_cq: cq, srq: None, caps, signal_all: false };
    let attributes = [
        QpAttr { access: Some(Access::ALL), ..QpAttr::to_state(QpState::Init) },
        QpAttr {
            address: Some(Address::new(gid)),
            remote_qpn: Some(Qpn::new(17)),
            path_mtu: Some(Mtu::B1024),
            rq_psn: Some(Psn::new(0)),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(1),
            ..QpAttr::to_state(QpState::Rtr)
        },
        QpAttr {
            sq_psn: Some(Psn::new(0)),
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(1),
            recovery: Some(Recovery::Irn),
            ..QpAttr::to_state(QpState::Rts)
        },
    ];
    let before = resident()?;
    for _ in 0..2 * args.queue_pairs {
        let qpn = rnic.create_qp(config).map_err(|error| anyhow::anyhow!("{error}"))?;
        for attribute in &attributes {
            rnic.modify_qp(now, qpn, attribute).map_err(|error| anyhow::anyhow!("{error}"))?;
        }
    }
    let after = resident()?;
    Ok(row(Place::Simulator, args.queue_pairs, [before, after, after]))
}

fn row(place: Place, connections: u32, [before, connected, used]: [u64; 3]) -> Row {
    let of = |bytes: u64| bytes.saturating_sub(before) / (2 * u64::from(connections));
    Row { place, connected: of(connected), used: of(used) }
}

/// Bytes of memory that this process has, and its share of what it has with others.
fn resident() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").context("the kernel does not tell of memory")?;
    parse(&text).context("the kernel names no Pss")
}

fn parse(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn table(rows: &[Row], console: &mut Console) -> Result<()> {
    console.line(format!(
        "{:<34} {:>16} {:>20}",
        "queue pairs of", "bytes, connected", "bytes, after a WRITE"
    ))?;
    for Row { place, connected, used } in rows {
        console.line(format!("{:<34} {connected:>16} {used:>20}", place.name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_become_bytes() {
        let text = "5500-7fff ---p 0000 00:00 0  [rollup]\nRss:  9000 kB\nPss:                 123 kB\nPss_Dirty: 1 kB\n";
        assert_eq!(parse(text), Some(123 << 10));
        assert_eq!(parse("Rss: 1 kB\nPss_Dirty: 5 kB\n"), None);
        assert_eq!(parse("Pss: many kB\n"), None);
    }

    #[test]
    fn a_connection_has_two_queue_pairs() {
        let row = row(Place::Udp, 100, [1000, 201_000, 401_000]);
        assert_eq!((row.connected, row.used), (1000, 2000));
    }
}
