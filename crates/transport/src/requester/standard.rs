//! Go-back-N, as RoCE NICs do it: standard RoCEv2 in both directions (IBTA §9.7.5, §9.7.6).
//!
//! READ responses use the requests' PSNs: a READ of n packets takes n of them, and an answer to it acknowledges
//! everything before. A gap, in acknowledgements or responses, sends the cursor back.

use super::common::{Common, Numbers};
use super::table::{Action, Covers, action};
use crate::congestion::{AckSample, LossKind};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::Plan;
use crate::send_queue::{Progress, SendWqe};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{CompletionStatus, Memory, Payload, scatter};
use highwire_wire::{Aeth, Ext, Headers, NakCode, Psn, Syndrome};

/// The widest span of PSNs that may be in flight: half of all (IBTA §9.7.2).
const PSN_SPAN_MAX: u32 = 1 << 23;

/// A requester's state for go-back-N, and for the services without acknowledgements.
#[derive(Clone, Debug)]
pub(super) struct Standard {
    /// The PSN of the first packet of all.
    first: Psn,
    /// The next PSN to transmit; goes back with the cursor.
    next_psn: Psn,
    /// The first PSN that was never sent.
    frontier: Psn,
    first_unacknowledged: Psn,
    retries_left: u8,
    /// When an acknowledgement was last asked for.
    asked_at: Instant,
    /// A gap in READ responses was noticed, and the READ sent again.
    response_gap: bool,
}

impl Numbers for Standard {
    #[inline]
    fn frontier(&self) -> Psn {
        self.frontier
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.next_psn.ahead_of(self.first_unacknowledged)
    }

    #[inline]
    fn first_unacknowledged(&self) -> Psn {
        self.first_unacknowledged
    }

    fn is_unused(&self) -> bool {
        self.frontier == self.first && self.next_psn == self.first
    }

    #[inline]
    fn has_room_for(&self, packets: u32) -> bool {
        self.in_flight() == 0 || self.in_flight() + packets <= PSN_SPAN_MAX
    }

    #[inline]
    fn number(&mut self, wqe: &mut SendWqe, packets: u32) {
        wqe.first = self.frontier;
        wqe.psns = if wqe.responses > 0 { packets } else { wqe.packets };
    }

    #[inline]
    fn is_complete(&self, wqe: &SendWqe) -> bool {
        match wqe.responses {
            0 => wqe.end().ahead_of(self.first_unacknowledged).wrapping_sub(1) >= PSN_SPAN_MAX,
            responses => wqe.received == responses,
        }
    }

    /// The cursor has gone back to packets that are sent again.
    #[inline]
    fn has_lost(&mut self) -> bool {
        false
    }
}

impl Standard {
    pub(super) fn new(conn: &Connection, sq_psn: Psn, now: Instant) -> Standard {
        Standard {
            first: sq_psn,
            next_psn: sq_psn,
            frontier: sq_psn,
            first_unacknowledged: sq_psn,
            retries_left: conn.retry_count,
            asked_at: now,
            response_gap: false,
        }
    }

    /// An unreliable service has no acknowledgements: a packet that has left is done.
    #[inline]
    pub(super) fn forget_sent(&mut self) {
        self.first_unacknowledged = self.next_psn;
    }

    /// A packet has left that was in no queue.
    #[inline]
    pub(super) fn pass(&mut self) {
        self.frontier = self.frontier.next();
        (self.next_psn, self.first_unacknowledged) = (self.frontier, self.frontier);
    }

    #[inline]
    pub(super) fn poll(
        &mut self,
        common: &mut Common,
        conn: &Connection,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) -> bool {
        let Some(index) = common.admit(self, conn, ctx) else { return false };
        self.send(common, conn, ctx, index, plan)
    }

