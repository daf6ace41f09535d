//! The way to neighbours: rings in shared memory, with faults and captures in front of them where there are any.

use super::disturbed::Disturbed;
use super::neighbours::{Neighbours, Sent};
use super::{Offered, Way};
use crate::counters::DriverCounters;
use crate::memory::HostMemory;
use highwire_rnic::Outgoing;
use highwire_stdx::Instant;

/// One lane's rings in shared memory.
pub(crate) struct Shm {
    pub(crate) rings: Neighbours,
    /// The faults and captures that all packets go through on their way into the rings, if there are any.
    disturbed: Option<Disturbed>,
}

impl Shm {
    pub(crate) fn new(rings: Neighbours, disturbed: Option<Disturbed>) -> Shm {
        Shm { rings, disturbed }
    }

    /// The rings, unless there are faults or captures: operations that bypass packets must not bypass those.
    #[inline]
    pub(crate) fn undisturbed(&mut self) -> Option<&mut Neighbours> {
        self.disturbed.is_none().then_some(&mut self.rings)
    }

    /// The rings, and their faults and captures.
    #[inline]
    pub(crate) fn both(&mut self) -> (&mut Neighbours, Option<&mut Disturbed>) {
        (&mut self.rings, self.disturbed.as_mut())
    }

    /// The faults and captures in front of the rings.
    #[inline]
    pub(super) fn disturbed(&mut self) -> Option<&mut Disturbed> {
        self.disturbed.as_mut()
    }

    /// Moves waiting packets into the rings, and wakes the peers that sleep: without `all`, not for acknowledgements alone, and then
    /// this returns true.
    #[inline]
    pub(super) fn flush(
        &mut self,
        now: impl FnOnce() -> Instant,
        all: bool,
        counters: &mut DriverCounters,
    ) -> bool {
        if let Some(disturbed) = self.disturbed.as_mut().filter(|disturbed| disturbed.is_busy()) {
            disturbed.flush(now(), &mut self.rings, counters);
        }
        self.rings.flush(all)
    }

    pub(super) fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("rang_neighbour", self.rings.rung());
        each("refused_neighbour", self.rings.inbox.rejected());
        if let Some(disturbed) = &self.disturbed {
            disturbed.counters(each);
        }
    }
}

impl Way for Shm {
    #[inline]
    fn takes_more(&mut self, now: Instant, _: &mut DriverCounters) -> bool {
        !self.rings.is_congested(now)
    }

    #[inline]
    fn offer(
        &mut self,
        now: Instant,
        outgoing: &Outgoing<'_>,
        memory: &HostMemory,
        counters: &mut DriverCounters,
    ) -> Offered {
        if let Some(disturbed) = &mut self.disturbed {
            return disturbed.offer(now, outgoing, memory, &mut self.rings, counters);
        }
        match self.rings.send(now, outgoing, memory) {
            Sent::Yes => Offered::Taken,
            Sent::Lost => {
                counters.dropped_link_full += 1;
                Offered::Taken
            }
            Sent::Unread => Offered::Unread,
            Sent::NotHere => Offered::Elsewhere,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.disturbed.as_ref().and_then(Disturbed::deadline)
    }
}
