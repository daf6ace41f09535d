//! Why a run has no outcome.

use highwire_fabric::{Time, Violation};

use crate::plan::Value;
use crate::{FlowId, ScenarioError};

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum RunError {
    /// The scenario is impossible.
    Scenario(ScenarioError),
    /// An invariant broke: results up to then must not be used.
    Invariant(Box<Violation>),
    /// Nothing will ever move the packets that wait.
    Deadlock {
        /// What was found, and when.
        violation: Box<Violation>,
        /// The nodes along paused links that wait for each other, the first one again at the end; empty if there is no such
        /// circle.
        circle: Vec<String>,
    },
    /// A host's invariant broke, or its transport gave up.
    Host {
        /// The seed that repeats it.
        seed: u64,
        /// When.
        at: Time,
        /// Which host.
        host: u32,
        /// What.
        problem: String,
    },
    /// Some flows are not over that should be.
    Unfinished {
        /// The seed that repeats it.
        seed: u64,
        /// When the run ended.
        at: Time,
        /// How many.
        flows: u64,
        /// The first of them.
        first: FlowId,
        /// The limit that the run has reached; without one, nothing would ever happen any more.
        limit: Option<Time>,
        /// Packets were lost on links, and the transport has no timeout that would repeat them.
        has_no_timeouts: bool,
        /// As in [`RunError::Deadlock`].
        circle: Vec<String>,
    },
    /// [`crate::Progress::tick`] said so.
    Cancelled,
}

/// The program that, together with a seed, repeats a run: the commit if the build was told it, else the
/// version.
pub const BUILT_FROM: &str = match option_env!("HIGHWIRE_COMMIT") {
    Some(commit) => commit,
    None => concat!("version ", env!("CARGO_PKG_VERSION")),
};

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Scenario(error) => write!(f, "{error}"),
            RunError::Invariant(violation) => write!(f, "{violation}, {BUILT_FROM}"),
            RunError::Deadlock { violation, circle } => {
                write!(f, "{violation}")?;
                write_circle(circle, f)?;
                write!(f, ", {BUILT_FROM}")
            }
            RunError::Host { seed, at, host, problem } => {
                write!(f, "at {at} in host {host}: {problem} (seed {seed}), {BUILT_FROM}")
            }
            RunError::Unfinished { seed, at, flows, first, limit, has_no_timeouts, circle } => {
                let are = if *flows == 1 { "flow is" } else { "flows are" };
                write!(f, "at {at} {flows} {are} not over, the first is flow {}", first.0)?;
                if let Some(limit) = limit {
                    let limit = Value::Span(limit.since(Time::ZERO));
                    write!(f, "; the run has reached its limit, `time_limit` of {limit}")?;
                }
                if *has_no_timeouts {
                    f.write_str(
                        "; links lost packets, and RoCE over PFC has no timeouts: `transport.timeouts = \"on\"` in a plan, \
                         `timeout` of the scheme's transport in a scenario, switch them on",
                    )?;
                }
                write_circle(circle, f)?;
                write!(f, " (seed {seed}), {BUILT_FROM}")
            }
            RunError::Cancelled => f.write_str("the run was ended"),
        }
    }
}

fn write_circle(circle: &[String], f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    if circle.is_empty() {
        return Ok(());
    }
    write!(f, "; paused links wait for each other: {}", circle.join(" -> "))
}

impl std::error::Error for RunError {}

impl From<Violation> for RunError {
    fn from(violation: Violation) -> RunError {
        RunError::Invariant(Box::new(violation))
    }
}

impl From<ScenarioError> for RunError {
    fn from(error: ScenarioError) -> RunError {
        RunError::Scenario(error)
    }
}
