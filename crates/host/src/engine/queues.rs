//! Requests out of their rings into the RNIC, and completions into theirs.

use super::Engine;
use super::ends::{Bell, CqSink, QpEnds, SrqEnds, fetch, refused};
use crate::error::ChainError;
use highwire_rings::{BadWqe, MAX_INLINE_BYTES, MAX_SGES};
use highwire_verbs::{
    AsyncEvent, Completion, CompletionOp, CompletionStatus, CqId, Denial, PostError, QpAttr, QpState, RecvWr,
    SendFlags, SendWr, Sge,
};
use highwire_wire::Qpn;
use std::sync::Arc;

impl Engine {
    /// Puts a queue pair's rings in place; returns its index.
    pub(crate) fn add_qp(&mut self, ends: QpEnds) -> u32 {
        let placed = ends.places.is_some().then_some(ends.qpn);
        let index = self.objects.qps.insert(ends);
        if let Some(qpn) = placed {
            self.objects.placed.insert(qpn.value(), index);
        }
        index
    }

    /// The queue pair was reset.
    pub(crate) fn reset_places(&mut self, index: u32) {
        if let Some(qp) = self.objects.qps.get_mut(index) {
            self.witnesses.watch.forget(qp.qpn);
            if let Some(places) = &mut qp.places {
                places.reset();
            }
        }
        self.note_own_receives(index, 0);
    }

    /// A completion queue has another ring.
    pub(crate) fn forget_numbers(&mut self, cq: CqId) {
        let placed = self.objects.qps.iter_mut().filter(|(_, qp)| qp.send_cq == cq);
        placed.filter_map(|(_, qp)| qp.places.as_mut()).for_each(|places| places.forget_numbers());
    }

    pub(crate) fn remove_qp(&mut self, index: u32) {
        if let Some(qp) = self.objects.qps.remove(index) {
            self.objects.placed.remove(qp.qpn.value());
            self.witnesses.watch.forget(qp.qpn);
            self.objects.on_demand.remove(qp.qpn.value());
            let now = self.time.some_past();
            if let Some(record) = &mut self.witnesses.record {
                record.destroyed(now, qp.qpn);
            }
        }
        self.objects.stalled.retain(|&stalled| stalled != index);
    }

    pub(crate) fn add_srq(&mut self, ends: SrqEnds) -> u32 {
        self.objects.srqs.insert(ends)
    }

    pub(crate) fn remove_srq(&mut self, index: u32) {
        self.objects.srqs.remove(index);
    }

    /// A doorbell for a queue, if the board has one left.
    pub(crate) fn add_bell(&mut self, bell: Bell) -> Option<u32> {
        if self.objects.bells.len() >= self.board.bits() as usize {
            return None;
        }
        Some(self.objects.bells.insert(bell))
    }

    pub(crate) fn remove_bell(&mut self, bit: u32) {
        self.objects.bells.remove(bit);
    }

    pub(crate) fn add_cq(&mut self, id: CqId, sink: CqSink) {
        self.objects.cqs.add(id, sink);
    }

    pub(crate) fn cq(&mut self, id: CqId) -> Option<&mut CqSink> {
        self.objects.cqs.get_mut(id)
    }

    pub(crate) fn remove_cq(&mut self, id: CqId) {
        self.objects.cqs.remove(id);
    }

    /// Serves every queue whose bell has rung, and those that had to wait.
    pub(super) fn take_bells(&mut self) -> u32 {
        let mut taken = 0;
        let board = self.board.clone();
        for bit in board.take_acquire() {
            taken += match self.objects.bells.get(bit) {
                Some(&Bell::Pair(qp)) => self.fetch_receives(qp) + self.fetch_sends(qp),
                Some(&Bell::Shared(srq)) => self.fetch_shared(srq),
                None => 0,
            };
        }
        if !self.objects.stalled.is_empty() {
            for qp in std::mem::take(&mut self.objects.stalled) {
                taken += self.fetch_sends(qp) + self.fetch_receives(qp);
            }
        }
        taken
    }

    /// Posts one request at once. Those that wait in the ring must have been taken before.
    #[inline]
    pub(crate) fn post_send(
        &mut self,
        index: u32,
        wr: &SendWr<'_>,
        data: Option<&[u8]>,
    ) -> Result<(), PostError> {
        let Some(data) = data else { return self.post_spans(index, wr) };
        let qp = self.objects.qps.get_mut(index).ok_or(PostError::NoSuchQueue)?;
        let sges = [qp.inline.put(data).ok_or(PostError::TooLong)?];
        let flags = SendFlags { inline: true, ..wr.flags };
        self.post_spans(index, &SendWr { flags, sges: if data.is_empty() { &[] } else { &sges }, ..*wr })
    }

