//! `cargo xtask gallery`: every scenario that ships, played often with one seed, and software of others under some of them.
//!
//! What went wrong must be the same in each run: the logs of a scenario have one hash. Packets are not part of it
//! (docs/faults.md says why).

mod real;

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::packages;
use crate::programs::{self, Built, Played};
use crate::shell::{Log, root};
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
    let mut is_well = true;
    for played in &all {
        let row = play(played, args.runs, &built, &log)?;
        println!("{}", row.join("  "));
        is_well &= row[4].starts_with("the same");
        table.row(row);
    }
    println!("\n{}", table.to_text());
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn play(played: &Played, runs: u32, built: &Built, log: &Log) -> Result<Vec<String>> {
    let mut hashes = BTreeSet::new();
    let mut failed = 0;
    let program = programs::compile(&played.source, log)?;
    for _ in 0..runs {
        match program.as_deref().map(|program| programs::diary(program, built, played, log)).transpose()? {
            Some(Some(diary)) => drop(hashes.insert(hash(&diary))),
            _ => failed += 1,
        }
    }
    let file = programs::scenario_file(&played.scenario);
    let name = played.source.file_stem().unwrap_or_default().to_string_lossy();
    Ok(vec![
        played.scenario.clone(),
        format!("{name} {}", played.arguments).trim_end().to_string(),
        played.link.clone(),
        runs.to_string(),
        verdict(&hashes, failed),
        if judges_packets(&file) { "judged, not compared" } else { "–" }.to_string(),
    ])
}

fn verdict(hashes: &BTreeSet<u64>, failed: u32) -> String {
    match (failed, hashes.len()) {
        (0, 1) => format!("the same: {:016x}", hashes.first().expect("one")),
        (0, several) => format!("DIFFERS: {several} logs"),
        (failed, _) => format!("FAILED {failed} times"),
    }
}

/// Of a log; two runs of this program compare theirs, and no other does.
fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn judges_packets(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.contains("[[path]]"))
}

/// The scenarios that are there; each is played by a program, or by software of others.
#[cfg(test)]
fn scenarios() -> Vec<String> {
    let entries = fs::read_dir(root().join("examples/scenarios")).expect("a folder").flatten();
    let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    entries.map(|entry| name(&entry.path())).collect()
}

/// Programs of this repository that software of others runs.
fn script(name: &str) -> std::path::PathBuf {
    root().join("interop/programs").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_log_is_the_same_and_two_are_not() {
        let hashes = |texts: &[&str]| texts.iter().map(|text| hash(text)).collect::<BTreeSet<_>>();
        assert!(verdict(&hashes(&["a\n", "a\n"]), 0).starts_with("the same: "));
        assert_eq!(verdict(&hashes(&["a\n", "b\n"]), 0), "DIFFERS: 2 logs");
        assert_eq!(verdict(&hashes(&["a\n"]), 2), "FAILED 2 times");
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
