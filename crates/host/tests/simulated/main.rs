//! Engines of several processes under a seeded scheduler: `docs/testing-engines.md` tells what is played and what is checked.
//!
//! `HIGHWIRE_SEEDS=n` runs n seeds of each theme, `HIGHWIRE_SEED=n` one, with its plan; an argument names a theme.

#![allow(unreachable_pub, reason = "every item is of this test alone")]

mod machine;
mod network;
mod plan;
mod process;
mod run;
mod traffic;
mod workers;

use plan::{Plan, Theme};
use run::Report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Seeds of each theme, unless the environment says otherwise.
const SEEDS: u64 = 150;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some((theme, from, to)) = workers::asked(&args) {
        return with_registry(|registry| workers::work(registry, theme, from, to));
    }
    let named = |theme: &&Theme| args.iter().any(|arg| *arg == theme.name());
    let named: Vec<Theme> = Theme::ALL.iter().filter(named).copied().collect();
    let themes = if named.is_empty() { Theme::ALL.to_vec() } else { named };
    match number("HIGHWIRE_SEED") {
        Some(seed) => with_registry(|registry| {
            let broken = themes.iter().filter(|theme| !show(registry, **theme, seed)).count();
            ExitCode::from(u8::from(broken > 0))
        }),
        None => workers::run_all(&themes, number("HIGHWIRE_SEEDS").unwrap_or(SEEDS)),
    }
}

/// Runs a seed with its plan.
fn show(registry: &Path, theme: Theme, seed: u64) -> bool {
    eprintln!("{}", Plan::new(theme, seed));
    let result = run_twice(registry, theme, seed);
    match &result {
        Ok(report) => println!("{}, seed {seed}: {report:?}", theme.name()),
        Err(text) => println!("{}, seed {seed}: {text}", theme.name()),
    }
    result.is_ok()
}

/// Runs a seed two times, which must be alike.
pub fn run_twice(registry: &Path, theme: Theme, seed: u64) -> Result<Report, String> {
    let once = || run::run(registry, theme, seed);
    let (first, second) = (once()?, once()?);
    if first != second {
        return Err(format!("the second run differs: {first:?}, then {second:?}"));
    }
    Ok(first)
}

/// The directory where the played processes find each other.
fn with_registry(act: impl FnOnce(&Path) -> ExitCode) -> ExitCode {
    let registry = PathBuf::from(format!("/dev/shm/highwire-simulated-{}", std::process::id()));
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("HIGHWIRE_SHM_DIR", &registry) };
    let code = act(&registry);
    let _ = std::fs::remove_dir_all(&registry);
    code
}
