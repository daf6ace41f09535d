//! How many queue pairs and shared receive queues each program may have.
//!
//! All programs behind a door share the doorbells of one device. Without a bound one of them, by a mistake, would
//! keep the others from connecting.

use super::protocol::{Refusal, Status};
use crate::limits::BELLS;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What each program has now.
#[derive(Debug)]
pub(super) struct Shares {
    each: u32,
    /// By program; one that has nothing is not in it.
    taken: Mutex<HashMap<Program, u32>>,
}

/// Who asks. The kernel does not tell the number of a process of another namespace, and then each session counts for itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Program {
    Process(u32),
    Session(u64),
}

/// One queue pair or shared receive queue. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Share {
    of: Program,
    shares: Arc<Shares>,
}

impl Shares {
    pub(super) fn new(each: u32) -> Arc<Shares> {
        Arc::new(Shares { each: each.clamp(1, BELLS), taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Program, u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one more, or says why not.
    pub(super) fn take(self: &Arc<Shares>, of: Program) -> Result<Share, Refusal> {
        let mut taken = self.taken();
        let count = taken.entry(of).or_insert(0);
        if *count >= self.each {
            let text = format!(
                "this program has {} queue pairs and shared receive queues, its share of the engine's {BELLS}; `highwire serve --share` sets it",
                self.each
            );
            return Err(Refusal::new(Status::NoMemory, text));
        }
        *count += 1;
        Ok(Share { of, shares: Arc::clone(self) })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken();
        if let Some(count) = taken.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_its_own_and_what_is_given_back_can_be_taken_again() {
        let shares = Shares::new(2);
        let (a, b) = (Program::Process(7), Program::Session(7));
        let first = shares.take(a).expect("one");
        let _second = shares.take(a).expect("two");
        let refused = shares.take(a).expect_err("a third");
        assert_eq!(refused.status, Status::NoMemory);
        assert!(refused.text.contains("has 2 queue pairs"), "{}", refused.text);
        let others = shares.take(b).expect("another program's");
        drop(first);
        drop(others);
        let _third = shares.take(a).expect("one was given back");
        assert!(shares.take(a).is_err());
        assert_eq!(shares.taken().len(), 1, "programs without any are forgotten");
    }
}
