//! RC and UC as the specification has them: requests in the order of their PSNs (IBTA §9.7.4, §9.8.2).

use super::deliver::Ending;
use super::{Message, Refusal, Reply, Responder};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::{Order, Plan, Source};
use crate::receive_queue::ReceiveQueue;
use crate::requester::position;
use highwire_verbs::{
    Access, CompletionOp, CompletionStatus, Memory, MemoryLost, Payload, RemoteKey, Sge, scatter,
};
use highwire_wire::{
    Aeth, AtomicEth, Ext, Headers, NakCode, Opcode, Operation, Position, Psn, Reth, Syndrome,
};

/// UC: packets that come so much too late are dropped. The specification would begin a message anew with each of them, and
/// so run one twice if the network doubles packets. Who lost more than this in a row is ahead again, not late.
const UC_LATE_MAX: u32 = 1 << 16;

impl Responder {
    #[inline]
    pub(super) fn handle_rc<P: Payload>(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        let psn = headers.bth.psn;
        match psn.distance_from(self.expected) {
            0 => {}
            ..0 => return self.on_duplicate(conn, ctx, headers),
            _ => return self.on_gap(ctx),
        }
        match self.execute(conn, own, ctx, headers, payload, memory) {
            Ok(psns) => {
                self.expected = psn.add(psns);
                self.nak_sent = false;
                let answered = matches!(self.replies.back(),
                    Some(Reply::Read { psn: p, .. } | Reply::Atomic { psn: p, .. }) if *p == psn);
                if headers.bth.ack_request && !answered {
                    self.acknowledge(psn);
                }
            }
            Err(Refusal::Drop(counter)) => ctx.counters.count(counter),
            Err(Refusal::NotReady) => {
                ctx.counters.count(Counter::DroppedNoReceive);
                // The requester comes back to this PSN; what it sent behind it is out of order until then.
                self.nak_sent = true;
                self.refuse(psn, Syndrome::Rnr { timer: conn.min_rnr_timer });
            }
            Err(Refusal::BadReceive) => {
                self.fail_receive(conn, ctx, CompletionStatus::LocalProtection);
                self.refuse(psn, Syndrome::Nak(NakCode::RemoteOperational));
                self.failed = Some(NakCode::RemoteOperational);
            }
            Err(Refusal::Nak(code)) => {
                self.refuse(psn, Syndrome::Nak(code));
                self.failed = Some(code);
            }
            // The peer hears of what came before it, and of no more.
            Err(Refusal::Silence(code)) => {
                self.acknowledge(psn.sub(1));
                self.failed = Some(code);
            }
        }
    }

    /// UC: a gap ends the message, and whatever cannot be executed is dropped silently.
    #[inline]
    pub(super) fn handle_uc<P: Payload>(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        let psn = headers.bth.psn;
        let begins = matches!(headers.bth.opcode.info().position, Position::First | Position::Only);
        if (1..=UC_LATE_MAX).contains(&self.expected.ahead_of(psn)) {
            return ctx.counters.count(Counter::Duplicates);
        }
        if psn != self.expected {
            ctx.counters.count(Counter::OutOfSequence);
            self.message = Message::Skipped;
        }
        self.expected = psn.next();
        if begins {
            self.message = Message::None;
        } else if matches!(self.message, Message::Skipped | Message::None) {
            return ctx.counters.count(Counter::OutOfSequence);
        }
        if let Err(refusal) = self.execute(conn, own, ctx, headers, payload, memory) {
            self.message = Message::Skipped;
            let counter = match refusal {
                Refusal::Drop(counter) => counter,
                Refusal::NotReady => Counter::DroppedNoReceive,
                Refusal::BadReceive => {
                    self.fail_receive(conn, ctx, CompletionStatus::LocalProtection);
                    Counter::DroppedNoReceive
                }
                Refusal::Nak(_) | Refusal::Silence(_) => Counter::DroppedMalformed,
            };
            ctx.counters.count(counter);
        }
    }

