//! Staging buffers: where packets are written and where the kernel reads them.
//!
//! Packets lie end to end, so that a run of equal-sized ones already is a train.

use super::path::{Order, Path};
use super::train::Run;
use crate::{Place, Seal};
use std::ops::{Deref, DerefMut};

/// Room for one full train of the longest packets and some short ones.
const STRICT_BYTES: usize = 64 * 1024;
/// Hundreds of acknowledgements.
pub(super) const FREE_BYTES: usize = 16 * 1024;

/// The packets of a batch to one destination.
pub(super) struct Stage {
    pub(super) path: Path,
    pub(super) strict: Buffer,
    pub(super) free: Buffer,
}

/// Packets end to end.
pub(super) struct Buffer {
    pub(super) bytes: Box<[u8]>,
    pub(super) used: usize,
    pub(super) sizes: Vec<u16>,
    /// Of free packets: how many strict ones were appended before each.
    pub(super) behind: Vec<u32>,
    /// Packet index and bit to flip once the packet is sealed.
    damage: Vec<(usize, u32)>,
}

impl Stage {
    pub(super) fn new(path: Path) -> Stage {
        Stage { path, strict: Buffer::new(STRICT_BYTES), free: Buffer::new(FREE_BYTES) }
    }

    pub(super) fn buffer_mut(&mut self, order: Order) -> &mut Buffer {
        match order {
            Order::Strict => &mut self.strict,
            Order::Free => &mut self.free,
        }
    }
}

impl Buffer {
    pub(super) fn new(bytes: usize) -> Buffer {
        Buffer {
            bytes: vec![0; bytes].into_boxed_slice(),
            used: 0,
            sizes: Vec::new(),
            behind: Vec::new(),
            damage: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.sizes.clear();
        self.behind.clear();
        self.damage.clear();
    }

    pub(super) fn sizes_of(&self, run: Run) -> &[u16] {
        &self.sizes[run.first..run.first + run.count]
    }

    pub(super) fn run(&self, run: Run) -> &[u8] {
        &self.bytes[run.start..run.start + run.bytes]
    }

    pub(super) fn seal(&mut self, run: Run, place: &mut Place, seal: &mut Seal<'_>) {
        let mut start = run.start;
        for index in run.first..run.first + run.count {
            let end = start + usize::from(self.sizes[index]);
            seal(&mut self.bytes[start..end], place);
            place.train_index += 1;
            start = end;
        }
        if !self.damage.is_empty() {
            self.harm_run(run);
        }
    }

    #[cold]
    fn harm_run(&mut self, run: Run) {
        let mut start = run.start;
        for index in run.first..run.first + run.count {
            let end = start + usize::from(self.sizes[index]);
            for &(_, bit) in self.damage.iter().filter(|d| d.0 == index) {
                flip(&mut self.bytes[start..end], bit);
            }
            start = end;
        }
    }

    pub(super) fn harm(&self, index: usize, packet: &mut [u8]) {
        for &(_, bit) in self.damage.iter().filter(|d| d.0 == index) {
            flip(packet, bit);
        }
    }
}

/// Room for one packet in a [`TxBatch`](super::TxBatch); dropped without `commit`, it leaves no trace.
pub struct Slot<'a> {
    buffer: &'a mut Buffer,
    bytes_max: usize,
    /// See [`Buffer`]; `None` for a strict packet.
    behind: Option<u32>,
}

impl<'a> Slot<'a> {
    /// Room at the end of `buffer`, if there is that much.
    #[inline]
    pub(super) fn new(buffer: &'a mut Buffer, bytes_max: usize, behind: Option<u32>) -> Option<Slot<'a>> {
        (buffer.bytes.len() - buffer.used >= bytes_max).then_some(Slot { buffer, bytes_max, behind })
    }

    /// Appends the first `bytes` bytes of the slot as a packet; none if `bytes` is 0.
    ///
    /// # Panics
    /// If that is more than was reserved.
    #[inline]
    pub fn commit(self, bytes: usize) {
        assert!(bytes <= self.bytes_max, "{bytes} bytes were written into room for {}", self.bytes_max);
        if bytes > 0 {
            self.buffer.sizes.push(bytes as u16);
            self.buffer.behind.extend(self.behind);
            self.buffer.used += bytes;
        }
    }

    /// Appends a packet one bit of which flips after it was sealed, as on a bad wire.
    pub(crate) fn commit_damaged(self, bytes: usize, bit: u32) {
        self.buffer.damage.push((self.buffer.sizes.len(), bit));
        self.commit(bytes);
    }
}

impl Deref for Slot<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer.bytes[self.buffer.used..self.buffer.used + self.bytes_max]
    }
}

impl DerefMut for Slot<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.bytes[self.buffer.used..self.buffer.used + self.bytes_max]
    }
}

/// Flips one bit, counted from the first byte's lowest and round again past the end.
fn flip(packet: &mut [u8], bit: u32) {
    let bit = bit as usize % (packet.len() * 8);
    packet[bit / 8] ^= 1 << (bit % 8);
}
