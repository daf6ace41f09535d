//! Latencies and rates as ratios to the floor of the same run.

use anyhow::Result;
use serde_json::Value;

use crate::measure::{Program, Quantity, Spread};
use crate::table::Table;

/// One measurement and its aim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) what: &'static str,
    /// Words behind `highwire`.
    pub(crate) command: &'static str,
    pub(crate) quantity: Quantity,
    pub(crate) aim: Aim,
}

/// The aim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Aim {
    /// At most this many times the floor.
    TimesFloor(f64),
    /// At least this share of the floor.
    ShareOfFloor(f64),
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

/// Every case, in the order of the table.
pub(crate) const CASES: &[Case] = &[
    Case {
        what: "SEND 32 B, round trip, UDP",
        command: "perf send lat --size 32 --link udp",
        quantity: Quantity::RoundTrip,
        aim: Aim::TimesFloor(1.3),
    },
    Case {
        what: "SEND 32 B, round trip, shared memory",
        command: "perf send lat --size 32 --link shm",
        quantity: Quantity::RoundTrip,
        aim: Aim::TimesFloor(4.0),
    },
    Case {
        what: "WRITE 32 B, round trip, shared memory",
        command: "perf write lat --size 32 --link shm",
        quantity: Quantity::RoundTrip,
        aim: Aim::TimesFloor(4.0),
    },
    Case {
        what: "WRITE 32 B, posted to completed, shared memory",
        command: "perf write lat --size 32 --link shm --completion",
        quantity: Quantity::RoundTrip,
        aim: Aim::AtMost(500.0),
    },
    Case {
        what: "READ 32 B, posted to completed, shared memory",
        command: "perf read lat --size 32 --link shm",
        quantity: Quantity::RoundTrip,
        aim: Aim::AtMost(500.0),
    },
    Case {
        what: "WRITE 64 KiB, goodput, UDP",
        command: "perf write bw --size 64K --link udp",
        quantity: Quantity::Goodput,
        aim: Aim::ShareOfFloor(0.6),
    },
    Case {
        what: "SEND 32 B in chains of 64, UDP",
        command: "perf send bw --size 32 --depth 512 --chain 64 --link udp",
        quantity: Quantity::Messages,
        aim: Aim::AtLeast(2e6),
    },
    Case {
        what: "SEND 32 B in chains of 64, shared memory",
        command: "perf send bw --size 32 --depth 512 --chain 64 --link shm",
        quantity: Quantity::Messages,
        aim: Aim::AtLeast(5e6),
    },
];

/// The result of a case.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) case: Case,
    pub(crate) here: Spread,
    /// In the unit of the quantity, if the floor has the same kind.
    pub(crate) floor: Option<f64>,
    pub(crate) ratio: Option<f64>,
}

impl Case {
    /// Runs it this many times. With a floor, each run measures that too, and the ratio is the median of the
    /// ratios.
    pub(crate) fn measure(self, program: &Program, runs: u32) -> Result<Outcome> {
        let documents = (0..runs).map(|_| program.json(self.command)).collect::<Result<Vec<_>>>()?;
        let values = documents.iter().map(|document| self.quantity.of(document)).collect::<Result<_>>()?;
        let median = |read: fn(&Value) -> Option<f64>| {
            Spread::of(documents.iter().filter_map(read).collect()).map(|spread| spread.median)
        };
        let is_comparable = self.quantity != Quantity::Messages;
        let floor = median(|document| document["floor"]["value"].as_f64()).filter(|_| is_comparable);
        let ratio = median(|document| document["ratio_to_floor"].as_f64()).filter(|_| is_comparable);
        let here = Spread::of(values).expect("at least one run");
        Ok(Outcome { case: self, here, floor: floor.map(|value| self.in_quantity(value)), ratio })
    }

    /// A floor's bytes per second as Gb/s.
    fn in_quantity(self, floor: f64) -> f64 {
        if self.quantity == Quantity::Goodput { floor * 8.0 / 1e9 } else { floor }
    }
}

impl Outcome {
    pub(crate) fn aim(&self) -> String {
        match self.case.aim {
            Aim::TimesFloor(times) => format!("at most {times} ×"),
            Aim::ShareOfFloor(share) => format!("at least {:.0} %", share * 100.0),
            Aim::AtMost(value) => format!("at most {}", self.case.quantity.show(value)),
            Aim::AtLeast(value) => format!("at least {}", self.case.quantity.show(value)),
        }
    }

    pub(crate) fn is_met(&self) -> bool {
        match self.case.aim {
            Aim::TimesFloor(times) => self.ratio.is_some_and(|ratio| ratio <= times),
            Aim::ShareOfFloor(share) => self.ratio.is_some_and(|ratio| ratio >= share),
            Aim::AtMost(value) => self.here.median <= value,
            Aim::AtLeast(value) => self.here.median >= value,
        }
    }

    pub(crate) fn floor_text(&self) -> String {
        self.floor.map_or_else(|| "–".into(), |floor| self.case.quantity.show(floor))
    }

    /// The comparison with the floor, or, if there is none, with the aim.
    pub(crate) fn comparison(&self) -> String {
        match (self.ratio, self.case.aim) {
            (None, Aim::AtLeast(aim) | Aim::AtMost(aim)) => {
                format!("{:.0} %", self.here.median / aim * 100.0)
            }
            _ => self.ratio_text(),
        }
    }

    pub(crate) fn ratio_text(&self) -> String {
        match (self.ratio, self.case.quantity) {
            (Some(ratio), Quantity::RoundTrip) => format!("{ratio:.2} ×"),
            (Some(ratio), _) => format!("{:.0} %", ratio * 100.0),
            (None, _) => "–".into(),
        }
    }
}

/// Measures every case.
pub(super) fn measure(program: &Program, runs: u32) -> Result<Table> {
    let mut table = Table::new(&["what", "here", "floor", "ratio", "aim", ""]);
    for case in CASES {
        eprintln!("measuring: {}", case.what);
        let outcome = case.measure(program, runs)?;
        let verdict = if outcome.is_met() { "yes" } else { "not yet" };
        table.row([
            case.what.to_string(),
            outcome.here.show(case.quantity),
            outcome.floor_text(),
            outcome.ratio_text(),
            outcome.aim(),
            verdict.to_string(),
        ]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(case: Case, here: f64, ratio: Option<f64>) -> Outcome {
        Outcome { case, here: Spread { median: here, low: here, high: here }, floor: None, ratio }
    }

    #[test]
    fn an_aim_is_met_or_not() {
        let udp = CASES[0];
        assert!(outcome(udp, 6e3, Some(1.2)).is_met());
        assert!(!outcome(udp, 6e3, Some(1.4)).is_met());
        assert!(!outcome(udp, 6e3, None).is_met(), "without a floor nothing is shown");
        let rate = *CASES.iter().find(|case| case.quantity == Quantity::Messages).expect("there are rates");
        assert!(outcome(rate, 2.1e6, None).is_met());
        assert!(!outcome(rate, 1.9e6, None).is_met());
    }
}
