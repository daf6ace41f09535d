//! Extended reliable connections: many shared receive queues behind one connection (IBTA A14).
//!
//! On the wire XRC is RC with one more header, so its packets are turned into RC's on the way in (and back on
//! the way out, in `transport`), and the queue pair learns beforehand which shared receive queue the packet
//! is for.

use crate::objects::CreateError;
use crate::rnic::{Rnic, with_qp};
use highwire_stdx::Instant;
use highwire_transport::{Arrival, Context, Counter};
use highwire_verbs::{CqId, Memory, Payload, Pd, SrqId, XrcDomain};
use highwire_wire::{Headers, Operation, Qpn};

/// Whether a packet answers a request: it is for the initiator then.
pub(crate) fn is_answer(operation: Operation) -> bool {
    matches!(operation, Operation::Acknowledge | Operation::ReadResponse | Operation::AtomicResponse)
}

impl Rnic {
    /// Makes a shared receive queue for the queue pairs of an XRC domain; its receives complete in `cq`.
    /// Returns it with its number, by which peers name it.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_xrc_srq(
        &mut self,
        pd: Pd,
        domain: XrcDomain,
        cq: CqId,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<(SrqId, Qpn), CreateError> {
        if !self.cqs.contains_key(&cq) {
            return Err(CreateError::NoSuchCq);
        }
        let srq = self.create_srq(pd, max_wr, max_sge)?;
        if let Some(queue) = self.shared.get_mut(srq.0) {
            *queue = queue.clone().for_xrc(domain, cq);
        }
        *self.cqs.entry(cq).or_default() += 1;
        let srqn = loop {
            let srqn = Qpn::new(self.rng.next_u32());
            if srqn.value() != 0 && !self.by_srqn.contains(srqn.value()) {
                break srqn;
            }
        };
        self.by_srqn.insert(srqn.value(), srq);
        Ok((srq, srqn))
    }

    /// Removes the number of a shared receive queue that goes.
    pub(crate) fn forget_srqn(&mut self, srq: SrqId) {
        let number = self.by_srqn.iter().find(|(_, id)| **id == srq).map(|(number, _)| number);
        let Some(number) = number else { return };
        self.by_srqn.remove(number);
        let cq = self.shared.get(srq.0).and_then(|queue| queue.xrc()).map(|(_, cq)| cq);
        if let Some(uses) = cq.and_then(|cq| self.cqs.get_mut(&cq)) {
            *uses -= 1;
        }
    }

    /// Puts an XRC target into a domain: requests reach the domain's shared receive queues.
    pub fn set_xrc_domain(&mut self, qpn: Qpn, domain: XrcDomain) {
        if let Some(entry) = self.slot(qpn).and_then(|slot| self.qps.get_mut(slot)) {
            entry.domain = Some(domain);
        }
    }

    pub(crate) fn handle_xrc<P: Payload>(
        &mut self,
        now: Instant,
        slot: u32,
        arrival: &Arrival,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        let Some((headers, srqn)) = headers.from_xrc() else {
            return self.counters.count(Counter::DroppedMalformed);
        };
        let domain = self.qps.get(slot).and_then(|entry| entry.domain);
        let queue = srqn.and_then(|srqn| {
            let srq = *self.by_srqn.get(srqn.value())?;
            let queue = self.shared.get(srq.0)?;
            let (its, cq) = queue.xrc()?;
            (Some(its) == domain).then_some((srq, queue.pd(), cq))
        });
        with_qp!(self, now, slot, |entry, ctx| {
            if srqn.is_some() {
                entry.qp.aim_at(queue);
            }
            entry.qp.handle_packet(ctx, arrival, &headers, payload, memory);
        });
        self.settle(now, slot);
    }
}
