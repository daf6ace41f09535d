//! Datagrams on their way into the send queue: short ones inline, longer ones through places of registered memory.
#![allow(unsafe_code)]

use super::DriverCounters;
use crate::error::MemoryError;
use crate::queue_pair::Chain;
use crate::region::{MemoryRegion, ProtectionDomain};
use highwire_rpc::Outgoing;
use highwire_verbs::{Access, Operation, SendFlags, SendWr};
use std::cell::UnsafeCell;

/// The longest datagram that is posted inline.
pub(super) const INLINE_MAX: usize = 256;

/// Bytes that the engine reads and writes as well.
pub(super) type Bytes = Box<[UnsafeCell<u8>]>;

/// Private memory of `length` bytes, and its region.
pub(super) fn memory(
    pd: &ProtectionDomain,
    length: usize,
    access: Access,
) -> Result<(Bytes, MemoryRegion), MemoryError> {
    let memory: Bytes = (0..length).map(|_| UnsafeCell::new(0)).collect();
    let start = UnsafeCell::raw_get(memory.as_ptr());
    // SAFETY: the memory is the box's, whose owner drops the region first and never makes a reference to bytes that are posted; no
    // peer may reach it.
    let region = unsafe { pd.register(start, length, access) }?;
    Ok((memory, region))
}

/// Places for datagrams that are too long to be inline.
pub(super) struct Sends {
    // Before the memory: keys go first.
    region: MemoryRegion,
    memory: Bytes,
    place_bytes: usize,
    next: usize,
}

impl Sends {
    pub(super) fn new(pd: &ProtectionDomain, sends: u32, datagram_bytes: u32) -> Result<Sends, MemoryError> {
        let place_bytes = datagram_bytes as usize;
        // As many places as requests fit into the shared ring and the engine's queue together, and one to be
        // filled.
        let (memory, region) =
            memory(pd, place_bytes * (2 * sends.next_power_of_two() as usize + 1), Access::NONE)?;
        Ok(Sends { region, memory, place_bytes, next: 0 })
    }

    /// Posts a datagram; false if the queue is full.
    pub(super) fn post(
        &mut self,
        chain: &mut Chain<'_>,
        outgoing: &Outgoing<'_>,
        counters: &mut DriverCounters,
    ) -> bool {
        let wr = SendWr {
            wr_id: 0,
            operation: Operation::SendImm(outgoing.immediate),
            flags: SendFlags::default(),
            sges: &[],
            datagram: Some(outgoing.to),
        };
        let mut short = [0; INLINE_MAX];
        let posted =
            if outgoing.body.is_empty() && outgoing.tail.is_empty() && outgoing.head.len() <= INLINE_MAX {
                chain.push_inline(&wr, outgoing.head)
            } else if !outgoing.tail.is_empty() && outgoing.len() <= INLINE_MAX {
                let mut at = 0;
                for part in [outgoing.head, outgoing.body, outgoing.tail] {
                    short[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
                chain.push_inline(&wr, &short[..at])
            } else {
                let Some(place) = self.fill(outgoing) else {
                    // Longer than any peer can have asked for.
                    counters.failed += 1;
                    return true;
                };
                let sge = self.region.sge(place as u64, outgoing.len() as u32);
                chain.push(&SendWr { sges: &[sge], ..wr })
            };
        match posted {
            Ok(()) => true,
            Err(highwire_verbs::PostError::QueueFull) => {
                counters.full += 1;
                false
            }
            // The queue pair is in error: the datagram is lost, as on a wire.
            Err(_) => {
                counters.failed += 1;
                true
            }
        }
    }

    /// Copies a datagram to the next place, which no request names any more.
    fn fill(&mut self, outgoing: &Outgoing<'_>) -> Option<usize> {
        if outgoing.len() > self.place_bytes {
            return None;
        }
        let at = self.next;
        self.next += self.place_bytes;
        if self.next >= self.memory.len() {
            self.next = 0;
        }
        let cells = &self.memory[at..at + outgoing.len()];
        let to = UnsafeCell::raw_get(cells.as_ptr());
        // SAFETY: `cells` has room for all of it; requests leave the queues in order, so the one that last named this place has left
        // them: there are more places than requests that can wait.
        unsafe {
            std::ptr::copy_nonoverlapping(outgoing.head.as_ptr(), to, outgoing.head.len());
            let behind = to.add(outgoing.head.len());
            std::ptr::copy_nonoverlapping(outgoing.body.as_ptr(), behind, outgoing.body.len());
            let last = behind.add(outgoing.body.len());
            std::ptr::copy_nonoverlapping(outgoing.tail.as_ptr(), last, outgoing.tail.len());
        }
        Some(at)
    }
}
