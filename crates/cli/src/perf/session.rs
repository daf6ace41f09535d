//! The two ends of a test: which starts which, and their exchange around the measurement.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::panic::resume_unwind;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::console::Console;
use crate::exchange::{DEFAULT_PORT, Exchange};
use crate::failure::usage;

use super::endpoint::{EndAddress, Endpoint};
use super::host_end::HostEnd;
use super::local::{Counters, Local};
use super::plan::{Metric, Plan};
use super::report::{Measured, Report};
use super::{bandwidth, echo, floor, latency, pin};

/// The passive end's answer to a plan.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ready(EndAddress),
    Refused(String),
}

/// Both ends are connected, receives are posted: the test may begin. In the other direction: the test is
/// over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    Connected,
    Begin,
    Over,
}

/// The passive end's counts.
#[derive(Debug, Serialize, Deserialize)]
struct Summary {
    received: Option<u64>,
    counters: Counters,
}

/// Waits for one test and serves it.
pub(crate) fn listen(
    plan: &Plan,
    address: &str,
    port: u16,
    announce: bool,
    local: &Local,
) -> Result<ExitCode> {
    let listener = TcpListener::bind((address, port))
        .with_context(|| format!("cannot listen on {address} port {port}; --port chooses another"))?;
    let bound = listener.local_addr()?;
    if announce {
        println!("{}", bound.port());
        crate::console::written(std::io::stdout().flush())?;
    } else {
        eprintln!("waiting on {bound} for: {}", other_end(plan, bound.port()));
    }
    let mut exchange = Exchange::accept(&listener)?;
    let asked: Plan = exchange.receive()?;
    match serve(&asked, &mut exchange, local) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            // The active end may still wait for an address: tell it why there is none.
            let _ = exchange.send(&Answer::Refused(format!("{error:#}")));
            Err(error)
        }
    }
}

/// The command of the other end, which alone decides on sizes and times.
fn other_end(plan: &Plan, port: u16) -> String {
    let test = match plan.metric {
        Metric::PingPong => "pingpong".to_string(),
        Metric::Lat => format!("perf {} lat", plan.operation.name()),
        Metric::Bw => format!("perf {} bw", plan.operation.name()),
    };
    let port = if port == DEFAULT_PORT { String::new() } else { format!(" --port {port}") };
    format!("highwire {test}{port} THIS_MACHINE")
}

fn serve(plan: &Plan, exchange: &mut Exchange, local: &Local) -> Result<()> {
    if let Some(message) = plan.contradiction() {
        bail!("the other end asks for what makes no sense: {message}");
    }
    let faults = plan.faults.for_lane(u64::MAX);
    let mut end = HostEnd::open(plan, faults, local, exchange)?;
    exchange.send(&Answer::Ready(end.address()))?;
    let theirs: EndAddress = exchange.receive()?;
    end.connect(&theirs)?;
    if plan.needs_receives() {
        end.post_receives(plan.receives())?;
    }
    exchange.send(&Mark::Connected)?;
    let Mark::Begin = exchange.receive()? else { bail!("{} does not begin", exchange.peer()) };
    let received = {
        let is_over = || exchange.has_news();
        match plan.metric {
            Metric::Lat => latency::answer(&mut end, plan, is_over).map(|()| None)?,
            Metric::Bw => Some(bandwidth::serve(&mut end, plan, is_over)?),
            Metric::PingPong => echo::answer(&mut end, plan, is_over).map(|()| None)?,
        }
    };
    let Mark::Over = exchange.receive()? else { bail!("{} does not end", exchange.peer()) };
    let received = received.filter(|_| plan.needs_receives());
    exchange.send(&Summary { received, counters: end.counters() })
}

/// Measures against the end that listens at `server`.
pub(crate) fn measure_against(plan: &Plan, server: &str, port: u16, local: &Local) -> Result<ExitCode> {
    show(&measure(plan, &mut Exchange::connect(server, port)?, local)?, local)
}

/// Measures against a second process of this machine, and prints the result.
pub(crate) fn measure_both_ends(plan: &Plan, local: &Local) -> Result<ExitCode> {
    show(&both_ends(plan, local)?, local)
}

/// Starts a second process as the passive end and measures against it.
pub(crate) fn both_ends(plan: &Plan, local: &Local) -> Result<Report> {
    let mut peer = Peer::start(plan, local)?;
    let cores = pin::two_cores();
    let local = &Local { core: local.core.or(cores.map(|[here, _]| here)), ..local.clone() };
    let result = Exchange::connect("127.0.0.1", peer.port)
        .and_then(|mut exchange| measure(plan, &mut exchange, local))
        .with_context(|| format!("{plan}, both ends on this machine"));
    let mut report = match result {
        Ok(report) => report,
        Err(error) => {
            peer.stop();
            return Err(error);
        }
    };
    peer.finish()?;
    // Only now is the other core free: the floor is two threads of this process.
    if local.with_floor {
        report.floor = floor::beside(&report.plan, report.link)?;
    }
    Ok(report)
}

