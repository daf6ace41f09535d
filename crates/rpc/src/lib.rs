//! FaSST RPCs over unreliable datagrams: requests to a node, responses from it, at most once, from plain `async` code.
//!
//! ```text
//!   workers (async)                     an endpoint, one per thread                    the driver
//!   call, batch ──▶ flights ─▶ slots of a peer ─▶ outbox ── transmit(post) ──▶ SEND with immediate
//!        ▲                                                                             │ UD
//!        └── resumed ◀── responses ◀┬───────────────── handle_receive ◀── completions ◀┘
//!   handlers ◀───────────── requests ◀┘
//! ```
//!
//! An [`Endpoint`] is a state machine: completions go in, work requests come out, time is an argument. It uses nothing but UD's
//! verbs, so the same code runs over links, over a simulated fabric, or over a card. `docs/rpc.md` tells the whole story.
#![forbid(unsafe_code)]

mod batch;
mod config;
mod core;
mod counters;
mod endpoint;
mod error;
mod executor;
mod flight;
mod grh;
mod handler;
mod nested;
mod parcel;
mod parts;
mod peer;
mod seal;
pub mod wire;
mod worker;

pub use batch::{Batch, Replies, Reply, SendBatch};
pub use config::{BATCH_BYTES_MAX, Config, Node, Optimisations, RequestType};
pub use core::Outgoing;
pub use counters::Counters;
pub use endpoint::{Endpoint, Received};
pub use error::{AddPeerError, CallError, SpawnError};
pub use executor::Running;
pub use handler::{NestedRequest, Request, Response};
pub use parcel::{Parcel, ParcelId, ReturnedParcel};
pub use seal::{ClusterKey, SEAL_LEN};
pub use worker::{Sleep, Worker, YieldNow};

/// Bytes that a UD receive holds in front of the datagram (RoCEv2 A17.4.5.1).
pub const GRH_BYTES: usize = 40;
