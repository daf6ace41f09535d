//! Batches that are longer than a datagram: which parts have arrived, are in flight, or are lost.
//!
//! Order reveals loss: a part that is missing although others that were sent three or more later have arrived
//! is sent again, and only that one. Order cannot reveal the loss of the last parts; the requester's timeout
//! does.

use crate::wire::Part;

/// Parts sent later that must have arrived before an earlier one counts as lost: networks reorder a little.
const REORDERED_MAX: u32 = 3;

/// The parts of a batch that is being sent.
#[derive(Clone, Debug)]
pub(crate) struct PartsOut {
    total: u32,
    part_bytes: u16,
    /// When each part was sent last, as a count of sends; zero: never.
    sent: Vec<u32>,
    arrived: Vec<bool>,
    /// The first part that has not arrived.
    base: u32,
    /// The first part that was never sent.
    next: u32,
    /// Where to look for lost ones.
    lost_from: u32,
    sends: u32,
    /// The latest send that has arrived.
    latest: u32,
}

impl PartsOut {
    pub(crate) fn new(total: u32, part_bytes: u16) -> PartsOut {
        let parts = Part::parts(total, part_bytes) as usize;
        PartsOut {
            total,
            part_bytes,
            sent: vec![0; parts],
            arrived: vec![false; parts],
            base: 0,
            next: 0,
            lost_from: 0,
            sends: 0,
            latest: 0,
        }
    }

    fn parts(&self) -> u32 {
        self.sent.len() as u32
    }

    /// Whether every part has arrived.
    pub(crate) fn is_done(&self) -> bool {
        self.base >= self.parts()
    }

    /// The part to send next: a lost one, then a new one within the window; and whether it is sent again.
    pub(crate) fn next(&mut self, window: u8) -> Option<(Part, bool)> {
        let is_lost = |parts: &PartsOut, i: u32| {
            let sent = parts.sent[i as usize];
            !parts.arrived[i as usize] && sent.saturating_add(REORDERED_MAX) <= parts.latest
        };
        let from = self.lost_from.max(self.base);
        let lost = (from..self.next).find(|&i| is_lost(self, i));
        self.lost_from = lost.unwrap_or(self.next);
        let fresh =
            || (self.next < self.parts() && self.next < self.base + u32::from(window)).then_some(self.next);
        let index = lost.or_else(fresh)?;
        Some((self.part(index), lost.is_some()))
    }

    /// The part that `next` named is on its way.
    pub(crate) fn mark_sent(&mut self, part: &Part) {
        self.sends += 1;
        self.sent[usize::from(part.index)] = self.sends;
        self.next = self.next.max(u32::from(part.index) + 1);
    }

    /// Notes which parts the peer has.
    pub(crate) fn on_progress(&mut self, base: u16, bitmap: u64) {
        for i in self.base..u32::from(base).min(self.next) {
            self.arrive(i);
        }
        for bit in (0..64).filter(|bit| bitmap >> bit & 1 == 1) {
            let i = u32::from(base) + bit;
            if i < self.next {
                self.arrive(i);
            }
        }
        while self.base < self.parts() && self.arrived[self.base as usize] {
            self.base += 1;
        }
        self.lost_from = self.base;
    }

    /// Notes which parts the peer has, and returns whether that is news.
    pub(crate) fn on_report(&mut self, base: u16, bitmap: u64) -> bool {
        let count = |parts: &PartsOut| parts.arrived.iter().filter(|&&here| here).count();
        let before = count(self);
        self.on_progress(base, bitmap);
        count(self) > before
    }

    fn arrive(&mut self, i: u32) {
        if !std::mem::replace(&mut self.arrived[i as usize], true) {
            self.latest = self.latest.max(self.sent[i as usize]);
        }
    }

    /// No report came for too long: the first missing part is taken for lost.
    pub(crate) fn on_timeout(&mut self) {
        if self.base < self.next {
            self.sent[self.base as usize] = 0;
            self.latest = self.latest.max(REORDERED_MAX);
            self.lost_from = self.base;
        }
    }

    /// The peer has all parts.
    pub(crate) fn finish(&mut self) {
        (self.base, self.next) = (self.parts(), self.parts());
    }

    fn part(&self, index: u32) -> Part {
        Part { total: self.total, index: index as u16, part_bytes: self.part_bytes }
    }
}

/// The parts of a batch that is being received.
#[derive(Clone, Debug)]
pub(crate) struct PartsIn {
    total: u32,
    part_bytes: u16,
    arrived: Vec<bool>,
    missing: u32,
    base: u32,
    bytes: Vec<u8>,
}