    #[inline]
    fn send(
        &mut self,
        common: &mut Common,
        conn: &Connection,
        ctx: &mut Context<'_>,
        index: usize,
        plan: &mut Plan,
    ) -> bool {
        let is_rc = conn.config.service.is_reliable();
        let in_flight = self.next_psn.ahead_of(self.first_unacknowledged);
        let (first, next) = (self.first_unacknowledged, self.next_psn);
        if is_rc && (in_flight >= conn.transport.go_back_n_window || !common.window_is_open(first, next)) {
            return false;
        }
        let packet = common.queue.packet;
        let wqe = &common.queue.wqes[index];
        let is_read = wqe.responses > 0;
        if is_read && wqe.received == wqe.responses {
            // The response's data has arrived, and only PSNs before it are missing.
            self.next_psn = wqe.end();
            common.queue.step();
            return self.poll(common, conn, ctx, plan);
        }
        let psn = if is_read { wqe.first.add(wqe.received) } else { wqe.first.add(packet) };
        common.standard_packet(conn, index, packet, psn, plan);
        let wqe = &mut common.queue.wqes[index];
        let is_last = packet + 1 == wqe.packets;
        self.next_psn = if is_read { wqe.end() } else { psn.next() };
        let is_resent =
            psn.ahead_of(self.first_unacknowledged) < self.frontier.ahead_of(self.first_unacknowledged);
        if is_resent {
            ctx.counters.count(Counter::Retransmitted);
        } else {
            self.frontier = self.next_psn;
        }
        if is_last {
            if !is_rc {
                wqe.progress = Progress::Done(CompletionStatus::Success);
            }
            common.queue.step();
        } else {
            common.queue.packet += 1;
        }
        if is_rc {
            plan.headers.bth.ack_request = self.asks_for_ack(common, conn, ctx.now, is_last, is_read);
            if common.deadline.is_none() {
                common.deadline = conn.ack_deadline(ctx.now);
            }
        }
        true
    }

    /// At the end of a burst, and at times within it: enough for completions to flow and windows to move.
    #[inline]
    fn asks_for_ack(
        &mut self,
        common: &mut Common,
        conn: &Connection,
        now: Instant,
        is_last: bool,
        is_read: bool,
    ) -> bool {
        common.unrequested_acks += 1;
        let in_flight = self.next_psn.ahead_of(self.first_unacknowledged);
        let asks = is_last && (common.queue.is_exhausted() || is_read || common.next_may_wait(self, conn))
            || common.unrequested_acks >= conn.transport.ack_interval
            || in_flight >= conn.transport.go_back_n_window
            || common.asks_always
            // A slow pace must not let the timer run out before the first packet that asks for an
            // acknowledgement.
            || conn.ack_timeout().is_some_and(|timeout| now >= self.asked_at + Duration::from_nanos(timeout.as_nanos() / 4));
        if asks {
            common.unrequested_acks = 0;
            self.asked_at = now;
        }
        asks
    }

    /// Transmits again from `psn` on.
    pub(super) fn go_back(&mut self, common: &mut Common, psn: Psn) {
        if psn.ahead_of(self.first_unacknowledged) > self.next_psn.ahead_of(self.first_unacknowledged) {
            return;
        }
        self.next_psn = psn;
        common.queue.rewind(psn);
        common.unrequested_acks = 0;
    }

    /// An ACK or NAK (IBTA §9.7.5.2).
    #[inline]
    pub(super) fn on_ack(
        &mut self,
        common: &mut Common,
        conn: &Connection,
        ctx: &mut Context<'_>,
        psn: Psn,
        aeth: Aeth,
    ) {
        // A positive acknowledgement covers its own PSN, a negative one the PSNs before it.
        let upto = if matches!(aeth.syndrome, Syndrome::Ack { .. }) { psn.next() } else { psn };
        let covered = upto.ahead_of(self.first_unacknowledged);
        let covers = Covers::of(covered, self.frontier.ahead_of(self.first_unacknowledged));
        let action = action(covers, aeth.syndrome.into());
        if action == Action::Ignore {
            ctx.counters.count(Counter::DroppedStale);
            return;
        }
        if let Syndrome::Ack { credits } = aeth.syndrome {
            common.on_credits(conn, aeth.msn, credits);
            if action == Action::Advance && covered > 0 {
                if common.has_listeners {
                    common.news = common.sample(ctx.now, Some(psn));
                }
                self.advance(common, conn, ctx, upto);
            }
            return;
        }
        self.advance(common, conn, ctx, upto);
        if common.failed || upto != self.first_unacknowledged {
            return;
        }
        match aeth.syndrome {
            Syndrome::Rnr { timer } => {
                common.on_rnr(self, conn, ctx, timer);
                if !common.failed {
                    self.go_back(common, upto);
                }
            }
            Syndrome::Nak(code) => {
                ctx.counters.count(Counter::NaksReceived);
                if action == Action::GoBack {
                    common.note_loss(ctx.now, LossKind::Nack);
                    self.retry(common, conn, ctx, upto);
                } else {
                    common.fail_front(self, conn, ctx, refusal(code));
                }
            }
            Syndrome::Ack { .. } => unreachable!("handled above"),
        }
    }

