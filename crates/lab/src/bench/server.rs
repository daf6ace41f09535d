//! `highwire bench server`: a thread for each connection that blocks for its next request, against the same over TCP, and epoll.

mod beside;
mod tcp;
mod verbs;

use std::fmt;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use highwire_host::{LinkChoice, WakeMode};
use highwire_stdx::Rng;
use highwire_wake::process_switches;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::console::{Console, show};
use crate::progress::Progress;
use beside::Beside;

/// Bytes of a request and of a response.
const MESSAGE_BYTES: usize = 32;
/// A response that takes this long is lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// Options of `highwire bench server`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A client that polls keeps so many requests of 32 bytes under way, each on a connection drawn at random. The server has a thread for each connection, which
blocks in `CompletionChannel::event` or in `read`; with `-poll` in `poll` on the channel's descriptor; with `-epoll` one thread watches the descriptors of all. Servers
take turns. CPU time is that of all threads but the client's; switches are those of the whole process from one thread to another, of its own accord and not.
A server beside is a program of its own, which prints `port N` and answers every 32 bytes over TCP; its CPU time and its switches are what that program takes.

Examples:
  highwire bench server --quick
  highwire bench server --threads 128 --depth 1 --server shm-balanced,tcp-threads --json"
)]
pub(crate) struct Args {
    /// Connections, each with a thread.
    #[arg(long, value_delimiter = ',', default_values_t = [16, 128, 512], value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// Requests under way.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    depth: u32,
    /// Only these servers: shm- or udp-, a mode of waiting, and -poll or -epoll or neither; tcp-threads, tcp-epoll.
    #[arg(long, value_delimiter = ',')]
    server: Vec<Server>,
    /// A server that is another program, which takes turns with ours.
    #[arg(long, value_name = "NAME=COMMAND")]
    beside: Vec<Beside>,
    /// Short turns, and 16 threads.
    #[arg(long)]
    quick: bool,
    /// How often every server has its turn.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Milliseconds of a turn.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    turn_ms: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Print a table for a page.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// A server that takes turns with the others.
enum Entrant {
    Ours(Server),
    Theirs(Beside),
}

/// The costs of a server so far.
#[derive(Clone, Copy, Default, Debug)]
struct Cost {
    cpu: Duration,
    switches: u64,
}

/// The kind of server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Server {
    Verbs(LinkChoice, WakeMode, Door),
    TcpThreads,
    TcpEpoll,
}

/// The call in which a thread of the server blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Door {
    /// In the library, each on its own channel.
    Event,
    /// In `poll`, each on the descriptor of its own channel.
    Poll,
    /// In `epoll_wait`, one for all descriptors.
    Epoll,
}

/// The length of a turn, and the requests under way.
#[derive(Clone, Copy, Debug)]
struct Load {
    connections: usize,
    depth: usize,
    time: Duration,
    seed: u64,
}

/// The result of a turn.
struct Outcome {
    times: Histogram<u64>,
    elapsed: Duration,
    cpu: Duration,
    switches: u64,
}

/// Connections on which a client sends requests and receives responses.
trait Connections {
    fn send(&mut self, connection: usize) -> Result<()>;

    /// A connection that has a response, if any does that `waiting` lists.
    fn poll(&mut self, waiting: &[usize]) -> Result<Option<usize>>;
}

#[derive(Debug, Serialize)]
struct Row {
    server: String,
    threads: u32,
    per_second: f64,
    p50_ns: u64,
    p99_ns: u64,
    cpu_s_per_million: f64,
    switches_per_request: f64,
    /// Requests per second beside those of `tcp-threads` with as many threads.
    per_tcp_threads: Option<f64>,
}

impl Server {
    /// Every server.
    fn all() -> Vec<Server> {
        let verbs = [LinkChoice::Auto, LinkChoice::Udp].into_iter().flat_map(|link| {
            let of_link = move |mode| {
                [Door::Event, Door::Poll, Door::Epoll].map(|door| Server::Verbs(link, mode, door))
            };
            WakeMode::ALL.into_iter().flat_map(of_link)
        });
        verbs.chain([Server::TcpThreads, Server::TcpEpoll]).collect()
    }

