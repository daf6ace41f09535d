//! IRN's responder: packets in any order, straight to where they belong (IRN §5.3).
//!
//! Data is placed as it comes. What must happen in order (completions, the MSN, READs, atomics, invalidation) waits in
//! `early` until everything before it is there. An early packet that cannot be taken is dropped as if it were lost;
//! only the packet that is expected can be refused.
//!
//! Answers to READs and atomics are the business of `answers`, acknowledgements that of `acks`.

mod acks;
mod answers;

use super::deliver::Ending;
use super::standard::lost;
use super::{Refusal, Responder};
use crate::connection::{AckQueue, Connection, TransportConfig};
use crate::context::Context;
use crate::counters::Counter;
use crate::irn::{Arrival, IrnConfig, Location, LossRecovery, PacketClass, ReceiverWindow, SenderWindow};
use crate::receive_queue::ReceiveQueue;
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{
    Access, CompletionOp, CompletionStatus, Memory, MemoryLost, Payload, RemoteKey, scatter,
};
use highwire_wire::{AtomicEth, Ext, Headers, IrnEth, NakCode, Operation, Psn, Reth, Syndrome};
use std::collections::VecDeque;

/// What a responder keeps for IRN.
#[derive(Clone, Debug)]
pub(crate) struct IrnResponder {
    /// The requests (sPSN).
    pub(super) window: ReceiverWindow,
    acks: AckQueue,
    /// Packets in order that were not acknowledged, and until when they may stay so.
    unacknowledged: u32,
    ack_due: Instant,
    /// What waits for the packets before it, by PSN.
    early: VecDeque<(Psn, Deferred)>,
    /// recv_WQE_SN of the oldest receive that is not completed.
    recv_sn: u32,
    pub(super) refusal: Option<(Psn, Syndrome)>,
    /// The answers (rPSN).
    answers: SenderWindow,
    next_answer: Psn,
    jobs: VecDeque<Answer>,
    deadline: Option<Instant>,
    last_progress: Instant,
    /// Timeouts since then.
    stalls: u32,
}

/// What the last packet of a message triggers once its turn comes (IRN §5.3.3).
#[derive(Clone, Copy, Debug)]
enum Deferred {
    /// Only the MSN moves.
    Nothing,
    Receive(Ending),
    Read {
        sn: u32,
        reth: Reth,
    },
    Atomic {
        sn: u32,
        is_swap: bool,
        atomic: AtomicEth,
    },
}

/// An answer that the requester has not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Answer {
    sn: u32,
    first: Psn,
    packets: u32,
    body: Body,
}

#[derive(Clone, Copy, Debug)]
enum Body {
    Read(Reth),
    Atomic(u64),
}

impl IrnResponder {
    pub(super) fn new(rq_psn: Psn, config: &IrnConfig) -> IrnResponder {
        IrnResponder {
            window: ReceiverWindow::new(rq_psn, config),
            acks: AckQueue::default(),
            unacknowledged: 0,
            ack_due: Instant::FAR_FUTURE,
            early: VecDeque::new(),
            recv_sn: 0,
            refusal: None,
            answers: SenderWindow::new(rq_psn, *config),
            next_answer: rq_psn,
            jobs: VecDeque::new(),
            deadline: None,
            last_progress: Instant::ZERO,
            stalls: 0,
        }
    }

    /// When an acknowledgement or an answer is due; [`Instant::FAR_FUTURE`] for never.
    #[inline]
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadline.unwrap_or(Instant::FAR_FUTURE).min(self.ack_due)
    }

    pub(super) fn wants_transmit(&mut self) -> bool {
        !self.acks.is_empty() || self.refusal.is_some() || self.has_answers()
    }

    fn has_answers(&mut self) -> bool {
        self.answers.peek_retransmit().is_some()
            || self.answers.next_to_send() != self.next_answer && self.answers.can_send_new()
    }

    /// Packets are in order: acknowledges them now or a little later.
    #[inline]
    fn note_in_order(&mut self, conn: &Connection, now: Instant, advanced: u32, is_asked: bool) {
        self.unacknowledged += advanced;
        let TransportConfig { ack_delay, ack_interval, .. } = conn.transport;
        if is_asked || ack_delay == Duration::ZERO || self.unacknowledged >= ack_interval {
            self.acks.acknowledge();
        } else if self.ack_due == Instant::FAR_FUTURE {
            self.ack_due = now + ack_delay;
        }
    }

    /// An acknowledgement leaves: nothing is owed any more.
    #[inline]
    fn note_acknowledged(&mut self) {
        self.unacknowledged = 0;
        self.ack_due = Instant::FAR_FUTURE;
    }

    fn defer(&mut self, psn: Psn, what: Deferred) {
        let at = self.early.partition_point(|(p, _)| p.is_before(psn));
        self.early.insert(at, (psn, what));
    }
}

