//! Holds memory that a program registers, as a card that pins it would.
//!
//! Two things are wanted of registered memory. Neighbours are to read and write it themselves, even if its owner calls nothing.
//! And a program that unmaps it too early, or maps something else there, must never find peers' bytes in what came later. So the
//! library has a mapping of its own of the same pages, and serves packets there:
//!
//! - Private memory is moved, where it lies, onto a file of the device's pool ([`moving`]), which neighbours map as well.
//! - Shared memory of the program's is mapped a second time, for the library alone.
//!
//! The rules:
//!
//! - Pages move while threads run: those that touch a page on its way wait ([`still`]).
//! - Pages that hold other data as well, at a region's ends, move if system calls can wait, too, or if there is nobody else.
//! - Stacks and descriptors of threads stay ([`threads::fixed`]), and so does more than [`BYTES_MAX`] at once. They are reached
//!   where the program has them.
//! - Several regions may name the same pages: a later region finds them moved, and when the last region goes, they are moved
//!   back with their contents, into the mapping that was there before.
//! - The library asks the kernel each time which pages are its own ([`maps`]), and leaves alone memory that
//!   the program has unmapped or replaced meanwhile.
//! - A child process gets copies of its own, as for any private memory ([`fork`]).
#![allow(unsafe_code)]

mod fork;
mod maps;
mod moving;
mod still;
mod system;
mod threads;

pub use still::{MovingWay, moved_by, permit_moving};
pub use threads::OwnThread;

use fork::Undisturbed;
use highwire_shmem::{DedicatedSegment, Segment, SharedPool, guard};
use maps::{FileId, Mappings, Nature, Piece};
use moving::Target;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use still::Still;

pub(crate) const PAGE_BYTES: usize = 4096;
/// A longer piece stays where it is: the child of a fork would have to copy it.
pub(crate) const BYTES_MAX: usize = 256 << 20;
/// Each run and each second mapping takes up to four of the 65,530 mappings that a process may have.
const HELD_MAX: usize = 4096;

static MOVED: Mutex<Moved> =
    Mutex::new(Moved { runs: BTreeMap::new(), seconds: 0, regions: BTreeMap::new() });

/// Runs something while no lane of a device touches memory.
pub(crate) type Quietly<'a> = &'a dyn Fn(&mut dyn FnMut());

/// The moved pages, and the registered regions.
struct Moved {
    runs: BTreeMap<FileId, Run>,
    /// Parts of regions that are mapped a second time.
    seconds: usize,
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
    /// Where the private mappings wait that were there before.
    parked: usize,
}

/// A part of a region that the library has mapped itself, until it is given to [`release`].
#[derive(Debug)]
pub(crate) struct HeldPart {
    /// The moved pages that it is of.
    run: Option<FileId>,
    /// Its addresses in this process.
    pub(crate) range: Range<usize>,
    /// The segment in which neighbours find it.
    pub(crate) segment: Option<u32>,
    pub(crate) offset: u64,
    /// The library's mapping.
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

/// Holds as much of a region as can be held, in parts in the order of addresses.
///
/// # Safety
/// The memory belongs to the caller.
pub(crate) unsafe fn acquire(
    device: usize,
    pool: &SharedPool,
    bytes: &Range<usize>,
    quietly: Quietly<'_>,
) -> Vec<HeldPart> {
    let outer = bytes.start / PAGE_BYTES * PAGE_BYTES..bytes.end.next_multiple_of(PAGE_BYTES);
    let inner = bytes.start.next_multiple_of(PAGE_BYTES)..bytes.end / PAGE_BYTES * PAGE_BYTES;
    let mut moved = lock();
    let Ok(mappings) = Mappings::read() else { return Vec::new() };
    let mut way = None;
    let mut parts = Vec::new();
    for piece in mappings.pieces(&outer) {
        match piece.nature {
            Nature::Shared { file, offset } => parts.extend(moved.share(pool, &piece, file, offset)),
            Nature::Private | Nature::PrivateFile => {
                let chosen = way.get_or_insert_with(|| moved.way(device, &outer));
                let still = chosen.as_ref().map(|(still, _)| still);
                let permits_others = chosen.as_ref().is_some_and(|(_, permits)| *permits);
                let is_plain = piece.nature == Nature::Private;
                let whole = if is_plain && permits_others { &outer } else { &inner };
                // The kernel does not watch faults of such mappings.
                let protection =
                    if is_plain || matches!(still, Some(Still::Alone)) { None } else { Still::protection() };
                let Some(still) = protection.as_ref().or(still) else { continue };
                for range in without(&piece.cut(whole).range, &threads::fixed()) {
                    parts.extend(moved.shift(pool, &range, &mappings, still, quietly));
                }
            }
            Nature::Other => {}
        }
    }
    // The region's own bytes, of the pages that are held.
    for part in &mut parts {
        let start = part.range.start.max(bytes.start);
        part.offset += (start - part.range.start) as u64;
        part.range = start..part.range.end.min(bytes.end).max(start);
    }
    parts
}

/// A region lets go of a part. When the last region that names a run goes, the run is moved back.
pub(crate) fn release(part: HeldPart, quietly: Quietly<'_>) {
    let mut moved = lock();
    let Some(file) = part.run else {
        moved.seconds -= 1;
        return;
    };
    drop(part);
    let Some(run) = moved.runs.get_mut(&file) else { return };
    run.users -= 1;
    if run.users > 0 {
        return;
    }
    let Some(run) = moved.runs.remove(&file) else { return };
    moved.restore(file, &run, quietly);
}

impl Moved {
    /// How pages can move that lie in a range, and whether those that hold other data can.
    fn way(&self, device: usize, range: &Range<usize>) -> Option<(Still, bool)> {
        let is_elsewhere = self.regions.iter().any(|((owner, _), other)| {
            *owner != device && other.start < range.end && range.start < other.end
        });
        if fork::is_ready() { Still::choose(is_elsewhere) } else { None }
    }

