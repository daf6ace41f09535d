//! The paper's findings, in a form that can be compared.

use crate::report::Metric;

/// A finding of the paper about one scheme, alone or relative to another.
#[derive(Clone, PartialEq, Debug)]
pub struct Expectation {
    /// In words.
    pub claim: String,
    /// The paper's numbers in its own form.
    pub paper: String,
    /// The metrics that it is about, each by itself.
    pub metrics: Vec<Metric>,
    /// The scheme, by its place.
    pub scheme: usize,
    /// The scheme for comparison, by its place.
    pub over: Option<usize>,
    /// How the comparison is expressed, and the band with it.
    pub quantity: Quantity,
    /// The smallest and the largest that agree with the paper; infinite where it names no limit.
    pub band: (f64, f64),
    /// The points of the first axis at which it holds, by their places; empty: at all.
    pub at: Vec<usize>,
}

/// How a comparison is expressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// The value itself.
    Value,
    /// The value over the other's: 3.1 ×.
    Ratio,
    /// By how many percent it is lower than the other's.
    Reduction,
    /// By how many percent it is higher than the other's.
    Increase,
}

impl Quantity {
    /// All, as plans spell them.
    pub const NAMES: [(&'static str, Quantity); 4] = [
        ("value", Quantity::Value),
        ("ratio", Quantity::Ratio),
        ("reduction", Quantity::Reduction),
        ("increase", Quantity::Increase),
    ];

    /// The number to compare with the band.
    pub fn of(self, value: f64, over: Option<f64>) -> f64 {
        let ratio = value / over.unwrap_or(f64::NAN);
        match self {
            Quantity::Value => value,
            Quantity::Ratio => ratio,
            Quantity::Reduction => (1.0 - ratio) * 100.0,
            Quantity::Increase => (ratio - 1.0) * 100.0,
        }
    }

    /// The number as a person reads it.
    pub fn show(self, number: f64, metric: Metric) -> String {
        if !number.is_finite() {
            return "–".into();
        }
        match self {
            Quantity::Value => metric.show(number),
            Quantity::Ratio => format!("{number:.2}×"),
            Quantity::Reduction | Quantity::Increase => format!("{number:+.1} %"),
        }
    }
}

impl Expectation {
    /// Whether a number lies within the band.
    pub fn holds(&self, number: f64) -> bool {
        number >= self.band.0 && number <= self.band.1
    }
}
