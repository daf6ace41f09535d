//! Answers to READs and atomics: sent in a PSN space of their own, repaired and timed by this side (rPSN, IRN §5.2, §5.4).

use super::super::{Common, Refusal, Turn};
use super::{Answer, Body, Irn};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::irn::TimeoutOutcome;
use crate::plan::{Order, Plan, Source};
use highwire_stdx::Instant;
use highwire_verbs::{Access, RemoteKey, Sge};
use highwire_wire::{Aeth, Ext, IrnEth, IrnFlags, NakCode, Opcode, Psn, SackEth, Syndrome};

/// A responder goes on answering for so much longer than a requester waits: it learns of the requester's
/// progress by acknowledgements, which may be lost while answers arrive.
const GIVE_UP_FACTOR: u64 = 4;

/// No requester can ask for more at once: `max_rd_atomic` is a byte.
const RD_ATOMIC_MAX: u32 = u8::MAX as u32;

impl Irn {
    pub(super) fn answer(&mut self, sn: u32, packets: u32, body: Body) {
        // By request number n, the requester shows that it has all answers up to n minus the number of
        // requests that it may have outstanding; its acknowledgement of those may be under way or lost. That
        // number is its own, not what it was granted.
        while let Some(job) = self.jobs.front() {
            if Psn::new(sn).ahead_of(Psn::new(job.sn)) < RD_ATOMIC_MAX {
                break;
            }
            let end = job.first.add(job.packets);
            if self.answers.first_unacknowledged().is_before(end) {
                self.answers.on_ack(end);
            }
            self.jobs.pop_front();
        }
        self.jobs.push_back(Answer { sn, first: self.next_answer, packets, body });
        self.next_answer = self.next_answer.add(packets);
    }

    /// None of the answers that are under way will be given: the peer is told why.
    pub(in crate::responder) fn give_up_answers(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        why: NakCode,
    ) {
        self.jobs.clear();
        self.refuse(common, turn, self.window.next_expected(), Refusal::Nak(why));
    }

    /// The next packet of an answer: one to resend, or a new one.
    pub(in crate::responder) fn poll_reply(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        plan: &mut Plan,
    ) -> bool {
        if self.jobs.is_empty() {
            return false;
        }
        let aeth = Aeth { syndrome: Syndrome::Ack { credits: common.credits(turn, false) }, msn: common.msn };
        let (psn, again) = match self.answers.poll_retransmit() {
            Some(psn) => (psn, true),
            None if self.answers.next_to_send() != self.next_answer && self.answers.can_send_new() => {
                (self.answers.on_send_new(), false)
            }
            None => return false,
        };
        if again {
            turn.ctx.counters.count(Counter::Retransmitted);
        }
        if self.deadline.is_none() {
            self.last_progress = turn.ctx.now;
            self.stalls = 0;
            self.deadline = self.answers.arm_timeout().map(|rto| turn.ctx.now + rto);
        }
        let Some(&job) = self.jobs.iter().find(|job| psn.ahead_of(job.first) < job.packets) else {
            return false;
        };
        let packet = psn.ahead_of(job.first);
        let is_last = packet + 1 == job.packets;
        let mut flags = if is_last { IrnFlags::LAST } else { IrnFlags::NONE };
        if again {
            flags = flags.with(IrnFlags::RETRANSMITTED);
        }
        let header = IrnEth::new(job.sn, packet, flags);
        match job.body {
            Body::Atomic(original) => {
                let ext = Ext::IrnAtomicResponse(header, aeth, original);
                plan.bare(Opcode::IrnAtomicResponse, turn.conn.remote_qpn, psn, ext, Order::Strict);
            }
            Body::Read(reth) => {
                let offset = packet * turn.conn.mtu.bytes();
                let size = (reth.length - offset).min(turn.conn.mtu.bytes());
                let va = reth.va.wrapping_add(u64::from(offset));
                let access = Access::REMOTE_READ;
                let Ok(addr) = turn.check_access(RemoteKey(reth.rkey), va, size, access) else {
                    // The key went away while the answer was under way.
                    self.give_up_answers(common, turn, NakCode::RemoteAccess);
                    return false;
                };
                common.read_span = [Sge { addr, length: size, ..Sge::default() }];
                let ext = Ext::IrnReadResponse(header, aeth);
                plan.bare(Opcode::IrnReadResponse, turn.conn.remote_qpn, psn, ext, Order::Strict);
                plan.carry(Source::Read, 0, size);
            }
        }
        true
    }

    /// The requester acknowledges answers (IRN §5.2).
    pub(in crate::responder) fn on_read_ack(
        &mut self,
        ctx: &mut Context<'_>,
        cumulative: Psn,
        sack: Option<SackEth>,
    ) {
        let outcome = match sack {
            Some(sack) => self.answers.on_nack(cumulative, sack.psn, u32::from(sack.count)),
            None => self.answers.on_ack(cumulative),
        };
        if outcome.newly_acked > 0 {
            self.last_progress = ctx.now;
            self.stalls = 0;
            self.deadline = self.answers.arm_timeout().map(|rto| ctx.now + rto);
            let reached = self.answers.first_unacknowledged();
            while self.jobs.front().is_some_and(|job| job.first.add(job.packets).distance_from(reached) <= 0)
            {
                self.jobs.pop_front();
            }
        }
    }

    pub(in crate::responder) fn handle_timeout(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        if ctx.now >= self.ack_due {
            self.ack_due = Instant::FAR_FUTURE;
            self.acks.acknowledge();
        }
        if self.deadline.is_none_or(|deadline| ctx.now < deadline) {
            return;
        }
        self.deadline = None;
        let waited = ctx.now.saturating_since(self.last_progress);
        if conn.patience().is_some_and(|patience| waited >= patience.saturating_mul(GIVE_UP_FACTOR))
            && self.stalls >= u32::from(conn.retry_count)
        {
            // The requester is gone, or has lost patience itself: answering on would never end.
            self.jobs.clear();
            return;
        }
        match self.answers.on_timeout() {
            TimeoutOutcome::Idle => {}
            TimeoutOutcome::Extended(rest) => self.deadline = Some(ctx.now + rest),
            TimeoutOutcome::Resend => {
                ctx.counters.count(Counter::Timeouts);
                self.stalls += 1;
                self.deadline = self.answers.arm_timeout().map(|rto| ctx.now + rto);
            }
        }
    }
}
