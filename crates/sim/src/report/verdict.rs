//! Comparing with the paper: per combination of points the mean over seeds, and how sure it is.
//!
//! A claim is judged by the interval of confidence of the mean: inside the paper's band, outside, or undecided as long as
//! the interval holds numbers of both kinds. More seeds decide.

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
    /// The seeds.
    pub seeds: Vec<u64>,
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
    /// Where the value lies with a confidence of 95 %; none from a single seed.
    pub interval: Option<(f64, f64)>,
    /// How many seeds have a result.
    pub seeds: usize,
    /// What that says of the paper's band.
    pub standing: Standing,
}

/// What our results say of the paper's band.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Standing {
    /// They lie outside.
    Outside,
    /// The seeds do not tell: there are too few of them, or they are too far apart.
    Undecided,
    /// They lie inside.
    Inside,
}

impl Standing {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Outside => "outside",
            Standing::Undecided => "undecided",
            Standing::Inside => "inside",
        }
    }
}

impl Cell<'_> {
    /// The mean over the seeds that have a value.
    pub fn mean(&self, metric: Metric) -> f64 {
        let values: Vec<f64> = self.measures.iter().filter_map(|m| m.get(metric)).collect();
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// Where the mean lies with a confidence of 95 %; none from a single seed.
    pub fn interval(&self, metric: Metric) -> Option<(f64, f64)> {
        let values: Vec<f64> = self.measures.iter().filter_map(|m| m.get(metric)).collect();
        let mean = |values: &mut dyn Iterator<Item = f64>, count: usize| values.sum::<f64>() / count as f64;
        interval(mean(&mut values.iter().copied(), values.len()), values.len(), |without| {
            let others = values[..without].iter().chain(&values[without + 1..]);
            mean(&mut others.copied(), values.len() - 1)
        })
    }
}