/// The measurement has a thread of its own, as it may bind that to a core, and the other threads of this
/// process must not be bound as well.
fn measure(plan: &Plan, exchange: &mut Exchange, local: &Local) -> Result<Report> {
    let measured = thread::scope(|scope| scope.spawn(|| measure_here(plan, exchange, local)).join());
    measured.unwrap_or_else(|panic| resume_unwind(panic))
}

fn measure_here(plan: &Plan, exchange: &mut Exchange, local: &Local) -> Result<Report> {
    let mut end = HostEnd::open(plan, plan.faults, local, exchange)?;
    let plan = &Plan { mtu_bytes: Some(end.mtu_bytes()), ..plan.clone() };
    if let Some(message) = plan.contradiction() {
        return Err(usage(message));
    }
    exchange.send(plan)?;
    let theirs = match exchange.receive()? {
        Answer::Ready(address) => address,
        Answer::Refused(reason) => bail!("{} refused: {reason}", exchange.peer()),
    };
    exchange.send(&end.address())?;
    end.connect(&theirs)?;
    let Mark::Connected = exchange.receive()? else { bail!("{} does not connect", exchange.peer()) };
    exchange.send(&Mark::Begin)?;
    let check_peer = || match exchange.has_news()? {
        true => bail!("{} has ended the test", exchange.peer()),
        false => Ok(()),
    };
    let measured = match plan.metric {
        Metric::Lat => Measured::Latency(latency::measure(&mut end, plan, check_peer)?),
        Metric::Bw => Measured::Bandwidth(bandwidth::measure(&mut end, plan, check_peer)?),
        Metric::PingPong => Measured::Echo(echo::measure(&mut end, plan, check_peer)?),
    };
    exchange.send(&Mark::Over)?;
    let summary: Summary = exchange.receive()?;
    Ok(Report {
        plan: plan.clone(),
        link: end.link_used(),
        floor: None,
        measured,
        received: summary.received,
        counters_here: end.counters(),
        counters_there: summary.counters,
    })
}

fn show(report: &Report, local: &Local) -> Result<ExitCode> {
    let mut console = Console::new();
    if local.json {
        console.json(&report.to_json())?
    } else {
        report.show(&mut console)?
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The passive end as a process of its own.
struct Peer {
    child: Child,
    port: u16,
}

impl Peer {
    fn start(plan: &Plan, local: &Local) -> Result<Self> {
        let program = std::env::current_exe().context("where is this program?")?;
        let metric = match plan.metric {
            Metric::Lat | Metric::PingPong => "lat",
            Metric::Bw => "bw",
        };
        let mut command = Command::new(program);
        command
            .args(["perf", plan.operation.name(), metric])
            .args(["--listen", "127.0.0.1", "--port", "0", "--announce"])
            .args(["--engine", &local.engine.to_string()]);
        if let Some([_, there]) = pin::two_cores() {
            command.args(["--core", &there.to_string()]);
        }
        if let Some(file) = &local.peer_pcap {
            command.arg("--pcap").arg(file);
        }
        let mut child = command
            // A device has an address of its own; that of the environment is this end's.
            .env_remove(highwire_host::ADDRESS_VARIABLE)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the passive end")?;
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it was asked for");
        BufReader::new(stdout).read_line(&mut line)?;
        match line.trim().parse() {
            Ok(port) => Ok(Self { child, port }),
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(usage("the passive end did not start; its own message is above"))
            }
        }
    }

    fn stop(&mut self) {
        // It may have ended by itself; either way no one is left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn finish(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { bail!("the passive end failed: {status}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::options::plan_for_tests;
    use crate::perf::plan::{Length, Operation};

    #[test]
    fn the_end_that_listens_names_the_command_that_it_waits_for() {
        let check = |operation, metric, port, expected: &str| {
            let plan = plan_for_tests(operation, metric, Length::Iterations(1));
            assert_eq!(other_end(&plan, port), expected);
        };
        check(Operation::Send, Metric::PingPong, DEFAULT_PORT, "highwire pingpong THIS_MACHINE");
        check(Operation::FetchAdd, Metric::Lat, DEFAULT_PORT, "highwire perf atomic lat THIS_MACHINE");
        check(Operation::Write, Metric::Bw, 7, "highwire perf write bw --port 7 THIS_MACHINE");
    }
}
