//! The half of a queue pair that answers: it checks requests, executes them, and acknowledges.
//!
//! A request passes a chain of small checks, in the specification's order: PSN, operation sequence, operation, resources,
//! length, key; then it is executed and acknowledged (IBTA §9.7.4). `standard` is the chain of RC and UC, `datagram`
//! that of UD, `irn` the one that takes packets in any order; `deliver` is what they share.
//!
//! Invariant: nothing outside a checked region is touched, and nothing is executed twice.

mod datagram;
mod deliver;
mod irn;
mod standard;

use crate::congestion::CnpGenerator;
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::irn::IrnConfig;
use crate::plan::{Arrival, Order, Plan};
use crate::receive_queue::{ReceiveQueue, ReceiveWqe};
use highwire_stdx::Instant;
use highwire_verbs::{Memory, Payload, Pd, RemoteKey, Service, Sge};
use highwire_wire::{Aeth, Ext, Headers, NakCode, Opcode, Psn, Syndrome};
use std::collections::VecDeque;

pub(crate) use deliver::ended;
use irn::IrnResponder;

/// The responder of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Responder {
    expected: Psn,
    /// Requests completed, modulo 2^24 (IBTA §9.7.7.1).
    msn: u32,
    message: Message,
    /// Receives taken from the queue and not completed; IRN may have several begun.
    claimed: VecDeque<ReceiveWqe>,
    /// A gap was reported and is not closed.
    nak_sent: bool,
    replies: VecDeque<Reply>,
    /// The results of the last atomics, for requesters that did not get them (IBTA §9.7.5.1.3).
    atomics: VecDeque<(Psn, u64)>,
    /// Where the READ response that leaves now lies.
    pub(crate) read_span: [Sge; 1],
    pub(crate) accepts_irn: bool,
    irn: Option<Box<IrnResponder>>,
    /// A standard request was executed first: this direction stays standard.
    is_standard: bool,
    cnp: CnpGenerator,
    cnp_due: bool,
    /// A marked packet arrived since the last acknowledgement, which is to echo that.
    echo_due: bool,
    /// The queue pair is to go into error, once the refusal has left.
    pub(crate) failed: Option<NakCode>,
}

/// The message whose packets are arriving, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    None,
    Send {
        received: u32,
    },
    Write {
        va: u64,
        rkey: RemoteKey,
        length: u32,
        received: u32,
        addr: u64,
        checked: u64,
    },
    /// UC: the rest of a message that lost a packet.
    Skipped,
}

