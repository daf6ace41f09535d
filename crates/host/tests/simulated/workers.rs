//! Copies of this program, each of which runs some seeds: a run that dies takes its copy with it, and no other.

use crate::plan::Theme;
use crate::run_twice;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const WORKER: &str = "--worker";
/// Seeds of one copy. What killed processes leave in it stays until it ends.
const SEEDS_AT_ONCE: u64 = 50;
/// A run that takes longer hangs, and its copy is ended.
const SECONDS_MAX: u32 = 300;

/// What this copy is asked to do.
pub fn asked(args: &[String]) -> Option<(Theme, u64, u64)> {
    let [worker, theme, from, to] = args else { return None };
    let theme = Theme::ALL.into_iter().find(|known| known.name() == theme)?;
    (worker == WORKER).then_some((theme, from.parse().ok()?, to.parse().ok()?))
}

/// Runs seeds, and says so line by line.
pub fn work(registry: &Path, theme: Theme, from: u64, to: u64) -> ExitCode {
    allow_descriptors();
    for seed in from..to {
        // SAFETY: a plain system call.
        unsafe { libc::alarm(SECONDS_MAX) };
        println!("begin {seed}");
        match run_twice(registry, theme, seed) {
            Ok(report) => println!("end {} {}", report.steps, report.messages),
            Err(text) => {
                println!("broken {}", text.replace('\n', "; "));
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Killed processes leave their descriptors.
fn allow_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

/// What the copies have done.
#[derive(Default)]
struct Tally {
    next: AtomicU64,
    seeds: AtomicU64,
    steps: AtomicU64,
    messages: AtomicU64,
    is_broken: AtomicBool,
}

/// Runs so many seeds of each theme.
pub fn run_all(themes: &[Theme], seeds: u64) -> ExitCode {
    for theme in themes {
        let (tally, begin) = (Tally::default(), Instant::now());
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|threads| {
            for _ in 0..jobs {
                threads.spawn(|| while run_some(*theme, seeds, &tally) {});
            }
        });
        let (done, seconds) = (tally.seeds.load(Ordering::Relaxed), begin.elapsed().as_secs_f64());
        println!(
            "{}: {done} seeds, each twice, in {seconds:.0} s ({:.0} seeds a minute); {} steps, {} messages",
            theme.name(),
            done as f64 * 60.0 / seconds,
            tally.steps.load(Ordering::Relaxed),
            tally.messages.load(Ordering::Relaxed),
        );
        if tally.is_broken.load(Ordering::Relaxed) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Lets a copy run the next seeds; false if there are none, or one has failed.
fn run_some(theme: Theme, seeds: u64, tally: &Tally) -> bool {
    let from = tally.next.fetch_add(SEEDS_AT_ONCE, Ordering::Relaxed);
    if from >= seeds || tally.is_broken.load(Ordering::Relaxed) {
        return false;
    }
    let to = (from + SEEDS_AT_ONCE).min(seeds);
    let mut child = start(theme, from, to);
    let output = child.stdout.take().expect("it was asked for");
    let (mut seed, mut why) = (from, String::new());
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match words[0] {
            "begin" => seed = number(1),
            "end" => {
                tally.seeds.fetch_add(1, Ordering::Relaxed);
                tally.steps.fetch_add(number(1), Ordering::Relaxed);
                tally.messages.fetch_add(number(2), Ordering::Relaxed);
            }
            "broken" => why = words[1..].join(" "),
            _ => println!("{line}"),
        }
    }
    let status = child.wait().expect("it was started");
    if status.success() {
        return true;
    }
    if !tally.is_broken.swap(true, Ordering::Relaxed) {
        let name = theme.name();
        let text = if why.is_empty() { format!("it has ended: {status}") } else { why };
        println!("{name}: seed {seed} broke: {}", text.replace("; ", "\n"));
        println!(
            "repeat: HIGHWIRE_SEED={seed} cargo test -p highwire-host --features world --test simulated {name}"
        );
    }
    false
}

fn start(theme: Theme, from: u64, to: u64) -> Child {
    let own = std::env::current_exe().expect("our own path");
    let mut command = Command::new(own);
    command.args([WORKER, theme.name(), &from.to_string(), &to.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts")
}
