//! Strictly serialisable, replicated, recoverable transactions over RPCs (FaSST, OSDI 2016), sans-IO.
//!
//! A [`Node`] is participant for its regions, coordinator for its workers and member of a [`Configuration`]. It knows no clock, no network and
//! no disk: a driver brings requests, responses and time, and carries away what it polls, writes to files among it. [`docs/txn.md`] states the protocol and
//! its promise; [`simulation`] drives clusters of nodes through faults and checks the promise.
//!
//! [`docs/txn.md`]: https://github.com/highwire/highwire/blob/main/docs/txn.md
#![forbid(unsafe_code)]

pub mod check;
mod codec;
mod configuration;
mod defect;
mod id;
mod journal;
mod message;
mod node;
mod record;
mod settings;
pub mod simulation;
mod store;
mod sync;
mod table;
mod worker;
pub mod workloads;

pub use configuration::{Agreed, Configuration, ConfigurationService, Member, Refusal, Register, Replica};
pub use id::{Key, NodeId, RegionId, TableId, Txid, Version};
pub use journal::{DiskOperation, FileName, LoadError, Loaded, NoFileName, load};
pub use node::{
    Addressed, Counters, Event, Memory, Node, Outgoing, Reply, ServiceCall, SnapshotError, SnapshotOf,
    SnapshotPage, TransactionError,
};
pub use settings::{Settings, TableKind};
pub use store::Store;
pub use table::{
    Entry, Floors, HashTable, LONG_VALUE_BYTES_MAX, Lock, Mode, OrderedTable, RangeRow, Row, ScanError,
    Table, Usage, VALUE_BYTES_MAX,
};
pub use worker::{AbortReason, Item, Phase, RangeItem, Worker};
