//! `highwire bench bells`: how soon a thread that sleeps has been woken, by each of the ways that two processes without a
//! common descriptor, or with one, have for it.

use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use highwire_link::floor::{allowed_cores, pin_to_core};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::thread::futex;
use serde::Serialize;

use crate::console::{Console, show};
use crate::progress::Progress;

/// A thread that waits longer was not woken.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// Options of `highwire bench bells`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Two threads wake each other in turns, and each sleeps in between; a time is half of one turn there and back. Both have one core, or each has one, idle or
beside a thread that computes. Threads that sleep on a descriptor do so in poll, and then read it, as an engine does, whose sockets they wait for as well.

Examples:
  highwire bench bells
  highwire bench bells --rounds 20 --markdown"
)]
pub(crate) struct Args {
    /// How often every way has its turn in every place.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Milliseconds of a turn.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    turn_ms: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Print a table for a page.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// A way to wake a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    Datagram,
    Pipe,
    EventDescriptor,
    Futex,
}

/// Where two threads wake each other.
#[derive(Debug, Clone, Copy)]
struct Place {
    cores: [usize; 2],
    is_busy: bool,
}

/// A way in a place.
#[derive(Debug, Serialize)]
struct Row {
    way: Way,
    cores: u32,
    busy: bool,
    wakes: u64,
    p50_ns: u64,
    p99_ns: u64,
}

/// Measures.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let places = places(&allowed_cores().context("cannot tell which cores are ours")?);
    let turn = Duration::from_millis(args.turn_ms);
    let count = u64::from(args.rounds) * places.len() as u64 * Way::ALL.len() as u64;
    let mut progress = Progress::new("waking", count);
    let mut all: Vec<(Place, Way, Histogram<u64>)> = Vec::new();
    for place in places {
        for way in Way::ALL {
            all.push((place, way, Histogram::new(3)?));
        }
    }
    let mut done = 0;
    for _ in 0..args.rounds {
        for (place, way, times) in &mut all {
            play(*way, *place, turn, times).with_context(|| format!("cannot measure a {way}"))?;
            done += 1;
            progress.at(done, Instant::now());
        }
    }
    drop(progress);
    let rows: Vec<Row> = all.iter().map(|(place, way, times)| row(*place, *way, times)).collect();
    show(args.json, &rows, |console| table(&rows, args.markdown, console))
}

/// One core and two of those that are allowed, idle and busy.
fn places(cores: &[usize]) -> Vec<Place> {
    let pairs = match *cores {
        [] => Vec::new(),
        [only] => vec![[only; 2]],
        [first, second, ..] => vec![[first; 2], [first, second]],
    };
    pairs.into_iter().flat_map(|cores| [false, true].map(|is_busy| Place { cores, is_busy })).collect()
}

fn row(place: Place, way: Way, times: &Histogram<u64>) -> Row {
    let Place { cores: [first, second], is_busy } = place;
    Row {
        way,
        cores: if first == second { 1 } else { 2 },
        busy: is_busy,
        wakes: 2 * times.len(),
        p50_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
    }
}

fn table(rows: &[Row], is_markdown: bool, console: &mut Console) -> Result<()> {
    if is_markdown {
        console.line("| woken by | cores | beside | p50 µs | p99 µs |")?;
        console.line("|---|---|---|---|---|")?;
    } else {
        console.line("woken by          cores  beside                p50 us    p99 us")?;
    }
    for row in rows {
        let Row { way, cores, busy, p50_ns, p99_ns, .. } = row;
        let [p50, p99] = [p50_ns, p99_ns].map(|ns| *ns as f64 / 1e3);
        let beside = if *busy { "threads that compute" } else { "nothing" };
        console.line(if is_markdown {
            format!("| {way} | {cores} | {beside} | {p50:.1} | {p99:.1} |")
        } else {
            format!("{:<17}{cores:>6}  {beside:<20}{p50:>8.1}{p99:>10.1}", way.to_string())
        })?;
    }
    Ok(())
}

