//! Moves memory that a program registers onto shared memory, where it lies.
//!
//! A program that registers memory from `malloc`, and then spins on that memory without a call, gets data
//! fast only if neighbours write there themselves. So the whole pages of such a region are copied into a file
//! of the device's pool, and that file is mapped in their place. The rules:
//!
//! - Only whole pages of private anonymous memory move, never the stack, and [`BYTES_MAX`] at most at once. The rest of
//!   the region is reached with packets.
//! - Only while the process has no threads besides the caller and the library's own: another thread could
//!   write to a page between its copy and the change. The library's threads touch the application's memory
//!   only with a lane's token, and the caller holds all tokens meanwhile. Memory that is registered with
//!   another device of this process stays where it is.
//! - Several regions may name the same pages: a later region finds them moved, and when the last region goes, they are moved
//!   back with their contents. If the process has other threads then, the pages become a private view of the file instead,
//!   which the kernel puts in place in one step.
//! - The file stays mapped a second time, for the library alone, and packets are served there. So if a
//!   program unmaps its memory without deregistering it, or maps something else there, peers' bytes stay in
//!   the old pages, as with a card.
//! - The library asks the kernel each time which pages are its own ([`maps`]), and leaves alone memory that
//!   the program has unmapped or replaced meanwhile.
//! - A child process gets copies of its own, as for any private memory ([`fork`]).
#![allow(unsafe_code)]

mod fork;
mod maps;
mod threads;

pub use threads::OwnThread;

use highwire_shmem::{DedicatedSegment, Segment, SharedPool};
use maps::{FileId, Nature, Piece};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) const PAGE_BYTES: usize = 4096;
/// A longer region stays where it is: moving it would hold the lanes for a quarter of a second, and the child
/// of a fork copies it.
pub(crate) const BYTES_MAX: usize = 256 << 20;

static MOVED: Mutex<Moved> = Mutex::new(Moved { runs: BTreeMap::new(), regions: BTreeMap::new() });

/// The moved pages, and the registered regions.
struct Moved {
    runs: BTreeMap<FileId, Run>,
    /// By device and key: the memory of every region of the process.
    regions: BTreeMap<(usize, u32), Range<usize>>,
}

/// Pages that were moved at once, in one file.
struct Run {
    segment: DedicatedSegment,
    /// The library's own mapping of it, through which packets are served even if the program unmaps its own.
    mapping: Arc<Segment>,
    /// Regions that name some of them.
    users: usize,
    range: Range<usize>,
}

/// The part of a region that neighbours can reach, until it is given to [`release`].
#[derive(Debug)]
pub(crate) struct SharedPart {
    file: FileId,
    /// Its addresses in this process.
    pub(crate) range: Range<usize>,
    /// The segment in which neighbours find it.
    pub(crate) segment: u32,
    pub(crate) offset: u64,
    /// The file, mapped once more.
    pub(crate) mapping: Arc<Segment>,
}

/// Notes a region, so that no other device moves its memory.
pub(crate) fn note(device: usize, key: u32, range: Range<usize>) {
    lock().regions.insert((device, key), range);
}

/// The region is gone.
pub(crate) fn forget(device: usize, key: u32) {
    lock().regions.remove(&(device, key));
}

