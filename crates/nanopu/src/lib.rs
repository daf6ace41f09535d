//! The core of the nanoPU: an in-order pipeline of five stages that knows on which cycle each instruction commits.
//!
//! `highwire-riscv` says what instructions do; this crate adds when. Every cycle moves a fetch unit with
//! branch prediction, a decode stage with interlocks, three stages behind it that never stall, and
//! first-level caches. Refused work is replayed from write-back, as on Rocket, whose commit log this model is
//! held against.
//!
//! Invariant: an instruction changes architectural state once, when it first leaves decode on the right path, however
//! often the pipeline replays it.
#![forbid(unsafe_code)]

pub mod boot;
mod cache;
pub mod client;
mod config;
mod core;
mod dcache;
mod decode;
pub mod dma;
pub mod experiments;
mod float_unit;
mod frontend;
mod idle;
mod interface;
mod latency;
pub mod network;
pub mod nic;
mod node;
pub mod packet;
mod port;
mod predict;
pub mod queueing;
mod rounds;
mod shared_cache;
pub mod testbed;
mod timeline;
mod unhandled;

pub use config::CoreConfig;
pub use core::{Commit, Core, Event, Stall, StallRun, Stalls};
pub use interface::{CONTEXTS_MAX, Demand, Interface, Mistake, Misuse, Occurrence};
pub use node::{Node, NodeConfig, NodeEvent};
pub use port::{Port, RX_REGISTER, SWITCH_THREAD, TX_REGISTER, csr};
pub use shared_cache::{Asker, SharedCacheConfig};
pub use timeline::{Stage, Stamp};
