//! A word for x31 that comes later than its instruction: a unit computes it, or a device is asked for it.
//!
//! The check on the program counts the word where its instruction stands. The queue gets it when the register
//! file would, in the name of the context that runs then. Decode holds back other instructions that touch x31
//! meanwhile, so there is one such word at a time, and words stay in the program's order.

use super::{Interface, Mistake, Occurrence};

/// A word that is on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    /// The context that wrote it.
    context: u16,
    /// How often that context has declared its message done since.
    finishes: u32,
}

impl Interface {
    /// An instruction commits that writes x31 later.
    pub fn promise_word(&mut self) {
        let late = Late { context: self.current, finishes: 0 };
        let broken = self.late.replace(late);
        self.break_promise(broken);
    }

    /// The word that was promised.
    pub fn put_late_word(&mut self, cycle: u64, word: u64) {
        let promise = self.late.take();
        if let Some(Late { context, .. }) = promise
            && context != self.current
        {
            let here = Occurrence { context, ..self.occurrence(cycle, self.current.into()) };
            self.misuse.note(Mistake::WordInOtherName, here);
        }
        self.put_word(cycle, word);
        // A message that was declared done meanwhile contains this word.
        self.break_promise(promise);
    }

    /// The check that the current context's message is whole waits for the word, if one is on its way.
    pub(super) fn finish_writing(&mut self) {
        match &mut self.late {
            Some(late) if late.context == self.current => late.finishes += 1,
            _ => self.check_writing(self.current),
        }
    }

    /// The word will not come, so the message that waited for it is checked as it is. Only a debugger takes a
    /// word back.
    pub(super) fn break_promise(&mut self, late: Option<Late>) {
        if let Some(Late { context, finishes }) = late {
            (0..finishes).for_each(|_| self.check_writing(context));
        }
    }

    fn check_writing(&mut self, context: u16) {
        if let Some(entry) = self.contexts.iter_mut().find(|entry| entry.id == context) {
            entry.writing.finish(&mut self.misuse);
        }
    }
}
