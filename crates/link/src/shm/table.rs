//! Tables that an engine publishes and its peers read without a lock.
//!
//! ```text
//!  0  sequence u64: odd while the owner writes the entry (a seqlock)
//!  8  key u32 (QPN or rkey), state u32: 0 never used, 1 live, 2 removed
//! 16  body, 48 bytes
//!       QP   pd u32, access u32 · peer_qpn u32, ready u32 · peer gid, 16 bytes · segments of the receive ring u32 and of the
//!            completion ring behind it u32: see the door
//!       MR   pd u32, access u32 · iova u64 · length u64 · segment u32, bound_qpn u32 · offset u64 ·
//!            before u32, behind u32: bytes at either end that are not in the segment
//! ```
//!
//! An entry lies at most [`PROBES`] slots behind its key's hash. Where that is full, the entry stays unpublished, and
//! peers fall back to packets. The owner keeps a list of its own of the entries' places, because peers may
//! overwrite the shared table.

use std::sync::atomic::{Ordering, fence};

use highwire_shmem::Window;

use super::layout::{ENTRY_BYTES, gid_bytes, gid_words};

/// How far an entry may lie from where its key hashes to.
const PROBES: u32 = 16;

/// How often a reader looks again while the owner writes. An owner that died while writing leaves it odd for ever.
const READ_ATTEMPTS: u32 = 64;

const NEVER_USED: u32 = 0;
const LIVE: u32 = 1;
const REMOVED: u32 = 2;

/// What peers may do: the bits of `ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    /// WRITE.
    pub const REMOTE_WRITE: Access = Access(2);
    /// READ.
    pub const REMOTE_READ: Access = Access(4);
    /// Compare-and-swap, fetch-and-add.
    pub const REMOTE_ATOMIC: Access = Access(8);

    /// Whether every bit of `other` is set.
    #[inline]
    pub fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Access {
    type Output = Access;

    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// A queue pair that a peer may address directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedQueuePair {
    /// Its protection domain, as a number.
    pub pd: u32,
    /// The peer's rights, from the queue pair's attributes.
    pub access: Access,
    /// The only QP that may address it.
    pub peer_qpn: u32,
    /// The GID of that QP's engine.
    pub peer_gid: [u8; 16],
    /// Whether its state lets a responder work: RTR, RTS or SQD.
    pub ready: bool,
    /// Where a guest of the same engine finds its receives and where they complete.
    pub receives: PublishedReceives,
}

/// Rings of a queue pair that its peer may complete receives in, as numbers of segments; 0 if it may not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishedReceives {
    /// The receive ring.
    pub ring: u32,
    /// The completion ring of receives.
    pub completions: u32,
}

/// A memory region or type 2 window that peers may address directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedRegion {
    /// Its protection domain, as a number.
    pub pd: u32,
    /// The rights that it grants.
    pub access: Access,
    /// The virtual address of its first byte, as peers name it.
    pub iova: u64,
    /// Bytes.
    pub length: u64,
    /// The segment it lies in, `mem-<segment>`; 0 if in none.
    pub segment: u32,
    /// Where in the segment the first byte that lies there is.
    pub offset: u64,
    /// Bytes at its beginning that do not lie in the segment, and are reached with packets.
    pub before: u32,
    /// The same at its end.
    pub behind: u32,
    /// The only local QP through which it may be used (type 2B windows); 0 for any.
    pub bound_qpn: u32,
}

/// The forty-eight bytes behind the key.
pub(super) type Body = [u64; 6];

/// An entry of a table.
pub(super) trait Entry: Sized {
    fn encode(&self) -> Body;
    fn decode(body: &Body) -> Self;
}

/// Where a table lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) offset: usize,
    /// A power of two.
    pub(super) slots: u32,
}

impl Place {
    #[inline]
    fn home(self, key: u32) -> u32 {
        // The high bits of a multiplicative hash; keys are random anyway, but need not be.
        ((u64::from(key.wrapping_mul(0x9E37_79B1)) * u64::from(self.slots)) >> 32) as u32
    }

