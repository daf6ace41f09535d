//! The options of a test, similar to perftest's, and the plan that they make.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::values;

use super::ends::EndArgs;
use super::plan::{ATOMIC_SIZE_BYTES, Length, Metric, Operation, Plan, Service};

const LAT_ITERATIONS: u64 = 10_000;
const BW_TIME: Duration = Duration::from_secs(2);
const LAT_SIZE_BYTES: u32 = 32;
const BW_SIZE_BYTES: u32 = 65_536;
const UD_SIZE_BYTES: u32 = 1024;
const DEPTH: u32 = 128;
/// Four receives for each must fit into a queue of the device.
const DEPTH_MAX: i64 = 16_384;

/// Options of one test.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TestArgs {
    /// Round trips (lat), or messages and bytes per second (bw).
    metric: Metric,
    #[command(flatten)]
    ends: EndArgs,
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
    #[arg(short = 't', long, default_value_t = DEPTH, value_parser = clap::value_parser!(u32).range(1..=DEPTH_MAX))]
    depth: u32,
    /// Work requests posted with one doorbell, for bw.
    #[arg(short = 'l', long, visible_alias = "post-list", default_value_t = 1, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..))]
    chain: u32,
    /// Time until the completion instead of until the peer's answer, for send lat and write lat.
    #[arg(long)]
    completion: bool,
    /// Do not measure the floor beside it.
    #[arg(long)]
    no_floor: bool,
}

/// Checks the options and runs the test from the end that they name.
pub(crate) fn run(operation: Operation, args: &TestArgs) -> Result<ExitCode> {
    args.ends.run(&plan(operation, args)?, !args.no_floor)
}

fn plan(operation: Operation, args: &TestArgs) -> Result<Plan> {
    let TestArgs { metric, ends, .. } = args;
    let default_size = match (operation, metric) {
        (Operation::FetchAdd, _) => ATOMIC_SIZE_BYTES,
        (_, Metric::Bw) => BW_SIZE_BYTES,
        (_, Metric::Lat | Metric::PingPong) => LAT_SIZE_BYTES,
    };
    let mtu_bytes = ends.mtu_bytes();
    let default_size = match ends.service {
        Service::Ud => default_size.min(mtu_bytes.unwrap_or(UD_SIZE_BYTES)),
        Service::Rc | Service::Uc => default_size,
    };
    let length = match (args.iters, args.duration, metric) {
        (Some(iterations), ..) => Length::Iterations(iterations),
        (None, Some(time), _) => Length::Time(time),
        (None, None, Metric::Bw) => Length::Time(BW_TIME),
        (None, None, Metric::Lat | Metric::PingPong) => Length::Iterations(LAT_ITERATIONS),
    };
    let faults = ends.faults()?;
    Ok(Plan {
        operation,
        metric: *metric,
        size_bytes: args.size.unwrap_or(default_size),
        length,
        depth: args.depth,
        chain: args.chain,
        until_completion: args.completion,
        service: ends.service,
        recovery: ends.recovery,
        link: ends.link(&faults),
        mtu_bytes,
        faults,
    })
}

/// A plan with the usual values, for tests of code that carries one out.
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
        recovery: super::plan::Recovery::Irn,
        link: super::plan::Link::Auto,
        mtu_bytes: Some(1024),
        faults: highwire_link::FaultConfig::default(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::perf::plan::{Link, Recovery};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: TestArgs,
    }

    fn parse(operation: Operation, line: &str) -> Result<Plan, String> {
        let words = std::iter::once("perf").chain(line.split_whitespace());
        let parsed = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let plan = plan(operation, &parsed.args).map_err(|error| error.to_string())?;
        plan.contradiction().map_or(Ok(plan), Err)
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
        assert_eq!(plan.link, Link::Udp, "faults are of a network");
        let plan = parse(Operation::Write, "bw --link shm --loss 1%").expect("a plan");
        assert_eq!(plan.link, Link::Shm, "unless somebody wants them elsewhere");
    }

    #[test]
    fn says_what_would_make_sense() {
        refuses(Operation::Write, "bw --service ud", "--service rc");
        refuses(Operation::Read, "lat --service uc", "--service rc");
        refuses(Operation::Send, "bw --service ud --size 4K --mtu 1024", "larger --mtu");
        refuses(Operation::FetchAdd, "lat --size 16", "8 bytes");
        refuses(Operation::Send, "bw --depth 8 --chain 9", "raise --depth");
        refuses(Operation::Send, "bw --loss 200%", "not a rate");
        refuses(Operation::Send, "bw --loss 60% --dup 60%", "add up");
        refuses(Operation::Send, "lat --mtu 1500", "possible values");
    }
}
