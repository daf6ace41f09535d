//! The soak: enough events to believe that none is lost, in one go or in pieces.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use highwire_stage::{Care, Real, Scene, Until, play};
use highwire_wake::{Core, Strategy};
use serde::{Deserialize, Serialize};

use super::Args;
use crate::console::Console;
use crate::progress::Progress;

/// Events of a turn.
const TURN: u64 = 1_000_000;

/// The record of what has been played so far.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    events: u64,
    /// The next one has a strategy, a number of threads and a seed of its own.
    turns: u64,
    seconds: f64,
}

impl Record {
    /// The record in `path`; an empty one if the file does not exist.
    fn load(path: Option<&Path>) -> Result<Record> {
        let Some(path) = path.filter(|path| path.exists()) else { return Ok(Record::default()) };
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| format!("{} is no record of a soak", path.display()))
    }

    /// If the program ends meanwhile, the old record stays.
    fn save(&self, path: Option<&Path>) -> Result<()> {
        let Some(path) = path else { return Ok(()) };
        let new = path.with_extension("new");
        std::fs::write(&new, serde_json::to_string(self)? + "\n")
            .and_then(|()| std::fs::rename(&new, path))
            .with_context(|| path.display().to_string())
    }
}

/// Plays this many events under every strategy that sleeps, in turns: none may be lost.
pub(super) fn run(args: &Args, strategies: &[Strategy], cores: [Core; 2], events: u64) -> Result<ExitCode> {
    let strategies: Vec<Strategy> =
        strategies.iter().copied().filter(|strategy| *strategy != Strategy::BusyPoll).collect();
    let care = Care {
        patience: Duration::from_secs(args.patience),
        untold: args.plant_lost.unwrap_or_default(),
        depth: args.depth as usize,
    };
    let path = args.record.as_deref();
    let mut record = Record::load(path)?;
    let mut console = Console::new();
    let before = record.events;
    let mut progress = Progress::new("events", events.saturating_sub(before)).with_lines();
    while record.events < events {
        let count = TURN.min(events - record.events);
        let turn = record.turns as usize;
        let strategy = *strategies.get(turn % strategies.len().max(1)).context("no strategy that sleeps")?;
        let threads = args.threads[turn / strategies.len() % args.threads.len()];
        let scene = Scene { threads, is_own: false, pause: Duration::ZERO, ..Scene::of(strategy) };
        let begin = Instant::now();
        let outcome = play(&mut Real::default(), scene, &cores, Until::Events(count), record.turns, care)?;
        record.events += outcome.events;
        record.turns += 1;
        record.seconds += begin.elapsed().as_secs_f64();
        record.save(path)?;
        progress.at(record.events - before, Instant::now());
    }
    drop(progress);
    let Record { events, turns, seconds } = record;
    let rate = events as f64 / seconds.max(1e-9) / 1e3;
    console.line(format!(
        "{events} events, {events} answers, none lost, in {turns} turns and {seconds:.0} s, {rate:.0} thousand a second"
    ))?;
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_another_file_is_refused() {
        let path = std::env::temp_dir().join(format!("highwire-soak-{}.json", std::process::id()));
        assert_eq!(Record::load(Some(&path)).expect("none yet").events, 0);
        let record = Record { events: 7, turns: 2, seconds: 0.5 };
        record.save(Some(&path)).expect("writes");
        let read = Record::load(Some(&path)).expect("reads");
        assert_eq!((read.events, read.turns), (7, 2));
        std::fs::write(&path, "[]").expect("writes");
        let error = Record::load(Some(&path)).expect_err("no record");
        assert!(format!("{error:#}").contains("is no record of a soak"), "{error:#}");
        std::fs::remove_file(&path).expect("is there");
    }
}