    #[inline]
    fn slot(self, key: u32, probe: u32) -> u32 {
        self.home(key).wrapping_add(probe) & (self.slots - 1)
    }

    #[inline]
    fn at(self, slot: u32) -> usize {
        self.offset + slot as usize * ENTRY_BYTES
    }

    #[inline]
    fn probes(self) -> u32 {
        PROBES.min(self.slots)
    }
}

/// Finds a live entry in another process's table. `None` also if the owner never finishes writing it.
#[inline]
pub(super) fn find<E: Entry>(window: &Window, place: Place, key: u32) -> Option<E> {
    let wanted = u64::from(key) | u64::from(LIVE) << 32;
    for probe in 0..place.probes() {
        let at = place.at(place.slot(key, probe));
        let found = window.u64_at(at + 8).load(Ordering::Relaxed);
        if found == wanted {
            return read(window, at, wanted);
        }
        if (found >> 32) as u32 == NEVER_USED {
            return None;
        }
    }
    None
}

#[inline]
fn read<E: Entry>(window: &Window, at: usize, wanted: u64) -> Option<E> {
    for _ in 0..READ_ATTEMPTS {
        let before = window.u64_at(at).load(Ordering::Acquire);
        let [key, body @ ..] = window.load_words_relaxed::<7>(at + 8);
        // The loads above stay above: pairs with the owner's Release fence and store.
        fence(Ordering::Acquire);
        if before & 1 == 0 && window.u64_at(at).load(Ordering::Relaxed) == before {
            return (key == wanted).then(|| E::decode(&body));
        }
        std::hint::spin_loop();
    }
    None
}

/// The owner's side of a table.
#[derive(Debug)]
pub(super) struct TableWriter {
    window: Window,
    place: Place,
    slots: Vec<Owned>,
}

/// The owner's record of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Owned {
    key: u32,
    state: u32,
    sequence: u64,
}

impl TableWriter {
    pub(super) fn new(window: &Window, place: Place) -> TableWriter {
        TableWriter { window: window.clone(), place, slots: vec![Owned::default(); place.slots as usize] }
    }

    /// Adds an entry or replaces the one with this key; false if there is no room near its hash.
    pub(super) fn insert(&mut self, key: u32, entry: &impl Entry) -> bool {
        let candidates = |table: &TableWriter| {
            let free = (0..table.place.probes())
                .map(|probe| table.place.slot(key, probe))
                .find(|&slot| table.slots[slot as usize].state != LIVE);
            table.position(key).or(free)
        };
        let Some(slot) = candidates(self) else { return false };
        self.write(slot, key, LIVE, &entry.encode());
        true
    }

    /// Removes an entry; false if there is none.
    pub(super) fn remove(&mut self, key: u32) -> bool {
        let Some(slot) = self.position(key) else { return false };
        self.write(slot, key, REMOVED, &[0; 6]);
        self.sweep(slot);
        true
    }

    pub(super) fn contains(&self, key: u32) -> bool {
        self.position(key).is_some()
    }

    fn position(&self, key: u32) -> Option<u32> {
        (0..self.place.probes()).map(|probe| self.place.slot(key, probe)).find(|&slot| {
            let owned = self.slots[slot as usize];
            owned.state == LIVE && owned.key == key
        })
    }

    /// Removed entries that nothing lies behind become unused again, so that searches for absent keys stay short.
    fn sweep(&mut self, mut slot: u32) {
        let last = self.place.slots - 1;
        while self.slots[slot as usize].state == REMOVED
            && self.slots[(slot.wrapping_add(1) & last) as usize].state == NEVER_USED
        {
            self.write(slot, 0, NEVER_USED, &[0; 6]);
            slot = slot.wrapping_sub(1) & last;
        }
    }