    /// A part that is shared memory already.
    fn share(&mut self, pool: &SharedPool, piece: &Piece, file: FileId, offset: u64) -> Option<HeldPart> {
        let range = piece.range.clone();
        if let Some(run) = self.runs.get_mut(&file) {
            run.users += 1;
            let segment = run.segment.is_of(pool).then(|| run.segment.id());
            return Some(HeldPart {
                run: Some(file),
                range,
                segment,
                offset,
                mapping: Arc::clone(&run.mapping),
            });
        }
        if self.runs.len() + self.seconds >= HELD_MAX {
            return None;
        }
        // SAFETY: the kernel says that it is shared memory; if the program has changed that meanwhile, it is refused.
        let mapping = unsafe { Segment::second(range.start as *mut u8, range.len()) }.ok()?;
        self.seconds += 1;
        Some(HeldPart { run: None, range, segment: None, offset: 0, mapping: Arc::new(mapping) })
    }

    /// Moves private pages onto a file of the pool.
    fn shift(
        &mut self,
        pool: &SharedPool,
        range: &Range<usize>,
        mappings: &Mappings,
        still: &Still,
        quietly: Quietly<'_>,
    ) -> Option<HeldPart> {
        let length = range.len();
        if range.is_empty() || length > BYTES_MAX || self.runs.len() + self.seconds >= HELD_MAX {
            return None;
        }
        let singles = mappings.within(range);
        // The file has a place for each page of the range, and for no other.
        if singles.iter().map(|single| single.range.len()).sum::<usize>() != length {
            return None;
        }
        let (segment, mapping) = pool.dedicate(length).ok()?;
        let file = file_of(&mapping)?;
        let parked = moving::reserve(length).ok()?;
        let mut made = Some((segment, mapping));
        quietly(&mut || {
            let Some((segment, mapping)) = made.take() else { return };
            let Some(descriptor) = mapping.file() else { return };
            let undisturbed = Undisturbed::new();
            let mut done = 0;
            for single in &singles {
                let range = single.range.clone();
                let target = Target { mapping: mapping.as_ptr(), file: descriptor, offset: done };
                // SAFETY: the kernel says that this is one mapping of private memory, and the way keeps threads from it.
                let (moved, result) = unsafe { moving::move_in(&range, parked + done, target, still) };
                done += moved;
                if result.is_err() {
                    break;
                }
            }
            // SAFETY: nothing is parked behind what has moved.
            unsafe { moving::unreserve(&(parked + done..parked + length)) };
            if done > 0 {
                still.count();
                let mapping = Arc::new(mapping.without_file());
                let range = range.start..range.start + done;
                self.runs.insert(file, Run { segment, mapping, users: 1, range, parked });
                undisturbed.protect(self.ranges());
            }
        });
        let run = self.runs.get(&file)?;
        Some(HeldPart {
            run: Some(file),
            range: run.range.clone(),
            segment: Some(run.segment.id()),
            offset: 0,
            mapping: Arc::clone(&run.mapping),
        })
    }

