//! IRN's requester: selective retransmission of requests, and acknowledgements of READ responses (IRN §3, §5.2).
//!
//! Requests have the sPSN space to themselves: a READ or atomic takes one of its PSNs. Responses have the rPSN space, in
//! which this side is the receiver.

use super::Requester;
use super::standard::{place_response, refusal};
use crate::congestion::{AckSample, CongestionControl, LossKind};
use crate::connection::{AckQueue, Connection};
use crate::context::Context;
use crate::counters::Counter;
use crate::irn::{
    Arrival, IrnConfig, Location, PacketClass, ReceiverWindow, RetransmissionTimeout, SenderWindow,
    TimeoutOutcome,
};
use crate::plan::{Order, Plan, RIDING_ACK_BYTES};
use crate::send_queue::{Progress, SendWqe};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{CompletionStatus, Memory, Operation, Payload};
use highwire_wire::{Aeth, Ext, Headers, IrnEth, NakCode, Opcode, Psn, SackEth, Syndrome};

/// With fewer promised receives than this left, every request asks for an acknowledgement that may promise more.
const CREDITS_LOW: u32 = 8;

/// Computed timeouts double up to this: beyond it every other patience is over.
const RTO_MAX: Duration = Duration::from_secs(1);

/// What a requester keeps for IRN.
#[derive(Clone, Debug)]
pub(crate) struct IrnRequester {
    /// The requests (sPSN).
    pub(crate) window: SenderWindow,
    /// Their responses (rPSN). Both ends count them from the first request's PSN.
    responses: ReceiverWindow,
    next_response: Psn,
    acks: AckQueue,
    /// Where timeouts follow from round trips.
    computed_rto: Option<Box<RetransmissionTimeout>>,
    /// The timer only measures patience: nothing of this side's is in flight.
    is_patient: bool,
}

impl IrnRequester {
    pub(crate) fn new(sq_psn: Psn, config: &IrnConfig) -> IrnRequester {
        let mut window = SenderWindow::new(sq_psn, *config);
        let computed_rto = config.computes_rto.then(|| {
            window.set_rto(config.rto_high);
            Box::new(RetransmissionTimeout::new(config.rto_high, config.rto_low, RTO_MAX))
        });
        IrnRequester {
            window,
            computed_rto,
            responses: ReceiverWindow::new(sq_psn, config),
            next_response: sq_psn,
            acks: AckQueue::default(),
            is_patient: false,
        }
    }

    /// Gives `packets` response PSNs away, and says which is the first.
    pub(super) fn reserve_responses(&mut self, packets: u32) -> Psn {
        let first = self.next_response;
        self.next_response = first.add(packets);
        first
    }

    /// Whether a request was acknowledged, and answered if it wants an answer.
    #[inline]
    pub(super) fn is_complete(&self, wqe: &SendWqe) -> bool {
        let is_acknowledged = wqe.end().distance_from(self.window.first_unacknowledged()) <= 0;
        let is_answered = wqe.responses == 0
            || wqe.response_first.add(wqe.responses).distance_from(self.responses.next_expected()) <= 0;
        is_acknowledged && is_answered
    }

    pub(super) fn resend_front(&mut self) {
        while let TimeoutOutcome::Extended(_) = self.window.on_timeout() {}
    }
}

impl Requester {
    #[inline]
    pub(super) fn poll_irn(&mut self, conn: &Connection, ctx: &mut Context<'_>, plan: &mut Plan) -> bool {
        let Some(irn) = &mut self.irn else { return false };
        if let Some(psn) = irn.window.peek_retransmit() {
            let Some((index, packet)) = self.queue.find(psn) else { return false };
            if !self.is_still_permitted(conn, ctx, index) {
                return false;
            }
            if let Some(irn) = &mut self.irn {
                irn.window.poll_retransmit();
            }
            ctx.counters.count(Counter::Retransmitted);
            self.arm_irn(conn, ctx.now, false);
            self.irn_packet(conn, index, packet, psn, true, plan);
            plan.headers.bth.ack_request = true;
            return true;
        }
        self.poll_irn_new(conn, ctx, plan)
    }

