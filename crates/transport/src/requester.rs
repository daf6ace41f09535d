//! The half of a queue pair that sends requests, finds losses, and completes send requests.
//!
//! Requests start in order: a request gets its PSNs when its first packet may leave. A requester is in one of two modes, which find and
//! repair losses each in its own way and number packets each in its own way ([`Numbers`]): [`standard`] is go-back-N, as RoCE NICs
//! have it, and [`irn`] resends only what was lost. Both share [`common`] and the files beside it; `packets`
//! builds packets.
//!
//! Invariant: completions leave in the order in which requests were posted.

mod common;
mod datagram;
mod ending;
mod irn;
mod listeners;
mod packets;
mod requests;
mod round_trips;
mod standard;
mod starting;
pub mod table;

use crate::congestion::Hop;
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::Plan;
use crate::send_queue::SendQueue;
use common::{Common, Numbers};
use highwire_stdx::Instant;
use highwire_verbs::{Memory, Payload, PostError, Recovery, SendWr, Service};
use highwire_wire::{Aeth, Headers, Psn, SackEth};
use irn::Irn;
pub(crate) use packets::position;
pub(crate) use requests::{check_post, check_start, complete, ended};
use standard::Standard;

/// The approximate bytes of a packet's Ethernet, IP, UDP and transport headers and checksums, for pacing.
pub(crate) const FRAME_OVERHEAD: u32 = 62;

/// The requester of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Requester {
    common: Common,
    mode: Mode,
}

/// How requests are numbered, and how losses are found and repaired.
#[derive(Clone, Debug)]
enum Mode {
    Standard(Standard),
    Irn(Box<Irn>),
}

impl Mode {
    fn numbers(&self) -> &dyn Numbers {
        match self {
            Mode::Standard(standard) => standard,
            Mode::Irn(irn) => &**irn,
        }
    }
}

/// Runs `$body` with `$common` and the present mode as `$mode`.
macro_rules! in_mode {
    ($requester:expr, |$common:ident, $mode:ident| $body:expr) => {{
        let Requester { common: $common, mode } = $requester;
        match mode {
            Mode::Standard($mode) => $body,
            Mode::Irn($mode) => {
                let $mode = &mut **$mode;
                $body
            }
        }
    }};
}

impl Requester {
    pub(crate) fn new(conn: &Connection, sq_psn: Psn, recovery: Recovery, now: Instant) -> Requester {
        let is_irn = recovery == Recovery::Irn && conn.config.service == Service::Rc;
        let mode = match is_irn {
            true => Mode::Irn(Box::new(Irn::new(sq_psn, &conn.transport.irn))),
            false => Mode::Standard(Standard::new(conn, sq_psn, now)),
        };
        Requester { common: Common::new(conn, sq_psn, is_irn, now), mode }
    }

    /// Takes the attributes that a change of state set, keeping what is queued.
    pub(crate) fn restart(&mut self, conn: &Connection, sq_psn: Psn, recovery: Recovery, now: Instant) {
        let (queue, held) = (std::mem::take(&mut self.common.queue), self.common.held);
        // The peer may agree to another recovery while the queue pair is drained: that is the same visit to SQD.
        let drained_reported = self.common.drained_reported;
        *self = Requester::new(conn, sq_psn, recovery, now);
        let common = &mut self.common;
        (common.queue, common.held, common.drained_reported) = (queue, held, drained_reported);
    }

    /// Chooses another loss recovery, as long as nothing was sent: the responder goes by the format of the first packet.
    pub(crate) fn set_recovery(&mut self, conn: &Connection, recovery: Recovery, now: Instant) -> bool {
        let is_same = self.is_irn() == (recovery == Recovery::Irn);
        let is_unused = self.mode.numbers().is_unused();
        if is_unused && !is_same {
            let next = self.next_psn();
            self.restart(conn, next, recovery, now);
        }
        is_unused || is_same
    }

