//! Registered memory that peers can map: an allocator over growing shared segments.
//!
//! Each segment is a file `mem-<id>` in the device's directory (or an anonymous memory file), so that every
//! process knows a buffer by segment id and offset. Ids count from 1 and are never used again; 0 means "not
//! shared".
//!
//! Invariant: free ranges are multiples of 64 bytes, never overlap, and never touch each other.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::layout::LayoutError;
use crate::segment::Segment;
use crate::window::Window;

/// The first segment; each later one is twice as large, up to the maximum.
const FIRST_SEGMENT_BYTES: usize = 1 << 20;
const SEGMENT_BYTES_MAX: usize = 64 << 20;

/// Buffers never share a cache line.
const GRAIN_BYTES: usize = 64;

/// An allocator of shared memory; clones are the same pool.
#[derive(Clone, Debug)]
pub struct SharedPool {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    directory: Option<PathBuf>,
    next_id: u32,
    next_bytes: usize,
    segments: BTreeMap<u32, Arena>,
}

#[derive(Debug)]
struct Arena {
    segment: Arc<Segment>,
    /// Offset to length.
    free: BTreeMap<usize, usize>,
    /// No new buffer is cut from it.
    is_retired: bool,
}

/// A piece of shared memory; freed when dropped.
///
/// Its bytes may be written by peers at any time, so there are no slices of it: copy in and out, or use the address.
#[derive(Debug)]
pub struct SharedBuffer {
    pool: SharedPool,
    window: Window,
    segment_id: u32,
    len: usize,
}

/// A segment of the pool's from which nothing is allocated; its file is removed when this is dropped.
#[derive(Debug)]
pub struct DedicatedSegment {
    pool: SharedPool,
    id: u32,
}

/// A segment of the pool's that holds a single object, mapped; its file is removed when this is dropped. Its
/// memory is never used again for another purpose, so a program that still has it mapped then does no harm.
#[derive(Debug)]
pub struct WholeSegment {
    dedicated: DedicatedSegment,
    window: Window,
}

/// Why there is no buffer.
#[derive(Debug)]
pub enum PoolError {
    /// The length is zero or absurd, or the alignment is no power of two.
    Invalid,
    /// A new segment could not be made.
    Segment(io::Error),
}

impl SharedPool {
    /// A pool whose segments are files `mem-<id>`, mode 0600, in `directory`.
    pub fn in_directory(directory: &Path) -> SharedPool {
        SharedPool::new(Some(directory.to_path_buf()))
    }

    /// A pool of anonymous memory files.
    pub fn anonymous() -> SharedPool {
        SharedPool::new(None)
    }

    fn new(directory: Option<PathBuf>) -> SharedPool {
        let inner =
            Inner { directory, next_id: 1, next_bytes: FIRST_SEGMENT_BYTES, segments: BTreeMap::new() };
        SharedPool { inner: Arc::new(Mutex::new(inner)) }
    }

    /// The name of a segment's file in its device's directory.
    pub fn file_name(segment_id: u32) -> String {
        format!("mem-{segment_id}")
    }