/// Finds or makes the part of `range` that neighbours can reach. `quietly` runs a function while no engine of
/// the device touches memory.
///
/// # Safety
/// The memory belongs to the caller, and no thread writes to it before this returns.
pub(crate) unsafe fn acquire(
    device: usize,
    pool: &SharedPool,
    range: Range<usize>,
    quietly: impl FnOnce(&mut dyn FnMut()),
) -> Option<SharedPart> {
    let whole = range.start.checked_next_multiple_of(PAGE_BYTES)?..range.end / PAGE_BYTES * PAGE_BYTES;
    if whole.is_empty() {
        return None;
    }
    let mut moved = lock();
    let pieces = maps::pieces_of(&whole).ok()?;
    let usable = |piece: &&Piece| match piece.nature {
        Nature::Private => piece.range.len() <= BYTES_MAX && !holds_own_stack(&piece.range),
        Nature::Shared { file, .. } => moved.runs.get(&file).is_some_and(|run| run.segment.is_of(pool)),
        Nature::Other => false,
    };
    // Only one part of a region can be published: the largest, preferably one that lies in a file already.
    let best = pieces
        .iter()
        .filter(usable)
        .max_by_key(|piece| (piece.range.len(), matches!(piece.nature, Nature::Shared { .. })))?;
    let range = best.range.clone();
    if let Nature::Shared { file, offset } = best.nature {
        let run = moved.runs.get_mut(&file)?;
        run.users += 1;
        let (segment, mapping) = (run.segment.id(), Arc::clone(&run.mapping));
        return Some(SharedPart { file, range, segment, offset, mapping });
    }
    let is_elsewhere = moved
        .regions
        .iter()
        .any(|((owner, _), other)| *owner != device && other.start < range.end && range.start < other.end);
    if is_elsewhere || !threads::is_alone() || !fork::is_ready() {
        return None;
    }
    let (segment, mapping) = pool.dedicate(range.len()).ok()?;
    let file = file_of(&mapping)?;
    let mut result = Ok(());
    quietly(&mut || {
        // SAFETY: the kernel says that the pages are private memory; no thread writes to them, by this function's contract and
        // because the engines are held.
        result = unsafe { move_to(&range, &mapping) };
    });
    result.ok()?;
    let id = segment.id();
    let mapping = Arc::new(mapping.without_file());
    moved.runs.insert(file, Run { segment, mapping: Arc::clone(&mapping), users: 1, range: range.clone() });
    fork::protect(moved.runs.values().map(|run| run.range.clone()));
    Some(SharedPart { file, range, segment: id, offset: 0, mapping })
}

/// A region lets go of its part. When the last region that names a run goes, the run is moved back.
pub(crate) fn release(part: SharedPart, quietly: impl FnOnce(&mut dyn FnMut())) {
    let mut moved = lock();
    let Some(run) = moved.runs.get_mut(&part.file) else { return };
    run.users -= 1;
    if run.users > 0 {
        return;
    }
    let Some(run) = moved.runs.remove(&part.file) else { return };
    // Neighbours of this very process have the file mapped as well, elsewhere.
    let mut pieces = maps::pieces_of(&run.range).unwrap_or_default();
    pieces.retain(|piece| matches!(piece.nature, Nature::Shared { file, .. } if file == part.file));
    let is_whole = pieces.iter().map(|piece| piece.range.len()).sum::<usize>() == run.range.len();
    let alone = threads::is_alone();
    quietly(&mut || {
        for piece in &pieces {
            // SAFETY: the kernel says that our file is mapped there. If this thread is alone, no other thread writes meanwhile;
            // otherwise the kernel makes the change in one step. If that fails, the pages stay in the file, where they are
            // still valid memory.
            let _ = unsafe {
                if alone { move_back(&piece.range, is_whole) } else { detach(piece, &run.segment) }
            };
        }
    });
    fork::protect(moved.runs.values().map(|run| run.range.clone()));
}

/// Whether the calling thread's own stack lies there: pages that are in use cannot be moved.
fn holds_own_stack(range: &Range<usize>) -> bool {
    let here = 0u8;
    range.contains(&(ptr::from_ref(&here).addr()))
}

fn file_of(mapping: &Segment) -> Option<FileId> {
    let file = std::fs::File::from(mapping.file()?.try_clone_to_owned().ok()?);
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    Some(FileId { major: libc::major(device), minor: libc::minor(device), inode: metadata.ino() })
}

/// Copies the pages into the file and maps it in their place.
///
/// # Safety
/// The range is private memory of this process, and no thread writes to it meanwhile.
unsafe fn move_to(range: &Range<usize>, mapping: &Segment) -> io::Result<()> {
    let file = mapping.file().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let _quiet = SignalsHeld::new();
    // SAFETY: readable, by contract; the file's own mapping is as long.
    unsafe {
        ptr::copy_nonoverlapping(range.start as *const u8, mapping.as_ptr(), range.len());
        map_over(range, file, libc::MAP_SHARED, 0)
    }
}

