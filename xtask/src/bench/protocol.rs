//! The protocol alone: two RNICs in memory, no link and no bytes. The benchmark of `rnic` measures; here its lines become
//! a table.

use anyhow::{Result, bail};

use crate::shell::Line;
use crate::table::Table;

/// The aim of "fast" for the slowest line, in packets per second and core.
const AIM: f64 = 10e6;

/// Runs the benchmark.
pub(super) fn measure() -> Result<Table> {
    let line = Line::cargo("bench --quiet --package highwire-rnic --bench transport");
    eprintln!("measuring: the protocol alone");
    let output = line.capture()?;
    if !output.success {
        bail!("{line}: {}", output.stderr.trim());
    }
    let rows: Vec<(&str, f64)> = output.stdout.lines().filter_map(parse).collect();
    if rows.is_empty() {
        bail!("{line} printed no figures");
    }
    let mut table = Table::new(&["two RNICs in memory, one core", "packets per second", "at least 10 M/s"]);
    for (what, rate) in rows {
        let verdict = if rate >= AIM { "yes" } else { "not yet" };
        table.row([
            what.split_whitespace().collect::<Vec<_>>().join(" "),
            format!("{:.1} M/s", rate / 1e6),
            verdict.to_string(),
        ]);
    }
    Ok(table)
}

/// A line like `WRITE 32 B  Irn  chains of 64:  12.34 M packets/s`.
fn parse(line: &str) -> Option<(&str, f64)> {
    let (what, figure) = line.rsplit_once(':')?;
    let millions: f64 = figure.strip_suffix("M packets/s")?.trim().parse().ok()?;
    Some((what.trim(), millions * 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_read() {
        let line = "SEND      32 B  GoBackN  chains of 64:  12.50 M packets/s";
        assert_eq!(parse(line), Some(("SEND      32 B  GoBackN  chains of 64", 12.5e6)));
        assert_eq!(parse("running 0 tests"), None);
    }
}