/// What a packet, taken for itself, amounts to.
struct Taken {
    class: PacketClass,
    then: Option<Deferred>,
}

impl Responder {
    #[inline]
    pub(super) fn handle_irn<P: Payload>(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        let psn = headers.bth.psn;
        let Some(irn) = &mut self.irn else { return };
        let location = irn.window.locate(psn);
        match location {
            Location::BeyondWindow => return ctx.counters.count(Counter::DroppedBeyondWindow),
            Location::Duplicate => {
                ctx.counters.count(Counter::Duplicates);
                return irn.acks.acknowledge();
            }
            Location::EarlyAgain => {
                ctx.counters.count(Counter::Duplicates);
                return irn.acks.report(psn, 1);
            }
            Location::Early if conn.transport.irn.recovery == LossRecovery::GoBackN => {
                // It will come again, so its data is not placed (IRN §4.3).
                ctx.counters.count(Counter::OutOfSequence);
                return irn.acks.report(psn, 1);
            }
            Location::Next | Location::Early => {}
        }
        match self.take(conn, own, ctx, headers, payload, memory, location) {
            Ok(ref taken) => self.record(conn, ctx, psn, headers.bth.ack_request, taken, memory),
            Err(_) if location == Location::Early => ctx.counters.count(Counter::DroppedNoReceive),
            Err(refusal) => self.refuse_irn(conn, ctx, psn, refusal),
        }
    }

    fn refuse_irn(&mut self, conn: &Connection, ctx: &mut Context<'_>, psn: Psn, refusal: Refusal) {
        let syndrome = match refusal {
            Refusal::Drop(counter) => return ctx.counters.count(counter),
            Refusal::NotReady => {
                ctx.counters.count(Counter::DroppedNoReceive);
                Syndrome::Rnr { timer: conn.min_rnr_timer }
            }
            Refusal::BadReceive => {
                self.fail_receive(conn, ctx, CompletionStatus::LocalProtection);
                Syndrome::Nak(NakCode::RemoteOperational)
            }
            Refusal::Nak(code) => Syndrome::Nak(code),
            // What came before it was carried out, and that is all that the peer hears.
            Refusal::Silence(code) => {
                self.failed = Some(code);
                Syndrome::Ack { credits: Syndrome::NO_CREDITS }
            }
        };
        let Some(irn) = &mut self.irn else { return };
        irn.refusal = Some((psn, syndrome));
        if let Syndrome::Nak(code) = syndrome {
            self.failed = Some(code);
        }
        if self.failed.is_some() {
            // What arrived beyond the refused packet was not carried out, and must not be acknowledged.
            irn.acks = AckQueue::default();
        }
    }

    /// Checks a packet and places its data.
    #[allow(clippy::too_many_arguments, reason = "one packet with everything that it may touch")]
    #[inline]
    fn take<P: Payload>(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
        location: Location,
    ) -> Result<Taken, Refusal> {
        match headers.ext {
            Ext::IrnSend(irn) => {
                self.take_send(conn, own, ctx, headers, irn, None, None, payload, memory, location)
            }
            Ext::IrnSendAck(irn, ..) => {
                self.take_send(conn, own, ctx, headers, irn, None, None, payload, memory, location)
            }
            Ext::IrnSendImm(irn, imm) => {
                self.take_send(conn, own, ctx, headers, irn, Some(imm), None, payload, memory, location)
            }
            Ext::IrnSendInvalidate(irn, key) => {
                let key = Some(RemoteKey(key));
                self.take_send(conn, own, ctx, headers, irn, None, key, payload, memory, location)
            }
            Ext::IrnWrite(irn, reth) | Ext::IrnWriteAck(irn, reth, ..) => {
                self.take_write(conn, own, ctx, headers, irn, reth, None, payload, memory)
            }
            Ext::IrnWriteImm(irn, reth, imm) => {
                self.take_write(conn, own, ctx, headers, irn, reth, Some(imm), payload, memory)
            }
            Ext::IrnRead(irn, reth) => self.take_read(conn, ctx, irn, reth),
            Ext::IrnAtomic(irn, atomic) => self.take_atomic(conn, ctx, headers, irn, atomic),
            _ => Err(Refusal::Drop(Counter::DroppedMalformed)),
        }
    }

