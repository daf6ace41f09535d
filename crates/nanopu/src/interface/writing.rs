//! The message that a program is writing to x31, according to its header. This only checks the program, and
//! changes nothing.

use super::mistake::{Mistake, Misuse, Occurrence};
use crate::packet::AppHeader;

/// A message that is not whole.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Where its header was written.
    header: Occurrence,
    /// Words that are not written yet.
    missing: u64,
    /// Its mistake is noted already.
    is_noted: bool,
    /// It follows another message of the thread without a "done" in between.
    is_second: bool,
}

/// The message that one context writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writing {
    open: Option<Open>,
    /// Whether a message was completed since one was last declared done.
    has_answered: bool,
}

impl Writing {
    /// The program writes `word`; `here` is the place, with the word as its detail. A message has at most
    /// `bytes_max` bytes.
    pub(super) fn write(&mut self, word: u64, bytes_max: usize, here: Occurrence, misuse: &mut Misuse) {
        match &mut self.open {
            Some(open) if open.missing > 1 => open.missing -= 1,
            Some(_) => (self.open, self.has_answered) = (None, true),
            None => self.begin(word, bytes_max, here, misuse),
        }
    }

    fn begin(&mut self, word: u64, bytes_max: usize, here: Occurrence, misuse: &mut Misuse) {
        let bytes = AppHeader::from_word(word).bytes;
        let fault = match usize::from(bytes) {
            0 => Some(Mistake::MessageEmpty),
            bytes if bytes > bytes_max => Some(Mistake::MessageTooLong),
            _ => None,
        };
        let is_second = self.has_answered;
        match fault {
            // Behind a whole message this is more likely a surplus word than a second message.
            Some(_) if is_second => misuse.note(Mistake::SurplusWord, here),
            Some(fault) => misuse.note(fault, Occurrence { detail: bytes.into(), ..here }),
            None => {}
        }
        let missing = u64::from(bytes).div_ceil(8);
        self.open =
            (missing > 0).then_some(Open { header: here, missing, is_noted: fault.is_some(), is_second });
    }

    /// The program declares its message done.
    pub(super) fn finish(&mut self, misuse: &mut Misuse) {
        self.has_answered = false;
        let Some(Open { header, missing, is_second, .. }) = self.open.filter(|open| !open.is_noted) else {
            return;
        };
        match is_second {
            true => misuse.note(Mistake::SurplusWord, header),
            false => misuse.note(Mistake::MessageUnfinished, Occurrence { detail: missing, ..header }),
        }
    }
}
