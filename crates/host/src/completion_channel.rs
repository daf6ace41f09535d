//! Completion channels: one descriptor for the events of many completion queues.
//!
//! A queue that was armed with `request_notify` reports its next completion once. A thread that waits here is
//! woken through its own word; the descriptor is written only for events that no such thread is about to
//! take, for programs that poll the descriptor. While a queue is armed, the device's thread counts its owner
//! as asleep and runs the lane even if an application thread ran it just before.

use crate::config::Engine;
use crate::device::Owner;
use crate::engine::ChannelLook;
use crate::pollable::PollableQueue;
use crate::waiting::{Count, Descriptors, Place, Sleepers};
use highwire_wake::{Outcome, world};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

/// A completion channel. Clones are the same channel; it lives as long as a queue that reports to it.
///
/// ```
/// use highwire_host::verbs::{Operation, RecvWr, SendWr, Service};
/// use highwire_host::{ChannelTarget, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig};
/// use highwire_host::{QueuePairConfig, WaitFor};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::open(&DeviceConfig::default())?;
/// let channel = device.completion_channel()?;
/// let target = Some(ChannelTarget { channel: &channel, tag: 5 });
/// let config = CompletionQueueConfig { channel: target, ..CompletionQueueConfig::new(16) };
/// let cq = device.create_completion_queue(&config)?;
/// let qp = device.protection_domain().queue_pair(&QueuePairConfig::new(Service::Rc, &cq))?;
/// qp.connect(&qp.endpoint(), &ConnectOptions::default())?; // with itself
/// cq.request_notify(WaitFor::Any)?;
/// qp.post_recv(&RecvWr { wr_id: 1, sges: &[] })?;
/// qp.post_send(&[SendWr::new(2, Operation::Send, &[])])?;
/// assert_eq!(channel.event(Some(Duration::from_secs(10))), Some(5));
/// assert!(cq.poll_one().is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CompletionChannel {
    device: Arc<Owner>,
    reports: Arc<Reports>,
}

/// The events that queues have reported, and the threads that wait for events.
#[derive(Debug)]
struct Reports {
    events: PollableQueue<u64>,
    sleepers: Sleepers,
    /// How many more events may be taken at the descriptor before the threads that take them no longer count as ones that block here.
    blocks: AtomicU8,
}

/// Events in a row that a thread which blocks may find there already.
const FOUND_AT_ONCE_MAX: u8 = 4;

/// The channel to which a completion queue reports, and its tag there.
#[derive(Clone, Copy, Debug)]
pub struct ChannelTarget<'a> {
    /// The channel.
    pub channel: &'a CompletionChannel,
    /// What [`CompletionChannel::try_event`] returns for the queue. Tags of queues that report to one channel differ.
    pub tag: u64,
}

/// A signal was handled while a thread waited, and no event is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupted;

impl CompletionChannel {
    pub(crate) fn new(device: &Arc<Owner>) -> io::Result<CompletionChannel> {
        // A queue reports once each time it is armed, so the application itself limits the number of events.
        let events = PollableQueue::new(usize::MAX)?;
        let place = Place::Channel(events.fd().as_raw_fd());
        let sleepers = device.waiting.sleepers(place);
        let reports = Arc::new(Reports { events, sleepers, blocks: AtomicU8::new(0) });
        Ok(CompletionChannel { device: Arc::clone(device), reports })
    }