/// Something to send back, in the order of requests; `again` if it was asked for before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Ack {
        psn: Psn,
        syndrome: Syndrome,
    },
    /// `pd` is that of the request: with XRC the next one may be another's.
    Read {
        psn: Psn,
        pd: Pd,
        va: u64,
        rkey: RemoteKey,
        length: u32,
        sent: u32,
        packets: u32,
        again: bool,
    },
    Atomic {
        psn: Psn,
        original: u64,
        again: bool,
    },
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
            expected: rq_psn,
            msn: 0,
            message: Message::None,
            claimed: VecDeque::new(),
            nak_sent: false,
            replies: VecDeque::new(),
            atomics: VecDeque::new(),
            read_span: [Sge::default()],
            accepts_irn: false,
            irn: None,
            is_standard: false,
            cnp: CnpGenerator::default(),
            cnp_due: false,
            echo_due: false,
            failed: None,
        }
    }

    pub(crate) fn expected(&self) -> Psn {
        self.irn.as_ref().map_or(self.expected, |irn| irn.window.next_expected())
    }

    pub(crate) fn is_irn(&self) -> bool {
        self.irn.is_some()
    }

    /// Handles a request packet of any service.
    #[allow(clippy::too_many_arguments, reason = "one packet with everything that it may touch")]
    #[inline]
    pub(crate) fn handle_request<P: Payload>(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        arrival: &Arrival,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        if self.failed.is_some() {
            return ctx.counters.count(Counter::DroppedWrongState);
        }
        if arrival.is_marked() && conn.config.service != Service::Ud {
            self.on_mark(conn, ctx.now);
        }
        if headers.bth.opcode.is_irn() {
            if self.irn.is_none() {
                if !self.accepts_irn || self.is_standard {
                    return ctx.counters.count(Counter::DroppedNotNegotiated);
                }
                // What was left over from another connection, or made up, decides nothing.
                let ahead = headers.bth.psn.ahead_of(self.expected);
                if ahead >= conn.transport.irn.cap.max(IrnConfig::WINDOW_PACKETS_MIN) {
                    return ctx.counters.count(Counter::DroppedBeyondWindow);
                }
                self.irn = Some(Box::new(IrnResponder::new(self.expected, &conn.transport.irn)));
            }
            return self.handle_irn(conn, own, ctx, headers, payload, memory);
        }
        if self.irn.is_some() {
            return ctx.counters.count(Counter::DroppedNotNegotiated);
        }
        match conn.config.service {
            Service::Rc | Service::XrcTarget | Service::XrcInitiator => {
                let expected = self.expected;
                self.handle_rc(conn, own, ctx, headers, payload, memory);
                self.is_standard |= self.expected != expected;
            }
            Service::Uc => self.handle_uc(conn, own, ctx, headers, payload, memory),
            Service::Ud => self.handle_ud(conn, own, ctx, arrival, headers, payload, memory),
            // What it gets are frames, which are steered to it.
            Service::Raw => ctx.counters.count(Counter::DroppedWrongService),
        }
    }

    /// Congestion was seen on the way here. Who listens to CNPs gets one; DCTCP wants to know about every packet, and its
    /// acknowledgements say so by BECN, as those of InfiniBand may (IBTA A10).
    #[cold]
    fn on_mark(&mut self, conn: &Connection, now: Instant) {
        if conn.transport.congestion.echoes_marks() {
            self.echo_due = true;
        } else if self.cnp.on_packet(now, true) {
            self.cnp_due = true;
        }
    }

    /// Tells in an acknowledgement of marks since the last one.
    #[inline]
    fn echo_mark(&mut self, plan: &mut Plan) {
        // Written only where it says something: a byte stored late delays whoever copies the header.
        if self.echo_due {
            self.echo_due = false;
            plan.headers.bth.becn = true;
        }
    }

    /// Acknowledgements and notifications that are due: small, and free to be overtaken.
    #[inline]
    pub(crate) fn poll_acknowledge(
        &mut self,
        conn: &Connection,
        own: &ReceiveQueue,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) -> bool {
        if self.cnp_due {
            self.cnp_due = false;
            ctx.counters.count(Counter::CnpsSent);
            plan.bare(Opcode::Cnp, conn.remote_qpn, Psn::default(), Ext::Cnp, Order::Free);
            plan.headers.bth.becn = true;
            return true;
        }
        if self.irn.is_some() {
            return self.poll_irn_ack(conn, own, ctx, plan);
        }
        let Some(&Reply::Ack { psn, syndrome }) = self.replies.front() else { return false };
        self.replies.pop_front();
        let syndrome = match syndrome {
            Syndrome::Ack { .. } => Syndrome::Ack { credits: self.credits(conn, own) },
            refused => refused,
        };
        count_answer(ctx, syndrome);
        let aeth = Aeth { syndrome, msn: self.msn };
        plan.bare(Opcode::RcAck, conn.remote_qpn, psn, Ext::Aeth(aeth), Order::Free);
        self.echo_mark(plan);
        true
    }

    /// Data that was asked for.
    #[inline]
    pub(crate) fn poll_reply(
        &mut self,
        conn: &Connection,
        own: &ReceiveQueue,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) -> bool {
        match self.irn {
            Some(_) => self.poll_irn_reply(conn, own, ctx, plan),
            None if self.replies.is_empty() => false,
            None => self.poll_standard_reply(conn, own, ctx, plan),
        }
    }

    /// The answer that was planned last could not be read from the memory that the peer asked for.
    pub(crate) fn fail_transmit(&mut self, conn: &Connection, ctx: &mut Context<'_>, psn: Psn) {
        let why = NakCode::RemoteOperational;
        if self.irn.is_some() {
            return self.give_up_answers(conn, ctx, why);
        }
        self.replies.clear();
        self.refuse(psn, Syndrome::Nak(why));
        self.failed = Some(why);
    }

    #[inline]
    pub(crate) fn wants_transmit(&mut self) -> bool {
        !self.replies.is_empty() || self.cnp_due || self.irn.as_mut().is_some_and(|irn| irn.wants_transmit())
    }

    #[inline]
    pub(crate) fn next_deadline(&self) -> Instant {
        self.irn.as_ref().map_or(Instant::FAR_FUTURE, |irn| irn.next_deadline())
    }

    /// Whether a receive was taken for what comes next.
    pub(crate) fn has_claimed(&self) -> bool {
        !self.claimed.is_empty()
    }

    /// The code for how many receives are ready, where they are this queue pair's alone.
    #[inline]
    fn credits(&self, conn: &Connection, own: &ReceiveQueue) -> u8 {
        if !conn.transport.credits || conn.config.srq.is_some() || conn.config.service.is_xrc() {
            return Syndrome::NO_CREDITS;
        }
        let begun =
            u32::from(self.message != Message::None && self.irn.is_none() && !self.claimed.is_empty());
        highwire_wire::credit_code(
            own.len() + self.claimed.len() as u32 - begun.min(self.claimed.len() as u32),
        )
    }

    /// Whether a refusal, which will break the connection, waits behind answers to what came before it.
    #[inline]
    pub(crate) fn is_refusing(&self) -> bool {
        self.failed.is_some()
            && self.irn.as_ref().map_or(!self.replies.is_empty(), |irn| irn.refusal.is_some())
    }

    /// Gives back the receives that were taken and not completed.
    pub(crate) fn flush(&mut self) -> VecDeque<ReceiveWqe> {
        // A refusal that has not left yet still may: it tells the peer why.
        self.replies.retain(|reply| matches!(reply, Reply::Ack { syndrome: Syndrome::Nak(_), .. }));
        self.message = Message::None;
        std::mem::take(&mut self.claimed)
    }
}

fn count_answer(ctx: &mut Context<'_>, syndrome: Syndrome) {
    ctx.counters.count(match syndrome {
        Syndrome::Ack { .. } => Counter::AcksSent,
        Syndrome::Rnr { .. } => Counter::RnrSent,
        Syndrome::Nak(_) => Counter::NaksSent,
    });
}
