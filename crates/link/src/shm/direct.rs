//! One-sided operations that the initiator executes itself, on the peer's memory.
//!
//! The checks are the responder's, in its order (IBTA §9.7.4.1.2 and following), from the tables that the peer has
//! published. Any error but [`DirectError::PeerGone`] means "send it as packets": the peer's responder decides, and its
//! NAK is the authoritative one. The caller makes sure that nothing is in flight on the queue pair, since an operation
//! here overtakes packets.
//!
//! Order: a WRITE's last bytes become visible last (Release), and an aligned WRITE of 8 bytes at once, so that a program
//! which polls on the last byte with Acquire sees the whole. Atomics are the CPU's own, sequentially consistent.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use highwire_shmem::{
    Lost, Segment, compare_swap_guarded, copy_guarded, copy_guarded_last_release, fetch_add_guarded,
};

use super::channel::RawSlice;
use super::layout::{gid_words, in_use};
use super::sender::ShmSender;
use super::table::{Access, Place, PublishedQueuePair, PublishedRegion, find};

/// Segments of the peer's memory to keep mapped.
const MEMORY_MAX: usize = 64;

/// Why an operation was not executed here. Nothing has happened, except with [`Lost`](DirectError::Lost).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectError {
    /// The region lies in no mapping of ours; packets reach it.
    NotShared,
    /// The peer's QP is not connected to ours, not ready, or not published.
    NotConnected,
    /// No published region has this key.
    BadKey,
    /// The QP, the region or its protection domain does not allow it.
    Access,
    /// Some of the bytes are not in the region.
    Bounds,
    /// An atomic's address is no multiple of 8.
    Misaligned,
    /// Some of the memory of either side is not there any more. Bytes before the first missing one may have
    /// been copied.
    Lost,
    /// The peer's process has ended or has closed the channel.
    PeerGone,
}

/// Direct access from one of our queue pairs to the peer's memory, through the peer's queue pair.
#[derive(Debug)]
pub struct Direct<'a> {
    sender: &'a mut ShmSender,
    local_qpn: u32,
    peer_qpn: u32,
}

impl ShmSender {
    /// Direct access for the connection from our queue pair to one of the peer's.
    #[inline]
    pub fn direct(&mut self, local_qpn: u32, peer_qpn: u32) -> Direct<'_> {
        Direct { sender: self, local_qpn, peer_qpn }
    }
}