    #[inline]
    fn poll_irn_new(&mut self, conn: &Connection, ctx: &mut Context<'_>, plan: &mut Plan) -> bool {
        let Some(irn) = &self.irn else { return false };
        if !irn.window.can_send_new() || !self.window_is_open(irn.window.in_flight()) {
            self.is_in_train = false;
            return false;
        }
        if !self.is_in_train && self.waits_for_a_train(conn, irn.window.in_flight()) {
            return false;
        }
        self.is_in_train = true;
        let Some(index) = self.admit(conn, ctx) else { return false };
        let Some(irn) = &mut self.irn else { return false };
        let psn = irn.window.on_send_new();
        let packet = self.queue.packet;
        self.irn_packet(conn, index, packet, psn, false, plan);
        let wqe = &self.queue.wqes[index];
        let (is_last, is_seen) = (packet + 1 == wqe.packets, wqe.flags.signaled || conn.config.signal_all);
        if is_last {
            self.queue.step();
        } else {
            self.queue.packet += 1;
        }
        plan.headers.bth.ack_request = self.asks_for_irn_ack(conn, is_last, is_seen);
        self.arm_irn(conn, ctx.now, false);
        true
    }

    /// Whether what is left to send is one message of one packet, with room for an acknowledgement.
    #[inline]
    pub(crate) fn is_about_to_send_one(&self, conn: &Connection) -> bool {
        let queue = &self.queue;
        let is_one = |wqe: &SendWqe| {
            matches!(wqe.operation, Operation::Send | Operation::Write(_))
                && wqe.length + RIDING_ACK_BYTES <= conn.mtu.bytes()
        };
        self.irn.is_some()
            && conn.state.transmits()
            && queue.cursor + 1 == queue.wqes.len()
            && queue.wqes.get(queue.cursor).is_some_and(is_one)
    }

    /// Whether a long message had better wait for the next acknowledgement: where every one lets a few packets go, each few cost
    /// what a whole train does. One is under way: they are asked for more often than half of a window is sent.
    #[inline]
    fn waits_for_a_train(&self, conn: &Connection, in_flight: u32) -> bool {
        let cap = conn.transport.irn.cap;
        let room = cap.saturating_sub(in_flight);
        room < conn.transport.train_packets.min(cap / 2)
            && conn.transport.ack_interval <= cap / 2
            && self.queue.wqes.get(self.queue.cursor).is_some_and(|wqe| {
                // Of one that has not begun, the packets are counted when it does.
                wqe.packets.max(wqe.length / conn.mtu.bytes()).saturating_sub(self.queue.packet) > room
            })
    }

    /// When somebody waits for it: the end of a burst whose completion is seen, or a window that fills up. A responder
    /// that acknowledges every packet pays no heed.
    #[inline]
    fn asks_for_irn_ack(&mut self, conn: &Connection, is_last: bool, is_seen: bool) -> bool {
        self.unrequested_acks += 1;
        let in_flight = self.in_flight();
        let is_end = is_last && if self.queue.is_exhausted() { is_seen } else { self.next_may_wait() };
        // What runs low is asked about while there is still some: receives that are promised, places in the queue.
        let runs_low = self.credits_left().is_some_and(|left| left < CREDITS_LOW)
            || self.queue.len() * 2 >= conn.config.caps.max_send_wr as usize;
        let asks = is_end
            || is_last && runs_low
            || self.unrequested_acks >= conn.transport.ack_interval
            || in_flight >= conn.transport.irn.cap
            || self.asks_always;
        if asks {
            self.unrequested_acks = 0;
        }
        asks
    }

    /// Sets the timer if none runs, or anew after progress.
    #[inline]
    pub(super) fn arm_irn(&mut self, conn: &Connection, now: Instant, restart: bool) {
        let Some(irn) = &mut self.irn else { return };
        if self.deadline.is_some() && !irn.is_patient && !restart {
            return;
        }
        if self.deadline.is_none() && !restart {
            self.last_progress = now;
            self.stalls = 0;
        }
        let rto = irn.window.arm_timeout();
        irn.is_patient = rto.is_none();
        self.deadline = match rto {
            Some(rto) => Some(now + rto),
            // Only responses are missing. Their sender repairs losses; this side just loses patience one day.
            None if self.reads_in_flight > 0 => conn.patience_step().map(|step| now + step),
            None => None,
        };
    }

