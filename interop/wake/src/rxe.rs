//! Unmodified programs over the kernel's own software RNIC: how soon a program that sleeps on a completion
//! channel gets a message, by itself, under the scheduler of `scheduler/`, and with the module.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use highwire_wake::{Core, pin};
use serde::Serialize;

use crate::check::{Check, run_each};
use crate::module::{Module, Polled};
use crate::scheduler::Scheduler;

const PROGRAM: &str = "ib_send_lat";
/// The server has to listen before the client comes; emulated cores are slow.
const ATTEMPTS: u32 = 100;
/// A run that takes longer hangs: with `-e` the program takes one completion for each event, and two may have come with one.
const RUN_LIMIT_S: &str = "60";
const MORE_RUNS: u32 = 2;
/// The module's own limit.
const POLL_US_MAX: u32 = 1000;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The measurement's parameters.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) messages: u32,
    pub(crate) rounds: u32,
    pub(crate) cores: [Core; 2],
    /// The program that loads the sched_ext scheduler.
    pub(crate) scheduler: Option<PathBuf>,
    pub(crate) module: Option<PathBuf>,
    /// How long a reader of a completion channel polls with the module.
    pub(crate) poll_us: u32,
}

/// The scheduler and module that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum With {
    Nothing,
    Scheduler,
    Module,
}

/// The loaded scheduler and module; dropping unloads them.
#[derive(Debug, Default)]
struct Loaded {
    scheduler: Option<Scheduler>,
    module: Option<Module>,
}

/// How the two ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scene {
    sleeps: bool,
    /// Both on the second core; otherwise each on one of its own.
    is_together: bool,
    /// Another thread computes on the second core.
    is_busy: bool,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    way: &'static str,
    cores: u32,
    busy: bool,
    with: With,
    /// Of each round, in microseconds of half a round trip.
    typical_us: Vec<f64>,
    p99_us: Vec<f64>,
    /// With the module: how often a reader has polled, and how often it had its event then.
    polls: u64,
    hits: u64,
}

const SCENES: [(bool, bool, bool); 5] = [
    (false, false, false),
    (true, false, false),
    (true, true, false),
    (true, false, true),
    (true, true, true),
];

/// Plays every scene once in each round, and prints a line of JSON for each.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut withs = vec![With::Nothing];
    if options.scheduler.is_some() && Scheduler::is_possible() {
        withs.push(With::Scheduler);
    }
    if options.module.is_some() {
        withs.push(With::Module);
    }
    let mut rows: Vec<(Scene, Row)> = Vec::new();
    for &with in &withs {
        for (sleeps, is_together, is_busy) in SCENES {
            rows.push((
                Scene { sleeps, is_together, is_busy },
                Row {
                    way: if sleeps { "sleeps" } else { "polls" },
                    cores: if is_together { 1 } else { 2 },
                    busy: is_busy,
                    with,
                    typical_us: Vec::new(),
                    p99_us: Vec::new(),
                    polls: 0,
                    hits: 0,
                },
            ));
        }
    }
    for _ in 0..options.rounds {
        for &with in &withs {
            let loaded = load(with, options)?;
            for (scene, row) in rows.iter_mut().filter(|(_, row)| row.with == with) {
                let before = polled(&loaded)?;
                let (typical, p99) = play(*scene, options).with_context(|| format!("{scene:?}, {with:?}"))?;
                let after = polled(&loaded)?;
                row.typical_us.push(typical);
                row.p99_us.push(p99);
                row.polls += after.polls - before.polls;
                row.hits += after.hits - before.hits;
            }
            // The kernel throws out a scheduler that keeps threads waiting: then these rows would not be its own.
            ensure!(
                loaded.scheduler.is_none() || Scheduler::is_active(),
                "the kernel has thrown the scheduler out"
            );
        }
    }
    for (_, row) in rows {
        println!("rxe: {}", serde_json::to_string(&row)?);
    }
    Ok(())
}

fn load(with: With, options: &Options) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    match (with, &options.scheduler, &options.module) {
        (With::Scheduler, Some(program), _) => loaded.scheduler = Some(Scheduler::start(program)?),
        (With::Module, _, Some(file)) => loaded.module = Some(Module::load(file, options.poll_us)?),
        _ => (),
    }
    Ok(loaded)
}

fn polled(loaded: &Loaded) -> Result<Polled> {
    loaded.module.as_ref().map_or_else(|| Ok(Polled::default()), Module::polled)
}

/// The module's promises about completion channels; prints a line for each. False if one has failed.
pub(crate) fn check(options: &Options) -> bool {
    let checks: [(&str, Check<Options>); 3] = [
        ("a poll of completion channels that is too long is refused", long_polls_are_refused),
        ("readers of a completion channel poll it, and have their events", readers_poll),
        ("the module is unloaded while programs read, and they go on", unloading_disturbs_nobody),
    ];
    run_each(&checks, options)
}

