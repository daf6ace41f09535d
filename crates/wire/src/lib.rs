//! RoCEv2 bytes and their meaning: every header, opcodes, ICRC, PSN arithmetic, pcap.
//!
//! One file per header. A header is a small `Copy` value with a fixed length, a `parse` from and an `emit` to an
//! array of that length. [`Headers`] joins them: the base transport header and, as one enum, exactly the extension
//! headers that its opcode calls for.
//!
//! Invariant: nothing here panics on bytes from the network, and parsed headers re-emit to the same bytes,
//! except reserved bytes that the specification tells receivers to ignore (DETH's one, CNP's sixteen).
#![forbid(unsafe_code)]

mod aeth;
mod atomic_eth;
mod bth;
mod bytes;
pub mod cm;
mod cnp;
mod crc;
mod deth;
mod error;
mod ethernet;
mod ext;
mod frame;
mod headers;
pub mod icrc;
mod ieth;
mod immdt;
mod ip;
mod ipv4;
mod ipv6;
mod irn_eth;
mod layers;
mod opcode;
pub mod pcap;
mod psn;
mod reth;
mod tag_header;
mod text;
mod udp;
mod xrceth;

pub use aeth::{Aeth, NakCode, Syndrome, credit_code, credit_count, rnr_delay};
pub use atomic_eth::AtomicEth;
pub use bth::{Bth, DEFAULT_PKEY};
pub use cnp::CNP_RESERVED_LEN;
pub use deth::Deth;
pub use error::{HeaderName, ParseError, ParseErrorKind};
pub use ethernet::Ethernet;
pub use ext::Ext;
pub use frame::{Frame, LinkType};
pub use headers::{
    Headers, MAX_HEADERS_LEN, pad_count, parse_packet, parse_packet_head, parse_packet_with_icrc,
};
pub use icrc::{Icrc, PathIcrc};
pub use ip::Ip;
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use irn_eth::{IRN_VERSION, IrnEth, IrnFlags, SackEth};
pub use layers::{LAYER_KEY_LEN, Layer, LayerKind, Layers};
pub use opcode::{Layout, Opcode, OpcodeInfo, Operation, Position, Service};
pub use psn::{Psn, Qpn};
pub use reth::Reth;
pub use tag_header::{Rendezvous, TagHeader, TagOperation};
pub use text::Line;
pub use udp::Udp;

/// The UDP destination port of RoCEv2 (RoCEv2 A17.3.1).
pub const UDP_PORT: u16 = 4791;
/// The UDP port of the handshake between two Highwires, bound on a device's own address only.
pub const NEGOTIATION_PORT: u16 = 4794;
/// Length of the invariant CRC that ends every packet.
pub const ICRC_LEN: usize = 4;
