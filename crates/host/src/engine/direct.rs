//! One-sided requests that this side carries out itself, in the memory of a peer on this host.
//!
//! Only where nothing is in flight on the queue pair, since they overtake packets. Whatever speaks against it, the request
//! goes the ordinary way, and the peer's responder is the one to refuse it.
#![allow(unsafe_code)]

use super::Engine;
use highwire_link::shm::RawSlice;
use highwire_rnic::DirectOp;
use highwire_stdx::Instant;
use highwire_uapi::MAX_SGES;
use highwire_verbs::{CompletionStatus, Memory, NULL_ADDR, Operation, SendWr};

/// Longer requests go as packets, so that the lane is not held for long.
const DIRECT_BYTES_MAX: u32 = 4 << 20;

impl Engine {
    /// Carries a request out at once, if that can be done; false if nothing has happened.
    #[inline]
    pub(super) fn post_direct(&mut self, index: u32, wr: &SendWr<'_>) -> bool {
        let Some(neighbours) = &mut self.neighbours else { return false };
        if self.disturbed.is_some() {
            return false;
        }
        let Some(qp) = self.qps.get(index) else { return false };
        let Some((gid, peer_qpn)) = qp.peer else { return false };
        if !matches!(wr.operation, Operation::Write(_) | Operation::Read(_)) && !wr.operation.is_atomic() {
            return false;
        }
        // No timer starts and none ends here, so any time will do that is not in the future.
        let now = self.now.unwrap_or(Instant::ZERO);
        let Some(op) = self.rnic.begin_direct(now, qp.qpn, wr) else { return false };
        // Nothing lies behind a null region, and that is not for a copy to find out.
        let is_null = op.sges.as_slice().iter().any(|sge| sge.addr >= NULL_ADDR);
        if op.length > DIRECT_BYTES_MAX || is_null {
            return false;
        }
        let looked_up = *self
            .now
            .get_or_insert_with(|| if neighbours.knows(gid, peer_qpn) { now } else { self.clock.now() });
        let Some(sender) = neighbours.sender_to(looked_up, gid, peer_qpn) else { return false };
        let mut direct = sender.direct(qp.qpn.value(), peer_qpn.value());
        let mut parts = [RawSlice { address: std::ptr::null(), len: 0 }; MAX_SGES];
        let parts = local_parts(&op, &mut parts);
        let done = match op.operation {
            // SAFETY: the RNIC has checked the parts against registered memory of ours, or they lie in the inline arena.
            Operation::Write(to) => unsafe { direct.write_parts(to.rkey.0, to.va, parts) },
            // SAFETY: as above, and checked for writing.
            Operation::Read(from) => unsafe { direct.read_parts(from.rkey.0, from.va, parts) },
            Operation::CompareSwap { remote, compare, swap } => direct
                .compare_swap(remote.rkey.0, remote.va, compare, swap)
                .map(|was| self.memory.write(parts[0].address as u64, &was.to_ne_bytes())),
            Operation::FetchAdd { remote, add } => direct
                .fetch_add(remote.rkey.0, remote.va, add)
                .map(|was| self.memory.write(parts[0].address as u64, &was.to_ne_bytes())),
            _ => return false,
        };
        if done.is_ok() {
            self.counters.direct += 1;
            self.rnic.complete_direct(now, qp.qpn, &op, CompletionStatus::Success);
        }
        done.is_ok()
    }
}

fn local_parts<'a>(op: &DirectOp, parts: &'a mut [RawSlice; MAX_SGES]) -> &'a [RawSlice] {
    let sges = op.sges.as_slice();
    for (part, sge) in parts.iter_mut().zip(sges) {
        *part = RawSlice { address: sge.addr as *const u8, len: sge.length as usize };
    }
    &parts[..sges.len().min(MAX_SGES)]
}
