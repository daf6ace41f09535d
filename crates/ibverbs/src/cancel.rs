//! Cancellation of threads (pthreads(7)).
//!
//! The C library ends a cancelled thread by unwinding its stack by force. Rust's frames must not be unwound that way: they hold locks, the
//! engine's token and what they have to free. So no cancellation is acted on while a frame of ours is active that has anything to drop:
//!
//! - Calls that are not on the data path switch cancellation off and on again ([`sealed`]).
//! - On the data path that would cost two locked instructions, so nothing is switched there. A thread whose cancellation is deferred, as is the
//!   rule, is cancelled at cancellation points only, and `cargo xtask libs` takes these out of what it links (`symbols/c_library.c`). A thread
//!   of asynchronous type may call no function but those that are safe for that (POSIX), which those of the data path are not.
//! - Calls that are cancellation points in rdma-core, because they wait, wait in parts ([`in_parts`]). Between two parts no frame has
//!   anything to drop, and there a cancellation is acted on.

use crate::boundary::{Failure, caught};
use libc::c_int;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

unsafe extern "C-unwind" {
    /// Acts on a cancellation if it switches it on for a thread of asynchronous type.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

const CANCEL_DISABLE: c_int = 1;

/// The longest part of a wait: so long a thread that waits may take to see that it was cancelled.
pub(crate) const PART: Duration = Duration::from_millis(200);

/// What this thread knows of the part that it is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The call in progress does not wait in parts.
    None,
    Running,
    Over,
}

thread_local! {
    // A cell of plain data: the thread's end has nothing to drop.
    static NOW: Cell<Part> = const { Cell::new(Part::None) };
    /// What calls of this thread have put aside. The C library drops it at the end of the thread, also of a cancelled one.
    static ASIDE: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Runs the body of a C function with cancellation off.
#[inline]
pub(crate) fn sealed<R: Failure>(run: impl FnOnce() -> R) -> R {
    let mut before = 0;
    // SAFETY: the old state has a place. Switching it off acts on nothing.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
    let result = caught(run);
    // SAFETY: as above. What unwinds from here finds no frame of ours with anything to drop: results are plain values.
    unsafe { pthread_setcancelstate(before, &raw mut before) };
    result
}

/// Runs a C function that waits, as a cancellation point. The body is called again as long as its last wait was one that
/// [ended with its part](end_part), and gets a value of its own, the default at first, in which it keeps what it has done. What has to be
/// dropped is [put aside](put_aside).
///
/// A call of this kind within another call of ours is no cancellation point: the outer one's frames are in the way.
#[inline]
pub(crate) fn in_parts<R: Failure, K: Default>(mut run: impl FnMut(&mut K) -> R) -> R {
    const { assert!(!std::mem::needs_drop::<K>(), "a cancellation drops nothing") };
    let mut kept = K::default();
    loop {
        // As `read` does, even where it need not wait.
        // SAFETY: no frame of ours has anything to drop here.
        unsafe { pthread_testcancel() };
        let mut is_over = false;
        let result = sealed(|| {
            let outer = NOW.replace(if may_put_aside() { Part::Running } else { Part::None });
            let result = caught(|| run(&mut kept));
            is_over = NOW.replace(outer) == Part::Over;
            result
        });
        if !is_over {
            return result;
        }
    }
}

/// How long a thread may wait now, if it wants to wait for so long, or for ever.
///
/// A wait for ever has no parts while the process has handlers with `SA_RESTART` and others without: then only the kernel knows
/// whether a signal ends the call, and it keeps that to itself for a sleep with an end.
pub(crate) fn part_of(timeout: Option<Duration>) -> Option<Duration> {
    match (NOW.get(), timeout) {
        (Part::None, _) => timeout,
        (Part::Running | Part::Over, Some(timeout)) => Some(timeout.min(PART)),
        (Part::Running | Part::Over, None) => highwire_host::signals_are_alike().then_some(PART),
    }
}

/// Whether a signal that has ended a sleep of this part ends the call: a sleep with an end is not taken up again by the kernel.
pub(crate) fn is_final(part: Option<Duration>) -> bool {
    part.is_none() || highwire_host::signal_ends_waits()
}

/// When the first part of a call began; it is kept for the others.
pub(crate) fn first_begin(kept: &mut u64) -> Instant {
    static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);
    if *kept == 0 {
        *kept = (BASE.elapsed().as_nanos() as u64).max(1);
    }
    *BASE + Duration::from_nanos(*kept)
}

