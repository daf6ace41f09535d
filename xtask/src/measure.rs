//! Measurements by the program itself: its command, and the values in its JSON.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell::{Line, target_dir};

/// Builds `highwire` and, beside it, `highwire-lab`, to which it hands what measures and teaches.
pub(crate) const PROGRAMS: &str = "build --package highwire --package highwire-lab";

/// The released program.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
}

impl Program {
    /// Builds it.
    pub(crate) fn build() -> Result<Self> {
        if !Line::cargo(PROGRAMS).words("--quiet --release").run()? {
            bail!("the program does not build");
        }
        Ok(Self::at(target_dir().join("release/highwire")))
    }

    /// The program as already built.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// `highwire <words>` at the root of the repository.
    pub(crate) fn line(&self, words: &str) -> Line {
        Line::new(&self.path.to_string_lossy()).words(words)
    }

    /// The document that `highwire <words> --json` prints.
    pub(crate) fn json(&self, words: &str) -> Result<Value> {
        let output = self.line(words).arg("--json").capture()?;
        if !output.success {
            bail!("highwire {words}: {}", output.stderr.trim().trim_start_matches("error: "));
        }
        serde_json::from_str(&output.stdout).with_context(|| format!("highwire {words} printed no JSON"))
    }
}

/// The value of a measurement that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// The median of the round trips, in nanoseconds.
    RoundTrip,
    /// In Gb/s.
    Goodput,
    /// Per second.
    Messages,
}

impl Quantity {
    /// Its value in a document of `highwire perf`.
    pub(crate) fn of(self, document: &Value) -> Result<f64> {
        let value = match self {
            Self::RoundTrip => &document["round_trip_ns"]["p50"],
            Self::Goodput => &document["goodput_gbps"],
            Self::Messages => &document["messages_per_second"],
        };
        value.as_f64().with_context(|| format!("{self:?} is missing in {document}"))
    }

    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::RoundTrip if value < 1e3 => format!("{value:.0} ns"),
            Self::RoundTrip if value < 1e6 => format!("{:.2} µs", value / 1e3),
            Self::RoundTrip => format!("{:.2} ms", value / 1e6),
            Self::Goodput if value < 1.0 => format!("{:.0} Mb/s", value * 1e3),
            Self::Goodput => format!("{value:.1} Gb/s"),
            Self::Messages if value < 1e6 => format!("{:.0} k/s", value / 1e3),
            Self::Messages => format!("{:.2} M/s", value / 1e6),
        }
    }
}

/// The median of several runs, and their spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// The median of at least one value.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        Some(Self { median: values[values.len() / 2], low, high })
    }

    pub(crate) fn show(&self, quantity: Quantity) -> String {
        if self.low == self.high {
            return quantity.show(self.median);
        }
        format!(
            "{} ({} to {})",
            quantity.show(self.median),
            quantity.show(self.low),
            quantity.show(self.high)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).expect("three values");
        assert_eq!(spread, Spread { median: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn quantities_read_well() {
        assert_eq!(Quantity::RoundTrip.show(417.0), "417 ns");
        assert_eq!(Quantity::RoundTrip.show(5_300.0), "5.30 µs");
        assert_eq!(Quantity::Goodput.show(0.5), "500 Mb/s");
        assert_eq!(Quantity::Messages.show(2_400_000.0), "2.40 M/s");
    }
}
