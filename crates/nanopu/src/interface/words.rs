//! The queues behind x30 and x31: words that have come, and words that the program sends.

use super::{CONTEXTS_MAX, Interface, Mistake, Occurrence};
use crate::timeline::Stage;

/// Words that the queue behind x31 holds in hardware (`rtl/transmit_queue.sv`). Here the queue is unbounded,
/// but a longer one is noted as a mistake.
pub(super) const TRANSMIT_WORDS: usize = 512;
/// Messages of the longest kind that a context's receive queue holds in hardware: 1,024 words
/// (`rtl/receive_queue.sv`). Here the queue is unbounded, but a longer one is noted as a mistake.
const RECEIVE_MESSAGES: usize = 4;

impl Interface {
    /// Whether a read of x30 has to wait. A context that no thread has made known has no queue to wait for.
    #[inline]
    pub fn lacks_word(&self) -> bool {
        self.blocks && self.contexts.iter().any(|entry| entry.id == self.current && entry.words.is_empty())
    }

    /// The program's next instruction is a read of x30 that has to wait: a thread without a message is idle
    /// then, as if it had said that it has nothing to do.
    pub fn wait_for_word(&mut self, cycle: u64) {
        self.unsettle();
        if !self.is_waiting {
            self.is_waiting = true;
            self.timeline.mark(cycle, Stage::ReadWaits, self.current.into());
        }
        if self.idle_since.is_none() {
            self.on_idle(cycle);
        }
    }

    /// A word of a message has come for `context`; `is_first` if it begins one.
    pub fn deliver(&mut self, cycle: u64, context: u16, word: u64, is_first: bool) {
        self.unsettle();
        let Some(entry) = self.contexts.iter_mut().find(|entry| entry.id == context) else {
            let nowhere = Occurrence { cycle, pc: None, context, detail: word };
            self.misuse.note(Mistake::WordForUnknownContext, nowhere);
            return;
        };
        if entry.words.len() >= RECEIVE_MESSAGES * self.message_bytes_max / 8 {
            let detail = entry.words.len() as u64;
            self.misuse.note(Mistake::ReceiveOverrun, Occurrence { cycle, pc: None, context, detail });
        }
        entry.words.push_back(word);
        self.timeline.mark_word(cycle, Stage::WordDelivered, (0, context), word);
        if is_first {
            entry.arrivals.push_back(cycle);
            entry.is_active = true;
            self.decide_after_arrival(cycle);
        }
    }

    /// A read of x30; zero if there is nothing.
    pub fn take_word(&mut self, cycle: u64) -> u64 {
        self.unsettle();
        self.is_waiting = false;
        let running = self.running();
        let mistake = if running.is_some() { Mistake::EmptyRead } else { Mistake::ReadWithoutContext };
        let word = running.and_then(|context| context.words.pop_front());
        if word.is_none() {
            self.misuse.note(mistake, self.occurrence(cycle, 0));
        }
        match word {
            Some(word) => self.timeline.mark_word(cycle, Stage::WordRead, (0, self.current), word),
            None => self.timeline.mark(cycle, Stage::WordRead, 0),
        }
        word.unwrap_or(0)
    }

    /// Undoes that `context` read `word` from x30, because the instruction was killed. Reads are undone from
    /// the last one on.
    ///
    /// The pipeline of this crate has no need of it, because its instructions on wrong paths do not execute; hardware has.
    pub fn give_back(&mut self, context: u16, word: u64) {
        self.unsettle();
        if let Some(entry) = self.contexts.iter_mut().find(|entry| entry.id == context) {
            entry.words.push_front(word);
        }
    }

    /// The word that a read of x30 would take, without taking it.
    pub fn peek_word(&self) -> Option<u64> {
        let running = self.contexts.iter().find(|entry| entry.id == self.current)?;
        running.words.front().copied()
    }

    /// A write to x31 whose word is there.
    pub fn put_word(&mut self, cycle: u64, word: u64) {
        let broken = self.late.take();
        self.break_promise(broken);
        self.timeline.mark_word(cycle, Stage::WordWritten, (0, self.current), word);
        let here = self.occurrence(cycle, word);
        if self.outbox.len() >= TRANSMIT_WORDS {
            let detail = self.outbox.len() as u64;
            self.misuse.note(Mistake::TransmitOverrun, Occurrence { detail, ..here });
        }
        let current = self.current;
        if let Some(entry) = self.contexts.iter_mut().find(|entry| entry.id == current) {
            entry.writing.write(word, self.message_bytes_max, here, &mut self.misuse);
        }
        self.outbox.push_back((self.current, word));
    }

    /// Whether words of the program still wait for the NIC.
    #[inline]
    pub fn has_sent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The oldest word of the program that still waits for the NIC, and its context.
    pub fn peek_sent(&self) -> Option<(u16, u64)> {
        self.outbox.front().copied()
    }

    /// The oldest word of each context, its place in the queue, its context, and itself; the oldest of all first.
    pub fn sent_heads(&self) -> impl Iterator<Item = (usize, u16, u64)> + '_ {
        let mut seen = [None; CONTEXTS_MAX + 1];
        self.outbox.iter().enumerate().filter_map(move |(place, &(context, word))| {
            // One slot more than there are contexts, because a core whose context is unknown may write as
            // well.
            let slot = seen.iter_mut().find(|slot| slot.is_none_or(|seen| seen == context))?;
            let is_head = slot.replace(context).is_none();
            is_head.then_some((place, context, word))
        })
    }

    /// Takes the word at this place of the queue.
    pub fn take_sent_at(&mut self, place: usize) -> Option<(u16, u64)> {
        self.outbox.remove(place)
    }

    /// Takes the oldest word.
    pub fn take_sent(&mut self) -> Option<(u16, u64)> {
        self.outbox.pop_front()
    }

    /// Words that wait in the receive queue of `context`.
    pub fn queued_words(&self, context: u16) -> usize {
        self.contexts.iter().find(|entry| entry.id == context).map_or(0, |entry| entry.words.len())
    }
}
