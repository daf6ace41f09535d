//! Packets that arrive, by the half of the queue pair that they are for.

use super::QueuePair;
use crate::congestion::Hop;
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::Arrival;
use crate::receive_queue::ReceiveQueue;
use crate::responder::{Request, Turn};
use highwire_stdx::{Instant, Slab};
use highwire_verbs::{AsyncEvent, Memory, Payload, QpState, Service};
use highwire_wire::{Ext, Headers, NakCode, Operation as WireOperation, Position};

impl QueuePair {
    /// Handles a packet that was found to be for this queue pair.
    #[inline]
    pub fn handle_packet<P: Payload>(
        &mut self,
        ctx: &mut Context<'_>,
        arrival: &Arrival,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        if !self.conn.state.receives() {
            return ctx.counters.count(Counter::DroppedWrongState);
        }
        let is_ud = self.conn.config.service == Service::Ud;
        // A connected queue pair takes packets from its peer only.
        if !is_ud && arrival.source != self.conn.address.gid {
            return ctx.counters.count(Counter::DroppedWrongSource);
        }
        let bth = &headers.bth;
        match bth.opcode.info().operation {
            WireOperation::Congestion => return self.requester.handle_cnp(ctx),
            WireOperation::Send
            | WireOperation::Write
            | WireOperation::Read
            | WireOperation::CompareSwap
            | WireOperation::FetchAdd => {
                // The acknowledged message came before the peer's answer, and programs rely on a SEND's completion before that of
                // its answer.
                if let Some((aeth, psn)) = headers.ext.riding_ack()
                    && self.conn.state.transmits()
                {
                    self.requester.note_echo(bth.becn);
                    self.requester.on_irn_ack(&self.conn, ctx, psn, aeth, None);
                }
                let mut turn = Turn { conn: &self.conn, receives: &mut self.receives, ctx };
                self.responder.handle_request(&mut turn, Request { arrival, headers, payload }, memory);
                self.note_established(ctx);
            }
            // Acknowledgements of answers are for the responder, which may have sent answers even if the
            // queue pair never goes beyond RTR.
            WireOperation::ReadAcknowledge => self.responder.on_read_ack(ctx, bth.psn, None),
            WireOperation::ReadSelectiveAcknowledge => match headers.ext {
                Ext::IrnReadNack(sack) => self.responder.on_read_ack(ctx, bth.psn, Some(sack)),
                _ => ctx.counters.count(Counter::DroppedMalformed),
            },
            // All other operations answer this side's own requests.
            _ if !self.conn.state.transmits() => return ctx.counters.count(Counter::DroppedWrongState),
            WireOperation::Acknowledge | WireOperation::SelectiveAcknowledge => {
                self.requester.note_echo(bth.becn);
                match headers.ext {
                    Ext::Aeth(aeth) => self.requester.on_ack(&self.conn, ctx, bth.psn, aeth),
                    Ext::IrnAck(aeth) => {
                        self.requester.on_irn_ack(&self.conn, ctx, bth.psn, aeth, None);
                    }
                    Ext::IrnNack(aeth, sack) => {
                        self.requester.on_irn_ack(&self.conn, ctx, bth.psn, aeth, Some(sack));
                    }
                    _ => ctx.counters.count(Counter::DroppedStale),
                }
            }
            WireOperation::ReadResponse | WireOperation::AtomicResponse => {
                self.requester.on_response(&self.conn, ctx, headers, payload, memory);
            }
        }
        self.settle(ctx);
    }

    /// The switches on the way of a packet of this queue pair's: what they wrote into it comes back with the acknowledgement that is
    /// handled next.
    pub fn note_telemetry(&mut self, now: Instant, hops: &[Hop]) {
        self.requester.note_telemetry(now, hops);
    }

    /// Handles a packet of which the headers alone have arrived, because a switch had no room for the rest. A request on a reliable
    /// connection is asked for again at once; anything else counts as lost.
    pub fn handle_trimmed(&mut self, ctx: &mut Context<'_>, arrival: &Arrival, headers: &Headers) {
        if !self.conn.state.receives() {
            return ctx.counters.count(Counter::DroppedWrongState);
        }
        if arrival.source != self.conn.address.gid {
            return ctx.counters.count(Counter::DroppedWrongSource);
        }
        let operation = headers.bth.opcode.info().operation;
        let is_request = matches!(operation, WireOperation::Send | WireOperation::Write);
        if !is_request || self.conn.config.service != Service::Rc {
            return ctx.counters.count(Counter::DroppedMalformed);
        }
        let mut turn = Turn { conn: &self.conn, receives: &mut self.receives, ctx };
        self.responder.handle_trimmed(&mut turn, headers);
        self.settle(ctx);
    }