    /// The servers that a run compares unless it is told otherwise: a thread that blocks on a descriptor
    /// waits alike in every mode.
    fn is_usual(&self) -> bool {
        !matches!(
            self,
            Server::Verbs(
                _,
                WakeMode::Latency | WakeMode::Power | WakeMode::Dispatcher | WakeMode::Event,
                Door::Poll | Door::Epoll
            )
        )
    }

    fn play(self, load: Load) -> Result<Outcome> {
        match self {
            Server::Verbs(link, mode, door) => verbs::play(link, mode, door, load),
            Server::TcpThreads => tcp::play(false, load),
            Server::TcpEpoll => tcp::play(true, load),
        }
    }
}

impl Entrant {
    fn name(&self) -> String {
        match self {
            Entrant::Ours(server) => server.to_string(),
            Entrant::Theirs(beside) => beside.to_string(),
        }
    }

    fn play(&self, load: Load) -> Result<Outcome> {
        match self {
            Entrant::Ours(server) => server.play(load),
            Entrant::Theirs(beside) => beside.play(load),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Verbs(link, mode, door) => {
                let link = if *link == LinkChoice::Udp { "udp" } else { "shm" };
                let door = match door {
                    Door::Event => "",
                    Door::Poll => "-poll",
                    Door::Epoll => "-epoll",
                };
                write!(f, "{link}-{mode}{door}")
            }
            Server::TcpThreads => f.write_str("tcp-threads"),
            Server::TcpEpoll => f.write_str("tcp-epoll"),
        }
    }
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Server, String> {
        let found = Server::all().into_iter().find(|server| server.to_string() == text);
        found.ok_or_else(|| {
            let names: Vec<_> = Server::all().iter().map(ToString::to_string).collect();
            format!("no such server: {text}; there are {}", names.join(", "))
        })
    }
}

/// Measures.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let usual = || Server::all().into_iter().filter(Server::is_usual).collect();
    let servers = if args.server.is_empty() { usual() } else { args.server.clone() };
    let threads = if args.quick { vec![16] } else { args.threads.clone() };
    let (rounds, turn_ms) = if args.quick { (1, args.turn_ms.min(50)) } else { (args.rounds, args.turn_ms) };
    let entrants: Vec<Entrant> = (servers.into_iter().map(Entrant::Ours))
        .chain(args.beside.iter().cloned().map(Entrant::Theirs))
        .collect();
    let mut totals: Vec<(&Entrant, u32, Option<Outcome>)> = Vec::new();
    for &threads in &threads {
        totals.extend(entrants.iter().map(|entrant| (entrant, threads, None)));
    }
    let mut progress = Progress::new("serving", u64::from(rounds) * totals.len() as u64).with_lines();
    let mut played = 0;
    for round in 0..rounds {
        for (server, threads, total) in &mut totals {
            let connections = *threads as usize;
            let depth = (args.depth as usize).min(connections);
            let time = Duration::from_millis(turn_ms);
            let turn = server.play(Load { connections, depth, time, seed: round.into() });
            let turn = turn.with_context(|| format!("{} with {threads} threads", server.name()))?;
            match total {
                None => *total = Some(turn),
                Some(total) => {
                    total.times.add(&turn.times)?;
                    total.elapsed += turn.elapsed;
                    total.cpu += turn.cpu;
                    total.switches += turn.switches;
                }
            }
            played += 1;
            progress.at(played, Instant::now());
        }
    }
    drop(progress);
    let mut rows: Vec<Row> = totals
        .into_iter()
        .filter_map(|(server, threads, total)| Some(row(server.name(), threads, &total?)))
        .collect();
    compare(&mut rows);
    show(args.json, &rows, |console| table(&rows, args.markdown, console))
}

fn row(server: String, threads: u32, outcome: &Outcome) -> Row {
    let times = &outcome.times;
    Row {
        server,
        threads,
        per_second: times.len() as f64 / outcome.elapsed.as_secs_f64(),
        p50_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
        cpu_s_per_million: outcome.cpu.as_secs_f64() * 1e6 / times.len().max(1) as f64,
        switches_per_request: outcome.switches as f64 / times.len().max(1) as f64,
        per_tcp_threads: None,
    }
}

