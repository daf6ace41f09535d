//! Memory of the application that the peer may write to directly: `riomap`, `riounmap`, `riowrite`.

use libc::{c_int, c_void};

use super::c;
use super::stream::{State, Stream};
use super::wire::{IoMap, Target};
use crate::abi::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, ibv_mr};

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

/// Registers memory, for the peer to write to at an offset.
pub(super) fn map(
    stream: &mut Stream,
    (start, length): (*mut c_void, usize),
    protection: c_int,
    offset: i64,
) -> Result<u64, c_int> {
    if start.is_null() || length == 0 || protection & !(libc::PROT_WRITE | libc::PROT_NONE) != 0 {
        return Err(libc::EINVAL);
    }
    if !matches!(stream.state, State::Connected | State::Connecting) || stream.pipe.is_none() {
        return Err(libc::ENOTCONN);
    }
    let is_remote = protection & libc::PROT_WRITE != 0;
    let index = match is_remote {
        true => Some(free_index(stream).ok_or(libc::ENOMEM)?),
        false => None,
    };
    let offset = if offset < 0 { start as u64 } else { offset as u64 };
    let access = IBV_ACCESS_LOCAL_WRITE | if is_remote { IBV_ACCESS_REMOTE_WRITE } else { 0 };
    // SAFETY: the identifier has a queue pair, and with it a domain; the memory is the application's.
    let mr = c::made(unsafe { c::ibv_reg_mr((*stream.id).pd, start, length, access as c_int) })?;
    stream.mapped.push(Mapped { start: start as usize, length, offset, mr, index, is_announced: !is_remote });
    stream.progress();
    Ok(offset)
}

fn free_index(stream: &Stream) -> Option<usize> {
    (0..stream.peer_iomap_entries())
        .find(|&index| stream.mapped.iter().all(|mapped| mapped.index != Some(index)))
}

/// Takes a mapping back. Its place is used again by the next one, which overwrites it at the peer.
pub(super) fn unmap(stream: &mut Stream, start: *mut c_void, length: usize) -> Result<(), c_int> {
    let is_it = |mapped: &Mapped| mapped.start == start as usize && mapped.length == length;
    let at = stream.mapped.iter().position(is_it).ok_or(libc::EINVAL)?;
    stream.mapped.remove(at);
    Ok(())
}

/// Tells the peer of mappings that it does not know.
pub(super) fn announce(stream: &mut Stream) {
    for at in 0..stream.mapped.len() {
        let mapped = &stream.mapped[at];
        let (Some(index), false) = (mapped.index, mapped.is_announced) else { continue };
        // SAFETY: the region lives as long as the mapping.
        let key = unsafe { (*mapped.mr).rkey };
        let length = u32::try_from(mapped.length).unwrap_or(u32::MAX);
        let entry =
            IoMap { offset: mapped.offset, target: Target { addr: mapped.start as u64, key, length } };
        if !stream.send_iomap(index, &entry) {
            return;
        }
        stream.mapped[at].is_announced = true;
    }
}
