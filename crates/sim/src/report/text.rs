//! Tables for a terminal.

use super::verdict::cells;
use super::{Measures, Metric, Verdict};
use crate::plan::{Plan, Run};

/// Metrics that a table shows if anything has a value.
const SHOWN: [Metric; 9] = [
    Metric::SlowdownMean,
    Metric::FctMean,
    Metric::FctP99,
    Metric::SingleP999,
    Metric::Rct,
    Metric::Dropped,
    Metric::Retransmitted,
    Metric::Timeouts,
    Metric::Paused,
];

/// A row per scheme and combination of points, the mean over seeds in each cell.
pub fn table(plan: &Plan, runs: &[Run], measures: &[Measures]) -> String {
    let cells = cells(plan, runs, measures);
    let shown: Vec<Metric> =
        SHOWN.into_iter().filter(|metric| cells.iter().any(|cell| cell.mean(*metric).is_finite())).collect();
    let axes: Vec<&str> = plan.axes.iter().map(|axis| axis.name.as_str()).collect();
    let titles = shown.iter().map(|metric| metric.title());
    let mut rows =
        vec![axes.into_iter().chain(["scheme"]).chain(titles).map(String::from).collect::<Vec<_>>()];
    for cell in &cells {
        let points = plan.axes.iter().zip(&cell.points).map(|(axis, &point)| axis.points[point].name.clone());
        let name = plan.schemes[cell.scheme].name.clone();
        let values = shown.iter().map(|metric| metric.show(cell.mean(*metric)));
        rows.push(points.chain([name]).chain(values).collect());
    }
    align(&rows, plan.axes.len() + 1)
}

/// A row per expectation and metric: claim, paper, here, inside the band or not.
pub fn verdicts(verdicts: &[Verdict<'_>]) -> String {
    let mut rows = vec![["claim", "metric", "paper", "here", "inside the band?"].map(String::from).to_vec()];
    for verdict in verdicts {
        rows.push(vec![
            verdict.expectation.claim.clone(),
            verdict.metric.title().into(),
            verdict.expectation.paper.clone(),
            verdict.show_here() + &verdict.show_interval(),
            verdict.standing().name().into(),
        ]);
    }
    align(&rows, 5)
}

/// Columns of equal width; the first `left` are aligned to the left.
pub fn align(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["scheme".to_string(), "FCT".into()], vec!["IRN".into(), "10 us".into()]];
        assert_eq!(align(&rows, 1), "scheme    FCT\nIRN     10 us\n");
    }
}
