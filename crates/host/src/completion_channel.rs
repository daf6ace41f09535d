//! Completion channels: one descriptor that tells of many completion queues.
//!
//! A queue that was armed with `request_notify` reports its next completion once. The engine writes to the descriptor
//! only then, so an application that polls pays nothing. While a queue is armed, the device's thread counts its
//! owner as asleep and runs the lane whether or not somebody came by just before.

use crate::device::Waiting;
use crate::pollable::PollableQueue;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A completion channel. Clones are the same channel; it lives as long as a queue that reports to it.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    events: Arc<PollableQueue<u64>>,
}

/// Where a completion queue reports, and what it is called there.
#[derive(Clone, Copy, Debug)]
pub struct ChannelTarget<'a> {
    /// The channel.
    pub channel: &'a CompletionChannel,
    /// What [`CompletionChannel::try_event`] returns for the queue. Tags of queues that report to one channel differ.
    pub tag: u64,
}

impl CompletionChannel {
    pub(crate) fn new() -> io::Result<CompletionChannel> {
        // A queue reports once each time it is armed, so the application itself limits what piles up.
        Ok(CompletionChannel { events: Arc::new(PollableQueue::new(usize::MAX)?) })
    }

    /// A descriptor that is readable while events wait. It may be made non-blocking; it is not to be read.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }

    /// The tag of the queue that reported first, if any has.
    pub fn try_event(&self) -> Option<u64> {
        self.events.pop()
    }

    /// The same, waiting for one; for ever without a `timeout`.
    pub fn event(&self, timeout: Option<Duration>) -> Option<u64> {
        self.events.wait(timeout)
    }
}

/// A completion queue's end of its channel.
#[derive(Debug)]
pub(crate) struct ChannelEnd {
    channel: CompletionChannel,
    tag: u64,
    is_armed: AtomicBool,
    waiting: Arc<Waiting>,
}

impl ChannelEnd {
    pub(crate) fn new(target: ChannelTarget<'_>, waiting: &Arc<Waiting>) -> ChannelEnd {
        ChannelEnd {
            channel: target.channel.clone(),
            tag: target.tag,
            is_armed: AtomicBool::new(false),
            waiting: Arc::clone(waiting),
        }
    }

    /// Before the ring is armed: the event may come at once.
    pub(crate) fn arm(&self) {
        if !self.is_armed.swap(true, Ordering::SeqCst) {
            self.waiting.begin();
        }
    }

    /// Something was delivered that the queue was armed for.
    pub(crate) fn fire(&self) {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.waiting.end();
            self.channel.events.push(self.tag);
        }
    }

    /// The queue is gone.
    pub(crate) fn close(&self) {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.waiting.end();
        }
        self.channel.events.retain(|tag| *tag != self.tag);
    }
}
