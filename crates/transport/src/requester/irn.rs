//! IRN's requester: selective retransmission of requests, and acknowledgements of READ responses (IRN §3, §5.2).
//!
//! Requests have the sPSN space to themselves: a READ or atomic takes one of its PSNs. Responses have the rPSN space, in
//! which this side is the receiver.

use super::common::{Common, Numbers};
use super::standard::{place_response, refusal};
use crate::congestion::{AckSample, LossKind};
use crate::connection::{AckQueue, Connection};
use crate::context::Context;
use crate::counters::Counter;
use crate::irn::{
    Arrival, IrnConfig, Location, PacketClass, ReceiverWindow, RetransmissionTimeout, SenderWindow,
    TimeoutOutcome,
};
use crate::plan::{Order, Plan};
use crate::send_queue::{Progress, SendWqe};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{CompletionStatus, Memory, Payload};
use highwire_wire::{Aeth, Ext, Headers, IrnEth, NakCode, Opcode, Psn, SackEth, Syndrome};

/// With fewer credits than this left, every request asks for an acknowledgement, which may bring more.
const CREDITS_LOW: u32 = 8;

/// Computed timeouts double up to this. All other timeouts are shorter.
const RTO_MAX: Duration = Duration::from_secs(1);

/// A requester's state for IRN.
#[derive(Clone, Debug)]
pub(super) struct Irn {
    /// The PSN of the first request of all.
    first: Psn,
    /// The requests (sPSN).
    window: SenderWindow,
    /// Their responses (rPSN). Both ends count them from the first request's PSN.
    responses: ReceiverWindow,
    next_response: Psn,
    acks: AckQueue,
    /// Where timeouts follow from round trips.
    computed_rto: Option<Box<RetransmissionTimeout>>,
    /// The timer only measures patience: no request is in flight.
    is_patient: bool,
    /// Timeouts since the last progress, counted one by one: a host that did not run for a while counts a
    /// single one.
    stalls: u32,
    /// When the timer last ran.
    timer_ran_at: Instant,
    /// Packets have been leaving since the window last had room for a train.
    is_in_train: bool,
    /// The packet to resend that is on its way from memory, and when it is there.
    fetching: Option<(Psn, Instant)>,
}

impl Numbers for Irn {
    #[inline]
    fn frontier(&self) -> Psn {
        self.window.next_to_send()
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.window.in_flight()
    }

    #[inline]
    fn first_unacknowledged(&self) -> Psn {
        self.window.first_unacknowledged()
    }

    fn is_unused(&self) -> bool {
        self.window.next_to_send() == self.first
    }

    /// The window bounds what is in flight, packet by packet.
    #[inline]
    fn has_room_for(&self, _packets: u32) -> bool {
        true
    }

    #[inline]
    fn number(&mut self, wqe: &mut SendWqe, packets: u32) {
        wqe.first = self.window.next_to_send();
        wqe.psns = wqe.packets;
        if wqe.responses > 0 {
            wqe.response_first = self.next_response;
            self.next_response = self.next_response.add(packets);
        }
    }

    /// Whether a request was acknowledged, and answered if it wants an answer.
    #[inline]
    fn is_complete(&self, wqe: &SendWqe) -> bool {
        let is_acknowledged = wqe.end().distance_from(self.window.first_unacknowledged()) <= 0;
        let is_answered = wqe.responses == 0
            || wqe.response_first.add(wqe.responses).distance_from(self.responses.next_expected()) <= 0;
        is_acknowledged && is_answered
    }

    #[inline]
    fn has_lost(&mut self) -> bool {
        self.window.peek_retransmit().is_some()
    }
}