    /// Everything before `upto` has arrived, unless a READ among it still lacks its answer.
    fn advance(&mut self, common: &mut Common, conn: &Connection, ctx: &mut Context<'_>, upto: Psn) {
        let mut reached = upto;
        let mut lost_response = false;
        if common.reads_in_flight > 0 {
            let base = self.first_unacknowledged;
            let unanswered = common
                .queue
                .wqes
                .iter()
                .take_while(|w| w.is_started())
                .find(|w| w.responses > 0 && w.received < w.responses && w.progress == Progress::Started);
            if let Some(wqe) = unanswered {
                let answered = wqe.first.add(wqe.received);
                if answered.ahead_of(base) < upto.ahead_of(base) {
                    (reached, lost_response) = (answered, true);
                }
            }
        }
        let progress = reached.ahead_of(self.first_unacknowledged);
        if progress > 0 {
            self.first_unacknowledged = reached;
            // The cursor may stand behind the acknowledged packets, if an ACK of the first transmission came
            // late.
            let span = self.frontier.ahead_of(reached);
            if self.next_psn.ahead_of(reached) > span {
                self.next_psn = reached;
                common.queue.rewind(reached);
            }
            common.on_progress(conn, ctx.now);
            self.retries_left = conn.retry_count;
            if common.has_listeners {
                let news = std::mem::take(&mut common.news);
                common.tell(ctx.now, AckSample { packets: progress, in_flight: self.in_flight(), ..news });
            }
            common.deadline = if span == 0 { None } else { conn.ack_deadline(ctx.now) };
            common.retire(self, conn, ctx);
        }
        if lost_response && !common.failed {
            self.on_response_gap(common, conn, ctx);
        }
    }