const APART: Scene = Scene { sleeps: true, is_together: false, is_busy: false };

fn file(options: &Options) -> Result<&PathBuf> {
    options.module.as_ref().context("no module")
}

fn long_polls_are_refused(options: &Options) -> Result<()> {
    ensure!(Module::load(file(options)?, POLL_US_MAX + 1).is_err(), "it has been loaded");
    drop(Module::load(file(options)?, POLL_US_MAX)?);
    Ok(())
}

fn readers_poll(options: &Options) -> Result<()> {
    let module = Module::load(file(options)?, POLL_US_MAX)?;
    play(APART, options)?;
    let polled = module.polled()?;
    ensure!(polled.hits > 0 && polled.hits <= polled.polls, "{polled:?}");
    println!("check: {} messages, {polled:?}", options.messages);
    module.unload()?;
    let module = Module::load(file(options)?, 0)?;
    play(APART, options)?;
    ensure!(module.polled()? == Polled::default(), "without being asked to: {:?}", module.polled()?);
    Ok(())
}

fn unloading_disturbs_nobody(options: &Options) -> Result<()> {
    let module = Module::load(file(options)?, POLL_US_MAX)?;
    let long = Options { messages: 5 * options.messages, ..options.clone() };
    thread::scope(|threads| {
        let playing = threads.spawn(|| play(APART, &long));
        // Until a reader has polled: it sleeps, or will in a moment.
        while module.polled()?.polls == 0 && !playing.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        let was_finished = playing.is_finished();
        module.unload()?;
        playing.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        ensure!(!was_finished, "nobody read any more");
        Ok(())
    })
}

/// An end of the program; killed if it is dropped before it has ended.
struct End(Child);

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(scene: Scene, options: &Options, core: Core, is_client: bool) -> Result<End> {
    let mut command = Command::new("timeout");
    command.args([RUN_LIMIT_S, "taskset"]);
    // busybox's taskset needs a mask.
    command.arg(format!("{:x}", 1u32 << core)).arg(PROGRAM);
    // -t: with -e the program may go on before it has taken the completion of its last send, and rxe's queues
    // hold exactly the requested number.
    command.args(["-F", "-d", "rxe0", "-x", "1", "-s", "8", "-t", "16", "-n", &options.messages.to_string()]);
    if scene.sleeps {
        command.arg("-e");
    }
    if is_client {
        command.arg("10.77.0.1");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(End(command.spawn().context("cannot start timeout")?))
}

/// Typical and p99 of one run.
fn play(scene: Scene, options: &Options) -> Result<(f64, f64)> {
    let [first, second] = options.cores;
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        if scene.is_busy {
            threads.spawn(|| {
                drop(pin(&[second]));
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let mut outcome = ask(scene, options, if scene.is_together { second } else { first }, second);
        for _ in 0..MORE_RUNS {
            let Err(error) = &outcome else { break };
            println!("again, {scene:?}: {error:#}");
            outcome = ask(scene, options, if scene.is_together { second } else { first }, second);
        }
        is_over.store(true, Ordering::Relaxed);
        outcome
    })
}

fn ask(scene: Scene, options: &Options, server_core: Core, client_core: Core) -> Result<(f64, f64)> {
    let mut server = start(scene, options, server_core, false)?;
    for _ in 0..ATTEMPTS {
        thread::sleep(LOOK_AGAIN);
        if let Some(status) = server.0.try_wait()? {
            bail!("the server ended ({status})");
        }
        let mut client = start(scene, options, client_core, true)?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut client.0.stdout.take().context("it is piped")?, &mut text)?;
        if client.0.wait()?.success() {
            ensure!(server.0.wait()?.success(), "the server failed");
            return figures_of(&text).with_context(|| format!("no figures in: {text}"));
        }
    }
    bail!("no client has reached the server")
}

/// `#bytes #iterations t_min t_max t_typical t_avg t_stdev 99% 99.9%`.
fn figures_of(text: &str) -> Option<(f64, f64)> {
    text.lines().rev().find_map(|line| {
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        let numbers = numbers.filter(|numbers| numbers.len() >= 8)?;
        Some((numbers[4], numbers[7]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_read_from_the_row_of_numbers() {
        let text = " #bytes #iterations    t_min[usec]\n 8       2000          10.10          900.20       12.50     \t       13.00     \t3.10   \t\t40.25   \t\t900.20\n---\n";
        assert_eq!(figures_of(text), Some((12.5, 40.25)));
        assert_eq!(figures_of("Couldn't connect to 10.77.0.1\n"), None);
    }
}