    fn write(&mut self, slot: u32, key: u32, state: u32, body: &Body) {
        let owned = &mut self.slots[slot as usize];
        let at = self.place.at(slot);
        self.window.u64_at(at).store(owned.sequence + 1, Ordering::Relaxed);
        // The odd number is visible before any of the new words.
        fence(Ordering::Release);
        self.window.u64_at(at + 8).store(u64::from(key) | u64::from(state) << 32, Ordering::Relaxed);
        self.window.store_words_relaxed(at + 16, body);
        *owned = Owned { key, state, sequence: owned.sequence + 2 };
        self.window.u64_at(at).store(owned.sequence, Ordering::Release);
    }
}

impl Entry for PublishedQueuePair {
    fn encode(&self) -> Body {
        let (low, high) = gid_words(self.peer_gid);
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let files = pair(self.receives.ring, self.receives.completions);
        [pair(self.pd, self.access.0), pair(self.peer_qpn, u32::from(self.ready)), low, high, files, 0]
    }

    #[inline]
    fn decode(body: &Body) -> PublishedQueuePair {
        PublishedQueuePair {
            pd: body[0] as u32,
            access: Access((body[0] >> 32) as u32),
            peer_qpn: body[1] as u32,
            ready: body[1] >> 32 == 1,
            peer_gid: gid_bytes(body[2], body[3]),
            receives: PublishedReceives { ring: body[4] as u32, completions: (body[4] >> 32) as u32 },
        }
    }
}

impl Entry for PublishedRegion {
    fn encode(&self) -> Body {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let place = pair(self.segment, self.bound_qpn);
        let ends = pair(self.before, self.behind);
        [pair(self.pd, self.access.0), self.iova, self.length, place, self.offset, ends]
    }

    #[inline]
    fn decode(body: &Body) -> PublishedRegion {
        PublishedRegion {
            pd: body[0] as u32,
            access: Access((body[0] >> 32) as u32),
            iova: body[1],
            length: body[2],
            segment: body[3] as u32,
            bound_qpn: (body[3] >> 32) as u32,
            offset: body[4],
            before: body[5] as u32,
            behind: (body[5] >> 32) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_shmem::Segment;
    use highwire_stdx::Rng;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn region(length: u64) -> PublishedRegion {
        PublishedRegion {
            pd: 7,
            access: Access::REMOTE_READ,
            iova: length * 3,
            length,
            segment: 1,
            offset: length * 64,
            before: 3,
            behind: length as u32,
            bound_qpn: 0,
        }
    }

    #[test]
    fn a_table_agrees_with_a_map_whatever_comes_and_goes() {
        let place = Place { offset: 64, slots: 64 };
        let window = Window::whole(&Arc::new(Segment::heap(64 + 64 * ENTRY_BYTES)));
        let mut table = TableWriter::new(&window, place);
        let mut model = BTreeMap::new();
        let mut rng = Rng::new(5);
        for step in 0..20_000 {
            let key = rng.below(200) as u32;
            if rng.chance(0.5) {
                if table.insert(key, &region(step)) {
                    model.insert(key, step);
                } else {
                    assert!(!model.contains_key(&key), "an entry that is there can always be replaced");
                }
            } else {
                assert_eq!(table.remove(key), model.remove(&key).is_some());
            }
            let probe = rng.below(200) as u32;
            assert_eq!(find(&window, place, probe), model.get(&probe).map(|&length| region(length)));
            assert_eq!(table.contains(probe), model.contains_key(&probe));
        }
    }

    #[test]
    fn an_entry_whose_owner_died_while_writing_is_not_there() {
        let place = Place { offset: 0, slots: 16 };
        let window = Window::whole(&Arc::new(Segment::heap(16 * ENTRY_BYTES)));
        let mut table = TableWriter::new(&window, place);
        assert!(table.insert(9, &region(1)));
        let at = place.at(table.position(9).unwrap());
        window.u64_at(at).store(3, Ordering::Relaxed);
        assert_eq!(find::<PublishedRegion>(&window, place, 9), None);
    }
}