impl Irn {
    pub(super) fn new(sq_psn: Psn, config: &IrnConfig) -> Irn {
        let mut window = SenderWindow::new(sq_psn, *config);
        let computed_rto = config.computes_rto.then(|| {
            window.set_rto(config.rto_high);
            Box::new(RetransmissionTimeout::new(config.rto_high, config.rto_low, RTO_MAX))
        });
        Irn {
            first: sq_psn,
            window,
            computed_rto,
            responses: ReceiverWindow::new(sq_psn, config),
            next_response: sq_psn,
            acks: AckQueue::default(),
            is_patient: false,
            stalls: 0,
            timer_ran_at: Instant::ZERO,
            is_in_train: false,
            fetching: None,
        }
    }

    #[inline]
    pub(super) fn poll(
        &mut self,
        common: &mut Common,
        conn: &Connection,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) -> bool {
        if let Some(psn) = self.window.peek_retransmit()
            && self.is_fetched(common, conn, ctx.now)
        {
            let Some((index, packet)) = common.queue.find(psn) else { return false };
            if !common.is_still_permitted(conn, ctx, index) {
                return false;
            }
            self.window.poll_retransmit();
            self.is_fetched(common, conn, ctx.now);
            ctx.counters.count(Counter::Retransmitted);
            self.arm(common, conn, ctx.now, false);
            common.irn_packet(conn, index, packet, psn, true, plan);
            plan.headers.bth.ack_request = true;
            return true;
        }
        self.poll_new(common, conn, ctx, plan)
    }

    /// Whether the packet to resend next, if there is one, has come from memory; if it was not on its way, it is now.
    #[inline]
    fn is_fetched(&mut self, common: &mut Common, conn: &Connection, now: Instant) -> bool {
        let delay = conn.transport.irn.retransmission_delay;
        if delay == Duration::ZERO {
            return true;
        }
        let wanted = self.window.peek_retransmit();
        self.fetching = match (wanted, self.fetching) {
            (Some(psn), Some((fetched, there))) if fetched == psn => Some((psn, there)),
            (Some(psn), _) => Some((psn, now + delay)),
            (None, _) => None,
        };
        common.fetching_until = self.fetching.map(|(_, there)| there).filter(|&there| there > now);
        common.fetching_until.is_none()
    }

    #[inline]
    fn poll_new(
        &mut self,
        common: &mut Common,
        conn: &Connection,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) -> bool {
        let (first, next) = (self.window.first_unacknowledged(), self.window.next_to_send());
        if !self.window.can_send_new() || !common.window_is_open(first, next) {
            self.is_in_train = false;
            return false;
        }
        if !self.is_in_train && self.waits_for_a_train(common, conn, self.window.in_flight()) {
            return false;
        }
        self.is_in_train = true;
        let Some(index) = common.admit(self, conn, ctx) else { return false };
        let psn = self.window.on_send_new();
        let packet = common.queue.packet;
        common.irn_packet(conn, index, packet, psn, false, plan);
        let wqe = &common.queue.wqes[index];
        let (is_last, is_seen) = (packet + 1 == wqe.packets, wqe.flags.signaled || conn.config.signal_all);
        if is_last {
            common.queue.step();
        } else {
            common.queue.packet += 1;
        }
        plan.headers.bth.ack_request = self.asks_for_ack(common, conn, is_last, is_seen);
        self.arm(common, conn, ctx.now, false);
        true
    }

    /// Whether a long message should wait for the next acknowledgement: if every acknowledgement let a few
    /// packets go, each few would cost as much as a whole train. An acknowledgement is sure to come, because
    /// the requester asks for one more often than once in half a window.
    #[inline]
    fn waits_for_a_train(&self, common: &Common, conn: &Connection, in_flight: u32) -> bool {
        let cap = conn.transport.irn.cap;
        let room = cap.saturating_sub(in_flight);
        room < conn.transport.train_packets.min(cap / 2)
            && conn.transport.ack_interval <= cap / 2
            && common.queue.wqes.get(common.queue.cursor).is_some_and(|wqe| {
                // For a request that has not begun, `packets` is not set yet.
                wqe.packets.max(wqe.length / conn.mtu.bytes()).saturating_sub(common.queue.packet) > room
            })
    }

