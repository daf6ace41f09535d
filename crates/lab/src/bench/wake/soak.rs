//! The soak: as many events as it takes to believe that no wake-up is lost, in one go or in pieces.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use highwire_stage::{Planted, Relay, RelayError, Relayed};
use highwire_stdx::Rng;
use highwire_wake::{Core, Strategy};
use serde::{Deserialize, Serialize};

use super::Args;
use crate::console::{Console, Tone};
use crate::failure::usage;
use crate::progress::Progress;

/// Events of a turn, at most, and how long it takes at most: strategies that poll are slow where others want the cores.
const TURN: u64 = 1_000_000;
const TURN_LONGEST: Duration = Duration::from_secs(10);

/// What a strategy has been through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Totals {
    strategy: String,
    events: u64,
    woken: u64,
    looked: u64,
    led: u64,
    polled: u64,
    millis: u64,
}

impl Totals {
    fn add(&mut self, relayed: Relayed, took: Duration) {
        self.events += relayed.events;
        self.woken += relayed.woken;
        self.looked += relayed.looked;
        self.led += relayed.led;
        self.polled += relayed.polled;
        self.millis += took.as_millis() as u64;
    }

    fn line(&self) -> String {
        let share = |part: u64| 100.0 * part as f64 / self.events.max(1) as f64;
        format!(
            "  {:<16}{:>14}{:>9.1} %{:>9.2} %{:>9.1} %{:>9.1} %{:>12.0}",
            self.strategy,
            self.events,
            share(self.woken),
            share(self.looked),
            share(self.led),
            share(self.polled),
            rate(self.events, self.millis),
        )
    }
}

/// Thousands a second.
fn rate(events: u64, millis: u64) -> f64 {
    events as f64 / millis.max(1) as f64
}

/// The file: which soak it is of, and what has been played.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    seed: u64,
    threads: Vec<u32>,
    depth: u32,
    /// The next one has a strategy, a number of threads and a seed of its own.
    turns: u64,
    totals: Vec<Totals>,
}

/// A soak that may be ended at any time.
#[derive(Debug)]
struct Account {
    kept: Kept,
    file: Option<PathBuf>,
}

impl Account {
    /// Begins, or goes on where the file says.
    fn open(new: Kept, file: Option<&Path>) -> Result<Account> {
        let mut account = Account { kept: new, file: file.map(Into::into) };
        if let Some(file) = file.filter(|file| file.exists()) {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            let old: Kept = serde_json::from_str(&text)
                .map_err(|error| usage(format!("{} is no file of a soak: {error}", file.display())))?;
            if old.settings() != account.kept.settings() {
                return Err(usage(format!("{} is of a soak with {}", file.display(), old.settings())));
            }
            account.kept = old;
        }
        // A file that cannot be written is told of at once, not after an hour.
        account.write()?;
        Ok(account)
    }

    fn events(&self) -> u64 {
        self.kept.totals.iter().map(|totals| totals.events).sum()
    }

    /// Whole, or as it was before.
    fn write(&self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut new = file.clone().into_os_string();
        new.push(".new");
        std::fs::write(&new, serde_json::to_string(&self.kept)? + "\n")
            .and_then(|()| std::fs::rename(&new, file))
            .with_context(|| file.display().to_string())
    }
}

impl Kept {
    /// What a soak that goes on must have been begun with.
    fn settings(&self) -> String {
        let threads: Vec<String> = self.threads.iter().map(ToString::to_string).collect();
        let strategies: Vec<&str> = self.totals.iter().map(|totals| totals.strategy.as_str()).collect();
        format!(
            "--seed {} --threads {} --depth {} --strategy {}",
            self.seed,
            threads.join(","),
            self.depth,
            strategies.join(",")
        )
    }
}

