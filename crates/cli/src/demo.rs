//! `highwire demo`: the first minute. Messages bounce between two processes, once over a network that loses
//! nothing and once over one that does; both ends capture, and a page shows what the captures say.
//!
//! Each run ends after a number of messages or a time, whichever comes first, so that a busy machine shows
//! fewer messages and not a longer demo.

mod page;
mod trace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use highwire_link::{FaultConfig, parse_rate};
use highwire_stdx::words::counted;
use serde::Serialize;

use crate::console::{Console, Tone};
use crate::failure::usage;
use crate::perf::{self, Length, Link, Local, Measured, Metric, Operation, Plan, Recovery, Service};
use crate::values::show_ns;

use trace::{Packet, Trace};

const MESSAGE_BYTES: u32 = 4096;
/// Four packets a message, so that a loss leaves others that arrive.
const MTU_BYTES: u32 = 1024;
const PACKETS_PER_MESSAGE: usize = (MESSAGE_BYTES / MTU_BYTES) as usize;
const MESSAGES: u64 = 400;
const CLEAN_TIME: Duration = Duration::from_millis(1_500);
const LOSSY_TIME: Duration = Duration::from_secs(4);
/// Messages wait for each other, so that a short queue is enough.
const DEPTH: u32 = 16;

/// Options of `highwire demo`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Needs nothing but this program, and ends within ten seconds. Exit status: 1 if a message or an ICRC is wrong.

