//! Acknowledgements: by themselves, or riding on a SEND or WRITE.

use super::super::{Common, Turn, count_answer};
use super::Irn;
use crate::counters::Counter;
use crate::plan::{Order, Plan, RIDING_ACK_BYTES};
use highwire_wire::{Aeth, Ext, NakCode, Opcode, Psn, SackEth, Syndrome};

impl Irn {
    /// Whether a plain acknowledgement is all that is due.
    #[inline]
    pub(in crate::responder) fn owes_plain_ack(&self) -> bool {
        self.acks.is_plain() && self.refusal.is_none()
    }

    /// Lets it ride on the SEND or WRITE that is planned, if that is one.
    #[inline]
    pub(in crate::responder) fn let_ack_ride(
        &mut self,
        common: &Common,
        turn: &mut Turn<'_, '_>,
        plan: &mut Plan,
    ) {
        // A packet that is sent again may be as long as the MTU allows.
        if plan.length + RIDING_ACK_BYTES > turn.conn.mtu.bytes() {
            return;
        }
        let credits = common.credits(turn, false);
        let aeth = Aeth { syndrome: Syndrome::Ack { credits }, msn: common.msn };
        let next = self.window.next_expected();
        let headers = &mut plan.headers;
        (headers.bth.opcode, headers.ext) = match headers.ext {
            Ext::IrnSend(eth) => (Opcode::IrnSendAck, Ext::IrnSendAck(eth, aeth, next)),
            Ext::IrnWrite(eth, reth) => (Opcode::IrnWriteAck, Ext::IrnWriteAck(eth, reth, aeth, next)),
            _ => return,
        };
        self.acks.next(next);
        self.note_acknowledged();
        count_answer(turn.ctx, aeth.syndrome);
    }

    /// The next acknowledgement of requests: a refusal, a NACK per run of early packets, or an ACK.
    #[inline]
    pub(in crate::responder) fn poll_ack(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        plan: &mut Plan,
    ) -> bool {
        // This runs for every packet that leaves, and rarely finds anything.
        if self.acks.is_empty() && self.refusal.is_none() {
            return false;
        }
        let next = self.window.next_expected();
        // A NAK, which breaks the connection, waits until all earlier requests are answered.
        let may_refuse = common.failed.is_none() || self.jobs.is_empty();
        let (psn, syndrome, sack): (Psn, Syndrome, Option<SackEth>) = match self.refusal {
            Some((psn, syndrome)) if may_refuse => {
                self.refusal = None;
                (psn, syndrome, None)
            }
            _ => match self.acks.next_trimmed(next) {
                Some(psn) => (next, Syndrome::Nak(NakCode::PsnSequence), Some(SackEth::one(psn))),
                None => match self.acks.next(next) {
                    Some(sack) => (next, Syndrome::Ack { credits: common.credits(turn, false) }, sack),
                    None => return false,
                },
            },
        };
        self.note_acknowledged();
        let aeth = Aeth { syndrome, msn: common.msn };
        let (opcode, ext) = match sack {
            None => {
                count_answer(turn.ctx, syndrome);
                (Opcode::IrnAck, Ext::IrnAck(aeth))
            }
            Some(sack) => {
                turn.ctx.counters.count(Counter::NaksSent);
                (Opcode::IrnNack, Ext::IrnNack(aeth, sack))
            }
        };
        plan.bare(opcode, turn.conn.remote_qpn, psn, ext, Order::Free);
        common.echo_mark(plan);
        true
    }
}
