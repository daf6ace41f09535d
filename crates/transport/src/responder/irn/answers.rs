//! Answers to READs and atomics: sent in a PSN space of their own, repaired and timed by this side (rPSN, IRN §5.2, §5.4).

use super::super::{Refusal, Responder};
use super::{Answer, Body};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::irn::TimeoutOutcome;
use crate::plan::{Order, Plan, Source};
use crate::receive_queue::ReceiveQueue;
use highwire_stdx::Instant;
use highwire_verbs::{Access, RemoteKey, Sge};
use highwire_wire::{Aeth, Ext, IrnEth, IrnFlags, NakCode, Opcode, Psn, SackEth, Syndrome};

/// A responder answers for so much longer than a requester waits: what it knows of the requester's progress comes in
/// acknowledgements, which may be lost while answers arrive.
const GIVE_UP_FACTOR: u64 = 4;

/// No requester can ask for more at once: `max_rd_atomic` is a byte.
const RD_ATOMIC_MAX: u32 = u8::MAX as u32;

impl Responder {
    pub(super) fn answer(&mut self, sn: u32, packets: u32, body: Body) {
        let Some(irn) = &mut self.irn else { return };
        // Asking for number n, the requester says that it has everything up to n minus the number that it asks for at once:
        // its acknowledgement of that may still be under way, or lost. That number is its own, not what it was granted.
        while let Some(job) = irn.jobs.front() {
            if Psn::new(sn).ahead_of(Psn::new(job.sn)) < RD_ATOMIC_MAX {
                break;
            }
            let end = job.first.add(job.packets);
            if irn.answers.first_unacknowledged().is_before(end) {
                irn.answers.on_ack(end);
            }
            irn.jobs.pop_front();
        }
        irn.jobs.push_back(Answer { sn, first: irn.next_answer, packets, body });
        irn.next_answer = irn.next_answer.add(packets);
    }

    /// None of the answers that are under way will be given: the peer is told why.
    pub(in crate::responder) fn give_up_answers(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        why: NakCode,
    ) {
        let Some(irn) = &mut self.irn else { return };
        let next = irn.window.next_expected();
        irn.jobs.clear();
        self.refuse_irn(conn, ctx, next, Refusal::Nak(why));
    }

    /// The next packet of an answer: one to resend, or a new one.
    pub(in crate::responder) fn poll_irn_reply(
        &mut self,
        conn: &Connection,
        own: &ReceiveQueue,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) -> bool {
        if self.irn.as_ref().is_none_or(|irn| irn.jobs.is_empty()) {
            return false;
        }
        let aeth = Aeth { syndrome: Syndrome::Ack { credits: self.credits(conn, own) }, msn: self.msn };
        let Some(irn) = &mut self.irn else { return false };
        let (psn, again) = match irn.answers.poll_retransmit() {
            Some(psn) => (psn, true),
            None if irn.answers.next_to_send() != irn.next_answer && irn.answers.can_send_new() => {
                (irn.answers.on_send_new(), false)
            }
            None => return false,
        };
        if again {
            ctx.counters.count(Counter::Retransmitted);
        }
        if irn.deadline.is_none() {
            irn.last_progress = ctx.now;
            irn.stalls = 0;
            irn.deadline = irn.answers.arm_timeout().map(|rto| ctx.now + rto);
        }
        let Some(&job) = irn.jobs.iter().find(|job| psn.ahead_of(job.first) < job.packets) else {
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
                plan.bare(Opcode::IrnAtomicResponse, conn.remote_qpn, psn, ext, Order::Strict);
            }
            Body::Read(reth) => {
                let offset = packet * conn.mtu.bytes();
                let size = (reth.length - offset).min(conn.mtu.bytes());
                let va = reth.va.wrapping_add(u64::from(offset));
                let access = Access::REMOTE_READ;
                let Ok(addr) = Self::check_access(conn, ctx, RemoteKey(reth.rkey), va, size, access) else {
                    // The key went away while the answer was under way.
                    self.give_up_answers(conn, ctx, NakCode::RemoteAccess);
                    return false;
                };
                self.read_span = [Sge { addr, length: size, ..Sge::default() }];
                let ext = Ext::IrnReadResponse(header, aeth);
                plan.bare(Opcode::IrnReadResponse, conn.remote_qpn, psn, ext, Order::Strict);
                plan.carry(Source::Read, 0, size);
            }
        }
        true
    }

    /// The requester acknowledges answers (IRN §5.2).
    pub(crate) fn on_read_ack(&mut self, ctx: &mut Context<'_>, cumulative: Psn, sack: Option<SackEth>) {
        let Some(irn) = &mut self.irn else { return ctx.counters.count(Counter::DroppedStale) };
        let outcome = match sack {
            Some(sack) => irn.answers.on_nack(cumulative, sack.psn, u32::from(sack.count)),
            None => irn.answers.on_ack(cumulative),
        };
        if outcome.newly_acked > 0 {
            irn.last_progress = ctx.now;
            irn.stalls = 0;
            irn.deadline = irn.answers.arm_timeout().map(|rto| ctx.now + rto);
            let reached = irn.answers.first_unacknowledged();
            while irn.jobs.front().is_some_and(|job| job.first.add(job.packets).distance_from(reached) <= 0) {
                irn.jobs.pop_front();
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        let Some(irn) = &mut self.irn else { return };
        if ctx.now >= irn.ack_due {
            irn.ack_due = Instant::FAR_FUTURE;
            irn.acks.acknowledge();
        }
        if irn.deadline.is_none_or(|deadline| ctx.now < deadline) {
            return;
        }
        irn.deadline = None;
        let waited = ctx.now.saturating_since(irn.last_progress);
        if conn.patience().is_some_and(|patience| waited >= patience.saturating_mul(GIVE_UP_FACTOR))
            && irn.stalls >= u32::from(conn.retry_count)
        {
            // The requester is gone, or has lost patience itself: answering on would never end.
            irn.jobs.clear();
            return;
        }
        match irn.answers.on_timeout() {
            TimeoutOutcome::Idle => {}
            TimeoutOutcome::Extended(rest) => irn.deadline = Some(ctx.now + rest),
            TimeoutOutcome::Resend => {
                ctx.counters.count(Counter::Timeouts);
                irn.stalls += 1;
                irn.deadline = irn.answers.arm_timeout().map(|rto| ctx.now + rto);
            }
        }
    }
}
