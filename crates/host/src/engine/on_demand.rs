//! Receives of programs behind the door, which wait in their ring until a packet needs one.
//!
//! Such a program rings no bell for a receive, so an engine that sleeps goes on sleeping. And a peer behind the same door that finds
//! nothing in flight takes the oldest receive itself, with a message that it copies (`docs/uapi-server.md`, guests):
//! the receive belongs to the side that moves the ring's cursor past it. The engine therefore takes from a
//! peer's queue one receive at a time, when a packet of the engine's own begins a message; while it holds one
//! that went unused, it says so, and no peer takes a later one.
//!
//! In the error state nothing arrives that would fetch them. They are all taken then, to be flushed, and the program rings for the
//! ones that it still posts.

use super::Engine;
use super::ends::{QpEnds, fetch, refused};
use super::sinks::Sinks;
use crate::memory::HostMemory;
use highwire_rings::{BadWqe, MAX_SGES, ReceiveQueueConsumer};
use highwire_rnic::{Arrival, Rnic};
use highwire_stdx::{IdMap, Instant, Slab};
use highwire_verbs::{CompletionOp, CqId, Gid, PostError, QpState, RecvWr, Sge};
use highwire_wire::{Headers, Qpn};

/// The parts of the engine that give a packet's queue pair a receive.
pub(super) struct Desk<'a> {
    /// The indices of queue pairs whose receives wait in the ring.
    pub(super) on_demand: &'a IdMap<u32>,
    pub(super) qps: &'a mut Slab<QpEnds>,
    pub(super) cqs: &'a mut Sinks,
    pub(super) has_refused: &'a mut bool,
    pub(super) gid: Gid,
}

impl Desk<'_> {
    /// Before the RNIC sees a packet, posts the receive that the packet needs. Returns the argument of
    /// [`after`](Self::after).
    #[inline]
    pub(super) fn before(
        &mut self,
        rnic: &mut Rnic,
        now: Instant,
        arrival: &Arrival,
        headers: &Headers,
    ) -> Option<u32> {
        if self.on_demand.is_empty() {
            return None;
        }
        let index = *self.on_demand.get(headers.bth.dest_qpn.value())?;
        self.fetch(rnic, now, index, arrival, headers);
        Some(index)
    }

    fn fetch(&mut self, rnic: &mut Rnic, now: Instant, index: u32, arrival: &Arrival, headers: &Headers) {
        let Some(QpEnds { qpn, recv_cq, rq: Some(rq), peer, holds, .. }) = self.qps.get_mut(index) else {
            return;
        };
        let (qpn, recv_cq) = (*qpn, *recv_cq);
        let post = |wr: &RecvWr<'_>| rnic.post_recv(now, qpn, wr);
        if peer.is_some_and(|(gid, _)| gid == self.gid) {
            if rnic.lacks_receive(arrival, headers) {
                // Set before the receive is taken, so that a peer that sees the receive gone sees this as
                // well.
                *holds = true;
                rq.hold_release(true);
                let refuse = refuse(self.cqs, self.has_refused, recv_cq, qpn);
                claim(rq, 1, |wr| rnic.post_recv(now, qpn, wr), refuse);
            }
        } else {
            // No other peer takes receives here, and a peer that uses IRN may use several before it has sent
            // all of the first message.
            fetch(rq, post, refuse(self.cqs, self.has_refused, recv_cq, qpn));
        }
    }

    /// After it: whether a receive is left over, and whether the queue pair has failed.
    pub(super) fn after(&mut self, rnic: &mut Rnic, now: Instant, index: u32) {
        let Some(QpEnds { qpn, rq: Some(rq), holds, .. }) = self.qps.get_mut(index) else { return };
        let Some(qp) = rnic.qp(*qpn) else { return };
        let (state, now_holds) = (qp.state(), qp.holds_receives());
        if *holds != now_holds {
            *holds = now_holds;
            rq.hold_release(now_holds);
        }
        if state == QpState::Error {
            self.flush(rnic, now, index);
        }
    }

    /// In the error state: takes all receives, which come back at once.
    #[cold]
    fn flush(&mut self, rnic: &mut Rnic, now: Instant, index: u32) {
        let Some(QpEnds { qpn, recv_cq, rq: Some(rq), .. }) = self.qps.get_mut(index) else { return };
        rq.want_seqcst(true);
        let (qpn, most) = (*qpn, rq.layout().slot_count());
        let refuse = refuse(self.cqs, self.has_refused, *recv_cq, qpn);
        claim(rq, most, |wr| rnic.post_recv(now, qpn, wr), refuse);
    }
}