impl PartsIn {
    /// An empty batch, of which `first` is a part.
    pub(crate) fn new(first: &Part) -> PartsIn {
        let parts = Part::parts(first.total, first.part_bytes);
        PartsIn {
            total: first.total,
            part_bytes: first.part_bytes,
            arrived: vec![false; parts as usize],
            missing: parts,
            base: 0,
            bytes: Vec::new(),
        }
    }

    /// Takes a part; false if it has arrived already, or is not of this batch.
    pub(crate) fn take(&mut self, part: &Part, bytes: &[u8]) -> bool {
        let is_ours = part.total == self.total && part.part_bytes == self.part_bytes;
        if !is_ours || std::mem::replace(&mut self.arrived[usize::from(part.index)], true) {
            return false;
        }
        let range = part.range();
        // Memory grows with the parts that have arrived, not with the length that was announced.
        if self.bytes.len() < range.end {
            self.bytes.resize(range.end, 0);
        }
        self.bytes[range].copy_from_slice(bytes);
        self.missing -= 1;
        while self.base < self.arrived.len() as u32 && self.arrived[self.base as usize] {
            self.base += 1;
        }
        true
    }

    /// The whole batch, once every part is here.
    pub(crate) fn whole(&mut self) -> Option<Vec<u8>> {
        (self.missing == 0).then(|| std::mem::take(&mut self.bytes))
    }

    /// The report for the sender.
    pub(crate) fn progress(&self) -> (u16, u64) {
        let ahead = self.arrived.iter().skip(self.base as usize).take(64);
        let bitmap = ahead.enumerate().fold(0, |bits, (i, &here)| bits | u64::from(here) << i);
        (self.base as u16, bitmap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    /// Sends `total` bytes with loss and reordering by seed; returns how many parts were sent.
    fn check(total: u32, window: u8, loss: f64, seed: u64) -> u32 {
        let mut rng = Rng::new(seed);
        let source: Vec<u8> = (0..total).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut out = PartsOut::new(total, 100);
        let mut back: Option<PartsIn> = None;
        for _ in 0..100_000 {
            let mut train = Vec::new();
            while let Some((part, _)) = out.next(window) {
                out.mark_sent(&part);
                assert!(u32::from(part.index) < out.base + u32::from(window), "beyond the window");
                if !rng.chance(loss) {
                    train.push(part);
                }
            }
            if rng.chance(0.3) && train.len() > 1 {
                let at = rng.below(train.len() as u64 - 1) as usize;
                train.swap(at, at + 1);
            }
            for part in &train {
                let into = back.get_or_insert_with(|| PartsIn::new(part));
                into.take(part, &source[part.range()]);
            }
            if let Some(whole) = back.as_mut().and_then(PartsIn::whole) {
                assert!(whole == source, "the batch arrived as other bytes");
                return out.sends;
            }
            match &back {
                Some(into) if !train.is_empty() && !rng.chance(loss) => {
                    let (base, bitmap) = into.progress();
                    out.on_progress(base, bitmap);
                }
                _ => out.on_timeout(),
            }
        }
        panic!("the batch never arrived");
    }

    #[test]
    fn a_batch_arrives_whole_whatever_is_lost() {
        for seed in 0..200 {
            check(1 + (seed as u32 * 97) % 9000, 1 + (seed % 64) as u8, 0.2, seed);
        }
    }

    #[test]
    fn without_loss_no_part_is_sent_twice() {
        for total in [1, 99, 100, 101, 6399, 6400, 6401, 20_000] {
            assert_eq!(check(total, 16, 0.0, 1), total.div_ceil(100), "{total} bytes");
        }
    }

    #[test]
    fn only_what_was_lost_is_sent_again() {
        let mut out = PartsOut::new(1000, 100);
        let sent: Vec<_> = std::iter::from_fn(|| {
            let (part, again) = out.next(10)?;
            out.mark_sent(&part);
            assert!(!again);
            Some(part.index)
        })
        .collect();
        assert_eq!(sent, (0..10).collect::<Vec<_>>());
        // Part 2 is missing, but no part that was sent three later has arrived.
        out.on_progress(2, 0b10);
        assert_eq!(out.next(10), None);
        out.on_progress(2, 0b110);
        assert_eq!(out.next(10), None);
        out.on_progress(2, 0b1110);
        let (part, again) = out.next(10).expect("part 2 is lost");
        assert!(again && part.index == 2);
        out.mark_sent(&part);
        assert_eq!(out.next(10), None, "once");
        // The part was lost again, and the last parts with it: only a timeout finds out.
        out.on_timeout();
        assert_eq!(out.next(10).map(|(part, _)| part.index), Some(2));
    }
}
