//! The completion queues of a lane, as the engine writes them.
//!
//! Invariant: a queue that was written to since the last look is in the list of touched ones exactly once. So a turn shows its completions
//! at a cost that does not depend on how many other queues there are: a server has one for each of its threads.

use super::ends::CqSink;
use highwire_rings::Cqe;
use highwire_verbs::{Completion, CqId};

/// Completion queues by number.
#[derive(Default)]
pub(super) struct Sinks {
    sinks: Vec<Option<CqSink>>,
    /// Those with completions that are not shown yet.
    touched: Vec<CqId>,
}

impl Sinks {
    pub(super) fn add(&mut self, id: CqId, sink: CqSink) {
        let index = id.0 as usize;
        if self.sinks.len() <= index {
            self.sinks.resize_with(index + 1, || None);
        }
        self.sinks[index] = Some(sink);
    }

    pub(super) fn remove(&mut self, id: CqId) {
        if let Some(sink) = self.sinks.get_mut(id.0 as usize) {
            *sink = None;
        }
        self.touched.retain(|touched| *touched != id);
    }

    #[inline]
    pub(super) fn get(&self, id: CqId) -> Option<&CqSink> {
        self.sinks.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (CqId, &mut CqSink)> {
        let sinks = (0..).zip(&mut self.sinks);
        sinks.filter_map(|(id, sink)| sink.as_mut().map(|sink| (CqId(id), sink)))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: CqId) -> Option<&mut CqSink> {
        self.sinks.get_mut(id.0 as usize)?.as_mut()
    }

    /// Writes a completion that is not shown yet.
    #[inline]
    pub(super) fn push(&mut self, cq: CqId, completion: &Completion) {
        self.push_entry(cq, &Cqe::from(*completion));
    }

    #[inline]
    pub(super) fn push_entry(&mut self, cq: CqId, cqe: &Cqe) {
        let Some(Some(sink)) = self.sinks.get_mut(cq.0 as usize) else { return };
        if !std::mem::replace(&mut sink.is_touched, true) {
            self.touched.push(cq);
        }
        if sink.ring.push(cqe).is_err() {
            sink.is_overrun = true;
        }
    }

    /// Calls `each` with every queue that was written to since the last call; returns at how many queues it has looked.
    #[inline]
    pub(super) fn take_touched(&mut self, mut each: impl FnMut(CqId, &mut CqSink)) -> usize {
        let looked = self.touched.len();
        for id in self.touched.drain(..) {
            let Some(Some(sink)) = self.sinks.get_mut(id.0 as usize) else { continue };
            sink.is_touched = false;
            each(id, sink);
        }
        looked
    }
}
