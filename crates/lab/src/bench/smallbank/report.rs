//! The results of the benchmark.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde_json::json;

use crate::console::{Console, Tone};
use crate::values::{show_count, show_ns};

use super::Args;

/// Milliseconds over which commits are counted, to see when there were none.
pub(super) const SLICE_MS: u64 = 50;

pub(super) struct Sums {
    pub(super) committed: u64,
    pub(super) retries: u64,
    pub(super) unknown: u64,
    pub(super) unavailable: u64,
    pub(super) seconds: f64,
}

pub(super) fn report(
    args: &Args,
    sums: &Sums,
    latencies: &Histogram<u64>,
    slices: &[u64],
    before: i64,
    after: Option<i64>,
) -> Result<ExitCode> {
    let rate = sums.committed as f64 / sums.seconds;
    let tried = (sums.committed + sums.retries).max(1);
    let aborts = sums.retries as f64 / tried as f64;
    let quantile = |q: f64| latencies.value_at_quantile(q);
    // Without the ends, because clients begin and end one after the other.
    let inner = slices.get(1..slices.len().saturating_sub(3)).unwrap_or_default();
    let third = inner.len() / 3;
    let per_second = |slices: &[u64]| {
        slices.iter().sum::<u64>() as f64 * 1000.0 / (SLICE_MS * slices.len().max(1) as u64) as f64
    };
    let (whole, last) = (per_second(&inner[..third]), per_second(&inner[2 * third..]));
    let longest = inner.split(|&count| count > 0).map(<[u64]>::len).max().unwrap_or(0) as u64 * SLICE_MS;
    let lost = after.map(|after| before - after);
    let mut console = Console::new();
    if args.json {
        let mut fields = BTreeMap::from([
            ("transactions_per_second", json!(rate)),
            ("committed", json!(sums.committed)),
            ("abort_share", json!(aborts)),
            ("unknown", json!(sums.unknown)),
            ("unavailable", json!(sums.unavailable)),
            ("p50_ns", json!(quantile(0.5))),
            ("p99_ns", json!(quantile(0.99))),
        ]);
        if let Some(lost) = lost {
            fields.insert("cents_lost", json!(lost));
            fields.insert("transactions_per_second_before", json!(whole));
            fields.insert("transactions_per_second_after", json!(last));
            fields.insert("longest_pause_ms", json!(longest));
        }
        console.json(&fields)?;
    } else {
        console.line(format!(
            "SmallBank: {} transactions/s by {} clients, {:.1} % of the attempts in each other's way, half within {}, 99 % within {}",
            show_count(rate),
            args.clients,
            aborts * 100.0,
            show_ns(quantile(0.5) as f64),
            show_ns(quantile(0.99) as f64),
        ))?;
        if let Some(lost) = lost {
            console.line(format!(
                "a node was killed: {} transactions/s before, none for {longest} ms, {} at the end; {} of unknown outcome",
                show_count(whole),
                show_count(last),
                sums.unknown,
            ))?;
            let verdict = match lost {
                0 => console.paint(Tone::Good, "no cent was lost or made"),
                lost => console.paint(Tone::Bad, &format!("{lost} cents are missing")),
            };
            console.line(format!("audit: {before} cents before, {} after: {verdict}", before - lost))?;
        }
    }
    console.finish()?;
    Ok(if lost.is_none_or(|lost| lost == 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
