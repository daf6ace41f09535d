//! The half of a queue pair that asks: it sends requests, finds losses, and completes what was posted.
//!
//! Requests start in order: a request gets its PSNs when its first packet may leave. How losses are found and repaired
//! is the business of two small modules, `standard` (go-back-N, as RoCE NICs do) and `irn`; building packets is that of
//! `packets`.
//!
//! Invariant: completions leave in the order in which requests were posted.

mod datagram;
mod ending;
mod irn;
mod packets;
mod requests;
mod round_trips;
mod standard;
mod starting;
pub mod table;

use crate::congestion::{AckSample, Congestion, CongestionControl, LossKind, Pacer};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::Plan;
use crate::send_queue::{SendQueue, SendWqe};
use highwire_stdx::Instant;
use highwire_verbs::{CompletionStatus, PostError, Recovery, SendWr, Service};
use highwire_wire::Psn;
pub(crate) use irn::IrnRequester;
pub(crate) use packets::position;
pub(crate) use requests::{check_post, check_start, complete, ended};
use round_trips::RoundTrips;

/// The widest span of PSNs that may be in flight: half of all (IBTA §9.7.2).
const PSN_SPAN_MAX: u32 = 1 << 23;

/// What a packet's Ethernet, IP, UDP and transport headers and checksums add to its payload, about, for pacing.
const FRAME_OVERHEAD: u32 = 62;

/// The requester of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Requester {
    pub(crate) queue: SendQueue,
    /// The next PSN to transmit; goes back with the cursor.
    next_psn: Psn,
    /// The first PSN that was never sent.
    frontier: Psn,
    first_unacknowledged: Psn,
    ssn: u32,
    recv_sn: u32,
    read_sn: u32,
    reads_in_flight: u32,
    /// The SSN up to which receives are promised; `None` while the responder gives no credits.
    credit_limit: Option<u32>,
    retries_left: u8,
    rnr_retries_left: u8,
    rnr_until: Option<Instant>,
    /// When to look for progress again.
    deadline: Option<Instant>,
    last_progress: Instant,
    /// IRN: timeouts since then. A host that did not run for a while has only waited once.
    stalls: u32,
    /// What was sent still lies before the peer, which has not come to look at it.
    pub(crate) is_unheard: bool,
    unrequested_acks: u32,
    /// When an acknowledgement was last asked for.
    asked_at: Instant,
    /// A gap in READ responses was noticed, and the READ sent again.
    response_gap: bool,
    irn: Option<Box<IrnRequester>>,
    pub(crate) held: bool,
    /// A request failed: nothing after it is started.
    poisoned: bool,
    congestion: Congestion,
    round_trips: Option<Box<RoundTrips>>,
    /// Somebody wants to know what leaves and what arrives.
    has_listeners: bool,
    /// Every packet asks for an acknowledgement.
    asks_always: bool,
    /// IRN: packets have been leaving since the window last had room for a train.
    is_in_train: bool,
    /// What the acknowledgement at hand tells, if there are listeners.
    news: AckSample,
    pacer: Pacer,
    /// A packet waits for its turn until then.
    paced_until: Option<Instant>,
    /// The queue pair is to go into error.
    pub(crate) failed: bool,
    drained_reported: bool,
}

impl Requester {
    pub(crate) fn new(conn: &Connection, sq_psn: Psn, recovery: Recovery, now: Instant) -> Requester {
        let irn = (recovery == Recovery::Irn && conn.config.service == Service::Rc)
            .then(|| Box::new(IrnRequester::new(sq_psn, &conn.transport.irn)));
        let congestion = conn.transport.congestion_control(irn.is_some());
        let mut requester = Requester {
            queue: SendQueue::default(),
            next_psn: sq_psn,
            frontier: sq_psn,
            first_unacknowledged: sq_psn,
            ssn: 0,
            recv_sn: 0,
            read_sn: 0,
            reads_in_flight: 0,
            credit_limit: None,
            retries_left: conn.retry_count,
            rnr_retries_left: conn.rnr_retry,
            rnr_until: None,
            deadline: None,
            last_progress: now,
            stalls: 0,
            is_unheard: false,
            unrequested_acks: 0,
            asked_at: now,
            response_gap: false,
            irn,
            held: false,
            poisoned: false,
            congestion,
            round_trips: None,
            has_listeners: false,
            asks_always: false,
            is_in_train: false,
            news: AckSample::default(),
            pacer: Pacer::new(conn.transport.pacing_burst),
            paced_until: None,
            failed: false,
            drained_reported: false,
        };
        requester.set_listeners(conn);
        requester
    }

