//! IRN's responder: packets in any order, straight to where they belong (IRN §5.3).
//!
//! Data is placed as it comes. What must happen in order (completions, the MSN, READs, atomics, invalidation) waits in
//! `early` until everything before it is there. An early packet that cannot be taken is dropped as if it were lost;
//! only the packet that is expected can be refused.
//!
//! `take` checks packets, `answers` answers READs and atomics, and `acks` acknowledges.

mod acks;
mod answers;
mod take;

use super::deliver::Ending;
use super::{Common, Refusal, Request, Turn};
use crate::connection::{AckQueue, Connection, TransportConfig};
use crate::context::Context;
use crate::counters::Counter;
use crate::irn::{Arrival, IrnConfig, Location, LossRecovery, ReceiverWindow, SenderWindow};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{CompletionStatus, Memory, Payload};
use highwire_wire::{AtomicEth, Bth, NakCode, Psn, Reth, Syndrome};
use std::collections::VecDeque;
use take::Taken;

/// A responder's state for IRN.
#[derive(Clone, Debug)]
pub(super) struct Irn {
    /// The requests (sPSN).
    window: ReceiverWindow,
    acks: AckQueue,
    /// Packets in order that were not acknowledged, and until when they may stay so.
    unacknowledged: u32,
    ack_due: Instant,
    /// Deferred work of packets that came early, by PSN.
    early: VecDeque<(Psn, Deferred)>,
    /// recv_WQE_SN of the oldest receive that is not completed.
    recv_sn: u32,
    refusal: Option<(Psn, Syndrome)>,
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

impl Irn {
    pub(super) fn new(rq_psn: Psn, config: &IrnConfig) -> Irn {
        Irn {
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

    pub(super) fn expected(&self) -> Psn {
        self.window.next_expected()
    }

    /// Whether a refusal waits to leave.
    pub(super) fn is_refusing(&self) -> bool {
        self.refusal.is_some()
    }

    /// When an acknowledgement or an answer is due; [`Instant::FAR_FUTURE`] for never.
    #[inline]
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadline.unwrap_or(Instant::FAR_FUTURE).min(self.ack_due)
    }

    pub(super) fn wants_transmit(&mut self) -> bool {
        !self.acks.is_empty() || self.refusal.is_some() || self.has_answers()
    }

    pub(super) fn has_answers(&mut self) -> bool {
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

    /// An acknowledgement leaves, so no other is due.
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

impl Irn {
    #[inline]
    pub(super) fn handle<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        request: Request<'_, P>,
        memory: &mut impl Memory<P>,
    ) {
        let bth = &request.headers.bth;
        let psn = bth.psn;
        let location = self.window.locate(psn);
        if location != Location::Next {
            common.unexpected = Some(psn);
        }
        match location {
            Location::BeyondWindow => return turn.ctx.counters.count(Counter::DroppedBeyondWindow),
            Location::Duplicate => {
                turn.ctx.counters.count(Counter::Duplicates);
                return self.acks.acknowledge();
            }
            Location::EarlyAgain => {
                turn.ctx.counters.count(Counter::Duplicates);
                return self.acks.report(psn, 1);
            }
            Location::Early if turn.conn.transport.irn.recovery == LossRecovery::GoBackN => {
                // The requester will send the packet again, so its data is not placed (IRN §4.3).
                turn.ctx.counters.count(Counter::OutOfSequence);
                return self.acks.report(psn, 1);
            }
            Location::Next | Location::Early => {}
        }
        match self.take(common, turn, request, memory, location) {
            Ok(ref taken) => self.record(common, turn, bth, taken, memory),
            Err(_) if location == Location::Early => turn.ctx.counters.count(Counter::DroppedNoReceive),
            Err(refusal) => self.refuse(common, turn, psn, refusal),
        }
    }

    /// Of a request the headers alone have arrived.
    pub(super) fn handle_trimmed(&mut self, ctx: &mut Context<'_>, psn: Psn) {
        match self.window.locate(psn) {
            Location::BeyondWindow => ctx.counters.count(Counter::DroppedBeyondWindow),
            Location::Duplicate => {
                ctx.counters.count(Counter::Duplicates);
                self.acks.acknowledge();
            }
            Location::EarlyAgain => {
                ctx.counters.count(Counter::Duplicates);
                self.acks.report(psn, 1);
            }
            Location::Next | Location::Early => self.acks.report_trimmed(psn),
        }
    }

    fn refuse(&mut self, common: &mut Common, turn: &mut Turn<'_, '_>, psn: Psn, refusal: Refusal) {
        let syndrome = match refusal {
            Refusal::Drop(counter) => return turn.ctx.counters.count(counter),
            Refusal::NotReady => {
                turn.ctx.counters.count(Counter::DroppedNoReceive);
                Syndrome::Rnr { timer: turn.conn.min_rnr_timer }
            }
            Refusal::BadReceive => {
                common.fail_receive(turn, CompletionStatus::LocalProtection);
                Syndrome::Nak(NakCode::RemoteOperational)
            }
            Refusal::Nak(code) => Syndrome::Nak(code),
            // The peer gets an acknowledgement of the requests before it, and no NAK.
            Refusal::Silence(code) => {
                common.failed = Some(code);
                Syndrome::Ack { credits: Syndrome::NO_CREDITS }
            }
        };
        self.refusal = Some((psn, syndrome));
        if let Syndrome::Nak(code) = syndrome {
            common.failed = Some(code);
        }
        if common.failed.is_some() {
            // Packets beyond the refused one were not executed, and must not be acknowledged.
            self.acks = AckQueue::default();
        }
    }

    /// Records the arrival and executes the requests that are now due.
    #[inline]
    fn record<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        bth: &Bth,
        taken: &Taken,
        memory: &mut impl Memory<P>,
    ) {
        let psn = bth.psn;
        match self.window.on_arrival(psn, taken.class) {
            Arrival::InOrder { advanced, .. } => {
                self.note_in_order(turn.conn, turn.ctx.now, advanced, bth.ack_request);
                if let Some(then) = &taken.then {
                    self.carry_out(common, turn, psn, then, memory);
                }
                self.carry_out_early(common, turn, memory);
            }
            Arrival::OutOfOrder { place, run_len } => {
                turn.ctx.counters.count(Counter::OutOfSequence);
                if place && let Some(then) = taken.then {
                    self.defer(psn, then);
                }
                self.acks.report(psn, run_len);
            }
            Arrival::Duplicate | Arrival::BeyondWindow => {}
        }
    }

    fn carry_out_early<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        memory: &mut impl Memory<P>,
    ) {
        while common.failed.is_none() {
            match self.early.front() {
                Some((psn, _)) if psn.is_before(self.window.next_expected()) => {}
                _ => return,
            }
            let Some((psn, then)) = self.early.pop_front() else { return };
            self.carry_out(common, turn, psn, &then, memory);
        }
    }

    #[inline]
    fn carry_out<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        psn: Psn,
        what: &Deferred,
        memory: &mut impl Memory<P>,
    ) {
        let result = match *what {
            Deferred::Nothing => Ok(()),
            Deferred::Receive(ref ending) => {
                let invalidated = common.invalidate(turn, ending.invalidate);
                if invalidated.is_ok() {
                    common.complete_receive(turn, ending);
                    self.recv_sn = (self.recv_sn + 1) & 0x00FF_FFFF;
                }
                invalidated
            }
            Deferred::Read { sn, reth } => {
                self.answer(sn, turn.conn.mtu.packets(reth.length), Body::Read(reth));
                Ok(())
            }
            Deferred::Atomic { sn, is_swap, atomic } => turn
                .run_atomic(is_swap, atomic, memory)
                .map(|original| self.answer(sn, 1, Body::Atomic(original))),
        };
        match result {
            Ok(()) => common.count_message(),
            Err(refusal) => self.refuse(common, turn, psn, refusal),
        }
    }
}
