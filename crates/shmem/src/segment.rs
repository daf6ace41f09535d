//! Shared memory as one mapping: an anonymous memory file, a named file, or plain heap for tests under Miri.
//!
//! A segment never moves and never changes its length. If another process truncates its file, the missing
//! part becomes pages of zeros of this process's own ([`guard`](crate::guard)). Named files are created with
//! mode 0600 and their pages are reserved, so that a full file system is an error at creation and not a
//! signal at first touch.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;

use crate::guard;
use crate::pool::SharedBuffer;

/// Segments are multiples of this, and so are offsets that other processes map.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A mapped piece of memory that other processes may have mapped, too.
#[derive(Debug)]
pub struct Segment {
    base: *mut u8,
    len: usize,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    /// The file is kept as long as it may have to be locked or passed on.
    Mapped(Option<File>),
    Heap(Layout),
    /// A buffer of a pool, whose own segment is mapped.
    Cut {
        _buffer: SharedBuffer,
    },
}

// SAFETY: the mapping is shared by nature; every access goes through atomics or racy copies.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Zeroed memory of at least `len` bytes behind a memory file, whose descriptor can be passed to other
    /// processes and whose size no process can change any more.
    ///
    /// # Errors
    /// Those of `memfd_create`, `ftruncate`, `fcntl` and `mmap`.
    pub fn anonymous_shared(len: usize) -> io::Result<Segment> {
        // SAFETY: the name is a C string; the flags are valid.
        let fd =
            unsafe { libc::memfd_create(c"highwire".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and belongs to this function.
        let file = unsafe { File::from_raw_fd(fd) };
        let len = reserve(&file, len)?;
        // SAFETY: a plain system call on this function's descriptor.
        let sealed = unsafe {
            libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL)
        };
        if sealed != 0 {
            return Err(io::Error::last_os_error());
        }
        map(file, len)
    }

    /// A new file of at least `len` zero bytes with the given mode, mapped.
    ///
    /// # Errors
    /// `AlreadyExists`, or those of `open`, `fallocate` and `mmap`. A half-made file is removed.
    pub fn create_file(path: &Path, len: usize, mode: u32) -> io::Result<Segment> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        let made = reserve(&file, len).and_then(|len| map(file, len));
        if made.is_err() {
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// A part of a file, which is made longer if it ends before. Its pages are reserved, and there before the first touch where the kernel
    /// can do that.
    ///
    /// # Errors
    /// `InvalidInput` if the offset is no multiple of the page, or those of `fallocate` and `mmap`.
    pub fn part_of_file(file: &File, offset: u64, len: usize) -> io::Result<Segment> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "no part of a file");
        let len = len.max(1).checked_next_multiple_of(PAGE_BYTES).ok_or_else(invalid)?;
        let start = i64::try_from(offset).map_err(|_| invalid())?;
        let bytes = i64::try_from(len).map_err(|_| invalid())?;
        if !offset.is_multiple_of(PAGE_BYTES as u64) {
            return Err(invalid());
        }
        // SAFETY: a plain system call on the caller's descriptor.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), start, bytes) } {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        let segment = map_at(file, start, len)?;
        // SAFETY: this function's mapping. Older kernels refuse, and the pages come one by one.
        let _ = unsafe { libc::madvise(segment.base.cast(), len, libc::MADV_POPULATE_WRITE) };
        Ok(segment)
    }

    /// Maps a file that another process of this user has created, whole, as it is now.
    ///
    /// # Errors
    /// `PermissionDenied` if it belongs to another user, `InvalidData` if it is empty or no regular file, or those of
    /// `open` and `mmap`. A symbolic link is not followed.
    pub fn open(path: &Path) -> io::Result<Segment> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        Segment::from_file(file)
    }

    /// Maps an open file (or a received memory-file descriptor), whole, as it is now.
    ///
    /// # Errors
    /// As for [`Segment::open`].
    pub fn from_file(file: File) -> io::Result<Segment> {
        let meta = file.metadata()?;
        // SAFETY: reads the process's own identity.
        if meta.uid() != unsafe { libc::geteuid() } {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "shared memory of another user"));
        }
        let len = usize::try_from(meta.len()).unwrap_or(0);
        if !meta.is_file() || len == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a shared memory file"));
        }
        map(file, len)
    }

    /// A second mapping of shared memory that the process has mapped at an address, with the same rights. It stays when the
    /// first one goes.
    ///
    /// # Errors
    /// Those of `mremap`: no shared memory is mapped there, or it is a device's, which cannot be mapped twice.
    ///
    /// # Safety
    /// All of it is one mapping of shared memory: the kernel empties a private one.
    pub unsafe fn second(start: *mut u8, len: usize) -> io::Result<Segment> {
        // SAFETY: mremap(2): with an old length of zero, shared memory is mapped once more. The pages are the caller's.
        let base = unsafe { libc::mremap(start.cast(), 0, len, libc::MREMAP_MAYMOVE) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Segment { base: base.cast(), len, backing: Backing::Mapped(None) })
    }

    /// Zeroed private memory, for tests and for rings that never leave the process.
    ///
    /// # Panics
    /// If `len` is zero or above `isize::MAX`.
    pub fn heap(len: usize) -> Segment {
        let layout =
            Layout::from_size_align(len.next_multiple_of(PAGE_BYTES), PAGE_BYTES).expect("a sane length");
        assert!(len > 0, "an empty segment has no address");
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        Segment { base, len: layout.size(), backing: Backing::Heap(layout) }
    }

    /// A buffer as a segment of its own: many fit into one file. It is given back to its pool when this is dropped.
    pub fn cut(buffer: SharedBuffer) -> Segment {
        let (base, len) = (buffer.as_ptr(), buffer.window().len());
        Segment { base, len, backing: Backing::Cut { _buffer: buffer } }
    }

    /// The address of the first byte in this process; aligned to a page, or as its buffer is.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// Bytes mapped; for new segments a multiple of the page.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: a segment has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The descriptor behind the mapping, unless it is heap or the file was closed.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.backing {
            Backing::Mapped(file) => file.as_ref().map(File::as_fd),
            Backing::Heap(_) | Backing::Cut { .. } => None,
        }
    }

    /// The same mapping without its descriptor: processes may map more segments than they may open files.
    pub fn without_file(mut self) -> Segment {
        if let Backing::Mapped(file) = &mut self.backing {
            *file = None;
        }
        self
    }

    /// Whether `len` bytes at `address` lie in this segment, and at which offset.
    pub fn offset_of(&self, address: *const u8, len: usize) -> Option<usize> {
        let offset = address.addr().checked_sub(self.base.addr())?;
        (offset.checked_add(len)? <= self.len).then_some(offset)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        match self.backing {
            // SAFETY: this segment's mapping, which nothing uses any more: windows keep the segment alive.
            Backing::Mapped(_) => unsafe {
                guard::forget(self.base.addr());
                libc::munmap(self.base.cast(), self.len);
            },
            // SAFETY: allocated with this layout.
            Backing::Heap(layout) => unsafe { dealloc(self.base, layout) },
            Backing::Cut { .. } => {}
        }
    }
}

/// Sizes a new file to whole pages and reserves them.
fn reserve(file: &File, len: usize) -> io::Result<usize> {
    let len = len.max(1).checked_next_multiple_of(PAGE_BYTES);
    let bytes = len.and_then(|len| i64::try_from(len).ok());
    let (Some(len), Some(bytes)) = (len, bytes) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "segment too large"));
    };
    // SAFETY: a plain system call on this process's descriptor.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
        0 => Ok(len),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn map(file: File, len: usize) -> io::Result<Segment> {
    let mut segment = map_at(&file, 0, len)?;
    segment.backing = Backing::Mapped(Some(file));
    Ok(segment)
}

fn map_at(file: &File, offset: i64, len: usize) -> io::Result<Segment> {
    // SAFETY: a fresh shared mapping at an address of the kernel's choice; the length is not zero.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            offset,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    guard::install();
    guard::watch(base.addr(), len);
    Ok(Segment { base: base.cast(), len, backing: Backing::Mapped(None) })
}
