//! The tables about IRN in hardware: packets per second, and the state of a queue pair.

use anyhow::{Context, Result, bail};

use crate::debug;
use crate::shell::{Line, Log, target_dir};
use crate::table::Table;

/// The clock of the authors' synthesis, in picoseconds. Nothing here has been placed and routed, so this is no claim that the
/// blocks reach it.
const CLOCK_PS: u64 = 6_300;

/// Reads lines like `rate: irn_receiver: the authors' trace: 140361 events in 140368 cycles`.
pub(super) fn rates(text: &str) -> Table {
    let mut table = Table::new(&["block", "events", "cycles per event", "million events per second"]);
    for line in text.lines() {
        let Some((block, rest)) = line.strip_prefix("rate: ").and_then(|rest| rest.split_once(": ")) else {
            continue;
        };
        let Some((what, counts)) = rest.rsplit_once(": ") else { continue };
        let mut numbers = counts.split(' ').filter_map(|word| word.parse::<u64>().ok());
        let (Some(events), Some(cycles)) = (numbers.next(), numbers.next()) else { continue };
        if events == 0 || cycles == 0 {
            continue;
        }
        let per_event = cycles as f64 / events as f64;
        table.row([
            format!("`{block}`"),
            what.to_owned(),
            format!("{per_event:.2}"),
            format!("{:.1}", 1e6 / (per_event * CLOCK_PS as f64)),
        ]);
    }
    table
}

/// The bits that IRN adds to a queue pair, as a test counts them; nothing if it fails to, which has been shown.
pub(super) fn state(log: &Log) -> Result<Option<Table>> {
    // The test holds the page against the code, so it fails while the page is out of date; its lines count all the same.
    let line = Line::cargo("test --package highwire-transport --test irn_state -- --nocapture");
    let text = line.capture().context("the test that counts")?.stdout;
    log.note(&text)?;
    let mut bits = Table::new(&["bits", "here", "the paper"]);
    // The harness begins a line with the test's name.
    for (_, row) in text.lines().filter_map(|line| line.split_once("state: ")) {
        bits.row(row.split(" | ").map(str::to_owned));
    }
    if bits.rows().is_empty() {
        println!("{text}");
        return Ok(None);
    }
    Ok(Some(bits))
}

/// Bytes of a queue pair of ours, on a machine and in the simulator; nothing if that failed, which has been shown.
pub(super) fn memory(log: &Log) -> Result<Option<Table>> {
    if !debug::build("highwire-lab", "--bin highwire-lab").run_logged(log)? {
        println!("{}", log.text()?);
        return Ok(None);
    }
    let program = target_dir().join("debug/highwire-lab").display().to_string();
    let output = Line::new(&program).words("bench memory --json").capture()?;
    if !output.success {
        println!("{}", output.stderr);
        return Ok(None);
    }
    memory_table(&output.stdout).map(Some)
}

fn memory_table(json: &str) -> Result<Table> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(json).context("the benchmark's JSON")?;
    let mut table = Table::new(&["a queue pair of", "bytes, connected", "bytes, after a WRITE"]);
    for row in &rows {
        let place = match row["place"].as_str() {
            Some("udp") => "a device, over UDP",
            Some("shared-memory") => "a device, through shared memory",
            Some("simulator") => "a host of the simulator",
            other => bail!("no such place: {other:?}"),
        };
        let bytes = |key: &str| row[key].as_u64().with_context(|| format!("no {key} of {place}"));
        table.row([place.into(), bytes("connected")?.to_string(), bytes("used")?.to_string()]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_queue_pairs_become_rows() {
        let json = r#"[{"place":"udp","connected":5,"used":7},{"place":"simulator","connected":3,"used":3}]"#;
        let table = memory_table(json).unwrap();
        assert_eq!(table.rows()[0], ["a device, over UDP", "5", "7"]);
        assert_eq!(table.rows()[1][0], "a host of the simulator");
        assert!(memory_table(r#"[{"place":"elsewhere","connected":5,"used":7}]"#).is_err());
        assert!(memory_table(r#"[{"place":"udp","connected":5}]"#).is_err());
    }

    #[test]
    fn rates_become_packets_per_second() {
        let text = "rate: b: one queue pair: 1000 events in 4000 cycles\nrate: b: nothing: 0 events in 0 cycles\nother: 1\n";
        assert_eq!(rates(text).rows(), [["`b`", "one queue pair", "4.00", "39.7"]]);
    }
}