    /// A descriptor that is readable while events wait that no thread in [`event`](Self::event) is about to
    /// take. Callers may make it non-blocking, but must not read it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.reports.events.fd()
    }

    /// Whether the descriptor is still this channel's: the application may have closed it, and opened another file.
    pub fn is_open(&self) -> bool {
        self.reports.events.is_open()
    }

    /// Reports an event of a queue by its tag, as a completion does: for a driver that hands completions out later than they come.
    pub fn report(&self, tag: u64) {
        if self.reports.events.push(tag) {
            self.reports.sleepers.note_told();
        }
        self.reports.sleepers.wake();
    }

    /// The tag of the queue that reported first, if any has.
    pub fn try_event(&self) -> Option<u64> {
        let event = self.reports.events.pop()?;
        let blocks = self.reports.blocks.load(Ordering::Relaxed);
        self.reports.blocks.store(blocks.saturating_sub(1), Ordering::Relaxed);
        Some(event)
    }

    /// The same, waiting for one; for ever without a `timeout`.
    pub fn event(&self, timeout: Option<Duration>) -> Option<u64> {
        let deadline = timeout.and_then(|timeout| world::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(world::now()));
            if let Ok(event) = self.event_or_signal(left) {
                return event;
            }
        }
    }

    /// Waits as a thread in `poll` or `epoll_wait` does which has this channel's [descriptor](Self::fd) among those that it waits for: until one
    /// of them is ready. [`Outcome::Elsewhere`]: the caller must sleep on its descriptors itself, because another thread does the work, or
    /// waiting threads of this device do not do any.
    pub fn wait_beside(&self, wanted: &Descriptors<'_>, timeout: Option<Duration>) -> Outcome {
        // A forked child's copy of the lanes is the parent's.
        let is_inherited = self.device.lanes.first().is_some_and(|lane| lane.is_inherited());
        if self.device.engine != Engine::Both || is_inherited {
            return Outcome::Elsewhere;
        }
        self.device.waiting.wait_beside(&self.device, &self.reports.sleepers, wanted, timeout)
    }

    /// The same as [`event`](Self::event), until a signal is handled during a sleep.
    ///
    /// # Errors
    /// That has happened.
    pub fn event_or_signal(&self, timeout: Option<Duration>) -> Result<Option<u64>, Interrupted> {
        self.event_or(&|| false, timeout)
    }

    /// The same, or until `is_over`, for what other threads of the program do. They make it true, and then call
    /// [`wake_all`](Self::wake_all).
    ///
    /// # Errors
    /// A signal was handled during a sleep.
    pub fn event_or(
        &self,
        is_over: &dyn Fn() -> bool,
        timeout: Option<Duration>,
    ) -> Result<Option<u64>, Interrupted> {
        let events = &self.reports.events;
        if self.device.engine == Engine::Inline {
            return Ok(self.event_inline(is_over, timeout));
        }
        let blocked = events.block();
        let found = Cell::new(None);
        let is_over = || {
            if found.get().is_none() {
                found.set(events.pop());
            }
            found.get().is_some() || is_over()
        };
        let outcome = self.device.waiting.wait(&self.device, &self.reports.sleepers, &is_over, timeout);
        drop(blocked);
        self.reports.blocks.store(FOUND_AT_ONCE_MAX, Ordering::Relaxed);
        match (found.get(), outcome) {
            (None, Outcome::Interrupted) => Err(Interrupted),
            (found, _) => Ok(found),
        }
    }

    /// Without a thread of the device that could be woken, a thread looks at `is_over` again after a while.
    fn event_inline(&self, is_over: &dyn Fn() -> bool, timeout: Option<Duration>) -> Option<u64> {
        const LOOK_AGAIN: Duration = Duration::from_millis(1);
        let deadline = timeout.and_then(|timeout| world::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(world::now()));
            let event = self.reports.events.wait(Some(left.map_or(LOOK_AGAIN, |left| left.min(LOOK_AGAIN))));
            if event.is_some() || is_over() || left.is_some_and(|left| left.is_zero()) {
                return event;
            }
        }
    }

    /// Lets every thread that waits in [`event_or`](Self::event_or) look whether its wait is over.
    pub fn wake_all(&self) {
        self.reports.sleepers.wake_all();
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").field("reports", &self.reports).finish_non_exhaustive()
    }
}

/// A completion queue's end of its channel.
#[derive(Debug)]
pub(crate) struct ChannelEnd {
    reports: Arc<Reports>,
    tag: u64,
    is_armed: AtomicBool,
    was_armed: AtomicBool,
    waiting: Arc<Count>,
}

impl ChannelEnd {
    pub(crate) fn new(target: ChannelTarget<'_>, waiting: &Arc<Count>) -> ChannelEnd {
        ChannelEnd {
            reports: Arc::clone(&target.channel.reports),
            tag: target.tag,
            is_armed: AtomicBool::new(false),
            was_armed: AtomicBool::new(false),
            waiting: Arc::clone(waiting),
        }
    }

    /// Before the ring is armed: the event may come at once.
    pub(crate) fn arm(&self) {
        if !self.is_armed.swap(true, Ordering::SeqCst) {
            self.was_armed.store(true, Ordering::Relaxed);
            self.waiting.begin();
        }
    }

    pub(crate) fn look(&self) -> ChannelLook {
        let events = &self.reports.events;
        ChannelLook {
            fd: events.fd().as_raw_fd(),
            is_armed: self.is_armed.load(Ordering::Relaxed),
            was_armed: self.was_armed.load(Ordering::Relaxed),
            has_event: events.has(|tag| *tag == self.tag),
            is_waited_at: events.is_waited_at(),
        }
    }

    /// Whether a thread will probably block on the channel soon.
    pub(crate) fn is_blocked_on(&self) -> bool {
        self.reports.blocks.load(Ordering::Relaxed) > 0
    }

    /// A completion was delivered for which the queue was armed. True if this is an event, for which the caller then [wakes](Self::wake) a
    /// thread.
    pub(crate) fn report(&self) -> bool {
        let was_armed = self.is_armed.swap(false, Ordering::SeqCst);
        if was_armed {
            self.waiting.end();
            if self.reports.events.push(self.tag) {
                self.reports.sleepers.note_told();
            }
        }
        was_armed
    }

    /// Wakes a thread for an event.
    pub(crate) fn wake(&self) {
        self.reports.sleepers.wake();
    }

    /// The queue is gone.
    pub(crate) fn close(&self) {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.waiting.end();
        }
        self.reports.events.retain(|tag| *tag != self.tag);
    }
}