    /// Whether [`post_send`](Self::post_send) would take a request behind `ahead` others that are about to be posted; `inline` is how many bytes
    /// it brings along.
    pub(crate) fn check_send(
        &mut self,
        index: u32,
        wr: &SendWr<'_>,
        inline: Option<usize>,
        ahead: usize,
    ) -> Result<(), PostError> {
        if !self.has_place_behind(index, ahead as u64) {
            return Err(PostError::QueueFull);
        }
        let qp = self.objects.qps.get(index).ok_or(PostError::NoSuchQueue)?;
        let Some(bytes) = inline else { return self.rnic.check_send(qp.qpn, wr, ahead) };
        if !qp.inline.fits(bytes) {
            return Err(PostError::TooLong);
        }
        let sges = [Sge { length: bytes as u32, ..Sge::default() }];
        let flags = SendFlags { inline: true, ..wr.flags };
        self.rnic.check_send(qp.qpn, &SendWr { flags, sges: &sges, ..*wr }, ahead)
    }

    #[inline]
    fn post_spans(&mut self, index: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        if !self.has_place(index) {
            return Err(PostError::QueueFull);
        }
        if self.post_direct(index, wr) || self.post_datagram(index, wr) {
            self.note_posted(index, wr.flags.signaled);
            self.record_post(index, wr, true);
            return Ok(());
        }
        let now = self.now();
        let qp = self.objects.qps.get_mut(index).ok_or(PostError::NoSuchQueue)?;
        self.rnic.post_send(now, qp.qpn, wr)?;
        qp.inline.advance();
        self.turn.posted = true;
        self.note_posted(index, wr.flags.signaled);
        self.record_post(index, wr, false);
        Ok(())
    }

    #[inline]
    fn record_post(&mut self, index: u32, wr: &SendWr<'_>, direct: bool) {
        if self.witnesses.record.is_none() {
            return;
        }
        let now = self.now();
        if let (Some(record), Some(qp)) = (&self.witnesses.record, self.objects.qps.get(index)) {
            record.posted(now, qp.qpn, wr, direct);
        }
    }

    /// Whether the send queue has a place that is free for the program as well.
    #[inline]
    fn has_place(&mut self, index: u32) -> bool {
        self.has_place_behind(index, 0)
    }

    /// The same for a request behind `ahead` others.
    #[inline]
    fn has_place_behind(&mut self, index: u32, ahead: u64) -> bool {
        let Some(QpEnds { places: Some(places), send_cq, .. }) = self.objects.qps.get_mut(index) else {
            return true;
        };
        let cqs = &mut self.objects.cqs;
        places.has_room_behind(ahead, || {
            cqs.get_mut(*send_cq).map_or(0, |sink| sink.ring.observe_taken_acquire())
        })
    }

    #[inline]
    fn note_posted(&mut self, index: u32, is_signaled: bool) {
        if let Some(QpEnds { places: Some(places), .. }) = self.objects.qps.get_mut(index) {
            places.note_posted(is_signaled);
        }
    }

    /// A request completes: its place is free once the program has taken the completion.
    #[inline]
    fn note_completed(&mut self, cq: CqId, completion: &Completion) {
        let Some(&index) = self.objects.placed.get(completion.qpn.value()) else { return };
        let Some(QpEnds { places: Some(places), .. }) = self.objects.qps.get_mut(index) else { return };
        match self.objects.cqs.get(cq) {
            Some(sink) if completion.status == CompletionStatus::Success => {
                places.note_completed(sink.ring.pushed());
            }
            _ => places.note_failed(),
        }
    }

    /// Whether requests wait in the ring, which a new one must not overtake.
    #[inline]
    pub(crate) fn sends_wait(&mut self, index: u32) -> bool {
        let waits = |engine: &mut Engine| {
            engine.objects.qps.get_mut(index).is_some_and(|qp| qp.sq.available() != Ok(0))
        };
        waits(self) && {
            self.fetch_sends(index);
            waits(self)
        }
    }