    /// Whether this packet asks for an acknowledgement. It does if the requester needs one: at the end of a burst whose
    /// completion the application sees, or when the window fills up. A responder that acknowledges every packet ignores the
    /// request.
    #[inline]
    fn asks_for_ack(&mut self, common: &mut Common, conn: &Connection, is_last: bool, is_seen: bool) -> bool {
        common.unrequested_acks += 1;
        let in_flight = self.window.in_flight();
        let is_end =
            is_last && if common.queue.is_exhausted() { is_seen } else { common.next_may_wait(self, conn) };
        // The requester asks before it runs out of credits or of places in the send queue.
        let runs_low = common.credits_left().is_some_and(|left| left < CREDITS_LOW)
            || common.queue.len() * 2 >= conn.config.caps.max_send_wr as usize;
        let asks = is_end
            || is_last && runs_low
            || common.unrequested_acks >= conn.transport.ack_interval
            || in_flight >= conn.transport.irn.cap
            || common.asks_always;
        if asks {
            common.unrequested_acks = 0;
        }
        asks
    }

    /// Sets the timer if none runs, or anew after progress.
    #[inline]
    pub(super) fn arm(&mut self, common: &mut Common, conn: &Connection, now: Instant, restart: bool) {
        if common.deadline.is_some() && !self.is_patient && !restart {
            return;
        }
        if common.deadline.is_none() && !restart {
            common.last_progress = now;
            self.stalls = 0;
        }
        let rto = self.window.arm_timeout();
        self.is_patient = rto.is_none();
        common.deadline = match rto {
            Some(rto) => Some(now + rto),
            // Only responses are missing. The responder repairs their losses; this side only runs out of
            // patience in the end.
            None if common.reads_in_flight > 0 => conn.patience_step().map(|step| now + step),
            None => None,
        };
    }

    /// After an RNR NAK.
    pub(super) fn resume_after_rnr(&mut self, common: &mut Common, conn: &Connection, now: Instant) {
        while let TimeoutOutcome::Extended(_) = self.window.on_timeout() {}
        self.arm(common, conn, now, true);
    }

    /// No packet was lost and the responder did not fail to answer: it has not been running. The time since the timer last ran does not
    /// count. What counted before does: a peer that runs now and then and never answers is given up.
    pub(super) fn wait_on(&mut self, common: &mut Common, conn: &Connection, now: Instant) {
        common.deadline = Some(now + conn.transport.irn.rto_high);
        common.last_progress += now.saturating_since(self.timer_ran_at.max(common.last_progress));
        self.timer_ran_at = now;
    }

    /// Whether the next timeout is the last one.
    pub(super) fn gives_up(&self, common: &Common, conn: &Connection, now: Instant) -> bool {
        conn.patience().is_some_and(|patience| now.saturating_since(common.last_progress) >= patience)
            && self.stalls >= u32::from(conn.retry_count)
            && !common.queue.wqes.is_empty()
    }

    pub(super) fn handle_timeout(&mut self, common: &mut Common, conn: &Connection, ctx: &mut Context<'_>) {
        common.deadline = None;
        self.timer_ran_at = ctx.now;
        if self.gives_up(common, conn, ctx.now) {
            ctx.counters.count(Counter::Timeouts);
            common.fail_front(self, conn, ctx, CompletionStatus::RetryExceeded);
            return;
        }
        match self.window.on_timeout() {
            TimeoutOutcome::Idle => {
                self.stalls += 1;
                self.arm(common, conn, ctx.now, true);
            }
            TimeoutOutcome::Extended(rest) => common.deadline = Some(ctx.now + rest),
            TimeoutOutcome::Resend => {
                ctx.counters.count(Counter::Timeouts);
                self.stalls += 1;
                if let Some(computed) = &mut self.computed_rto {
                    computed.back_off();
                    self.window.set_rto(computed.current());
                }
                common.note_loss(ctx.now, LossKind::Timeout);
                self.arm(common, conn, ctx.now, true);
            }
        }
        self.is_fetched(common, conn, ctx.now);
    }

