//! A requester's state in either mode.

use super::check_post;
use super::round_trips::RoundTrips;
use crate::congestion::{AckSample, Congestion, Flight, LossKind, Pacer};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::{Plan, RIDING_ACK_BYTES};
use crate::send_queue::{SendQueue, SendWqe};
use highwire_stdx::Instant;
use highwire_verbs::{CompletionStatus, Operation, PostError, SendWr, Service};
use highwire_wire::Psn;

/// How a mode numbers packets, as far as the start and the end of a request depend on it.
pub(super) trait Numbers {
    /// The first PSN that was never given to a packet.
    fn frontier(&self) -> Psn;
    /// Packets sent and not acknowledged.
    fn in_flight(&self) -> u32;
    /// The first PSN that was not acknowledged.
    fn first_unacknowledged(&self) -> Psn;
    /// Whether no packet was ever sent.
    fn is_unused(&self) -> bool;
    /// Whether so many more packets may be in flight.
    fn has_room_for(&self, packets: u32) -> bool;
    /// Gives a starting request its PSNs, and those of its `packets` responses, if it wants any.
    fn number(&mut self, wqe: &mut SendWqe, packets: u32);
    /// Whether a request that was started has ended well.
    fn is_complete(&self, wqe: &SendWqe) -> bool;
    /// Whether packets are to be sent again.
    fn has_lost(&mut self) -> bool;
}

/// A requester's state in either mode, and for every service.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) queue: SendQueue,
    pub(super) ssn: u32,
    pub(super) recv_sn: u32,
    pub(super) read_sn: u32,
    pub(super) reads_in_flight: u32,
    /// The SSN up to which receives are promised; `None` while the responder gives no credits.
    pub(super) credit_limit: Option<u32>,
    rnr_retries_left: u8,
    pub(super) rnr_until: Option<Instant>,
    /// When to look for progress again.
    pub(super) deadline: Option<Instant>,
    pub(super) last_progress: Instant,
    /// Packets that were sent still wait for the peer to look at them.
    pub(super) is_unheard: bool,
    pub(super) unrequested_acks: u32,
    pub(super) held: bool,
    /// A request failed: nothing after it is started.
    pub(super) poisoned: bool,
    pub(super) congestion: Congestion,
    pub(super) round_trips: Option<Box<RoundTrips>>,
    /// The bytes in flight, for a control that limits bytes.
    pub(super) flight: Option<Box<Flight>>,
    /// The control chooses the way of each packet.
    pub(super) spreads: bool,
    /// The congestion control or the timeout wants to know of packets that leave and arrive.
    pub(super) has_listeners: bool,
    /// Every packet asks for an acknowledgement.
    pub(super) asks_always: bool,
    /// The sample of the acknowledgement at hand, if there are listeners.
    pub(super) news: AckSample,
    pub(super) pacer: Pacer,
    /// A packet waits for its turn until then.
    pub(super) paced_until: Option<Instant>,
    /// A packet to resend comes from the host's memory until then.
    pub(super) fetching_until: Option<Instant>,
    /// The queue pair is to go into error.
    pub(super) failed: bool,
    pub(super) drained_reported: bool,
}

/// How many packets a request has, or its answer.
pub(super) fn packets_of(conn: &Connection, wqe: &SendWqe) -> u32 {
    // A frame goes whole.
    if conn.config.service == Service::Raw {
        return 1;
    }
    conn.mtu.packets(if wqe.operation.is_atomic() { 8 } else { wqe.length })
}