    /// Checks and executes one packet; says how many PSNs it takes.
    #[inline]
    fn execute<P: Payload>(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) -> Result<u32, Refusal> {
        let info = headers.bth.opcode.info();
        let begins = matches!(info.position, Position::First | Position::Only);
        let fits = match (info.operation, self.message) {
            (_, Message::None) => begins,
            (Operation::Send, Message::Send { .. }) | (Operation::Write, Message::Write { .. }) => !begins,
            _ => false,
        };
        if !fits || conn.has_no_queue {
            ctx.counters.count(Counter::RefusedRequest);
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        check_length(conn, info.position, payload.len())?;
        match (info.operation, headers.ext) {
            (Operation::Send, _) => self.execute_send(conn, own, ctx, headers, payload, memory)?,
            (Operation::Write, _) => self.execute_write(conn, own, ctx, headers, payload, memory)?,
            (Operation::Read, Ext::Reth(reth)) => return self.execute_read(conn, ctx, headers.bth.psn, reth),
            (Operation::CompareSwap | Operation::FetchAdd, Ext::Atomic(atomic)) => {
                self.execute_atomic(conn, ctx, headers, atomic, memory)?;
            }
            _ => return Err(Refusal::Drop(Counter::DroppedMalformed)),
        }
        Ok(1)
    }

    #[inline]
    fn execute_send<P: Payload>(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) -> Result<(), Refusal> {
        let received = if let Message::Send { received } = self.message { received } else { 0 };
        self.claim(conn, own, ctx, 0)?;
        let wqe = &self.claimed[0];
        let total = u64::from(received) + u64::from(payload.len());
        if total > wqe.capacity.min(u64::from(highwire_verbs::MESSAGE_LENGTH_MAX)) {
            self.message = Message::None;
            self.fail_receive(conn, ctx, CompletionStatus::LocalLength);
            ctx.counters.count(Counter::DroppedTooLong);
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        if !payload.is_empty() {
            scatter(memory, &wqe.sges, received, payload).map_err(|MemoryLost| Refusal::BadReceive)?;
        }
        if !ends(headers) {
            self.message = Message::Send { received: total as u32 };
            return Ok(());
        }
        self.message = Message::None;
        let invalidate = match headers.ext {
            Ext::Invalidate(key) => Some(RemoteKey(key)),
            _ => None,
        };
        self.invalidate(conn, ctx, invalidate)?;
        self.end_message(conn, ctx, headers, CompletionOp::Receive, total as u32, invalidate);
        Ok(())
    }

    /// Carries out the second half of a SEND with invalidate. If it fails, the receive ends in an error and the queue pair with
    /// it, and the peer hears nothing: the message was right, and what it does to this side's keys is no answer that the
    /// protocol has (IBTA §9.9.6.3, responder class J; `RESPST_ERR_INVALIDATE_RKEY` of rdma_rxe).
    pub(super) fn invalidate(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        key: Option<RemoteKey>,
    ) -> Result<(), Refusal> {
        let Some(key) = key else { return Ok(()) };
        ctx.regions.invalidate(conn.config.pd, conn.qpn, key).map_err(|_| {
            ctx.counters.count(Counter::RefusedAccess);
            self.fail_receive(conn, ctx, CompletionStatus::LocalAccess);
            Refusal::Silence(NakCode::RemoteAccess)
        })
    }

    #[inline]
    fn execute_write<P: Payload>(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) -> Result<(), Refusal> {
        if let Ext::Reth(reth) | Ext::RethImm(reth, _) = headers.ext {
            let Reth { va, rkey, length } = reth;
            if length > highwire_verbs::MESSAGE_LENGTH_MAX {
                return Err(Refusal::Nak(NakCode::InvalidRequest));
            }
            let rkey = RemoteKey(rkey);
            let permitted = Self::check_access(conn, ctx, rkey, va, length, Access::REMOTE_WRITE);
            if matches!(headers.ext, Ext::RethImm(..)) {
                self.fail_receive_of_refused(conn, own, ctx, permitted, 0)?;
            }
            let addr = permitted?;
            let checked = ctx.regions.generation();
            self.message = Message::Write { va, rkey, length, received: 0, addr, checked };
        }
        let Message::Write { va, rkey, length, received, mut addr, checked } = self.message else {
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        };
        if checked != ctx.regions.generation() {
            addr = Self::check_access(conn, ctx, rkey, va, length, Access::REMOTE_WRITE)?;
        }
        let total = u64::from(received) + u64::from(payload.len());
        let is_end = ends(headers);
        if total > u64::from(length) || is_end && total != u64::from(length) {
            ctx.counters.count(Counter::RefusedRequest);
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        let has_immediate = matches!(headers.ext, Ext::Imm(_) | Ext::RethImm(..));
        if has_immediate && let Err(refusal) = self.claim(conn, own, ctx, 0) {
            // The packet comes again, as a whole.
            if matches!(headers.ext, Ext::RethImm(..)) {
                self.message = Message::None;
            }
            return Err(refusal);
        }
        if !payload.is_empty() {
            memory.place(addr + u64::from(received), payload).map_err(lost)?;
        }
        if !is_end {
            let received = total as u32;
            let checked = ctx.regions.generation();
            self.message = Message::Write { va, rkey, length, received, addr, checked };
            return Ok(());
        }
        self.message = Message::None;
        if has_immediate {
            self.end_message(conn, ctx, headers, CompletionOp::ReceiveWriteImm, length, None);
        } else {
            self.msn = (self.msn + 1) & 0x00FF_FFFF;
        }
        Ok(())
    }

    fn end_message(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        headers: &Headers,
        operation: CompletionOp,
        byte_len: u32,
        invalidate: Option<RemoteKey>,
    ) {
        self.msn = (self.msn + 1) & 0x00FF_FFFF;
        let immediate = match headers.ext {
            Ext::Imm(imm) | Ext::RethImm(_, imm) => Some(imm),
            _ => None,
        };
        let ending = Ending {
            operation,
            byte_len,
            immediate,
            invalidate,
            solicited: headers.bth.solicited,
            source_qpn: conn.remote_qpn,
        };
        self.complete_receive(conn, ctx, &ending);
    }

    fn execute_read(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        psn: Psn,
        reth: Reth,
    ) -> Result<u32, Refusal> {
        if self.pending(false) >= conn.max_dest_rd_atomic as usize
            || reth.length > highwire_verbs::MESSAGE_LENGTH_MAX
        {
            ctx.counters.count(Counter::RefusedRequest);
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        let rkey = RemoteKey(reth.rkey);
        Self::check_access(conn, ctx, rkey, reth.va, reth.length, Access::REMOTE_READ)?;
        let packets = conn.mtu.packets(reth.length);
        let (va, length) = (reth.va, reth.length);
        let pd = conn.config.pd;
        self.replies.push_back(Reply::Read { psn, pd, va, rkey, length, sent: 0, packets, again: false });
        self.msn = (self.msn + 1) & 0x00FF_FFFF;
        Ok(packets)
    }

    fn execute_atomic<P: Payload>(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        headers: &Headers,
        atomic: AtomicEth,
        memory: &mut impl Memory<P>,
    ) -> Result<(), Refusal> {
        let psn = headers.bth.psn;
        if self.pending(false) >= conn.max_dest_rd_atomic as usize {
            ctx.counters.count(Counter::RefusedRequest);
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        let is_swap = headers.bth.opcode.info().operation == Operation::CompareSwap;
        let original = Self::run_atomic(conn, ctx, is_swap, atomic, memory)?;
        self.replies.push_back(Reply::Atomic { psn, original, again: false });
        if self.atomics.len() >= conn.max_dest_rd_atomic.max(1) as usize {
            self.atomics.pop_front();
        }
        self.atomics.push_back((psn, original));
        self.msn = (self.msn + 1) & 0x00FF_FFFF;
        Ok(())
    }

    /// Checks and executes an atomic.
    pub(super) fn run_atomic<P: Payload>(
        conn: &Connection,
        ctx: &mut Context<'_>,
        is_swap: bool,
        atomic: AtomicEth,
        memory: &mut impl Memory<P>,
    ) -> Result<u64, Refusal> {
        if !atomic.va.is_multiple_of(8) {
            ctx.counters.count(Counter::RefusedRequest);
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        let addr =
            Self::check_access(conn, ctx, RemoteKey(atomic.rkey), atomic.va, 8, Access::REMOTE_ATOMIC)?;
        if !addr.is_multiple_of(8) {
            // A region may begin anywhere; what its first address is called says nothing about where it lies.
            ctx.counters.count(Counter::RefusedRequest);
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        let was = if is_swap {
            memory.compare_swap(addr, atomic.compare, atomic.swap_or_add)
        } else {
            memory.fetch_add(addr, atomic.swap_or_add)
        };
        was.map_err(lost)
    }

    fn on_gap(&mut self, ctx: &mut Context<'_>) {
        ctx.counters.count(Counter::OutOfSequence);
        // One NAK per gap (IBTA §9.7.5.2.8).
        if !self.nak_sent {
            self.nak_sent = true;
            self.refuse(self.expected, Syndrome::Nak(NakCode::PsnSequence));
        }
    }

    /// Something that was executed comes again (IBTA §9.7.5.1.3).
    fn on_duplicate(&mut self, conn: &Connection, ctx: &mut Context<'_>, headers: &Headers) {
        ctx.counters.count(Counter::Duplicates);
        let psn = headers.bth.psn;
        match (headers.bth.opcode.info().operation, headers.ext) {
            (Operation::Read, Ext::Reth(Reth { va, rkey, length })) => {
                let rkey = RemoteKey(rkey);
                let packets = conn.mtu.packets(length);
                let is_past = psn.add(packets).distance_from(self.expected) <= 0;
                let refused = Self::check_access(conn, ctx, rkey, va, length, Access::REMOTE_READ).is_err();
                if !is_past || refused || length > highwire_verbs::MESSAGE_LENGTH_MAX {
                    return;
                }
                // The requester went back to this READ; whatever was to follow it will be asked for again.
                self.drop_replies_from(psn);
                let pd = conn.config.pd;
                self.answer_again(
                    conn,
                    Reply::Read { psn, pd, va, rkey, length, sent: 0, packets, again: true },
                );
            }
            (Operation::CompareSwap | Operation::FetchAdd, _) => {
                if let Some(&(_, original)) = self.atomics.iter().find(|(at, _)| *at == psn) {
                    self.drop_replies_from(psn);
                    self.answer_again(conn, Reply::Atomic { psn, original, again: true });
                }
            }
            // Executed, not acknowledged as far as the requester knows: acknowledge everything so far.
            _ => self.acknowledge(self.expected.sub(1)),
        }
    }

    /// How many READs and atomics wait for their answer, those that were asked for before or those that were not.
    fn pending(&self, repeated: bool) -> usize {
        let is_counted = |reply: &&Reply| match reply {
            Reply::Ack { .. } => false,
            Reply::Read { again, .. } | Reply::Atomic { again, .. } => *again == repeated,
        };
        self.replies.iter().filter(is_counted).count()
    }

    /// Answers once more; beyond what an honest requester can want, it has to ask again.
    fn answer_again(&mut self, conn: &Connection, reply: Reply) {
        if self.pending(true) < conn.max_dest_rd_atomic as usize {
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
    fn acknowledge(&mut self, psn: Psn) {
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

    /// The next packet of the oldest answer.
    pub(super) fn poll_standard_reply(
        &mut self,
        conn: &Connection,
        own: &ReceiveQueue,
        ctx: &mut Context<'_>,
        plan: &mut Plan,
    ) -> bool {
        let aeth = Aeth { syndrome: Syndrome::Ack { credits: self.credits(conn, own) }, msn: self.msn };
        let Some(reply) = self.replies.front_mut() else { return false };
        match reply {
            Reply::Ack { .. } => return false,
            &mut Reply::Atomic { psn, original, .. } => {
                self.replies.pop_front();
                let ext = Ext::AtomicAck(aeth, original);
                plan.bare(Opcode::RcAtomicAck, conn.remote_qpn, psn, ext, Order::Strict);
            }
            Reply::Read { psn, pd, va, rkey, length, sent, packets, .. } => {
                let (psn, pd, va, rkey, length, packet) = (*psn, *pd, *va, *rkey, *length, *sent);
                *sent += 1;
                let total = conn.mtu.packets(length);
                if *sent == *packets {
                    self.replies.pop_front();
                }
                let offset = packet * conn.mtu.bytes();
                let size = (length - offset).min(conn.mtu.bytes());
                let Ok(addr) = Self::check_access_in(
                    conn,
                    pd,
                    ctx,
                    rkey,
                    va.wrapping_add(u64::from(offset)),
                    size,
                    Access::REMOTE_READ,
                ) else {
                    // The key went away while the answer was under way.
                    self.replies.clear();
                    self.refuse(psn.add(packet), Syndrome::Nak(NakCode::RemoteAccess));
                    self.failed = Some(NakCode::RemoteAccess);
                    return false;
                };
                self.read_span = [Sge { addr, length: size, ..Sge::default() }];
                let (opcode, ext) = match position(packet, total) {
                    Position::First => (Opcode::RcReadResponseFirst, Ext::Aeth(aeth)),
                    Position::Middle => (Opcode::RcReadResponseMiddle, Ext::None),
                    Position::Last => (Opcode::RcReadResponseLast, Ext::Aeth(aeth)),
                    Position::Only | Position::Any => (Opcode::RcReadResponseOnly, Ext::Aeth(aeth)),
                };
                plan.bare(opcode, conn.remote_qpn, psn.add(packet), ext, Order::Strict);
                plan.carry(Source::Read, 0, size);
            }
        }
        true
    }
}

/// The region is registered, and its memory is not there (IBTA §9.9.6.2: a malfunction at the responder).
pub(super) fn lost(_: MemoryLost) -> Refusal {
    Refusal::Nak(NakCode::RemoteOperational)
}

/// Every packet but the last is full (IBTA §9.7.4.1.6).
#[inline]
fn check_length(conn: &Connection, position: Position, length: u32) -> Result<(), Refusal> {
    let mtu = conn.mtu.bytes();
    let fits = match position {
        Position::First | Position::Middle => length == mtu,
        Position::Last => (1..=mtu).contains(&length),
        Position::Only | Position::Any => length <= mtu,
    };
    if fits { Ok(()) } else { Err(Refusal::Nak(NakCode::InvalidRequest)) }
}

#[inline]
fn ends(headers: &Headers) -> bool {
    matches!(headers.bth.opcode.info().position, Position::Last | Position::Only)
}
