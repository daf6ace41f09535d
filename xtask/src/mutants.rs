//! `cargo xtask mutants`: bugs of one line each, planted by cargo-mutants, and how many of them a crate's own tests notice.
//!
//! A shard of a crate keeps its outcomes in `target/xtask/mutants`, so that a long run may be done in parts, on one machine or on
//! several; the table adds up what is there. Mutants that no test can notice stand in `checkers/mutants.txt`, each with its reason.

mod accepted;
mod outcomes;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::debug;
use crate::shell::{Line, Log, root, target_dir};
use crate::table::Table;

use accepted::Accepted;
use outcomes::Outcomes;

/// The version whose names and files this reads.
const VERSION: &str = "27.1.0";

/// The crates that are measured, and the percentage of mutants that their own tests must notice.
const AIMS: &[(&str, u32)] = &[
    ("wire", 90),
    ("verbs", 90),
    ("transport", 90),
    ("cm", 90),
    ("rnic", 90),
    ("rings", 90),
    ("shmem", 90),
    ("wake", 90),
    ("link", 80),
    ("broker", 80),
    ("host", 80),
    ("ibverbs", 80),
];

/// Options of `cargo xtask mutants`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask mutants                      every crate, which takes days
  cargo xtask mutants cm rings             two crates
  cargo xtask mutants wire --shard 3/16    every sixteenth mutant of one, from the third
  cargo xtask mutants --change main        what differs from a branch or commit
  cargo xtask mutants --report             the table of all that has been run")]
pub(crate) struct Args {
    /// The crates, without `highwire-`; all that have an aim without any.
    crates: Vec<String>,
    /// Only this part, as `K/N`, from 1.
    #[arg(long, default_value = "1/1", value_parser = parse_shard)]
    shard: Shard,
    /// Only lines that differ from this commit.
    #[arg(long, value_name = "COMMIT", conflicts_with = "shard")]
    change: Option<String>,
    /// Run nothing: print the table of the outcomes that are kept.
    #[arg(long)]
    report: bool,
}

/// One part of several, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    index: u32,
    of: u32,
}

fn parse_shard(text: &str) -> Result<Shard, String> {
    let wrong = || "a shard is K/N with K from 1 to N, as 3/16".to_string();
    let (index, of) = text.split_once('/').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let shard = Shard { index: number(index)?, of: number(of)? };
    if shard.index == 0 || shard.index > shard.of { Err(wrong()) } else { Ok(shard) }
}

/// Plants the chosen mutants, keeps their outcomes and prints the table.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let chosen = chosen(&args.crates)?;
    if args.report {
        return print(&chosen);
    }
    let log = Log::create("mutants")?;
    let program = installed(&log)?;
    // Devices that share an address need the program that owns it.
    if !debug::program().run_logged(&log)? {
        bail!("the program does not build; {} says why", log.path().display());
    }
    for &(name, _) in &chosen {
        plant(name, args, &program)?;
    }
    print(&chosen)
}

fn chosen(names: &[String]) -> Result<Vec<(&'static str, u32)>> {
    if names.is_empty() {
        return Ok(AIMS.to_vec());
    }
    let find = |name: &String| {
        let name = name.strip_prefix("highwire-").unwrap_or(name);
        let known = AIMS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let found = AIMS.iter().find(|(known, _)| *known == name).copied();
        found.with_context(|| format!("no aim for a crate {name}; there are {known}"))
    };
    names.iter().map(find).collect()
}

/// cargo-mutants of the right version, installed into the build folder once.
fn installed(log: &Log) -> Result<PathBuf> {
    let tools = target_dir().join("xtask/tools");
    let program = tools.join("bin/cargo-mutants");
    let has_it = Line::new(&program.display().to_string())
        .words("mutants --version")
        .capture()
        .is_ok_and(|output| output.stdout.contains(VERSION));
    if !has_it {
        println!("installing cargo-mutants {VERSION}");
        let install = Line::cargo("install --quiet --locked cargo-mutants --force --version").arg(VERSION);
        if !install.arg("--root").arg(&tools).run_logged(log)? {
            bail!("cargo-mutants could not be installed; {} says why", log.path().display());
        }
    }
    Ok(program)
}

fn folder() -> PathBuf {
    target_dir().join("xtask/mutants")
}

