//! Banks of registers: the thread in each, and the bank that the core shall enter.

use super::Interface;

/// The contents of a context's bank of registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Bank {
    /// Nothing: a handler switches to this thread.
    #[default]
    Unused,
    /// A thread that begins at this address.
    Begins(u64),
    /// A thread.
    Runs,
}

impl Interface {
    /// From now on each context may have a bank of registers, so that the core switches threads by itself. The prototype has none.
    pub fn give_banks(&mut self) {
        self.has_banks = true;
    }

    /// Whether there are such banks.
    pub fn has_banks(&self) -> bool {
        self.has_banks
    }

    /// The bank of the thread that the scheduler asks for, and where it begins if it has not run. `None` if
    /// one of the two threads has no bank; a context that no thread has made known has no registers to keep,
    /// and needs none.
    pub fn wanted_bank(&self) -> Option<(usize, Option<u64>)> {
        let (target, _) = self.target.filter(|&(target, _)| target != self.current)?;
        let current = self.contexts.iter().find(|entry| entry.id == self.current);
        let is_kept = current.is_none_or(|entry| entry.bank == Bank::Runs);
        let bank = self.contexts.iter().position(|entry| entry.id == target).filter(|_| is_kept)?;
        match self.contexts[bank].bank {
            Bank::Unused => None,
            Bank::Begins(pc) => Some((bank, Some(pc))),
            Bank::Runs => Some((bank, None)),
        }
    }

    /// The core runs the thread of `bank` from `cycle` on.
    pub fn enter_bank(&mut self, cycle: u64, bank: usize) {
        self.unsettle();
        let Some(entry) = self.contexts.get_mut(bank) else { return };
        entry.bank = Bank::Runs;
        let (context, priority) = (entry.id, entry.priority);
        self.switch_to(cycle, context);
        self.current_priority = priority;
        // The decision that led to this switch may be out of date.
        self.decide(cycle);
    }
}
