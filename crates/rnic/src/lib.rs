//! A whole software RNIC, sans-IO: tables, packet dispatch, egress scheduler.
//!
//! [`Rnic`] is the one type that both worlds drive. It is told what the application posts, which packets arrive and what
//! time it is; it says which packets to send, what has completed and when to come back. Everything random in it follows
//! from a seed.
//!
//! After any `handle_*` or `post_*` the driver polls every `poll_*` until it is empty.
#![forbid(unsafe_code)]

mod config;
mod multicast;
mod objects;
mod rnic;
mod segment;
mod tags;
mod timers;
mod xrc;

pub use config::RnicConfig;
pub use highwire_transport::{
    Arrival, CongestionChoice, CongestionParameters, Counter, Counters, DirectOp, Order, Outgoing,
    QpSnapshot, TransportConfig,
};
pub use multicast::AttachError;
pub use objects::CreateError;
pub use rnic::Rnic;
pub use segment::{ArrivedFrame, FlowCounts, FlowId};
pub use tags::{Seen, Transfer};
