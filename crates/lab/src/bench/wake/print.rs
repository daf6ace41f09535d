//! The rows of `highwire bench wake` as text and as tables of a page.

use anyhow::Result;

use super::Row;
use crate::console::{Console, Tone};

/// Every scene with every strategy.
pub(super) fn scenes(rows: &[Row], is_markdown: bool, console: &mut Console) -> Result<()> {
    if is_markdown { scenes_of_page(rows, console) } else { scenes_as_text(rows, console) }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn scenes_as_text(rows: &[Row], console: &mut Console) -> Result<()> {
    let mut scene = String::new();
    for row in rows {
        let priority = if row.priority == "fifo" { ", fifo" } else { "" };
        let title = format!(
            "{} threads, {} event, {} core, {} cores{priority}",
            row.threads, row.event, row.core, row.cores
        );
        if title != scene {
            console.line(console.paint(Tone::Heading, &title))?;
            console.line("  strategy            p50 us    p99 us  p99.9 us    max us  CPU s/M   / event")?;
            scene = title;
        }
        console.line(format!(
            "  {:<16}{:>10.2}{:>10.2}{:>10.2}{:>10.0}{:>9.2}{:>10}",
            row.strategy,
            us(row.p50_ns),
            us(row.p99_ns),
            us(row.p999_ns),
            us(row.max_ns),
            row.cpu_s_per_million,
            row.p50_per_event.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
        ))?;
    }
    Ok(())
}

fn scenes_of_page(rows: &[Row], console: &mut Console) -> Result<()> {
    console.line(
        "| threads | event | core | cores | priority | strategy | p50 µs | p99 µs | p99.9 µs | max µs | CPU s per 10⁶ | p50 / `event` |",
    )?;
    console.line("|---|---|---|---|---|---|---:|---:|---:|---:|---:|---:|")?;
    for row in rows {
        console.line(format!(
            "| {} | {} | {} | {} | {} | `{}` | {:.2} | {:.2} | {:.2} | {:.0} | {:.2} | {} |",
            row.threads,
            row.event,
            row.core,
            row.cores,
            row.priority,
            row.strategy,
            us(row.p50_ns),
            us(row.p99_ns),
            us(row.p999_ns),
            us(row.max_ns),
            row.cpu_s_per_million,
            row.p50_per_event.map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}")),
        ))?;
    }
    Ok(())
}

/// An event's cost and its latency, at every pace: a line for each strategy and number of threads.
pub(super) fn curve(rows: &[Row], pauses_us: &[u64], is_markdown: bool, console: &mut Console) -> Result<()> {
    let headings: Vec<String> = pauses_us.iter().map(|pause| format!("{pause} µs")).collect();
    if is_markdown {
        let cells =
            headings.iter().map(|pause| format!(" after {pause}: p50 µs, CPU µs |")).collect::<String>();
        console.line(format!("| strategy | threads |{cells}"))?;
        console.line(format!("|---|---:|{}", "---:|".repeat(headings.len())))?;
    } else {
        let cells = headings.iter().map(|pause| format!("{pause:>20}")).collect::<String>();
        console.line(format!("p50 us, CPU us / event     {cells}"))?;
    }
    let mut done = Vec::new();
    for row in rows {
        if done.contains(&(row.strategy, row.threads)) {
            continue;
        }
        done.push((row.strategy, row.threads));
        let cells = pauses_us.iter().map(|pause| {
            let found = rows.iter().find(|other| {
                (other.strategy, other.threads, other.pause_us) == (row.strategy, row.threads, *pause)
            });
            let show = |row: &Row| format!("{:.2}, {:.2}", us(row.p50_ns), row.cpu_s_per_million);
            found.map_or_else(|| "–".into(), show)
        });
        let cells: Vec<String> = cells.collect();
        console.line(if is_markdown {
            format!("| `{}` | {} | {} |", row.strategy, row.threads, cells.join(" | "))
        } else {
            let cells = cells.iter().map(|cell| format!("{cell:>20}")).collect::<String>();
            format!("{:<18}{:>9}{cells}", row.strategy, row.threads)
        })?;
    }
    Ok(())
}
