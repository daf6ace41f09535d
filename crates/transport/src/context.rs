//! The parts of an RNIC that a queue pair may touch besides itself during one call.

use crate::counters::Counters;
use crate::receive_queue::ReceiveQueue;
use highwire_stdx::{Instant, Slab};
use highwire_verbs::{AsyncEvent, Completion, CqId, Denial, Regions};
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
    /// Where accesses that were refused go, for whoever explains them.
    pub denials: &'a mut VecDeque<Denial>,
    /// What is counted.
    pub counters: &'a mut Counters,
}

/// Denials that nobody has asked for are kept up to this number.
const DENIALS_MAX: usize = 64;

impl Context<'_> {
    /// Notes an access that was refused.
    #[cold]
    pub(crate) fn deny(&mut self, denial: Denial) {
        if self.denials.len() < DENIALS_MAX {
            self.denials.push_back(denial);
        }
    }
}
