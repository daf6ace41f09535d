//! Connection management, sans-IO: makes and ends connections between queue pairs, over datagrams that may be lost (IBTA §12).
//!
//! A [`ConnectionManager`] is one end's memory of all its conversations: connections being made, in use and
//! being taken down, and requests for a datagram service's queue pair (SIDR). A driver uses it like a
//! transport: MADs, calls of the application and time go in, MADs and [`Event`]s come out. A table
//! ([`table::answer`]) tells how each state reacts to a message; everything else follows from it.
//!
//! Invariants: a deadline exists exactly while an answer is awaited or a connection lingers; an event is
//! reported at most once; no message of a peer makes this panic or grow beyond `Config::pending_max`.
#![forbid(unsafe_code)]

mod answering;
mod asking;
mod config;
mod connection;
mod event;
mod manager;
mod pending;
mod receive;
mod sidr;
pub mod table;
mod timers;

pub use config::Config;
pub use event::{DisconnectCause, Event};
pub use manager::{CallError, CommId, ConnectionManager, Counters, Transmit};