    /// Moves a run back to where the program has its pages now.
    fn restore(&mut self, file: FileId, run: &Run, quietly: Quietly<'_>) {
        let parked = run.parked..run.parked + run.range.len();
        // Its pages may hold other data, so threads of the library are as dangerous as others.
        let mut way = Still::choose(true).map(|(still, _)| still);
        let mut back = Vec::new();
        let mut is_whole = true;
        quietly(&mut || {
            let undisturbed = Undisturbed::new();
            let Ok(mappings) = Mappings::read() else { return };
            for piece in mappings.of(file).filter(|piece| !guard::is_segment(piece.range.start)) {
                let Nature::Shared { offset, .. } = piece.nature else { continue };
                let there = run.parked + offset as usize;
                let mut covered = 0;
                for waiting in mappings.within(&(there..(there + piece.range.len()).min(parked.end))) {
                    if waiting.rights != libc::PROT_READ | libc::PROT_WRITE {
                        continue;
                    }
                    let start = piece.range.start + (waiting.range.start - there);
                    let piece = piece.cut(&(start..start + waiting.range.len()));
                    let done = move_back(&piece, waiting.range.start, run, &mut way);
                    back.push(waiting.range.start..waiting.range.start + done);
                    covered += done;
                }
                is_whole &= covered == piece.range.len();
            }
            undisturbed.protect(self.ranges());
        });
        // What has come back is not there any more, and somebody else may have the addresses.
        for left in without(&parked, &back) {
            // SAFETY: the program has unmapped the pages that belong here, and only the library knew of these.
            unsafe { moving::unreserve(&left) };
        }
        if is_whole {
            // At once, although neighbours may still have the file mapped: the program has the bytes nowhere else.
            // SAFETY: the library's own mapping, which nothing uses any more.
            unsafe { libc::madvise(run.mapping.as_ptr().cast(), run.mapping.len(), libc::MADV_REMOVE) };
        }
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.runs.values().map(|run| run.range.clone())
    }
}

/// Moves one piece back, as far as any way does it. Returns how many bytes the private mapping has taken over.
fn move_back(piece: &Piece, parked: usize, run: &Run, way: &mut Option<Still>) -> usize {
    let Nature::Shared { offset, .. } = piece.nature else { return 0 };
    let source = run.mapping.as_ptr().wrapping_add(offset as usize);
    let mut done = 0;
    while let Some(still) = way {
        let rest = piece.cut(&(piece.range.start + done..piece.range.end));
        // SAFETY: the kernel says that our file is mapped there, and what was there before is parked.
        let (moved, result) =
            unsafe { moving::move_out(&rest, parked + done, source.wrapping_add(done), still) };
        done += moved;
        if result.is_ok() {
            return done;
        }
        // Kernels before 5.19 do not watch writes to shared memory.
        *way = match still {
            Still::Faults(_) => Still::protection(),
            Still::Alone | Still::Protection => None,
        };
    }
    let rest = piece.cut(&(piece.range.start + done..piece.range.end));
    // If that fails as well, the pages stay in the file, where they are still valid memory.
    let _ = detach(&rest, &run.segment);
    done
}

/// Puts a private view of the file in place of the shared one. Later writes stay in this process.
fn detach(piece: &Piece, segment: &DedicatedSegment) -> io::Result<()> {
    let Nature::Shared { offset, .. } = piece.nature else { return Ok(()) };
    let file = segment.open()?;
    // SAFETY: the kernel changes the mapping in one step, and both show the same bytes. Pages that no thread has
    // written to would go on showing the file, and a neighbour that has kept the file mapped could still write to it. So the
    // kernel copies all pages now, which is safe even if other threads write meanwhile. Kernels before 5.14 cannot do this.
    unsafe {
        moving::map_over(&piece.range, piece.rights, file.as_fd(), libc::MAP_PRIVATE, offset)?;
        libc::madvise(piece.range.start as *mut libc::c_void, piece.range.len(), libc::MADV_POPULATE_WRITE);
    }
    Ok(())
}

/// What is left of a range without others, which may overlap each other.
fn without(range: &Range<usize>, others: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut others: Vec<_> = others.to_vec();
    others.sort_by_key(|other| other.start);
    let mut left = Vec::new();
    let mut at = range.start;
    for other in others {
        if other.start > at && at < range.end {
            left.push(at..other.start.min(range.end));
        }
        at = at.max(other.end);
    }
    if at < range.end {
        left.push(at..range.end);
    }
    left
}

fn file_of(mapping: &Segment) -> Option<FileId> {
    let file = std::fs::File::from(mapping.file()?.try_clone_to_owned().ok()?);
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    Some(FileId { major: libc::major(device), minor: libc::minor(device), inode: metadata.ino() })
}

fn lock() -> MutexGuard<'static, Moved> {
    MOVED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, of which some have one")]
    fn what_must_stay_is_left_out_of_what_moves() {
        for (others, expected) in [
            (vec![], vec![10..20]),
            (vec![0..5, 25..30], vec![10..20]),
            (vec![12..14, 8..11], vec![11..12, 14..20]),
            (vec![18..40], vec![10..18]),
            (vec![11..19, 12..13], vec![10..11, 19..20]),
            (vec![0..40], vec![]),
        ] {
            assert_eq!(without(&(10..20), &others), expected, "{others:?}");
        }
    }
}