    /// A buffer of `len` bytes whose address is a multiple of `align` (at least of 64). Its contents are arbitrary.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn allocate(&self, len: usize, align: usize) -> Result<SharedBuffer, PoolError> {
        let rounded =
            len.checked_next_multiple_of(GRAIN_BYTES).filter(|&n| n > 0 && n <= isize::MAX as usize / 2);
        let (Some(bytes), true) = (rounded, align.is_power_of_two() && align <= 1 << 30) else {
            return Err(PoolError::Invalid);
        };
        let align = align.max(GRAIN_BYTES);
        let mut inner = self.lock();
        let (segment_id, offset) = match inner.take(bytes, align) {
            Some(found) => found,
            None => {
                inner.grow(bytes, align)?;
                inner.take(bytes, align).expect("the new segment has room for the request")
            }
        };
        let segment = &inner.segments[&segment_id].segment;
        let window = Window::new(segment, offset, bytes).expect("the range was cut from this segment");
        Ok(SharedBuffer { pool: self.clone(), window, segment_id, len })
    }

    /// The place of `len` bytes at `address`, if they lie in one of the pool's segments: segment id and
    /// offset.
    pub fn locate(&self, address: *const u8, len: usize) -> Option<(u32, usize)> {
        let inner = self.lock();
        inner.segments.iter().find_map(|(&id, arena)| Some((id, arena.segment.offset_of(address, len)?)))
    }

    /// A segment of its own, of zero bytes, for memory that is mapped elsewhere in the process. Returned with
    /// its first mapping, which has the file.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn dedicate(&self, len: usize) -> Result<(DedicatedSegment, Segment), PoolError> {
        let mut inner = self.lock();
        let id = inner.next_id;
        let segment = match &inner.directory {
            Some(directory) => Segment::create_file(&directory.join(SharedPool::file_name(id)), len, 0o600),
            None => Segment::anonymous_shared(len),
        };
        let segment = segment.map_err(PoolError::Segment)?;
        inner.next_id += 1;
        Ok((DedicatedSegment { pool: self.clone(), id }, segment))
    }

    /// A segment of its own, of zero bytes, that [`locate`](Self::locate) knows and another program maps by
    /// its name.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn whole(&self, len: usize) -> Result<WholeSegment, PoolError> {
        let (dedicated, segment) = self.dedicate(len)?;
        let segment = Arc::new(segment.without_file());
        let window = Window::whole(&segment);
        self.lock()
            .segments
            .insert(dedicated.id, Arena { segment, free: BTreeMap::new(), is_retired: false });
        Ok(WholeSegment { dedicated, window })
    }

    /// Cuts no further buffer from the segment that an address lies in, which goes when the buffers in it
    /// have gone: a peer may still write to memory that is given back there.
    pub fn retire(&self, address: *const u8) {
        let mut inner = self.lock();
        let found = inner.segments.values_mut().find(|arena| arena.segment.offset_of(address, 1).is_some());
        if let Some(arena) = found {
            arena.is_retired = true;
        }
    }

    /// Bytes of all segments.
    pub fn mapped_bytes(&self) -> usize {
        self.lock().segments.values().map(|arena| arena.segment.len()).sum()
    }

    fn free(&self, segment_id: u32, offset: usize, bytes: usize) {
        self.lock().give_back(segment_id, offset, bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// First fit.
    fn take(&mut self, bytes: usize, align: usize) -> Option<(u32, usize)> {
        for (&id, arena) in self.segments.iter_mut().filter(|(_, arena)| !arena.is_retired) {
            let base = arena.segment.as_ptr().addr();
            let fit = arena.free.iter().find_map(|(&start, &len)| {
                let at = (base + start).checked_next_multiple_of(align)? - base;
                (at.checked_add(bytes)? <= start + len).then_some((start, len, at))
            });
            if let Some((start, len, at)) = fit {
                arena.free.remove(&start);
                if at > start {
                    arena.free.insert(start, at - start);
                }
                if at + bytes < start + len {
                    arena.free.insert(at + bytes, start + len - at - bytes);
                }
                return Some((id, at));
            }
        }
        None
    }

    fn grow(&mut self, bytes: usize, align: usize) -> Result<(), PoolError> {
        // A mapping is aligned to a page only; the rest of the alignment may cost up to `align` bytes.
        let slack = if align > 4096 { align } else { 0 };
        let len = bytes.checked_add(slack).ok_or(PoolError::Invalid)?.max(self.next_bytes);
        let id = self.next_id;
        let segment = match &self.directory {
            Some(directory) => Segment::create_file(&directory.join(SharedPool::file_name(id)), len, 0o600)
                .map(Segment::without_file),
            None => Segment::anonymous_shared(len),
        };
        let segment = Arc::new(segment.map_err(PoolError::Segment)?);
        self.next_id += 1;
        self.next_bytes = (self.next_bytes * 2).min(SEGMENT_BYTES_MAX);
        let free = BTreeMap::from([(0, segment.len())]);
        self.segments.insert(id, Arena { segment, free, is_retired: false });
        Ok(())
    }

    fn give_back(&mut self, segment_id: u32, offset: usize, bytes: usize) {
        let several = self.segments.len() > 1;
        let arena = self.segments.get_mut(&segment_id).expect("a buffer keeps its segment");
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some((&before, &len)) = arena.free.range(..start).next_back()
            && before + len == start
        {
            arena.free.remove(&before);
            start = before;
        }
        if let Some(len) = arena.free.remove(&end) {
            end += len;
        }
        arena.free.insert(start, end - start);
        if (several || arena.is_retired) && (start, end) == (0, arena.segment.len()) {
            self.segments.remove(&segment_id);
            self.unlink(segment_id);
        }
    }

    fn unlink(&self, segment_id: u32) {
        if let Some(directory) = &self.directory {
            // If the file is gone already, that is fine.
            let _ = std::fs::remove_file(directory.join(SharedPool::file_name(segment_id)));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for &id in self.segments.keys() {
            self.unlink(id);
        }
    }
}

impl DedicatedSegment {
    /// The segment's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Opens its file once more.
    ///
    /// # Errors
    /// Those of `open`; a pool of anonymous memory has no files.
    pub fn open(&self) -> io::Result<std::fs::File> {
        let inner = self.pool.lock();
        let directory = inner.directory.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let path = directory.join(SharedPool::file_name(self.id));
        std::fs::OpenOptions::new().read(true).write(true).open(path)
    }

    /// Whether the segment belongs to this pool.
    pub fn is_of(&self, pool: &SharedPool) -> bool {
        Arc::ptr_eq(&self.pool.inner, &pool.inner)
    }
}

impl Drop for DedicatedSegment {
    fn drop(&mut self) {
        self.pool.lock().unlink(self.id);
    }
}

impl WholeSegment {
    /// The segment's id, from 1.
    pub fn id(&self) -> u32 {
        self.dedicated.id
    }

    /// All of it.
    pub fn window(&self) -> &Window {
        &self.window
    }
}

impl Drop for WholeSegment {
    fn drop(&mut self) {
        let mut inner = self.dedicated.pool.lock();
        inner.segments.remove(&self.dedicated.id);
    }
}

impl SharedBuffer {
    /// The address of the first byte, in this process.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.window.as_ptr()
    }

    /// Bytes, as asked for.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The segment's id, from 1.
    pub fn segment_id(&self) -> u32 {
        self.segment_id
    }

    /// Where the buffer starts in its segment, in bytes.
    pub fn offset(&self) -> usize {
        self.window.offset()
    }

    /// The buffer as a window, rounded up to whole cache lines.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Copies bytes out. Concurrent writers may tear them.
    ///
    /// # Errors
    /// [`LayoutError::OutOfBounds`].
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<(), LayoutError> {
        self.check(at, to.len())?;
        self.window.copy_out(at, to);
        Ok(())
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// [`LayoutError::OutOfBounds`].
    pub fn write(&self, at: usize, from: &[u8]) -> Result<(), LayoutError> {
        self.check(at, from.len())?;
        self.window.copy_in(at, from);
        Ok(())
    }

    fn check(&self, at: usize, len: usize) -> Result<(), LayoutError> {
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(LayoutError::OutOfBounds { offset: at, len, mapped: self.len }),
        }
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        self.pool.free(self.segment_id, self.window.offset(), self.window.len());
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::Invalid => write!(f, "zero or absurd length, or an alignment that is no power of two"),
            PoolError::Segment(error) => write!(f, "cannot make a shared segment: {error}"),
        }
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PoolError::Segment(error) => Some(error),
            PoolError::Invalid => None,
        }
    }
}
