//! A single packet, without regard to the order: it is checked, and its data is placed.

use super::super::deliver::{Ending, lost};
use super::super::{Common, Refusal, Request, Turn};
use super::{Answer, Deferred, Irn};
use crate::connection::Connection;
use crate::counters::Counter;
use crate::irn::{IrnConfig, Location, PacketClass};
use crate::receive_queue::ReceiveQueue;
use highwire_verbs::{
    Access, CompletionOp, CompletionStatus, Memory, MemoryLost, Payload, RemoteKey, scatter,
};
use highwire_wire::{AtomicEth, Ext, IrnEth, NakCode, Operation, Psn, Reth};

/// The result of a single packet.
pub(super) struct Taken {
    pub(super) class: PacketClass,
    pub(super) then: Option<Deferred>,
}

/// The message that a packet is a part of, according to its headers.
#[derive(Clone, Copy)]
struct Part {
    eth: IrnEth,
    location: Location,
    immediate: Option<u32>,
    invalidate: Option<RemoteKey>,
}

impl Part {
    /// Where in the message its data begins, in bytes.
    #[inline]
    fn offset(&self, conn: &Connection) -> u64 {
        u64::from(self.eth.offset()) * u64::from(conn.mtu.bytes())
    }

    /// The effect of the message's end on its receive.
    fn ending<P>(
        &self,
        turn: &Turn<'_, '_>,
        request: &Request<'_, P>,
        op: CompletionOp,
        len: u32,
    ) -> Deferred {
        Deferred::Receive(Ending {
            operation: op,
            byte_len: len,
            immediate: self.immediate,
            invalidate: self.invalidate,
            solicited: request.headers.bth.solicited,
            source_qpn: turn.conn.remote_qpn,
        })
    }
}

