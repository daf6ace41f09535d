//! One mapping of a stream: memory of the application that is registered, and what the peer knows of it.

use libc::{c_int, c_void};

use super::c;
use super::wire::{IoMap, Target};
use crate::abi::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_pd};

/// A mapping.
pub(super) struct Mapped {
    start: usize,
    length: usize,
    offset: u64,
    mr: *mut ibv_mr,
    /// Its place in the peer's table; none for memory that only this end uses.
    index: Option<usize>,
    is_announced: bool,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was registered here.
        unsafe { c::ibv_dereg_mr(self.mr) };
    }
}

impl Mapped {
    /// Registers memory that the peer finds at `offset`, if `index` names a place of its table.
    ///
    /// # Safety
    ///
    /// The domain lives, and the memory is the application's.
    pub(super) unsafe fn register(
        pd: *mut ibv_pd,
        (start, length): (*mut c_void, usize),
        offset: u64,
        index: Option<usize>,
    ) -> Result<Mapped, c_int> {
        let access = IBV_ACCESS_LOCAL_WRITE | if index.is_some() { IBV_ACCESS_REMOTE_WRITE } else { 0 };
        // SAFETY: as the caller promises.
        let mr = c::made(unsafe { c::ibv_reg_mr(pd, start, length, access as c_int) })?;
        Ok(Mapped { start: start as usize, length, offset, mr, index, is_announced: index.is_none() })
    }

    pub(super) fn covers(&self, start: *mut c_void, length: usize) -> bool {
        self.start == start as usize && self.length == length
    }

    pub(super) fn is_at(&self, index: usize) -> bool {
        self.index == Some(index)
    }

    /// What the peer has to be told of it: a place of its table, and the entry to write there.
    pub(super) fn unannounced(&self) -> Option<(usize, IoMap)> {
        let index = self.index.filter(|_| !self.is_announced)?;
        // SAFETY: the region lives as long as the mapping.
        let key = unsafe { (*self.mr).rkey };
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        let target = Target { addr: self.start as u64, key, length };
        Some((index, IoMap { offset: self.offset, target }))
    }

    /// Remembers that the peer has been told.
    pub(super) fn set_announced(&mut self) {
        self.is_announced = true;
    }
}
