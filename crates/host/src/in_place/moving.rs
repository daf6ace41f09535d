//! The moves themselves: from private pages onto a file and back.
//!
//! The program's own mapping is not given up when its pages move: it waits elsewhere in the process, empty, *parked*, and
//! comes back at the end. So the kernel joins it with its neighbours again, and the process has as many mappings as before.
//! One call of the kernel's replaces one mapping by another, and no thread ever sees a gap: whoever touches a piece
//! that is on its way waits ([`Still`]).
//!
//! While a piece is held, nothing here may touch other memory than its own stack and the pages that move: the pages may hold
//! anything, even what the library has allocated.

use super::maps::Piece;
use super::still::{self, Still};
use super::system::{self, remap};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Threads wait for a copy of this length at most.
const CHUNK_BYTES: usize = 256 << 10;

const BOTH: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Where pages go: a mapping of a file, the file, and the place in it.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) mapping: *mut u8,
    pub(super) file: BorrowedFd<'a>,
    pub(super) offset: usize,
}

/// Address space for parked mappings, which is given back unless it is kept.
pub(super) fn reserve(length: usize) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new memory at a place of the kernel's choice.
    unsafe { system::map(&(0..length), libc::PROT_NONE, flags, -1, 0) }
}

/// Gives address space back, with what is parked there.
///
/// # Safety
/// Nothing uses it any more.
pub(super) unsafe fn unreserve(range: &Range<usize>) {
    // SAFETY: by contract.
    unsafe { system::unmap(range) };
}

/// Moves a mapping's pages onto the file. Returns how many bytes have moved: all, unless there is an error as well.
///
/// # Safety
/// The range is part of one mapping of private memory, readable and writable, `parked` is address space that was reserved
/// for it, and the way keeps all threads from it.
pub(super) unsafe fn move_in(
    range: &Range<usize>,
    parked: usize,
    target: Target<'_>,
    still: &Still,
) -> (usize, io::Result<()>) {
    each_chunk(range, still, |chunk, at| {
        let target = Target { offset: target.offset + at, ..target };
        // SAFETY: by contract.
        unsafe { chunk_in(&chunk, parked + at, target, still) }
    })
}

/// Moves pages of the file back to private memory. Returns how many bytes have moved.
///
/// # Safety
/// The piece is a mapping of the file, of which `source` is another with the piece's first byte, and the private mapping that
/// was there before is parked at `parked`.
pub(super) unsafe fn move_out(
    piece: &Piece,
    parked: usize,
    source: *const u8,
    still: &Still,
) -> (usize, io::Result<()>) {
    let rights = piece.rights;
    each_chunk(&piece.range, still, |chunk, at| {
        // SAFETY: by contract.
        unsafe { chunk_out(&chunk, parked + at, source.wrapping_add(at), still, rights) }
    })
}

fn each_chunk(
    range: &Range<usize>,
    still: &Still,
    mut act: impl FnMut(Range<usize>, usize) -> io::Result<()>,
) -> (usize, io::Result<()>) {
    let most = if matches!(still, Still::Alone) { usize::MAX } else { CHUNK_BYTES };
    let mut done = 0;
    while done < range.len() {
        let length = most.min(range.len() - done);
        let start = range.start + done;
        if let Err(error) = act(start..start + length, done) {
            return (done, Err(error));
        }
        done += length;
    }
    (done, Ok(()))
}