    /// Takes a frame that was steered to this queue pair (RAW).
    pub fn handle_frame<P: Payload>(
        &mut self,
        ctx: &mut Context<'_>,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        if !self.conn.state.receives() {
            return ctx.counters.count(Counter::DroppedWrongState);
        }
        let mut turn = Turn { conn: &self.conn, receives: &mut self.receives, ctx };
        self.responder.handle_frame(&mut turn, payload, memory);
        self.settle(ctx);
    }

    pub(super) fn note_established(&mut self, ctx: &mut Context<'_>) {
        if !self.established && self.conn.state == QpState::Rtr && self.conn.config.service != Service::Ud {
            self.established = true;
            ctx.events.push_back(AsyncEvent::CommunicationEstablished(self.conn.qpn));
        }
    }

    /// Changes the state if a half has failed, or the last request that was to leave has left.
    #[inline]
    pub(super) fn settle(&mut self, ctx: &mut Context<'_>) {
        // Asked after every packet, and rarely the case.
        let has_failed = self.requester.has_failed() || self.responder.failed().is_some();
        if has_failed || self.conn.state == QpState::Sqd {
            self.draw_consequences(ctx);
        }
    }

    #[cold]
    fn draw_consequences(&mut self, ctx: &mut Context<'_>) {
        if self.requester.has_failed() && self.conn.state != QpState::Error {
            if self.conn.config.service.is_reliable() {
                self.enter_error(ctx);
            } else if self.conn.state != QpState::Sqe {
                self.conn.state = QpState::Sqe;
                self.flush_sends(ctx);
            }
        }
        if self.conn.state == QpState::Sqd {
            self.requester.report_drained(&self.conn, ctx);
        }
        if let Some(code) = self.responder.failed()
            && self.conn.state != QpState::Error
            && !self.responder.is_refusing()
        {
            ctx.events.push_back(match code {
                NakCode::RemoteAccess => AsyncEvent::QpAccessError(self.conn.qpn),
                NakCode::RemoteOperational => AsyncEvent::QpFatal(self.conn.qpn),
                _ => AsyncEvent::QpRequestError(self.conn.qpn),
            });
            self.enter_error(ctx);
        }
    }

    /// Whether a packet would be dropped, or answered with RNR, for want of a receive, and for no other reason that its headers
    /// tell. A driver that can may keep it until there is one, or post one.
    pub fn lacks_receive(&self, shared: &Slab<ReceiveQueue>, arrival: &Arrival, headers: &Headers) -> bool {
        let conn = &self.conn;
        let info = headers.bth.opcode.info();
        let takes_receive = match conn.config.service {
            Service::Ud => match headers.ext {
                Ext::Deth(deth) | Ext::DethImm(deth, _) => deth.qkey == conn.qkey,
                _ => false,
            },
            // A WRITE with immediate data takes its receive with the last packet, a SEND with the first.
            Service::Uc | Service::Rc => {
                let begins = matches!(info.position, Position::First | Position::Only);
                let is_taken = match info.operation {
                    WireOperation::Send => begins,
                    _ => matches!(headers.ext, Ext::Imm(_) | Ext::RethImm(..)),
                };
                arrival.source == conn.address.gid && is_taken
            }
            _ => false,
        };
        let queue = match conn.config.srq {
            Some(srq) => shared.get(srq.0),
            None => Some(&self.receives),
        };
        takes_receive
            && conn.state.receives()
            && queue.is_some_and(ReceiveQueue::is_empty)
            && !self.responder.has_claimed()
    }

    /// Whether the queue pair's own receive queue holds receives.
    pub fn holds_receives(&self) -> bool {
        !self.receives.is_empty()
    }

    /// How many receives wait in its own queue.
    pub fn waiting_receives(&self) -> u32 {
        self.receives.len()
    }
}
