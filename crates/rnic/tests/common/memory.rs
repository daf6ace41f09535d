//! Two kinds of memory: bytes behind fences, and lengths only.

use highwire_rnic::{Arrival, Outgoing, Rnic};
use highwire_stdx::{Instant, Rng};
use highwire_verbs::{Gather, Gid, Length, LocalMemory, Memory, MemoryLost};
use highwire_wire::{Headers, ICRC_LEN, PathIcrc, UDP_PORT, parse_packet, parse_packet_with_icrc};
use std::ops::Range;

/// Where every arena begins, so that address zero and small offsets are never valid.
pub const BASE: u64 = 0x10_0000;

/// A node's memory, and the form of its packets on the wire.
pub trait Store {
    /// A packet under way.
    type Packet: Clone;
    /// Copies a packet out of memory.
    fn emit(&self, out: &Outgoing<'_>, source: Gid) -> Self::Packet;
    /// Hands a packet to an RNIC; `false` if it did not survive the journey.
    fn deliver(&mut self, rnic: &mut Rnic, now: Instant, arrival: &Arrival, packet: &Self::Packet) -> bool;
    /// Damages a packet.
    fn corrupt(packet: &mut Self::Packet, rng: &mut Rng);
    /// Damages a packet such that every check of the link passes, as an attacker does.
    fn forge(packet: &mut Self::Packet, rng: &mut Rng);
}

/// Bytes at `BASE`, of which only registered ranges may be touched.
#[derive(Clone, Default)]
pub struct Bytes {
    pub bytes: Vec<u8>,
    /// Ranges to which the RNIC may write.
    pub writable: Vec<Range<u64>>,
    /// Ranges that it may only read.
    pub readable: Vec<Range<u64>>,
}

/// A sealed packet from BTH to ICRC; forged ones skip the check.
#[derive(Clone)]
pub struct Sealed {
    bytes: Vec<u8>,
    is_forged: bool,
}

impl Bytes {
    pub fn new(len: usize) -> Bytes {
        Bytes { bytes: vec![0xEE; len], ..Bytes::default() }
    }

    fn index(&self, addr: u64, len: u64, write: bool) -> Range<usize> {
        let fits = |r: &Range<u64>| r.start <= addr && addr + len <= r.end;
        let permitted = self.writable.iter().any(fits) || !write && self.readable.iter().any(fits);
        assert!(
            permitted || len == 0,
            "a {} of {len} bytes at {addr:#x}, outside every region",
            if write { "write" } else { "read" }
        );
        if len == 0 {
            return 0..0;
        }
        let start = (addr - BASE) as usize;
        start..start + len as usize
    }

    pub fn slice(&self, range: Range<u64>) -> &[u8] {
        &self.bytes[(range.start - BASE) as usize..(range.end - BASE) as usize]
    }

    pub fn slice_mut(&mut self, range: Range<u64>) -> &mut [u8] {
        &mut self.bytes[(range.start - BASE) as usize..(range.end - BASE) as usize]
    }

    pub fn word(&self, addr: u64) -> u64 {
        u64::from_ne_bytes(self.slice(addr..addr + 8).try_into().expect("eight bytes"))
    }

    fn swap_word(&mut self, addr: u64, change: impl FnOnce(u64) -> u64) -> u64 {
        assert_eq!(addr % 8, 0, "an atomic at {addr:#x}");
        let range = self.index(addr, 8, true);
        let old = u64::from_ne_bytes(self.bytes[range.clone()].try_into().expect("eight bytes"));
        self.bytes[range].copy_from_slice(&change(old).to_ne_bytes());
        old
    }
}

impl<'a> Memory<&'a [u8]> for Bytes {
    fn place(&mut self, addr: u64, payload: &'a [u8]) -> Result<(), MemoryLost> {
        self.write_bytes(addr, payload);
        Ok(())
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), MemoryLost> {
        self.write_bytes(addr, bytes);
        Ok(())
    }

    fn compare_swap(&mut self, addr: u64, compare: u64, swap: u64) -> Result<u64, MemoryLost> {
        Ok(self.swap_word(addr, |old| if old == compare { swap } else { old }))
    }

    fn fetch_add(&mut self, addr: u64, add: u64) -> Result<u64, MemoryLost> {
        Ok(self.swap_word(addr, |old| old.wrapping_add(add)))
    }
}

impl LocalMemory for Bytes {
    fn copy_out(&self, from: &Gather<'_>, out: &mut [u8]) -> Result<(), MemoryLost> {
        let mut rest = out;
        for span in from.spans() {
            let (now, later) = rest.split_at_mut(span.length as usize);
            now.copy_from_slice(&self.bytes[self.index(span.addr, u64::from(span.length), false)]);
            rest = later;
        }
        Ok(())
    }

