//! The half of a connection that receives: the bytes that have arrived, and when and how to acknowledge them (RFC 9293, 2018,
//! 5681 §4.2).
//!
//! A segment in order may wait for a second one before it is acknowledged; one that comes early, late, or closes a gap is
//! acknowledged at once. The first SACK block is the range that changed last, then the others, last changed first.

use highwire_stdx::{Duration, Instant};

use super::scoreboard::Scoreboard;
use super::{Ack, Config, SACK_BLOCKS};

/// The result of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Bytes that had not arrived before.
    pub fresh: u32,
    /// The acknowledgement to send now.
    pub ack: Option<Ack>,
}

/// The receiving half of a connection.
#[derive(Clone, Debug)]
pub struct Receiver {
    next: u64,
    early: Scoreboard,
    /// Offsets in the ranges that changed last, latest first.
    recent: [u64; SACK_BLOCKS],
    /// Segments in order that were not acknowledged, and until when they may stay so.
    unacknowledged: u32,
    ack_due: Option<Instant>,
    ack_delay: Duration,
    window: u32,
    uses_sack: bool,
}

impl Receiver {
    /// Nothing has arrived.
    pub fn new(config: &Config) -> Receiver {
        Receiver {
            next: 0,
            early: Scoreboard::default(),
            recent: [0; SACK_BLOCKS],
            unacknowledged: 0,
            ack_due: None,
            ack_delay: config.ack_delay,
            window: config.window_bytes,
            uses_sack: config.sack,
        }
    }

    /// Everything before this offset has arrived.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// A segment arrives.
    pub fn handle_segment(&mut self, now: Instant, offset: u64, length: u32) -> Received {
        let end = offset + u64::from(length);
        if offset > self.next {
            let fresh = self.early.insert(offset, end) as u32;
            self.recent.rotate_right(1);
            self.recent[0] = offset;
            return Received { fresh, ack: Some(self.acknowledge()) };
        }
        if end <= self.next {
            // The segment was sent in vain, so the sender has to know how far this side is.
            return Received { fresh: 0, ack: Some(self.acknowledge()) };
        }
        let fresh = self.early.unmarked(self.next, end) as u32;
        let had_gap = self.early.highest().is_some();
        self.next = end;
        if let Some(&(start, stop)) = self.early.ranges().first()
            && start <= end
        {
            self.next = stop.max(end);
        }
        self.early.advance(self.next);
        self.unacknowledged += 1;
        let is_due = had_gap || self.ack_delay == Duration::ZERO || self.unacknowledged >= 2;
        if is_due {
            return Received { fresh, ack: Some(self.acknowledge()) };
        }
        self.ack_due = Some(now + self.ack_delay);
        Received { fresh, ack: None }
    }

    /// When [`Self::handle_timeout`] is wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.ack_due
    }

    /// Time has passed; maybe an acknowledgement is due.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Ack> {
        self.ack_due.filter(|&due| due <= now)?;
        Some(self.acknowledge())
    }

    fn acknowledge(&mut self) -> Ack {
        self.unacknowledged = 0;
        self.ack_due = None;
        let mut ack = Ack { cumulative: self.next, window: self.window, blocks: [(0, 0); SACK_BLOCKS] };
        if !self.uses_sack || self.early.highest().is_none() {
            return ack;
        }
        let ranges = self.early.ranges();
        let containing = |offset: u64| {
            let at = ranges.partition_point(|&(_, end)| end <= offset);
            ranges.get(at).copied().filter(|&(start, _)| start <= offset)
        };
        let told = self.recent.iter().filter_map(|&offset| containing(offset));
        let mut count = 0;
        // Ranges that are no longer remembered as recent are reported again, highest first, so that each
        // block is reported several times.
        for (start, end) in told.chain(ranges.iter().rev().copied()) {
            let block = ((start - self.next) as u32, (end - self.next) as u32);
            if count < SACK_BLOCKS && !ack.blocks[..count].contains(&block) {
                ack.blocks[count] = block;
                count += 1;
            }
        }
        ack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(ack_delay_us: u64) -> Receiver {
        let ack_delay = Duration::from_micros(ack_delay_us);
        Receiver::new(&Config { mss: 100, ack_delay, ..Config::default() })
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    fn blocks(ack: Option<Ack>) -> (u64, Vec<(u64, u64)>) {
        let ack = ack.expect("an acknowledgement");
        (ack.cumulative, ack.sacked().collect())
    }

    #[test]
    fn every_second_segment_is_acknowledged_or_the_delay_runs_out() {
        let mut receiver = receiver(40);
        assert!(receiver.handle_segment(at(0), 0, 100).ack.is_none());
        assert_eq!(blocks(receiver.handle_segment(at(1), 100, 100).ack), (200, vec![]));
        assert!(receiver.handle_segment(at(2), 200, 100).ack.is_none());
        assert_eq!(receiver.poll_timeout(), Some(at(42)));
        assert!(receiver.handle_timeout(at(41)).is_none());
        assert_eq!(blocks(receiver.handle_timeout(at(42))), (300, vec![]));
        assert_eq!(receiver.poll_timeout(), None);
    }

    #[test]
    fn gaps_and_what_closes_them_are_acknowledged_at_once() {
        let mut receiver = receiver(40);
        assert_eq!(blocks(receiver.handle_segment(at(0), 100, 100).ack), (0, vec![(100, 200)]));
        assert_eq!(blocks(receiver.handle_segment(at(0), 0, 100).ack), (200, vec![]));
        assert_eq!(blocks(receiver.handle_segment(at(0), 0, 100).ack), (200, vec![]), "a repetition");
        assert!(receiver.handle_segment(at(0), 200, 100).ack.is_none());
    }

    #[test]
    fn the_block_that_changed_last_comes_first() {
        let mut receiver = receiver(0);
        receiver.handle_segment(at(0), 100, 100);
        receiver.handle_segment(at(0), 300, 100);
        let told = blocks(receiver.handle_segment(at(0), 500, 100).ack);
        assert_eq!(told, (0, vec![(500, 600), (300, 400), (100, 200)]));
        let told = blocks(receiver.handle_segment(at(0), 400, 100).ack);
        assert_eq!(told, (0, vec![(300, 600), (100, 200)]), "two have become one");
        receiver.handle_segment(at(0), 700, 100);
        let told = blocks(receiver.handle_segment(at(0), 900, 100).ack);
        assert_eq!(told, (0, vec![(900, 1000), (700, 800), (300, 600)]), "there is room for three");
    }

    #[test]
    fn each_byte_counts_once() {
        let mut receiver = receiver(0);
        let segments = [(100, 100), (100, 100), (0, 100), (150, 100), (0, 100)];
        let fresh: Vec<u32> =
            segments.iter().map(|&(at_, n)| receiver.handle_segment(at(0), at_, n).fresh).collect();
        assert_eq!(fresh, [100, 0, 100, 50, 0]);
        assert_eq!(receiver.next(), 250);
    }

    #[test]
    fn without_sack_nothing_but_the_cumulative_acknowledgement_is_told() {
        let mut receiver = Receiver::new(&Config { sack: false, ..Config::default() });
        assert_eq!(blocks(receiver.handle_segment(at(0), 1000, 100).ack), (0, vec![]));
    }
}
