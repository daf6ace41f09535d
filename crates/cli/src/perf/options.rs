//! The options of a test, as people know them from perftest, and the plan that they make.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use highwire_host::Engine;
use highwire_link::{FaultConfig, parse_duration, parse_rate};

use crate::exchange::DEFAULT_PORT;
use crate::failure::usage;
use crate::values;

use super::plan::{Length, Link, Metric, Operation, Plan, Recovery, Service};
use super::session;

const LAT_ITERATIONS: u64 = 10_000;
const BW_TIME: Duration = Duration::from_secs(2);
const LAT_SIZE_BYTES: u32 = 32;
const BW_SIZE_BYTES: u32 = 65_536;
const UD_SIZE_BYTES: u32 = 1024;
const ATOMIC_SIZE_BYTES: u32 = 8;
const DEPTH: u32 = 128;

/// Options of one test.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TestArgs {
    /// Round trips (lat), or messages and bytes per second (bw).
    metric: Metric,
    /// The machine where the other end listens; without it this program runs both ends, as two processes.
    #[arg(conflicts_with = "listen")]
    server: Option<String>,
    /// Be the other end: wait for one test and serve it.
    #[arg(long, num_args = 0..=1, default_missing_value = "0.0.0.0", value_name = "ADDRESS")]
    listen: Option<String>,
    /// TCP port on which the two ends agree on the test.
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Message size: 32, 64K, 1M [default: 32 for lat, 64K for bw]
    #[arg(short, long, value_parser = values::size_bytes, value_name = "BYTES")]
    size: Option<u32>,
    /// Messages to measure [default: 10000 for lat; bw runs for 2 s]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "duration")]
    iters: Option<u64>,
    /// Measure for so long instead of a number of messages: 10s
    #[arg(short = 'D', long, value_parser = values::seconds_or_span, value_name = "TIME")]
    duration: Option<Duration>,
    /// Work requests in flight, for bw.
    #[arg(short = 't', long, default_value_t = DEPTH, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: u32,
    /// Work requests posted with one doorbell, for bw.
    #[arg(short = 'l', long, visible_alias = "post-list", default_value_t = 1, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..))]
    chain: u32,
    /// Service of the queue pair.
    #[arg(short = 'c', long, value_enum, default_value_t = Service::Rc)]
    service: Service,
    /// Loss recovery of an RC queue pair.
    #[arg(long, value_enum, default_value_t = Recovery::Irn)]
    recovery: Recovery,
    /// How packets travel.
    #[arg(long, value_enum, default_value_t = Link::Auto)]
    link: Link,
    /// Payload bytes of a packet at most [default: what the interface carries]
    #[arg(short, long, value_parser = ["256", "512", "1024", "2048", "4096"])]
    mtu: Option<String>,
    /// Time until the completion instead of until the peer's answer, for send lat and write lat.
    #[arg(long)]
    completion: bool,
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
    /// Do not measure the floor beside it.
    #[arg(long)]
    no_floor: bool,
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
pub(crate) struct FaultArgs {
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

impl FaultArgs {
    pub(crate) fn faults(&self) -> Result<FaultConfig> {
        let faults = FaultConfig {
            loss: self.loss,
            duplicate: self.dup,
            reorder: self.reorder,
            corrupt: self.corrupt,
            delay: self.delay,
            jitter: self.jitter,
            seed: self.seed,
            ..FaultConfig::default()
        };
        faults.check().map_err(|error| usage(error.to_string()))?;
        Ok(faults)
    }
}

/// What only this end needs to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Local {
    pub(crate) pcap: Option<PathBuf>,
    pub(crate) engine: Engine,
    pub(crate) core: Option<usize>,
    pub(crate) with_floor: bool,
    pub(crate) json: bool,
}

/// Checks the options and runs the test from the end that they name.
pub(crate) fn run(operation: Operation, args: &TestArgs) -> Result<ExitCode> {
    let plan = plan(operation, args)?;
    let local = Local {
        pcap: args.pcap.clone(),
        engine: args.engine.parse().expect("clap lets only the engine's three choices pass"),
        core: args.core,
        with_floor: !args.no_floor,
        json: args.json,
    };
    match (&args.listen, &args.server) {
        (Some(address), _) => session::listen(&plan, address, args.port, args.announce, &local),
        (None, Some(server)) => session::measure_against(&plan, server, args.port, &local),
        (None, None) => session::measure_both_ends(&plan, &local),
    }
}

fn plan(operation: Operation, args: &TestArgs) -> Result<Plan> {
    let default_size = match (operation, args.metric) {
        (Operation::FetchAdd, _) => ATOMIC_SIZE_BYTES,
        (_, Metric::Lat) => LAT_SIZE_BYTES,
        (_, Metric::Bw) => BW_SIZE_BYTES,
    };
    let mtu_bytes: Option<u32> =
        args.mtu.as_ref().map(|mtu| mtu.parse().expect("clap lets only the five MTUs pass"));
    let default_size = match args.service {
        Service::Ud => default_size.min(mtu_bytes.unwrap_or(UD_SIZE_BYTES)),
        Service::Rc | Service::Uc => default_size,
    };
    let size_bytes = args.size.unwrap_or(default_size);
    let length = match (args.iters, args.duration, args.metric) {
        (Some(iterations), ..) => Length::Iterations(iterations),
        (None, Some(time), _) => Length::Time(time),
        (None, None, Metric::Lat) => Length::Iterations(LAT_ITERATIONS),
        (None, None, Metric::Bw) => Length::Time(BW_TIME),
    };
    let faults = args.faults.faults()?;
    let plan = Plan {
        operation,
        metric: args.metric,
        size_bytes,
        length,
        depth: args.depth,
        chain: args.chain,
        until_completion: args.completion,
        service: args.service,
        recovery: args.recovery,
        // Faults happen to packets, and only UDP is sure to have some.
        link: if args.link == Link::Auto && !faults.is_harmless() { Link::Udp } else { args.link },
        mtu_bytes,
        faults,
    };
    match contradiction(&plan) {
        Some(message) => Err(usage(message)),
        None => Ok(plan),
    }
}

