//! The half of a queue pair that asks: it sends requests, finds losses, and completes what was posted.
//!
//! Requests start in order: a request gets its PSNs when its first packet may leave. How losses are found and repaired
//! is the business of two small modules, `standard` (go-back-N, as RoCE NICs do) and `irn`; building packets is that of
//! `packets`.
//!
//! Invariant: completions leave in the order in which requests were posted.

mod irn;
mod packets;
mod requests;
mod round_trips;
mod standard;

use crate::congestion::{AckSample, Congestion, CongestionControl, LossKind, Pacer};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::Plan;
use crate::send_queue::{Progress, SendQueue, SendWqe};
use highwire_stdx::Instant;
use highwire_verbs::{CompletionStatus, Operation, PostError, QpState, Recovery, SendWr, Service};
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

/// Whether a request may start now.
enum Gate {
    Open,
    Wait,
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

    /// The request whose next packet may be built: the one at the cursor, started if it was not. Requests that never leave
    /// this side are carried out on the way.
    #[inline]
    fn admit(&mut self, conn: &Connection, ctx: &mut Context<'_>) -> Option<usize> {
        loop {
            let index = self.queue.cursor;
            let wqe = self.queue.wqes.get(index)?;
            match wqe.progress {
                Progress::Done(CompletionStatus::Success) => self.queue.step(),
                Progress::Done(_) => return None,
                Progress::Waiting if wqe.operation.is_local() => {
                    if !self.run_local(conn, ctx) {
                        return None;
                    }
                }
                Progress::Waiting => {
                    return match self.start(conn, ctx) {
                        Gate::Open => Some(index),
                        Gate::Wait => None,
                    };
                }
                Progress::Started => return self.is_still_permitted(conn, ctx, index).then_some(index),
            }
        }
    }