    /// Takes the attributes that a change of state set, keeping what is queued.
    pub(crate) fn restart(&mut self, conn: &Connection, sq_psn: Psn, recovery: Recovery, now: Instant) {
        let (queue, held) = (std::mem::take(&mut self.queue), self.held);
        *self = Requester { queue, held, ..Requester::new(conn, sq_psn, recovery, now) };
    }

    /// Chooses another loss recovery, as long as nothing was sent.
    pub(crate) fn set_recovery(&mut self, conn: &Connection, recovery: Recovery, now: Instant) -> bool {
        let unsent =
            self.frontier == self.first_unacknowledged && !self.queue.wqes.iter().any(SendWqe::is_started);
        let is_irn = self.irn.is_some();
        if unsent && is_irn != (recovery == Recovery::Irn) {
            self.restart(conn, self.frontier, recovery, now);
        }
        unsent || is_irn == (recovery == Recovery::Irn)
    }

    pub(crate) fn is_irn(&self) -> bool {
        self.irn.is_some()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.wqes.is_empty() && !self.held
    }

    /// Packets sent and not acknowledged.
    pub(crate) fn in_flight(&self) -> u32 {
        match &self.irn {
            Some(irn) => irn.window.in_flight(),
            None => self.next_psn.ahead_of(self.first_unacknowledged),
        }
    }

    pub(crate) fn next_psn(&self) -> Psn {
        match &self.irn {
            Some(irn) => irn.window.next_to_send(),
            None => self.frontier,
        }
    }

    #[inline]
    pub(crate) fn post(&mut self, conn: &Connection, wr: &SendWr<'_>) -> Result<(), PostError> {
        check_post(conn, wr, self.queue.len())?;
        // Filled in place, see `SgeList::set`.
        self.queue.wqes.push_back(SendWqe::EMPTY);
        let Some(wqe) = self.queue.wqes.back_mut() else { return Err(PostError::QueueFull) };
        wqe.wr_id = wr.wr_id;
        wqe.operation = wr.operation;
        wqe.flags = wr.flags;
        wqe.sges.set(wr.sges);
        // What does not fit is too long for any service.
        wqe.length = u32::try_from(wqe.sges.total()).unwrap_or(u32::MAX);
        if wr.datagram.is_some() {
            wqe.datagram = wr.datagram;
        }
        Ok(())
    }

    /// Plans the next packet of this half, if one may leave now.
    #[inline]
    pub(crate) fn poll_transmit(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) -> bool {
        if !conn.state.transmits() || self.held || self.failed {
            return false;
        }
        // Unreliable requests end when they have left; the driver has copied the last one by now.
        if !conn.config.service.is_reliable() || self.poisoned {
            self.retire(conn, ctx);
            if self.failed {
                return false;
            }
        }
        if self.is_waiting(ctx.now) {
            let is_paced = self.rnr_until.is_none() && self.has_packets();
            self.paced_until = is_paced.then(|| self.pacer.next_send());
            return false;
        }
        let planned = match self.irn {
            Some(_) => self.poll_irn(conn, ctx, plan),
            None => self.poll_standard(conn, ctx, plan),
        };
        if self.poisoned {
            self.retire(conn, ctx);
        }
        if !conn.config.service.is_reliable() {
            // Nobody acknowledges: what has left is over.
            self.first_unacknowledged = self.next_psn;
        }
        if planned && self.has_listeners {
            self.note_departure(plan.headers.bth.psn, ctx.now, plan.length + FRAME_OVERHEAD);
        }
        planned
    }

    /// Whether [`Self::poll_transmit`] could give something now; may say yes in vain.
    #[inline]
    pub(crate) fn wants_transmit(&mut self, conn: &Connection, now: Instant) -> bool {
        if !conn.state.transmits() || self.held || self.failed {
            return false;
        }
        if self.is_waiting(now) {
            // One more call notes until when the pace holds it back.
            return self.rnr_until.is_none() && self.paced_until.is_none() && self.has_packets();
        }
        self.has_packets()
    }

    /// Whether there is a packet to send, or to send again, if nothing holds it back.
    #[inline]
    fn has_packets(&mut self) -> bool {
        !self.queue.is_exhausted()
            || self.irn.as_mut().is_some_and(|irn| irn.window.peek_retransmit().is_some())
    }

    /// Whether an RNR NAK or the pace holds the next packet back.
    #[inline]
    fn is_waiting(&self, now: Instant) -> bool {
        self.rnr_until.is_some_and(|until| now < until)
            || self.congestion.rate().is_some() && !self.pacer.is_due(now)
    }

    /// Whether congestion control lets another packet be in flight.
    #[inline]
    fn window_is_open(&self, in_flight: u32) -> bool {
        self.congestion.window().is_none_or(|window| in_flight < window)
    }