/// What makes no sense together, and what would.
pub(crate) fn contradiction(plan: &Plan) -> Option<String> {
    let name = plan.operation.name();
    match (plan.service, plan.operation) {
        (Service::Ud, Operation::Write | Operation::Read | Operation::FetchAdd) => {
            return Some(format!("UD only has SEND, no {name}: --service rc"));
        }
        (Service::Uc, Operation::Read | Operation::FetchAdd) => {
            return Some(format!("UC has SEND and WRITE, no {name}: --service rc"));
        }
        _ => {}
    }
    if let Some(mtu) = plan.mtu_bytes
        && plan.service == Service::Ud
        && plan.size_bytes > mtu
    {
        return Some(format!("a UD message is one packet: --size up to {mtu} or a larger --mtu"));
    }
    if plan.operation == Operation::FetchAdd && plan.size_bytes != ATOMIC_SIZE_BYTES {
        return Some("an atomic works on 8 bytes: leave --size away".into());
    }
    if plan.operation == Operation::Write && plan.is_ping_pong() && plan.size_bytes == 0 {
        return Some("WRITE latency watches the last byte arrive: --size 1 or more".into());
    }
    if plan.chain > plan.depth {
        return Some(format!("a chain of {} exceeds the depth of {}: raise --depth", plan.chain, plan.depth));
    }
    if plan.link == Link::Shm && !plan.faults.is_harmless() {
        return Some("faults happen to packets: --link udp".into());
    }
    None
}

/// A plan with the usual values, for tests of what carries one out.
#[cfg(test)]
pub(crate) fn plan_for_tests(operation: Operation, metric: Metric, length: Length) -> Plan {
    Plan {
        operation,
        metric,
        size_bytes: if operation == Operation::FetchAdd { ATOMIC_SIZE_BYTES } else { LAT_SIZE_BYTES },
        length,
        depth: 16,
        chain: 1,
        until_completion: false,
        service: Service::Rc,
        recovery: Recovery::Irn,
        link: Link::Auto,
        mtu_bytes: Some(1024),
        faults: FaultConfig::default(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: TestArgs,
    }

    fn parse(operation: Operation, line: &str) -> Result<Plan, String> {
        let words = std::iter::once("perf").chain(line.split_whitespace());
        let parsed = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        plan(operation, &parsed.args).map_err(|error| error.to_string())
    }

    fn refuses(operation: Operation, line: &str, because: &str) {
        let error = parse(operation, line).expect_err(line);
        assert!(error.contains(because), "{line}: {error}");
    }

    #[test]
    fn defaults_follow_the_metric() {
        let lat = parse(Operation::Write, "lat").expect("a plan");
        assert_eq!((lat.size_bytes, lat.length), (32, Length::Iterations(10_000)));
        let bw = parse(Operation::Write, "bw").expect("a plan");
        assert_eq!((bw.size_bytes, bw.length), (65_536, Length::Time(BW_TIME)));
        assert_eq!(parse(Operation::FetchAdd, "lat").expect("a plan").size_bytes, 8);
    }

    #[test]
    fn reads_what_perftest_users_type() {
        let plan = parse(Operation::Send, "bw -s 4K -n 500 -t 64 -l 16 -c uc -m 4096").expect("a plan");
        assert_eq!((plan.size_bytes, plan.length), (4096, Length::Iterations(500)));
        assert_eq!((plan.depth, plan.chain, plan.service, plan.mtu_bytes), (64, 16, Service::Uc, Some(4096)));
    }

    #[test]
    fn reads_faults() {
        let plan = parse(Operation::Write, "bw --recovery go-back-n --loss 1% --delay 10us --seed 7")
            .expect("a plan");
        assert_eq!(plan.recovery, Recovery::GoBackN);
        assert_eq!((plan.faults.loss, plan.faults.seed), (0.01, 7));
        assert_eq!(plan.faults.delay, highwire_stdx::Duration::from_micros(10));
    }

    #[test]
    fn says_what_would_make_sense() {
        refuses(Operation::Write, "bw --service ud", "--service rc");
        refuses(Operation::Read, "lat --service uc", "--service rc");
        refuses(Operation::Send, "bw --service ud --size 4K --mtu 1024", "larger --mtu");
        refuses(Operation::FetchAdd, "lat --size 16", "8 bytes");
        refuses(Operation::Send, "bw --depth 8 --chain 9", "raise --depth");
        refuses(Operation::Send, "bw --link shm --loss 1%", "--link udp");
        refuses(Operation::Send, "bw --loss 200%", "not a rate");
        refuses(Operation::Send, "bw --loss 60% --dup 60%", "add up");
        refuses(Operation::Send, "lat --mtu 1500", "possible values");
    }
}
