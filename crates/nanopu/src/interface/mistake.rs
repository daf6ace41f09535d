//! Mistakes of a program in its use of the network, and where each first happened.
//!
//! No mistake stops the hardware: a read finds nothing, a word is thrown away, a message is not the intended
//! one. So the interface counts each kind, and keeps its first occurrence for the programmer.

/// A kind of wrong use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum Mistake {
    /// A read of x30 that found no word.
    EmptyRead,
    /// A read of x30 as a context that no thread has made known: there is no queue to read.
    ReadWithoutContext,
    /// A word for a context that no thread has made known.
    WordForUnknownContext,
    /// A context beyond the room of the core.
    RefusedContext,
    /// A header with more bytes than a message can have; its words are thrown away. The detail is the bytes.
    MessageTooLong,
    /// A header of no bytes.
    MessageEmpty,
    /// A message was declared done while words of the answer were missing. The detail is how many; the place is the header's.
    MessageUnfinished,
    /// A word more than the header before it declared: it was taken for a header, and made none. The detail is the word.
    SurplusWord,
    /// A word for x31 was complete only when another context ran, and left in that context's name. The
    /// context is that of the instruction, the detail the other.
    WordInOtherName,
    /// A write to x31 while the queue there was full. The detail is the words that waited.
    TransmitOverrun,
    /// A word came while the context's receive queue was full. The detail is the words that waited.
    ReceiveOverrun,
}

impl Mistake {
    /// All kinds.
    pub const ALL: [Mistake; 11] = [
        Mistake::EmptyRead,
        Mistake::ReadWithoutContext,
        Mistake::WordForUnknownContext,
        Mistake::RefusedContext,
        Mistake::MessageTooLong,
        Mistake::MessageEmpty,
        Mistake::MessageUnfinished,
        Mistake::SurplusWord,
        Mistake::WordInOtherName,
        Mistake::TransmitOverrun,
        Mistake::ReceiveOverrun,
    ];
}

/// Where a mistake was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occurrence {
    /// The cycle.
    pub cycle: u64,
    /// The instruction; nothing if it was the network's doing.
    pub pc: Option<u64>,
    /// The context that ran, or that a word was for.
    pub context: u16,
    /// A number whose meaning the kind says.
    pub detail: u64,
}

/// The mistakes of one core's program so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Misuse {
    counts: [u64; Mistake::ALL.len()],
    firsts: [Option<Occurrence>; Mistake::ALL.len()],
}

impl Misuse {
    /// How often.
    pub fn count(&self, mistake: Mistake) -> u64 {
        self.counts[mistake as usize]
    }

    /// Where it happened first.
    pub fn first(&self, mistake: Mistake) -> Option<Occurrence> {
        self.firsts[mistake as usize]
    }

    /// The kinds that happened, in the order of [`Mistake::ALL`], each with its count and its first
    /// occurrence.
    pub fn all(&self) -> impl Iterator<Item = (Mistake, u64, Occurrence)> + '_ {
        Mistake::ALL
            .into_iter()
            .filter_map(|mistake| Some((mistake, self.count(mistake), self.first(mistake)?)))
    }

    #[cold]
    pub(super) fn note(&mut self, mistake: Mistake, occurrence: Occurrence) {
        self.counts[mistake as usize] += 1;
        self.firsts[mistake as usize].get_or_insert(occurrence);
    }
}
