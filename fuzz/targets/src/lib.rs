//! The fuzz targets.
//!
//! A target is a function that must return for any input; it panics when a promise of the code under test is broken. libFuzzer
//! calls these functions, and so do the plain [`driver`] and `cargo test`, so that every machine tries them and a finding
//! becomes a regression test by keeping its bytes.

#![forbid(unsafe_code)]

mod access;
pub mod corpus;
mod door;
pub mod driver;
mod irn;
mod layers;
mod ops;
mod packets;
mod record;
mod resp;
mod rings;
mod rnic;
mod rpc;

use corpus::Seeds;

/// One fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// As typed on the command line, and the name of the libFuzzer binary.
    pub name: &'static str,
    /// Tries one input.
    pub run: fn(&[u8]),
    /// The first inputs.
    pub seeds: Seeds,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "frame", run: packets::frame, seeds: Seeds::Frames },
    Target { name: "headers", run: packets::headers, seeds: Seeds::Packets },
    Target { name: "icrc", run: packets::icrc, seeds: Seeds::Packets },
    Target { name: "pcap", run: packets::pcap, seeds: Seeds::Files },
    Target { name: "layers", run: layers::layers, seeds: Seeds::Frames },
    Target { name: "cm_mad", run: packets::cm_mad, seeds: Seeds::Packets },
    Target { name: "irn_sender", run: irn::sender, seeds: Seeds::Operations },
    Target { name: "irn_receiver", run: irn::receiver, seeds: Seeds::Operations },
    Target { name: "record", run: record::record, seeds: Seeds::Records },
    Target { name: "rings", run: rings::rings, seeds: Seeds::Rings },
    Target { name: "door", run: door::door, seeds: Seeds::Sessions },
    Target { name: "resp", run: resp::resp, seeds: Seeds::Requests },
    Target { name: "access", run: access::access, seeds: Seeds::Operations },
    Target { name: "rpc", run: rpc::rpc, seeds: Seeds::Operations },
    Target { name: "rnic_handle_packet", run: rnic::rnic, seeds: Seeds::Operations },
    Target { name: "rnic_captures", run: rnic::captured, seeds: Seeds::Conversations },
    Target { name: "sack_window", run: irn::sack_window, seeds: Seeds::Operations },
];

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Tries `input` on the target called `name`.
///
/// # Panics
/// If there is no such target, or if it finds a broken promise.
pub fn call(name: &str, input: &[u8]) {
    (target(name).expect("the binary is named after its target").run)(input);
}
