//! `cargo xtask gallery`: every scenario that ships, played often with one seed, and software of others under some of them.
//!
//! What went wrong must be the same in each run: the logs of a scenario have one hash. Packets are not part of it
//! (docs/faults.md says why).

mod real;

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::packages;
use crate::programs::{self, Built, Played};
use crate::shell::Log;
use crate::table::Table;

/// Options of `cargo xtask gallery`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask gallery                       each scenario ten times over both links: about half an hour
  cargo xtask gallery --only port --link shm --runs 3
  cargo xtask gallery --real                UCX, Mooncake and NIXL under scenarios, and what happened
  cargo xtask gallery --real --only mooncake")]
pub(crate) struct Args {
    /// How often each scenario is played.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Only the scenarios whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Over this link only: shm or udp.
    #[arg(long, value_parser = ["shm", "udp"])]
    link: Option<String>,
    /// Software of others instead of the programs that ship: it is installed where that is possible.
    #[arg(long, conflicts_with_all = ["runs", "link"])]
    real: bool,
    /// With optimised libraries.
    #[arg(long)]
    release: bool,
}

/// Plays them and prints a table. The status is 1 if a program failed, or if what went wrong was not the same.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("gallery")?;
    if let Err(missing) = packages::ensure(programs::PACKAGES, &log)? {
        bail!(missing.0);
    }
    let Some(built) = Built::new(args.release, &log)? else { bail!("{} says why", log.name()) };
    if args.real {
        return real::run(&built, args.only.as_deref(), &log);
    }
    let is_chosen = |played: &Played| {
        args.only.as_ref().is_none_or(|text| played.scenario.contains(text))
            && args.link.as_ref().is_none_or(|link| *link == played.link)
    };
    let all: Vec<Played> = programs::with_scenarios()?.into_iter().filter(is_chosen).collect();
    if all.is_empty() {
        bail!("no scenario has such a name");
    }
    let mut table = Table::new(&["scenario", "program", "link", "runs", "what went wrong", "packets"]);
    let mut all_well = true;
    for played in &all {
        let row = play(played, args.runs, &built, &log)?;
        println!("{}", row.join("  "));
        all_well &= is_well(&row[4]);
        table.row(row);
    }
    println!("\n{}", table.to_text());
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn play(played: &Played, runs: u32, built: &Built, log: &Log) -> Result<Vec<String>> {
    let mut diaries = BTreeSet::new();
    let mut failed = 0;
    let program = programs::compile(&played.source, log)?;
    for _ in 0..runs {
        match program.as_deref().map(|program| programs::diary(program, built, played, log)).transpose()? {
            Some(Some(diary)) => drop(diaries.insert(diary)),
            _ => failed += 1,
        }
    }
    if diaries.len() > 1 {
        for (number, diary) in (1..).zip(&diaries) {
            log.note(&format!("{} over {}, log {number}:\n{diary}", played.scenario, played.link))?;
        }
    }
    let rules = Rules::of(&fs::read_to_string(programs::scenario_file(&played.scenario))?);
    let name = played.source.file_stem().unwrap_or_default().to_string_lossy();
    Ok(vec![
        played.scenario.clone(),
        format!("{name} {}", played.arguments).trim_end().to_string(),
        played.link.clone(),
        runs.to_string(),
        verdict(&diaries, failed, rules),
        if rules.has_paths { "judged, not compared" } else { "–" }.to_string(),
    ])
}

/// What kinds of rules a scenario has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    /// The log has a line for each time that a rule is carried out.
    logs: bool,
    /// There are rules for packets, which are not in the log.
    has_paths: bool,
}

impl Rules {
    fn of(scenario: &str) -> Rules {
        let has = |table: &str| scenario.lines().any(|line| line.trim() == table);
        let logged = ["[[call]]", "[[registration]]", "[[completion]]", "[[event]]"];
        // Rules may come while it is played.
        let is_controlled = has("control = true");
        Rules { logs: is_controlled || logged.into_iter().any(has), has_paths: has("[[path]]") }
    }
}

/// An empty log is no evidence, unless the scenario has nothing to log; then the program alone checks what it sees.
fn verdict(diaries: &BTreeSet<String>, failed: u32, rules: Rules) -> String {
    let mut logs = diaries.iter();
    match (failed, logs.next(), logs.next()) {
        (0, Some(log), None) if !log.is_empty() => format!("the same: {:016x}", hash(log)),
        (0, Some(_), None) if rules.logs => "NOTHING was logged".to_string(),
        (0, Some(_), None) if rules.has_paths => "nothing is logged: only packets are judged".to_string(),
        (0, Some(_), None) => "nothing is logged: only devices are named".to_string(),
        (0, ..) => format!("DIFFERS: {} logs", diaries.len()),
        (1, ..) => "FAILED once".to_string(),
        (failed, ..) => format!("FAILED {failed} times"),
    }
}

fn is_well(verdict: &str) -> bool {
    verdict.starts_with("the same") || verdict.starts_with("nothing is logged")
}

/// Of a log; two runs of this program compare theirs, and no other does.
fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The scenarios that are there; each is played by a program, or by software of others.
#[cfg(test)]
fn scenarios() -> Vec<String> {
    let entries = fs::read_dir(crate::shell::root().join("examples/scenarios")).expect("a folder").flatten();
    let name = |path: &std::path::Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    entries.map(|entry| name(&entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_log_is_the_same_and_two_are_not() {
        let of = |texts: &[&str], failed, rules: &str| {
            let diaries = texts.iter().map(ToString::to_string).collect();
            verdict(&diaries, failed, Rules::of(rules))
        };
        let calls = "[[call]]\nerrno = 1";
        assert!(of(&["a\n", "a\n"], 0, calls).starts_with("the same: "));
        assert_eq!(of(&["a\n", "b\n"], 0, calls), "DIFFERS: 2 logs");
        assert_eq!(of(&["a\n", ""], 0, calls), "DIFFERS: 2 logs");
        assert_eq!(of(&["a\n"], 2, calls), "FAILED 2 times");
        assert_eq!(of(&[], 1, calls), "FAILED once");
        // What is never carried out is found.
        assert!(!is_well(&of(&[""], 0, calls)));
        for rules in ["[[path]]\nloss = 1", "[[device]]\nname = 1"] {
            let verdict = of(&[""], 0, rules);
            assert!(is_well(&verdict) && !verdict.contains("the same"), "{verdict}");
        }
    }

    #[test]
    fn every_scenario_that_ships_is_played() {
        let played: Vec<String> =
            programs::with_scenarios().expect("programs").into_iter().map(|played| played.scenario).collect();
        let others = real::scenarios();
        for scenario in scenarios() {
            assert!(played.contains(&scenario) || others.contains(&scenario.as_str()), "{scenario}");
        }
    }
}
