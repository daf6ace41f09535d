//! The process's memory as the RNIC sees it.
//!
//! Registered memory belongs to the application, which may look at it while a peer writes there: that is what RDMA is
//! for. So everything here goes through racy copies and atomics, never through references to the bytes.
//!
//! Invariant: the end of a payload becomes visible last, because applications poll on it.
#![allow(unsafe_code)]

use highwire_link::shm::Received;
use highwire_uapi::{copy_racy, copy_racy_last_release};
use highwire_verbs::{Gather, Memory, NULL_ADDR};
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory behind addresses that the region tables have already checked.
///
/// Whoever registers memory promises that it stays mapped until its region is gone; that promise is what every
/// dereference below stands on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostMemory(());

impl HostMemory {
    /// # Safety
    /// Every address that this value is given must lie in memory registered with its RNIC, or in memory that the
    /// driver keeps for it.
    pub(crate) const unsafe fn new() -> HostMemory {
        HostMemory(())
    }

    /// Copies a packet's payload out of local spans to the front of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than the payload.
    #[inline]
    pub(crate) fn copy_out(self, payload: &Gather<'_>, out: &mut [u8]) {
        let mut rest = out;
        for span in payload.spans() {
            let (to, behind) = rest.split_at_mut(span.length as usize);
            rest = behind;
            if span.addr >= NULL_ADDR {
                to.fill(0);
                continue;
            }
            // SAFETY: spans lie in checked memory, by this type's contract; `to` has the span's length.
            unsafe { copy_racy(span.addr as *const u8, to.as_mut_ptr(), to.len()) };
        }
    }
}

/// The bytes of a packet in a shared ring.
#[inline]
pub(crate) fn packet_bytes<'a>(received: &'a Received<'_>) -> &'a [u8] {
    match received {
        Received::Copied(bytes) => bytes,
        // SAFETY: a sender leaves its packet alone until the slot is released, which is after this borrow. Headers are
        // parsed into values once, and payload is only copied, so even a broken peer cannot make a check pass for
        // bytes other than those that are used.
        Received::Shared(shared) => unsafe { shared.as_slice() },
    }
}

impl Memory<&[u8]> for HostMemory {
    #[inline]
    fn place(&mut self, addr: u64, payload: &[u8]) {
        if addr >= NULL_ADDR {
            return;
        }
        // SAFETY: the range was checked against a region, whose owner keeps it mapped and writable.
        unsafe { copy_racy_last_release(payload.as_ptr(), addr as *mut u8, payload.len()) }
    }

    #[inline]
    fn write(&mut self, addr: u64, bytes: &[u8]) {
        self.place(addr, bytes);
    }

    fn compare_swap(&mut self, addr: u64, compare: u64, swap: u64) -> u64 {
        // SAFETY: checked like any range, and aligned: the responder refuses other addresses (IBTA §9.4.5).
        let word = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
        match word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire) {
            Ok(was) | Err(was) => was,
        }
    }

    fn fetch_add(&mut self, addr: u64, add: u64) -> u64 {
        // SAFETY: as in `compare_swap`.
        let word = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
        word.fetch_add(add, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_verbs::{LocalKey, Sge};

    #[test]
    fn a_payload_arrives_whole_and_nothing_beside_it() {
        // SAFETY: the addresses below lie in `buffer`.
        let mut memory = unsafe { HostMemory::new() };
        let source: Vec<u8> = (1..=40).collect();
        for start in 0..9 {
            for length in 0..=source.len() {
                let mut buffer = [0u8; 64];
                memory.place(buffer.as_mut_ptr() as u64 + start as u64, &source[..length]);
                let mut expected = [0u8; 64];
                expected[start..start + length].copy_from_slice(&source[..length]);
                assert_eq!(buffer, expected, "{length} bytes at {start}");
            }
        }
    }

    #[test]
    fn atomics_return_what_was_there() {
        // SAFETY: the address below is `word`'s.
        let mut memory = unsafe { HostMemory::new() };
        let mut word = 5u64;
        let addr = std::ptr::from_mut(&mut word) as u64;
        assert_eq!(memory.fetch_add(addr, u64::MAX), 5);
        assert_eq!(memory.compare_swap(addr, 5, 9), 4);
        assert_eq!(memory.compare_swap(addr, 4, 9), 4);
        assert_eq!(word, 9);
    }

    #[test]
    fn a_payload_is_gathered_in_order() {
        // SAFETY: the spans below are live arrays.
        let memory = unsafe { HostMemory::new() };
        let (a, b) = ([1u8, 2, 3], [4u8, 5]);
        let sge = |bytes: &[u8]| Sge {
            addr: bytes.as_ptr() as u64,
            length: bytes.len() as u32,
            lkey: LocalKey::default(),
        };
        let list = [sge(&a), sge(&b)];
        let mut out = [0; 4];
        memory.copy_out(&Gather::new(&list, 1, 3), &mut out);
        assert_eq!(out, [2, 3, 4, 0]);
    }
}