    /// Takes requests out of a send ring until it is empty or the RNIC's queue is full.
    fn fetch_sends(&mut self, index: u32) -> u32 {
        let now = self.now();
        let Some(qp) = self.objects.qps.get_mut(index) else { return 0 };
        let (mut taken, mut broken) = (0, None);
        loop {
            let (mut inline_buffer, mut sge_buffer) = ([0; MAX_INLINE_BYTES], [Sge::default(); MAX_SGES]);
            let slot = match qp.sq.peek() {
                Ok(Some(slot)) => slot,
                Ok(None) => break,
                Err(_) => {
                    // The ring is corrupt: nothing in it can be trusted any more.
                    let _ = self.rnic.modify_qp(now, qp.qpn, &QpAttr::to_state(QpState::Error));
                    broken = Some(qp.qpn);
                    break;
                }
            };
            let inline = slot.inline(&mut inline_buffer);
            let copied;
            let (sges, is_copied) = if inline.is_empty() {
                (slot.sges(&mut sge_buffer), true)
            } else {
                copied = qp.inline.put(inline);
                (copied.as_slice(), copied.is_some())
            };
            let outcome = match slot.request(sges) {
                Err(BadWqe { wr_id, .. }) => Err((wr_id, PostError::Unsupported)),
                // The slot holds more than the queue pair was made for.
                Ok(wr) if !is_copied => Err((wr.wr_id, PostError::TooLong)),
                Ok(wr) => match self.rnic.post_send(now, qp.qpn, &wr) {
                    Ok(()) => {
                        if let Some(record) = &self.witnesses.record {
                            record.posted(now, qp.qpn, &wr, false);
                        }
                        Ok(wr.flags.signaled)
                    }
                    Err(error) => Err((wr.wr_id, error)),
                },
            };
            match outcome {
                Ok(is_signaled) => {
                    qp.inline.advance();
                    if let Some(places) = &mut qp.places {
                        places.note_posted(is_signaled);
                    }
                }
                Err((_, PostError::QueueFull)) => {
                    self.objects.stalled.push(index);
                    break;
                }
                Err((wr_id, error)) => {
                    self.turn.has_refused = true;
                    let completion = refused(wr_id, qp.qpn, CompletionOp::Send, error);
                    if let Some(record) = &self.witnesses.record {
                        record.completed(now, &completion);
                    }
                    self.objects.cqs.push(qp.send_cq, &completion);
                }
            }
            qp.sq.advance();
            taken += 1;
        }
        qp.sq.release();
        // They leave with the packets of this turn or the next one, whichever thread runs it.
        self.turn.posted |= taken > 0;
        if let Some(qpn) = broken {
            self.record_state(qpn);
            self.settle_receives(qpn);
        }
        taken
    }

    /// Whether receives wait in the ring, which a new one must not overtake.
    #[inline]
    fn receives_wait(&mut self, index: u32) -> bool {
        let waits = |engine: &mut Engine| {
            let rq = engine.objects.qps.get_mut(index).and_then(|qp| qp.rq.as_mut());
            rq.is_some_and(|rq| rq.available() != Ok(0))
        };
        waits(self) && {
            self.fetch_receives(index);
            waits(self)
        }
    }

    pub(crate) fn post_receive(&mut self, index: u32, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.post_receives(index, std::slice::from_ref(wr)).map_err(|refused| refused.error)
    }

