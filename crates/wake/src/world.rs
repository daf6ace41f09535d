//! The world in which a thread waits: this machine, or a model of one.
//!
//! A model plays many threads as coroutines of one, in a time of its own. In the thread that has entered it,
//! all requests of this crate to the system go to the model: time, sleeps and wake-ups, cores and priorities.
//! So the strategies of a model are the code that programs run.
//!
//! Only with the feature `world` can a thread enter a model: without it this crate never asks whether one
//! has. With it, asking costs a load and a branch if no thread has.
//!
//! A model that plays whole processes is a [`Kernel`] as well: it starts threads, ends sleeps on descriptors, and may
//! take the core from a thread at every [`may_switch`].

use crate::sys::Core;
use crate::word::Slept;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
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
    /// The model's answers to a whole process, if it has any.
    fn kernel(&self) -> Option<&dyn Kernel> {
        None
    }
}

/// The calls of a whole process that a model answers in the system's place.
pub trait Kernel {
    /// The thread may lose its core here, in the middle of its work.
    fn may_switch(&self);
    /// Sleeps until `is_over`, or for as long as `timeout`; false if the time is up. What `is_over` looks at changes only by
    /// other threads or by the model itself.
    fn sleep_until(&self, is_over: &dyn Fn() -> bool, timeout: Option<Duration>) -> bool;
    /// Starts a thread in the process of the calling one.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce()>) -> Started;
    /// The number of the calling thread; no two living threads have the same.
    fn thread(&self) -> usize;
}

/// A thread that a model plays.
pub struct Started {
    has_ended: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Started {
    /// A thread of which this closure tells whether it has ended.
    pub fn new(has_ended: impl Fn() -> bool + Send + Sync + 'static) -> Started {
        Started { has_ended: Box::new(has_ended) }
    }

    /// Waits for the thread's end.
    pub fn join(self) {
        sleep_until(&*self.has_ended, None);
    }
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Started").finish_non_exhaustive()
    }
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

/// The time since the model began that this thread is in; `None` on this machine.
#[inline]
pub fn time() -> Option<Duration> {
    model().map(|model| model.now())
}

/// The calling thread may lose its core here. Nothing happens on this machine, where that may be anywhere.
#[inline]
pub fn may_switch() {
    with_kernel(|kernel| kernel.may_switch());
}

/// Sleeps until `is_over` or for as long as `timeout`; false if the time is up. `None`, at once, on this machine.
#[inline]
pub fn sleep_until(is_over: &dyn Fn() -> bool, timeout: Option<Duration>) -> Option<bool> {
    with_kernel(|kernel| kernel.sleep_until(is_over, timeout))
}

/// Starts a thread in the model; gives the body back on this machine.
///
/// # Errors
/// The calling thread is in no model that starts threads.
pub fn spawn<B: FnOnce() + 'static>(name: &str, body: B) -> Result<Started, B> {
    let mut body = Some(body);
    let started = with_kernel(|kernel| {
        let body = body.take().expect("it is called once");
        kernel.spawn(name, Box::new(body))
    });
    match (started, body) {
        (Some(started), _) => Ok(started),
        (None, Some(body)) => Err(body),
        (None, None) => unreachable!("a body that was taken has been started"),
    }
}

/// The number of the calling thread in its model; `None` on this machine.
#[inline]
pub fn thread() -> Option<usize> {
    with_kernel(|kernel| kernel.thread())
}

/// Locks a mutex whose holder may reach [`may_switch`]: in a model, where one thread plays all, the others run meanwhile.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    while thread().is_some() {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => crate::sys::yield_core(),
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline]
fn with_kernel<R>(ask: impl FnOnce(&dyn Kernel) -> R) -> Option<R> {
    model().and_then(|model| model.kernel().map(ask))
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
