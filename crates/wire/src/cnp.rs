//! Congestion notification packet: a BTH with BECN set, and sixteen reserved bytes (RoCEv2 A17.9.3).
//!
//! The reserved bytes are sent as zero and ignored on receipt.

/// Length of the reserved bytes after the BTH.
pub const CNP_RESERVED_LEN: usize = 16;
