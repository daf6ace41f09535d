//! One address for all processes of a user: the broker that gives out its parts, and the client that gets one.
//!
//! A broker is a process of its own that owns an address: the sockets of UDP 4791 and 4794, and queue pair 1.
//! It hands a *shard* to each process that opens the address, with a number from 2 to 254 and a pair of
//! sockets to which the kernel steers packets for queue pairs whose numbers end in it. No data passes through
//! the broker: processes ask it when they open a device or listen to a service, and it passes management
//! datagrams on. `docs/sharing.md` tells the rest.
#![deny(unsafe_code)]

mod ask;
mod client;
mod error;
mod mad;
mod protocol;
mod server;
mod socket_store;
mod spawn;
mod standing;
mod sys;

pub use client::{Client, Doorman, GsiPacket, Sharer, Sockets, StartThread, process, sharers};
pub use error::JoinError;
pub use mad::{GSI_PACKET_BYTES, gsi_packet};
pub use protocol::{Mad, PortSpace, Reply, ServiceIds};
pub use server::{Broker, BrokerError, serve};
pub use spawn::BROKER_VARIABLE;
pub use sys::Background;

/// The shards for processes; 0 belongs to no process, 1 to queue pair 1, 255 to multicast.
pub(crate) const SHARDS: std::ops::RangeInclusive<u8> = 2..=254;
