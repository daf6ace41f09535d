//! The process's memory as the RNIC sees it.
//!
//! Registered memory belongs to the application, which may look at it while a peer writes there: that is what RDMA is
//! for. Programs may even unmap it, although the contract forbids that. So this module uses guarded copies
//! and atomics, never references to the bytes, and missing memory is an error.
//!
//! Invariant: the end of a payload becomes visible last, because applications poll on it.
#![allow(unsafe_code)]

mod views;

pub(crate) use views::{VIEW_BYTES_MAX, View, ViewPart};

use highwire_link::shm::Received;
use highwire_shmem::{
    Lost, compare_swap_guarded, copy_guarded, copy_guarded_last_release, fetch_add_guarded,
};
use highwire_verbs::{Gather, Memory, MemoryLost, NULL_ADDR, Payload};
use highwire_wire::MAX_HEADERS_LEN;
use std::marker::PhantomData;
use views::{VIEWS_ADDR, Views};

/// Memory behind addresses that the region tables have already checked.
///
/// Addresses below [`VIEWS_ADDR`] are the process's own; those from [`NULL_ADDR`] on have no memory; those between lie in
/// views, which show memory elsewhere than the program has it.
#[derive(Debug)]
pub(crate) struct HostMemory {
    views: Views,
}

/// The payload of a packet that arrived: bytes that a neighbour may be able to change, so there is no slice of them.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    start: *const u8,
    len: u32,
    holder: PhantomData<&'a [u8]>,
}

impl HostMemory {
    /// # Safety
    /// Every address that this value is given must lie in memory registered with its RNIC, or in memory that the
    /// driver keeps for it.
    pub(crate) const unsafe fn new() -> HostMemory {
        HostMemory { views: Views::new() }
    }

    /// Copies a packet's payload out of local spans to the front of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than the payload.
    #[inline]
    pub(crate) fn copy_out(&self, payload: &Gather<'_>, out: &mut [u8]) -> Result<(), MemoryLost> {
        let mut rest = out;
        for span in payload.spans() {
            let (to, behind) = rest.split_at_mut(span.length as usize);
            rest = behind;
            if span.addr >= VIEWS_ADDR {
                self.copy_out_elsewhere(span.addr, to)?;
                continue;
            }
            // SAFETY: spans lie in checked memory, by this type's contract; `to` has the span's length.
            unsafe { copy_guarded(span.addr as *const u8, to.as_mut_ptr(), to.len()) }.map_err(gone)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn copy_out_elsewhere(&self, addr: u64, to: &mut [u8]) -> Result<(), MemoryLost> {
        if addr >= NULL_ADDR {
            to.fill(0);
            return Ok(());
        }
        let mut at = 0;
        self.views.each_piece(addr, to.len(), |piece, len| {
            // SAFETY: as in `copy_out`; pieces are as long together as `to`.
            let copied = unsafe { copy_guarded(piece, to.as_mut_ptr().add(at), len) };
            at += len;
            copied.map_err(gone)
        })
    }

    /// # Safety
    /// `len` bytes at `from` may be read.
    #[inline]
    unsafe fn put(&self, addr: u64, from: *const u8, len: usize) -> Result<(), MemoryLost> {
        if addr >= VIEWS_ADDR {
            // SAFETY: the caller's promise.
            return unsafe { self.put_elsewhere(addr, from, len) };
        }
        // SAFETY: the range was checked against a region, and what is not mapped any more is an error.
        unsafe { copy_guarded_last_release(from, addr as *mut u8, len) }.map_err(gone)
    }

    /// # Safety
    /// As for [`put`](Self::put).
    #[inline(never)]
    unsafe fn put_elsewhere(&self, addr: u64, from: *const u8, len: usize) -> Result<(), MemoryLost> {
        if addr >= NULL_ADDR {
            return Ok(());
        }
        let mut at = 0;
        self.views.each_piece(addr, len, |piece, len| {
            // SAFETY: as in `put`; pieces come in order and are as long together as the source.
            let copied = unsafe { copy_guarded_last_release(from.add(at), piece, len) };
            at += len;
            copied.map_err(gone)
        })
    }

    /// Where an aligned word lies in this process.
    #[inline]
    fn word(&self, addr: u64) -> Result<*mut u64, MemoryLost> {
        if addr < VIEWS_ADDR {
            return Ok(addr as *mut u64);
        }
        let mut place = Err(MemoryLost);
        if addr < NULL_ADDR {
            self.views.each_piece(addr, 8, |piece, _| {
                place = Ok(piece.cast());
                Ok(())
            })?;
        }
        place
    }

    /// The pieces of the process's memory that a range of driver's addresses stands for, in order.
    ///
    /// # Errors
    /// No memory is there, or the error of `each`.
    #[inline]
    pub(crate) fn each_piece(
        &self,
        addr: u64,
        len: usize,
        mut each: impl FnMut(*mut u8, usize) -> Result<(), MemoryLost>,
    ) -> Result<(), MemoryLost> {
        if addr >= VIEWS_ADDR { self.views.each_piece(addr, len, each) } else { each(addr as *mut u8, len) }
    }

    /// Puts a view in place; returns the address of its first page, or `None` if there are too many.
    pub(crate) fn add_view(&mut self, view: View) -> Option<u64> {
        self.views.add(view)
    }

    /// Takes away the view that an address lies in.
    pub(crate) fn remove_view(&mut self, addr: u64) {
        self.views.remove(addr);
    }
}

fn gone(_: Lost) -> MemoryLost {
    MemoryLost
}

impl<'a> Bytes<'a> {
    /// Bytes that are all our own.
    #[inline]
    pub(crate) fn of(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes { start: bytes.as_ptr(), len: bytes.len() as u32, holder: PhantomData }
    }

    /// # Safety
    /// `len` bytes at `start` stay mapped for `'a`.
    #[inline]
    pub(crate) unsafe fn at(start: *const u8, len: usize) -> Bytes<'a> {
        Bytes { start, len: len as u32, holder: PhantomData }
    }
}

/// The beginning of a packet in bytes that no peer can change, with all its headers, and the whole packet.
#[inline]
pub(crate) fn look_at<'a>(
    received: &'a Received<'_>,
    head: &'a mut [u8; MAX_HEADERS_LEN],
) -> (&'a [u8], Bytes<'a>) {
    match received {
        Received::Copied(bytes) => (bytes, Bytes::of(bytes)),
        Received::Shared(shared) => {
            let head = &mut head[..shared.len().min(MAX_HEADERS_LEN)];
            shared.copy_to(0, head);
            // SAFETY: the ring stays mapped while the packet is borrowed, and the slot is not given back before.
            (head, unsafe { Bytes::at(shared.as_ptr(), shared.len()) })
        }
    }
}

