//! Comparing with the paper: per combination of points the mean over seeds, and how far the seeds are apart.

use super::{Measures, Metric};
use crate::plan::{Expectation, Plan, Run};

/// All seeds of one scheme at one combination of points.
#[derive(Clone, Debug)]
pub struct Cell<'a> {
    /// The scheme's place.
    pub scheme: usize,
    /// The points' places.
    pub points: Vec<usize>,
    /// By seed.
    pub measures: Vec<&'a Measures>,
}

/// An expectation, and our results.
#[derive(Clone, Debug)]
pub struct Verdict<'a> {
    /// The paper's finding.
    pub expectation: &'a Expectation,
    /// The metric.
    pub metric: Metric,
    /// Our results, per combination of points.
    pub here: Vec<Here>,
}

/// Our result at one combination of points.
#[derive(Clone, PartialEq, Debug)]
pub struct Here {
    /// The points' name; empty without axes.
    pub points: String,
    /// Of the means over seeds.
    pub value: f64,
    /// The least and the most that a single seed gives.
    pub range: (f64, f64),
}

impl Cell<'_> {
    /// The mean over the seeds that have a value.
    pub fn mean(&self, metric: Metric) -> f64 {
        let values: Vec<f64> = self.measures.iter().filter_map(|m| m.get(metric)).collect();
        values.iter().sum::<f64>() / values.len() as f64
    }
}

/// The runs by scheme and points, in the order of the plan.
pub(super) fn cells<'a>(plan: &Plan, runs: &[Run], measures: &'a [Measures]) -> Vec<Cell<'a>> {
    let mut cells: Vec<Cell<'a>> = Vec::with_capacity(runs.len() / plan.seeds.max(1) as usize);
    for (run, measures) in runs.iter().zip(measures) {
        match cells.last_mut() {
            Some(cell) if cell.scheme == run.scheme && cell.points == run.points => {
                cell.measures.push(measures);
            }
            _ => {
                let points = run.points.clone();
                cells.push(Cell { scheme: run.scheme, points, measures: vec![measures] });
            }
        }
    }
    cells
}

/// Judges each expectation, metric by metric.
pub fn judge<'a>(plan: &'a Plan, runs: &[Run], measures: &[Measures]) -> Vec<Verdict<'a>> {
    let cells = cells(plan, runs, measures);
    let find = |scheme: usize, points: &[usize]| {
        cells.iter().find(|cell| cell.scheme == scheme && cell.points == points)
    };
    let mut verdicts = Vec::new();
    for expectation in &plan.expectations {
        for &metric in &expectation.metrics {
            let mut here = Vec::new();
            for points in plan.combinations() {
                if !expectation.at.is_empty() && !expectation.at.contains(&points[0]) {
                    continue;
                }
                let Some(cell) = find(expectation.scheme, &points) else { continue };
                let over = expectation.over.and_then(|over| find(over, &points));
                let points = plan.point_name(&points);
                here.push(compare(expectation, metric, cell, over, points));
            }
            verdicts.push(Verdict { expectation, metric, here });
        }
    }
    verdicts
}

fn compare(
    expectation: &Expectation,
    metric: Metric,
    cell: &Cell<'_>,
    over: Option<&Cell<'_>>,
    points: String,
) -> Here {
    let quantity = expectation.quantity;
    let by_seed = cell.measures.iter().enumerate().map(|(seed, measures)| {
        let other = over.map(|over| over.measures[seed].get(metric).unwrap_or(f64::NAN));
        quantity.of(measures.get(metric).unwrap_or(f64::NAN), other)
    });
    let range = by_seed
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    Here { points, value: quantity.of(cell.mean(metric), over.map(|over| over.mean(metric))), range }
}

impl Verdict<'_> {
    /// Whether every combination of points lies within the paper's band.
    pub fn is_inside(&self) -> bool {
        !self.here.is_empty() && self.here.iter().all(|here| self.expectation.holds(here.value))
    }

    /// The result for people: one number, or the least and the most over all points.
    pub fn show_here(&self) -> String {
        let show = |value| self.expectation.quantity.show(value, self.metric);
        let values = || self.here.iter().map(|here| here.value).filter(|value| value.is_finite());
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        if low == high || !low.is_finite() { show(low) } else { format!("{} to {}", show(low), show(high)) }
    }
}
