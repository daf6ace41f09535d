//! Work that the driver does at once and past the queue: operations in a peer's memory that it can reach, and
//! datagrams.

use super::QueuePair;
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::{Order, Outgoing};
use crate::requester;
use highwire_verbs::{CompletionStatus, Gather, QpState, SendWr, Service, SgeList};

/// An operation that the driver carries out in the peer's memory itself, because it can reach it.
#[derive(Clone, Debug)]
pub struct DirectOp {
    /// As posted.
    pub wr_id: u64,
    /// WRITE, READ or an atomic.
    pub operation: highwire_verbs::Operation,
    /// Local memory, already translated.
    pub sges: SgeList,
    /// Bytes.
    pub length: u32,
    signaled: bool,
    /// Earlier requests are not acknowledged (UC), so their packets may still be under way.
    pub is_after_unacknowledged: bool,
}

impl QueuePair {
    /// Whether an operation may be carried out by the driver in the peer's memory, and with which local memory.
    ///
    /// Only while every earlier request is finished, so that none can be overtaken. On RC a finished request
    /// has arrived at the peer. On UC it has only left, and may wait at the peer for a receive: so only
    /// WRITEs may take this way, only after nothing but WRITEs, and the driver must not let them overtake
    /// those (`is_after_unacknowledged`). With `None` the request takes the ordinary way, which also reports
    /// any error.
    #[inline]
    pub fn begin_direct(&mut self, ctx: &Context<'_>, wr: &SendWr<'_>) -> Option<DirectOp> {
        use highwire_verbs::Operation::{CompareSwap, FetchAdd, Read, Write};
        let conn = &self.conn;
        if conn.state != QpState::Rts || !self.requester.is_idle() {
            return None;
        }
        let is_possible = match conn.config.service {
            Service::Rc => matches!(wr.operation, Write(_) | Read(_) | CompareSwap { .. } | FetchAdd { .. }),
            Service::Uc => matches!(wr.operation, Write(_)) && !self.has_needed_receive,
            _ => false,
        };
        if !is_possible {
            return None;
        }
        if requester::check_post(conn, wr, 0).is_err() {
            return None;
        }
        let mut sges = SgeList::from(wr.sges);
        let length = u32::try_from(sges.total()).unwrap_or(u32::MAX);
        if requester::check_start(conn, &wr.operation, wr.sges, length).is_err() {
            return None;
        }
        if let CompareSwap { remote, .. } | FetchAdd { remote, .. } = wr.operation
            && !remote.va.is_multiple_of(8)
        {
            return None;
        }
        if !wr.flags.inline {
            let write = wr.operation.is_read_or_atomic();
            for sge in sges.as_mut_slice().iter_mut().filter(|sge| sge.length > 0) {
                sge.addr =
                    ctx.regions.check_local(conn.config.pd, sge.lkey, sge.addr, sge.length, write).ok()?;
            }
        }
        let signaled = wr.flags.signaled || conn.config.signal_all;
        Some(DirectOp {
            wr_id: wr.wr_id,
            operation: wr.operation,
            sges,
            length,
            signaled,
            is_after_unacknowledged: conn.config.service == Service::Uc,
        })
    }

    /// Reports how a direct operation ended; anything but success breaks the connection.
    #[inline]
    pub fn complete_direct(&mut self, ctx: &mut Context<'_>, op: &DirectOp, status: CompletionStatus) {
        if op.signaled || status != CompletionStatus::Success {
            let mut completion = requester::ended(&self.conn, op.wr_id, &op.operation, status);
            completion.byte_len = op.length;
            ctx.completions.push_back((self.conn.config.send_cq, completion));
        }
        if status != CompletionStatus::Success {
            self.enter_error(ctx);
        }
    }

    /// Sends a datagram past the queue, if nothing waits there: `put` hands its packet to the link, and
    /// returns whether it did. False if nothing has happened; the request then takes the ordinary way, which
    /// also reports any error.
    #[inline]
    pub fn send_datagram(
        &mut self,
        ctx: &mut Context<'_>,
        wr: &SendWr<'_>,
        put: impl FnOnce(&Outgoing<'_>) -> bool,
    ) -> bool {
        let Some(to) = &wr.datagram else { return false };
        let mut sges = SgeList::EMPTY;
        let QueuePair { conn, requester, plan, .. } = self;
        let Some(length) = requester.plan_datagram(conn, ctx, wr, &mut sges, plan) else { return false };
        let outgoing = Outgoing {
            qpn: conn.qpn,
            address: &to.address,
            headers: &plan.headers,
            payload: Gather::new(sges.as_slice(), 0, length),
            order: Order::Strict,
            path: 0,
        };
        if !put(&outgoing) {
            return false;
        }
        requester.pass_datagram();
        ctx.counters.count(Counter::PacketsSent);
        ctx.counters.add(Counter::BytesSent, u64::from(length));
        if wr.flags.signaled || conn.config.signal_all {
            let mut completion = requester::ended(conn, wr.wr_id, &wr.operation, CompletionStatus::Success);
            completion.byte_len = length;
            ctx.completions.push_back((conn.config.send_cq, completion));
        }
        true
    }
}