    /// Whether the next timeout is the last one.
    pub(super) fn gives_up_irn(&self, conn: &Connection, now: Instant) -> bool {
        conn.patience().is_some_and(|patience| now.saturating_since(self.last_progress) >= patience)
            && self.stalls >= u32::from(conn.retry_count)
            && !self.queue.wqes.is_empty()
    }

    pub(super) fn timeout_irn(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        self.deadline = None;
        if self.gives_up_irn(conn, ctx.now) {
            ctx.counters.count(Counter::Timeouts);
            self.fail_front(conn, ctx, CompletionStatus::RetryExceeded);
            return;
        }
        let Some(irn) = &mut self.irn else { return };
        match irn.window.on_timeout() {
            TimeoutOutcome::Idle => {
                self.stalls += 1;
                self.arm_irn(conn, ctx.now, true);
            }
            TimeoutOutcome::Extended(rest) => self.deadline = Some(ctx.now + rest),
            TimeoutOutcome::Resend => {
                ctx.counters.count(Counter::Timeouts);
                self.stalls += 1;
                if let Some(computed) = &mut irn.computed_rto {
                    computed.back_off();
                    irn.window.set_rto(computed.current());
                }
                self.note_loss(ctx.now, LossKind::Timeout);
                self.arm_irn(conn, ctx.now, true);
            }
        }
    }

    /// An acknowledgement of requests: cumulative, selective, or a refusal.
    #[inline]
    pub(crate) fn on_irn_ack(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        cumulative: Psn,
        aeth: Aeth,
        sack: Option<SackEth>,
    ) {
        let Some(irn) = &mut self.irn else {
            ctx.counters.count(Counter::DroppedStale);
            return;
        };
        // While a hole is open, a cumulative acknowledgement may be caused by any packet.
        let is_in_order =
            self.has_listeners && irn.window.sacked().is_empty() && !irn.window.is_in_recovery();
        let outcome = match sack {
            Some(sack) => irn.window.on_nack(cumulative, sack.psn, u32::from(sack.count)),
            None => irn.window.on_ack(cumulative),
        };
        if let Syndrome::Ack { credits } = aeth.syndrome {
            self.on_credits(conn, aeth.msn, credits);
        }
        if self.has_listeners && outcome.newly_arrived > 0 {
            let cause = match sack {
                Some(sack) => Some(sack.psn),
                None => is_in_order.then(|| cumulative.sub(1)),
            };
            self.tell_listeners(ctx.now, cause, outcome.newly_arrived);
        }
        if outcome.newly_acked > 0 {
            self.on_progress(conn, ctx.now);
            self.arm_irn(conn, ctx.now, true);
            self.retire(conn, ctx);
        } else if outcome.newly_sacked > 0 && conn.transport.irn.sack_restarts_timer {
            self.arm_irn(conn, ctx.now, true);
        }
        if outcome.loss_detected {
            self.note_loss(ctx.now, LossKind::Nack);
        }
        if sack.is_some() {
            ctx.counters.count(Counter::NaksReceived);
        }
        if !self.failed {
            self.on_irn_refusal(conn, ctx, cumulative, aeth);
        }
    }

    #[inline(never)]
    fn tell_listeners(&mut self, now: Instant, cause: Option<Psn>, packets: u32) {
        let news = self.sample(now, cause);
        if let (Some(irn), Some(rtt)) = (&mut self.irn, news.rtt)
            && let Some(computed) = &mut irn.computed_rto
        {
            computed.on_round_trip(rtt);
            irn.window.set_rto(computed.current());
        }
        self.congestion.on_ack(now, AckSample { packets, ..news });
    }

    fn on_irn_refusal(&mut self, conn: &Connection, ctx: &mut Context<'_>, psn: Psn, aeth: Aeth) {
        let Some(irn) = &self.irn else { return };
        // It speaks of the oldest packet in flight, or it is old.
        let is_front = psn == irn.window.first_unacknowledged();
        let is_in_flight = is_front && irn.window.in_flight() > 0;
        match aeth.syndrome {
            Syndrome::Ack { .. } => {}
            // What broke may also be the answer to a READ that was acknowledged.
            Syndrome::Nak(code) if code != NakCode::PsnSequence && is_front && self.reads_in_flight > 0 => {
                ctx.counters.count(Counter::NaksReceived);
                self.fail_front(conn, ctx, refusal(code));
            }
            _ if !is_in_flight => ctx.counters.count(Counter::DroppedStale),
            Syndrome::Rnr { timer } => self.on_rnr(conn, ctx, timer),
            Syndrome::Nak(NakCode::PsnSequence) => {}
            Syndrome::Nak(code) => {
                ctx.counters.count(Counter::NaksReceived);
                // Everything before it has been answered: the responder waits for that.
                self.fail_front(conn, ctx, refusal(code));
            }
        }
    }