    fn copy_within(&mut self, from: &Gather<'_>, to: &Gather<'_>) -> Result<(), MemoryLost> {
        let mut bytes = vec![0; from.len() as usize];
        self.copy_out(from, &mut bytes)?;
        let mut rest = &bytes[..];
        for span in to.spans() {
            let (now, later) = rest.split_at(span.length as usize);
            self.write_bytes(span.addr, now);
            rest = later;
        }
        Ok(())
    }
}

impl Bytes {
    fn write_bytes(&mut self, addr: u64, bytes: &[u8]) {
        let range = self.index(addr, bytes.len() as u64, true);
        self.bytes[range].copy_from_slice(bytes);
    }
}

fn path(source: Gid, destination: Gid) -> PathIcrc {
    PathIcrc::between((source.to_ip(), UDP_PORT), (destination.to_ip(), UDP_PORT)).expect("one family")
}

impl Store for Bytes {
    type Packet = Sealed;

    fn emit(&self, out: &Outgoing<'_>, source: Gid) -> Sealed {
        let len = out.headers.encoded_len() + out.payload.len() as usize;
        let pad = usize::from(out.headers.bth.pad_count);
        let mut bytes = vec![0; out.headers.encoded_len()];
        bytes.reserve_exact(len - bytes.len() + pad + ICRC_LEN);
        out.headers.emit(&mut bytes);
        for span in out.payload.spans() {
            bytes.extend_from_slice(&self.bytes[self.index(span.addr, u64::from(span.length), false)]);
        }
        assert_eq!(bytes.len(), len, "a gather list has as many bytes as it says");
        bytes.resize(len + pad, 0);
        let icrc = path(source, out.address.gid).icrc(0, &bytes);
        bytes.extend_from_slice(&icrc.to_le_bytes());
        Sealed { bytes, is_forged: false }
    }

    fn deliver(&mut self, rnic: &mut Rnic, now: Instant, arrival: &Arrival, packet: &Sealed) -> bool {
        let bytes = &packet.bytes[..];
        if !packet.is_forged && !path(arrival.source, arrival.destination).verify(0, bytes) {
            return false;
        }
        let Ok((headers, payload, _)) = parse_packet_with_icrc(bytes) else { return false };
        rnic.handle_packet(now, arrival, &headers, &bytes[payload], self);
        true
    }

    fn corrupt(packet: &mut Sealed, rng: &mut Rng) {
        for _ in 0..rng.between(1, 4) {
            let at = rng.below(packet.bytes.len() as u64) as usize;
            packet.bytes[at] ^= 1 << rng.below(8);
        }
    }

    fn forge(packet: &mut Sealed, rng: &mut Rng) {
        packet.is_forged = true;
        let len = packet.bytes.len() as u64;
        for _ in 0..rng.between(1, 3) {
            // Mostly the headers, which carry the meaning.
            let reach = if rng.chance(0.9) { len.min(52) } else { len };
            let at = rng.below(reach) as usize;
            match rng.below(3) {
                0 => packet.bytes[at] ^= 1 << rng.below(8),
                1 => packet.bytes[at] = *rng.pick(&[0, 1, 0x7F, 0x80, 0xFF]),
                _ => packet.bytes[at] = rng.next_u32() as u8,
            }
        }
        // The queue pair's number mostly stays, or hardly any packet would reach one.
        if rng.chance(0.2) {
            packet.bytes.truncate((16 + rng.below(len) as usize / 4 * 4).min(len as usize));
        }
    }
}

/// Memory of which only lengths are known: 2^31 bytes cost nothing.
#[derive(Clone, Default)]
pub struct Lengths {
    pub writable: Vec<Range<u64>>,
    /// Bytes placed.
    pub placed: u64,
}

impl Lengths {
    fn check(&mut self, addr: u64, len: u64) {
        let fits = self.writable.iter().any(|r| r.start <= addr && addr + len <= r.end);
        assert!(fits || len == 0, "a write of {len} bytes at {addr:#x}, outside every region");
        self.placed += len;
    }
}

impl Memory<Length> for Lengths {
    fn place(&mut self, addr: u64, payload: Length) -> Result<(), MemoryLost> {
        self.check(addr, u64::from(payload.0));
        Ok(())
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), MemoryLost> {
        self.check(addr, bytes.len() as u64);
        Ok(())
    }

    fn compare_swap(&mut self, addr: u64, _compare: u64, _swap: u64) -> Result<u64, MemoryLost> {
        self.check(addr, 8);
        Ok(0)
    }

    fn fetch_add(&mut self, addr: u64, _add: u64) -> Result<u64, MemoryLost> {
        self.check(addr, 8);
        Ok(0)
    }
}

impl Store for Lengths {
    type Packet = (Headers, Length);

    fn emit(&self, out: &Outgoing<'_>, _source: Gid) -> Self::Packet {
        (*out.headers, Length(out.payload.len()))
    }

    fn deliver(&mut self, rnic: &mut Rnic, now: Instant, arrival: &Arrival, packet: &Self::Packet) -> bool {
        rnic.handle_packet(now, arrival, &packet.0, packet.1, self);
        true
    }

    fn corrupt(_packet: &mut Self::Packet, _rng: &mut Rng) {
        unreachable!("lengths have no bytes to damage");
    }

    fn forge(_packet: &mut Self::Packet, _rng: &mut Rng) {
        unreachable!("lengths have no bytes to forge");
    }
}
