//! The event queue: a timing wheel whose cost does not grow with the number of events.
//!
//! Most events of a network lie a packet's length or a link's delay ahead, so a ring of narrow buckets holds them: linked
//! lists in one pool, with a bitmap to find the next occupied one. Later events wait in a coarse ring, and
//! rare far ones in a heap; both move into the fine ring when their time comes near. A bucket is sorted when
//! it is opened.
//!
//! Invariant: events leave in the order of (time, key), no matter in which order they came; so a run depends on what happens,
//! not on how the queue, or a partition of it, stores it. Equal events are indistinguishable.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Time;

const NONE: u32 = u32::MAX;
const COARSE_SLOTS: u64 = 1024;

#[derive(Clone, Copy)]
struct Node {
    time: u64,
    key: u32,
    next: u32,
}

/// Events to come, each a time and a 32-bit key.
pub struct EventQueue {
    /// log2 of a bucket's width in picoseconds.
    width_log2: u32,
    /// log2 of the number of buckets.
    count_log2: u32,
    heads: Vec<u32>,
    occupied: Bitmap,
    /// Number of the open bucket. Bucket `b` begins at time `(b - 1) << width_log2`, so that no bucket has
    /// number 0.
    cursor: u64,
    /// What is left of the open bucket, latest first: time within the bucket above the key.
    open: Vec<u64>,
    nodes: Vec<Node>,
    free: u32,
    coarse_heads: Vec<u32>,
    coarse_occupied: Bitmap,
    far: BinaryHeap<Reverse<(u64, u32)>>,
    /// First bucket of the earliest coarse slot that holds something, in the coarse ring or the heap.
    coarse_next: u64,
    now: u64,
    len: usize,
}

impl EventQueue {
    /// A queue of `2^count_log2` buckets, each `2^width_log2` picoseconds wide.
    ///
    /// # Panics
    /// If a bucket were wider than 2^32 ps, or there were fewer than 2^6 or more than 2^24 buckets.
    pub fn new(width_log2: u32, count_log2: u32) -> EventQueue {
        assert!(width_log2 <= 32 && (6..=24).contains(&count_log2), "an event queue of an impossible shape");
        EventQueue {
            width_log2,
            count_log2,
            heads: vec![NONE; 1 << count_log2],
            occupied: Bitmap::new(1 << count_log2),
            cursor: 0,
            open: Vec::with_capacity(64),
            nodes: Vec::new(),
            free: NONE,
            coarse_heads: vec![NONE; COARSE_SLOTS as usize],
            coarse_occupied: Bitmap::new(COARSE_SLOTS),
            far: BinaryHeap::new(),
            coarse_next: u64::MAX,
            now: 0,
            len: 0,
        }
    }

    /// The time of the event taken last, or the limit up to which events were asked for.
    pub fn now(&self) -> Time {
        Time::from_ps(self.now)
    }

    /// How many events are to come.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no event is to come.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event.
    ///
    /// # Panics
    /// If it lies in the past.
    #[inline]
    pub fn push(&mut self, time: Time, key: u32) {
        let time = time.as_ps();
        assert!(time >= self.now, "an event in the past: {time} ps at {} ps", self.now);
        self.len += 1;
        let bucket = (time >> self.width_log2) + 1;
        let ahead = bucket - self.cursor;
        if ahead == 0 {
            self.insert_open(time, key);
        } else if ahead <= 1 << self.count_log2 {
            self.insert_fine(bucket, time, key);
        } else {
            self.insert_coarse(bucket, time, key);
        }
    }

    /// Takes the next event if it is not later than `limit`; otherwise time advances to `limit`.
    #[inline]
    pub fn pop(&mut self, limit: Time) -> Option<(Time, u32)> {
        let limit = limit.as_ps();
        if self.open.is_empty() && !self.open_next(limit) {
            return self.wait_until(limit);
        }
        let entry = *self.open.last().expect("an opened bucket holds something");
        let time = self.time_of(entry);
        if time > limit {
            return self.wait_until(limit);
        }
        self.open.pop();
        self.len -= 1;
        self.now = time;
        Some((Time::from_ps(time), entry as u32))
    }

    /// The key of the `n`th event from now, if it is near enough to be known already.
    #[inline]
    pub(crate) fn peek(&self, n: usize) -> Option<u32> {
        let at = self.open.len().checked_sub(1 + n)?;
        Some(self.open[at] as u32)
    }

    /// Advances time to `limit`, up to which there is no event. Without a limit, time stays.
    #[cold]
    fn wait_until(&mut self, limit: u64) -> Option<(Time, u32)> {
        if limit != u64::MAX {
            self.now = self.now.max(limit);
        }
        None
    }

    /// A time at or before the next event and not in the past; [`Time::NEVER`] if there is none.
    pub(crate) fn next_not_before(&self) -> Time {
        if self.len == 0 {
            return Time::NEVER;
        }
        if let Some(&entry) = self.open.last() {
            return Time::from_ps(self.time_of(entry));
        }
        let mask = (1 << self.count_log2) - 1;
        let first = self.cursor + 1;
        let fine = self.occupied.next_from((first & mask) as usize);
        let fine = fine.map_or(u64::MAX, |index| first + ((index as u64).wrapping_sub(first) & mask));
        let start = (fine.min(self.coarse_next) - 1) << self.width_log2;
        Time::from_ps(start.max(self.now))
    }