/// # Safety
/// As for [`move_in`].
unsafe fn chunk_in(chunk: &Range<usize>, parked: usize, target: Target<'_>, still: &Still) -> io::Result<()> {
    let there = parked..parked + chunk.len();
    let held = still.hide(chunk)?;
    // SAFETY: the reserved space is replaced; the program's place stays mapped and empty.
    let from = match unsafe { remap(chunk, parked, libc::MREMAP_DONTUNMAP) } {
        Ok(()) => parked,
        // Kernels before 5.7, and some sandboxes, cannot leave it empty. Without other threads a new mapping does as well, which
        // the kernel may not join with its neighbours later. SAFETY: reserved space.
        Err(_) if matches!(still, Still::Alone) => unsafe { renew(&there) }.map(|()| chunk.start)?,
        Err(error) => {
            held.give_up(BOTH);
            return Err(error);
        }
    };
    let mut result = if held.takes_rights() { still::protect(&there, BOTH) } else { Ok(()) };
    if result.is_ok() {
        // SAFETY: both have the chunk's length, and nothing writes to the parked pages.
        result = unsafe {
            let to = target.mapping.add(target.offset);
            ptr::copy_nonoverlapping(from as *const u8, to, chunk.len());
            map_over(chunk, BOTH, target.file, libc::MAP_SHARED, target.offset as u64)
        };
    }
    match result {
        Ok(()) => {
            drop(held);
            // The file has the contents. If the pages stay, for they are locked, they cost memory and nothing else.
            // SAFETY: the parked pages are not looked at before they are written to.
            unsafe { libc::madvise(parked as *mut libc::c_void, chunk.len(), libc::MADV_DONTNEED) };
            Ok(())
        }
        Err(error) => {
            if from == parked {
                // SAFETY: the pages come back to where they were.
                let _ = unsafe { remap(&there, chunk.start, 0) };
            }
            if held.takes_rights() {
                held.give_up(BOTH);
            }
            Err(error)
        }
    }
}

/// Puts new private memory there.
///
/// # Safety
/// What lies there is given up.
unsafe fn renew(range: &Range<usize>) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: by contract.
    unsafe { system::map(range, BOTH, flags, -1, 0) }.map(drop)
}

/// # Safety
/// As for [`move_out`].
unsafe fn chunk_out(
    chunk: &Range<usize>,
    parked: usize,
    source: *const u8,
    still: &Still,
    rights: libc::c_int,
) -> io::Result<()> {
    let there = parked..parked + chunk.len();
    let held = still.freeze(chunk, rights)?;
    // SAFETY: both have the chunk's length; nothing else names the parked pages.
    unsafe { ptr::copy_nonoverlapping(source, parked as *mut u8, chunk.len()) };
    let mut result = if rights == BOTH { Ok(()) } else { still::protect(&there, rights) };
    if result.is_ok() {
        // SAFETY: the kernel replaces the file's pages by private ones of the same contents, in one step.
        result = unsafe { remap(&there, chunk.start, 0) };
    }
    if result.is_err() {
        // The next way to try it writes there, too.
        let _ = still::protect(&there, BOTH);
        held.give_up(rights);
    }
    result
}

/// # Safety
/// The caller permits that the file replaces what the range shows now.
pub(super) unsafe fn map_over(
    range: &Range<usize>,
    rights: libc::c_int,
    file: BorrowedFd<'_>,
    sharing: libc::c_int,
    offset: u64,
) -> io::Result<()> {
    // SAFETY: the range is replaced as the caller wants; nothing else is touched.
    unsafe { system::map(range, rights, sharing | libc::MAP_FIXED, file.as_raw_fd(), offset) }.map(drop)
}

/// Puts private memory with the same contents in place of a range. Calls nothing that allocates: it also runs in the child
/// of a fork. Fails, and changes nothing, if the range cannot be read.
///
/// # Safety
/// The range may be replaced, and no thread of this process writes to it meanwhile.
pub(super) unsafe fn replace_by_copy(range: &Range<usize>) -> io::Result<()> {
    let length = range.len();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory at a place of the kernel's choice.
    let start = unsafe { system::map(&(0..length), BOTH, flags, -1, 0) }?;
    let copy = start as *mut libc::c_void;
    let mut done = 0;
    while done < length {
        let to = libc::iovec { iov_base: copy.wrapping_byte_add(done), iov_len: length - done };
        let from =
            libc::iovec { iov_base: (range.start + done) as *mut libc::c_void, iov_len: length - done };
        // The kernel copies, so unreadable memory is an error and not a signal. SAFETY: one entry each, of
        // this process's own memory; `to` is new memory of that length.
        let copied =
            unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
        if copied <= 0 {
            // SAFETY: the memory was made above.
            unsafe { system::unmap(&(start..start + length)) };
            return Err(io::Error::last_os_error());
        }
        done += copied as usize;
    }
    // SAFETY: moves the new memory onto the range, which the caller gives up.
    unsafe { remap(&(start..start + length), range.start, 0) }
}
