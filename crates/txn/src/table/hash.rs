//! MICA's lossless table as FaSST uses it (FaSST §5): buckets of seven slots, chains of overflow buckets, values beside them.
//!
//! **Lock and version are per key.** FaSST keeps one header per bucket, which is smaller, but then two keys of one transaction can share
//! a version, and "was this record applied?" has no answer after a crash; and unrelated keys conflict. Thirty-two bytes a slot more
//! buy both.
//!
//! Transaction locks are words of a row and last for a whole transaction. The sequence lock of a bucket is another matter: it guards the
//! bucket's words for the length of one operation.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::AtomicUsize;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use crate::id::{Key, NodeId, Txid, Version, mix};
use crate::sync::{AtomicU64, Ordering};

use super::pool::Pool;
use super::seqlock::SeqLock;
use super::{Entry, Floors, Lock, Mode, Row, Usage, VALUE_BYTES_MAX, refusal, room};

const SLOTS: usize = 7;
/// A bucket's words, by lines of the processor's cache: the link and the keys, of which the last spills into the second line; headers and
/// values of three slots; those of four; the owners, which only locks need. Looking a key up touches two lines, or three.
const BUCKET_WORDS: usize = 39;
/// Word 0 links to the next bucket of the chain: index + 1, or 0.
const LINK: usize = 0;
const KEYS: usize = 1;
const OWNERS: usize = 23;

const LOCKED: u64 = 1 << 63;

/// The value word: whether the slot is taken, whether the key is present, whether it was never written, the value's length and its block.
const OCCUPIED: u64 = 1 << 63;
const PRESENT: u64 = 1 << 62;
const FRESH: u64 = 1 << 61;
const LENGTH_SHIFT: u32 = 32;
const LENGTH_MASK: u64 = (1 << 20) - 1;

/// Value blocks of 1, 2, 4 … 512 words.
const CLASSES: usize = 10;

/// An unordered table. All methods may be called by all threads.
pub struct HashTable {
    heads: Box<[Head]>,
    overflow: Pool,
    values: [Pool; CLASSES],
    /// Slots that are taken.
    rows: AtomicUsize,
    tombstones: AtomicUsize,
    rows_max: usize,
    /// The version of keys without a row, for readers, which take no lock.
    absent: AtomicU64,
    floors: RwLock<HashFloors>,
}

/// Changed by what makes a fresh row or ends one, and by what reclaims rows.
#[derive(Default)]
struct HashFloors {
    floors: Floors,
    /// How many fresh rows there are, by the floor at which they were locked.
    fresh: BTreeMap<Version, usize>,
}

/// The first bucket of a chain, and the lock of the whole chain.
#[repr(C, align(64))]
struct Head {
    lock: SeqLock,
    words: [AtomicU64; BUCKET_WORDS],
}

impl Head {
    fn new() -> Head {
        Head { lock: SeqLock::new(), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// One of a bucket's slots.
#[derive(Clone, Copy)]
struct Slot<'a> {
    bucket: &'a [AtomicU64; BUCKET_WORDS],
    index: usize,
}

impl<'a> Slot<'a> {
    fn key(self) -> &'a AtomicU64 {
        &self.bucket[KEYS + self.index]
    }

    /// Whether the row is locked, and its version.
    fn header(self) -> &'a AtomicU64 {
        &self.bucket[self.state()]
    }

    fn value(self) -> &'a AtomicU64 {
        &self.bucket[self.state() + 1]
    }

    /// The first three slots' states fit into the second line, with a word to spare.
    fn state(self) -> usize {
        KEYS + SLOTS + 2 * self.index + usize::from(self.index >= 3)
    }

    fn owner(self) -> &'a AtomicU64 {
        &self.bucket[OWNERS + 2 * self.index]
    }

    fn owner_sequence(self) -> &'a AtomicU64 {
        &self.bucket[OWNERS + 2 * self.index + 1]
    }

    fn is_occupied(self) -> bool {
        self.value().load(Ordering::Relaxed) & OCCUPIED != 0
    }

    fn is_fresh(self) -> bool {
        self.value().load(Ordering::Relaxed) & FRESH != 0
    }

    fn is_tombstone(self) -> bool {
        self.value().load(Ordering::Relaxed) & (OCCUPIED | PRESENT | FRESH) == OCCUPIED
    }

    fn version(self) -> Version {
        self.header().load(Ordering::Relaxed) & !LOCKED
    }
}