    #[inline]
    fn time_of(&self, entry: u64) -> u64 {
        ((self.cursor - 1) << self.width_log2) + (entry >> 32)
    }

    #[inline]
    fn entry_of(&self, time: u64, key: u32) -> u64 {
        // A bucket of 2^32 ps still leaves room for its times above the key.
        (time & ((1 << self.width_log2) - 1)) << 32 | u64::from(key)
    }

    #[cold]
    fn insert_open(&mut self, time: u64, key: u32) {
        let entry = self.entry_of(time, key);
        let at = self.open.partition_point(|&e| e > entry);
        self.open.insert(at, entry);
    }

    #[inline]
    fn insert_fine(&mut self, bucket: u64, time: u64, key: u32) {
        let index = (bucket & ((1 << self.count_log2) - 1)) as usize;
        let next = self.heads[index];
        self.heads[index] = self.allocate(Node { time, key, next });
        if next == NONE {
            self.occupied.set(index);
        }
    }

    #[cold]
    fn insert_coarse(&mut self, bucket: u64, time: u64, key: u32) {
        let slot = bucket >> self.count_log2;
        self.coarse_next = self.coarse_next.min(slot << self.count_log2);
        if slot - (self.cursor >> self.count_log2) >= COARSE_SLOTS {
            self.far.push(Reverse((time, key)));
            return;
        }
        let index = (slot % COARSE_SLOTS) as usize;
        let next = self.coarse_heads[index];
        self.coarse_heads[index] = self.allocate(Node { time, key, next });
        self.coarse_occupied.set(index);
    }

    #[inline]
    fn allocate(&mut self, node: Node) -> u32 {
        if self.free == NONE {
            self.nodes.push(node);
            return (self.nodes.len() - 1) as u32;
        }
        let index = self.free;
        let place = &mut self.nodes[index as usize];
        self.free = place.next;
        *place = node;
        index
    }

    /// Opens the next occupied bucket, unless it begins after `limit`.
    #[inline]
    fn open_next(&mut self, limit: u64) -> bool {
        if self.len == 0 {
            return false;
        }
        let limit_bucket = (limit >> self.width_log2).saturating_add(1);
        loop {
            let mask = (1 << self.count_log2) - 1;
            let first = self.cursor + 1;
            let bucket = match self.occupied.next_from((first & mask) as usize) {
                Some(index) => first + ((index as u64).wrapping_sub(first) & mask),
                None => u64::MAX,
            };
            if self.coarse_next <= bucket {
                if self.coarse_next > limit_bucket {
                    return false;
                }
                self.pour();
                continue;
            }
            if bucket > limit_bucket {
                return false;
            }
            self.open_bucket(bucket);
            return true;
        }
    }

    #[inline]
    fn open_bucket(&mut self, bucket: u64) {
        let index = (bucket & ((1 << self.count_log2) - 1)) as usize;
        self.cursor = bucket;
        self.occupied.clear(index);
        let mut at = std::mem::replace(&mut self.heads[index], NONE);
        while at != NONE {
            let Node { time, key, next } = self.nodes[at as usize];
            let entry = self.entry_of(time, key);
            self.open.push(entry);
            self.nodes[at as usize].next = self.free;
            self.free = at;
            at = next;
        }
        if self.open.len() > 1 {
            sort_descending(&mut self.open);
        }
    }

    /// Moves the earliest coarse slot into the fine ring.
    #[cold]
    fn pour(&mut self) {
        let first = self.coarse_next;
        let slot = first >> self.count_log2;
        // One before the slot's first bucket, so that exactly its buckets lie ahead.
        self.cursor = first - 1;
        let index = (slot % COARSE_SLOTS) as usize;
        let mut at = std::mem::replace(&mut self.coarse_heads[index], NONE);
        self.coarse_occupied.clear(index);
        while at != NONE {
            let Node { time, key, next } = self.nodes[at as usize];
            self.nodes[at as usize].next = self.free;
            self.free = at;
            self.insert_fine((time >> self.width_log2) + 1, time, key);
            at = next;
        }
        let (width_log2, count_log2) = (self.width_log2, self.count_log2);
        let slot_of = |time: u64| ((time >> width_log2) + 1) >> count_log2;
        while let Some(&Reverse((time, key))) = self.far.peek().filter(|e| slot_of(e.0.0) == slot) {
            self.far.pop();
            self.insert_fine((time >> self.width_log2) + 1, time, key);
        }
        let near = self.coarse_occupied.next_from(((slot + 1) % COARSE_SLOTS) as usize);
        let near = near.map(|i| slot + 1 + ((i as u64).wrapping_sub(slot + 1) % COARSE_SLOTS));
        let far = self.far.peek().map(|e| slot_of(e.0.0));
        self.coarse_next = [near, far].into_iter().flatten().min().map_or(u64::MAX, |s| s << self.count_log2);
    }
}

