//! Requests that need no place in the queue: datagrams for a neighbour, which go straight into its ring, and one-sided requests that
//! this side carries out itself, in the memory of a peer on this host.
//!
//! One-sided requests are carried out directly only where nothing is in flight on the queue pair, since they would overtake packets. On UC,
//! whose packets are not acknowledged, that is when the peer has taken every packet out of the ring to it. If any check fails, the request
//! goes as packets, and the peer's responder decides whether to refuse it.
#![allow(unsafe_code)]

use super::Engine;
use super::ways::{Sent, Shm};
use crate::memory::HostMemory;
use highwire_link::shm::RawSlice;
use highwire_rings::MAX_SGES;
use highwire_rnic::{DirectOp, Outgoing};
use highwire_verbs::{CompletionStatus, Memory, MemoryLost, NULL_ADDR, Operation, SendWr};

/// Longer requests go as packets, so that the lane is not held for long.
const DIRECT_BYTES_MAX: u32 = 4 << 20;

impl Engine {
    /// Carries a request out at once, if that can be done; false if nothing has happened.
    #[inline]
    pub(super) fn post_direct(&mut self, index: u32, wr: &SendWr<'_>) -> bool {
        let Some(neighbours) = self.ways.shm.as_mut().and_then(Shm::undisturbed) else { return false };
        let Some(qp) = self.objects.qps.get(index) else { return false };
        let Some((gid, peer_qpn)) = qp.peer else { return false };
        if !matches!(wr.operation, Operation::Write(_) | Operation::Read(_)) && !wr.operation.is_atomic() {
            return false;
        }
        // No timer starts and none ends here, so any time will do that is not in the future.
        let now = self.time.some_past();
        let Some(op) = self.rnic.begin_direct(now, qp.qpn, wr) else { return false };
        // A null region has no memory, so this must be found out before a copy.
        let is_null = op.sges.as_slice().iter().any(|sge| sge.addr >= NULL_ADDR);
        if op.length > DIRECT_BYTES_MAX || is_null {
            return false;
        }
        let looked_up = if neighbours.knows(gid, peer_qpn) { now } else { self.time.now() };
        if op.is_after_unacknowledged && !neighbours.is_drained(looked_up, gid, peer_qpn) {
            return false;
        }
        let Some(sender) = neighbours.sender_to(looked_up, gid, peer_qpn) else { return false };
        let mut direct = sender.direct(qp.qpn.value(), peer_qpn.value());
        let mut parts = [RawSlice { address: std::ptr::null(), len: 0 }; MAX_SGES];
        let Some(parts) = local_parts(&self.memory, &op, &mut parts) else { return false };
        let done = match op.operation {
            // SAFETY: the RNIC has checked the parts against registered memory of ours, or they lie in the
            // inline arena. The copy detects missing memory.
            Operation::Write(to) => unsafe { direct.write_parts(to.rkey.0, to.va, parts) }.map(|()| true),
            // SAFETY: as above, and checked for writing.
            Operation::Read(from) => unsafe { direct.read_parts(from.rkey.0, from.va, parts) }.map(|()| true),
            Operation::CompareSwap { remote, compare, swap } => direct
                .compare_swap(remote.rkey.0, remote.va, compare, swap)
                .map(|was| self.memory.write(parts[0].address as u64, &was.to_ne_bytes()).is_ok()),
            Operation::FetchAdd { remote, add } => direct
                .fetch_add(remote.rkey.0, remote.va, add)
                .map(|was| self.memory.write(parts[0].address as u64, &was.to_ne_bytes()).is_ok()),
            _ => return false,
        };
        let Ok(is_whole) = done else { return false };
        self.counters.direct += 1;
        // An atomic whose result cannot be stored has been executed all the same, and must not be repeated.
        let status = if is_whole { CompletionStatus::Success } else { CompletionStatus::LocalProtection };
        self.rnic.complete_direct(now, qp.qpn, &op, status);
        true
    }
}

impl Engine {
    /// Puts a datagram for a neighbour into its ring at once, if it may; false if nothing has happened.
    #[inline]
    pub(super) fn post_datagram(&mut self, index: u32, wr: &SendWr<'_>) -> bool {
        let Some(neighbours) = self.ways.shm.as_mut().and_then(Shm::undisturbed) else { return false };
        if !wr.datagram.as_ref().is_some_and(|to| neighbours.has_ring(to.address.gid, to.qpn)) {
            return false;
        }
        let Some(qp) = self.objects.qps.get(index) else { return false };
        // Finding an existing ring starts no timer, so an older time will do.
        let now = self.time.some_past();
        let (memory, record) = (&self.memory, &self.witnesses.record);
        let put = |outgoing: &Outgoing<'_>| {
            let is_sent = neighbours.send(now, outgoing, memory) == Sent::Yes;
            if let Some(record) = record.as_ref().filter(|_| is_sent) {
                record.sent(now, outgoing);
            }
            is_sent
        };
        self.rnic.send_datagram(now, qp.qpn, wr, put)
    }
}

/// Where a request's local memory lies; `None` if it lies in more pieces than there is room for.
#[inline]
fn local_parts<'a>(
    memory: &HostMemory,
    op: &DirectOp,
    parts: &'a mut [RawSlice; MAX_SGES],
) -> Option<&'a [RawSlice]> {
    let mut count = 0;
    for sge in op.sges.as_slice() {
        memory
            .each_piece(sge.addr, sge.length as usize, |piece, len| {
                *parts.get_mut(count).ok_or(MemoryLost)? = RawSlice { address: piece, len };
                count += 1;
                Ok(())
            })
            .ok()?;
    }
    Some(&parts[..count])
}
