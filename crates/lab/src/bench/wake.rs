//! `highwire bench wake`: every strategy, with few threads and many, beside each other in one run.

mod aims;
mod print;
mod soak;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use highwire_link::floor::allowed_cores;
use highwire_stage::{Care, Outcome, PATIENCE, Real, Scene, Until, play};
use highwire_wake::Strategy;
use serde::Serialize;

use crate::console::Console;
use crate::progress::Progress;

/// Several threads that spin on one core wait for each other's slices, milliseconds for each event.
const BUSY_POLLERS_MAX: u32 = 1;
/// How long the source leaves the threads alone after an answer, unless told otherwise: threads that sleep
/// are asleep by then.
const PAUSE_US: u64 = 12;
/// Threads of a quick run, at most.
const QUICK_THREADS_MAX: u32 = 16;

/// Options of `highwire bench wake`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A source of events on the first core sends one event at a time to one of the threads on the second, and measures the time to its
answer. `own`: the same thread each time; `other`: one drawn at random. `busy`: another thread computes on the waiting threads' core.
`one core`: the source shares it with them. `fifo`: the waiting threads have a real-time priority, and their dispatcher one below theirs,
which takes permission. Strategies take turns, so a busy machine is equally busy for all: compare ratios.

Examples:
  highwire bench wake --quick
  highwire bench wake --threads 1,128 --strategy event,leader-follower --json
  highwire bench wake --soak 1000000 --threads 2,16,64   no times: is a wake-up lost among so many events?
  highwire bench wake --soak 1000000000 --resume soak.json    the same in pieces: it may be ended at any time, and goes on where it was

