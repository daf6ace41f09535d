//! The plan of a measurement, on which both ends agree.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use highwire_link::FaultConfig;
use serde::{Deserialize, Serialize};

/// The size of an atomic's operand.
pub(crate) const ATOMIC_SIZE_BYTES: u32 = 8;

/// The operation that the active end requests of the passive one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    Send,
    Write,
    Read,
    FetchAdd,
}

impl Operation {
    /// As the command line spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::FetchAdd => "atomic",
        }
    }
}

/// What of it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Round trips, one at a time.
    Lat,
    /// Messages and bytes per second with many in flight.
    Bw,
    /// Nothing: every byte of every message is checked.
    #[value(skip)]
    PingPong,
}

/// Service of the queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

/// Loss recovery of a reliable connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Recovery {
    /// As RoCE network cards do: everything from the first loss on is sent again.
    GoBackN,
    /// Selective acknowledgements: only what was lost is sent again.
    Irn,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GoBackN => "go-back-N",
            Self::Irn => "IRN",
        })
    }
}

/// How packets travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Link {
    /// Shared memory between processes of one user on one machine, UDP otherwise.
    Auto,
    /// UDP on port 4791, also within one machine.
    Udp,
    /// Shared memory, or fail.
    Shm,
}

/// The end of a test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Length {
    Iterations(u64),
    Time(Duration),
    /// So many iterations, or as many as fit into the time.
    Within(u64, Duration),
}

/// One test, complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) operation: Operation,
    pub(crate) metric: Metric,
    pub(crate) size_bytes: u32,
    pub(crate) length: Length,
    /// Work requests in flight at most.
    pub(crate) depth: u32,
    /// Work requests posted with one doorbell.
    pub(crate) chain: u32,
    /// Latency until the completion instead of until an answer.
    pub(crate) until_completion: bool,
    pub(crate) service: Service,
    pub(crate) recovery: Recovery,
    pub(crate) link: Link,
    /// Payload bytes of a packet at most; the active end's device decides if the user does not.
    pub(crate) mtu_bytes: Option<u32>,
    /// The faults of the active end's packets; the passive end draws its own from the same seed.
    #[serde(with = "as_text")]
    pub(crate) faults: FaultConfig,
}

impl Plan {
    /// Options that contradict each other, and what would be right.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let name = self.operation.name();
        match (self.service, self.operation) {
            (Service::Ud, Operation::Write | Operation::Read | Operation::FetchAdd) => {
                return Some(format!("UD only has SEND, no {name}: --service rc"));
            }
            (Service::Uc, Operation::Read | Operation::FetchAdd) => {
                return Some(format!("UC has SEND and WRITE, no {name}: --service rc"));
            }
            _ => {}
        }
        if let Some(mtu) = self.mtu_bytes
            && self.service == Service::Ud
            && self.size_bytes > mtu
        {
            return Some(format!("a UD message is one packet: --size up to {mtu} or a larger --mtu"));
        }
        if self.operation == Operation::FetchAdd && self.size_bytes != ATOMIC_SIZE_BYTES {
            return Some("an atomic works on 8 bytes: leave --size away".into());
        }
        if self.operation == Operation::Write && self.is_ping_pong() && self.size_bytes == 0 {
            return Some("WRITE latency watches the last byte arrive: --size 1 or more".into());
        }
        if self.chain > self.depth {
            let Self { chain, depth, .. } = self;
            return Some(format!("a chain of {chain} exceeds the depth of {depth}: raise --depth"));
        }
        None
    }

    /// Receives that an end keeps posted: the other end may have `depth` acknowledged messages whose receives
    /// are not polled yet, and as many in flight.
    pub(crate) fn receives(&self) -> u32 {
        self.depth * 4
    }

    /// Whether the passive end must post receives: without them it does not notice accesses to its memory.
    pub(crate) fn needs_receives(&self) -> bool {
        self.operation == Operation::Send
    }

    /// Whether the passive end answers each message with one of its own, so that a round trip can be timed.
    pub(crate) fn is_ping_pong(&self) -> bool {
        let can_answer = matches!(self.operation, Operation::Send | Operation::Write);
        self.metric == Metric::Lat && can_answer && !self.until_completion
    }
}

/// "SEND latency, 32 bytes, RC with IRN".
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.operation {
            Operation::Send => "SEND",
            Operation::Write => "RDMA WRITE",
            Operation::Read => "RDMA READ",
            Operation::FetchAdd => "fetch-and-add",
        };
        let metric = match self.metric {
            Metric::Lat => "latency",
            Metric::Bw => "bandwidth",
            Metric::PingPong => "ping-pong",
        };
        write!(f, "{operation} {metric}, {} bytes, {}", self.size_bytes, self.service)?;
        if self.service == Service::Rc {
            write!(f, " with {}", self.recovery)?;
        }
        if !self.faults.is_harmless() {
            write!(f, ", {}", InWords(&self.faults))?;
        }
        Ok(())
    }
}

/// Faults in words for people: "1 % lost, seed 7".
struct InWords<'a>(&'a FaultConfig);

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = self.0;
        let shares = [
            (faults.loss, "lost"),
            (faults.duplicate, "duplicated"),
            (faults.reorder, "reordered"),
            (faults.corrupt, "corrupted"),
        ];
        for (share, what) in shares.into_iter().filter(|(share, _)| *share > 0.0) {
            write!(f, "{} % {what}, ", share * 100.0)?;
        }
        for (time, what) in [(faults.delay, "delay"), (faults.jitter, "jitter")] {
            if time.as_nanos() > 0 {
                write!(f, "{:?} {what}, ", Duration::from(time))?;
            }
        }
        write!(f, "seed {}", faults.seed)
    }
}

/// A value whose text parses to itself, as that text.
mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr,
        T::Err: Display,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::options::plan_for_tests;

    #[test]
    fn a_plan_survives_the_exchange() {
        let mut plan = plan_for_tests(Operation::Write, Metric::Bw, Length::Time(Duration::from_secs(3)));
        plan.faults = "loss=1%,delay=10us,seed=7".parse().expect("three faults");
        let text = serde_json::to_string(&plan).expect("a plan is JSON");
        assert_eq!(serde_json::from_str::<Plan>(&text).expect("the same plan"), plan);
    }

    #[test]
    fn a_plan_reads_as_a_sentence() {
        let mut plan = plan_for_tests(Operation::Send, Metric::Lat, Length::Iterations(1));
        assert_eq!(plan.to_string(), "SEND latency, 32 bytes, RC with IRN");
        plan.service = Service::Ud;
        plan.faults = "loss=1%,delay=10us,seed=7".parse().expect("three faults");
        assert_eq!(plan.to_string(), "SEND latency, 32 bytes, UD, 1 % lost, 10µs delay, seed 7");
    }
}
