//! Memory of the application that the peer may write to directly: `riomap`, `riounmap`, `riowrite`.

use libc::{c_int, c_void};

use super::mapped::Mapped;
use super::stream::{State, Stream};

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
    // SAFETY: the identifier has a queue pair, and with it a domain; the memory is the application's.
    let mapped = unsafe { Mapped::register((*stream.id).pd, (start, length), offset, index)? };
    stream.mapped.push(mapped);
    stream.progress();
    Ok(offset)
}

fn free_index(stream: &Stream) -> Option<usize> {
    (0..stream.peer_iomap_entries()).find(|&index| stream.mapped.iter().all(|mapped| !mapped.is_at(index)))
}

/// Takes a mapping back. Its place is used again by the next one, which overwrites it at the peer.
pub(super) fn unmap(stream: &mut Stream, start: *mut c_void, length: usize) -> Result<(), c_int> {
    let at = stream.mapped.iter().position(|mapped| mapped.covers(start, length)).ok_or(libc::EINVAL)?;
    stream.mapped.remove(at);
    Ok(())
}