/// Copies the pages into private memory and puts that in their place. With `empties`, the file's pages go at once, although
/// neighbours may still have them mapped: the program has them nowhere else.
///
/// # Safety
/// The range is a mapping of a file of ours, and no thread of this process writes to it meanwhile.
unsafe fn move_back(range: &Range<usize>, empties: bool) -> io::Result<()> {
    let _quiet = SignalsHeld::new();
    // SAFETY: by contract; the second mapping is ours alone.
    unsafe {
        let shared = libc::mremap(range.start as *mut libc::c_void, 0, range.len(), libc::MREMAP_MAYMOVE);
        let replaced = replace_by_copy(range);
        if shared != libc::MAP_FAILED {
            if empties && replaced.is_ok() {
                libc::madvise(shared, range.len(), libc::MADV_REMOVE);
            }
            libc::munmap(shared, range.len());
        }
        replaced
    }
}

/// Puts a private view of the file in place of the shared one. Later writes stay in this process.
///
/// # Safety
/// The piece is a mapping of a file of ours.
unsafe fn detach(piece: &Piece, segment: &DedicatedSegment) -> io::Result<()> {
    let Nature::Shared { offset, .. } = piece.nature else { return Ok(()) };
    let file = segment.open()?;
    // SAFETY: by contract; the kernel changes the mapping in one step, and both show the same bytes. Pages that no thread has
    // written to would go on showing the file, and a neighbour that has kept the file mapped could still write to it. So the
    // kernel copies all pages now, which is safe even if other threads write meanwhile. Kernels before 5.14 cannot do this.
    unsafe {
        map_over(&piece.range, file.as_fd(), libc::MAP_PRIVATE, offset)?;
        libc::madvise(piece.range.start as *mut libc::c_void, piece.range.len(), libc::MADV_POPULATE_WRITE);
    }
    Ok(())
}

/// # Safety
/// The caller permits that the file replaces what the range shows now.
unsafe fn map_over(
    range: &Range<usize>,
    file: BorrowedFd<'_>,
    sharing: libc::c_int,
    offset: u64,
) -> io::Result<()> {
    // SAFETY: the range is replaced as the caller wants; nothing else is touched.
    let mapped = unsafe {
        libc::mmap(
            range.start as *mut libc::c_void,
            range.len(),
            libc::PROT_READ | libc::PROT_WRITE,
            sharing | libc::MAP_FIXED,
            file.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Puts private memory with the same contents in place of a range. Calls nothing that allocates: it also runs in the child
/// of a fork. Fails, and changes nothing, if the range cannot be read.
///
/// # Safety
/// The range may be replaced, and no thread of this process writes to it meanwhile.
unsafe fn replace_by_copy(range: &Range<usize>) -> io::Result<()> {
    let length = range.len();
    // SAFETY: new memory at a place of the kernel's choice.
    let copy = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if copy == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
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
            unsafe { libc::munmap(copy, length) };
            return Err(io::Error::last_os_error());
        }
        done += copied as usize;
    }
    // SAFETY: moves the new memory onto the range, which the caller gives up.
    let moved = unsafe {
        libc::mremap(
            copy,
            length,
            length,
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            range.start as *mut libc::c_void,
        )
    };
    if moved == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Keeps this thread's signals waiting: a handler could write to pages that are being moved.
struct SignalsHeld(libc::sigset_t);

impl SignalsHeld {
    fn new() -> SignalsHeld {
        // SAFETY: the calls fill plain values.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            SignalsHeld(before)
        }
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: the mask is the one that `new` was given.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

fn lock() -> MutexGuard<'static, Moved> {
    MOVED.lock().unwrap_or_else(PoisonError::into_inner)
}