impl Common {
    pub(super) fn new(conn: &Connection, sq_psn: Psn, is_irn: bool, now: Instant) -> Common {
        let mut common = Common {
            queue: SendQueue::default(),
            ssn: 0,
            recv_sn: 0,
            read_sn: 0,
            reads_in_flight: 0,
            credit_limit: None,
            rnr_retries_left: conn.rnr_retry,
            rnr_until: None,
            deadline: None,
            last_progress: now,
            is_unheard: false,
            unrequested_acks: 0,
            held: false,
            poisoned: false,
            congestion: conn.transport.congestion_control(conn.mtu, is_irn),
            round_trips: None,
            flight: None,
            spreads: false,
            has_listeners: false,
            asks_always: false,
            news: AckSample::default(),
            pacer: Pacer::new(conn.transport.pacing_burst),
            paced_until: None,
            fetching_until: None,
            failed: false,
            drained_reported: false,
        };
        common.set_listeners(conn, sq_psn, is_irn);
        common
    }

    #[inline]
    pub(super) fn post(&mut self, conn: &Connection, wr: &SendWr<'_>) -> Result<(), PostError> {
        check_post(conn, wr, self.queue.len())?;
        // Filled in place, see `SgeList::set`.
        self.queue.wqes.push_back(SendWqe::EMPTY);
        let Some(wqe) = self.queue.wqes.back_mut() else { return Err(PostError::QueueFull) };
        wqe.wr_id = wr.wr_id;
        wqe.operation = wr.operation;
        wqe.flags = wr.flags;
        wqe.sges.set(wr.sges);
        // A length that does not fit into 32 bits is too long for any service.
        wqe.length = u32::try_from(wqe.sges.total()).unwrap_or(u32::MAX);
        if wr.datagram.is_some() {
            wqe.datagram = wr.datagram;
        }
        Ok(())
    }

    /// Plans the next packet by `poll`, the mode's own way, if nothing holds it back.
    #[inline]
    pub(super) fn poll_transmit<N: Numbers>(
        &mut self,
        numbers: &mut N,
        conn: &Connection,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
        poll: impl FnOnce(&mut Common, &mut N, &mut Context<'_>, &mut Plan) -> bool,
    ) -> bool {
        if !conn.state.transmits() || self.held || self.failed {
            return false;
        }
        // Unreliable requests end when they have left; the driver has copied the last one by now.
        if !conn.config.service.is_reliable() || self.poisoned {
            self.retire(numbers, conn, ctx);
            if self.failed {
                return false;
            }
        }
        if self.is_waiting(ctx.now) {
            let is_paced = self.rnr_until.is_none() && self.has_packets(numbers);
            self.paced_until = is_paced.then(|| self.pacer.next_send());
            return false;
        }
        let planned = poll(self, numbers, ctx, plan);
        if self.poisoned {
            self.retire(numbers, conn, ctx);
        }
        if planned && self.has_listeners {
            let first = numbers.first_unacknowledged();
            self.note_departure(ctx.now, plan, first);
        }
        planned
    }

    /// Whether there is a packet to send, or to send again, if nothing holds it back.
    #[inline]
    pub(super) fn has_packets(&self, numbers: &mut impl Numbers) -> bool {
        !self.queue.is_exhausted() || numbers.has_lost()
    }

    /// Whether an RNR NAK or the pace holds the next packet back.
    #[inline]
    pub(super) fn is_waiting(&self, now: Instant) -> bool {
        self.rnr_until.is_some_and(|until| now < until)
            || self.congestion.rate().is_some() && !self.pacer.is_due(now)
    }

    /// Whether congestion control lets another packet be in flight.
    #[inline]
    pub(super) fn window_is_open(&mut self, first: Psn, next: Psn) -> bool {
        if !self.has_listeners {
            return true;
        }
        self.congestion.window().is_none_or(|window| next.ahead_of(first) < window)
            && self.flight.as_mut().is_none_or(|flight| {
                let limit = self.congestion.window_bytes();
                limit.is_none_or(|limit| flight.bytes_between(first, next) < limit)
            })
    }

    /// Whether the peer has not answered in time.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline) && self.rnr_until.is_none()
    }