#[inline]
fn sort_descending(entries: &mut [u64]) {
    if entries.len() > 20 {
        entries.sort_unstable_by_key(|&e| Reverse(e));
        return;
    }
    for i in 1..entries.len() {
        let entry = entries[i];
        let mut at = i;
        while at > 0 && entries[at - 1] < entry {
            entries[at] = entries[at - 1];
            at -= 1;
        }
        entries[at] = entry;
    }
}

/// A ring of bits with a summary above it: finds the next set one in a few steps.
struct Bitmap {
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl Bitmap {
    fn new(bits: u64) -> Bitmap {
        let words = bits.div_ceil(64) as usize;
        Bitmap { words: vec![0; words], summary: vec![0; words.div_ceil(64)] }
    }

    #[inline]
    fn set(&mut self, index: usize) {
        self.words[index / 64] |= 1 << (index % 64);
        self.summary[index / 4096] |= 1 << (index / 64 % 64);
    }

    #[inline]
    fn clear(&mut self, index: usize) {
        let word = &mut self.words[index / 64];
        *word &= !(1 << (index % 64));
        if *word == 0 {
            self.summary[index / 4096] &= !(1 << (index / 64 % 64));
        }
    }

    /// The first set bit at or after `from`, going once around.
    #[inline]
    fn next_from(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let here = self.words[word] & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let first = word / 64;
        let above = self.summary[first] & (u64::MAX << (word % 64)) & !(1 << (word % 64));
        let found = if above != 0 { Some((first, above)) } else { self.next_summary(first, word) };
        let (block, bits) = found?;
        let word = block * 64 + bits.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    fn next_summary(&self, first: usize, word: usize) -> Option<(usize, u64)> {
        let blocks = self.summary.len();
        let around = (1..blocks).map(|i| (first + i) % blocks).map(|b| (b, self.summary[b]));
        // Having gone around, what lies below the start is last, the starting word itself included.
        let below =
            self.summary[first] & !(u64::MAX << (word % 64)) | self.summary[first] & (1 << (word % 64));
        around.chain([(first, below)]).find(|&(_, bits)| bits != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use highwire_stdx::Rng;

    use super::*;

    /// The obvious queue: a tree of (time, key) with how often.
    #[derive(Default)]
    struct Model {
        events: BTreeMap<(u64, u32), u32>,
    }

    impl Model {
        fn push(&mut self, time: u64, key: u32) {
            *self.events.entry((time, key)).or_default() += 1;
        }

        fn pop(&mut self, limit: u64) -> Option<(u64, u32)> {
            let mut first = self.events.first_entry().filter(|e| e.key().0 <= limit)?;
            let key = *first.key();
            *first.get_mut() -= 1;
            if *first.get() == 0 {
                first.remove();
            }
            Some(key)
        }
    }

    fn check_against_model(seed: u64, width_log2: u32, count_log2: u32, spans: &[u64]) {
        let mut rng = Rng::new(seed);
        let (mut queue, mut model) = (EventQueue::new(width_log2, count_log2), Model::default());
        for step in 0..20_000 {
            if rng.chance(0.52) {
                let time = queue.now + rng.below(*rng.clone().pick(spans));
                rng.next_u64();
                let key = rng.below(50) as u32;
                queue.push(Time::from_ps(time), key);
                model.push(time, key);
            } else {
                let limit = if rng.chance(0.3) {
                    queue.now + rng.below(*rng.clone().pick(spans))
                } else {
                    u64::MAX - 1
                };
                rng.next_u64();
                let limit = if queue.is_empty() { queue.now + rng.below(1000) } else { limit };
                let got = queue.pop(Time::from_ps(limit)).map(|(t, k)| (t.as_ps(), k));
                assert_eq!(got, model.pop(limit), "seed {seed}, step {step}");
            }
            assert_eq!(queue.is_empty(), model.events.is_empty());
        }
        while let Some((time, key)) = queue.pop(Time::from_ps(u64::MAX - 1)) {
            assert_eq!(Some((time.as_ps(), key)), model.pop(u64::MAX), "seed {seed}, emptying");
        }
        assert!(model.events.is_empty());
    }

    #[test]
    fn agrees_with_a_tree() {
        let spans = [1, 100, 5_000, 300_000, 5_000_000, 400_000_000, 1 << 44];
        for seed in 0..12 {
            check_against_model(seed, 4, 6, &spans[..4 + seed as usize % 4]);
            check_against_model(seed, 0, 8, &spans);
            check_against_model(seed, 10, 14, &spans);
        }
    }

    #[test]
    fn equal_times_leave_by_key() {
        let mut queue = EventQueue::new(8, 10);
        for key in [5u32, 1, 9, 3] {
            queue.push(Time::from_ps(70), key);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(Time::from_ps(70)).map(|e| e.1)).collect();
        assert_eq!(order, [1, 3, 5, 9]);
    }

    #[test]
    #[should_panic(expected = "an event in the past")]
    fn the_past_is_closed() {
        let mut queue = EventQueue::new(8, 10);
        queue.pop(Time::from_ps(100));
        queue.push(Time::from_ps(99), 0);
    }
}
