//! Acknowledgements: by themselves, or riding on a message that answers.

use super::super::{Responder, count_answer};
use super::IrnResponder;
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::{Order, Plan, RIDING_ACK_BYTES};
use crate::receive_queue::ReceiveQueue;
use highwire_wire::{Aeth, Ext, Opcode, Psn, SackEth, Syndrome};

impl Responder {
    /// Whether all there is to acknowledge may ride on a request.
    #[inline]
    pub(crate) fn has_ack_to_ride(&self) -> bool {
        let is_plain = |irn: &IrnResponder| irn.acks.is_plain() && irn.refusal.is_none();
        self.irn.as_deref().is_some_and(is_plain) && !self.echo_due && !self.cnp_due
    }

    /// Whether that is all this half wants to send.
    #[inline]
    pub(crate) fn owes_only_an_ack(&mut self) -> bool {
        let has_answers = self.irn.as_mut().is_some_and(|irn| irn.has_answers());
        self.has_ack_to_ride() && self.replies.is_empty() && !has_answers
    }

    /// Lets it ride on the SEND or WRITE that is planned, if that is one.
    #[inline]
    pub(crate) fn let_ack_ride(
        &mut self,
        conn: &Connection,
        own: &ReceiveQueue,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) {
        let aeth = Aeth { syndrome: Syndrome::Ack { credits: self.credits(conn, own) }, msn: self.msn };
        let Some(irn) = &mut self.irn else { return };
        // What is sent again may be as long as packets get.
        if plan.length + RIDING_ACK_BYTES > conn.mtu.bytes() {
            return;
        }
        let next = irn.window.next_expected();
        let headers = &mut plan.headers;
        (headers.bth.opcode, headers.ext) = match headers.ext {
            Ext::IrnSend(eth) => (Opcode::IrnSendAck, Ext::IrnSendAck(eth, aeth, next)),
            Ext::IrnWrite(eth, reth) => (Opcode::IrnWriteAck, Ext::IrnWriteAck(eth, reth, aeth, next)),
            _ => return,
        };
        irn.acks.next(next);
        irn.note_acknowledged();
        count_answer(ctx, aeth.syndrome);
    }

    /// The next acknowledgement of requests: a refusal, a NACK per run of early packets, or an ACK.
    #[inline]
    pub(in crate::responder) fn poll_irn_ack(
        &mut self,
        conn: &Connection,
        own: &ReceiveQueue,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) -> bool {
        // Asked for every packet that leaves, and rarely the case.
        if self.irn.as_ref().is_none_or(|irn| irn.acks.is_empty() && irn.refusal.is_none()) {
            return false;
        }
        let credits = Syndrome::Ack { credits: self.credits(conn, own) };
        let msn = self.msn;
        let Some(irn) = &mut self.irn else { return false };
        let next = irn.window.next_expected();
        // What breaks the connection waits until everything that came before it is answered.
        let may_refuse = self.failed.is_none() || irn.jobs.is_empty();
        let (psn, syndrome, sack): (Psn, Syndrome, Option<SackEth>) = match irn.refusal {
            Some((psn, syndrome)) if may_refuse => {
                irn.refusal = None;
                (psn, syndrome, None)
            }
            _ => match irn.acks.next(next) {
                Some(sack) => (next, credits, sack),
                None => return false,
            },
        };
        irn.note_acknowledged();
        let aeth = Aeth { syndrome, msn };
        let (opcode, ext) = match sack {
            None => {
                count_answer(ctx, syndrome);
                (Opcode::IrnAck, Ext::IrnAck(aeth))
            }
            Some(sack) => {
                ctx.counters.count(Counter::NaksSent);
                (Opcode::IrnNack, Ext::IrnNack(aeth, sack))
            }
        };
        plan.bare(opcode, conn.remote_qpn, psn, ext, Order::Free);
        self.echo_mark(plan);
        true
    }
}