    /// A READ response or the answer to an atomic (IBTA §9.7.5.1.3, §9.7.5.1.6).
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
        let base = self.first_unacknowledged;
        if psn.ahead_of(base) >= self.frontier.ahead_of(base) {
            ctx.counters.count(Counter::DroppedStale);
            return;
        }
        let unanswered = common
            .queue
            .wqes
            .iter()
            .position(|w| w.responses > 0 && w.received < w.responses && w.progress == Progress::Started);
        let Some(index) = unanswered else {
            ctx.counters.count(Counter::DroppedStale);
            return;
        };
        let wqe = &common.queue.wqes[index];
        let (expected, received) = (wqe.first.add(wqe.received), wqe.received);
        if psn != expected {
            if expected.is_before(psn) {
                // An earlier response was lost: everything before it has been executed all the same.
                self.advance(common, conn, ctx, expected);
                if !common.failed {
                    self.on_response_gap(common, conn, ctx);
                }
            } else {
                ctx.counters.count(Counter::Duplicates);
            }
            return;
        }
        let status = common.translate(conn, ctx, index).and_then(|()| {
            place_response(conn, &common.queue.wqes[index], received, headers, payload, memory)
        });
        if let Err(status) = status {
            self.advance(common, conn, ctx, expected);
            common.fail_front(self, conn, ctx, status);
            return;
        }
        common.queue.wqes[index].received += 1;
        self.response_gap = false;
        if let Ext::Aeth(aeth) | Ext::AtomicAck(aeth, _) = headers.ext
            && let Syndrome::Ack { credits } = aeth.syndrome
        {
            common.on_credits(conn, aeth.msn, credits);
        }
        self.advance(common, conn, ctx, psn.next());
    }

    /// Asks again for the responses that are missing, once per gap.
    fn on_response_gap(&mut self, common: &mut Common, conn: &Connection, ctx: &mut Context<'_>) {
        ctx.counters.count(Counter::OutOfSequence);
        if !self.response_gap {
            self.response_gap = true;
            common.note_loss(ctx.now, LossKind::Nack);
            self.retry(common, conn, ctx, self.first_unacknowledged);
        }
    }

    fn retry(&mut self, common: &mut Common, conn: &Connection, ctx: &mut Context<'_>, psn: Psn) {
        if !conn.transport.never_gives_up {
            if self.retries_left == 0 {
                common.fail_front(self, conn, ctx, CompletionStatus::RetryExceeded);
                return;
            }
            self.retries_left -= 1;
        }
        self.go_back(common, psn);
        common.deadline = conn.ack_deadline(ctx.now);
    }

    /// After an RNR NAK.
    pub(super) fn resume_after_rnr(&mut self, common: &mut Common, conn: &Connection, now: Instant) {
        self.go_back(common, self.first_unacknowledged);
        common.deadline = conn.ack_deadline(now);
    }

    /// No packet was lost and the responder did not fail to answer: it has not been running. That costs no retry, and gives none back: a
    /// peer that runs now and then and never answers is given up.
    pub(super) fn wait_on(common: &mut Common, conn: &Connection, now: Instant) {
        common.deadline = conn.ack_deadline(now);
    }

    /// Whether the next timeout is the last one.
    pub(super) fn gives_up(&self, conn: &Connection) -> bool {
        !conn.transport.never_gives_up && self.retries_left == 0 && self.frontier != self.first_unacknowledged
    }

    pub(super) fn handle_timeout(&mut self, common: &mut Common, conn: &Connection, ctx: &mut Context<'_>) {
        common.deadline = None;
        if self.frontier == self.first_unacknowledged {
            return;
        }
        ctx.counters.count(Counter::Timeouts);
        self.response_gap = false;
        common.note_loss(ctx.now, LossKind::Timeout);
        self.retry(common, conn, ctx, self.first_unacknowledged);
    }
}

/// Writes response number `packet` of a READ, or the result of an atomic, to where the request wants it.
///
/// # Errors
/// The response is not the one that the request calls for, or the memory for it has gone.
#[inline]
pub(super) fn place_response<P: Payload>(
    conn: &Connection,
    wqe: &crate::send_queue::SendWqe,
    packet: u32,
    headers: &Headers,
    payload: P,
    memory: &mut impl Memory<P>,
) -> Result<(), CompletionStatus> {
    if let Ext::AtomicAck(_, original) | Ext::IrnAtomicResponse(_, _, original) = headers.ext {
        if !wqe.operation.is_atomic() {
            return Err(CompletionStatus::BadResponse);
        }
        let [sge] = wqe.sges.as_slice() else { return Err(CompletionStatus::BadResponse) };
        let written = memory.write(sge.addr, &original.to_ne_bytes());
        return written.map_err(|_| CompletionStatus::LocalProtection);
    }
    let offset = packet * conn.mtu.bytes();
    let length = (wqe.length - offset.min(wqe.length)).min(conn.mtu.bytes());
    if wqe.operation.is_atomic() || payload.len() != length {
        return Err(CompletionStatus::BadResponse);
    }
    if length > 0 {
        scatter(memory, &wqe.sges, offset, payload).map_err(|_| CompletionStatus::LocalProtection)?;
    }
    Ok(())
}

/// The completion status of a NAK (IBTA §11.6.2).
pub(super) fn refusal(code: NakCode) -> CompletionStatus {
    match code {
        NakCode::InvalidRequest => CompletionStatus::RemoteInvalidRequest,
        NakCode::RemoteAccess => CompletionStatus::RemoteAccess,
        NakCode::RemoteOperational | NakCode::PsnSequence | NakCode::InvalidRd => {
            CompletionStatus::RemoteOperation
        }
    }
}