impl Direct<'_> {
    /// WRITE: copies `bytes` to the peer's address `va`.
    ///
    /// # Errors
    /// [`DirectError`].
    #[inline]
    pub fn write(&mut self, rkey: u32, va: u64, bytes: &[u8]) -> Result<(), DirectError> {
        let part = RawSlice { address: bytes.as_ptr(), len: bytes.len() };
        // SAFETY: a slice is readable.
        unsafe { self.write_parts(rkey, va, &[part]) }
    }

    /// WRITE, gathered from pieces of memory that others may be writing to.
    ///
    /// # Errors
    /// [`DirectError`].
    ///
    /// # Safety
    /// The pieces are memory that may be read. One that is not mapped is an error.
    #[inline]
    pub unsafe fn write_parts(&mut self, rkey: u32, va: u64, parts: &[RawSlice]) -> Result<(), DirectError> {
        let len = total(parts)?;
        let last = parts.iter().rposition(|part| part.len > 0);
        self.operate(rkey, va, len, Access::REMOTE_WRITE, |target| {
            let mut at = 0;
            for (i, part) in parts.iter().enumerate() {
                // SAFETY: the checks found `len` bytes at `target`; the caller vouches for the pieces. A piece that
                // overlaps the target is the application's race with itself.
                unsafe {
                    if Some(i) == last {
                        copy_guarded_last_release(part.address, target.add(at), part.len)?;
                    } else {
                        copy_guarded(part.address, target.add(at), part.len)?;
                    }
                }
                at += part.len;
            }
            Ok(())
        })
    }

    /// READ: copies from the peer's address `va` into `bytes`.
    ///
    /// # Errors
    /// [`DirectError`].
    #[inline]
    pub fn read(&mut self, rkey: u32, va: u64, bytes: &mut [u8]) -> Result<(), DirectError> {
        let part = RawSlice { address: bytes.as_mut_ptr(), len: bytes.len() };
        // SAFETY: an exclusive slice is writable.
        unsafe { self.read_parts(rkey, va, &[part]) }
    }

    /// READ, scattered to pieces of memory that others may be reading.
    ///
    /// # Errors
    /// [`DirectError`].
    ///
    /// # Safety
    /// The pieces are memory that may be written to. One that is not mapped is an error.
    #[inline]
    pub unsafe fn read_parts(&mut self, rkey: u32, va: u64, parts: &[RawSlice]) -> Result<(), DirectError> {
        let len = total(parts)?;
        self.operate(rkey, va, len, Access::REMOTE_READ, |source| {
            let mut at = 0;
            for part in parts {
                // SAFETY: the checks found `len` bytes at `source`; the caller vouches for the pieces.
                unsafe { copy_guarded(source.add(at), part.address.cast_mut(), part.len)? };
                at += part.len;
            }
            // From here on, everything is visible that the peer had published before the bytes that were
            // read.
            fence(Ordering::Acquire);
            Ok(())
        })
    }

    /// Compare-and-swap on the peer's word at `va`; returns what it was.
    ///
    /// # Errors
    /// [`DirectError`].
    pub fn compare_swap(&mut self, rkey: u32, va: u64, compare: u64, swap: u64) -> Result<u64, DirectError> {
        // SAFETY: `atomic` gives an aligned word that it has checked.
        self.atomic(rkey, va, |word| unsafe { compare_swap_guarded(word, compare, swap) })
    }

    /// Fetch-and-add on the peer's word at `va`; returns what it was.
    ///
    /// # Errors
    /// [`DirectError`].
    pub fn fetch_add(&mut self, rkey: u32, va: u64, add: u64) -> Result<u64, DirectError> {
        // SAFETY: as above.
        self.atomic(rkey, va, |word| unsafe { fetch_add_guarded(word, add) })
    }

    fn atomic(
        &mut self,
        rkey: u32,
        va: u64,
        act: impl FnOnce(*mut u64) -> Result<u64, Lost>,
    ) -> Result<u64, DirectError> {
        if va & 7 != 0 {
            return Err(DirectError::Misaligned);
        }
        let mut was = 0;
        self.operate(rkey, va, 8, Access::REMOTE_ATOMIC, |address| {
            if address.addr() & 7 != 0 {
                // The region itself is not aligned, so only the owner's engine can execute the atomic.
                return Err(DirectError::NotShared);
            }
            was = act(address.cast())?;
            Ok(())
        })?;
        Ok(was)
    }

    /// Announces the queue pair and region that it is about to use, checks, acts, and takes the announcement
    /// back.
    #[inline]
    fn operate(
        &mut self,
        rkey: u32,
        va: u64,
        len: usize,
        need: Access,
        act: impl FnOnce(*mut u8) -> Result<(), DirectError>,
    ) -> Result<(), DirectError> {
        self.check_attached()?;
        let word = 1 << 63 | u64::from(self.peer_qpn & 0xFF_FFFF) << 32 | u64::from(rkey);
        let slot = self.sender.slot;
        in_use(self.sender.peer.window(), slot).store(word, Ordering::Relaxed);
        // Store of `in_use`, then loads of the tables: pairs with the fence in `LocalEngine::withdraw_region`.
        fence(Ordering::SeqCst);
        let result = self.locate(rkey, va, len, need).and_then(|address| address.map_or(Ok(()), act));
        // Release: the copy is over before the owner sees that the initiator is done.
        in_use(self.sender.peer.window(), slot).store(0, Ordering::Release);
        result
    }

    #[inline]
    fn check_attached(&self) -> Result<(), DirectError> {
        if self.sender.peer.is_gone() || !self.sender.is_attached() {
            return Err(DirectError::PeerGone);
        }
        Ok(())
    }

    /// The checks. `None` if there are no bytes to touch.
    #[inline]
    fn locate(
        &mut self,
        rkey: u32,
        va: u64,
        len: usize,
        need: Access,
    ) -> Result<Option<*mut u8>, DirectError> {
        let peer = &self.sender.peer;
        let (header, window) = (peer.header(), peer.window());
        let place = Place { offset: header.qp_table(), slots: header.qp_slots };
        let qp: PublishedQueuePair = find(window, place, self.peer_qpn).ok_or(DirectError::NotConnected)?;
        if !qp.ready || qp.peer_qpn != self.local_qpn || gid_words(qp.peer_gid) != self.sender.gid_words {
            return Err(DirectError::NotConnected);
        }
        if !qp.access.contains(need) {
            return Err(DirectError::Access);
        }
        if len == 0 {
            // IBTA §9.7.4.1.6: the key of an operation without bytes is not looked at.
            return Ok(None);
        }
        let place = Place { offset: header.mr_table(), slots: header.mr_slots };
        let region: PublishedRegion = find(window, place, rkey).ok_or(DirectError::BadKey)?;
        let bound_elsewhere = region.bound_qpn != 0 && region.bound_qpn != self.peer_qpn;
        if region.pd != qp.pd || bound_elsewhere || !region.access.contains(need) {
            return Err(DirectError::Access);
        }
        let into = va.checked_sub(region.iova).ok_or(DirectError::Bounds)?;
        if into.checked_add(len as u64).is_none_or(|end| end > region.length) {
            return Err(DirectError::Bounds);
        }
        let shared = u64::from(region.before)..region.length.saturating_sub(u64::from(region.behind));
        if region.segment == 0 || into < shared.start || into + len as u64 > shared.end {
            return Err(DirectError::NotShared);
        }
        let into = into - shared.start;
        let segment = self.memory(region.segment)?;
        // The peer's table may be wrong about its own segment; only the mapping counts.
        let start = region.offset.checked_add(into).and_then(|start| usize::try_from(start).ok());
        match start.and_then(|start| Some((start, start.checked_add(len)?))) {
            // SAFETY: `start` lies in the mapping.
            Some((start, end)) if end <= segment.len() => Ok(Some(unsafe { segment.as_ptr().add(start) })),
            _ => Err(DirectError::NotShared),
        }
    }

    /// One of the peer's segments, mapped at first use.
    #[inline]
    fn memory(&mut self, id: u32) -> Result<&Segment, DirectError> {
        let known = self.sender.memory.iter().position(|&(known, _)| known == id);
        let index = match known {
            Some(index) => index,
            None => self.map_memory(id)?,
        };
        Ok(&self.sender.memory[index].1)
    }

    #[cold]
    fn map_memory(&mut self, id: u32) -> Result<usize, DirectError> {
        let segment = self.sender.peer.open_memory(id).map_err(|_| DirectError::NotShared)?;
        let memory = &mut self.sender.memory;
        if memory.len() == MEMORY_MAX {
            memory.remove(0);
        }
        memory.push((id, Arc::new(segment.without_file())));
        Ok(memory.len() - 1)
    }
}

#[inline]
fn total(parts: &[RawSlice]) -> Result<usize, DirectError> {
    parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.len)).ok_or(DirectError::Bounds)
}

impl From<Lost> for DirectError {
    fn from(_: Lost) -> DirectError {
        DirectError::Lost
    }
}

impl fmt::Display for DirectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DirectError::NotShared => "the memory is not in a shared mapping",
            DirectError::NotConnected => "the peer's queue pair is not connected to ours",
            DirectError::BadKey => "no published region has this key",
            DirectError::Access => "the access is not allowed",
            DirectError::Bounds => "the access exceeds the region",
            DirectError::Misaligned => "the address of an atomic must be a multiple of 8",
            DirectError::Lost => "the memory is not there any more",
            DirectError::PeerGone => "the peer is gone",
        })
    }
}

impl std::error::Error for DirectError {}