    /// Which of the receives that are not completed a recv_WQE_SN means.
    fn receive_index(&self, conn: &Connection, sn: u32) -> Result<usize, Refusal> {
        let irn = self.irn.as_ref().expect("only called with IRN");
        let ahead = Psn::new(sn).ahead_of(Psn::new(irn.recv_sn));
        // No more messages than packets can be in flight.
        if ahead >= conn.transport.irn.cap.max(IrnConfig::WINDOW_PACKETS_MIN) {
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        Ok(ahead as usize)
    }

    #[allow(clippy::too_many_arguments, reason = "one packet with everything that it may touch")]
    #[inline]
    fn take_send<P: Payload>(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        headers: &Headers,
        irn: IrnEth,
        immediate: Option<u32>,
        invalidate: Option<RemoteKey>,
        payload: P,
        memory: &mut impl Memory<P>,
        location: Location,
    ) -> Result<Taken, Refusal> {
        let is_last = irn.is_last();
        check_length(conn, is_last, payload.len())?;
        let index = self.receive_index(conn, irn.wqe_sn())?;
        if location == Location::Early && !self.can_claim(conn, own, ctx, index) {
            return Err(Refusal::NotReady);
        }
        self.claim(conn, own, ctx, index)?;
        let wqe = &self.claimed[index];
        let offset = u64::from(irn.offset()) * u64::from(conn.mtu.bytes());
        let total = offset + u64::from(payload.len());
        if total > wqe.capacity.min(u64::from(highwire_verbs::MESSAGE_LENGTH_MAX)) {
            if location == Location::Next {
                ctx.counters.count(Counter::DroppedTooLong);
                self.fail_receive(conn, ctx, CompletionStatus::LocalLength);
            }
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        if !payload.is_empty() {
            scatter(memory, &wqe.sges, offset as u32, payload).map_err(|MemoryLost| Refusal::BadReceive)?;
        }
        if !is_last {
            return Ok(Taken { class: PacketClass::Middle, then: None });
        }
        let ending = Ending {
            operation: CompletionOp::Receive,
            byte_len: total as u32,
            immediate,
            invalidate,
            solicited: headers.bth.solicited,
            source_qpn: conn.remote_qpn,
        };
        Ok(Taken { class: PacketClass::LastWithCompletion, then: Some(Deferred::Receive(ending)) })
    }

    /// Whether receive number `index` can be had without anyone being told that it cannot.
    fn can_claim(&self, conn: &Connection, own: &ReceiveQueue, ctx: &Context<'_>, index: usize) -> bool {
        let waiting = match conn.config.srq {
            Some(srq) => ctx.shared.get(srq.0).map_or(0, ReceiveQueue::len),
            None => own.len(),
        };
        self.claimed.len() + waiting as usize > index
    }

    #[allow(clippy::too_many_arguments, reason = "one packet with everything that it may touch")]
    #[inline]
    fn take_write<P: Payload>(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        headers: &Headers,
        irn: IrnEth,
        reth: Reth,
        immediate: Option<u32>,
        payload: P,
        memory: &mut impl Memory<P>,
    ) -> Result<Taken, Refusal> {
        let is_last = irn.is_last();
        check_length(conn, is_last, payload.len())?;
        let offset = u64::from(irn.offset()) * u64::from(conn.mtu.bytes());
        let end = offset + u64::from(payload.len());
        if end > u64::from(reth.length)
            || is_last != (end == u64::from(reth.length))
            || reth.length > highwire_verbs::MESSAGE_LENGTH_MAX
        {
            ctx.counters.count(Counter::RefusedRequest);
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        let permitted =
            Self::check_access(conn, ctx, RemoteKey(reth.rkey), reth.va, reth.length, Access::REMOTE_WRITE);
        if immediate.is_some() {
            let index = self.receive_index(conn, irn.wqe_sn())?;
            self.fail_receive_of_refused(conn, own, ctx, permitted, index)?;
            if permitted.is_ok() {
                self.claim(conn, own, ctx, index)?;
            }
        }
        let addr = permitted?;
        if !payload.is_empty() {
            memory.place(addr + offset, payload).map_err(lost)?;
        }
        if !is_last {
            return Ok(Taken { class: PacketClass::Middle, then: None });
        }
        if immediate.is_none() {
            return Ok(Taken { class: PacketClass::Last, then: Some(Deferred::Nothing) });
        }
        let ending = Ending {
            operation: CompletionOp::ReceiveWriteImm,
            byte_len: reth.length,
            immediate,
            invalidate: None,
            solicited: headers.bth.solicited,
            source_qpn: conn.remote_qpn,
        };
        Ok(Taken { class: PacketClass::LastWithCompletion, then: Some(Deferred::Receive(ending)) })
    }

    /// The Read WQE buffer has as many places as the peer may ask at once (IRN §5.3.2). An answer that has left makes room:
    /// only the requester knows whether it arrived, and one that asks for no more than it may has it.
    fn has_read_place(&self, conn: &Connection) -> bool {
        let irn = self.irn.as_ref().expect("only called with IRN");
        let needs_answer =
            |(_, what): &&(Psn, Deferred)| matches!(what, Deferred::Read { .. } | Deferred::Atomic { .. });
        let sent = irn.answers.next_to_send();
        let is_unsent = |job: &&Answer| sent.is_before(job.first.add(job.packets));
        let waiting = irn.early.iter().filter(needs_answer).count();
        waiting + irn.jobs.iter().filter(is_unsent).count() < conn.max_dest_rd_atomic as usize
    }

    fn take_read(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        irn: IrnEth,
        reth: Reth,
    ) -> Result<Taken, Refusal> {
        if reth.length > highwire_verbs::MESSAGE_LENGTH_MAX || !self.has_read_place(conn) {
            ctx.counters.count(Counter::RefusedRequest);
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        Self::check_access(conn, ctx, RemoteKey(reth.rkey), reth.va, reth.length, Access::REMOTE_READ)?;
        Ok(Taken { class: PacketClass::Last, then: Some(Deferred::Read { sn: irn.wqe_sn(), reth }) })
    }

    fn take_atomic(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        headers: &Headers,
        irn: IrnEth,
        atomic: AtomicEth,
    ) -> Result<Taken, Refusal> {
        if !atomic.va.is_multiple_of(8) || !self.has_read_place(conn) {
            ctx.counters.count(Counter::RefusedRequest);
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        Self::check_access(conn, ctx, RemoteKey(atomic.rkey), atomic.va, 8, Access::REMOTE_ATOMIC)?;
        let is_swap = headers.bth.opcode.info().operation == Operation::CompareSwap;
        let then = Deferred::Atomic { sn: irn.wqe_sn(), is_swap, atomic };
        Ok(Taken { class: PacketClass::Last, then: Some(then) })
    }

    /// Records the arrival and carries out what has become due.
    #[inline]
    fn record<P: Payload>(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        psn: Psn,
        is_asked: bool,
        taken: &Taken,
        memory: &mut impl Memory<P>,
    ) {
        let Some(irn) = &mut self.irn else { return };
        match irn.window.on_arrival(psn, taken.class) {
            Arrival::InOrder { advanced, .. } => {
                irn.note_in_order(conn, ctx.now, advanced, is_asked);
                if let Some(then) = &taken.then {
                    self.carry_out(conn, ctx, psn, then, memory);
                }
                self.carry_out_early(conn, ctx, memory);
            }
            Arrival::OutOfOrder { place, run_len } => {
                ctx.counters.count(Counter::OutOfSequence);
                if place && let Some(then) = taken.then {
                    irn.defer(psn, then);
                }
                irn.acks.report(psn, run_len);
            }
            Arrival::Duplicate | Arrival::BeyondWindow => {}
        }
    }

    fn carry_out_early<P: Payload>(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        memory: &mut impl Memory<P>,
    ) {
        while self.failed.is_none() {
            let Some(irn) = &mut self.irn else { return };
            match irn.early.front() {
                Some((psn, _)) if psn.is_before(irn.window.next_expected()) => {}
                _ => return,
            }
            let Some((psn, then)) = irn.early.pop_front() else { return };
            self.carry_out(conn, ctx, psn, &then, memory);
        }
    }

    #[inline]
    fn carry_out<P: Payload>(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        psn: Psn,
        what: &Deferred,
        memory: &mut impl Memory<P>,
    ) {
        let result = match *what {
            Deferred::Nothing => Ok(()),
            Deferred::Receive(ref ending) => {
                let invalidated = self.invalidate(conn, ctx, ending.invalidate);
                if invalidated.is_ok() {
                    self.complete_receive(conn, ctx, ending);
                    if let Some(irn) = &mut self.irn {
                        irn.recv_sn = (irn.recv_sn + 1) & 0x00FF_FFFF;
                    }
                }
                invalidated
            }
            Deferred::Read { sn, reth } => {
                self.answer(sn, conn.mtu.packets(reth.length), Body::Read(reth));
                Ok(())
            }
            Deferred::Atomic { sn, is_swap, atomic } => Self::run_atomic(conn, ctx, is_swap, atomic, memory)
                .map(|original| self.answer(sn, 1, Body::Atomic(original))),
        };
        match result {
            Ok(()) => self.msn = (self.msn + 1) & 0x00FF_FFFF,
            Err(refusal) => self.refuse_irn(conn, ctx, psn, refusal),
        }
    }
}

/// Every packet but the last is full, and only an empty message has an empty packet.
#[inline]
fn check_length(conn: &Connection, is_last: bool, length: u32) -> Result<(), Refusal> {
    let mtu = conn.mtu.bytes();
    let fits = if is_last { length <= mtu } else { length == mtu };
    if fits { Ok(()) } else { Err(Refusal::Nak(NakCode::InvalidRequest)) }
}