impl Irn {
    /// Checks a packet and places its data.
    #[inline]
    pub(super) fn take<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        request: Request<'_, P>,
        memory: &mut impl Memory<P>,
        location: Location,
    ) -> Result<Taken, Refusal> {
        let part = |eth| Part { eth, location, immediate: None, invalidate: None };
        match request.headers.ext {
            Ext::IrnSend(eth) | Ext::IrnSendAck(eth, ..) => {
                self.take_send(common, turn, request, part(eth), memory)
            }
            Ext::IrnSendImm(eth, imm) => {
                let part = Part { immediate: Some(imm), ..part(eth) };
                self.take_send(common, turn, request, part, memory)
            }
            Ext::IrnSendInvalidate(eth, key) => {
                let part = Part { invalidate: Some(RemoteKey(key)), ..part(eth) };
                self.take_send(common, turn, request, part, memory)
            }
            Ext::IrnWrite(eth, reth) | Ext::IrnWriteAck(eth, reth, ..) => {
                self.take_write(common, turn, request, part(eth), reth, memory)
            }
            Ext::IrnWriteImm(eth, reth, imm) => {
                let part = Part { immediate: Some(imm), ..part(eth) };
                self.take_write(common, turn, request, part, reth, memory)
            }
            Ext::IrnRead(eth, reth) => self.take_read(turn, eth, reth),
            Ext::IrnAtomic(eth, atomic) => {
                let is_swap = request.headers.bth.opcode.info().operation == Operation::CompareSwap;
                self.take_atomic(turn, eth, is_swap, atomic)
            }
            _ => Err(Refusal::Drop(Counter::DroppedMalformed)),
        }
    }

    /// Which of the receives that are not completed a recv_WQE_SN means.
    fn receive_index(&self, conn: &Connection, eth: IrnEth) -> Result<usize, Refusal> {
        let ahead = Psn::new(eth.wqe_sn()).ahead_of(Psn::new(self.recv_sn));
        // No more messages than packets can be in flight.
        if ahead >= conn.transport.irn.cap.max(IrnConfig::WINDOW_PACKETS_MIN) {
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        Ok(ahead as usize)
    }

    #[inline]
    fn take_send<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        request: Request<'_, P>,
        part: Part,
        memory: &mut impl Memory<P>,
    ) -> Result<Taken, Refusal> {
        let is_last = part.eth.is_last();
        let length = request.payload.len();
        check_length(turn.conn, is_last, length)?;
        let index = self.receive_index(turn.conn, part.eth)?;
        if part.location == Location::Early && !can_claim(common, turn, index) {
            return Err(Refusal::NotReady);
        }
        common.claim(turn, index)?;
        let wqe = &common.claimed[index];
        let offset = part.offset(turn.conn);
        let total = offset + u64::from(length);
        if total > wqe.capacity.min(u64::from(highwire_verbs::MESSAGE_LENGTH_MAX)) {
            if part.location == Location::Next {
                turn.ctx.counters.count(Counter::DroppedTooLong);
                common.fail_receive(turn, CompletionStatus::LocalLength);
            }
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        let then = is_last.then(|| part.ending(turn, &request, CompletionOp::Receive, total as u32));
        if length > 0 {
            scatter(memory, &wqe.sges, offset as u32, request.payload)
                .map_err(|MemoryLost| Refusal::BadReceive)?;
        }
        let class = if is_last { PacketClass::LastWithCompletion } else { PacketClass::Middle };
        Ok(Taken { class, then })
    }

    #[inline]
    fn take_write<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        request: Request<'_, P>,
        part: Part,
        reth: Reth,
        memory: &mut impl Memory<P>,
    ) -> Result<Taken, Refusal> {
        let is_last = part.eth.is_last();
        let length = request.payload.len();
        check_length(turn.conn, is_last, length)?;
        let offset = part.offset(turn.conn);
        let end = offset + u64::from(length);
        if end > u64::from(reth.length)
            || is_last != (end == u64::from(reth.length))
            || reth.length > highwire_verbs::MESSAGE_LENGTH_MAX
        {
            return Err(turn.refuse_request());
        }
        let permitted = turn.check_access(RemoteKey(reth.rkey), reth.va, reth.length, Access::REMOTE_WRITE);
        let is_filling = part.immediate.is_some();
        if is_filling {
            let index = self.receive_index(turn.conn, part.eth)?;
            common.fail_receive_of_refused(turn, permitted, index)?;
            if permitted.is_ok() {
                common.claim(turn, index)?;
            }
        }
        let addr = permitted?;
        let operation = CompletionOp::ReceiveWriteImm;
        let (class, then) = match (is_last, is_filling) {
            (false, _) => (PacketClass::Middle, None),
            (true, false) => (PacketClass::Last, Some(Deferred::Nothing)),
            (true, true) => {
                (PacketClass::LastWithCompletion, Some(part.ending(turn, &request, operation, reth.length)))
            }
        };
        if length > 0 {
            memory.place(addr + offset, request.payload).map_err(lost)?;
        }
        Ok(Taken { class, then })
    }

    /// The Read WQE buffer has as many places as the peer may ask at once (IRN §5.3.2). An answer that has left makes room:
    /// only the requester knows whether it arrived, and one that asks for no more than it may has it.
    fn has_read_place(&self, conn: &Connection) -> bool {
        let needs_answer =
            |(_, what): &&(Psn, Deferred)| matches!(what, Deferred::Read { .. } | Deferred::Atomic { .. });
        let sent = self.answers.next_to_send();
        let is_unsent = |job: &&Answer| sent.is_before(job.first.add(job.packets));
        let waiting = self.early.iter().filter(needs_answer).count();
        waiting + self.jobs.iter().filter(is_unsent).count() < conn.max_dest_rd_atomic as usize
    }

    fn take_read(&self, turn: &mut Turn<'_, '_>, eth: IrnEth, reth: Reth) -> Result<Taken, Refusal> {
        if reth.length > highwire_verbs::MESSAGE_LENGTH_MAX || !self.has_read_place(turn.conn) {
            return Err(turn.refuse_request());
        }
        turn.check_access(RemoteKey(reth.rkey), reth.va, reth.length, Access::REMOTE_READ)?;
        Ok(Taken { class: PacketClass::Last, then: Some(Deferred::Read { sn: eth.wqe_sn(), reth }) })
    }

    fn take_atomic(
        &self,
        turn: &mut Turn<'_, '_>,
        eth: IrnEth,
        is_swap: bool,
        atomic: AtomicEth,
    ) -> Result<Taken, Refusal> {
        if !atomic.va.is_multiple_of(8) {
            return Err(turn.refuse_misaligned(&atomic));
        }
        if !self.has_read_place(turn.conn) {
            return Err(turn.refuse_request());
        }
        turn.check_access(RemoteKey(atomic.rkey), atomic.va, 8, Access::REMOTE_ATOMIC)?;
        let then = Deferred::Atomic { sn: eth.wqe_sn(), is_swap, atomic };
        Ok(Taken { class: PacketClass::Last, then: Some(then) })
    }
}

/// Whether receive number `index` can be claimed. Unlike a claim, this fails without an RNR NAK or an error.
fn can_claim(common: &Common, turn: &Turn<'_, '_>, index: usize) -> bool {
    let waiting = match turn.conn.config.srq {
        Some(srq) => turn.ctx.shared.get(srq.0).map_or(0, ReceiveQueue::len),
        None => turn.receives.len(),
    };
    common.claimed.len() + waiting as usize > index
}

/// Every packet but the last is full, and only an empty message has an empty packet.
#[inline]
fn check_length(conn: &Connection, is_last: bool, length: u32) -> Result<(), Refusal> {
    let mtu = conn.mtu.bytes();
    let fits = if is_last { length <= mtu } else { length == mtu };
    if fits { Ok(()) } else { Err(Refusal::Nak(NakCode::InvalidRequest)) }
}
