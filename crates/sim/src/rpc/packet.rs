//! A datagram on the fabric, and the nodes' shared state: the bytes of payloads, and the fate of datagrams.

use crate::fabric::HostId;
use highwire_stdx::Rng;
use highwire_verbs::{Address, Datagram, Gid};
use highwire_wire::{Bth, Deth, Headers, Qpn};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// BTH, DETH and the immediate.
pub(super) const HEADERS_LEN: usize = Bth::LEN + Deth::LEN + 4;
/// Ethernet with FCS, IPv4, UDP, ICRC.
const FRAME_BYTES: u32 = 18 + 20 + 8 + 4;
/// At most so many payloads are kept: far more than slots allow to be under way, so an older one was lost.
const PAYLOADS_MAX: usize = 1 << 14;

/// How a network disturbs datagrams, as probabilities.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Disturbance {
    /// It is lost.
    pub loss: f64,
    /// It comes twice, the second time later.
    pub duplication: f64,
    /// It comes later than those behind it, by up to 20 ms.
    pub reordering: f64,
}

/// What becomes of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fate {
    pub(super) passes: bool,
    /// A copy, or the datagram itself if it does not pass, leaves so many nanoseconds later.
    pub(super) later_ns: Option<u64>,
}

/// A datagram on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) source: u16,
    pub(super) destination: u16,
    pub(super) headers: [u8; HEADERS_LEN],
    pub(super) length: u16,
    /// Where its payload lies.
    pub(super) payload: u64,
}

impl crate::fabric::Packet for Packet {
    fn wire_bytes(&self) -> u32 {
        FRAME_BYTES + HEADERS_LEN as u32 + u32::from(self.length.next_multiple_of(4))
    }

    fn destination(&self) -> HostId {
        HostId(u32::from(self.destination))
    }

    fn flow_hash(&self) -> u64 {
        u64::from(self.source) << 16 | u64::from(self.destination)
    }
}

/// The nodes' shared state, on one thread.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) disturbance: Disturbance,
    pub(super) fingerprint: u64,
    cuts: BTreeSet<(u16, u16)>,
    payloads: Vec<(u64, Vec<u8>)>,
    stored: u64,
    addresses: Vec<Option<Datagram>>,
}

impl Network {
    pub(super) fn new(nodes: u16, disturbance: Disturbance) -> Network {
        Network {
            disturbance,
            fingerprint: 0,
            cuts: BTreeSet::new(),
            payloads: Vec::new(),
            stored: 0,
            addresses: vec![None; usize::from(nodes)],
        }
    }

    pub(super) fn cut(&mut self, from: u16, to: u16, is_cut: bool) {
        if is_cut {
            self.cuts.insert((from, to));
        } else {
            self.cuts.remove(&(from, to));
        }
    }

    pub(super) fn address(&self, node: u16) -> Option<Datagram> {
        self.addresses[usize::from(node)]
    }

    pub(super) fn set_address(&mut self, node: u16, qpn: Qpn) {
        self.addresses[usize::from(node)] = Some(Datagram { address: Address::new(gid(node)), qpn, qkey: 0 });
    }

    /// Keeps a payload, and returns its name.
    pub(super) fn store(&mut self, bytes: impl Iterator<Item = u8>) -> u64 {
        let name = self.stored;
        self.stored += 1;
        let at = name as usize % PAYLOADS_MAX;
        if at == self.payloads.len() {
            self.payloads.push((name, Vec::new()));
        }
        let place = &mut self.payloads[at];
        place.0 = name;
        place.1.clear();
        place.1.extend(bytes);
        let sum = place.1.iter().fold(name, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        self.fingerprint = (self.fingerprint ^ sum).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17);
        name
    }

    /// A payload that is not too old.
    pub(super) fn payload(&self, name: u64) -> Option<&[u8]> {
        let (kept, bytes) = self.payloads.get(name as usize % PAYLOADS_MAX)?;
        (*kept == name).then_some(bytes)
    }

    /// What becomes of a datagram.
    pub(super) fn fate(&self, from: u16, to: u16, rng: &mut Rng) -> Fate {
        /// The longest delay, in nanoseconds.
        const LATER_NS: u64 = 20_000_000;
        let Disturbance { loss, duplication, reordering } = self.disturbance;
        if self.cuts.contains(&(from, to)) || rng.chance(loss) {
            return Fate { passes: false, later_ns: None };
        }
        if rng.chance(reordering) {
            return Fate { passes: false, later_ns: Some(rng.below(LATER_NS)) };
        }
        Fate { passes: true, later_ns: rng.chance(duplication).then(|| rng.below(LATER_NS)) }
    }
}

pub(super) fn gid(node: u16) -> Gid {
    Gid::from_ip(IpAddr::V4(Ipv4Addr::from(0x0A00_0000 | (u32::from(node) + 1))))
}

/// The node with this address.
pub(super) fn node_of(gid: Gid) -> Option<u16> {
    let number = u32::from(gid.to_ipv4()?) & 0x00FF_FFFF;
    u16::try_from(number.checked_sub(1)?).ok()
}

/// The headers as they are on the wire.
pub(super) fn emit(headers: &Headers) -> [u8; HEADERS_LEN] {
    let mut bytes = [0; highwire_wire::MAX_HEADERS_LEN];
    let length = headers.emit(&mut bytes).min(HEADERS_LEN);
    let mut out = [0; HEADERS_LEN];
    out[..length].copy_from_slice(&bytes[..length]);
    out
}
