//! Fetch's question: a packet's prediction, its line and its bytes; and when a remembered answer still holds.

use super::{Answer, HISTORIES, Question, Side, World};
use crate::port::Port;
use crate::predict::Prediction;

/// The second word of the answer to [`Ask::Fetch`].
pub(crate) mod fetched {
    /// The bits of a prediction.
    pub(crate) const PREDICTION: u64 = 0xffff;
    /// The line is in the cache.
    pub(crate) const HELD: u64 = 1 << 16;
    /// The packet of the lookup belongs to a device.
    pub(crate) const DEVICE: u64 = 1 << 18;
    /// Nothing is there.
    pub(crate) const NOWHERE: u64 = 1 << 19;
    /// There is memory, and the bytes stand from [`WORD`] on.
    pub(crate) const PRESENT: u64 = 1 << 17;
    /// The lowest bit of the four bytes.
    pub(crate) const WORD: u32 = 32;
    /// The bytes, and whether they are there.
    pub(crate) const BYTES: u64 = !0 << WORD | PRESENT;
}

/// The prediction in an answer to [`Ask::Fetch`].
#[inline(always)]
pub(crate) fn prediction(&[target, rest]: &Answer) -> Prediction {
    Prediction { target, bits: (rest & fetched::PREDICTION) as u32 }
}

/// The answer's bits for a word that memory has.
#[inline(always)]
fn present(word: u32) -> u64 {
    fetched::PRESENT | u64::from(word) << fetched::WORD
}

impl<B: Port> World<'_, B> {
    /// Counts what can change an answer to [`Ask::Fetch`] beside the history table and the return stack:
    /// changes to the target buffer's entries for the packets of `set`, to the instruction cache, and to
    /// memory that instructions come from.
    #[inline(always)]
    pub(crate) fn version(&self, set: u8) -> u64 {
        let Side { version, predictor, .. } = &*self.side;
        version.wrapping_add(predictor.changes(set)).wrapping_add(self.bus.code_changes().unwrap_or(0))
    }

    /// The version for which an answer holds. Zero if it may change at any time, as an answer from the return
    /// stack may.
    #[inline(always)]
    pub(crate) fn version_of(&self, answer: &Answer, set: u8) -> u64 {
        if self.side.predictor.is_lasting(&prediction(answer)) { self.version(set) } else { 0 }
    }

    /// What the history table says of `packet`: see [`bias_packet`](crate::predict::bias_packet).
    #[inline(always)]
    pub(crate) fn bias(&self, packet: u16) -> bool {
        self.side.predictor.bias_of(packet)
    }

    /// Repeats [`Ask::Fetch`], where `answer` still holds if memory has the same word. False if it has
    /// another. If the bus counts changes to code, the version already covers the word, and memory is not
    /// read.
    #[inline(always)]
    pub(crate) fn confirm(&mut self, q: &Question, answer: &Answer) -> bool {
        if self.bus.code_changes().is_none() && q.a & 4 != 0 {
            let word = self.bus.fetch_word(q.y).ok().map_or(0, present);
            if word != answer[1] & fetched::BYTES {
                return false;
            }
        }
        self.side.note(q);
        true
    }
}

impl Side {
    /// Keeps the history of a lookup, and counts the use of its entry.
    #[inline(always)]
    pub(super) fn note(&mut self, q: &Question) {
        self.histories[usize::from(self.packets) % HISTORIES] = self.predictor.history();
        self.packets = self.packets.wrapping_add(q.a & 1);
        self.predictor.touch(q.b);
    }

    #[inline(always)]
    pub(super) fn fetch(&mut self, q: &Question, word: Option<u32>) -> Answer {
        let Prediction { target, bits } = self.predictor.lookup(q.x);
        self.note(q);
        let mut rest = u64::from(bits);
        if q.a & 2 != 0 && self.code.holds(q.x) {
            rest |= fetched::HELD;
        }
        rest |= word.map_or(0, present);
        [target, rest]
    }
}