    /// The memory of a request is not what its keys permit any more. It ends so when those before it have ended.
    fn lose_memory(&mut self, index: usize) {
        if let Some(wqe) = self.queue.wqes.get_mut(index) {
            wqe.progress = Progress::Done(CompletionStatus::LocalProtection);
            self.poisoned = true;
        }
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

    /// Whether a request that was started may still read or write its memory; if not, it has failed.
    #[inline]
    fn is_still_permitted(&mut self, conn: &Connection, ctx: &Context<'_>, index: usize) -> bool {
        if self.queue.wqes[index].operation.is_read_or_atomic() {
            return true;
        }
        let Err(status) = self.translate(conn, ctx, index) else { return true };
        self.queue.wqes[index].progress = Progress::Done(status);
        self.poisoned = true;
        false
    }

    /// Starts the request at the cursor: checks its memory and gives it its numbers.
    fn start(&mut self, conn: &Connection, ctx: &mut Context<'_>) -> Gate {
        if self.poisoned || conn.state == QpState::Sqd {
            return Gate::Wait;
        }
        let next = self.next_psn();
        let wqe = &self.queue.wqes[self.queue.cursor];
        let needs_answer = wqe.operation.is_read_or_atomic();
        let limited = wqe.operation.consumes_receive()
            && self.credit_limit.is_some_and(|limit| {
                // One request beyond the limit may go, to find out (IBTA §9.7.7.2.5).
                Psn::new(self.ssn + 1).distance_from(Psn::new(limit)) > 1
            });
        // A READ's data is taken when its answer leaves, an atomic is executed when it arrives; a READ must not see an
        // atomic that was posted after it (IBTA §10.8.3.3).
        let overtakes = wqe.operation.is_atomic() && self.reads_in_flight > 0 && self.awaits_read();
        if wqe.flags.fence && self.reads_in_flight > 0
            || overtakes
            || needs_answer && self.reads_in_flight >= conn.max_rd_atomic
            || limited
        {
            return Gate::Wait;
        }
        if let Err(status) = check_start(conn, &wqe.operation, wqe.sges.as_slice(), wqe.length) {
            let index = self.queue.cursor;
            self.queue.wqes[index].progress = Progress::Done(status);
            self.poisoned = true;
            return Gate::Wait;
        }
        let length = if wqe.operation.is_atomic() { 8 } else { wqe.length };
        // A frame goes whole.
        let packets = if conn.config.service == Service::Raw { 1 } else { conn.mtu.packets(length) };
        if self.irn.is_none() && self.in_flight() + packets > PSN_SPAN_MAX && self.in_flight() > 0 {
            return Gate::Wait;
        }
        let index = self.queue.cursor;
        let permitted = match self.translate(conn, ctx, index) {
            // Where an answer is to go is looked at when it is here, as cards do: what the responder has to say against the
            // request comes first, and an atomic has been executed then.
            Err(_) if needs_answer => Ok(()),
            permitted => permitted,
        };
        if let Err(status) = permitted {
            self.queue.wqes[index].progress = Progress::Done(status);
            self.poisoned = true;
            return Gate::Wait;
        }
        let (ssn, recv_sn, read_sn) = (self.ssn + 1, self.recv_sn, self.read_sn);
        self.ssn = ssn & 0x00FF_FFFF;
        let wqe = &mut self.queue.wqes[index];
        wqe.progress = Progress::Started;
        wqe.ssn = self.ssn;
        wqe.first = next;
        wqe.packets = if needs_answer { 1 } else { packets };
        wqe.responses = if needs_answer { packets } else { 0 };
        wqe.psns = if self.irn.is_some() || !needs_answer { wqe.packets } else { packets };
        if needs_answer {
            wqe.wqe_sn = read_sn;
            self.read_sn = (read_sn + 1) & 0x00FF_FFFF;
            self.reads_in_flight += 1;
            if let Some(irn) = &mut self.irn {
                wqe.response_first = irn.reserve_responses(packets);
            }
        } else if wqe.operation.consumes_receive() {
            wqe.wqe_sn = recv_sn;
            self.recv_sn = (recv_sn + 1) & 0x00FF_FFFF;
        }
        Gate::Open
    }

    /// Whether a READ that was sent lacks its answer.
    fn awaits_read(&self) -> bool {
        self.queue
            .wqes
            .iter()
            .take(self.queue.cursor)
            .any(|wqe| matches!(wqe.operation, Operation::Read(_)) && self.outcome(wqe).is_none())
    }

    /// How many receives are promised and not used; `None` while the responder gives no credits.
    #[inline]
    fn credits_left(&self) -> Option<u32> {
        self.credit_limit.map(|limit| Psn::new(limit).distance_from(Psn::new(self.ssn)).max(0) as u32)
    }

    /// Turns local keys into addresses, once; later calls only check that the keys still live.
    fn translate(
        &mut self,
        conn: &Connection,
        ctx: &Context<'_>,
        index: usize,
    ) -> Result<(), CompletionStatus> {
        let wqe = &mut self.queue.wqes[index];
        let generation = ctx.regions.generation();
        if wqe.flags.inline || wqe.checked == generation {
            return Ok(());
        }
        if wqe.checked != 0 {
            let alive =
                wqe.sges.as_slice().iter().all(|s| s.length == 0 || ctx.regions.region(s.lkey).is_some());
            if !alive {
                return Err(CompletionStatus::LocalProtection);
            }
            wqe.checked = generation;
            return Ok(());
        }
        let write = wqe.operation.is_read_or_atomic();
        for sge in wqe.sges.as_mut_slice() {
            // An empty element needs no key: there is nothing to protect.
            if sge.length > 0 {
                sge.addr = ctx
                    .regions
                    .check_local(conn.config.pd, sge.lkey, sge.addr, sge.length, write)
                    .map_err(|_| CompletionStatus::LocalProtection)?;
            }
        }
        wqe.checked = generation;
        Ok(())
    }

    /// Carries out a request that never leaves this side; false while it has to wait, or if it failed.
    fn run_local(&mut self, conn: &Connection, ctx: &mut Context<'_>) -> bool {
        // Keys change only when nothing that was posted before can still use them.
        if self.queue.cursor > 0 || self.poisoned || conn.state == QpState::Sqd {
            return false;
        }
        let wqe = &mut self.queue.wqes[0];
        let status = match wqe.operation {
            Operation::LocalInvalidate(key) => match ctx.regions.invalidate(conn.config.pd, conn.qpn, key) {
                Ok(()) => CompletionStatus::Success,
                Err(_) => CompletionStatus::LocalProtection,
            },
            Operation::BindWindow(bind) => match ctx.regions.bind(conn.config.pd, conn.qpn, &bind) {
                Ok(()) => CompletionStatus::Success,
                Err(_) => CompletionStatus::WindowBind,
            },
            _ => unreachable!("only local operations come here"),
        };
        wqe.progress = Progress::Done(status);
        self.queue.step();
        self.retire(conn, ctx);
        !self.failed
    }

    /// Whether a request has ended, going by what was acknowledged.
    #[inline]
    fn outcome(&self, wqe: &SendWqe) -> Option<CompletionStatus> {
        match wqe.progress {
            Progress::Done(status) => Some(status),
            Progress::Waiting => None,
            Progress::Started => {
                let acknowledged = match &self.irn {
                    Some(irn) => irn.is_complete(wqe),
                    None if wqe.responses > 0 => wqe.received == wqe.responses,
                    None => wqe.end().ahead_of(self.first_unacknowledged).wrapping_sub(1) >= PSN_SPAN_MAX,
                };
                acknowledged.then_some(CompletionStatus::Success)
            }
        }
    }

    /// Completes what has ended, from the oldest on.
    #[inline]
    fn retire(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        while let Some(status) = self.queue.wqes.front().and_then(|wqe| self.outcome(wqe)) {
            let Some(wqe) = self.queue.pop() else { return };
            if wqe.responses > 0 && wqe.is_started() && wqe.psns > 0 {
                self.reads_in_flight -= 1;
            }
            complete(conn, ctx, &wqe, status);
            if status != CompletionStatus::Success {
                self.failed = true;
                return;
            }
        }
    }

    /// The oldest request ends in error, and with it the connection.
    fn fail_front(&mut self, conn: &Connection, ctx: &mut Context<'_>, status: CompletionStatus) {
        if let Some(wqe) = self.queue.wqes.front_mut() {
            wqe.progress = Progress::Done(status);
            self.retire(conn, ctx);
        }
        self.failed = true;
    }

    /// Gives every request back.
    pub(crate) fn flush(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        for wqe in std::mem::take(&mut self.queue).wqes {
            complete(conn, ctx, &wqe, CompletionStatus::Flushed);
        }
        self.reads_in_flight = 0;
        self.deadline = None;
        self.rnr_until = None;
    }

    /// Reports, once per visit to SQD, that everything that was started has ended (IBTA §10.3.1.5).
    pub(crate) fn report_drained(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        let started = self.queue.wqes.front().is_some_and(SendWqe::is_started);
        if conn.state != QpState::Sqd {
            self.drained_reported = false;
        } else if !started && !self.drained_reported {
            self.drained_reported = true;
            if !conn.notify_drained {
                return;
            }
            ctx.events.push_back(highwire_verbs::AsyncEvent::SendQueueDrained(conn.qpn));
        }
    }

    fn note_loss(&mut self, now: Instant, kind: LossKind) {
        self.congestion.on_loss(now, kind);
    }
}
