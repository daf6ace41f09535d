//! Replies to a requester whose requests come in order, and to duplicate requests.

use super::super::table::Action;
use super::super::{Common, Turn, count_answer};
use super::{Message, Standard};
use crate::counters::Counter;
use crate::plan::{Order, Plan, Source};
use crate::requester::position;
use highwire_verbs::{Access, Pd, RemoteKey, Sge};
use highwire_wire::{Aeth, Ext, Headers, NakCode, Opcode, Operation, Position, Psn, Reth, Syndrome};

/// A reply, in the order of requests; `again` if it answers a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Ack {
        psn: Psn,
        syndrome: Syndrome,
    },
    /// `pd` is the request's protection domain: with XRC the next request may be in another.
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

impl Reply {
    pub(super) fn is_nak(&self) -> bool {
        matches!(self, Reply::Ack { syndrome: Syndrome::Nak(_), .. })
    }

    /// Whether the reply is the answer to the request with this PSN.
    #[inline]
    pub(super) fn is_answer_to(&self, psn: Psn) -> bool {
        matches!(self, Reply::Read { psn: at, .. } | Reply::Atomic { psn: at, .. } if *at == psn)
    }
}

impl Standard {
    pub(super) fn on_gap(&mut self, turn: &mut Turn<'_, '_>) {
        turn.ctx.counters.count(Counter::OutOfSequence);
        // One NAK per gap (IBTA §9.7.5.2.8).
        if !self.nak_sent {
            self.nak_sent = true;
            self.refuse(self.expected, Syndrome::Nak(NakCode::PsnSequence));
        }
    }

    /// A request that was executed comes again (IBTA §9.7.5.1.3).
    pub(super) fn on_duplicate(&mut self, turn: &mut Turn<'_, '_>, headers: &Headers, action: Action) {
        turn.ctx.counters.count(Counter::Duplicates);
        if action == Action::Acknowledge {
            // The requester has seen no acknowledgement of it, so acknowledge everything so far.
            return self.acknowledge(self.expected.sub(1));
        }
        let psn = headers.bth.psn;
        match (headers.bth.opcode.info().operation, headers.ext) {
            (Operation::Read, Ext::Reth(Reth { va, rkey, length })) => {
                let rkey = RemoteKey(rkey);
                let packets = turn.conn.mtu.packets(length);
                let is_past = psn.add(packets).distance_from(self.expected) <= 0;
                let refused = turn.check_access(rkey, va, length, Access::REMOTE_READ).is_err();
                if !is_past || refused || length > highwire_verbs::MESSAGE_LENGTH_MAX {
                    return;
                }
                // The requester went back to this READ; it will ask again for the answers after it, too.
                self.drop_replies_from(psn);
                let pd = turn.conn.config.pd;
                let again = Reply::Read { psn, pd, va, rkey, length, sent: 0, packets, again: true };
                self.answer_again(turn, again);
            }
            (Operation::CompareSwap | Operation::FetchAdd, _) => {
                if let Some(&(_, original)) = self.atomics.iter().find(|(at, _)| *at == psn) {
                    self.drop_replies_from(psn);
                    self.answer_again(turn, Reply::Atomic { psn, original, again: true });
                }
            }
            _ => {}
        }
    }

    /// How many READs and atomics wait for their answer: duplicates if `repeated`, otherwise the others.
    pub(super) fn pending(&self, repeated: bool) -> usize {
        let is_counted = |reply: &&Reply| match reply {
            Reply::Ack { .. } => false,
            Reply::Read { again, .. } | Reply::Atomic { again, .. } => *again == repeated,
        };
        self.replies.iter().filter(is_counted).count()
    }

    /// Answers once more. A request beyond the number that an honest requester may have outstanding is
    /// dropped.
    fn answer_again(&mut self, turn: &Turn<'_, '_>, reply: Reply) {
        if self.pending(true) < turn.conn.max_dest_rd_atomic as usize {
            self.replies.push_back(reply);
        }
    }

    fn drop_replies_from(&mut self, psn: Psn) {
        self.replies.retain_mut(|reply| match reply {
            Reply::Ack { psn: at, .. } | Reply::Atomic { psn: at, .. } => at.is_before(psn),
            Reply::Read { psn: at, packets, sent, .. } => {
                *packets = (*packets).min(psn.ahead_of(*at));
                at.is_before(psn) && *sent < *packets
            }
        });
    }