/// Where a key is, or could be.
enum Place<'a> {
    Slot(Slot<'a>),
    Free(Slot<'a>),
    /// The chain is full; this is its last bucket.
    After(&'a [AtomicU64; BUCKET_WORDS]),
}

impl HashTable {
    /// A table for about `rows_max` keys; an insert beyond them is refused.
    pub fn new(rows_max: usize) -> HashTable {
        let buckets = rows_max.div_ceil(SLOTS - 2).max(1);
        HashTable {
            heads: (0..buckets).map(|_| Head::new()).collect(),
            overflow: Pool::new(BUCKET_WORDS),
            values: std::array::from_fn(|class| Pool::new(1 << class)),
            rows: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
            rows_max,
            absent: AtomicU64::new(0),
            floors: RwLock::default(),
        }
    }

    /// Reads a word of each line that a look-up of the key reads. Loads of several keys do not depend on one
    /// another, so the processor waits for all of them at the same time.
    pub(super) fn touch(&self, key: Key) {
        let words = &self.heads[self.bucket_of(key)].words;
        let lines = [LINK, KEYS + SLOTS - 1, KEYS + 2 * SLOTS];
        black_box(lines.map(|word| words[word].load(Ordering::Relaxed)));
    }

    pub(super) fn row(&self, key: Key) -> Row {
        let bucket = self.bucket_of(key);
        self.heads[bucket].lock.read(|| match self.find(bucket, key)? {
            Place::Slot(slot) => self.row_of(slot),
            _ => Some(self.absent_row()),
        })
    }

    pub(super) fn lock(&self, key: Key, owner: Txid, mode: Mode) -> Lock {
        let bucket = self.bucket_of(key);
        let _guard = self.heads[bucket].lock.write();
        let place = self.find(bucket, key).expect(STEADY);
        let (row, is_there) = match place {
            Place::Slot(slot) => (self.row_of(slot).expect(STEADY), true),
            _ => (Row::default(), false),
        };
        if row.owner.is_some_and(|holder| holder != owner) {
            return Lock::Held;
        }
        if let Some(refused) = refusal(mode, row.value.is_some()) {
            return refused;
        }
        if mode == Mode::Insert
            && row.owner.is_none()
            && let Some(refused) = room(self.usage(), self.rows_max, is_there)
        {
            return refused;
        }
        let slot = self.take(place, key);
        if !is_there {
            let mut floors = self.floors_mut();
            let floor = floors.floors.absent;
            *floors.fresh.entry(floor).or_insert(0) += 1;
            slot.header().store(floor, Ordering::Relaxed);
            slot.value().store(OCCUPIED | FRESH, Ordering::Relaxed);
        }
        set_owner(slot, Some(owner));
        Lock::Granted(self.row_of(slot).expect(STEADY))
    }

    pub(super) fn unlock(&self, key: Key, owner: Txid) -> bool {
        let bucket = self.bucket_of(key);
        let _guard = self.heads[bucket].lock.write();
        let Some(Place::Slot(slot)) = self.find(bucket, key) else { return false };
        if owner_of(slot) != Some(owner) {
            return false;
        }
        self.release(slot);
        true
    }

    pub(super) fn apply(&self, key: Key, version: Version, value: Option<&[u8]>, owner: Txid) -> bool {
        let bucket = self.bucket_of(key);
        let _guard = self.heads[bucket].lock.write();
        let place = self.find(bucket, key).expect(STEADY);
        let (stored, was_tombstone) = match place {
            Place::Slot(slot) => (slot.version(), slot.is_tombstone()),
            _ => (0, false),
        };
        let newer = version > stored;
        if newer {
            let slot = self.take(place, key);
            if slot.is_fresh() {
                self.end_fresh(stored);
            }
            self.store(slot, value);
            match (was_tombstone, value.is_none()) {
                (false, true) => drop(self.tombstones.fetch_add(1, Ordering::Relaxed)),
                (true, false) => drop(self.tombstones.fetch_sub(1, Ordering::Relaxed)),
                _ => {}
            }
            let lock = slot.header().load(Ordering::Relaxed) & LOCKED;
            slot.header().store(lock | version, Ordering::Relaxed);
            if owner_of(slot) == Some(owner) {
                set_owner(slot, None);
            }
        } else if let Place::Slot(slot) = place
            && owner_of(slot) == Some(owner)
        {
            self.release(slot);
        }
        newer
    }

    pub(super) fn release_locks(&self) {
        for bucket in 0..self.heads.len() {
            let _guard = self.heads[bucket].lock.write();
            for chained in self.chain(bucket) {
                for slot in slots(chained).filter(|slot| owner_of(*slot).is_some()) {
                    self.release(slot);
                }
            }
        }
    }

    pub(super) fn page(&self, cursor: u64, at_least: usize) -> (Vec<Entry>, Option<u64>) {
        let mut entries = Vec::new();
        for bucket in usize::try_from(cursor).unwrap_or(usize::MAX).min(self.heads.len())..self.heads.len() {
            if entries.len() >= at_least {
                return (entries, Some(bucket as u64));
            }
            entries.extend(self.heads[bucket].lock.read(|| {
                let mut found = Vec::new();
                for slot in self.chain(bucket).take(HOPS_MAX).flat_map(slots) {
                    let (key, row) = (slot.key().load(Ordering::Relaxed), self.row_of(slot)?);
                    if !slot.is_fresh() {
                        found.push(Entry { key, version: row.version, value: row.value });
                    }
                }
                Some(found)
            }));
        }
        (entries, None)
    }

    pub(super) fn usage(&self) -> Usage {
        let tombstones = self.tombstones.load(Ordering::Relaxed);
        let live = self.rows.load(Ordering::Relaxed).saturating_sub(tombstones);
        Usage { live: live as u64, tombstones: tombstones as u64 }
    }

    pub(super) fn floors(&self) -> Floors {
        self.floors_mut().floors
    }

    pub(super) fn tombstones(&self, cursor: u64, most: usize) -> (Vec<(Key, Version)>, Option<u64>) {
        let mut found = Vec::new();
        let first = usize::try_from(cursor).unwrap_or(usize::MAX).min(self.heads.len());
        for bucket in first..self.heads.len() {
            if found.len() >= most || bucket - first >= BUCKETS_PER_LOOK {
                return (found, Some(bucket as u64));
            }
            let _guard = self.heads[bucket].lock.write();
            let free = self.chain(bucket).flat_map(slots).filter(|slot| owner_of(*slot).is_none());
            let free = free.filter(|slot| slot.is_tombstone());
            found.extend(free.map(|slot| (slot.key().load(Ordering::Relaxed), slot.version())));
        }
        (found, None)
    }

    pub(super) fn raise(&self, floor: Version) {
        let mut floors = self.floors_mut();
        floors.floors.absent = floors.floors.absent.max(floor);
        self.absent.store(floors.floors.absent, Ordering::Relaxed);
    }

    pub(super) fn is_drained(&self, floor: Version) -> bool {
        self.floors_mut().fresh.range(..floor).next().is_none()
    }

    pub(super) fn set_owner(&self, key: Key, owner: Txid) -> bool {
        let bucket = self.bucket_of(key);
        let _guard = self.heads[bucket].lock.write();
        let Some(Place::Slot(slot)) = self.find(bucket, key) else { return false };
        let is_free = owner_of(slot).is_none();
        if is_free {
            set_owner(slot, Some(owner));
        }
        is_free
    }

    pub(super) fn has_row(&self, key: Key) -> bool {
        let bucket = self.bucket_of(key);
        let _guard = self.heads[bucket].lock.write();
        matches!(self.find(bucket, key), Some(Place::Slot(slot)) if !slot.is_fresh())
    }

    pub(super) fn reclaim(&self, rows: &[(Key, Version)], floor: Version) {
        self.set_reclaimed(floor);
        for &(key, version) in rows {
            let bucket = self.bucket_of(key);
            let _guard = self.heads[bucket].lock.write();
            if let Some(Place::Slot(slot)) = self.find(bucket, key)
                && slot.is_tombstone()
                && slot.version() == version
            {
                self.free_tombstone(slot);
            }
        }
    }

    pub(super) fn set_reclaimed(&self, floor: Version) -> bool {
        let mut floors = self.floors_mut();
        let was_lower = floors.floors.reclaimed < floor;
        floors.floors.reclaimed(floor);
        self.absent.store(floors.floors.absent, Ordering::Relaxed);
        was_lower
    }

    pub(super) fn drop_reclaimed(&self) {
        let floor = self.floors().reclaimed;
        if floor == 0 || self.tombstones.load(Ordering::Relaxed) == 0 {
            return;
        }
        for bucket in 0..self.heads.len() {
            let _guard = self.heads[bucket].lock.write();
            for slot in self.chain(bucket).flat_map(slots) {
                if slot.is_tombstone() && slot.version() <= floor {
                    self.free_tombstone(slot);
                }
            }
        }
    }

    fn absent_row(&self) -> Row {
        Row { version: self.absent.load(Ordering::Relaxed), ..Row::default() }
    }

    fn end_fresh(&self, floor: Version) {
        let mut floors = self.floors_mut();
        if let Some(count) = floors.fresh.get_mut(&floor) {
            *count -= 1;
            if *count == 0 {
                floors.fresh.remove(&floor);
            }
        }
    }

    fn floors_mut(&self) -> RwLockWriteGuard<'_, HashFloors> {
        self.floors.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn locks(&self) -> usize {
        let held = |bucket: usize| {
            self.heads[bucket].lock.read(|| {
                let all = self.chain(bucket).take(HOPS_MAX).flat_map(slots);
                Some(all.filter(|slot| owner_of(*slot).is_some()).count())
            })
        };
        (0..self.heads.len()).map(held).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        let values: usize = self.values.iter().map(Pool::bytes).sum();
        size_of_val(&*self.heads) + self.overflow.bytes() + values
    }

    fn bucket_of(&self, key: Key) -> usize {
        ((u128::from(mix(key)) * self.heads.len() as u128) >> 64) as usize
    }

    /// The buckets of a chain. To a racing reader it may seem longer than it is.
    fn chain(&self, bucket: usize) -> impl Iterator<Item = &[AtomicU64; BUCKET_WORDS]> {
        std::iter::successors(Some(&self.heads[bucket].words), |words| {
            let next = words[LINK].load(Ordering::Relaxed).checked_sub(1)?;
            self.overflow.try_block(next as u32)?.try_into().ok()
        })
    }

    /// `None` if the chain seems endless, as it may to a racing reader.
    fn find(&self, bucket: usize, key: Key) -> Option<Place<'_>> {
        let mut free = None;
        let mut last = None;
        for words in self.chain(bucket).take(HOPS_MAX) {
            for slot in all_slots(words) {
                if slot.key().load(Ordering::Relaxed) == key && slot.is_occupied() {
                    return Some(Place::Slot(slot));
                }
            }
            free = free.or_else(|| all_slots(words).find(|slot| !slot.is_occupied()));
            last = Some(words);
        }
        let last = last.filter(|words| words[LINK].load(Ordering::Relaxed) == 0)?;
        Some(free.map_or(Place::After(last), Place::Free))
    }

    /// The key's slot, new if it had none.
    fn take<'a>(&'a self, place: Place<'a>, key: Key) -> Slot<'a> {
        let slot = match place {
            Place::Slot(slot) => return slot,
            Place::Free(slot) => slot,
            Place::After(last) => {
                let index = self.overflow.allocate();
                let words = self.overflow.block(index).try_into().expect("blocks of this pool are buckets");
                let slot = Slot { bucket: words, index: 0 };
                words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                last[LINK].store(u64::from(index) + 1, Ordering::Relaxed);
                slot
            }
        };
        self.rows.fetch_add(1, Ordering::Relaxed);
        slot.key().store(key, Ordering::Relaxed);
        slot.header().store(0, Ordering::Relaxed);
        slot.value().store(OCCUPIED, Ordering::Relaxed);
        slot
    }

    /// Unlocks; a row that was never written goes.
    fn release(&self, slot: Slot<'_>) {
        set_owner(slot, None);
        if slot.is_fresh() {
            self.end_fresh(slot.version());
            self.free(slot);
        }
    }

    fn free(&self, slot: Slot<'_>) {
        slot.value().store(0, Ordering::Relaxed);
        self.rows.fetch_sub(1, Ordering::Relaxed);
    }

    fn free_tombstone(&self, slot: Slot<'_>) {
        set_owner(slot, None);
        self.tombstones.fetch_sub(1, Ordering::Relaxed);
        self.free(slot);
    }

    fn row_of(&self, slot: Slot<'_>) -> Option<Row> {
        let word = slot.value().load(Ordering::Relaxed);
        let value = if word & PRESENT == 0 { None } else { Some(self.load(word)?) };
        let header = slot.header().load(Ordering::Relaxed);
        Some(Row { version: header & !LOCKED, owner: owner_of(slot), value })
    }

    fn load(&self, word: u64) -> Option<Vec<u8>> {
        let length = (word >> LENGTH_SHIFT & LENGTH_MASK) as usize;
        let Some(class) = class_of(length) else { return (length == 0).then(Vec::new) };
        let block = self.values[class].try_block(word as u32)?;
        let mut bytes = vec![0; length.next_multiple_of(8)];
        for (eight, word) in bytes.chunks_exact_mut(8).zip(block) {
            eight.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes.truncate(length);
        Some(bytes)
    }

    /// Puts a value in the place of the old one: in the same block if that has the size, since readers that
    /// race with the write look again.
    fn store(&self, slot: Slot<'_>, value: Option<&[u8]>) {
        let old = slot.value().load(Ordering::Relaxed);
        let old_class =
            if old & PRESENT == 0 { None } else { class_of((old >> LENGTH_SHIFT & LENGTH_MASK) as usize) };
        let mut word = OCCUPIED;
        let mut class = None;
        if let Some(bytes) = value {
            assert!(bytes.len() <= VALUE_BYTES_MAX, "a value of {} bytes got past its check", bytes.len());
            word |= PRESENT | (bytes.len() as u64) << LENGTH_SHIFT;
            class = class_of(bytes.len());
            if let Some(class) = class {
                let pool = &self.values[class];
                let index = if old_class == Some(class) { old as u32 } else { pool.allocate() };
                for (chunk, target) in bytes.chunks(8).zip(pool.block(index)) {
                    let mut padded = [0; 8];
                    padded[..chunk.len()].copy_from_slice(chunk);
                    target.store(u64::from_le_bytes(padded), Ordering::Relaxed);
                }
                word |= u64::from(index);
            }
        }
        slot.value().store(word, Ordering::Relaxed);
        if let Some(old_class) = old_class.filter(|_| old_class != class) {
            self.values[old_class].release(old as u32);
        }
    }
}

/// A search for tombstones looks at so many buckets at a time: the node has other work.
const BUCKETS_PER_LOOK: usize = 1024;
/// Only a racing reader can see a longer chain.
const HOPS_MAX: usize = 1 << 20;
const STEADY: &str = "the bucket is steady under its own lock";

fn class_of(length: usize) -> Option<usize> {
    let class = length.div_ceil(8).checked_next_power_of_two()?.ilog2() as usize;
    (length > 0 && class < CLASSES).then_some(class)
}

fn all_slots(bucket: &[AtomicU64; BUCKET_WORDS]) -> impl Iterator<Item = Slot<'_>> {
    (0..SLOTS).map(move |index| Slot { bucket, index })
}

fn slots(bucket: &[AtomicU64; BUCKET_WORDS]) -> impl Iterator<Item = Slot<'_>> {
    all_slots(bucket).filter(|slot| slot.is_occupied())
}

fn owner_of(slot: Slot<'_>) -> Option<Txid> {
    if slot.header().load(Ordering::Relaxed) & LOCKED == 0 {
        // The owners have lines of their own, which most reads need not wait for.
        return None;
    }
    let place = slot.owner().load(Ordering::Relaxed);
    let sequence = slot.owner_sequence().load(Ordering::Relaxed);
    Some(Txid { node: NodeId((place >> 16) as u16), worker: place as u16, sequence })
}

fn set_owner(slot: Slot<'_>, owner: Option<Txid>) {
    let version = slot.header().load(Ordering::Relaxed) & !LOCKED;
    if let Some(owner) = owner {
        slot.owner().store(u64::from(owner.node.0) << 16 | u64::from(owner.worker), Ordering::Relaxed);
        slot.owner_sequence().store(owner.sequence, Ordering::Relaxed);
    }
    slot.header().store(if owner.is_some() { version | LOCKED } else { version }, Ordering::Relaxed);
}