/// A wait has taken [its part](part_of), and nothing has come. If this is true, the call returns, with any result, and is made again.
/// Otherwise the thread goes on waiting.
pub(crate) fn end_part() -> bool {
    let is_running = NOW.get() != Part::None;
    if is_running {
        NOW.set(Part::Over);
    }
    is_running
}

/// Whether the part has ended: the call has to return, with any result.
pub(crate) fn is_part_over() -> bool {
    NOW.get() == Part::Over
}

/// Keeps a value until the next part of the call [takes it back](take_back). If the thread is cancelled before, the value is dropped at the
/// thread's end.
pub(crate) fn put_aside<T: 'static>(value: T) {
    ASIDE.with_borrow_mut(|aside| aside.push(Box::new(value)));
}

/// The last value of that type that was put aside.
pub(crate) fn take_back<T: 'static>() -> Option<T> {
    ASIDE.with_borrow_mut(|aside| {
        let at = aside.iter().rposition(|value| value.is::<T>())?;
        aside.remove(at).downcast().ok().map(|value| *value)
    })
}

/// Not any more when the program exits, and its exit handlers call in: then waits have no parts.
fn may_put_aside() -> bool {
    ASIDE.try_with(|_| ()).is_ok()
}

/// Runs a part of a call that must not be made again, in one piece: its waits have no parts.
pub(crate) fn whole<R>(run: impl FnOnce() -> R) -> R {
    let outer = NOW.replace(Part::None);
    let result = run();
    NOW.set(outer);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_in_parts_is_made_again_until_it_has_a_result() {
        let mut calls = 0;
        let result: c_int = in_parts(|kept: &mut u64| {
            calls += 1;
            *kept += 1;
            assert_eq!(part_of(None), Some(PART));
            assert_eq!(part_of(Some(Duration::from_millis(1))), Some(Duration::from_millis(1)));
            if *kept < 3 && end_part() { -1 } else { 7 }
        });
        assert_eq!((result, calls), (7, 3));
        assert_eq!((part_of(None), end_part()), (None, false), "elsewhere waits have no parts");
    }

    #[test]
    fn what_was_put_aside_is_taken_back_or_dropped_with_its_thread() {
        let value = std::sync::Arc::new(());
        let (one, two) = (value.clone(), value.clone());
        let thread = std::thread::spawn(move || {
            put_aside(one);
            put_aside(7_u8);
            let mut parts = 0;
            let result: c_int = in_parts(|has_begun: &mut bool| {
                parts += 1;
                if !std::mem::replace(has_begun, true) {
                    put_aside((two.clone(), 9));
                    end_part();
                    assert!(is_part_over());
                    return -1;
                }
                assert!(!is_part_over());
                take_back::<(std::sync::Arc<()>, c_int)>().map_or(-2, |(_, number)| number)
            });
            (result, parts, take_back::<c_int>(), take_back::<u8>())
        });
        assert_eq!(thread.join().expect("it ends"), (9, 2, None, Some(7)));
        assert_eq!(std::sync::Arc::strong_count(&value), 1, "the thread's end has dropped it");
    }

    #[test]
    fn a_call_in_parts_within_another_ends_its_own_parts() {
        let mut outer_calls = 0;
        let result: c_int = in_parts(|_: &mut u64| {
            outer_calls += 1;
            in_parts(|kept: &mut u64| {
                *kept += 1;
                if *kept < 2 && end_part() { -1 } else { 9 }
            })
        });
        assert_eq!((result, outer_calls), (9, 1));
    }
}