    /// Acknowledges everything up to `psn`; acknowledgements that have not left yet become one.
    #[inline]
    pub(super) fn acknowledge(&mut self, psn: Psn) {
        let syndrome = Syndrome::Ack { credits: Syndrome::NO_CREDITS };
        match self.replies.back_mut() {
            Some(Reply::Ack { psn: last, syndrome: Syndrome::Ack { .. } }) => {
                if last.is_before(psn) {
                    *last = psn;
                }
            }
            _ => self.replies.push_back(Reply::Ack { psn, syndrome }),
        }
    }

    pub(super) fn refuse(&mut self, psn: Psn, syndrome: Syndrome) {
        self.replies.push_back(Reply::Ack { psn, syndrome });
    }

    #[inline]
    pub(in crate::responder) fn wants_transmit(&self) -> bool {
        !self.replies.is_empty()
    }

    /// No answer that waits will be given: the peer is told why.
    pub(in crate::responder) fn give_up_answers(&mut self, common: &mut Common, psn: Psn, why: NakCode) {
        self.replies.clear();
        self.refuse(psn, Syndrome::Nak(why));
        common.failed = Some(why);
    }

    /// The oldest reply, if it is an acknowledgement or a refusal.
    #[inline]
    pub(in crate::responder) fn poll_ack(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        plan: &mut Plan,
    ) -> bool {
        let Some(&Reply::Ack { psn, syndrome }) = self.replies.front() else { return false };
        self.replies.pop_front();
        let syndrome = match syndrome {
            Syndrome::Ack { .. } => Syndrome::Ack { credits: common.credits(turn, self.has_begun()) },
            refused => refused,
        };
        count_answer(turn.ctx, syndrome);
        let aeth = Aeth { syndrome, msn: common.msn };
        plan.bare(Opcode::RcAck, turn.conn.remote_qpn, psn, Ext::Aeth(aeth), Order::Free);
        common.echo_mark(plan);
        true
    }

    /// The next packet of the oldest reply, if that is data.
    #[inline]
    pub(in crate::responder) fn poll_reply(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        plan: &mut Plan,
    ) -> bool {
        // This runs for every packet that leaves, and rarely finds anything.
        if self.replies.is_empty() {
            return false;
        }
        let credits = common.credits(turn, self.has_begun());
        let Some(reply) = self.replies.front_mut() else { return false };
        let aeth = Aeth { syndrome: Syndrome::Ack { credits }, msn: common.msn };
        let peer = turn.conn.remote_qpn;
        match reply {
            Reply::Ack { .. } => return false,
            &mut Reply::Atomic { psn, original, .. } => {
                self.replies.pop_front();
                plan.bare(Opcode::RcAtomicAck, peer, psn, Ext::AtomicAck(aeth, original), Order::Strict);
            }
            Reply::Read { psn, pd, va, rkey, length, sent, packets, .. } => {
                let (psn, pd, va, rkey, length, packet) = (*psn, *pd, *va, *rkey, *length, *sent);
                *sent += 1;
                let total = turn.conn.mtu.packets(length);
                if *sent == *packets {
                    self.replies.pop_front();
                }
                let offset = packet * turn.conn.mtu.bytes();
                let size = (length - offset).min(turn.conn.mtu.bytes());
                let va = va.wrapping_add(u64::from(offset));
                let Ok(addr) = turn.check_access_in(pd, rkey, va, size, Access::REMOTE_READ) else {
                    // The key went away while the answer was under way.
                    self.give_up_answers(common, psn.add(packet), NakCode::RemoteAccess);
                    return false;
                };
                common.read_span = [Sge { addr, length: size, ..Sge::default() }];
                let (opcode, ext) = match position(packet, total) {
                    Position::First => (Opcode::RcReadResponseFirst, Ext::Aeth(aeth)),
                    Position::Middle => (Opcode::RcReadResponseMiddle, Ext::None),
                    Position::Last => (Opcode::RcReadResponseLast, Ext::Aeth(aeth)),
                    Position::Only | Position::Any => (Opcode::RcReadResponseOnly, Ext::Aeth(aeth)),
                };
                plan.bare(opcode, peer, psn.add(packet), ext, Order::Strict);
                plan.carry(Source::Read, 0, size);
            }
        }
        true
    }

    /// Whether the receive that is being filled is one of those that were claimed.
    #[inline]
    fn has_begun(&self) -> bool {
        self.message != Message::None
    }
}
