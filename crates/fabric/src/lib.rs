//! Virtual time and a simulated network.
//!
//! [`Fabric`] joins [`Host`]s by the links and switches of a [`Topology`] and carries any [`Packet`] type between them, in
//! integer picoseconds. What it costs is a function of packets times hops: two events and a few cache lines each. A seed
//! and a configuration give one run, bit for bit.
//!
//! The fabric knows nothing of RDMA: RNICs, nanoPUs and load generators are hosts alike.
#![deny(unsafe_code)]

mod config;
mod fabric;
mod host;
mod observe;
mod packet;
mod parallel;
mod port;
mod prefetch;
mod queue;
mod queues;
mod time;
mod topology;
mod violation;

pub use config::{
    Balancing, Buffering, Ecn, FabricConfig, Forwarding, MarkWhen, Pfc, Rerouting, Service, Trimming,
};
pub use fabric::{BuildError, Fabric, Verdict};
pub use host::{Host, HostId, Nearness, Priorities};
pub use observe::{DropReason, Observer};
pub use packet::{Packet, Stamp};
pub use parallel::ParallelFabric;
pub use port::{PortCounters, Tally};
pub use prefetch::prefetch;
pub use queue::EventQueue;
pub use time::{Rate, Span, Time};
pub use topology::{
    Hop, Link, LinkSpec, NodeId, ParseError, ParseProblem, PortId, ShapeError, Topology, parse_rate,
    parse_span,
};
pub use violation::{BadPacket, Violation, ViolationKind};
