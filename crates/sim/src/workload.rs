//! Traffic: a list of flows that follows from a description and a seed.
//!
//! A workload does not depend on the run: every scheme gets the same flows at the same times, and a longer
//! run begins with the flows of a shorter one. Arithmetic is that of IEEE 754 and of a logarithm in Rust, so
//! that a seed gives the same flows on every machine.

mod collective;
mod incast;
mod permutation;
mod poisson;
mod sizes;
mod trace;

use std::fmt;

use crate::Flow;

pub use collective::{AllReduce, AllToAll, TreeAllReduce};
pub use incast::Incast;
pub use permutation::Permutation;
pub use poisson::Poisson;
pub use sizes::{SizeDistribution, SizesError, SizesProblem};
pub use trace::{Trace, TraceError};

/// The class of the traffic that is measured, or of the traffic beside an incast.
pub const TRAFFIC: u16 = 0;
/// The class of the parts of one request, which ends with the last of them.
pub const REQUEST: u16 = 1;
/// The class of traffic before and after the measured flows.
pub const UNMEASURED: u16 = 2;

/// What the hosts ask of the network.
#[derive(Clone, PartialEq, Debug)]
pub enum Workload {
    /// Flows arrive at random, without end.
    Poisson(Poisson),
    /// Each host sends to one other and receives from one other.
    Permutation(Permutation),
    /// Many send to one.
    Incast(Incast),
    /// Many send to one, among other traffic.
    IncastAmong(Incast, Poisson),
    /// A ring all-reduce.
    AllReduce(AllReduce),
    /// An all-reduce over a tree.
    TreeAllReduce(TreeAllReduce),
    /// Every host sends to every other.
    AllToAll(AllToAll),
}

/// The network as far as a workload looks at it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ground<'a> {
    /// Each host's link, in bits per second.
    pub rates_bps: &'a [u64],
    /// The payload of a full packet.
    pub mtu_bytes: u32,
    /// Bytes of a packet on the link beyond its payload.
    pub overhead_bytes: u32,
}

/// Why a workload does not fit a network.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkloadError {
    /// More senders than other hosts.
    TooManySenders {
        /// How many were asked for.
        senders: u32,
        /// How many hosts there are.
        hosts: u32,
    },
    /// A receiver that is not there.
    NoSuchHost {
        /// Its number.
        host: u32,
        /// How many hosts there are.
        hosts: u32,
    },
    /// Less than two hosts.
    Lonely,
    /// Less than a byte per flow.
    NothingToSend,
    /// A load of nothing, or more than the link carries.
    Load(f64),
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManySenders { senders, hosts } => {
                write!(f, "{senders} senders are too many for {hosts} hosts, of which one receives")
            }
            Self::NoSuchHost { host, hosts } => {
                write!(f, "there is no host {host}; the last of {hosts} is {}", hosts - 1)
            }
            Self::Lonely => f.write_str("a workload needs two hosts"),
            Self::NothingToSend => f.write_str("less than one byte per flow"),
            Self::Load(load) => write!(f, "a load of {load} is not between 0 and 1"),
        }
    }
}

impl std::error::Error for WorkloadError {}

impl Ground<'_> {
    /// How many hosts there are.
    pub fn hosts(&self) -> u32 {
        self.rates_bps.len() as u32
    }
}

impl Workload {
    /// The flows, by their start; those that start together, by source.
    ///
    /// # Errors
    /// What does not fit the network.
    pub fn flows(&self, ground: &Ground<'_>, seed: u64) -> Result<Vec<Flow>, WorkloadError> {
        if ground.hosts() < 2 {
            return Err(WorkloadError::Lonely);
        }
        match self {
            Self::Poisson(poisson) => poisson.flows(ground, seed),
            Self::Permutation(permutation) => permutation.flows(ground, seed),
            Self::Incast(incast) => incast.flows(ground, seed),
            Self::IncastAmong(incast, poisson) => {
                let mut flows = incast.flows(ground, seed)?;
                flows.extend(poisson.flows(ground, seed)?);
                flows.sort_by_key(|flow| flow.start);
                Ok(flows)
            }
            Self::AllReduce(all_reduce) => all_reduce.flows(ground),
            Self::TreeAllReduce(all_reduce) => all_reduce.flows(ground),
            Self::AllToAll(all_to_all) => all_to_all.flows(ground),
        }
    }
}

#[cfg(test)]
pub(crate) const GROUND: Ground<'_> =
    Ground { rates_bps: &[40_000_000_000; 54], mtu_bytes: 1024, overhead_bytes: 62 };