A soak has no source: threads on both cores pass events to each other, and each has one under way at most. Strategies, numbers of threads, and
whether these keep to a core take turns of a million events or ten seconds, each with a seed of its own. A thread that sleeps for longer than the patience
though its event is under way has lost it: the soak ends, and says how to play that turn again."
)]
pub(crate) struct Args {
    /// Waiting threads.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 128, 512], value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Vec<u32>,
    /// Only these strategies; `latency`, `balanced` and `power` mean those that `highwire run --wake` takes for them.
    #[arg(long, value_delimiter = ',')]
    strategy: Vec<Strategy>,
    /// Short rounds, and 1 and 16 threads.
    #[arg(long)]
    quick: bool,
    /// How often every strategy has its turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Microseconds between an answer and the next event. With more than one, what each strategy costs at each pace: events for random
    /// threads, on two idle cores.
    #[arg(long, value_delimiter = ',', default_values_t = [PAUSE_US], value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pause_us: Vec<u64>,
    /// Milliseconds of a turn.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    turn_ms: u64,
    /// Have threads pass so many events to each other under every strategy that sleeps, and fail if a wake-up is lost.
    #[arg(long, value_name = "EVENTS", conflicts_with_all = ["quick", "json", "markdown"], value_parser = clap::value_parser!(u64).range(1..))]
    soak: Option<u64>,
    /// Keep in this file how far the soak is, and go on there if the file exists.
    #[arg(long, value_name = "FILE", requires = "soak")]
    resume: Option<PathBuf>,
    /// Events of the soak that are under way at a time; at most half as many as threads.
    #[arg(long, requires = "soak", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=2048))]
    depth: u32,
    /// The seed of the soak's first turn.
    #[arg(long, requires = "soak", default_value_t = 0)]
    seed: u64,
    /// Plant a lost wake-up: from this event of a turn on, the next thread that sleeps is not told of its event.
    #[arg(long, value_name = "EVENT", requires = "soak", hide = true)]
    plant_lost: Option<u64>,
    /// Plant a wrong order: a waiting thread looks for its event before it arms, and not after.
    #[arg(long, requires = "soak", hide = true, conflicts_with = "plant_lost")]
    plant_order: bool,
    /// Seconds that a thread may sleep while its event is under way.
    #[arg(long, value_name = "SECONDS", requires = "soak", default_value_t = PATIENCE.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    patience: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Print a table for a page.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

impl Args {
    /// Whether the run varies the pace.
    fn is_curve(&self) -> bool {
        self.pause_us.len() > 1
    }
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct Row {
    strategy: &'static str,
    threads: u32,
    event: &'static str,
    core: &'static str,
    cores: u32,
    priority: &'static str,
    pause_us: u64,
    events: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    /// The longest time of one event: a starving thread shows here.
    max_ns: u64,
    /// The processor time of the waiting threads and their dispatcher.
    cpu_s_per_million: f64,
    /// p50 relative to that of `event` in the same scene.
    p50_per_event: Option<f64>,
}

/// Measures.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let cores = match allowed_cores().context("cannot tell which cores are ours")?.as_slice() {
        [first, second, ..] => [*first as u32, *second as u32],
        _ => bail!("it takes two cores: one for the source of events, one for those that wait"),
    };
    let strategies = if args.strategy.is_empty() { Strategy::ALL.to_vec() } else { args.strategy.clone() };
    if let Some(events) = args.soak {
        return soak::run(args, &strategies, &cores, events);
    }
    let scenes = scenes(args, &strategies);
    let (rounds, turn_ms) =
        if args.quick { (args.rounds.min(2), args.turn_ms.min(20)) } else { (args.rounds, args.turn_ms) };
    let mut totals: Vec<Option<Outcome>> = scenes.iter().map(|_| None).collect();
    let mut progress = Progress::new("waiting", u64::from(rounds) * scenes.len() as u64).with_lines();
    let mut played = 0;
    for round in 0..rounds {
        for (scene, total) in scenes.iter().zip(&mut totals) {
            let turn = play(
                &mut Real::default(),
                *scene,
                &cores,
                Until::Time(Duration::from_millis(turn_ms)),
                u64::from(round),
                Care::default(),
            )?;
            match total {
                None => *total = Some(turn),
                Some(total) => {
                    total.times.add(&turn.times)?;
                    total.events += turn.events;
                    total.cpu += turn.cpu;
                }
            }
            played += 1;
            progress.at(played, Instant::now());
        }
    }
    drop(progress);
    let measured: Vec<(Scene, Outcome)> =
        scenes.into_iter().zip(totals).filter_map(|(scene, total)| Some((scene, total?))).collect();
    let rows: Vec<Row> = measured.iter().map(|(scene, outcome)| row(*scene, outcome, &measured)).collect();
    let mut console = Console::new();
    match (args.json, args.is_curve()) {
        (true, _) => console.json(&rows)?,
        (_, true) => print::curve(&rows, &args.pause_us, args.markdown, &mut console)?,
        _ => {
            print::scenes(&rows, args.markdown, &mut console)?;
            aims::print(&aims::of(&rows), args.markdown, &mut console)?;
        }
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn scenes(args: &Args, strategies: &[Strategy]) -> Vec<Scene> {
    let threads: Vec<u32> =
        args.threads.iter().copied().filter(|threads| !args.quick || *threads <= QUICK_THREADS_MAX).collect();
    let may_be_urgent = may_be_urgent();
    let mut scenes = Vec::new();
    for pause in &args.pause_us {
        for (is_apart, is_busy, is_urgent) in COMPANIES {
            // A pace is measured undisturbed.
            if (args.is_curve() && (is_busy || !is_apart)) || (is_urgent && !may_be_urgent) {
                continue;
            }
            for &threads in &threads {
                for is_own in [true, false] {
                    for &strategy in strategies {
                        let scene = Scene {
                            threads,
                            is_own,
                            hogs: is_busy.into(),
                            is_apart,
                            is_urgent,
                            pause: Duration::from_micros(*pause),
                            ..Scene::of(strategy)
                        };
                        if is_sensible(&scene, args.is_curve()) {
                            scenes.push(scene);
                        }
                    }
                }
            }
        }
    }
    scenes
}

/// Two cores or one, with or without a thread that computes on the waiting threads' core, and whether those
/// have a priority: only beside that thread, against which a priority helps.
/// what a priority is for.
const COMPANIES: [(bool, bool, bool); 5] = [
    (true, false, false),
    (true, true, false),
    (true, true, true),
    (false, false, false),
    (false, true, false),
];

fn is_sensible(scene: &Scene, is_curve: bool) -> bool {
    let polls_only = scene.strategy == Strategy::BusyPoll;
    let is_alone = scene.threads == 1;
    // A thread that only polls, with a priority, keeps all others from running.
    let is_possible = !polls_only || (scene.threads <= BUSY_POLLERS_MAX && !scene.is_urgent);
    is_possible && if is_curve { scene.is_own == is_alone } else { scene.is_own || !is_alone }
}

/// Whether this process may give its threads a real-time priority; a thread that ends at once tries.
fn may_be_urgent() -> bool {
    std::thread::spawn(|| highwire_wake::run_urgently(1).is_ok()).join().unwrap_or(false)
}

fn row(scene: Scene, outcome: &Outcome, all: &[(Scene, Outcome)]) -> Row {
    let times = &outcome.times;
    let p50 = |times: &Histogram<u64>| times.value_at_quantile(0.5);
    let beside = Scene { strategy: Strategy::Event, ..scene };
    let beside = all.iter().find(|(other, _)| *other == beside).map(|(_, outcome)| p50(&outcome.times));
    Row {
        strategy: scene.strategy.name(),
        threads: scene.threads,
        event: if scene.is_own { "own" } else { "other" },
        core: if scene.hogs > 0 { "busy" } else { "idle" },
        cores: if scene.is_apart { 2 } else { 1 },
        priority: if scene.is_urgent { "fifo" } else { "usual" },
        pause_us: scene.pause.as_micros() as u64,
        events: outcome.events,
        p50_ns: p50(times),
        p99_ns: times.value_at_quantile(0.99),
        p999_ns: times.value_at_quantile(0.999),
        max_ns: times.max(),
        cpu_s_per_million: outcome.cpu.as_secs_f64() * 1e6 / outcome.events as f64,
        p50_per_event: beside.map(|beside| p50(times) as f64 / beside as f64),
    }
}
