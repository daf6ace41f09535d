//! The changes of a stream, and the threads that wait for one.
//!
//! Whoever takes completions or connection events of a stream, or ends it, may have taken what another thread waits for.
//! So each change is counted, and every thread that waits is told and looks for itself. A thread reads the count *before*
//! it looks at the stream, and sleeps only while the count is what it has read: no change is lost.
//!
//! Threads sleep in two ways. Those in a call on one connected stream wait on its completion channel, where they may do
//! the device's work. Those in `rpoll` sleep on many descriptors, and those in `raccept` have no channel: each brings a
//! counter of its own, which no other thread empties.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use highwire_host::CompletionChannel;
use libc::c_int;

use super::background;
use super::stream::Stream;
use crate::cancel;
use crate::rdmacm::eventfd;

/// Changes of one stream.
#[derive(Default)]
pub(super) struct Changes {
    count: AtomicU64,
    /// The completion channel, once there is one, and threads that wait there.
    channel: OnceLock<CompletionChannel>,
    waiters: AtomicUsize,
    /// The counters of threads that sleep on descriptors.
    sleepers: Mutex<Vec<Arc<OwnedFd>>>,
    sleeping: AtomicUsize,
    /// The stream, while connection events are taken by the background thread if no other thread does.
    attended: Mutex<Option<Weak<Mutex<Stream>>>>,
    /// The background thread has been told, and has not come yet.
    pub(super) is_called: AtomicBool,
    /// The listening stream of a connection that `raccept` has not taken.
    parent: Mutex<Weak<Changes>>,
}

impl Changes {
    /// How many there have been.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// The stream has its completion channel now.
    pub(super) fn set_channel(&self, channel: CompletionChannel) {
        let _ = self.channel.set(channel);
    }

    /// From now on the background thread takes connection events.
    pub(super) fn serve(&self, stream: Weak<Mutex<Stream>>) {
        *unpoisoned(&self.attended) = Some(stream);
    }

    /// Events about this stream are the listening stream's business, until [`leave`](Self::leave).
    pub(super) fn belong_to(&self, parent: &Arc<Changes>) {
        *unpoisoned(&self.parent) = Arc::downgrade(parent);
    }

    pub(super) fn leave(&self) {
        *unpoisoned(&self.parent) = Weak::new();
    }

    /// Counts a change, and wakes every thread that waits.
    pub(super) fn note(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0
            && let Some(channel) = self.channel.get()
        {
            channel.wake_all();
        }
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            unpoisoned(&self.sleepers).iter().for_each(|sleeper| eventfd::add(sleeper.as_raw_fd(), 1));
        }
    }

    /// A connection event waits to be taken. Connection management is locked: this takes no lock of a stream.
    pub(super) fn on_event(&self) {
        self.note();
        let attended = unpoisoned(&self.attended).clone();
        if let Some(stream) = attended
            && !self.is_called.swap(true, Ordering::SeqCst)
        {
            background::call(stream);
        }
        let parent = unpoisoned(&self.parent).upgrade();
        if let Some(parent) = parent {
            parent.on_event();
        }
    }

    /// Waits for another count than `seen`, or a completion.
    ///
    /// # Errors
    /// EINTR for a signal whose handler ends a call, or the [end of a part](cancel::end_part); what making a counter says.
    pub(super) fn wait(&self, seen: u64, timeout: Option<Duration>) -> Result<(), c_int> {
        let Some(channel) = self.channel.get() else { return self.sleep(seen, timeout) };
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let part = cancel::part_of(timeout);
        let waited = channel.event_or(&|| self.count() != seen, part);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        match waited {
            Ok(Some(_)) => Ok(()),
            Err(_) if timeout.is_some() || cancel::is_final(part) => Err(libc::EINTR),
            Ok(None) | Err(_) if part != timeout && self.count() == seen && cancel::end_part() => {
                Err(libc::EINTR)
            }
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// The same without a channel.
    fn sleep(&self, seen: u64, timeout: Option<Duration>) -> Result<(), c_int> {
        let counter = Counter::new()?;
        let _enrolled = counter.enroll(self);
        if self.count() != seen {
            return Ok(());
        }
        let part = cancel::part_of(timeout);
        if part.is_none() {
            // The kernel's own `read`: it knows whether a signal ends the call.
            return eventfd::take(counter.fd());
        }
        let mut fd = libc::pollfd { fd: counter.fd(), events: libc::POLLIN, revents: 0 };
        match sleep_on(std::slice::from_mut(&mut fd), part) {
            Err(libc::EINTR) if timeout.is_none() && !cancel::is_final(part) => {}
            slept => slept?,
        }
        // Also for a signal that lets the call go on: signals may come faster than a part ends.
        if part != timeout && fd.revents == 0 && cancel::end_part() { Err(libc::EINTR) } else { Ok(()) }
    }

    /// Takes the events of completions. The caller then takes the completions, and so tells those that wait for them.
    pub(super) fn take_wakeups(&self) {
        if let Some(channel) = self.channel.get() {
            while channel.try_event().is_some() {}
        }
    }

    /// The descriptor of the completion channel.
    pub(super) fn channel_fd(&self) -> Option<RawFd> {
        self.channel.get().map(|channel| channel.fd().as_raw_fd())
    }
}

/// Sleeps until a descriptor is ready.
///
/// # Errors
/// EINTR for any signal.
pub(super) fn sleep_on(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> Result<(), c_int> {
    let timeout = timeout.map(|left| libc::timespec {
        tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array and the time live through the call.
    let woken =
        unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, std::ptr::null()) };
    if woken < 0 { Err(super::c::last_errno()) } else { Ok(()) }
}

/// A thread's own counter of changes.
pub(super) struct Counter(Arc<OwnedFd>);

impl Counter {
    pub(super) fn new() -> Result<Counter, c_int> {
        eventfd::new(0).map(|fd| Counter(Arc::new(fd)))
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Counts the changes of a stream, too, while the result lives.
    pub(super) fn enroll<'a>(&'a self, changes: &'a Changes) -> Enrolled<'a> {
        let mut sleepers = unpoisoned(&changes.sleepers);
        sleepers.push(Arc::clone(&self.0));
        changes.sleeping.store(sleepers.len(), Ordering::SeqCst);
        Enrolled { counter: self, changes }
    }
}

/// While it lives, a counter counts the changes of a stream.
pub(super) struct Enrolled<'a> {
    counter: &'a Counter,
    changes: &'a Changes,
}

impl Drop for Enrolled<'_> {
    fn drop(&mut self) {
        let mut sleepers = unpoisoned(&self.changes.sleepers);
        if let Some(at) = sleepers.iter().position(|sleeper| Arc::ptr_eq(sleeper, &self.counter.0)) {
            sleepers.swap_remove(at);
        }
        self.changes.sleeping.store(sleepers.len(), Ordering::SeqCst);
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_that_sleeps_is_told_of_a_change_and_only_one_that_looked_before_it() {
        let changes = Changes::default();
        let seen = changes.count();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| changes.wait(seen, None))).collect();
            while changes.sleeping.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            changes.note();
            for thread in threads {
                assert_eq!(thread.join().expect("no panic"), Ok(()));
            }
        });
        assert_eq!(changes.wait(seen, None), Ok(()), "the change was before");
        assert_eq!((changes.sleeping.load(Ordering::SeqCst), unpoisoned(&changes.sleepers).len()), (0, 0));
    }
}
