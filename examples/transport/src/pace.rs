//! The pace at which one NIC sends to one peer: a share of the link, in steps of a 1,024th.

/// The whole link.
pub(crate) const LINE: u64 = 1024;
const LEAST: u64 = 4;
/// Cycles of a full packet on the link.
const PACKET_CYCLES: u64 = 136;

/// What one peer gets.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    share: u64,
    /// When the next packet may leave.
    next: u64,
}

impl Default for Pace {
    /// A fraction of the link: many may begin at once.
    fn default() -> Pace {
        Pace { share: LINE / 8, next: 0 }
    }
}

impl Pace {
    /// A packet leaves.
    pub(crate) fn on_sent(&mut self, cycle: u64) {
        self.next = cycle + PACKET_CYCLES * LINE / self.share;
    }

    /// When the next packet may leave.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// More.
    pub(crate) fn raise(&mut self, step: u64) {
        self.share = (self.share + step).min(LINE);
    }

    /// Less by so many 1,024ths of what it is.
    pub(crate) fn cut(&mut self, part: u64) {
        self.share = (self.share - self.share * part.min(LINE) / LINE).max(LEAST);
    }
}
