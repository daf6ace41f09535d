//! The transactional store as a product: `txn`'s nodes over `host`'s RPCs, and the doors for programs.
//!
//! ```text
//!                  I/O loop, one thread
//!   Client (TCP) ──▶ door ─┐  jobs   ┌──────────── one thread ────────────┐
//!   Redis clients ─▶ resp ─┼───────▶ │ Session, Transaction ─▶ txn::Node  │ ◀─ clock
//!   this process ──────────┘         │             carrier ─▶ host::rpc   │ ◀─▶ other nodes
//!                                    └── register (files) ◀── service ────┘
//!                                    └── disk (data) ◀── journal, syncs ──┘
//! ```
//!
//! A node is one thread that owns its `txn::Node` and its RPC endpoint, so nothing in it is locked. All other
//! threads send that thread jobs: futures that run there, beside the node's own work. `docs/store.md` states
//! what the store promises and how to run it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr))]

mod access;
mod backup;
pub mod bench;
mod carrier;
mod client;
mod clock;
mod config;
mod data;
mod disk;
mod door;
mod engine;
mod error;
pub mod faults;
mod freeze;
mod fresh;
mod idle;
mod instant;
mod message;
mod metrics;
mod milestones;
mod order;
mod peers;
mod register;
mod resp;
mod rows;
mod scan;
mod session;
#[cfg(test)]
mod simulation;
mod sweep;
mod tls;
mod transaction;

pub use access::{Access, Role, User, UserLimits, Users, UsersError, make_key};
pub use backup::{
    Backup, BackupContents, BackupError, BackupFileError, RestoreError, RestoreOptions, back_up,
    check_backup, restore,
};
pub use client::{AsyncClient, AsyncTransaction, Client, ClientTransaction, Counts, Transport};
pub use clock::Clock;
#[doc(hidden)]
pub use clock::Wall;
pub use config::{ClusterConfig, ConfigError, DoorLimits, Link, NodeConfig};
pub use engine::{Engine, StartError, Store};
pub use error::StoreError;
pub use fresh::fresh_name;
pub use message::{Entry, Holding, NodeStatus};
pub use milestones::{Milestone, MilestoneEvent};
pub use peers::configure;
pub use register::{EtcdRegister, FileRegister, RegisterError};
#[doc(hidden)]
pub use resp::try_parser;
pub use rows::{KEY_BYTES_MAX, READ_BYTES_MAX, TABLE_BYTES_MAX, VALUE_BYTES_MAX, WRITE_BYTES_MAX};
pub use session::Local;
pub use tls::TlsConfig;
pub use transaction::Transaction;
