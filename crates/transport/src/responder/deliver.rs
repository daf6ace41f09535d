//! Receives: taking one, filling it, completing it. The same for every service.

use super::{Common, Refusal, Turn};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::Plan;
use crate::receive_queue::ReceiveWqe;
use highwire_verbs::{
    Access, AccessError, AsyncEvent, Completion, CompletionFlags, CompletionOp, CompletionStatus, Denial,
    DenialCause, Memory, MemoryLost, Payload, Pd, RemoteKey, Service, Sge,
};
use highwire_wire::{AtomicEth, NakCode, Qpn, Syndrome};

/// What the end of a message means for its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) operation: CompletionOp,
    pub(super) byte_len: u32,
    pub(super) immediate: Option<u32>,
    pub(super) invalidate: Option<RemoteKey>,
    pub(super) solicited: bool,
    pub(super) source_qpn: Qpn,
}

impl Common {
    /// Makes sure that receive number `index` of those that are not completed has been taken from the queue.
    ///
    /// # Errors
    /// There is none, or its memory is not what its keys permit.
    #[inline]
    pub(super) fn claim(&mut self, turn: &mut Turn<'_, '_>, index: usize) -> Result<(), Refusal> {
        while self.claimed.len() <= index {
            let queue = match turn.conn.config.srq {
                Some(srq) => turn.ctx.shared.get_mut(srq.0),
                None => Some(&mut *turn.receives),
            };
            let taken = queue.and_then(|queue| queue.take_into(&mut self.claimed));
            let Some(limit_passed) = taken else { return Err(Refusal::NotReady) };
            if let (true, Some(srq)) = (limit_passed, turn.conn.config.srq) {
                turn.ctx.events.push_back(AsyncEvent::SrqLimitReached(srq));
            }
        }
        let wqe = &mut self.claimed[index];
        if wqe.checked != turn.ctx.regions.generation() {
            check_receive(turn.conn, turn.ctx, wqe)?;
        }
        Ok(())
    }

    /// The oldest receive that was taken ends in error.
    pub(super) fn fail_receive(&mut self, turn: &mut Turn<'_, '_>, status: CompletionStatus) {
        if let Some(wqe) = self.claimed.pop_front() {
            turn.ctx.completions.push_back((turn.conn.config.recv_cq, ended(turn.conn, &wqe, status)));
        }
    }

    /// A WRITE with immediate data whose key is refused takes its receive along: there has to be one before the key is looked at
    /// (IBTA §9.7.4), and it ends in error with the request (§9.9.6.3, responder class C).
    ///
    /// # Errors
    /// There is no receive.
    pub(super) fn fail_receive_of_refused(
        &mut self,
        turn: &mut Turn<'_, '_>,
        permitted: Result<u64, Refusal>,
        index: usize,
    ) -> Result<(), Refusal> {
        if permitted == Err(Refusal::Nak(NakCode::RemoteAccess)) {
            self.claim(turn, index)?;
            if index == 0 {
                self.fail_receive(turn, CompletionStatus::LocalAccess);
            }
        }
        Ok(())
    }

    /// The oldest receive is filled.
    #[inline]
    pub(super) fn complete_receive(&mut self, turn: &mut Turn<'_, '_>, ending: &Ending) {
        let Some(wqe) = self.claimed.pop_front() else { return };
        turn.ctx.completions.push_back((
            turn.conn.config.recv_cq,
            Completion {
                operation: ending.operation,
                byte_len: ending.byte_len,
                immediate: ending.immediate.or(ending.invalidate.map(|key| key.0)).unwrap_or(0),
                source_qpn: ending.source_qpn,
                flags: CompletionFlags {
                    grh: turn.conn.config.service == Service::Ud,
                    with_immediate: ending.immediate.is_some(),
                    with_invalidate: ending.invalidate.is_some(),
                    solicited: ending.solicited,
                    ..CompletionFlags::default()
                },
                ..ended(turn.conn, &wqe, CompletionStatus::Success)
            },
        ));
    }

    /// Carries out the second half of a SEND with invalidate. If it fails, the receive ends in an error and
    /// the queue pair with it, and the peer gets no NAK: the message was right, and the protocol has no
    /// answer about this side's keys (IBTA §9.9.6.3, responder class J; `RESPST_ERR_INVALIDATE_RKEY` of
    /// rdma_rxe).
    pub(super) fn invalidate(
        &mut self,
        turn: &mut Turn<'_, '_>,
        key: Option<RemoteKey>,
    ) -> Result<(), Refusal> {
        let Some(key) = key else { return Ok(()) };
        turn.ctx.regions.invalidate(turn.conn.config.pd, turn.conn.qpn, key).map_err(|_| {
            turn.ctx.counters.count(Counter::RefusedAccess);
            self.fail_receive(turn, CompletionStatus::LocalAccess);
            Refusal::Silence(NakCode::RemoteAccess)
        })
    }

    /// One more request is completed.
    #[inline]
    pub(super) fn count_message(&mut self) {
        self.msn = (self.msn + 1) & 0x00FF_FFFF;
    }

    /// Echoes marks since the last acknowledgement in this one.
    #[inline]
    pub(super) fn echo_mark(&mut self, plan: &mut Plan) {
        // Written only if set: a byte stored late delays the copy of the header.
        if self.echo_due {
            self.echo_due = false;
            plan.headers.bth.becn = true;
        }
    }