    /// An acknowledgement of requests: cumulative, selective, or a refusal.
    #[inline]
    pub(super) fn on_ack(
        &mut self,
        common: &mut Common,
        conn: &Connection,
        ctx: &mut Context<'_>,
        cumulative: Psn,
        aeth: Aeth,
        sack: Option<SackEth>,
    ) {
        // While a hole is open, a cumulative acknowledgement may be caused by any packet.
        let is_in_order =
            common.has_listeners && self.window.sacked().is_empty() && !self.window.is_in_recovery();
        // The NACK names a packet that has arrived, or, with this code, one whose headers alone have.
        let is_trimmed = sack.is_some() && aeth.syndrome == Syndrome::Nak(NakCode::PsnSequence);
        let outcome = match sack {
            Some(sack) if is_trimmed => self.window.on_trimmed(cumulative, sack.psn),
            Some(sack) => self.window.on_nack(cumulative, sack.psn, u32::from(sack.count)),
            None => self.window.on_ack(cumulative),
        };
        if let Syndrome::Ack { credits } = aeth.syndrome {
            common.on_credits(conn, aeth.msn, credits);
        }
        if common.has_listeners && outcome.newly_arrived > 0 {
            let cause = match sack {
                Some(_) if is_trimmed => None,
                Some(sack) => Some(sack.psn),
                None => is_in_order.then(|| cumulative.sub(1)),
            };
            self.tell_listeners(common, ctx.now, cause, outcome.newly_arrived);
        }
        if outcome.newly_acked > 0 {
            common.on_progress(conn, ctx.now);
            self.stalls = 0;
            self.arm(common, conn, ctx.now, true);
            common.retire(self, conn, ctx);
        } else if (outcome.newly_sacked > 0 || is_trimmed) && conn.transport.irn.sack_restarts_timer {
            self.arm(common, conn, ctx.now, true);
        }
        if outcome.loss_detected {
            common.note_loss(ctx.now, if is_trimmed { LossKind::Trimmed } else { LossKind::Nack });
        }
        self.is_fetched(common, conn, ctx.now);
        if sack.is_some() {
            ctx.counters.count(Counter::NaksReceived);
        }
        if !common.failed {
            self.on_refusal(common, conn, ctx, cumulative, aeth);
        }
    }

    #[inline(never)]
    fn tell_listeners(&mut self, common: &mut Common, now: Instant, cause: Option<Psn>, packets: u32) {
        let news = common.sample(now, cause);
        if let Some(rtt) = news.rtt
            && let Some(computed) = &mut self.computed_rto
        {
            computed.on_round_trip(rtt);
            self.window.set_rto(computed.current());
        }
        common.tell(now, AckSample { packets, in_flight: self.window.in_flight(), ..news });
    }

    fn on_refusal(
        &mut self,
        common: &mut Common,
        conn: &Connection,
        ctx: &mut Context<'_>,
        psn: Psn,
        aeth: Aeth,
    ) {
        // The NAK is for the oldest packet in flight, or it is old.
        let is_front = psn == self.window.first_unacknowledged();
        let is_in_flight = is_front && self.window.in_flight() > 0;
        match aeth.syndrome {
            Syndrome::Ack { .. } => {}
            // The failed request may also be a READ that was acknowledged and not answered.
            Syndrome::Nak(code) if code != NakCode::PsnSequence && is_front && common.reads_in_flight > 0 => {
                ctx.counters.count(Counter::NaksReceived);
                common.fail_front(self, conn, ctx, refusal(code));
            }
            _ if !is_in_flight => ctx.counters.count(Counter::DroppedStale),
            Syndrome::Rnr { timer } => {
                if common.on_rnr(self, conn, ctx, timer) {
                    self.stalls = 0;
                }
            }
            Syndrome::Nak(NakCode::PsnSequence) => {}
            Syndrome::Nak(code) => {
                ctx.counters.count(Counter::NaksReceived);
                // All requests before it have been answered: the responder sends the NAK only then.
                common.fail_front(self, conn, ctx, refusal(code));
            }
        }
    }

