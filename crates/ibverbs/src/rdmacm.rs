//! `librdmacm.so.1`: connection management.
//!
//! The C face of `highwire-cm`: identifiers and event channels as rdma-core documents them, over one connection manager
//! per process ([`hub`]). Applications' threads make calls and take events; one thread of the library takes
//! messages from queue pair 1 and watches the clock. `docs/rdmacm.md` lists what is implemented, and what is
//! not.

pub(crate) mod abi;
mod address;
mod addrinfo;
mod asked;
mod attributes;
pub(crate) mod channel;
mod connect;
mod deliver;
mod endpoint;
pub(crate) mod eventfd;
mod gsi;
mod hub;
mod id;
mod listen;
mod multicast;
mod queue_pair;
mod removal;
mod resolve;
#[cfg(test)]
mod tests;
mod verbs;

pub(crate) use removal::announce as device_removed;