    pub(crate) fn is_irn(&self) -> bool {
        matches!(self.mode, Mode::Irn(_))
    }

    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.common.queue.wqes.is_empty() && !self.common.held
    }

    /// The requests that were posted and have not ended.
    #[inline]
    pub(crate) fn queue(&self) -> &SendQueue {
        &self.common.queue
    }

    /// The queue pair is to go into error.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.common.failed
    }

    /// Keeps requests back, or lets them go.
    pub(crate) fn hold(&mut self, held: bool) {
        self.common.held = held;
    }

    pub(crate) fn is_held(&self) -> bool {
        self.common.held
    }

    /// Says whether packets that were sent still wait for the peer to look at them.
    pub(crate) fn set_unheard(&mut self, is_unheard: bool) {
        self.common.is_unheard = is_unheard;
    }

    /// Whether the peer's last answer was that it has no receive.
    pub(crate) fn lacks_receive(&self, conn: &Connection) -> bool {
        self.common.lacks_receive(conn)
    }

    /// Packets sent and not acknowledged.
    pub(crate) fn in_flight(&self) -> u32 {
        self.mode.numbers().in_flight()
    }

    pub(crate) fn next_psn(&self) -> Psn {
        self.mode.numbers().frontier()
    }

    #[inline]
    pub(crate) fn post(&mut self, conn: &Connection, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.common.post(conn, wr)
    }

    /// Whether [`post`](Self::post) would take a request behind `ahead` others.
    pub(crate) fn check_post(
        &self,
        conn: &Connection,
        wr: &SendWr<'_>,
        ahead: usize,
    ) -> Result<(), PostError> {
        requests::check_post(conn, wr, self.common.queue.len() + ahead)
    }

    /// Whether a request that has begun has not ended.
    pub(crate) fn has_begun_requests(&self) -> bool {
        self.common.queue.wqes.front().is_some_and(crate::send_queue::SendWqe::is_started)
    }

    /// Plans the next packet of this half, if one may leave now.
    #[inline]
    pub(crate) fn poll_transmit(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) -> bool {
        match &mut self.mode {
            Mode::Standard(standard) => {
                self.common.poll_transmit(standard, conn, ctx, plan, |common, standard, ctx, plan| {
                    let planned = standard.poll(common, conn, ctx, plan);
                    if !conn.config.service.is_reliable() {
                        standard.forget_sent();
                    }
                    planned
                })
            }
            Mode::Irn(irn) => {
                self.common.poll_transmit(&mut **irn, conn, ctx, plan, |common, irn, ctx, plan| {
                    irn.poll(common, conn, ctx, plan)
                })
            }
        }
    }

    /// Whether [`Self::poll_transmit`] may plan a packet now. False for sure; true may be wrong.
    #[inline]
    pub(crate) fn wants_transmit(&mut self, conn: &Connection, now: Instant) -> bool {
        in_mode!(self, |common, mode| {
            if !conn.state.transmits() || common.held || common.failed {
                return false;
            }
            if common.is_waiting(now) {
                // One more call of `poll_transmit` notes until when the pace holds the packet back.
                return common.rnr_until.is_none()
                    && common.paced_until.is_none()
                    && common.has_packets(mode);
            }
            common.has_packets(mode)
        })
    }

    /// The requester's next deadline; [`Instant::FAR_FUTURE`] for none.
    #[inline]
    pub(crate) fn next_deadline(&self, conn: &Connection) -> Instant {
        self.common.next_deadline(conn)
    }

    pub(crate) fn handle_timeout(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        let Requester { common, mode } = self;
        if !conn.state.transmits() || common.failed {
            return;
        }
        if let Some(control) = common.congestion.control() {
            control.on_timer(ctx.now);
        }
        if common.paced_until.is_some_and(|until| ctx.now >= until) {
            common.paced_until = None;
        }
        if common.fetching_until.is_some_and(|until| ctx.now >= until) {
            common.fetching_until = None;
        }
        if common.rnr_until.is_some_and(|until| ctx.now >= until) {
            common.rnr_until = None;
            match mode {
                Mode::Standard(standard) => standard.resume_after_rnr(common, conn, ctx.now),
                Mode::Irn(irn) => irn.resume_after_rnr(common, conn, ctx.now),
            }
            return;
        }
        if !common.is_late(ctx.now) {
            return;
        }
        match mode {
            Mode::Standard(_) if common.is_unheard => Standard::wait_on(common, conn, ctx.now),
            Mode::Irn(irn) if common.is_unheard => irn.wait_on(common, conn, ctx.now),
            Mode::Standard(standard) => standard.handle_timeout(common, conn, ctx),
            Mode::Irn(irn) => irn.handle_timeout(common, conn, ctx),
        }
    }

    /// Whether a timer that is due at `now` makes the requester give up, if the peer has not answered by
    /// then.
    pub(crate) fn gives_up(&self, conn: &Connection, now: Instant) -> bool {
        self.common.is_late(now)
            && conn.state.transmits()
            && match &self.mode {
                Mode::Standard(standard) => standard.gives_up(conn),
                Mode::Irn(irn) => irn.gives_up(&self.common, conn, now),
            }
    }

    pub(crate) fn handle_cnp(&mut self, ctx: &mut Context<'_>) {
        ctx.counters.count(Counter::CnpsReceived);
        if let Some(control) = self.common.congestion.control() {
            control.on_cnp(ctx.now);
        }
    }

    /// The switches on the way of a packet whose acknowledgement comes next.
    pub(crate) fn note_telemetry(&mut self, now: Instant, hops: &[Hop]) {
        if let Some(control) = self.common.congestion.control() {
            control.on_telemetry(now, hops);
        }
    }

    /// Whether the acknowledgement at hand echoes a mark.
    #[inline]
    pub(crate) fn note_echo(&mut self, is_echo: bool) {
        self.common.note_echo(is_echo);
    }

    /// An ACK or NAK of standard RoCEv2 (IBTA §9.7.5.2).
    #[inline]
    pub(crate) fn on_ack(&mut self, conn: &Connection, ctx: &mut Context<'_>, psn: Psn, aeth: Aeth) {
        match &mut self.mode {
            Mode::Standard(standard) => standard.on_ack(&mut self.common, conn, ctx, psn, aeth),
            Mode::Irn(_) => ctx.counters.count(Counter::DroppedStale),
        }
    }

    /// An acknowledgement of IRN's: cumulative, selective, or a refusal.
    #[inline]
    pub(crate) fn on_irn_ack(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        cumulative: Psn,
        aeth: Aeth,
        sack: Option<SackEth>,
    ) {
        match &mut self.mode {
            Mode::Irn(irn) => irn.on_ack(&mut self.common, conn, ctx, cumulative, aeth, sack),
            Mode::Standard(_) => ctx.counters.count(Counter::DroppedStale),
        }
    }

    /// A READ response or the answer to an atomic. One in the other mode's format is stale.
    #[inline]
    pub(crate) fn on_response<P: Payload>(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        let common = &mut self.common;
        match (&mut self.mode, headers.bth.opcode.is_irn()) {
            (Mode::Standard(standard), false) => {
                standard.on_response(common, conn, ctx, headers, payload, memory)
            }
            (Mode::Irn(irn), true) => irn.on_response(common, conn, ctx, headers, payload, memory),
            _ => ctx.counters.count(Counter::DroppedStale),
        }
    }

    /// Whether the requester is in IRN's mode, and has one message of one packet to send, with room for an
    /// acknowledgement.
    #[inline]
    pub(crate) fn is_about_to_send_one(&self, conn: &Connection) -> bool {
        self.is_irn() && conn.state.transmits() && self.common.is_about_to_send_one(conn)
    }

    /// The next acknowledgement of responses, which are only IRN's to acknowledge.
    #[inline]
    pub(crate) fn poll_read_ack(&mut self, conn: &Connection, plan: &mut Plan) -> bool {
        match &mut self.mode {
            Mode::Standard(_) => false,
            Mode::Irn(irn) => irn.poll_read_ack(conn, plan),
        }
    }

    #[inline]
    pub(crate) fn wants_read_ack(&self) -> bool {
        matches!(&self.mode, Mode::Irn(irn) if irn.wants_read_ack())
    }

    /// The driver could not read the packet that was planned last from the request's memory.
    pub(crate) fn fail_transmit(&mut self, conn: &Connection, ctx: &mut Context<'_>, index: u32) {
        in_mode!(self, |common, mode| {
            common.lose_memory(index as usize);
            common.retire(mode, conn, ctx);
        });
    }

    /// Gives every request back.
    pub(crate) fn flush(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        self.common.flush(conn, ctx);
    }

    /// Reports, once per visit to SQD, that all started requests have ended (IBTA §10.3.1.5).
    pub(crate) fn report_drained(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        self.common.report_drained(conn, ctx);
    }
}
