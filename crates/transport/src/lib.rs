//! One queue pair's protocol, sans-IO: requester, responder, loss recovery, flow and congestion control.
//!
//! A [`QueuePair`] is told what the application posts, what arrives and what time it is; it says what to send, what has
//! completed and when to come back. It never sees a socket, a clock or a byte of memory: payloads are of any type that
//! is a [`Payload`](highwire_verbs::Payload), so a simulation moves lengths through the code that a host moves bytes
//! through.
//!
//! After anything is handled, the driver polls until there is nothing more: one mutation, then drain.
#![forbid(unsafe_code)]

pub mod congestion;
mod connection;
mod context;
mod counters;
pub mod irn;
mod plan;
mod queue_pair;
mod receive_queue;
mod requester;
mod responder;
mod send_queue;

pub use congestion::CongestionChoice;
pub use connection::TransportConfig;
pub use context::Context;
pub use counters::{Counter, Counters};
pub use plan::{Arrival, Order, Outgoing};
pub use queue_pair::{DirectOp, QpSnapshot, QueuePair};
pub use receive_queue::ReceiveQueue;
pub use requester::table as requester_table;
pub use responder::table as responder_table;