/// The runs by scheme and points, in the order of the plan.
pub(super) fn cells<'a>(plan: &Plan, runs: &[Run], measures: &'a [Measures]) -> Vec<Cell<'a>> {
    let mut cells: Vec<Cell<'a>> = Vec::with_capacity(runs.len() / plan.seeds.max(1) as usize);
    for (run, measures) in runs.iter().zip(measures) {
        match cells.last_mut() {
            Some(cell) if cell.scheme == run.scheme && cell.points == run.points => {
                cell.measures.push(measures);
                cell.seeds.push(run.seed);
            }
            _ => {
                let points = run.points.clone();
                cells.push(Cell {
                    scheme: run.scheme,
                    points,
                    measures: vec![measures],
                    seeds: vec![run.seed],
                });
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
    // Both schemes were given the same flows by the same seed, so their results go together. A seed counts that has both.
    let pairs: Vec<(f64, Option<f64>)> = (cell.seeds.iter().zip(&cell.measures))
        .filter_map(|(seed, measures)| {
            let value = measures.get(metric)?;
            let Some(over) = over else { return Some((value, None)) };
            let place = over.seeds.iter().position(|other| other == seed)?;
            Some((value, Some(over.measures[place].get(metric)?)))
        })
        .collect();
    let of = |pairs: &[(f64, Option<f64>)]| {
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / pairs.len() as f64;
        let other = over.map(|_| mean(&mut pairs.iter().filter_map(|pair| pair.1)));
        quantity.of(mean(&mut pairs.iter().map(|pair| pair.0)), other)
    };
    let by_seed = pairs.iter().map(|&pair| quantity.of(pair.0, pair.1));
    let range = by_seed
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let value = of(&pairs);
    let interval = interval(value, pairs.len(), |without| {
        let others: Vec<_> = (pairs[..without].iter().chain(&pairs[without + 1..])).copied().collect();
        of(&others)
    });
    Here { points, value, range, interval, seeds: pairs.len(), standing: standing(expectation, interval) }
}

/// The interval of confidence of a value that follows from `count` seeds, by what it would be `without` each of them (the
/// jackknife): a ratio of means is no mean of ratios.
fn interval(value: f64, count: usize, without: impl Fn(usize) -> f64) -> Option<(f64, f64)> {
    if count < 2 {
        return None;
    }
    let seeds = count as f64;
    let pseudo: Vec<f64> = (0..count).map(|seed| seeds * value - (seeds - 1.0) * without(seed)).collect();
    let mean = pseudo.iter().sum::<f64>() / seeds;
    let variance = pseudo.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / (seeds - 1.0);
    let half = student(count - 1) * (variance / seeds).sqrt();
    half.is_finite().then_some((value - half, value + half))
}

/// The two-sided 95 % quantile of Student's distribution.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    // Beyond the table the quantile falls towards 1.96 as 1 + 1.2 / n.
    TABLE.get(freedom - 1).copied().unwrap_or_else(|| 1.96 * (1.0 + 1.25 / freedom as f64))
}

fn standing(expectation: &Expectation, interval: Option<(f64, f64)>) -> Standing {
    let Some((low, high)) = interval else { return Standing::Undecided };
    if expectation.holds(low) && expectation.holds(high) {
        Standing::Inside
    } else if high < expectation.band.0 || low > expectation.band.1 {
        Standing::Outside
    } else {
        Standing::Undecided
    }
}

impl Verdict<'_> {
    /// Inside the paper's band if every combination of points is, outside if one of them is.
    pub fn standing(&self) -> Standing {
        self.here.iter().map(|here| here.standing).min().unwrap_or(Standing::Undecided)
    }

    /// The fewest seeds that a combination of points has.
    pub fn seeds(&self) -> usize {
        self.here.iter().map(|here| here.seeds).min().unwrap_or(0)
    }

    /// Whether every combination of points lies within the paper's band.
    pub fn is_inside(&self) -> bool {
        self.standing() == Standing::Inside
    }

    /// The interval for people, if there is one combination of points and more than one seed.
    pub fn show_interval(&self) -> String {
        let show = |value| self.expectation.quantity.show(value, self.metric);
        match &self.here[..] {
            [Here { interval: Some((low, high)), .. }] => format!(" ({} to {})", show(*low), show(*high)),
            _ => String::new(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Quantity;

    fn check(values: &[f64], band: (f64, f64), expected: Standing) {
        let expectation = Expectation {
            claim: String::new(),
            paper: String::new(),
            metrics: Vec::new(),
            scheme: 0,
            over: None,
            quantity: Quantity::Value,
            band,
            at: Vec::new(),
        };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let interval = interval(mean(values), values.len(), |without| {
            let mut others = values.to_vec();
            others.remove(without);
            mean(&others)
        });
        assert_eq!(standing(&expectation, interval), expected, "{values:?} in {band:?}: {interval:?}");
    }

    #[test]
    fn an_interval_is_inside_outside_or_undecided() {
        let near_two = [1.9, 2.0, 2.1, 2.0, 1.95, 2.05];
        check(&near_two, (1.5, 2.5), Standing::Inside);
        check(&near_two, (2.5, 3.0), Standing::Outside);
        check(&near_two, (1.0, 1.5), Standing::Outside);
        check(&near_two, (2.0, 3.0), Standing::Undecided);
        check(&near_two, (f64::NEG_INFINITY, 2.5), Standing::Inside);
        // Wide apart, with the mean in the middle of the band.
        check(&[1.0, 3.0, 2.0], (1.5, 2.5), Standing::Undecided);
        // One seed says nothing about others.
        check(&[2.0], (1.5, 2.5), Standing::Undecided);
        check(&[9.0], (1.5, 2.5), Standing::Undecided);
        check(&[], (1.5, 2.5), Standing::Undecided);
        check(&[2.0, 2.0], (1.5, 2.5), Standing::Inside);
    }

    #[test]
    fn the_interval_of_a_mean_is_students() {
        // Mean 3, standard deviation 1.5811, five seeds: 3 plus or minus 2.776 times 0.7071.
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        let without = |seed: usize| (15.0 - values[seed]) / 4.0;
        let (low, high) = interval(3.0, 5, without).expect("five seeds");
        assert!((low - 1.0371).abs() < 1e-3 && (high - 4.9629).abs() < 1e-3, "{low} to {high}");
    }

    #[test]
    fn more_seeds_make_the_quantile_smaller() {
        assert!((1..200).all(|freedom| student(freedom) > student(freedom + 1)));
        assert!(student(200) > 1.96 && student(60) < 2.01);
    }
}