    /// Posts receives in order; the queue pair and its ring are looked up once.
    pub(crate) fn post_receives(&mut self, index: u32, requests: &[RecvWr<'_>]) -> Result<(), ChainError> {
        let refused = |index, error| ChainError { index, error };
        if self.receives_wait(index) {
            return Err(refused(0, PostError::QueueFull));
        }
        let qp = self.objects.qps.get_mut(index).ok_or(refused(0, PostError::NoSuchQueue))?;
        // A receive starts no timer, so the time of the last step will do.
        let now = self.time.some_past();
        let (rnic, qpn) = (&mut self.rnic, qp.qpn);
        let posted = requests
            .iter()
            .enumerate()
            .try_for_each(|(at, wr)| rnic.post_recv(now, qpn, wr).map_err(|error| refused(at, error)));
        let come_to = posted.as_ref().map_or_else(|refused| refused.index, |()| requests.len());
        if let Some(record) = &self.witnesses.record {
            requests[..come_to].iter().for_each(|wr| record.receive_posted(now, qpn, wr));
        }
        self.note_own_receives(index, come_to as u32);
        // In the error state they come back at once.
        self.deliver();
        self.serve_held();
        posted
    }

    /// After receives were posted: packets may have waited for them.
    #[inline]
    fn serve_held(&mut self) {
        if !self.arrivals.held.is_empty() {
            self.pump();
        }
    }

    pub(crate) fn post_shared(&mut self, index: u32, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.fetch_shared(index);
        let srq = self.objects.srqs.get_mut(index).ok_or(PostError::NoSuchQueue)?;
        if srq.rq.available() != Ok(0) {
            return Err(PostError::QueueFull);
        }
        let posted = self.rnic.post_srq_recv(srq.id, wr);
        if let Some(record) = self.witnesses.record.as_ref().filter(|_| posted.is_ok()) {
            record.receive_posted(self.time.some_past(), Qpn::new(0), wr);
        }
        self.note_shared_receives(index, posted.is_ok().into());
        self.serve_held();
        posted
    }

    fn fetch_receives(&mut self, index: u32) -> u32 {
        if self.leaves_receives(index) {
            return 0;
        }
        let Some(qp) = self.objects.qps.get_mut(index) else { return 0 };
        let (qpn, recv_cq) = (qp.qpn, qp.recv_cq);
        let Some(rq) = &mut qp.rq else { return 0 };
        let (rnic, cqs, has_refused) = (&mut self.rnic, &mut self.objects.cqs, &mut self.turn.has_refused);
        let (now, record) = (self.time.some_past(), &self.witnesses.record);
        let fetched = fetch(
            rq,
            |wr| {
                rnic.post_recv(now, qpn, wr)?;
                if let Some(record) = record {
                    record.receive_posted(now, qpn, wr);
                }
                Ok(())
            },
            |wr_id, error| {
                *has_refused = true;
                cqs.push(recv_cq, &refused(wr_id, qpn, CompletionOp::Receive, error));
            },
        );
        if fetched.is_full {
            self.objects.stalled.push(index);
        }
        self.note_own_receives(index, fetched.taken);
        fetched.taken
    }

    pub(crate) fn fetch_shared(&mut self, index: u32) -> u32 {
        let Some(srq) = self.objects.srqs.get_mut(index) else { return 0 };
        let (id, rnic, record, now) = (srq.id, &mut self.rnic, &self.witnesses.record, self.time.some_past());
        let post = |wr: &RecvWr<'_>| {
            rnic.post_srq_recv(id, wr)?;
            if let Some(record) = record {
                record.receive_posted(now, Qpn::new(0), wr);
            }
            Ok(())
        };
        // An SRQ has no completion queue, so a receive that cannot be posted is dropped, as hardware does
        // with a bad WQE.
        let taken = fetch(&mut srq.rq, post, |_, _| {}).taken;
        self.note_shared_receives(index, taken);
        taken
    }

    /// The engine has come to so many more receives of a queue pair's own queue, or the RNIC has used some.
    #[inline]
    fn note_own_receives(&mut self, index: u32, come_to: u32) {
        let Some(QpEnds { qpn, room: Some(room), .. }) = self.objects.qps.get(index) else { return };
        room.note(come_to, self.rnic.qp(*qpn).map_or(0, |qp| qp.waiting_receives()));
    }

    /// The same for a shared queue.
    #[inline]
    fn note_shared_receives(&mut self, index: u32, come_to: u32) {
        let Some(srq) = self.objects.srqs.get(index) else { return };
        let waiting = self.rnic.srq_mut(srq.id).map_or(0, |queue| queue.len());
        srq.room.note(come_to, waiting);
    }

    /// A receive has completed: before the program sees that, its place is free.
    fn note_used_receive(&mut self, qpn: Qpn) {
        let found = self.objects.placed.get(qpn.value()).map(|&index| (index, self.objects.qps.get(index)));
        match found {
            Some((_, Some(&QpEnds { srq: Some(srq), .. }))) => self.note_shared_receives(srq, 0),
            Some((index, _)) => self.note_own_receives(index, 0),
            // A target of XRC uses every queue of its domain.
            None => {
                for (_, srq) in self.objects.srqs.iter() {
                    srq.room.note(0, self.rnic.srq_mut(srq.id).map_or(0, |queue| queue.len()));
                }
            }
        }
    }

    /// Moves completions and events out of the RNIC; returns the number of completions.
    pub(super) fn deliver(&mut self) -> u32 {
        // Before the completion that it explains.
        while let Some(denial) = self.rnic.poll_denial() {
            self.tell_denial(&denial);
            self.witnesses.watch.note_denial(&denial);
        }
        let mut delivered = 0;
        while let Some((cq, completion)) = self.rnic.poll_completion() {
            delivered += 1;
            if self.witnesses.record.is_some() {
                self.record_completion(&completion);
            }
            self.turn.has_received |= completion.operation as u8 >= CompletionOp::Receive as u8;
            if completion.operation as u8 >= CompletionOp::Receive as u8 {
                if !self.objects.placed.is_empty() || !self.objects.srqs.is_empty() {
                    self.note_used_receive(completion.qpn);
                }
            } else if !self.objects.placed.is_empty() {
                self.note_completed(cq, &completion);
            }
            if !self.rnic.has_tags() {
                self.objects.cqs.push(cq, &completion);
            } else {
                if !self.show_matched(&completion) {
                    self.objects.cqs.push(cq, &completion);
                }
                // A request in a neighbour's memory completes at once, and this loop sees the completion.
                self.begin_transfers();
            }
            if completion.status != CompletionStatus::Success {
                self.record_state(completion.qpn);
                self.close_if_broken(completion.qpn);
            }
        }
        if delivered > 0 || std::mem::take(&mut self.turn.has_refused) {
            self.publish();
        }
        let mut has_settled = false;
        while let Some(event) = self.rnic.poll_event() {
            if let Some(qpn) = event.qpn() {
                self.record_state(qpn);
            }
            if let Some(qpn) = event.qpn().filter(|_| !self.objects.on_demand.is_empty()) {
                // A responder that fails completes nothing that is not in its queue.
                self.settle_receives(qpn);
                has_settled = true;
            }
            self.report(event);
        }
        if has_settled {
            delivered += self.deliver();
        }
        delivered
    }

