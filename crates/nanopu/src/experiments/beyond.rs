//! Beyond the paper: what the prototype does not have, each behind a switch of the configuration, against the same traces.
//!
//! To add one: a file below `beyond/` with a function from settings to lines of the table, and a line in [`PARTS`].

mod banks;
mod blocking;
mod cut_through;
mod long_messages;
mod many_cores;
mod quotas;

use super::{Experiment, ExperimentError, Outcome, Settings};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment { name: "beyond", title: "Beyond the paper", run };

/// Adds its lines and charts.
type Part = fn(&Settings<'_>, &mut Outcome) -> Result<(), ExperimentError>;

/// All parts.
const PARTS: &[Part] =
    &[blocking::run, banks::run, cut_through::run, quotas::run, many_cores::run, long_messages::run];

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    for (number, part) in PARTS.iter().enumerate() {
        (settings.progress)(number as f64 / PARTS.len() as f64);
        part(settings, &mut outcome)?;
    }
    Ok(outcome)
}
