//! The world in which a thread waits: this machine, or a model of one.
//!
//! A model plays many threads as coroutines of one, in a time of its own. In the thread that has entered it,
//! all requests of this crate to the system go to the model: time, sleeps and wake-ups, cores and priorities.
//! So the strategies of a model are the code that programs run.
//!
//! Only with the feature `world` can a thread enter a model: without it this crate never asks whether one
//! has. With it, asking costs a load and a branch if no thread has.

use crate::sys::Core;
use crate::word::Slept;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The calls that a model answers in the system's place, on behalf of the thread that it plays at the moment.
pub trait World {
    /// Time since the world began.
    fn now(&self) -> Duration;
    /// The thread does something other than a call that takes time.
    fn step(&self, step: Step);
    /// Sleeps on the word at this address, if `is_unchanged` at the moment of falling asleep.
    fn sleep(&self, word: usize, is_unchanged: &dyn Fn() -> bool, timeout: Option<Duration>) -> Slept;
    /// Wakes one thread that sleeps on the word at this address, or all; returns how many.
    fn wake(&self, word: usize, all: bool) -> u32;
    /// Lets the other threads on this core run first.
    fn yield_core(&self);
    /// The core on which the thread runs.
    fn core(&self) -> Core;
    /// Keeps the thread on the first of these cores; false if there is no such core.
    fn pin(&self, cores: &[Core]) -> bool;
    /// The number of cores that the machine has.
    fn machine_cores(&self) -> usize;
    /// Lets the thread run only when no other wants its core.
    fn run_only_when_idle(&self);
    /// The time that the thread has spent on a core.
    fn thread_time(&self) -> Duration;
    /// The time that all threads have spent on cores.
    fn process_time(&self) -> Duration;
    /// Threads that run or want to.
    fn runnable_threads(&self) -> usize;
}

/// Activities of a polling thread other than calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It looks whether another thread has changed something, and pauses.
    Relax,
    /// It makes a turn of its work.
    Turn,
    /// It handles an event.
    Event,
    /// It fetches data that another core has written.
    Fetch,
    /// It computes for a good while.
    Compute,
}

/// The present.
#[inline]
pub fn now() -> Instant {
    entered().map_or_else(Instant::now, |(began, world)| began + world.now())
}

/// Runs an activity of a polling thread other than a call: in a model it takes time.
#[inline]
pub fn step(step: Step) {
    match model() {
        Some(model) => model.step(step),
        None if step == Step::Relax => std::hint::spin_loop(),
        None => {}
    }
}

/// The model that this thread is in.
#[inline]
pub(crate) fn model() -> Option<Rc<dyn World>> {
    entered().map(|(_, world)| world)
}

/// When this thread entered a model, and which one.
type Whereabouts = (Instant, Rc<dyn World>);

#[cfg(not(feature = "world"))]
#[inline]
fn entered() -> Option<Whereabouts> {
    None
}

#[cfg(feature = "world")]
use inside::entered;

#[cfg(feature = "world")]
pub use inside::{Entered, enter};

#[cfg(feature = "world")]
mod inside {
    use super::{Rc, Whereabouts, World};
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    /// The number of models that threads of this process are in.
    static ENTERED: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static WORLD: RefCell<Option<Whereabouts>> = const { RefCell::new(None) };
    }

    /// Keeps the thread in the model until this is dropped; then the thread is where it was before.
    pub struct Entered {
        before: Option<Whereabouts>,
    }

    /// Enters a model.
    #[must_use]
    pub fn enter(world: Rc<dyn World>) -> Entered {
        let before = WORLD.with_borrow_mut(|entered| entered.replace((Instant::now(), world)));
        ENTERED.fetch_add(1, Ordering::Relaxed);
        Entered { before }
    }

    impl Drop for Entered {
        fn drop(&mut self) {
            ENTERED.fetch_sub(1, Ordering::Relaxed);
            let before = self.before.take();
            let left = WORLD.with_borrow_mut(|entered| std::mem::replace(entered, before));
            // Outside of the borrow: the model's threads may still call it as they are dropped.
            drop(left);
        }
    }

    impl std::fmt::Debug for Entered {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Entered").finish_non_exhaustive()
        }
    }

    #[inline]
    pub(super) fn entered() -> Option<Whereabouts> {
        if ENTERED.load(Ordering::Relaxed) == 0 { None } else { of_thread() }
    }

    #[cold]
    fn of_thread() -> Option<Whereabouts> {
        // Cloned: the model may switch to another of its threads before it answers.
        WORLD.with_borrow(Clone::clone)
    }
}
