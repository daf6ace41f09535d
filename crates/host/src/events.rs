//! Asynchronous events, which concern an object rather than a work request.

use crate::counters::CounterSnapshot;
use crate::pollable::PollableQueue;
use highwire_rnic::QpSnapshot;
use highwire_verbs::{AsyncEvent, Gid};
use highwire_wire::Qpn;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The function that gets lines about problems that no call can report, if one is set.
static LOG: OnceLock<fn(&str)> = OnceLock::new();

/// Sets the function for lines about problems that no call can report, such as a completion queue that
/// overflows. The first function stays.
pub fn log_to(log: fn(&str)) {
    let _ = LOG.set(log);
}

/// How a device stands, for a report on a program.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Every counter, summed over the lanes.
    pub counters: CounterSnapshot,
    /// Its queue pairs, [`Standing::QUEUE_PAIRS_MAX`] at most.
    pub queue_pairs: Vec<(Qpn, QpSnapshot)>,
    /// How many others there are.
    pub left_out: usize,
}

impl Standing {
    /// So many queue pairs are in it at most.
    pub const QUEUE_PAIRS_MAX: usize = 64;
}

/// Gets a device's address, and what tells how it stands.
type Report = fn(Gid, &dyn Fn() -> Standing);

/// The function that is told that there may be news of a device, if one is set.
static REPORT: OnceLock<Report> = OnceLock::new();

/// Sets the function that is called, ten times a second at most, with a device's address and what tells how it stands. It must not call the
/// device otherwise. The first function stays.
pub fn report_to(report: fn(Gid, &dyn Fn() -> Standing)) {
    let _ = REPORT.set(report);
}

pub(crate) fn report(gid: Gid, standing: &dyn Fn() -> Standing) {
    if let Some(report) = REPORT.get() {
        report(gid, standing);
    }
}

/// Whether lines are wanted.
pub(crate) fn is_logged() -> bool {
    LOG.get().is_some()
}

pub(crate) fn log(line: impl FnOnce() -> String) {
    if let Some(log) = LOG.get() {
        log(&line());
    }
}

/// Events kept at most; an application that never asks loses the oldest.
const EVENTS_MAX: usize = 1024;

/// A queue of asynchronous events with a descriptor. Clones are the same queue.
///
/// Every device has one. A program that wants the events of some objects apart (as for a context of
/// `libibverbs`) makes another with [`Device::event_queue`](crate::Device::event_queue), and names it when it
/// makes the objects.
#[derive(Clone, Debug)]
pub struct EventQueue {
    events: Arc<PollableQueue<TaggedEvent>>,
}

/// An event, and the number that the object's maker gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaggedEvent {
    /// The event and its object.
    pub event: AsyncEvent,
    /// The tag from the object's configuration; zero without one.
    pub tag: u64,
}

/// Where an object's events go, under which tag.
#[derive(Clone, Copy, Debug)]
pub struct EventTarget<'a> {
    /// The queue.
    pub queue: &'a EventQueue,
    /// The tag by which the maker recognises the event.
    pub tag: u64,
}

/// The same, as the engine keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    pub(crate) queue: EventQueue,
    pub(crate) tag: u64,
}

impl Reporter {
    /// A reporter to the configured queue, or to the device's own.
    pub(crate) fn new(target: Option<EventTarget<'_>>, default: &EventQueue) -> Reporter {
        match target {
            Some(EventTarget { queue, tag }) => Reporter { queue: queue.clone(), tag },
            None => Reporter { queue: default.clone(), tag: 0 },
        }
    }

    pub(crate) fn report(&self, event: AsyncEvent) {
        self.queue.push(TaggedEvent { event, tag: self.tag });
    }

    /// The object is gone: the application must not see its events any more.
    pub(crate) fn forget(&self, concerns: impl Fn(&AsyncEvent) -> bool) {
        self.queue.events.retain(|event| event.tag != self.tag || !concerns(&event.event));
    }
}

impl EventQueue {
    pub(crate) fn new() -> io::Result<EventQueue> {
        Ok(EventQueue { events: Arc::new(PollableQueue::new(EVENTS_MAX)?) })
    }

    /// A descriptor that is readable while events wait. Callers may make it non-blocking, but must not read
    /// it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }

    /// Whether the descriptor is still this queue's: the application may have closed it, and opened another file.
    pub fn is_open(&self) -> bool {
        self.events.is_open()
    }

    /// The oldest event that was not asked for yet.
    pub fn try_next(&self) -> Option<TaggedEvent> {
        self.events.pop()
    }

    /// The same, waiting for one; for ever without a `timeout`.
    pub fn next(&self, timeout: Option<Duration>) -> Option<TaggedEvent> {
        self.events.wait(timeout)
    }

    /// The same as `read` on the [descriptor](Self::fd) has it: no wait where that is non-blocking, and a signal whose
    /// handler was installed without `SA_RESTART` ends it. With a longest time, any signal may end it with `None`, and so does the time.
    ///
    /// # Errors
    /// EAGAIN, EINTR.
    pub fn next_as_read(&self, most: Option<Duration>) -> io::Result<Option<TaggedEvent>> {
        self.events.wait_as_read(most)
    }

    /// Adds an event, as the engine does.
    pub fn push(&self, event: TaggedEvent) {
        self.events.push(event);
    }
}
