//! `--stalls`: a core's cycles by what happened in them, for programs and people.

use std::collections::BTreeMap;

use highwire_nanopu::{Core, Stall};
use serde::Serialize;

/// A core's cycles since reset. The parts add up.
#[derive(Debug, Serialize)]
pub(super) struct Account {
    core: usize,
    cycles: u64,
    /// Cycles in which an instruction committed, or a trap was taken.
    commits: u64,
    traps: u64,
    /// Cycles without either, by cause.
    stalls: BTreeMap<&'static str, u64>,
}

/// The accounts of cores that keep one.
pub(super) fn of<'a>(cores: impl Iterator<Item = &'a Core>) -> Vec<Account> {
    let account = |(number, core): (usize, &Core)| {
        let stalls = core.stalls()?;
        let count = |stall: Stall| (stall.name(), stalls.cycles(stall));
        Some(Account {
            core: number,
            cycles: stalls.all_cycles(),
            commits: stalls.commits(),
            traps: stalls.traps(),
            stalls: Stall::ALL.into_iter().map(count).collect(),
        })
    };
    cores.enumerate().filter_map(account).collect()
}

/// A table for people: a row per cause that occurred, a column per core; the most frequent first.
pub(super) fn lines(accounts: &[Account]) -> Vec<String> {
    if accounts.is_empty() {
        return Vec::new();
    }
    let mut rows = vec![
        ("instructions", accounts.iter().map(|one| one.commits).collect::<Vec<u64>>()),
        ("traps taken", accounts.iter().map(|one| one.traps).collect()),
    ];
    let causes = Stall::ALL.map(|stall| {
        (stall.name(), accounts.iter().map(|one| one.stalls[stall.name()]).collect::<Vec<u64>>())
    });
    rows.extend(causes);
    rows.retain(|(name, cycles)| *name == "instructions" || cycles.iter().any(|&cycles| cycles > 0));
    rows[1..].sort_by_key(|(_, cycles)| std::cmp::Reverse(cycles.iter().sum::<u64>()));
    let heads: String = accounts.iter().map(|one| format!("{:>19}", format!("core {}", one.core))).collect();
    let head = format!("{:<18}{heads}", "cycles since reset");
    let line = |(name, cycles): (&str, Vec<u64>)| {
        let cells = cycles.iter().zip(accounts).map(|(&cycles, account)| {
            let share = 100.0 * cycles as f64 / account.cycles.max(1) as f64;
            format!("{cycles:>12} {share:>5.1}%")
        });
        format!("{name:<18}{}", cells.collect::<String>())
    };
    let all = ("all", accounts.iter().map(|one| one.cycles).collect());
    std::iter::once(head).chain(rows.into_iter().chain([all]).map(line)).collect()
}
