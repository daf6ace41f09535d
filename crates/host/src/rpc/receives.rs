//! The memory of receives: as many places as the queue has, each named by its index, each posted again when its datagram has been
//! handled.
//!
//! Invariant: a place is either posted, and then the engine alone touches it, or its completion has been taken and it has not been
//! posted again, and then this thread alone does.
#![allow(unsafe_code)]

use crate::error::{ChainError, MemoryError};
use crate::queue_pair::QueuePair;
use crate::region::{MemoryRegion, ProtectionDomain};
use highwire_rpc::GRH_BYTES;
use highwire_verbs::{Access, RecvWr, Sge};

/// Where a datagram begins in its place: its GRH ends there, and a cache line begins.
const DATAGRAM_AT: usize = 64;
/// Receives posted with one call.
const CHAIN: usize = 64;

pub(super) struct Receives {
    // Before the memory: keys go first.
    region: MemoryRegion,
    memory: super::outgoing::Bytes,
    place_bytes: usize,
}

impl Receives {
    pub(super) fn new(
        pd: &ProtectionDomain,
        count: u32,
        datagram_bytes: u32,
    ) -> Result<Receives, MemoryError> {
        let place_bytes = (DATAGRAM_AT + datagram_bytes as usize).next_multiple_of(64);
        let (memory, region) =
            super::outgoing::memory(pd, place_bytes * count as usize, Access::LOCAL_WRITE)?;
        Ok(Receives { region, memory, place_bytes })
    }

    /// Posts places, all with one look at the queue.
    pub(super) fn post(&self, qp: &QueuePair, indices: &[u32]) -> Result<(), ChainError> {
        let mut sges = [Sge::default(); CHAIN];
        for indices in indices.chunks(CHAIN) {
            let (start, length) = (DATAGRAM_AT - GRH_BYTES, self.place_bytes - DATAGRAM_AT + GRH_BYTES);
            for (sge, &index) in sges.iter_mut().zip(indices) {
                *sge = self.region.sge((index as usize * self.place_bytes + start) as u64, length as u32);
            }
            let none = RecvWr { wr_id: 0, sges: &[] };
            let mut requests = [none; CHAIN];
            for ((request, sge), &index) in requests.iter_mut().zip(sges.chunks(1)).zip(indices) {
                *request = RecvWr { wr_id: u64::from(index), sges: sge };
            }
            qp.post_recv_chain(&requests[..indices.len()])?;
        }
        Ok(())
    }

    /// The GRH and the datagram of a receive that has completed with so many bytes and has not been posted again.
    pub(super) fn datagram(&mut self, index: u32, byte_len: u32) -> (&[u8], &[u8]) {
        let start = index as usize * self.place_bytes + DATAGRAM_AT - GRH_BYTES;
        let length = (byte_len as usize).clamp(GRH_BYTES, self.place_bytes - DATAGRAM_AT + GRH_BYTES);
        let cells = &self.memory[start..start + length];
        // SAFETY: by this type's invariant no peer writes to a place between its completion and its next post, which needs this
        // value again.
        let bytes = unsafe { std::slice::from_raw_parts(cells.as_ptr().cast::<u8>(), cells.len()) };
        bytes.split_at(GRH_BYTES)
    }
}