/// Two threads wake each other for the time of a turn, at least once.
fn play(way: Way, place: Place, turn: Duration, times: &mut Histogram<u64>) -> Result<()> {
    let [here, there] = way.bells()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        let hogs = usize::from(place.is_busy) * if place.cores[0] == place.cores[1] { 1 } else { 2 };
        for core in &place.cores[..hogs] {
            threads.spawn(|| {
                let _ = pin_to_core(*core);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let answers = threads.spawn(|| {
            pin_to_core(place.cores[1])?;
            loop {
                there.sleep()?;
                if is_over.load(Ordering::Relaxed) {
                    return io::Result::Ok(());
                }
                here.ring()?;
            }
        });
        let asks = threads.spawn(|| {
            let result = ask(place, turn, [&here, &there], times);
            // Also after an error, so that the other threads end.
            is_over.store(true, Ordering::Relaxed);
            result.and(there.ring().map_err(Into::into))
        });
        let joined = asks.join().expect("it does not panic");
        joined.and(answers.join().expect("it does not panic").map_err(Into::into))
    })
}

fn ask(place: Place, turn: Duration, [here, there]: [&Bell; 2], times: &mut Histogram<u64>) -> Result<()> {
    pin_to_core(place.cores[0])?;
    let begin = Instant::now();
    let mut rung = begin;
    while rung - begin < turn {
        there.ring()?;
        here.sleep()?;
        let back = Instant::now();
        times.record((back - rung).as_nanos() as u64 / 2)?;
        rung = back;
    }
    Ok(())
}

impl Way {
    const ALL: [Way; 4] = [Way::Datagram, Way::Pipe, Way::EventDescriptor, Way::Futex];

    /// A bell for each of two threads.
    fn bells(self) -> io::Result<[Bell; 2]> {
        Ok(match self {
            Way::Datagram => {
                let sockets = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
                let [a, b] = sockets;
                let (a, b) = (a?, b?);
                a.connect(b.local_addr()?)?;
                b.connect(a.local_addr()?)?;
                // Rung from the other's socket.
                let (from_a, from_b) = (a.try_clone()?, b.try_clone()?);
                [Bell::Datagram { from: from_b, at: a }, Bell::Datagram { from: from_a, at: b }]
            }
            Way::Pipe => [pipe()?, pipe()?],
            Way::EventDescriptor => {
                let bell = || eventfd(0, EventfdFlags::CLOEXEC).map(Bell::Event);
                [bell()?, bell()?]
            }
            Way::Futex => [(); 2].map(|()| Bell::Futex(AtomicU32::new(0))),
        })
    }
}

fn pipe() -> io::Result<Bell> {
    let (at, from) = io::pipe()?;
    Ok(Bell::Pipe { at, from })
}

/// What one thread sleeps on, and the other one rings.
#[derive(Debug)]
enum Bell {
    Datagram { from: UdpSocket, at: UdpSocket },
    Pipe { from: PipeWriter, at: PipeReader },
    Event(OwnedFd),
    Futex(AtomicU32),
}

impl Bell {
    fn ring(&self) -> io::Result<()> {
        match self {
            Bell::Datagram { from, .. } => _ = from.send(&[])?,
            Bell::Pipe { from, .. } => (&*from).write_all(&[1])?,
            Bell::Event(fd) => _ = rustix::io::write(fd, &1u64.to_ne_bytes())?,
            Bell::Futex(word) => {
                word.store(1, Ordering::Release);
                futex::wake(word, futex::Flags::empty(), 1)?;
            }
        }
        Ok(())
    }

    /// Sleeps until the bell is rung, and takes that.
    fn sleep(&self) -> io::Result<()> {
        match self {
            Bell::Datagram { at, .. } => {
                readable(at.as_fd())?;
                at.recv(&mut [0; 8])?;
            }
            Bell::Pipe { at, .. } => {
                readable(at.as_fd())?;
                (&*at).read_exact(&mut [0])?;
            }
            Bell::Event(fd) => {
                readable(fd.as_fd())?;
                rustix::io::read(fd, &mut [0; 8])?;
            }
            Bell::Futex(word) => {
                // Acquire: what the other thread did before it rang has happened.
                while word.swap(0, Ordering::Acquire) == 0 {
                    match futex::wait(word, futex::Flags::empty(), 0, Some(&PATIENCE)) {
                        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Ok(())
    }
}

fn readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    match retry_on_intr(|| poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&PATIENCE)))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Datagram => "datagram",
            Way::Pipe => "pipe",
            Way::EventDescriptor => "event descriptor",
            Way::Futex => "futex",
        })
    }
}
