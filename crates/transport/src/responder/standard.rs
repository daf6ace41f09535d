//! RC and UC as the specification has them: requests in the order of their PSNs (IBTA §9.7.4, §9.8.2).
//!
//! The module `answers` handles acknowledgements, responses and duplicates.

mod answers;

use super::deliver::{Ending, lost};
use super::table::{self, Action, Arrival, Kind, Progress};
use super::{Common, Refusal, Request, Turn};
use crate::connection::Connection;
use crate::counters::Counter;
use answers::Reply;
use highwire_verbs::{
    Access, CompletionOp, CompletionStatus, Memory, MemoryLost, Payload, RemoteKey, scatter,
};
use highwire_wire::{AtomicEth, Ext, Headers, NakCode, Operation, Position, Psn, Reth, Syndrome};
use std::collections::VecDeque;

/// UC: packets that come so much too late are dropped. The specification would begin a message anew with each of them, and
/// so run one twice if the network doubles packets. A packet that seems later than this is ahead instead: more packets than
/// that were lost in a row.
const UC_LATE_MAX: u32 = 1 << 16;

/// A responder's state while requests come in the order of their PSNs.
#[derive(Clone, Debug)]
pub(super) struct Standard {
    expected: Psn,
    message: Message,
    /// A gap was reported and is not closed.
    nak_sent: bool,
    replies: VecDeque<Reply>,
    /// The results of the last atomics, for requesters that did not get them (IBTA §9.7.5.1.3).
    atomics: VecDeque<(Psn, u64)>,
    /// RC: a request was executed, so this direction stays standard.
    has_executed: bool,
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

impl Message {
    #[inline]
    fn progress(&self) -> Progress {
        match self {
            Message::None => Progress::Between,
            Message::Send { .. } => Progress::InSend,
            Message::Write { .. } => Progress::InWrite,
            Message::Skipped => Progress::Skipping,
        }
    }
}

impl Standard {
    pub(super) fn new(rq_psn: Psn) -> Standard {
        Standard {
            expected: rq_psn,
            message: Message::None,
            nak_sent: false,
            replies: VecDeque::new(),
            atomics: VecDeque::new(),
            has_executed: false,
        }
    }

    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    pub(super) fn has_executed(&self) -> bool {
        self.has_executed
    }

    /// Drops messages and answers that have begun. A NAK that has not left yet may still leave: it tells the peer why.
    pub(super) fn flush(&mut self) {
        self.message = Message::None;
        self.replies.retain(Reply::is_nak);
    }

    #[inline]
    pub(super) fn handle_rc<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        request: Request<'_, P>,
        memory: &mut impl Memory<P>,
    ) {
        let headers = request.headers;
        let psn = headers.bth.psn;
        let arrival = match psn.distance_from(self.expected) {
            0 => Arrival::InOrder,
            ..0 => Arrival::Again,
            _ => Arrival::AfterGap,
        };
        let kind = Kind::of(headers.bth.opcode.info());
        let executed = match table::reliable(arrival, self.message.progress(), kind) {
            Action::Execute => self.execute(common, turn, request, memory),
            Action::ReportGap => {
                common.unexpected = Some(psn);
                return self.on_gap(turn);
            }
            again @ (Action::Acknowledge | Action::AnswerAgain) => {
                common.unexpected = Some(psn);
                return self.on_duplicate(turn, headers, again);
            }
            _ => Err(turn.refuse_request()),
        };
        match executed {
            Ok(psns) => {
                self.expected = psn.add(psns);
                self.has_executed = true;
                self.nak_sent = false;
                let is_answered = self.replies.back().is_some_and(|reply| reply.is_answer_to(psn));
                if headers.bth.ack_request && !is_answered {
                    self.acknowledge(psn);
                }
            }
            Err(Refusal::Drop(counter)) => turn.ctx.counters.count(counter),
            Err(Refusal::NotReady) => {
                turn.ctx.counters.count(Counter::DroppedNoReceive);
                // The requester will go back to this PSN; packets behind it are out of order until then.
                self.nak_sent = true;
                self.refuse(psn, Syndrome::Rnr { timer: turn.conn.min_rnr_timer });
            }
            Err(Refusal::BadReceive) => {
                common.fail_receive(turn, CompletionStatus::LocalProtection);
                self.refuse(psn, Syndrome::Nak(NakCode::RemoteOperational));
                common.failed = Some(NakCode::RemoteOperational);
            }
            Err(Refusal::Nak(code)) => {
                self.refuse(psn, Syndrome::Nak(code));
                common.failed = Some(code);
            }
            // The peer gets an acknowledgement of the requests before it, and no NAK.
            Err(Refusal::Silence(code)) => {
                self.acknowledge(psn.sub(1));
                common.failed = Some(code);
            }
        }
    }