    /// The credit code for the receives that are ready, if they are this queue pair's alone. `has_begun`: one
    /// of those that were claimed is being filled.
    #[inline]
    pub(super) fn credits(&self, turn: &Turn<'_, '_>, has_begun: bool) -> u8 {
        let config = &turn.conn.config;
        if !turn.conn.transport.credits || config.srq.is_some() || config.service.is_xrc() {
            return Syndrome::NO_CREDITS;
        }
        let claimed = self.claimed.len() as u32;
        highwire_wire::credit_code(turn.receives.len() + claimed - u32::from(has_begun).min(claimed))
    }
}

impl Turn<'_, '_> {
    /// Checks a peer's access and gives the driver's address. Zero bytes need no key (IBTA §9.7.4.1.5).
    #[inline]
    pub(super) fn check_access(
        &mut self,
        rkey: RemoteKey,
        va: u64,
        length: u32,
        needed: Access,
    ) -> Result<u64, Refusal> {
        self.check_access_in(self.conn.config.pd, rkey, va, length, needed)
    }

    /// The same in a protection domain that is not the queue pair's present one.
    #[inline]
    pub(super) fn check_access_in(
        &mut self,
        pd: Pd,
        rkey: RemoteKey,
        va: u64,
        length: u32,
        needed: Access,
    ) -> Result<u64, Refusal> {
        let Turn { conn, ctx, .. } = self;
        let denial = |cause| {
            let (qpn, key) = (conn.qpn, rkey.0);
            Denial { qpn, is_remote: true, pd, key, va, length, needed, cause }
        };
        if !conn.access.contains(needed) {
            ctx.counters.count(Counter::RefusedRequest);
            ctx.deny(denial(DenialCause::QueuePair));
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
            ctx.deny(denial(DenialCause::Key(error)));
            Refusal::Nak(NakCode::RemoteAccess)
        })
    }

    /// Checks and executes an atomic.
    pub(super) fn run_atomic<P: Payload>(
        &mut self,
        is_swap: bool,
        atomic: AtomicEth,
        memory: &mut impl Memory<P>,
    ) -> Result<u64, Refusal> {
        let addr = match atomic.va.is_multiple_of(8) {
            true => self.check_access(RemoteKey(atomic.rkey), atomic.va, 8, Access::REMOTE_ATOMIC)?,
            false => return Err(self.refuse_misaligned(&atomic)),
        };
        if !addr.is_multiple_of(8) {
            // An atomic must be aligned in the driver's memory: a region's first address says nothing about
            // where the region lies.
            return Err(self.refuse_misaligned(&atomic));
        }
        let was = if is_swap {
            memory.compare_swap(addr, atomic.compare, atomic.swap_or_add)
        } else {
            memory.fetch_add(addr, atomic.swap_or_add)
        };
        was.map_err(lost)
    }

    /// An atomic's address is not a multiple of eight.
    pub(super) fn refuse_misaligned(&mut self, atomic: &AtomicEth) -> Refusal {
        let (qpn, pd) = (self.conn.qpn, self.conn.config.pd);
        let (key, va, length, needed) = (atomic.rkey, atomic.va, 8, Access::REMOTE_ATOMIC);
        let cause = DenialCause::Misaligned;
        self.ctx.deny(Denial { qpn, is_remote: true, pd, key, va, length, needed, cause });
        self.refuse_request()
    }

    /// The peer's request is one that no requester may make.
    pub(super) fn refuse_request(&mut self) -> Refusal {
        self.ctx.counters.count(Counter::RefusedRequest);
        Refusal::Nak(NakCode::InvalidRequest)
    }
}

/// Turns a receive's local keys into addresses, once; later calls only check that the keys still live.
fn check_receive(conn: &Connection, ctx: &mut Context<'_>, wqe: &mut ReceiveWqe) -> Result<(), Refusal> {
    let is_first = wqe.checked == 0;
    let pd = conn.config.srq.and_then(|srq| ctx.shared.get(srq.0)).map_or(conn.config.pd, |q| q.pd());
    // An empty element needs no key: there is nothing to protect.
    for sge in wqe.sges.as_mut_slice().iter_mut().filter(|sge| sge.length > 0) {
        if is_first {
            let addr = ctx.regions.check_local(pd, sge.lkey, sge.addr, sge.length, true);
            sge.addr = addr.map_err(|error| {
                ctx.deny(local_denial(conn, pd, sge, Access::LOCAL_WRITE, error));
                Refusal::BadReceive
            })?;
        } else if ctx.regions.region(sge.lkey).is_none() {
            return Err(Refusal::BadReceive);
        }
    }
    wqe.checked = ctx.regions.generation();
    Ok(())
}

/// A local access that was refused.
#[cold]
pub(crate) fn local_denial(
    conn: &Connection,
    pd: Pd,
    sge: &Sge,
    needed: Access,
    error: AccessError,
) -> Denial {
    let (qpn, key, va, length) = (conn.qpn, sge.lkey.0, sge.addr, sge.length);
    Denial { qpn, is_remote: false, pd, key, va, length, needed, cause: DenialCause::Key(error) }
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

/// The region is registered, and its memory is not there (IBTA §9.9.6.2: a malfunction at the responder).
pub(super) fn lost(_: MemoryLost) -> Refusal {
    Refusal::Nak(NakCode::RemoteOperational)
}