impl Payload for Bytes<'_> {
    #[inline]
    fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    fn slice(&self, from: u32, length: u32) -> Self {
        assert!(from <= self.len && length <= self.len - from, "a slice within the payload");
        // SAFETY: `from` is at most the length.
        Bytes { start: unsafe { self.start.add(from as usize) }, len: length, holder: PhantomData }
    }
}

impl Memory<Bytes<'_>> for HostMemory {
    #[inline]
    fn place(&mut self, addr: u64, payload: Bytes<'_>) -> Result<(), MemoryLost> {
        // SAFETY: the payload's bytes are mapped.
        unsafe { self.put(addr, payload.start, payload.len as usize) }
    }

    #[inline]
    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), MemoryLost> {
        // SAFETY: a slice is readable.
        unsafe { self.put(addr, bytes.as_ptr(), bytes.len()) }
    }

    fn compare_swap(&mut self, addr: u64, compare: u64, swap: u64) -> Result<u64, MemoryLost> {
        // SAFETY: checked like any range, and aligned: the responder refuses other addresses (IBTA §9.4.5).
        unsafe { compare_swap_guarded(self.word(addr)?, compare, swap) }.map_err(gone)
    }

    fn fetch_add(&mut self, addr: u64, add: u64) -> Result<u64, MemoryLost> {
        // SAFETY: as in `compare_swap`.
        unsafe { fetch_add_guarded(self.word(addr)?, add) }.map_err(gone)
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
                let placed =
                    memory.place(buffer.as_mut_ptr() as u64 + start as u64, Bytes::of(&source[..length]));
                let mut expected = [0u8; 64];
                expected[start..start + length].copy_from_slice(&source[..length]);
                assert_eq!((placed, buffer), (Ok(()), expected), "{length} bytes at {start}");
            }
        }
    }

    #[test]
    fn atomics_return_what_was_there() {
        // SAFETY: the address below is `word`'s.
        let mut memory = unsafe { HostMemory::new() };
        let mut word = 5u64;
        let addr = std::ptr::from_mut(&mut word) as u64;
        assert_eq!(memory.fetch_add(addr, u64::MAX), Ok(5));
        assert_eq!(memory.compare_swap(addr, 5, 9), Ok(4));
        assert_eq!(memory.compare_swap(addr, 4, 9), Ok(4));
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
        assert_eq!(memory.copy_out(&Gather::new(&list, 1, 3), &mut out), Ok(()));
        assert_eq!(out, [2, 3, 4, 0]);
    }
}