    /// Of a request the headers alone have arrived: as if the next one had come before it.
    pub(super) fn handle_trimmed(&mut self, turn: &mut Turn<'_, '_>, headers: &Headers) {
        if headers.bth.psn.is_before(self.expected) {
            return self.on_duplicate(turn, headers, Action::Acknowledge);
        }
        self.on_gap(turn);
    }

    /// UC: a gap ends the message, and a packet that cannot be executed is dropped silently.
    #[inline]
    pub(super) fn handle_uc<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        request: Request<'_, P>,
        memory: &mut impl Memory<P>,
    ) {
        let headers = request.headers;
        let psn = headers.bth.psn;
        let arrival = match self.expected.ahead_of(psn) {
            0 => Arrival::InOrder,
            1..=UC_LATE_MAX => Arrival::Again,
            _ => Arrival::AfterGap,
        };
        let kind = Kind::of(headers.bth.opcode.info());
        let action = table::unreliable(arrival, self.message.progress(), kind);
        if action == Action::Drop {
            return turn.ctx.counters.count(Counter::Duplicates);
        }
        if arrival == Arrival::AfterGap {
            turn.ctx.counters.count(Counter::OutOfSequence);
            self.message = Message::Skipped;
        }
        self.expected = psn.next();
        let executed = match action {
            Action::Skip => return turn.ctx.counters.count(Counter::OutOfSequence),
            Action::Begin => {
                self.message = Message::None;
                self.execute(common, turn, request, memory)
            }
            Action::Execute => self.execute(common, turn, request, memory),
            _ => Err(turn.refuse_request()),
        };
        if let Err(refusal) = executed {
            self.message = Message::Skipped;
            let counter = match refusal {
                Refusal::Drop(counter) => counter,
                Refusal::NotReady => Counter::DroppedNoReceive,
                Refusal::BadReceive => {
                    common.fail_receive(turn, CompletionStatus::LocalProtection);
                    Counter::DroppedNoReceive
                }
                Refusal::Nak(_) | Refusal::Silence(_) => Counter::DroppedMalformed,
            };
            turn.ctx.counters.count(counter);
        }
    }

    /// Checks and executes one packet; says how many PSNs it takes.
    #[inline]
    fn execute<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        request: Request<'_, P>,
        memory: &mut impl Memory<P>,
    ) -> Result<u32, Refusal> {
        let headers = request.headers;
        let info = headers.bth.opcode.info();
        if turn.conn.has_no_queue {
            return Err(turn.refuse_request());
        }
        check_length(turn.conn, info.position, request.payload.len())?;
        match (info.operation, headers.ext) {
            (Operation::Send, _) => self.execute_send(common, turn, request, memory)?,
            (Operation::Write, _) => self.execute_write(common, turn, request, memory)?,
            (Operation::Read, Ext::Reth(reth)) => {
                return self.execute_read(common, turn, headers.bth.psn, reth);
            }
            (Operation::CompareSwap | Operation::FetchAdd, Ext::Atomic(atomic)) => {
                self.execute_atomic(common, turn, headers, atomic, memory)?;
            }
            _ => return Err(Refusal::Drop(Counter::DroppedMalformed)),
        }
        Ok(1)
    }

    #[inline]
    fn execute_send<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        request: Request<'_, P>,
        memory: &mut impl Memory<P>,
    ) -> Result<(), Refusal> {
        let Request { headers, payload, .. } = request;
        let received = if let Message::Send { received } = self.message { received } else { 0 };
        common.claim(turn, 0)?;
        let wqe = &common.claimed[0];
        let total = u64::from(received) + u64::from(payload.len());
        if total > wqe.capacity.min(u64::from(highwire_verbs::MESSAGE_LENGTH_MAX)) {
            self.message = Message::None;
            common.fail_receive(turn, CompletionStatus::LocalLength);
            turn.ctx.counters.count(Counter::DroppedTooLong);
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
        common.invalidate(turn, invalidate)?;
        end_message(common, turn, headers, CompletionOp::Receive, total as u32, invalidate);
        Ok(())
    }

    #[inline]
    fn execute_write<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        request: Request<'_, P>,
        memory: &mut impl Memory<P>,
    ) -> Result<(), Refusal> {
        let Request { headers, payload, .. } = request;
        if let Ext::Reth(reth) | Ext::RethImm(reth, _) = headers.ext {
            let Reth { va, rkey, length } = reth;
            if length > highwire_verbs::MESSAGE_LENGTH_MAX {
                return Err(Refusal::Nak(NakCode::InvalidRequest));
            }
            let rkey = RemoteKey(rkey);
            let permitted = turn.check_access(rkey, va, length, Access::REMOTE_WRITE);
            if matches!(headers.ext, Ext::RethImm(..)) {
                common.fail_receive_of_refused(turn, permitted, 0)?;
            }
            let addr = permitted?;
            let checked = turn.ctx.regions.generation();
            self.message = Message::Write { va, rkey, length, received: 0, addr, checked };
        }
        let Message::Write { va, rkey, length, received, mut addr, checked } = self.message else {
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        };
        if checked != turn.ctx.regions.generation() {
            addr = turn.check_access(rkey, va, length, Access::REMOTE_WRITE)?;
        }
        let total = u64::from(received) + u64::from(payload.len());
        let is_end = ends(headers);
        if total > u64::from(length) || is_end && total != u64::from(length) {
            return Err(turn.refuse_request());
        }
        let has_immediate = matches!(headers.ext, Ext::Imm(_) | Ext::RethImm(..));
        if has_immediate && let Err(refusal) = common.claim(turn, 0) {
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
            let checked = turn.ctx.regions.generation();
            self.message = Message::Write { va, rkey, length, received, addr, checked };
            return Ok(());
        }
        self.message = Message::None;
        if has_immediate {
            end_message(common, turn, headers, CompletionOp::ReceiveWriteImm, length, None);
        } else {
            common.count_message();
        }
        Ok(())
    }

    fn execute_read(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        psn: Psn,
        reth: Reth,
    ) -> Result<u32, Refusal> {
        let Reth { va, rkey, length } = reth;
        if !self.has_place(turn) || length > highwire_verbs::MESSAGE_LENGTH_MAX {
            return Err(turn.refuse_request());
        }
        let (rkey, pd) = (RemoteKey(rkey), turn.conn.config.pd);
        turn.check_access(rkey, va, length, Access::REMOTE_READ)?;
        let packets = turn.conn.mtu.packets(length);
        self.replies.push_back(Reply::Read { psn, pd, va, rkey, length, sent: 0, packets, again: false });
        common.count_message();
        Ok(packets)
    }

    fn execute_atomic<P: Payload>(
        &mut self,
        common: &mut Common,
        turn: &mut Turn<'_, '_>,
        headers: &Headers,
        atomic: AtomicEth,
        memory: &mut impl Memory<P>,
    ) -> Result<(), Refusal> {
        let psn = headers.bth.psn;
        if !self.has_place(turn) {
            return Err(turn.refuse_request());
        }
        let is_swap = headers.bth.opcode.info().operation == Operation::CompareSwap;
        let original = turn.run_atomic(is_swap, atomic, memory)?;
        self.replies.push_back(Reply::Atomic { psn, original, again: false });
        if self.atomics.len() >= turn.conn.max_dest_rd_atomic.max(1) as usize {
            self.atomics.pop_front();
        }
        self.atomics.push_back((psn, original));
        common.count_message();
        Ok(())
    }

    /// Whether the peer may have one more READ or atomic answered.
    fn has_place(&self, turn: &Turn<'_, '_>) -> bool {
        self.pending(false) < turn.conn.max_dest_rd_atomic as usize
    }
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

/// The message is whole: counts it, and fills its receive.
fn end_message(
    common: &mut Common,
    turn: &mut Turn<'_, '_>,
    headers: &Headers,
    operation: CompletionOp,
    byte_len: u32,
    invalidate: Option<RemoteKey>,
) {
    common.count_message();
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
        source_qpn: turn.conn.remote_qpn,
    };
    common.complete_receive(turn, &ending);
}
