//! Laying out trains: which packets share one call to the kernel.
//!
//! A train is a call's datagrams with UDP GSO: to one destination, all of one size except the last, which may
//! be shorter. Strict packets keep their order and so decide where trains end. Free packets
//! (acknowledgements) fill the places that are left at the ends: riding behind others costs nanoseconds,
//! leaving alone costs a whole trip through the stack. They overtake no packet that was there before them.
//!
//! Invariant: the plan names every packet exactly once, and strict packets in their order.

/// How long a train may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainLimits {
    /// Datagrams in one train.
    pub segments: usize,
    /// Bytes in one train.
    pub bytes: usize,
}

impl TrainLimits {
    /// One datagram per call, for kernels without UDP GSO.
    pub const SINGLE: TrainLimits = TrainLimits { segments: 1, bytes: 65_000 };
    /// The limits of every kernel with UDP GSO.
    pub const GSO: TrainLimits = TrainLimits { segments: 64, bytes: 65_000 };
}

/// A run of neighbouring packets in one staging buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Index of the first packet.
    pub first: usize,
    /// How many packets.
    pub count: usize,
    /// Where the first one starts.
    pub start: usize,
    /// How many bytes they have together.
    pub bytes: usize,
}

impl Run {
    /// The same run, counted from where `origin` starts to where its buffer starts.
    pub(crate) fn shifted(self, origin: Run) -> Run {
        Run { first: origin.first + self.first, start: origin.start + self.start, ..self }
    }
}

/// One call's worth of packets: strict ones, then free ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Train {
    pub strict: Run,
    pub free: Run,
    /// Size of every packet but the last.
    pub segment_bytes: usize,
}

impl Train {
    pub(crate) fn segments(&self) -> usize {
        self.strict.count + self.free.count
    }
}

/// Divides packets of the given sizes into trains, reporting each. `behind` tells how many strict packets come before each free one; none do
/// where it ends.
pub(crate) fn lay_out(
    strict: &[u16],
    free: &[u16],
    behind: &[u32],
    limits: TrainLimits,
    mut each: impl FnMut(Train),
) {
    let mut strict = Cursor::new(strict);
    let mut free = Cursor::new(free);
    while let Some(segment_bytes) = strict.peek().or_else(|| free.peek()) {
        // The first packet boards even beyond the limits: it would never leave otherwise.
        let mut room =
            Room { segment_bytes, segments: limits.segments.max(1), bytes: limits.bytes.max(segment_bytes) };
        let strict_run = strict.take_run(&mut room, |_| true);
        let gone = strict.next;
        let free =
            free.take_run(&mut room, |at| behind.get(at).is_none_or(|before| *before as usize <= gone));
        each(Train { strict: strict_run, free, segment_bytes });
    }
}

/// The room left on the train being laid out.
struct Room {
    segment_bytes: usize,
    segments: usize,
    bytes: usize,
}

impl Room {
    /// Boards a packet if it fits; a short one closes the train.
    fn board(&mut self, bytes: usize) -> bool {
        if self.segments == 0 || bytes > self.segment_bytes || bytes > self.bytes {
            return false;
        }
        self.segments = if bytes < self.segment_bytes { 0 } else { self.segments - 1 };
        self.bytes -= bytes;
        true
    }
}

/// A position in a list of packet sizes.
struct Cursor<'a> {
    sizes: &'a [u16],
    next: usize,
    start: usize,
}

