//! A view of whole outcomes, of which a campaign itself keeps measures only.

use crate::plan::{Plan, Run};
use crate::{Outcome, Scenario};

/// Sees each run that a campaign plays, on the thread that has played it.
pub trait Witness: Sync + std::fmt::Debug {
    /// A run is over.
    fn on_outcome(&self, plan: &Plan, run: &Run, scenario: &Scenario, outcome: &Outcome);
}

/// Sees nothing.
impl Witness for () {
    fn on_outcome(&self, _plan: &Plan, _run: &Run, _scenario: &Scenario, _outcome: &Outcome) {}
}