/// Compares every server with a thread for each connection over TCP.
fn compare(rows: &mut [Row]) {
    let tcp =
        |row: &Row| (row.server == Server::TcpThreads.to_string()).then_some((row.threads, row.per_second));
    let of_tcp: Vec<(u32, f64)> = rows.iter().filter_map(tcp).collect();
    for row in rows {
        let beside = of_tcp.iter().find(|(threads, _)| *threads == row.threads);
        row.per_tcp_threads = beside.map(|(_, per_second)| row.per_second / per_second);
    }
}

fn table(rows: &[Row], is_markdown: bool, console: &mut Console) -> Result<()> {
    if is_markdown {
        console.line(
            "| server | threads | requests/s | of `tcp-threads` | p50 µs | p99 µs | CPU s per 10⁶ | switches per request |",
        )?;
        console.line("|---|---:|---:|---:|---:|---:|---:|---:|")?;
    } else {
        console.line(
            "server              threads  requests/s   / tcp     p50 us     p99 us   CPU s/M  switches",
        )?;
    }
    for row in rows {
        let Row { server, threads, per_second, switches_per_request: switches, .. } = row;
        let beside = row.per_tcp_threads.map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}"));
        let (p50, p99, cpu) = (row.p50_ns as f64 / 1e3, row.p99_ns as f64 / 1e3, row.cpu_s_per_million);
        console.line(if is_markdown {
            format!("| `{server}` | {threads} | {per_second:.0} | {beside} | {p50:.1} | {p99:.1} | {cpu:.2} | {switches:.2} |")
        } else {
            format!("{server:<19}{threads:>8}{per_second:>12.0}{beside:>8}{p50:>11.1}{p99:>11.1}{cpu:>10.2}{switches:>10.2}")
        })?;
    }
    Ok(())
}

/// Asks on every connection once: the first request of a thread costs it the pages of its stack and of its heap, which are as large as hundreds
/// of requests.
fn warm_up(connections: &mut dyn Connections, load: Load) -> Result<()> {
    for connection in 0..load.connections {
        connections.send(connection)?;
        let begin = Instant::now();
        while connections.poll(&[connection])?.is_none() {
            if begin.elapsed() > PATIENCE {
                bail!("the first response on connection {connection} is missing");
            }
        }
    }
    Ok(())
}

/// Keeps `depth` requests under way until the time is up, and then waits for those that are.
fn drive(connections: &mut dyn Connections, load: Load, cost: &dyn Fn() -> Cost) -> Result<Outcome> {
    warm_up(connections, load)?;
    let mut rng = Rng::new(load.seed);
    let mut times = Histogram::new(3)?;
    let mut sent = vec![Instant::now(); load.connections];
    let mut idle: Vec<usize> = (0..load.connections).collect();
    let mut waiting = Vec::new();
    let (begin, before) = (Instant::now(), cost());
    let mut heard = begin;
    loop {
        let now = Instant::now();
        let is_over = now - begin >= load.time;
        if is_over && waiting.is_empty() {
            break;
        }
        while !is_over && waiting.len() < load.depth {
            let connection = idle.swap_remove((rng.next_u64() % idle.len() as u64) as usize);
            sent[connection] = Instant::now();
            connections.send(connection)?;
            waiting.push(connection);
        }
        if let Some(connection) = connections.poll(&waiting)? {
            let at = waiting
                .iter()
                .position(|waits| *waits == connection)
                .context("an answer nobody asked for")?;
            heard = Instant::now();
            times.record((heard - sent[connection]).as_nanos() as u64)?;
            idle.push(waiting.swap_remove(at));
        } else if now.saturating_duration_since(heard) > PATIENCE {
            bail!("a response is missing");
        }
    }
    let (elapsed, after) = (begin.elapsed(), cost());
    let cpu = after.cpu.saturating_sub(before.cpu);
    Ok(Outcome { times, elapsed, cpu, switches: after.switches.saturating_sub(before.switches) })
}

/// The costs of all threads of this process except this one.
fn own_cost() -> Cost {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let all = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
    Cost { cpu: all.saturating_sub(highwire_wake::thread_time()), switches: process_switches() }
}
