//! The engine's ends of the queues: requests out of their rings into the RNIC, completions into theirs.

use super::Engine;
use super::tags::{self, Tags};
use crate::completion_queue::Notifier;
use crate::convert;
use crate::events::Reporter;
use highwire_stdx::Instant;
use highwire_uapi::{
    BadWqe, CompletionQueueProducer, MAX_INLINE_BYTES, MAX_SGES, ReceiveQueueConsumer, SendQueueConsumer,
};
use highwire_verbs::{
    AsyncEvent, Completion, CompletionFlags, CompletionOp, CompletionStatus, CqId, Gid, LocalKey, PostError,
    QpAttr, QpState, RecvWr, SendFlags, SendWr, Sge, SrqId,
};
use highwire_wire::Qpn;
use std::sync::Arc;

/// What a doorbell stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bell {
    Send(u32),
    Receive(u32),
    Shared(u32),
}

/// The engine's ends of a queue pair.
pub(crate) struct QpEnds {
    pub(crate) qpn: Qpn,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) sq: SendQueueConsumer,
    pub(crate) rq: Option<ReceiveQueueConsumer>,
    pub(crate) inline: InlineArena,
    /// Where its events go.
    pub(crate) reporter: Reporter,
    /// The connected peer.
    pub(crate) peer: Option<(Gid, Qpn)>,
}

/// The engine's end of a shared receive queue.
pub(crate) struct SrqEnds {
    pub(crate) id: SrqId,
    pub(crate) rq: ReceiveQueueConsumer,
    /// Where its events go.
    pub(crate) reporter: Reporter,
    pub(crate) tags: Option<Box<Tags>>,
}

/// The engine's end of a completion queue.
pub(crate) struct CqSink {
    pub(crate) ring: CompletionQueueProducer,
    pub(crate) notifier: Arc<Notifier>,
    /// Where its events go.
    pub(crate) reporter: Reporter,
    /// Somebody has asked for events once, so the engine looks for whom to wake.
    pub(crate) has_events: bool,
    pub(crate) is_touched: bool,
    pub(crate) is_overrun: bool,
}

/// Where inline data stays until its request is done: one place more than the queue has, so that the next request's
/// place is free even while the queue is full.
pub(crate) struct InlineArena {
    bytes: Box<[u8]>,
    place_bytes: usize,
    next: usize,
}

impl InlineArena {
    pub(crate) fn new(max_send_wr: u32, max_inline: u32) -> InlineArena {
        let place_bytes = (max_inline as usize).next_multiple_of(64);
        InlineArena { bytes: vec![0; place_bytes * (max_send_wr as usize + 1)].into(), place_bytes, next: 0 }
    }

    /// Copies `data` to the next place and says where; [`advance`](Self::advance) keeps it.
    fn put(&mut self, data: &[u8]) -> Option<Sge> {
        let place = self.bytes.get_mut(self.next..self.next + data.len())?;
        if data.len() > self.place_bytes {
            return None;
        }
        place.copy_from_slice(data);
        Some(Sge { addr: place.as_ptr() as u64, length: data.len() as u32, lkey: LocalKey::default() })
    }

    /// The request that the last `put` was for is in the queue. Called for requests without inline data as well: the
    /// places go round with the queue.
    fn advance(&mut self) {
        self.next += self.place_bytes;
        if self.next >= self.bytes.len() {
            self.next = 0;
        }
    }
}

impl Engine {
    /// Puts a queue pair's rings in place; returns its index and its two doorbells.
    pub(crate) fn add_qp(&mut self, ends: QpEnds) -> u32 {
        self.qps.insert(ends)
    }

    pub(crate) fn remove_qp(&mut self, index: u32) {
        if let Some(qp) = self.qps.remove(index) {
            self.forget_transfers(qp.qpn);
        }
        self.stalled.retain(|&stalled| stalled != index);
    }

    pub(crate) fn add_srq(&mut self, ends: SrqEnds) -> u32 {
        self.tag_queues += u32::from(ends.tags.is_some());
        self.srqs.insert(ends)
    }

    pub(crate) fn remove_srq(&mut self, index: u32) {
        let gone = self.srqs.remove(index);
        self.tag_queues -= u32::from(gone.is_some_and(|ends| ends.tags.is_some()));
    }

