//! The world that a thread waits in: this machine, or a model of one.
//!
//! A model plays many threads as coroutines of one, in a time of its own. In the thread that has entered it, all that this crate asks of the
//! system goes there: time, sleeps and wake-ups, cores and priorities. So the strategies of a model are the code that programs run.
//!
//! Only with the feature `world` can a model be entered: without it nothing asks whether one has been. With it, asking costs a load and a branch where
//! nobody has.

use crate::sys::Core;
use crate::word::Slept;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What a model answers in the system's place. All of it is asked by the thread that the model plays just now.
pub trait World {
    /// Time since the world began.
    fn now(&self) -> Duration;
    /// The thread does something that takes time and is no call.
    fn step(&self, step: Step);
    /// Sleeps on the word at this address, if `is_unchanged` at the moment of falling asleep.
    fn sleep(&self, word: usize, is_unchanged: &dyn Fn() -> bool, timeout: Option<Duration>) -> Slept;
    /// Wakes one thread that sleeps on the word at this address, or all; how many.
    fn wake(&self, word: usize, all: bool) -> u32;
    /// Lets the others on this core run first.
    fn yield_core(&self);
    /// Where the thread runs.
    fn core(&self) -> Core;
    /// Keeps the thread on the first of these cores; false if there is no such core.
    fn pin(&self, cores: &[Core]) -> bool;
    /// On how many cores the thread may run.
    fn allowed_cores(&self) -> usize;
    /// The thread runs only when nothing else wants its core.
    fn run_only_when_idle(&self);
    /// The time that the thread has spent on a core.
    fn thread_time(&self) -> Duration;
    /// And all of them.
    fn process_time(&self) -> Duration;
    /// Threads that run or want to.
    fn runnable_threads(&self) -> usize;
}

/// What a polling thread does beside calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It looks whether another thread has changed something, and pauses.
    Relax,
    /// It makes a turn of its work.
    Turn,
    /// It sees to an event.
    Event,
    /// It fetches what another core has written.
    Fetch,
    /// It computes for a good while.
    Compute,
}

/// The present.
#[inline]
pub fn now() -> Instant {
    entered().map_or_else(Instant::now, |(began, world)| began + world.now())
}

/// What a polling thread does beside calls: in a model it takes time.
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

/// When this thread entered a model, and which.
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

    /// Models that threads of this process are in.
    static ENTERED: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static WORLD: RefCell<Option<Whereabouts>> = const { RefCell::new(None) };
    }

    /// The thread is in the model until this is dropped, and then where it was before.
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
            // Outside of the borrow: its threads may still ask for something as they are dropped.
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