Examples:
  highwire demo
  highwire demo --loss 5% --seed 7 --out lossy
  highwire demo --json"
)]
pub(crate) struct Args {
    /// The folder for the page and the captures; it is made if it is not there.
    #[arg(long, default_value = "highwire-demo", value_name = "DIR")]
    out: PathBuf,
    /// Packets lost on purpose, in both directions: 2% or 0.02
    #[arg(long, default_value = "2%", value_parser = loss, value_name = "SHARE")]
    loss: f64,
    /// The same seed loses the same packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// More than half lost would leave the time to time-outs.
fn loss(text: &str) -> Result<f64, String> {
    match parse_rate(text) {
        Ok(share) if share <= 0.5 => Ok(share),
        Ok(_) => Err("at most 50%".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// One run, as both captures show it.
#[derive(Debug, Serialize)]
struct Run {
    loss: f64,
    /// Messages that came back with every byte right.
    messages: u64,
    lost_messages: u64,
    round_trip_ns: RoundTrips,
    packets: usize,
    lost_packets: usize,
    sent_again: usize,
    icrc_wrong: u64,
    captures: [PathBuf; 2],
    #[serde(skip)]
    round_trips: Vec<u64>,
    #[serde(skip)]
    story: Vec<Packet>,
}

#[derive(Debug, Default, Serialize)]
struct RoundTrips {
    p50: u64,
    p99: u64,
    max: u64,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Demo {
    message_bytes: u32,
    packets_per_message: usize,
    seed: u64,
    page: PathBuf,
    clean: Run,
    lossy: Run,
    seconds: f64,
}

impl Demo {
    fn is_sound(&self) -> bool {
        [&self.clean, &self.lossy]
            .iter()
            .all(|run| run.messages > 0 && run.lost_messages == 0 && run.icrc_wrong == 0)
    }
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let started = Instant::now();
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the folder {}; --out DIR names another", args.out.display()))?;
    let page = args.out.join("index.html");
    // Before anything runs: a folder that takes no files is found out at once.
    std::fs::write(&page, "").with_context(|| {
        format!("cannot write to the folder {}; --out DIR names another", args.out.display())
    })?;
    let mut console = Console::new();
    if !args.json {
        let title = format!(
            "Two processes bounce messages of {MESSAGE_BYTES} bytes over UDP, {PACKETS_PER_MESSAGE} packets each. Every byte is checked."
        );
        console.line(console.paint(Tone::Heading, &title))?;
    }
    let clean = bounce(args, 0.0, CLEAN_TIME)?;
    let lossy = bounce(args, args.loss, LOSSY_TIME)?;
    let demo = Demo {
        message_bytes: MESSAGE_BYTES,
        packets_per_message: PACKETS_PER_MESSAGE,
        seed: args.seed,
        page: page.clone(),
        clean,
        lossy,
        seconds: started.elapsed().as_secs_f64(),
    };
    std::fs::write(&page, page::html(&demo)).with_context(|| format!("cannot write {}", page.display()))?;
    if args.json {
        console.json(&demo)?
    } else {
        show(&demo, &mut console)?
    }
    console.finish()?;
    Ok(if demo.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Messages there and back, captured at both ends.
fn bounce(args: &Args, loss: f64, time: Duration) -> Result<Run> {
    let faults = FaultConfig { loss, seed: args.seed, ..FaultConfig::default() };
    faults.check().map_err(|error| usage(error.to_string()))?;
    let plan = Plan {
        operation: Operation::Send,
        metric: Metric::PingPong,
        size_bytes: MESSAGE_BYTES,
        length: Length::Within(MESSAGES, time),
        depth: DEPTH,
        chain: 1,
        until_completion: false,
        service: Service::Rc,
        recovery: Recovery::Irn,
        link: Link::Udp,
        mtu_bytes: Some(MTU_BYTES),
        faults,
    };
    let name = if loss > 0.0 { "lossy" } else { "clean" };
    let captures = ["", "-peer"].map(|end| args.out.join(format!("{name}{end}.pcap")));
    let [near, far] = captures.clone();
    let local = Local { pcap: Some(near), peer_pcap: Some(far), ..Local::default() };
    let Measured::Echo(echo) = perf::both_ends(&plan, &local)?.measured else {
        bail!("a ping-pong measures messages that come back");
    };
    let mut trace = Trace::read(&captures[0], &captures[1])?;
    let trips = trace.round_trips(PACKETS_PER_MESSAGE);
    trace.end_at(trips.iter().map(|trip| trip.ended_ns).max().unwrap_or(0));
    Ok(Run {
        loss,
        messages: echo.messages,
        lost_messages: echo.lost,
        round_trip_ns: RoundTrips::of(&trips.iter().map(|trip| trip.ns()).collect::<Vec<_>>()),
        packets: trace.packets.len(),
        lost_packets: trace.lost(),
        sent_again: trace.sent_again(),
        icrc_wrong: trace.icrc_wrong,
        captures,
        story: trace.story(&trips),
        round_trips: trips.into_iter().map(trace::RoundTrip::ns).collect(),
    })
}

impl RoundTrips {
    fn of(ns: &[u64]) -> Self {
        let mut sorted = ns.to_vec();
        sorted.sort_unstable();
        let at = |share: f64| {
            let place = (share * sorted.len() as f64) as usize;
            sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
        };
        Self { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

fn show(demo: &Demo, console: &mut Console) -> Result<()> {
    for (title, run) in [("no loss".to_string(), &demo.clean), (share(demo.lossy.loss), &demo.lossy)] {
        let RoundTrips { p50, p99, max } = run.round_trip_ns;
        let [p50, p99, max] = [p50, p99, max].map(|ns| show_ns(ns as f64));
        console.line(format!(
            "{title:<9} {} came back, {} lost; round trip {p50}, p99 {p99}, slowest {max}",
            counted(run.messages, "message"),
            run.lost_messages
        ))?;
        let packets = format!(
            "{:<9} {}: {} lost on the way, {} sent again",
            "",
            counted(run.packets as u64, "packet"),
            run.lost_packets,
            run.sent_again
        );
        console.line(console.paint(Tone::Faint, &packets))?;
    }
    let verdict = match demo.is_sound() {
        true => console.paint(Tone::Good, "Every message and every ICRC is right."),
        false => console.paint(Tone::Bad, "Something is WRONG: a message, or an ICRC."),
    };
    console.line(format!("{verdict} {:.1} seconds.\n", demo.seconds))?;
    console.line(format!("the page      {}", shown(&demo.page)))?;
    console.line(format!("the capture   highwire pcap {} | less", shown(&demo.lossy.captures[0])))?;
    console.line("your program  highwire run --loss 1% -- PROGRAM")
}

fn share(loss: f64) -> String {
    format!("{} % loss", (loss * 1e4).round() / 1e2)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_values_are_values() {
        let of = |ns: &[u64]| {
            let RoundTrips { p50, p99, max } = RoundTrips::of(ns);
            (p50, p99, max)
        };
        assert_eq!(of(&[]), (0, 0, 0));
        assert_eq!(of(&[5]), (5, 5, 5));
        assert_eq!(of(&[3, 1, 2, 9]), (3, 9, 9));
    }

    #[test]
    fn shares_read_well() {
        assert_eq!(share(0.02), "2 % loss");
        assert_eq!(share(0.005), "0.5 % loss");
        assert!(loss("50%").is_ok() && loss("51%").is_err() && loss("much").is_err());
    }
}
