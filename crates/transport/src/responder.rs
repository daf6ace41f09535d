//! The half of a queue pair that checks the peer's requests, executes them, and acknowledges.
//!
//! A request passes a chain of small checks, in the specification's order: PSN, operation sequence, operation, resources,
//! length, key; then it is executed and acknowledged (IBTA §9.7.4). A responder is in one of two modes: [`standard`] is
//! the chain of RC and UC, [`irn`] the one that takes packets in any order. `datagram` is that of UD, which
//! needs neither; they share `deliver`.
//!
//! Every step is handed the same two values: the queue pair's parts ([`Turn`]) and the request packet
//! ([`Request`]).
//!
//! Invariant: nothing outside a checked region is touched, and nothing is executed twice.

mod datagram;
mod deliver;
mod irn;
mod standard;
pub mod table;

use crate::congestion::CnpGenerator;
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::irn::IrnConfig;
use crate::plan::{Arrival, Order, Plan};
use crate::receive_queue::{ReceiveQueue, ReceiveWqe};
use highwire_stdx::Instant;
use highwire_verbs::{Memory, Payload, Service, Sge};
use highwire_wire::{Ext, Headers, NakCode, Opcode, Psn, SackEth, Syndrome};
use std::collections::VecDeque;

use irn::Irn;
use standard::Standard;

pub(crate) use deliver::{ended, local_denial};

/// The parts of a queue pair for one step: its attributes, its receives, and the RNIC's parts that it may
/// touch.
#[derive(Debug)]
pub(crate) struct Turn<'a, 'c> {
    pub(crate) conn: &'a Connection,
    pub(crate) receives: &'a mut ReceiveQueue,
    pub(crate) ctx: &'a mut Context<'c>,
}

/// A request packet, and how it came.
#[derive(Debug)]
pub(crate) struct Request<'a, P> {
    pub(crate) arrival: &'a Arrival,
    pub(crate) headers: &'a Headers,
    pub(crate) payload: P,
}

/// The responder of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Responder {
    common: Common,
    mode: Mode,
    pub(crate) accepts_irn: bool,
    cnp: CnpGenerator,
    cnp_due: bool,
}

/// How requests travel in this direction.
#[derive(Clone, Debug)]
enum Mode {
    Standard(Standard),
    Irn(Box<Irn>),
}

/// A responder's state in either mode, and for every service.
#[derive(Clone, Debug, Default)]
struct Common {
    /// Requests completed, modulo 2^24 (IBTA §9.7.7.1).
    msn: u32,
    /// Receives taken from the queue and not completed; IRN may have several begun.
    claimed: VecDeque<ReceiveWqe>,
    /// A marked packet arrived since the last acknowledgement, and the next one is to echo the mark.
    echo_due: bool,
    /// Where the READ response that leaves now lies.
    read_span: [Sge; 1],
    /// The queue pair is to go into error, once the refusal has left.
    failed: Option<NakCode>,
    /// The PSN of the last request out of turn, for the words about a wait that does not end.
    unexpected: Option<Psn>,
    /// Which drops of datagrams were explained: once each, because strangers can send any number of them.
    explained: Explained,
}

#[derive(Clone, Copy, Debug, Default)]
struct Explained {
    key: bool,
    length: bool,
}

/// Why a request is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It is dropped without an answer, and counted.
    Drop(Counter),
    /// There is no receive for it.
    NotReady,
    /// The memory of the receive for it is not what its keys permit.
    BadReceive,
    /// It is refused, and the connection broken.
    Nak(NakCode),
    /// The connection is broken without a word to the peer.
    Silence(NakCode),
}

impl Responder {
    pub(crate) fn new(rq_psn: Psn) -> Responder {
        Responder {
            common: Common::default(),
            mode: Mode::Standard(Standard::new(rq_psn)),
            accepts_irn: false,
            cnp: CnpGenerator::default(),
            cnp_due: false,
        }
    }

    pub(crate) fn expected(&self) -> Psn {
        match &self.mode {
            Mode::Standard(standard) => standard.expected(),
            Mode::Irn(irn) => irn.expected(),
        }
    }

    /// The PSN of the last request out of turn.
    pub(crate) fn unexpected(&self) -> Option<Psn> {
        self.common.unexpected
    }

    pub(crate) fn is_irn(&self) -> bool {
        matches!(self.mode, Mode::Irn(_))
    }

    /// The reason for which the queue pair goes into error once the NAK has left.
    #[inline]
    pub(crate) fn failed(&self) -> Option<NakCode> {
        self.common.failed
    }