/// So many events under every strategy that sleeps, in turns: no wake-up may be lost.
pub(super) fn run(args: &Args, strategies: &[Strategy], cores: &[Core], events: u64) -> Result<ExitCode> {
    let strategies: Vec<Strategy> =
        strategies.iter().copied().filter(|strategy| *strategy != Strategy::BusyPoll).collect();
    // One alone has no other to pass its event to.
    let threads: Vec<u32> = args.threads.iter().copied().filter(|threads| *threads > 1).collect();
    if strategies.is_empty() || threads.is_empty() {
        return Err(usage("a soak takes a strategy that sleeps, and two threads"));
    }
    let totals = |strategy: &Strategy| Totals { strategy: strategy.name().into(), ..Totals::default() };
    let totals = strategies.iter().map(totals).collect();
    let new = Kept { seed: args.seed, threads: threads.clone(), depth: args.depth, turns: 0, totals };
    let mut account = Account::open(new, args.resume.as_deref())?;
    // However few there are, every strategy is to have its turns.
    let turn_events = TURN.min(events.div_ceil((strategies.len() * threads.len()) as u64));
    let before = account.events();
    let mut progress = Progress::new("events", events.saturating_sub(before)).with_lines().with_rate();
    while account.events() < events {
        let turn = account.kept.turns as usize;
        let strategy = strategies[turn % strategies.len()];
        let seed = args.seed.wrapping_add(account.kept.turns);
        let relay = Relay {
            strategy,
            threads: threads[turn / strategies.len() % threads.len()],
            depth: args.depth,
            is_pinned: Rng::new(seed).next_u64() & 1 == 0,
            events: turn_events.min(events - account.events()),
            longest: TURN_LONGEST,
            seed,
            patience: Duration::from_secs(args.patience),
            planted: match args.plant_lost {
                Some(event) => Some(Planted::Untold(event)),
                None => args.plant_order.then_some(Planted::ArmsLate),
            },
        };
        let begin = Instant::now();
        let relayed = relay.play(cores).map_err(|error| with_repeat(error, &relay))?;
        account.kept.totals[turn % strategies.len()].add(relayed, begin.elapsed());
        account.kept.turns += 1;
        account.write()?;
        progress.at(account.events() - before, Instant::now());
    }
    drop(progress);
    print(&account)?;
    Ok(ExitCode::SUCCESS)
}

/// What was lost, and the command that plays the same turn.
fn with_repeat(error: RelayError, relay: &Relay) -> anyhow::Error {
    let RelayError::Lost(lost) = error else { return anyhow::Error::new(error) };
    let Relay { strategy, threads, depth, seed, .. } = relay;
    anyhow!(
        "a wake-up was lost: {lost}\nto play this turn again: highwire bench wake --soak {TURN} --strategy {strategy} --threads {threads} --depth {depth} --seed {seed}"
    )
}

fn print(account: &Account) -> Result<()> {
    let mut console = Console::new();
    let heading = "  strategy                events      woken     looked        led     polled         k/s";
    console.line(console.paint(Tone::Heading, heading))?;
    for totals in &account.kept.totals {
        console.line(totals.line())?;
    }
    console.line("  woken: its thread slept or was about to; looked: it came between polling and sleeping, and a look after arming found it;")?;
    console.line(
        "  led: the thread found it, polling as the leader; polled: it was there before the thread armed",
    )?;
    let events = account.events();
    let millis = account.kept.totals.iter().map(|totals| totals.millis).sum();
    console.line(format!(
        "{events} events, {events} taken, no wake-up lost, in {} turns and {:.0} s, {:.0} thousand a second",
        account.kept.turns,
        millis as f64 / 1e3,
        rate(events, millis)
    ))?;
    console.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(seed: u64) -> Kept {
        let totals = ["event", "affine"].map(|name| Totals { strategy: name.into(), ..Totals::default() });
        Kept { seed, threads: vec![2, 16], depth: 4, turns: 0, totals: totals.into() }
    }

    #[test]
    fn a_soak_goes_on_where_its_file_says_and_another_file_is_refused() {
        let file = std::env::temp_dir().join(format!("highwire-soak-{}.json", std::process::id()));
        let mut account = Account::open(kept(3), Some(&file)).expect("a new file");
        let relayed = Relayed { events: 10, polled: 1, looked: 2, led: 3, woken: 4 };
        account.kept.totals[1].add(relayed, Duration::from_millis(5));
        account.kept.turns = 2;
        account.write().expect("a writable file");
        let again = Account::open(kept(3), Some(&file)).expect("the file");
        assert_eq!((again.events(), &again.kept), (10, &account.kept));
        let error = Account::open(kept(4), Some(&file)).expect_err("another soak");
        assert!(
            error.to_string().contains("--seed 3 --threads 2,16 --depth 4 --strategy event,affine"),
            "{error}"
        );
        std::fs::write(&file, "[]").expect("writes");
        let error = Account::open(kept(3), Some(&file)).expect_err("no file of a soak");
        assert!(error.to_string().contains("is no file of a soak"), "{error}");
        std::fs::remove_file(&file).expect("is there");
    }
}
