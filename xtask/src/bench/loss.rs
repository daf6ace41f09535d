//! Goodput over loss: the cost of a lossy network for each way of recovery.

use anyhow::Result;

use crate::measure::{Program, Quantity};
use crate::table::Table;

/// Seconds of each measurement.
pub(super) const SECONDS: f64 = 2.0;
/// The losses of the table, as `--loss` takes them.
const LOSSES: &[&str] = &["0%", "0.1%", "1%", "5%"];

/// Ways of recovery, as `--recovery` takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    Irn,
    GoBackN,
}

impl Recovery {
    const ALL: [Self; 2] = [Self::Irn, Self::GoBackN];

    fn option(self) -> &'static str {
        match self {
            Self::Irn => "irn",
            Self::GoBackN => "go-back-n",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Irn => "IRN",
            Self::GoBackN => "go-back-N",
        }
    }
}

/// Goodput in Gb/s by loss and way of recovery.
#[derive(Debug)]
pub(crate) struct Goodputs {
    cells: Vec<(&'static str, Recovery, f64)>,
}

impl Goodputs {
    /// Runs every cell for this many seconds.
    pub(crate) fn measure(program: &Program, seconds: f64) -> Result<Self> {
        let mut cells = Vec::new();
        for &loss in LOSSES {
            for recovery in Recovery::ALL {
                eprintln!("measuring: WRITE 64 KiB over UDP, {loss} loss, {}", recovery.name());
                let document = program.json(&command(loss, recovery, seconds))?;
                cells.push((loss, recovery, Quantity::Goodput.of(&document)?));
            }
        }
        Ok(Self { cells })
    }

    /// In the order of the table: loss, way of recovery, Gb/s.
    pub(crate) fn cells(&self) -> &[(&'static str, Recovery, f64)] {
        &self.cells
    }

    /// The share of the loss-free goodput of the same way of recovery.
    pub(crate) fn share(&self, loss: &str, recovery: Recovery) -> Option<f64> {
        Some(self.at(loss, recovery)? / self.at(LOSSES[0], recovery)?)
    }

    fn at(&self, loss: &str, recovery: Recovery) -> Option<f64> {
        let found = self.cells.iter().find(|(known, by, _)| *known == loss && *by == recovery);
        found.map(|(.., gbps)| *gbps)
    }

    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new(&["loss", "IRN", "of loss-free", "go-back-N", "of loss-free"]);
        for &loss in LOSSES {
            let cells = Recovery::ALL.iter().flat_map(|&recovery| {
                let goodput = self.at(loss, recovery).map(|gbps| Quantity::Goodput.show(gbps));
                let share = self.share(loss, recovery).map(|share| format!("{:.0} %", share * 100.0));
                [goodput.unwrap_or_default(), share.unwrap_or_default()]
            });
            table.row(std::iter::once(loss.replace('%', " %")).chain(cells));
        }
        table
    }
}

/// Both directions lose; the seed makes both ways of recovery lose the same packets.
fn command(loss: &str, recovery: Recovery, seconds: f64) -> String {
    let recovery = recovery.option();
    let millis = (seconds * 1e3) as u64;
    format!(
        "perf write bw --size 64K --link udp --recovery {recovery} --loss {loss} --seed 7 --duration {millis}ms --no-floor"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_same_scheme_without_loss() {
        let cells =
            vec![("0%", Recovery::Irn, 10.0), ("1%", Recovery::Irn, 9.0), ("0%", Recovery::GoBackN, 8.0)];
        let goodputs = Goodputs { cells };
        assert_eq!(goodputs.share("1%", Recovery::Irn), Some(0.9));
        assert_eq!(goodputs.share("1%", Recovery::GoBackN), None);
        assert_eq!(goodputs.table().rows()[2][1], "9.0 Gb/s");
    }
}