impl<'a> Cursor<'a> {
    fn new(sizes: &'a [u16]) -> Cursor<'a> {
        Cursor { sizes, next: 0, start: 0 }
    }

    fn peek(&self) -> Option<usize> {
        self.sizes.get(self.next).map(|&n| usize::from(n))
    }

    fn take_run(&mut self, room: &mut Room, may_leave: impl Fn(usize) -> bool) -> Run {
        let mut run = Run { first: self.next, count: 0, start: self.start, bytes: 0 };
        while let Some(bytes) = self.peek().filter(|&n| may_leave(self.next) && room.board(n)) {
            run.count += 1;
            run.bytes += bytes;
            self.next += 1;
        }
        self.start += run.bytes;
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    /// Trains as text: strict sizes, `+`, free sizes.
    fn render(strict: &[u16], free: &[u16], behind: &[u32], limits: TrainLimits) -> String {
        let mut text = Vec::new();
        lay_out(strict, free, behind, limits, |t| {
            let list = |sizes: &[u16], run: Run| {
                let sizes = &sizes[run.first..run.first + run.count];
                sizes.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")
            };
            text.push(match (t.strict.count, t.free.count) {
                (_, 0) => list(strict, t.strict),
                (0, _) => format!("+ {}", list(free, t.free)),
                _ => format!("{} + {}", list(strict, t.strict), list(free, t.free)),
            });
        });
        text.join(" | ")
    }

    fn check(strict: &[u16], free: &[u16], expected: &str) {
        check_behind(strict, free, &[], expected);
    }

    fn check_behind(strict: &[u16], free: &[u16], behind: &[u32], expected: &str) {
        assert_eq!(render(strict, free, behind, TrainLimits { segments: 4, bytes: 1000 }), expected);
    }

    #[test]
    fn an_acknowledgement_overtakes_nothing_that_was_there_before_it() {
        // The last response of a READ is longer than those before it, by an AETH.
        check_behind(&[272, 272, 276], &[20], &[3], "272 272 | 276 + 20");
        check_behind(&[272, 272, 276], &[20, 20], &[2, 3], "272 272 + 20 | 276 + 20");
        check_behind(&[48; 5], &[20], &[0], "48 48 48 48 | 48 + 20");
        check_behind(&[48, 300, 16], &[20, 20], &[1, 3], "48 + 20 | 300 16 | + 20");
    }

    #[test]
    fn an_acknowledgement_rides_behind_a_request() {
        check(&[48], &[20], "48 + 20");
        check(&[48, 48], &[20, 20], "48 48 + 20 | + 20");
        check(&[], &[20, 20, 20], "+ 20 20 20");
        check(&[20], &[20, 20], "20 + 20 20");
    }

    #[test]
    fn a_shorter_packet_closes_and_a_longer_one_opens() {
        check(&[48, 48, 30, 48], &[], "48 48 30 | 48");
        check(&[30, 48], &[], "30 | 48");
        check(&[48, 30], &[20], "48 30 | + 20");
        check(&[16], &[20], "16 | + 20");
    }

    #[test]
    fn limits_hold() {
        check(&[48; 5], &[], "48 48 48 48 | 48");
        check(&[48; 4], &[20], "48 48 48 48 | + 20");
        check(&[400, 400, 400], &[], "400 400 | 400");
        check(&[2000, 2000], &[], "2000 | 2000");
    }

    #[test]
    fn random_packets_keep_order_lose_nothing_and_make_legal_trains() {
        let mut rng = Rng::new(0x7EA1);
        for _ in 0..3_000 {
            let sizes = |rng: &mut Rng| -> Vec<u16> {
                let palette = [20, 20, 48, 48, 48, 300, 1084];
                (0..rng.below(40)).map(|_| *rng.pick(&palette)).collect()
            };
            let (strict, free) = (sizes(&mut rng), sizes(&mut rng));
            let mut behind: Vec<u32> =
                free.iter().map(|_| rng.below(strict.len() as u64 + 1) as u32).collect();
            behind.sort_unstable();
            let limits =
                TrainLimits { segments: rng.between(1, 9) as usize, bytes: rng.between(1084, 5000) as usize };
            let (mut next_strict, mut next_free, mut start_strict, mut start_free) = (0, 0, 0, 0);
            lay_out(&strict, &free, &behind, limits, |t| {
                assert_eq!((t.strict.first, t.free.first), (next_strict, next_free));
                assert_eq!((t.strict.start, t.free.start), (start_strict, start_free));
                let own: Vec<usize> = strict[next_strict..next_strict + t.strict.count]
                    .iter()
                    .chain(&free[next_free..next_free + t.free.count])
                    .map(|&n| usize::from(n))
                    .collect();
                assert!(!own.is_empty() && own.len() <= limits.segments);
                assert!(own.iter().sum::<usize>() <= limits.bytes);
                assert_eq!(own.iter().sum::<usize>(), t.strict.bytes + t.free.bytes);
                let (last, others) = own.split_last().expect("a train has a packet");
                assert!(others.iter().all(|&n| n == t.segment_bytes) && *last <= t.segment_bytes);
                next_strict += t.strict.count;
                next_free += t.free.count;
                assert!(behind[..next_free].iter().all(|before| *before as usize <= next_strict));
                start_strict += t.strict.bytes;
                start_free += t.free.bytes;
            });
            assert_eq!((next_strict, next_free), (strict.len(), free.len()));
        }
    }
}
