//! Receives: taking one, filling it, completing it. The same for every service.

use super::{Refusal, Responder};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::receive_queue::{ReceiveQueue, ReceiveWqe};
use highwire_verbs::{
    Access, AccessError, AsyncEvent, Completion, CompletionFlags, CompletionOp, CompletionStatus, Pd,
    RemoteKey, Service,
};
use highwire_wire::{NakCode, Qpn};

/// What the end of a message says about its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) operation: CompletionOp,
    pub(super) byte_len: u32,
    pub(super) immediate: Option<u32>,
    pub(super) invalidate: Option<RemoteKey>,
    pub(super) solicited: bool,
    pub(super) source_qpn: Qpn,
}

impl Responder {
    /// Makes sure that receive number `index` of those that are not completed has been taken from the queue.
    ///
    /// # Errors
    /// There is none, or its memory is not what its keys permit.
    #[inline]
    pub(super) fn claim(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        index: usize,
    ) -> Result<(), Refusal> {
        while self.claimed.len() <= index {
            let queue = match conn.config.srq {
                Some(srq) => ctx.shared.get_mut(srq.0),
                None => Some(&mut *own),
            };
            let taken = queue.and_then(|queue| queue.take_into(&mut self.claimed));
            let Some(limit_passed) = taken else { return Err(Refusal::NotReady) };
            if let (true, Some(srq)) = (limit_passed, conn.config.srq) {
                ctx.events.push_back(AsyncEvent::SrqLimitReached(srq));
            }
        }
        let wqe = &mut self.claimed[index];
        if wqe.checked != ctx.regions.generation() {
            check_receive(conn, ctx, wqe)?;
        }
        Ok(())
    }

    /// The oldest receive that was taken ends in error.
    pub(super) fn fail_receive(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        status: CompletionStatus,
    ) {
        if let Some(wqe) = self.claimed.pop_front() {
            ctx.completions.push_back((conn.config.recv_cq, ended(conn, &wqe, status)));
        }
    }

    /// A WRITE with immediate data whose key is refused takes its receive along: there has to be one before the key is looked at
    /// (IBTA §9.7.4), and it ends in error with the request (§9.9.6.3, responder class C).
    ///
    /// # Errors
    /// There is no receive.
    pub(super) fn fail_receive_of_refused(
        &mut self,
        conn: &Connection,
        own: &mut ReceiveQueue,
        ctx: &mut Context<'_>,
        permitted: Result<u64, Refusal>,
        index: usize,
    ) -> Result<(), Refusal> {
        if permitted == Err(Refusal::Nak(NakCode::RemoteAccess)) {
            self.claim(conn, own, ctx, index)?;
            if index == 0 {
                self.fail_receive(conn, ctx, CompletionStatus::LocalAccess);
            }
        }
        Ok(())
    }

    /// The oldest receive is filled.
    #[inline]
    pub(super) fn complete_receive(&mut self, conn: &Connection, ctx: &mut Context<'_>, ending: &Ending) {
        let Some(wqe) = self.claimed.pop_front() else { return };
        ctx.completions.push_back((
            conn.config.recv_cq,
            Completion {
                operation: ending.operation,
                byte_len: ending.byte_len,
                immediate: ending.immediate.or(ending.invalidate.map(|key| key.0)).unwrap_or(0),
                source_qpn: ending.source_qpn,
                flags: CompletionFlags {
                    grh: conn.config.service == Service::Ud,
                    with_immediate: ending.immediate.is_some(),
                    with_invalidate: ending.invalidate.is_some(),
                    solicited: ending.solicited,
                    ..CompletionFlags::default()
                },
                ..ended(conn, &wqe, CompletionStatus::Success)
            },
        ));
    }

    /// Checks a peer's access and gives the driver's address. Zero bytes need no key (IBTA §9.7.4.1.5).
    #[inline]
    pub(super) fn check_access(
        conn: &Connection,
        ctx: &mut Context<'_>,
        rkey: RemoteKey,
        va: u64,
        length: u32,
        needed: Access,
    ) -> Result<u64, Refusal> {
        Self::check_access_in(conn, conn.config.pd, ctx, rkey, va, length, needed)
    }

    /// The same in a protection domain that is not the queue pair's present one.
    #[inline]
    pub(super) fn check_access_in(
        conn: &Connection,
        pd: Pd,
        ctx: &mut Context<'_>,
        rkey: RemoteKey,
        va: u64,
        length: u32,
        needed: Access,
    ) -> Result<u64, Refusal> {
        if !conn.access.contains(needed) {
            ctx.counters.count(Counter::RefusedRequest);
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        if length == 0 {
            return Ok(0);
        }
        ctx.regions.check_remote(pd, conn.qpn, rkey, va, length, needed).map_err(|error| {
            if error == AccessError::BadKey {
                ctx.counters.count(Counter::DroppedWrongKey);
            }
            ctx.counters.count(Counter::RefusedAccess);
            Refusal::Nak(NakCode::RemoteAccess)
        })
    }
}

/// Turns a receive's local keys into addresses, once; later calls only check that the keys still live.
fn check_receive(conn: &Connection, ctx: &Context<'_>, wqe: &mut ReceiveWqe) -> Result<(), Refusal> {
    let is_first = wqe.checked == 0;
    let pd = conn.config.srq.and_then(|srq| ctx.shared.get(srq.0)).map_or(conn.config.pd, |q| q.pd());
    // An empty element needs no key: there is nothing to protect.
    for sge in wqe.sges.as_mut_slice().iter_mut().filter(|sge| sge.length > 0) {
        if is_first {
            let addr = ctx.regions.check_local(pd, sge.lkey, sge.addr, sge.length, true);
            sge.addr = addr.map_err(|_| Refusal::BadReceive)?;
        } else if ctx.regions.region(sge.lkey).is_none() {
            return Err(Refusal::BadReceive);
        }
    }
    wqe.checked = ctx.regions.generation();
    Ok(())
}

/// A completion of a receive with nothing in it yet.
pub(crate) fn ended(conn: &Connection, wqe: &ReceiveWqe, status: CompletionStatus) -> Completion {
    Completion {
        wr_id: wqe.wr_id,
        status,
        operation: CompletionOp::Receive,
        byte_len: 0,
        immediate: 0,
        qpn: conn.qpn,
        source_qpn: conn.remote_qpn,
        flags: CompletionFlags::default(),
    }
}
