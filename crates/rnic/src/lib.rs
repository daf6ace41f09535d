//! A whole software RNIC, sans-IO: tables, packet dispatch, egress scheduler.
//!
//! [`Rnic`] is the one type that both worlds drive. The driver gives it the application's requests, the
//! packets that arrive and the time; it gives the driver packets to send, completions and the time of its
//! next call. Everything random in it follows from a seed.
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
pub use highwire_transport::congestion::Hop;
pub use highwire_transport::{
    Arrival, CongestionChoice, Counter, Counters, DirectOp, Order, Outgoing, QpSnapshot, TransportConfig,
};
pub use multicast::AttachError;
pub use objects::CreateError;
pub use rnic::Rnic;
pub use segment::{ArrivedFrame, FlowCounts, FlowId};
pub use tags::{Seen, Transfer};
