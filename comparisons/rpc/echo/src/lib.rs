//! The parts that the echoes of all systems share: two programs in one, a server that sends back each message
//! and a client that keeps a window of requests under way, each bound to a core.
//!
//! The server prints its address, `at PLACE`, and ends when its standard input does. The client prints a line
//! of JSON. Every request has a number of its own, and every reply is compared with its request byte by byte;
//! an option makes the server send one wrong reply, which the client must notice.

mod book;
mod cpu;
#[cfg(feature = "tokio")]
mod loops;

use std::io::Read;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use rustix::thread::{CpuSet, sched_setaffinity};

pub use book::{Book, Report, Request, SIZE};
#[cfg(feature = "tokio")]
pub use loops::{block_on, loops};

/// How long a server may take to end by itself.
const STOP_PATIENCE: Duration = Duration::from_millis(200);
/// A client without a reply gives up after this time.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A system: how its server serves and its client asks. `over` names the link, as in `tcp`.
pub trait System {
    /// Reports its address by [`Server::is_at`], and answers until [`Server::is_over`] or for ever.
    ///
    /// # Errors
    /// It cannot serve there.
    fn serve(over: &str, server: &'static Server) -> Result<()>;

    /// Asks until [`Book::request`] says that the turn is over.
    ///
    /// # Errors
    /// It cannot connect, a reply does not come, or is not its request.
    fn call(over: &str, place: &str, book: Book) -> Result<Report>;
}

#[derive(Debug, Parser)]
#[command(about = "Echoes of 32 bytes: a server and a client")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Send back what comes in, until standard input ends.
    Serve {
        /// What carries the messages.
        #[arg(long)]
        over: String,
        /// Where all threads run; anywhere unless given.
        #[arg(long)]
        core: Option<usize>,
        /// Requests that the client will keep under way.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=512))]
        window: u32,
        /// Change a byte of this reply, counted from 0.
        #[arg(long)]
        wrong_reply: Option<u64>,
    },
    /// Ask, and say in JSON how it went.
    Call(Call),
}

/// What a client does.
#[derive(Debug, Clone, clap::Args)]
pub struct Call {
    /// What carries the messages.
    #[arg(long)]
    over: String,
    /// Where all threads run; anywhere unless given.
    #[arg(long)]
    core: Option<usize>,
    /// What the server printed.
    #[arg(long)]
    at: String,
    /// Requests under way.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub window: u32,
    /// Milliseconds that count, after a tenth as long that does not.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub turn_ms: u64,
    /// The server, whose processor time counts with ours.
    #[arg(long)]
    pub server_process: i32,
}

/// The `main` of every echo.
pub fn run<S: System>() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Serve { over, core, window, wrong_reply } => {
            serve::<S>(&over, core, Server { window, wrong_reply, replies: AtomicU64::new(0) })
        }
        Task::Call(call) => ask::<S>(&call),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve<S: System>(over: &str, core: Option<usize>, server: Server) -> Result<()> {
    pin(core)?;
    thread::spawn(|| {
        // The input stays empty: it ends when the process that started this one ends, or closes it.
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        IS_OVER.store(true, Ordering::Relaxed);
        thread::sleep(STOP_PATIENCE);
        std::process::exit(0);
    });
    // The handlers live as long as the program.
    S::serve(over, Box::leak(Box::new(server)))
}

fn ask<S: System>(call: &Call) -> Result<()> {
    pin(call.core)?;
    let report = S::call(&call.over, &call.at, Book::new(call)?)?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// Binds this thread, and those that it will start, to a core.
fn pin(core: Option<usize>) -> Result<()> {
    let Some(core) = core else { return Ok(()) };
    ensure!(core < CpuSet::MAX_CPU, "there is no core {core}");
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| format!("core {core}"))
}

static IS_OVER: AtomicBool = AtomicBool::new(false);

/// A server's parameters.
#[derive(Debug)]
pub struct Server {
    /// Requests that the client will keep under way.
    pub window: u32,
    wrong_reply: Option<u64>,
    replies: AtomicU64,
}

impl Server {
    /// Prints for the client's starter where to ask.
    pub fn is_at(&self, place: impl std::fmt::Display) {
        println!("at {place}");
    }

    /// Whether the server must end. Servers that cannot check are ended a moment later.
    pub fn is_over(&self) -> bool {
        IS_OVER.load(Ordering::Relaxed)
    }

    /// Every reply passes here before it is sent.
    pub fn reply(&self, bytes: &mut [u8]) {
        let Some(wrong) = self.wrong_reply else { return };
        if self.replies.fetch_add(1, Ordering::Relaxed) == wrong
            && let Some(last) = bytes.last_mut()
        {
            *last ^= 1;
        }
    }
}