/// Runs one crate's part. Its progress goes to the terminal.
fn plant(name: &str, args: &Args, program: &Path) -> Result<()> {
    let output = folder().join(format!("{name}.run"));
    let _ = fs::remove_dir_all(&output);
    fs::create_dir_all(&output)?;
    let mut line = Line::new(&program.display().to_string())
        .words("mutants --package")
        .arg(format!("highwire-{name}"))
        .words("--no-shuffle --minimum-test-timeout 120 --timeout-multiplier 4 --output")
        .arg(&output)
        .env("HIGHWIRE_BROKER", target_dir().join("debug/highwire"))
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("CARGO_PROFILE_TEST_DEBUG", "false");
    if let Some(commit) = &args.change {
        let diff = folder().join("change.diff");
        let output = Line::new("git").words("diff").arg(commit).capture()?;
        if !output.success {
            bail!("git diff {commit}: {}", output.stderr.trim());
        }
        fs::write(&diff, output.stdout)?;
        line = line.arg("--in-diff").arg(diff);
    } else if args.shard.of > 1 {
        // In turns, so that a shard is a sample of the whole crate.
        line = line.words("--sharding round-robin --shard").arg(format!(
            "{}/{}",
            args.shard.index - 1,
            args.shard.of
        ));
    }
    // It exits with an error if a mutant survived; the table judges.
    line.run()?;
    let made = output.join("mutants.out/outcomes.json");
    if !made.is_file() {
        bail!("cargo-mutants left no {}: its words are above", made.display());
    }
    // Shards of another division would be counted twice.
    let is_change = args.change.is_some();
    for (path, of) in kept(name)? {
        if of != args.shard.of && !is_change {
            fs::remove_file(path)?;
        }
    }
    let part = if is_change { "change".into() } else { format!("{}-{}", args.shard.index, args.shard.of) };
    fs::copy(&made, folder().join(format!("{name}.{part}.json")))?;
    Ok(())
}

/// The files of a crate's shards, each with the number of shards.
fn kept(name: &str) -> Result<Vec<(PathBuf, u32)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder()).into_iter().flatten() {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let part = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
        let of = part.and_then(|part| part.strip_suffix(".json")?.split_once('-')?.1.parse().ok());
        if let Some(of) = of {
            found.push((path, of));
        }
    }
    found.sort();
    Ok(found)
}

fn print(chosen: &[(&str, u32)]) -> Result<ExitCode> {
    let accepted = Accepted::read(&root().join("checkers/mutants.txt"))?;
    let mut table =
        Table::new(&["crate", "shards", "mutants", "noticed", "survived", "with a reason", "share", "aim"]);
    let mut survivors: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut falls_short = false;
    for &(name, aim) in chosen {
        let files = kept(name)?;
        let Some(&(_, of)) = files.first() else { continue };
        let mut outcomes = Outcomes::default();
        for (path, _) in &files {
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            outcomes.add(&text).with_context(|| path.display().to_string())?;
        }
        let open: Vec<String> =
            outcomes.survived.iter().filter(|mutant| !accepted.has(mutant)).cloned().collect();
        let reasons = outcomes.survived.len() - open.len();
        let share = outcomes.share(reasons);
        falls_short |= share.is_some_and(|share| share < f64::from(aim));
        table.row([
            name.to_string(),
            format!("{}/{of}", files.len()),
            outcomes.viable().to_string(),
            outcomes.noticed.to_string(),
            outcomes.survived.len().to_string(),
            reasons.to_string(),
            share.map_or("-".into(), |share| format!("{share:.1} %")),
            format!("{aim} %"),
        ]);
        survivors.insert(name, open);
    }
    if table.rows().is_empty() {
        println!("nothing has been run yet: cargo xtask mutants CRATE");
        return Ok(ExitCode::SUCCESS);
    }
    print!("{}", table.to_text());
    for (name, open) in survivors.iter().filter(|(_, open)| !open.is_empty()) {
        println!("\n{name}: survivors without a reason");
        open.iter().for_each(|mutant| println!("  {mutant}"));
    }
    Ok(if falls_short { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_one_of_several() {
        assert_eq!(parse_shard("3/16"), Ok(Shard { index: 3, of: 16 }));
        assert_eq!(parse_shard("1/1"), Ok(Shard { index: 1, of: 1 }));
        for wrong in ["", "3", "0/4", "5/4", "1/0", "a/b", "-1/2", "1/2/3"] {
            assert!(parse_shard(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_crate_has_an_aim_or_is_named() {
        assert_eq!(
            chosen(&["highwire-cm".into(), "link".into()]).expect("known"),
            [("cm", 90), ("link", 80)]
        );
        assert!(chosen(&["clm".into()]).expect_err("unknown").to_string().contains("clm"));
        assert_eq!(chosen(&[]).expect("all").len(), AIMS.len());
    }
}