    /// A response: placed at once, wherever it belongs, and acknowledged.
    #[inline]
    pub(crate) fn on_irn_response<P: Payload>(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        let psn = headers.bth.psn;
        let (Some(irn), Some(header)) = (&mut self.irn, irn_eth(headers)) else {
            ctx.counters.count(Counter::DroppedStale);
            return;
        };
        let location = irn.responses.locate(psn);
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
            Location::Next | Location::Early => {}
        }
        let wanted = self.queue.wqes.iter().position(|w| {
            w.responses > 0 && w.progress == Progress::Started && psn.ahead_of(w.response_first) < w.responses
        });
        let Some(index) = wanted else { return ctx.counters.count(Counter::DroppedStale) };
        if self.translate(conn, ctx, index).is_err() {
            self.lose_memory(index);
            return self.retire(conn, ctx);
        }
        let (wqe, Some(irn)) = (&self.queue.wqes[index], &mut self.irn) else { return };
        let packet = psn.ahead_of(wqe.response_first);
        if header.wqe_sn() != wqe.wqe_sn || header.offset() != packet {
            return ctx.counters.count(Counter::DroppedMalformed);
        }
        let is_last = packet + 1 == wqe.responses;
        let request = wqe.end();
        match place_response(conn, wqe, packet, headers, payload, memory) {
            Ok(()) => {}
            Err(CompletionStatus::LocalProtection) => {
                self.lose_memory(index);
                return self.retire(conn, ctx);
            }
            Err(_) => return ctx.counters.count(Counter::DroppedMalformed),
        }
        let class = if is_last { PacketClass::Last } else { PacketClass::Middle };
        match irn.responses.on_arrival(psn, class) {
            Arrival::InOrder { .. } => irn.acks.acknowledge(),
            Arrival::OutOfOrder { run_len, .. } => {
                ctx.counters.count(Counter::OutOfSequence);
                irn.acks.report(psn, run_len);
            }
            Arrival::Duplicate | Arrival::BeyondWindow => {}
        }
        self.last_progress = ctx.now;
        let aeth = match headers.ext {
            Ext::IrnReadResponse(_, aeth) | Ext::IrnAtomicResponse(_, aeth, _) => aeth,
            _ => Aeth::ack(0),
        };
        // Whoever answers a request has seen it, and all before it. Only a believable acknowledgement says so.
        self.on_irn_ack(conn, ctx, request, aeth, None);
        if !self.failed {
            self.retire(conn, ctx);
            self.arm_irn(conn, ctx.now, self.reads_in_flight == 0);
        }
    }

    /// The next acknowledgement of responses.
    #[inline]
    pub(crate) fn poll_read_ack(&mut self, conn: &Connection, plan: &mut Plan) -> bool {
        let Some(irn) = &mut self.irn else { return false };
        let cumulative = irn.responses.next_expected();
        let (opcode, ext) = match irn.acks.next(cumulative) {
            None => return false,
            Some(None) => (Opcode::IrnReadAck, Ext::IrnReadAck),
            Some(Some(sack)) => (Opcode::IrnReadNack, Ext::IrnReadNack(sack)),
        };
        plan.bare(opcode, conn.remote_qpn, cumulative, ext, Order::Free);
        true
    }

    pub(crate) fn wants_read_ack(&self) -> bool {
        self.irn.as_ref().is_some_and(|irn| !irn.acks.is_empty())
    }
}

/// The IRN header of a response.
fn irn_eth(headers: &Headers) -> Option<IrnEth> {
    match headers.ext {
        Ext::IrnReadResponse(irn, _) | Ext::IrnAtomicResponse(irn, _, _) => Some(irn),
        _ => None,
    }
}
