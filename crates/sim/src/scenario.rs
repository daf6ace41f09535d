//! Everything that a run follows from, as plain data.
//!
//! Defaults are the paper's default scenario (IRN §4.1). What the paper leaves open is a field here, never a constant in
//! the code.

mod network;
mod record;
mod scheme;
mod traffic;

pub use highwire_rnic::CongestionChoice;
pub(crate) use network::hungriest;
pub use network::{LinkEvent, LinkFault, Network, PfcChoice, Shape};
pub use record::{Record, Stop};
pub use scheme::{
    AckPriority, Acks, Cap, Entropy, GoBackN, HeaderBytes, Irn, LossRecovery, PartialAcks, QueuePairs,
    Scheme, Tcp, Transport,
};
pub use traffic::{Flow, FlowId};

use highwire_fabric::{BuildError, ShapeError, Time};
use serde::{Deserialize, Serialize};

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The source of everything random.
    pub seed: u64,
    /// Links and switches.
    pub network: Network,
    /// The hosts' scheme: transport, congestion control, headers.
    pub scheme: Scheme,
    /// The flows. A flow's number is its place here.
    pub flows: Vec<Flow>,
    /// When the run is over.
    pub stop: Stop,
    /// A run that should end by itself and has not by this time ends with an error.
    pub time_limit: Time,
    /// Records to keep besides counters and flows.
    pub record: Record,
}

impl Default for Scenario {
    /// The paper's default network and IRN without flows.
    fn default() -> Scenario {
        Scenario {
            seed: 1,
            network: Network::default(),
            scheme: Scheme::default(),
            flows: Vec::new(),
            stop: Stop::default(),
            time_limit: Time::from_ms(10_000),
            record: Record::default(),
        }
    }
}

/// What is wrong with a scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum ScenarioError {
    /// A value is impossible: the path of the field, and what would be right.
    Value {
        /// As in `scheme.mtu_bytes`.
        field: &'static str,
        /// What would be right.
        problem: String,
    },
    /// Something is wrong with a flow.
    Flow {
        /// Its number.
        flow: FlowId,
        /// What.
        problem: String,
    },
    /// The topology's numbers are impossible.
    Shape(ShapeError),
    /// The topology's text is wrong.
    Topology(highwire_fabric::ParseError),
    /// The parts do not fit together.
    Build(BuildError),
}

impl std::fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ScenarioError::Value { field, problem } => write!(f, "{field}: {problem}"),
            ScenarioError::Flow { flow, problem } => write!(f, "flow {}: {problem}", flow.0),
            ScenarioError::Shape(error) => write!(f, "network.shape: {error}"),
            ScenarioError::Topology(error) => write!(f, "network.shape: {error}"),
            ScenarioError::Build(error) => write!(f, "network: {error}"),
        }
    }
}

impl std::error::Error for ScenarioError {}