    /// A response: placed at once, wherever it belongs, and acknowledged.
    #[inline]
    pub(super) fn on_response<P: Payload>(
        &mut self,
        common: &mut Common,
        conn: &Connection,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        let psn = headers.bth.psn;
        let Some(header) = irn_eth(headers) else {
            ctx.counters.count(Counter::DroppedStale);
            return;
        };
        let location = self.responses.locate(psn);
        match location {
            Location::BeyondWindow => return ctx.counters.count(Counter::DroppedBeyondWindow),
            Location::Duplicate => {
                ctx.counters.count(Counter::Duplicates);
                return self.acks.acknowledge();
            }
            Location::EarlyAgain => {
                ctx.counters.count(Counter::Duplicates);
                return self.acks.report(psn, 1);
            }
            Location::Next | Location::Early => {}
        }
        let wanted = common.queue.wqes.iter().position(|w| {
            w.responses > 0 && w.progress == Progress::Started && psn.ahead_of(w.response_first) < w.responses
        });
        let Some(index) = wanted else { return ctx.counters.count(Counter::DroppedStale) };
        if common.translate(conn, ctx, index).is_err() {
            common.lose_memory(index);
            return common.retire(self, conn, ctx);
        }
        let wqe = &common.queue.wqes[index];
        let packet = psn.ahead_of(wqe.response_first);
        if header.wqe_sn() != wqe.wqe_sn || header.offset() != packet {
            return ctx.counters.count(Counter::DroppedMalformed);
        }
        let is_last = packet + 1 == wqe.responses;
        let request = wqe.end();
        match place_response(conn, wqe, packet, headers, payload, memory) {
            Ok(()) => {}
            Err(CompletionStatus::LocalProtection) => {
                common.lose_memory(index);
                return common.retire(self, conn, ctx);
            }
            Err(_) => return ctx.counters.count(Counter::DroppedMalformed),
        }
        let class = if is_last { PacketClass::Last } else { PacketClass::Middle };
        match self.responses.on_arrival(psn, class) {
            Arrival::InOrder { .. } => self.acks.acknowledge(),
            Arrival::OutOfOrder { run_len, .. } => {
                ctx.counters.count(Counter::OutOfSequence);
                self.acks.report(psn, run_len);
            }
            Arrival::Duplicate | Arrival::BeyondWindow => {}
        }
        common.last_progress = ctx.now;
        let aeth = match headers.ext {
            Ext::IrnReadResponse(_, aeth) | Ext::IrnAtomicResponse(_, aeth, _) => aeth,
            _ => Aeth::ack(0),
        };
        // A responder that answers a request has received it, and all requests before it. Only an acknowledgement that passes
        // the checks proves that.
        self.on_ack(common, conn, ctx, request, aeth, None);
        if !common.failed {
            common.retire(self, conn, ctx);
            self.arm(common, conn, ctx.now, common.reads_in_flight == 0);
        }
    }

    /// The next acknowledgement of responses.
    #[inline]
    pub(super) fn poll_read_ack(&mut self, conn: &Connection, plan: &mut Plan) -> bool {
        let cumulative = self.responses.next_expected();
        let (opcode, ext) = match self.acks.next(cumulative) {
            None => return false,
            Some(None) => (Opcode::IrnReadAck, Ext::IrnReadAck),
            Some(Some(sack)) => (Opcode::IrnReadNack, Ext::IrnReadNack(sack)),
        };
        plan.bare(opcode, conn.remote_qpn, cumulative, ext, Order::Free);
        true
    }

    pub(super) fn wants_read_ack(&self) -> bool {
        !self.acks.is_empty()
    }
}

/// The IRN header of a response.
fn irn_eth(headers: &Headers) -> Option<IrnEth> {
    match headers.ext {
        Ext::IrnReadResponse(irn, _) | Ext::IrnAtomicResponse(irn, _, _) => Some(irn),
        _ => None,
    }
}
