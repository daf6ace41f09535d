//! When a run ends, and which records it keeps.

use highwire_fabric::{Span, Time};
use serde::{Deserialize, Serialize};

/// When a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Stop {
    /// When all flows are over and the network is empty. A run that has not got there by
    /// [`crate::Scenario::time_limit`] ends with an error.
    #[default]
    WhenDone,
    /// As soon as each of the first so many flows has been received. Flows behind them keep the load up meanwhile, and may be
    /// cut off.
    WhenReceived(u32),
    /// At a time; flows that are not over by then have no end.
    At(Time),
}

/// Records to keep besides counters and flows. They do not change the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// Every so often, each switch port's waiting bytes and whether it is paused.
    pub sample_every: Option<Span>,
    /// Whether to keep the counters of each port.
    pub ports: bool,
}
