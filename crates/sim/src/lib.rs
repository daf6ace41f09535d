//! Many RNICs on a simulated network.
//!
//! A [`Scenario`] says everything about a run: network, scheme, flows, seed. [`run`] plays it and gives an
//! [`Outcome`]: when every flow ended, and the network's counters. Hosts are [`highwire_rnic::Rnic`]s, the
//! same state machines that run over sockets, on a [`highwire_fabric::Fabric`]; only payload is a length
//! here. The same scenario gives the same outcome, bit for bit, on any machine and any number of threads.
#![forbid(unsafe_code)]

pub mod bench;
pub mod campaign;
mod host;
mod ideal;
mod iwarp;
mod ledger;
pub mod neighbours;
mod outcome;
mod parcel;
pub mod plan;
mod progress;
mod rdma;
pub mod report;
pub mod rpc;
mod run;
pub mod scale;
pub mod scenario;
mod stamped;
pub mod tcp;
mod ways;
pub mod workload;
mod world;

pub use highwire_fabric as fabric;
pub use outcome::{FlowRecord, GroupRecord, Outcome, PortRecord, Sample, Summary, Totals};
pub use progress::{Progress, Tick};
pub use run::{BUILT_FROM, RunError, run, run_on};
pub use scenario::{Flow, FlowId, Network, Scenario, ScenarioError, Scheme};
