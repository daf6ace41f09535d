//! The parts of an RNIC that a queue pair may touch besides itself during one call.

use crate::counters::Counters;
use crate::receive_queue::ReceiveQueue;
use highwire_stdx::{Instant, Slab};
use highwire_verbs::{AsyncEvent, Completion, CqId, Regions};
use std::collections::VecDeque;

/// The parts of an RNIC that its queue pairs share, lent for one call.
#[derive(Debug)]
pub struct Context<'a> {
    /// The time.
    pub now: Instant,
    /// Registered memory.
    pub regions: &'a mut Regions,
    /// Shared receive queues.
    pub shared: &'a mut Slab<ReceiveQueue>,
    /// Where completions go.
    pub completions: &'a mut VecDeque<(CqId, Completion)>,
    /// Where events go.
    pub events: &'a mut VecDeque<AsyncEvent>,
    /// What is counted.
    pub counters: &'a mut Counters,
}