/// Completes a receive that cannot be posted, with an error.
fn refuse<'a>(
    cqs: &'a mut Sinks,
    has_refused: &'a mut bool,
    cq: CqId,
    qpn: Qpn,
) -> impl FnMut(u64, PostError) + 'a {
    move |wr_id, error| {
        *has_refused = true;
        cqs.push(cq, &refused(wr_id, qpn, CompletionOp::Receive, error));
    }
}

/// Takes `most` receives at most, as long as there are any.
fn claim(
    ring: &mut ReceiveQueueConsumer,
    most: usize,
    mut post: impl FnMut(&RecvWr<'_>) -> Result<(), PostError>,
    mut refuse: impl FnMut(u64, PostError),
) {
    for _ in 0..most {
        let mut buffer = [Sge::default(); MAX_SGES];
        match ring.claim(&mut buffer) {
            // A ring that cannot be understood has no receives.
            Ok(None) | Err(_) => return,
            Ok(Some(Err(BadWqe { wr_id, .. }))) => refuse(wr_id, PostError::TooManySges),
            Ok(Some(Ok(wr))) => {
                if let Err(error) = post(&wr) {
                    refuse(wr.wr_id, error);
                }
            }
        }
    }
}

impl Engine {
    /// A program behind the door has made it, and its receives wait in their ring.
    pub(crate) fn take_on_demand(&mut self, index: u32) {
        if let Some(qp) = self.objects.qps.get(index) {
            self.objects.on_demand.insert(qp.qpn.value(), index);
        }
    }

    /// The bell of a queue pair has rung: whether its receives stay where they are.
    pub(super) fn leaves_receives(&self, index: u32) -> bool {
        !self.objects.on_demand.is_empty()
            && self.objects.qps.get(index).is_some_and(|qp| {
                let is_broken = || self.rnic.qp(qp.qpn).is_some_and(|qp| qp.state() == QpState::Error);
                self.objects.on_demand.contains(qp.qpn.value()) && !is_broken()
            })
    }

    /// The queue pair has changed its state: in error its receives come back, and one that begins anew has none.
    pub(crate) fn settle_receives(&mut self, qpn: Qpn) {
        if self.objects.on_demand.is_empty() {
            return;
        }
        let Some(&index) = self.objects.on_demand.get(qpn.value()) else { return };
        let now = self.now();
        match self.rnic.qp(qpn).map(|qp| qp.state()) {
            Some(QpState::Reset) => {
                if let Some(QpEnds { rq: Some(rq), holds, .. }) = self.objects.qps.get_mut(index) {
                    *holds = false;
                    rq.hold_release(false);
                    claim(rq, rq.layout().slot_count(), |_| Ok(()), |_, _| {});
                    rq.want_seqcst(false);
                }
            }
            _ => {
                let (mut desk, rnic, _) = self.desk();
                desk.after(rnic, now, index);
            }
        }
    }

    pub(super) fn desk(&mut self) -> (Desk<'_>, &mut Rnic, &mut HostMemory) {
        let desk = Desk {
            on_demand: &self.objects.on_demand,
            qps: &mut self.objects.qps,
            cqs: &mut self.objects.cqs,
            has_refused: &mut self.turn.has_refused,
            gid: self.gid,
        };
        (desk, &mut self.rnic, &mut self.memory)
    }
}
