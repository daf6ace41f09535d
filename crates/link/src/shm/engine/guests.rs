//! Guests: programs without an engine of their own that copy into an engine's regions by themselves.
//!
//! A peer engine says in its channel which region it works on. A guest says it in its send rings, one word for each queue pair,
//! and the engine that withdraws a region looks at those words as well. When a guest's program ends, the engine's door removes
//! the guest, so that no thread waits for a dead program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use highwire_shmem::{Window, offset};

/// The send rings whose owners copy without the engine.
#[derive(Debug, Default)]
pub struct Guests {
    list: Mutex<Vec<Arc<Word>>>,
    may_ring: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Word {
    ring: Window,
    is_gone: AtomicBool,
    /// Its guest has used up the patience of a caller.
    pub(super) is_overdue: AtomicBool,
}

impl Guests {
    /// From now on guests may come, and wake the engine by the bell of lane 0.
    pub fn welcome(&self) {
        self.may_ring.store(true, Ordering::Release);
    }

    pub(in crate::shm) fn may_ring(&self) -> bool {
        self.may_ring.load(Ordering::Acquire)
    }

    /// From now on a withdrawal waits while the ring's owner says that it uses the region. The owner counts
    /// as gone once [`remove`](Self::remove) was called for the same ring.
    pub fn add(&self, ring: &Window) {
        self.lock().push(Arc::new(Word {
            ring: ring.clone(),
            is_gone: AtomicBool::new(false),
            is_overdue: AtomicBool::new(false),
        }));
    }

    /// The ring's owner copies no more: it has ended, or its queue pair has.
    pub fn remove(&self, ring: &Window) {
        self.lock().retain(|word| {
            let is_it = word.ring.as_ptr() == ring.as_ptr();
            if is_it {
                word.is_gone.store(true, Ordering::Release);
            }
            !is_it
        });
    }

    /// A copy of the list, which stays unlocked while a thread waits for a guest, so that the guest can be
    /// removed.
    pub(super) fn all(&self) -> Vec<Arc<Word>> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Word>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Word {
    /// Whether the ring's owner uses a region that `concerns` the caller.
    pub(super) fn is_at_work(&self, concerns: &impl Fn(u64) -> bool) -> bool {
        // Acquire: the owner's copy is over before the memory is reused.
        let word = self.ring.u64_at(offset::IN_USE).load(Ordering::Acquire);
        if word >> 63 == 0 {
            self.is_overdue.store(false, Ordering::Relaxed);
        }
        word >> 63 == 1 && concerns(word) && !self.is_gone.load(Ordering::Acquire)
    }
}