    /// Where the READ response that leaves now lies.
    #[inline]
    pub(crate) fn read_span(&self) -> &[Sge; 1] {
        &self.common.read_span
    }

    /// Handles a request packet of any service.
    #[inline]
    pub(crate) fn handle_request<P: Payload>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        request: Request<'_, P>,
        memory: &mut impl Memory<P>,
    ) {
        let service = turn.conn.config.service;
        if self.common.failed.is_some() {
            return turn.ctx.counters.count(Counter::DroppedWrongState);
        }
        if request.arrival.is_marked() && service != Service::Ud {
            self.on_mark(turn.conn, turn.ctx.now);
        }
        let is_irn = request.headers.bth.opcode.is_irn();
        if is_irn && let Err(counter) = self.enter_irn(turn.conn, request.headers.bth.psn) {
            self.common.unexpected = Some(request.headers.bth.psn);
            return turn.ctx.counters.count(counter);
        }
        match (&mut self.mode, service) {
            (Mode::Irn(irn), _) if is_irn => irn.handle(&mut self.common, turn, request, memory),
            (Mode::Irn(_), _) => turn.ctx.counters.count(Counter::DroppedNotNegotiated),
            (Mode::Standard(standard), Service::Rc | Service::XrcTarget | Service::XrcInitiator) => {
                standard.handle_rc(&mut self.common, turn, request, memory);
            }
            (Mode::Standard(standard), Service::Uc) => {
                standard.handle_uc(&mut self.common, turn, request, memory);
            }
            (_, Service::Ud) => self.common.handle_ud(turn, request, memory),
            // A RAW queue pair gets no packets but frames, which are steered to it.
            (_, Service::Raw) => turn.ctx.counters.count(Counter::DroppedWrongService),
        }
    }

    /// Of a SEND or WRITE on a reliable connection the headers alone have arrived.
    pub(crate) fn handle_trimmed(&mut self, turn: &mut Turn<'_, '_>, headers: &Headers) {
        if self.common.failed.is_some() {
            return turn.ctx.counters.count(Counter::DroppedWrongState);
        }
        let is_irn = headers.bth.opcode.is_irn();
        if is_irn && let Err(counter) = self.enter_irn(turn.conn, headers.bth.psn) {
            return turn.ctx.counters.count(counter);
        }
        match &mut self.mode {
            Mode::Irn(irn) if is_irn => irn.handle_trimmed(turn.ctx, headers.bth.psn),
            Mode::Irn(_) => turn.ctx.counters.count(Counter::DroppedNotNegotiated),
            Mode::Standard(standard) => standard.handle_trimmed(turn, headers),
        }
    }

    /// The first packet in IRN's format decides, unless a standard request was executed before it.
    #[inline]
    fn enter_irn(&mut self, conn: &Connection, psn: Psn) -> Result<(), Counter> {
        let Mode::Standard(standard) = &self.mode else { return Ok(()) };
        if !self.accepts_irn || standard.has_executed() {
            return Err(Counter::DroppedNotNegotiated);
        }
        // A packet that is left over from another connection, or forged, must not decide.
        let expected = standard.expected();
        if psn.ahead_of(expected) >= conn.transport.irn.cap.max(IrnConfig::WINDOW_PACKETS_MIN) {
            return Err(Counter::DroppedBeyondWindow);
        }
        self.mode = Mode::Irn(Box::new(Irn::new(expected, &conn.transport.irn)));
        Ok(())
    }

    /// A frame of the segment that was steered here.
    pub(crate) fn handle_frame<P: Payload>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        self.common.handle_frame(turn, payload, memory);
    }

    /// The requester acknowledges answers (IRN §5.2).
    pub(crate) fn on_read_ack(&mut self, ctx: &mut Context<'_>, cumulative: Psn, sack: Option<SackEth>) {
        match &mut self.mode {
            Mode::Standard(_) => ctx.counters.count(Counter::DroppedStale),
            Mode::Irn(irn) => irn.on_read_ack(ctx, cumulative, sack),
        }
    }

    pub(crate) fn handle_timeout(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        if let Mode::Irn(irn) = &mut self.mode {
            irn.handle_timeout(conn, ctx);
        }
    }

    /// A switch on the way here has marked the packet as congested. A requester whose congestion control uses CNPs gets one.
    /// DCTCP needs a mark for every packet, so the acknowledgement carries it as BECN, as InfiniBand permits (IBTA A10).
    #[cold]
    fn on_mark(&mut self, conn: &Connection, now: Instant) {
        if conn.transport.congestion.echoes_marks() {
            self.common.echo_due = true;
        } else if self.cnp.on_packet(now, true) {
            self.cnp_due = true;
        }
    }

    /// The next acknowledgement or CNP that is due: small, and other packets may overtake it.
    #[inline]
    pub(crate) fn poll_acknowledge(&mut self, turn: &mut Turn<'_, '_>, plan: &mut Plan) -> bool {
        if self.cnp_due {
            self.cnp_due = false;
            turn.ctx.counters.count(Counter::CnpsSent);
            plan.bare(Opcode::Cnp, turn.conn.remote_qpn, Psn::default(), Ext::Cnp, Order::Free);
            plan.headers.bth.becn = true;
            return true;
        }
        match &mut self.mode {
            Mode::Standard(standard) => standard.poll_ack(&mut self.common, turn, plan),
            Mode::Irn(irn) => irn.poll_ack(&mut self.common, turn, plan),
        }
    }

    /// The next READ response or atomic result.
    #[inline]
    pub(crate) fn poll_reply(&mut self, turn: &mut Turn<'_, '_>, plan: &mut Plan) -> bool {
        match &mut self.mode {
            Mode::Standard(standard) => standard.poll_reply(&mut self.common, turn, plan),
            Mode::Irn(irn) => irn.poll_reply(&mut self.common, turn, plan),
        }
    }

    /// The driver could not read the answer that was planned last from the memory that the peer asked for.
    pub(crate) fn fail_transmit(&mut self, turn: &mut Turn<'_, '_>, psn: Psn) {
        let why = NakCode::RemoteOperational;
        match &mut self.mode {
            Mode::Standard(standard) => standard.give_up_answers(&mut self.common, psn, why),
            Mode::Irn(irn) => irn.give_up_answers(&mut self.common, turn, why),
        }
    }

    /// Whether the acknowledgement that is due may ride on a request.
    #[inline]
    pub(crate) fn has_ack_to_ride(&self) -> bool {
        let is_plain = matches!(&self.mode, Mode::Irn(irn) if irn.owes_plain_ack());
        is_plain && !self.common.echo_due && !self.cnp_due
    }

    /// Whether an acknowledgement is all that this half wants to send.
    #[inline]
    pub(crate) fn owes_only_an_ack(&mut self) -> bool {
        let has_answers = match &mut self.mode {
            Mode::Standard(_) => false,
            Mode::Irn(irn) => irn.has_answers(),
        };
        self.has_ack_to_ride() && !has_answers
    }

    /// Lets the acknowledgement ride on the planned packet, if that is a SEND or WRITE.
    #[inline]
    pub(crate) fn let_ack_ride(&mut self, turn: &mut Turn<'_, '_>, plan: &mut Plan) {
        if let Mode::Irn(irn) = &mut self.mode {
            irn.let_ack_ride(&self.common, turn, plan);
        }
    }

    #[inline]
    pub(crate) fn wants_transmit(&mut self) -> bool {
        self.cnp_due
            || match &mut self.mode {
                Mode::Standard(standard) => standard.wants_transmit(),
                Mode::Irn(irn) => irn.wants_transmit(),
            }
    }

    #[inline]
    pub(crate) fn next_deadline(&self) -> Instant {
        match &self.mode {
            Mode::Standard(_) => Instant::FAR_FUTURE,
            Mode::Irn(irn) => irn.next_deadline(),
        }
    }

    /// Whether a receive was taken in advance for the next message.
    pub(crate) fn has_claimed(&self) -> bool {
        !self.common.claimed.is_empty()
    }

    /// Whether a NAK, which will break the connection, waits behind answers to earlier requests.
    #[inline]
    pub(crate) fn is_refusing(&self) -> bool {
        self.common.failed.is_some()
            && match &self.mode {
                Mode::Standard(standard) => standard.wants_transmit(),
                Mode::Irn(irn) => irn.is_refusing(),
            }
    }

    /// Gives back the receives that were taken and not completed.
    pub(crate) fn flush(&mut self) -> VecDeque<ReceiveWqe> {
        if let Mode::Standard(standard) = &mut self.mode {
            standard.flush();
        }
        std::mem::take(&mut self.common.claimed)
    }
}

fn count_answer(ctx: &mut Context<'_>, syndrome: Syndrome) {
    ctx.counters.count(match syndrome {
        Syndrome::Ack { .. } => Counter::AcksSent,
        Syndrome::Rnr { .. } => Counter::RnrSent,
        Syndrome::Nak(_) => Counter::NaksSent,
    });
}