    /// When something is to be done, at the latest; [`Instant::FAR_FUTURE`] for never.
    #[inline]
    pub(crate) fn next_deadline(&self, conn: &Connection) -> Instant {
        if !conn.state.transmits() || self.held || self.failed {
            return Instant::FAR_FUTURE;
        }
        let or_never = |at: Option<Instant>| at.unwrap_or(Instant::FAR_FUTURE);
        // While an RNR NAK makes the queue wait, nobody is late.
        self.rnr_until
            .unwrap_or(or_never(self.deadline))
            .min(or_never(self.paced_until))
            .min(or_never(self.congestion.next_timer()))
    }

    pub(crate) fn handle_timeout(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        if !conn.state.transmits() || self.failed {
            return;
        }
        self.congestion.on_timer(ctx.now);
        if self.paced_until.is_some_and(|until| ctx.now >= until) {
            self.paced_until = None;
        }
        if self.rnr_until.is_some_and(|until| ctx.now >= until) {
            self.rnr_until = None;
            self.resume_after_rnr(conn, ctx);
            return;
        }
        if self.deadline.is_some_and(|deadline| ctx.now >= deadline) && self.rnr_until.is_none() {
            if self.is_unheard {
                return self.wait_on(conn, ctx.now);
            }
            match self.irn {
                Some(_) => self.timeout_irn(conn, ctx),
                None => self.timeout_standard(conn, ctx),
            }
        }
    }

    /// Whether a timer that is due at `now` makes it give up, if the peer has not answered by then.
    pub(crate) fn gives_up(&self, conn: &Connection, now: Instant) -> bool {
        let is_due = self.deadline.is_some_and(|deadline| now >= deadline) && self.rnr_until.is_none();
        is_due
            && conn.state.transmits()
            && match self.irn {
                Some(_) => self.gives_up_irn(conn, now),
                None => self.gives_up_standard(conn),
            }
    }

    pub(crate) fn handle_cnp(&mut self, ctx: &mut Context<'_>) {
        ctx.counters.count(Counter::CnpsReceived);
        self.congestion.on_cnp(ctx.now);
    }

    fn resume_after_rnr(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        if let Some(irn) = &mut self.irn {
            irn.resend_front();
            self.arm_irn(conn, ctx.now, true);
        } else {
            self.go_back(self.first_unacknowledged);
            self.deadline = conn.ack_deadline(ctx.now);
        }
    }

    fn on_progress(&mut self, conn: &Connection, now: Instant) {
        self.retries_left = conn.retry_count;
        self.rnr_retries_left = conn.rnr_retry;
        self.last_progress = now;
        self.stalls = 0;
    }

    /// An RNR NAK for the oldest request: waits, or gives up.
    fn on_rnr(&mut self, conn: &Connection, ctx: &mut Context<'_>, timer: u8) {
        ctx.counters.count(Counter::RnrReceived);
        // The same one twice, or for a packet that was under way when the wait began.
        if self.rnr_until.is_some() {
            return;
        }
        self.last_progress = ctx.now;
        self.stalls = 0;
        // Seven means for ever (IBTA §9.7.5.2.8).
        if conn.rnr_retry < 7 {
            if self.rnr_retries_left == 0 {
                self.fail_front(conn, ctx, CompletionStatus::RnrRetryExceeded);
                return;
            }
            self.rnr_retries_left -= 1;
        }
        self.rnr_until = Some(ctx.now + highwire_wire::rnr_delay(timer));
    }

    fn on_credits(&mut self, conn: &Connection, msn: u32, code: u8) {
        if !conn.transport.credits {
            return;
        }
        let promised = highwire_wire::credit_count(code).map(|count| (msn + count) & 0x00FF_FFFF);
        // A promise is not taken back: one that is smaller was overtaken, or rounded down to its code.
        if let (Some(promised), Some(limit)) = (promised, self.credit_limit)
            && Psn::new(promised).is_before(Psn::new(limit))
        {
            return;
        }
        self.credit_limit = promised;
    }

    /// The packet that was planned last could not be read from the request's memory.
    pub(crate) fn fail_transmit(&mut self, conn: &Connection, ctx: &mut Context<'_>, index: u32) {
        self.lose_memory(index as usize);
        self.retire(conn, ctx);
    }

    /// Nothing is lost and nobody has refused to answer: the peer has not been running. Its time begins anew.
    fn wait_on(&mut self, conn: &Connection, now: Instant) {
        let step = if self.irn.is_some() { Some(conn.transport.irn.rto_high) } else { conn.ack_timeout() };
        self.deadline = step.map(|step| now + step);
        self.last_progress = now;
        self.stalls = 0;
        self.retries_left = conn.retry_count;
    }

    fn note_loss(&mut self, now: Instant, kind: LossKind) {
        self.congestion.on_loss(now, kind);
    }
}