    /// A doorbell for a queue, if the board has one left.
    pub(crate) fn add_bell(&mut self, bell: Bell) -> Option<u32> {
        if self.bells.len() >= self.board.bits() as usize {
            return None;
        }
        Some(self.bells.insert(bell))
    }

    pub(crate) fn remove_bell(&mut self, bit: u32) {
        self.bells.remove(bit);
    }

    pub(crate) fn add_cq(&mut self, id: CqId, sink: CqSink) {
        let index = id.0 as usize;
        if self.cqs.len() <= index {
            self.cqs.resize_with(index + 1, || None);
        }
        self.cqs[index] = Some(sink);
    }

    pub(crate) fn cq(&mut self, id: CqId) -> Option<&mut CqSink> {
        self.cqs.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn remove_cq(&mut self, id: CqId) {
        if let Some(sink) = self.cqs.get_mut(id.0 as usize) {
            *sink = None;
        }
    }

    /// Serves every queue whose bell has rung, and those that had to wait.
    pub(super) fn take_bells(&mut self) -> u32 {
        let mut taken = 0;
        let board = self.board.clone();
        for bit in board.take_acquire() {
            taken += match self.bells.get(bit) {
                Some(&Bell::Send(qp)) => self.fetch_sends(qp),
                Some(&Bell::Receive(qp)) => self.fetch_receives(qp),
                Some(&Bell::Shared(srq)) => self.fetch_shared(srq),
                None => 0,
            };
        }
        if !self.stalled.is_empty() {
            for qp in std::mem::take(&mut self.stalled) {
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
        let qp = self.qps.get_mut(index).ok_or(PostError::NoSuchQueue)?;
        let sges = [qp.inline.put(data).ok_or(PostError::TooLong)?];
        let flags = SendFlags { inline: true, ..wr.flags };
        self.post_spans(index, &SendWr { flags, sges: if data.is_empty() { &[] } else { &sges }, ..*wr })
    }

    #[inline]
    fn post_spans(&mut self, index: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        if self.post_direct(index, wr) {
            return Ok(());
        }
        let now = self.now();
        let qp = self.qps.get_mut(index).ok_or(PostError::NoSuchQueue)?;
        self.rnic.post_send(now, qp.qpn, wr)?;
        qp.inline.advance();
        self.turn.posted = true;
        Ok(())
    }

    /// Whether requests wait in the ring, which a new one must not overtake.
    #[inline]
    pub(crate) fn sends_wait(&mut self, index: u32) -> bool {
        let waits =
            |engine: &mut Engine| engine.qps.get_mut(index).is_some_and(|qp| qp.sq.available() != Ok(0));
        waits(self) && {
            self.fetch_sends(index);
            waits(self)
        }
    }

    /// Takes requests out of a send ring until it is empty or the RNIC's queue is full.
    fn fetch_sends(&mut self, index: u32) -> u32 {
        let now = self.now();
        let Some(qp) = self.qps.get_mut(index) else { return 0 };
        let mut taken = 0;
        loop {
            let (mut inline_buffer, mut sge_buffer) = ([0; MAX_INLINE_BYTES], [Default::default(); MAX_SGES]);
            let slot = match qp.sq.peek() {
                Ok(Some(slot)) => slot,
                Ok(None) => break,
                Err(_) => {
                    // The ring is corrupt: nothing in it can be believed any more.
                    let _ = self.rnic.modify_qp(now, qp.qpn, &QpAttr::to_state(QpState::Error));
                    break;
                }
            };
            let outcome = match slot.wqe() {
                Err(BadWqe { wr_id, .. }) => Err((wr_id, PostError::Unsupported)),
                Ok(wqe) => {
                    let inline = slot.inline(&mut inline_buffer);
                    let mut sges = [Sge::default(); MAX_SGES];
                    let mut count = 0;
                    for (to, from) in sges.iter_mut().zip(slot.sges(&mut sge_buffer)) {
                        *to = convert::from_sge(from);
                        count += 1;
                    }
                    if !inline.is_empty()
                        && let Some(sge) = qp.inline.put(inline)
                    {
                        sges[0] = sge;
                        count = 1;
                    }
                    let posted = match convert::from_wqe(&wqe, &sges[..count]) {
                        Some(wr) => self.rnic.post_send(now, qp.qpn, &wr),
                        None => Err(PostError::Unsupported),
                    };
                    posted.map_err(|error| (wqe.wr_id, error))
                }
            };
            match outcome {
                Ok(()) => qp.inline.advance(),
                Err((_, PostError::QueueFull)) => {
                    self.stalled.push(index);
                    break;
                }
                Err((wr_id, error)) => {
                    self.turn.has_refused = true;
                    let completion = refused(wr_id, qp.qpn, CompletionOp::Send, error);
                    push(&mut self.cqs, qp.send_cq, &completion);
                }
            }
            qp.sq.advance();
            taken += 1;
        }
        qp.sq.release();
        // They leave with this step's or the next one's packets, whoever takes it.
        self.turn.posted |= taken > 0;
        taken
    }

    /// Whether receives wait in the ring, which a new one must not overtake.
    #[inline]
    fn receives_wait(&mut self, index: u32) -> bool {
        let waits = |engine: &mut Engine| {
            let rq = engine.qps.get_mut(index).and_then(|qp| qp.rq.as_mut());
            rq.is_some_and(|rq| rq.available() != Ok(0))
        };
        waits(self) && {
            self.fetch_receives(index);
            waits(self)
        }
    }

    pub(crate) fn post_receive(&mut self, index: u32, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.receives_wait(index) {
            return Err(PostError::QueueFull);
        }
        let qp = self.qps.get_mut(index).ok_or(PostError::NoSuchQueue)?;
        // A receive starts no timer, so the time of the last step will do.
        let now = self.now.unwrap_or(Instant::ZERO);
        self.rnic.post_recv(now, qp.qpn, wr)?;
        // In the error state it comes back at once.
        self.deliver();
        Ok(())
    }

    pub(crate) fn post_shared(&mut self, index: u32, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.fetch_shared(index);
        let srq = self.srqs.get_mut(index).ok_or(PostError::NoSuchQueue)?;
        if srq.rq.available() != Ok(0) {
            return Err(PostError::QueueFull);
        }
        tags::post(&mut self.rnic, srq.id, srq.tags.as_deref_mut(), wr)
    }

    fn fetch_receives(&mut self, index: u32) -> u32 {
        let Some(qp) = self.qps.get_mut(index) else { return 0 };
        let (qpn, recv_cq) = (qp.qpn, qp.recv_cq);
        let Some(rq) = &mut qp.rq else { return 0 };
        let (rnic, cqs, has_refused) = (&mut self.rnic, &mut self.cqs, &mut self.turn.has_refused);
        let now = self.now.unwrap_or(Instant::ZERO);
        let fetched = fetch(
            rq,
            |wr| rnic.post_recv(now, qpn, wr),
            |wr_id, error| {
                *has_refused = true;
                push(cqs, recv_cq, &refused(wr_id, qpn, CompletionOp::Receive, error));
            },
        );
        if fetched.is_full {
            self.stalled.push(index);
        }
        fetched.taken
    }

    pub(crate) fn fetch_shared(&mut self, index: u32) -> u32 {
        let Some(srq) = self.srqs.get_mut(index) else { return 0 };
        let (id, rnic) = (srq.id, &mut self.rnic);
        // An SRQ has no completion queue: what cannot be posted is dropped, as hardware does with a bad WQE.
        let tags = &mut srq.tags;
        fetch(&mut srq.rq, |wr| tags::post(rnic, id, tags.as_deref_mut(), wr), |_, _| {}).taken
    }

    /// Moves completions and events out of the RNIC; returns the number of completions.
    pub(super) fn deliver(&mut self) -> u32 {
        let mut delivered = 0;
        while let Some((cq, completion)) = self.rnic.poll_completion() {
            delivered += 1;
            if self.tag_queues == 0 || !self.take_tagged(&completion) {
                push(&mut self.cqs, cq, &completion);
            }
            if completion.status != CompletionStatus::Success {
                self.close_if_broken(completion.qpn);
            }
        }
        if delivered > 0 || std::mem::take(&mut self.turn.has_refused) {
            self.publish();
        }
        while let Some(event) = self.rnic.poll_event() {
            self.report(event);
        }
        delivered
    }

    /// Tells an event to whoever wants to hear of its object.
    #[cold]
    fn report(&mut self, event: AsyncEvent) {
        let reporter = match event {
            AsyncEvent::CqError(id) => self.cq(id).map(|cq| &cq.reporter),
            AsyncEvent::SrqLimitReached(id) => {
                self.srqs.iter().find(|(_, srq)| srq.id == id).map(|(_, srq)| &srq.reporter)
            }
            _ => {
                let qpn = event.qpn();
                self.qps.iter().find(|(_, qp)| Some(qp.qpn) == qpn).map(|(_, qp)| &qp.reporter)
            }
        };
        // An object that is gone by now has nobody who would know what the event is about.
        if let Some(reporter) = reporter {
            reporter.report(event);
        }
    }

    pub(super) fn publish(&mut self) {
        for (index, sink) in self.cqs.iter_mut().enumerate() {
            let Some(sink) = sink.as_mut().filter(|sink| sink.is_touched) else { continue };
            sink.is_touched = false;
            sink.ring.publish_release();
            if sink.has_events && sink.ring.take_notification() {
                sink.notifier.notify();
            }
            if std::mem::take(&mut sink.is_overrun) {
                self.overrun.push(CqId(index as u32));
            }
        }
        while let Some(cq) = self.overrun.pop() {
            self.report(AsyncEvent::CqError(cq));
            self.break_users(cq);
        }
    }

    /// A completion was lost: the queue pairs that complete here cannot be trusted any more (IBTA §10.8.1).
    #[cold]
    fn break_users(&mut self, cq: CqId) {
        let now = self.now();
        let users = self.qps.iter().filter(|(_, qp)| qp.send_cq == cq || qp.recv_cq == cq);
        for qpn in users.map(|(_, qp)| qp.qpn).collect::<Vec<_>>() {
            let _ = self.rnic.modify_qp(now, qpn, &QpAttr::to_state(QpState::Error));
        }
    }

    /// A queue pair in error is closed to neighbours as well, who would otherwise go on without asking it.
    #[cold]
    fn close_if_broken(&mut self, qpn: Qpn) {
        let Some(neighbours) = &self.neighbours else { return };
        if let Some(qp) = self.rnic.query_qp(qpn).filter(|qp| qp.state == QpState::Error) {
            neighbours.close(qpn, &qp);
        }
    }
}

struct Fetched {
    taken: u32,
    is_full: bool,
}

/// Takes receives out of a ring until it is empty or the queue behind it is full.
fn fetch(
    ring: &mut ReceiveQueueConsumer,
    mut post: impl FnMut(&RecvWr<'_>) -> Result<(), PostError>,
    mut refuse: impl FnMut(u64, PostError),
) -> Fetched {
    let mut fetched = Fetched { taken: 0, is_full: false };
    let mut buffer = [Default::default(); MAX_SGES];
    while let Ok(Some(slot)) = ring.peek() {
        match slot.wqe() {
            Err(BadWqe { wr_id, .. }) => refuse(wr_id, PostError::TooManySges),
            Ok(wqe) => {
                let mut sges = [Sge::default(); MAX_SGES];
                let mut count = 0;
                for (to, from) in sges.iter_mut().zip(slot.sges(&mut buffer)) {
                    *to = convert::from_sge(from);
                    count += 1;
                }
                match post(&RecvWr { wr_id: wqe.wr_id, sges: &sges[..count] }) {
                    Ok(()) => {}
                    Err(PostError::QueueFull) => {
                        fetched.is_full = true;
                        break;
                    }
                    Err(error) => refuse(wqe.wr_id, error),
                }
            }
        }
        ring.advance();
        fetched.taken += 1;
    }
    ring.release();
    fetched
}

#[inline]
fn push(cqs: &mut [Option<CqSink>], cq: CqId, completion: &Completion) {
    let Some(Some(sink)) = cqs.get_mut(cq.0 as usize) else { return };
    sink.is_touched = true;
    if sink.ring.push(&convert::to_cqe(completion), completion.flags.solicited).is_err() {
        sink.is_overrun = true;
    }
}

/// The completion of a request that lay in a ring and that the RNIC did not take.
fn refused(wr_id: u64, qpn: Qpn, operation: CompletionOp, error: PostError) -> Completion {
    let status = match error {
        PostError::TooLong | PostError::TooShort => CompletionStatus::LocalLength,
        PostError::WrongState => CompletionStatus::Flushed,
        _ => CompletionStatus::LocalQpOperation,
    };
    Completion {
        wr_id,
        status,
        operation,
        byte_len: 0,
        immediate: 0,
        qpn,
        source_qpn: Qpn::default(),
        flags: CompletionFlags::default(),
    }
}
