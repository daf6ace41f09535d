//! Go-back-N, as RoCE NICs do it: standard RoCEv2 in both directions (IBTA §9.7.5, §9.7.6).
//!
//! READ responses use the requests' PSNs: a READ of n packets takes n of them, and an answer to it acknowledges
//! everything before. A gap, in acknowledgements or responses, sends the cursor back.

use super::Requester;
use super::table::{Action, Covers, action};
use crate::congestion::{AckSample, CongestionControl, LossKind};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::Plan;
use crate::send_queue::Progress;
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{CompletionStatus, Memory, Payload, scatter};
use highwire_wire::{Aeth, Ext, Headers, NakCode, Psn, Syndrome};

impl Requester {
    #[inline]
    pub(super) fn poll_standard(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) -> bool {
        let Some(index) = self.admit(conn, ctx) else { return false };
        self.send_standard(conn, ctx, index, plan)
    }

    #[inline]
    fn send_standard(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        index: usize,
        plan: &mut Plan,
    ) -> bool {
        let is_rc = conn.config.service.is_reliable();
        let in_flight = self.next_psn.ahead_of(self.first_unacknowledged);
        if is_rc && (in_flight >= conn.transport.go_back_n_window || !self.window_is_open(in_flight)) {
            return false;
        }
        let packet = self.queue.packet;
        let wqe = &self.queue.wqes[index];
        let is_read = wqe.responses > 0;
        if is_read && wqe.received == wqe.responses {
            // Its data is here; only its place in the order is not.
            self.next_psn = wqe.end();
            self.queue.step();
            return self.poll_standard(conn, ctx, plan);
        }
        let psn = if is_read { wqe.first.add(wqe.received) } else { wqe.first.add(packet) };
        self.standard_packet(conn, index, packet, psn, plan);
        let wqe = &mut self.queue.wqes[index];
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
            self.queue.step();
        } else {
            self.queue.packet += 1;
        }
        if is_rc {
            plan.headers.bth.ack_request = self.asks_for_ack(conn, ctx.now, is_last, is_read);
            if self.deadline.is_none() {
                self.deadline = conn.ack_deadline(ctx.now);
            }
        }
        true
    }

    /// At the end of a burst, and at times within it: enough for completions to flow and windows to move.
    #[inline]
    fn asks_for_ack(&mut self, conn: &Connection, now: Instant, is_last: bool, is_read: bool) -> bool {
        self.unrequested_acks += 1;
        let in_flight = self.next_psn.ahead_of(self.first_unacknowledged);
        let asks = is_last && (self.queue.is_exhausted() || is_read || self.next_may_wait())
            || self.unrequested_acks >= conn.transport.ack_interval
            || in_flight >= conn.transport.go_back_n_window
            || self.asks_always
            // A slow pace must not make the timer run out before the first question.
            || conn.ack_timeout().is_some_and(|timeout| now >= self.asked_at + Duration::from_nanos(timeout.as_nanos() / 4));
        if asks {
            self.unrequested_acks = 0;
            self.asked_at = now;
        }
        asks
    }

    /// Whether the request at the cursor may have to wait for an answer to this one.
    #[inline]
    pub(super) fn next_may_wait(&self) -> bool {
        self.queue.wqes.get(self.queue.cursor).is_none_or(|next| {
            next.flags.fence
                || next.operation.is_read_or_atomic()
                || next.operation.is_local()
                || next.operation.consumes_receive()
                    && self
                        .credit_limit
                        .is_some_and(|limit| Psn::new(self.ssn + 1).distance_from(Psn::new(limit)) >= 0)
        })
    }

    /// Transmits again from `psn` on.
    pub(super) fn go_back(&mut self, psn: Psn) {
        if psn.ahead_of(self.first_unacknowledged) > self.next_psn.ahead_of(self.first_unacknowledged) {
            return;
        }
        self.next_psn = psn;
        self.queue.rewind(psn);
        self.unrequested_acks = 0;
    }

    /// An ACK or NAK (IBTA §9.7.5.2).
    #[inline]
    pub(crate) fn on_ack(&mut self, conn: &Connection, ctx: &mut Context<'_>, psn: Psn, aeth: Aeth) {
        // A positive acknowledgement covers its own PSN, a negative one what is before it.
        let upto = if matches!(aeth.syndrome, Syndrome::Ack { .. }) { psn.next() } else { psn };
        let covered = upto.ahead_of(self.first_unacknowledged);
        let covers = Covers::of(covered, self.frontier.ahead_of(self.first_unacknowledged));
        let action = action(covers, aeth.syndrome.into());
        if action == Action::Ignore {
            ctx.counters.count(Counter::DroppedStale);
            return;
        }
        if let Syndrome::Ack { credits } = aeth.syndrome {
            self.on_credits(conn, aeth.msn, credits);
            if action == Action::Advance && covered > 0 {
                if self.has_listeners {
                    self.news = self.sample(ctx.now, Some(psn));
                }
                self.advance(conn, ctx, upto);
            }
            return;
        }
        self.advance(conn, ctx, upto);
        if self.failed || upto != self.first_unacknowledged {
            return;
        }
        match aeth.syndrome {
            Syndrome::Rnr { timer } => {
                self.on_rnr(conn, ctx, timer);
                if !self.failed {
                    self.go_back(upto);
                }
            }
            Syndrome::Nak(code) => {
                ctx.counters.count(Counter::NaksReceived);
                if action == Action::GoBack {
                    self.note_loss(ctx.now, LossKind::Nack);
                    self.retry(conn, ctx, upto);
                } else {
                    self.fail_front(conn, ctx, refusal(code));
                }
            }
            Syndrome::Ack { .. } => unreachable!("handled above"),
        }
    }

    /// Everything before `upto` has arrived, unless a READ among it still lacks its answer.
    fn advance(&mut self, conn: &Connection, ctx: &mut Context<'_>, upto: Psn) {
        let mut reached = upto;
        let mut lost_response = false;
        if self.reads_in_flight > 0 {
            let base = self.first_unacknowledged;
            let unanswered = self
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
            // The cursor may stand behind what was acknowledged, if an ACK of the first transmission came late.
            let span = self.frontier.ahead_of(reached);
            if self.next_psn.ahead_of(reached) > span {
                self.next_psn = reached;
                self.queue.rewind(reached);
            }
            self.on_progress(conn, ctx.now);
            if self.has_listeners {
                let news = std::mem::take(&mut self.news);
                self.congestion.on_ack(ctx.now, AckSample { packets: progress, ..news });
            }
            self.deadline = if span == 0 { None } else { conn.ack_deadline(ctx.now) };
            self.retire(conn, ctx);
        }
        if lost_response && !self.failed {
            self.on_response_gap(conn, ctx);
        }
    }

    /// A READ response or the answer to an atomic (IBTA §9.7.5.1.3, §9.7.5.1.6).
    #[inline]
    pub(crate) fn on_response<P: Payload>(
        &mut self,
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
        let unanswered = self
            .queue
            .wqes
            .iter()
            .position(|w| w.responses > 0 && w.received < w.responses && w.progress == Progress::Started);
        let Some(index) = unanswered else {
            ctx.counters.count(Counter::DroppedStale);
            return;
        };
        let wqe = &self.queue.wqes[index];
        let (expected, received) = (wqe.first.add(wqe.received), wqe.received);
        if psn != expected {
            if expected.is_before(psn) {
                // An earlier response was lost: everything before it has been executed all the same.
                self.advance(conn, ctx, expected);
                if !self.failed {
                    self.on_response_gap(conn, ctx);
                }
            } else {
                ctx.counters.count(Counter::Duplicates);
            }
            return;
        }
        let status = self
            .translate(conn, ctx, index)
            .and_then(|()| place_response(conn, &self.queue.wqes[index], received, headers, payload, memory));
        if let Err(status) = status {
            self.advance(conn, ctx, expected);
            self.fail_front(conn, ctx, status);
            return;
        }
        self.queue.wqes[index].received += 1;
        self.response_gap = false;
        if let Ext::Aeth(aeth) | Ext::AtomicAck(aeth, _) = headers.ext
            && let Syndrome::Ack { credits } = aeth.syndrome
        {
            self.on_credits(conn, aeth.msn, credits);
        }
        self.advance(conn, ctx, psn.next());
    }

    /// Asks again for the responses that are missing, once per gap.
    fn on_response_gap(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        ctx.counters.count(Counter::OutOfSequence);
        if !self.response_gap {
            self.response_gap = true;
            self.note_loss(ctx.now, LossKind::Nack);
            self.retry(conn, ctx, self.first_unacknowledged);
        }
    }

    fn retry(&mut self, conn: &Connection, ctx: &mut Context<'_>, psn: Psn) {
        if !conn.transport.never_gives_up {
            if self.retries_left == 0 {
                self.fail_front(conn, ctx, CompletionStatus::RetryExceeded);
                return;
            }
            self.retries_left -= 1;
        }
        self.go_back(psn);
        self.deadline = conn.ack_deadline(ctx.now);
    }

    /// Whether the next timeout is the last one.
    pub(super) fn gives_up_standard(&self, conn: &Connection) -> bool {
        !conn.transport.never_gives_up && self.retries_left == 0 && self.frontier != self.first_unacknowledged
    }

    pub(super) fn timeout_standard(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        self.deadline = None;
        if self.frontier == self.first_unacknowledged {
            return;
        }
        ctx.counters.count(Counter::Timeouts);
        self.response_gap = false;
        self.note_loss(ctx.now, LossKind::Timeout);
        self.retry(conn, ctx, self.first_unacknowledged);
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

/// The status that tells a refusal (IBTA §11.6.2).
pub(super) fn refusal(code: NakCode) -> CompletionStatus {
    match code {
        NakCode::InvalidRequest => CompletionStatus::RemoteInvalidRequest,
        NakCode::RemoteAccess => CompletionStatus::RemoteAccess,
        NakCode::RemoteOperational | NakCode::PsnSequence | NakCode::InvalidRd => {
            CompletionStatus::RemoteOperation
        }
    }
}