    /// The next deadline; [`Instant::FAR_FUTURE`] for none.
    #[inline]
    pub(super) fn next_deadline(&self, conn: &Connection) -> Instant {
        if !conn.state.transmits() || self.held || self.failed {
            return Instant::FAR_FUTURE;
        }
        let or_never = |at: Option<Instant>| at.unwrap_or(Instant::FAR_FUTURE);
        // While an RNR NAK makes the queue wait, no acknowledgement is overdue.
        self.rnr_until
            .unwrap_or(or_never(self.deadline))
            .min(or_never(self.paced_until))
            .min(or_never(self.fetching_until))
            .min(or_never(self.congestion.next_timer()))
    }

    /// Whether the peer's last answer was that it has no receive.
    pub(super) fn lacks_receive(&self, conn: &Connection) -> bool {
        self.rnr_retries_left < conn.rnr_retry
    }

    pub(super) fn on_progress(&mut self, conn: &Connection, now: Instant) {
        self.rnr_retries_left = conn.rnr_retry;
        self.last_progress = now;
    }

    /// An RNR NAK for the oldest request: waits, or gives up. False if nothing has changed: the NAK came
    /// twice, or is for a packet that was in flight when the wait began.
    pub(super) fn on_rnr(
        &mut self,
        numbers: &impl Numbers,
        conn: &Connection,
        ctx: &mut Context<'_>,
        timer: u8,
    ) -> bool {
        ctx.counters.count(Counter::RnrReceived);
        if self.rnr_until.is_some() {
            return false;
        }
        self.last_progress = ctx.now;
        // Seven means for ever (IBTA §9.7.5.2.8); one less than that only says that the peer lacks a receive.
        if conn.rnr_retry < 7 && self.rnr_retries_left == 0 {
            self.fail_front(numbers, conn, ctx, CompletionStatus::RnrRetryExceeded);
            return true;
        }
        let least = if conn.rnr_retry < 7 { 0 } else { conn.rnr_retry - 1 };
        self.rnr_retries_left = self.rnr_retries_left.saturating_sub(1).max(least);
        self.rnr_until = Some(ctx.now + highwire_wire::rnr_delay(timer));
        true
    }

    #[inline]
    pub(super) fn on_credits(&mut self, conn: &Connection, msn: u32, code: u8) {
        if !conn.transport.credits {
            return;
        }
        let promised = highwire_wire::credit_count(code).map(|count| (msn + count) & 0x00FF_FFFF);
        // A responder does not take credits back: a smaller number was overtaken, or rounded down to its
        // code.
        if let (Some(promised), Some(limit)) = (promised, self.credit_limit)
            && Psn::new(promised).is_before(Psn::new(limit))
        {
            return;
        }
        self.credit_limit = promised;
    }

    /// Whether the request at the cursor may have to wait for an answer to this one.
    #[inline]
    pub(super) fn next_may_wait(&self, numbers: &impl Numbers, conn: &Connection) -> bool {
        self.queue.wqes.get(self.queue.cursor).is_none_or(|next| {
            next.flags.fence
                // It starts when its PSNs fit, and only an acknowledgement makes room for them.
                || !numbers.has_room_for(packets_of(conn, next))
                || next.operation.is_read_or_atomic()
                || next.operation.is_local()
                || next.operation.consumes_receive()
                    && self
                        .credit_limit
                        .is_some_and(|limit| Psn::new(self.ssn + 1).distance_from(Psn::new(limit)) >= 0)
        })
    }

    /// Whether one message of one packet, with room for an acknowledgement, is all that is left to send.
    #[inline]
    pub(super) fn is_about_to_send_one(&self, conn: &Connection) -> bool {
        let queue = &self.queue;
        let is_one = |wqe: &SendWqe| {
            matches!(wqe.operation, Operation::Send | Operation::Write(_))
                && wqe.length + RIDING_ACK_BYTES <= conn.mtu.bytes()
        };
        queue.cursor + 1 == queue.wqes.len() && queue.wqes.get(queue.cursor).is_some_and(is_one)
    }

    pub(super) fn note_loss(&mut self, now: Instant, kind: LossKind) {
        if let Some(control) = self.congestion.control() {
            control.on_loss(now, kind);
        }
    }
}