    fn record_completion(&mut self, completion: &Completion) {
        let now = self.now();
        if let Some(record) = &self.witnesses.record {
            record.completed(now, completion);
        }
    }

    /// Says which access was refused, and why.
    #[cold]
    fn tell_denial(&mut self, denial: &Denial) {
        if let Some(now) = self.witnesses.record.is_some().then(|| self.now())
            && let Some(record) = &self.witnesses.record
        {
            record.denied(now, denial, &self.rnic.regions().explain(denial));
        }
        crate::events::log(|| self.rnic.regions().explain(denial));
    }

    /// Reports an event to the reporter of the object that it concerns.
    #[cold]
    fn report(&mut self, event: AsyncEvent) {
        let reporter = match event {
            AsyncEvent::CqError(id) => self.cq(id).map(|cq| &cq.reporter),
            AsyncEvent::SrqLimitReached(id) => {
                self.objects.srqs.iter().find(|(_, srq)| srq.id == id).map(|(_, srq)| &srq.reporter)
            }
            _ => {
                let qpn = event.qpn();
                self.objects.qps.iter().find(|(_, qp)| Some(qp.qpn) == qpn).map(|(_, qp)| &qp.reporter)
            }
        };
        // If the object is gone, the application could not tell what the event is about: it is dropped.
        if let Some(reporter) = reporter {
            reporter.report(event);
        }
    }

    /// Shows the completions that were written; returns at how many queues it has looked.
    pub(crate) fn publish(&mut self) -> usize {
        let (overrun, due) = (&mut self.objects.overrun, &mut self.objects.due);
        let looked = self.objects.cqs.take_touched(|id, sink| {
            if sink.has_events {
                sink.notifier.note_urgent(sink.ring.urgent());
            }
            sink.ring.publish_release();
            if sink.has_events && sink.ring.take_notification() {
                let has_reported = sink.notifier.notify(sink.ring.pushed());
                due.push((Arc::clone(&sink.notifier), has_reported));
            }
            if std::mem::take(&mut sink.is_overrun) {
                overrun.push(id);
            }
        });
        while let Some(cq) = self.objects.overrun.pop() {
            self.counters.cq_overruns += 1;
            crate::events::log(|| {
                format!(
                    "completion queue {} was full: a completion is lost, and the queue pairs that complete there are in error",
                    cq.0
                )
            });
            self.report(AsyncEvent::CqError(cq));
            self.break_users(cq);
        }
        looked
    }

    #[cfg(test)]
    pub(crate) fn write_completion(&mut self, cq: CqId, completion: &Completion) {
        self.objects.cqs.push(cq, completion);
    }

    /// A completion was lost: the queue pairs that complete here cannot be trusted any more (IBTA §10.8.1).
    #[cold]
    fn break_users(&mut self, cq: CqId) {
        let now = self.now();
        let users = self.objects.qps.iter().filter(|(_, qp)| qp.send_cq == cq || qp.recv_cq == cq);
        for qpn in users.map(|(_, qp)| qp.qpn).collect::<Vec<_>>() {
            let _ = self.rnic.modify_qp(now, qpn, &QpAttr::to_state(QpState::Error));
            self.record_state(qpn);
            self.settle_receives(qpn);
        }
    }

    /// A queue pair in error is closed to neighbours as well: they would otherwise go on with direct operations, which do not
    /// ask it.
    #[cold]
    fn close_if_broken(&mut self, qpn: Qpn) {
        self.settle_receives(qpn);
        let Some(shm) = &self.ways.shm else { return };
        if let Some(qp) = self.rnic.query_qp(qpn).filter(|qp| qp.state == QpState::Error) {
            shm.rings.close(qpn, &qp);
        }
    }
}
