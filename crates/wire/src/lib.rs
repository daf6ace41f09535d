//! RoCEv2 bytes and their meaning: every header, opcodes, ICRC, PSN arithmetic, pcap.
#![forbid(unsafe_code)]

mod psn;

pub use psn::{Psn, Qpn};
