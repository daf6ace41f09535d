//! The aims of the strategies, and whether the rows of one run reach them.

use anyhow::Result;

use super::Row;
use crate::console::Console;

/// Two ticks of a scheduler that ticks 250 times a second: a thread without permission to be urgent waits no longer for its core.
const STARVED_NS: f64 = 8e6;

/// An aim, and the figure that was found.
#[derive(Debug, PartialEq)]
pub(super) struct Aim {
    what: &'static str,
    most: f64,
    unit: &'static str,
    /// The worst row.
    found: f64,
    place: String,
}

/// Two idle cores and the usual priority: the scene of all aims that name no other.
fn is_plain(row: &Row) -> bool {
    row.cores == 2 && row.core == "idle" && row.priority == "usual"
}

fn is_beside_hog(row: &Row, priority: &str) -> bool {
    row.cores == 2 && row.core == "busy" && row.priority == priority
}

/// All aims for which there are rows.
pub(super) fn of(rows: &[Row]) -> Vec<Aim> {
    let same = |row: &Row, strategy: &str| {
        rows.iter().find(|other| {
            other.strategy == strategy
                && (other.threads, other.event, other.core) == (row.threads, row.event, row.core)
                && (other.cores, other.priority) == (row.cores, row.priority)
        })
    };
    let ratio = |row: &Row, beside: &str, of: fn(&Row) -> f64| Some(of(row) / of(same(row, beside)?));
    let p50 = |row: &Row| row.p50_ns as f64;
    let per_event = |row: &Row| row.p50_per_event;
    let us = |ns: u64| Some(ns as f64 / 1e3);
    let mut aims = Vec::new();
    let mut add = |what, most, unit, is_meant: &dyn Fn(&Row) -> bool, value: &dyn Fn(&Row) -> Option<f64>| {
        let values = rows.iter().filter(|row| is_meant(row)).filter_map(|row| Some((value(row)?, row)));
        if let Some((found, row)) = values.max_by(|one, other| one.0.total_cmp(&other.0)) {
            let place = format!("`{}`, {} threads, {} event", row.strategy, row.threads, row.event);
            aims.push(Aim { what, most, unit, found, place });
        }
    };
    let is = |row: &Row, strategy: &str| is_plain(row) && row.strategy == strategy;
    add(
        "`leader-follower`, one thread: p50 beside polling",
        1.2,
        "×",
        &|row| is(row, "leader-follower") && row.threads == 1,
        &|row| ratio(row, "busy-poll", p50),
    );
    add(
        "`leader-follower`, another's event at 128 threads: p50",
        2.5,
        "µs",
        &|row| is(row, "leader-follower") && row.event == "other" && row.threads == 128,
        &|row| us(row.p50_ns),
    );
    add("`dispatcher`, up to 512 threads: p50", 2.5, "µs", &|row| is(row, "dispatcher"), &|row| {
        us(row.p50_ns)
    });
    add(
        "`dispatcher` beside `event`: p50 (the paper: −80 %)",
        0.2,
        "×",
        &|row| is(row, "dispatcher"),
        &per_event,
    );
    add("`affine` beside `event`: p50 (the paper: −59 %)", 0.41, "×", &|row| is(row, "affine"), &per_event);
    add("`affine` beside `event`: CPU time", 1.0, "×", &|row| is(row, "affine"), &|row| {
        ratio(row, "event", |row| row.cpu_s_per_million)
    });
    add("`adaptive` beside `event`: p50", 1.0, "×", &|row| is(row, "adaptive"), &per_event);
    add(
        "another thread computes on the core: the longest that an event took",
        STARVED_NS / 1e3,
        "µs",
        &|row| is_beside_hog(row, "usual"),
        &|row| us(row.max_ns),
    );
    add("the same with a real-time priority: p99", 10.0, "µs", &|row| is_beside_hog(row, "fifo"), &|row| {
        us(row.p99_ns)
    });
    aims
}

/// A line for each.
pub(super) fn print(aims: &[Aim], is_markdown: bool, console: &mut Console) -> Result<()> {
    if is_markdown && !aims.is_empty() {
        console.line("")?;
    }
    for Aim { what, most, unit, found, place } in aims {
        let (start, missed) = if is_markdown { ("- ", "**missed**") } else { ("", "missed") };
        let verdict = if found <= most { "reached" } else { missed };
        console
            .line(format!("{start}{what}: at most {most} {unit}: {verdict}, {found:.2} {unit} ({place})"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(strategy: &'static str, core: &'static str, priority: &'static str, p50_ns: u64) -> Row {
        Row {
            strategy,
            threads: 1,
            event: "own",
            core,
            cores: 2,
            priority,
            pause_us: 12,
            events: 100,
            p50_ns,
            p99_ns: 2 * p50_ns,
            p999_ns: 3 * p50_ns,
            max_ns: 10 * p50_ns,
            cpu_s_per_million: p50_ns as f64 / 1e3,
            p50_per_event: Some(p50_ns as f64 / 10_000.0),
        }
    }

    #[test]
    fn an_aim_is_held_against_the_worst_row_that_it_is_about() {
        let rows = [
            row("busy-poll", "idle", "usual", 500),
            row("leader-follower", "idle", "usual", 550),
            row("event", "idle", "usual", 10_000),
            row("dispatcher", "idle", "usual", 2_600),
            row("affine", "idle", "usual", 4_000),
            row("affine", "busy", "usual", 900_000),
            row("event", "busy", "fifo", 4_000),
        ];
        let aims = of(&rows);
        let found = |start: &str| {
            let aim = aims.iter().find(|aim| aim.what.starts_with(start));
            aim.map(|aim| (aim.found, aim.found <= aim.most))
        };
        assert_eq!(found("`leader-follower`, one thread"), Some((1.1, true)));
        assert_eq!(found("`leader-follower`, another's"), None, "there are no such rows");
        assert_eq!(found("`dispatcher`, up to"), Some((2.6, false)));
        assert_eq!(found("`dispatcher` beside"), Some((0.26, false)));
        assert_eq!(found("`affine` beside `event`: p50"), Some((0.4, true)), "the hog's row is another's");
        assert_eq!(found("`affine` beside `event`: CPU"), Some((0.4, true)));
        assert_eq!(found("another thread computes"), Some((9_000.0, false)));
        assert_eq!(found("the same with a real-time"), Some((8.0, true)));
    }
}
