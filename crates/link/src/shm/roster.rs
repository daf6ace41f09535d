//! The threads of this user that poll on this machine, and on which core each does: a file in the registry.
//!
//! ```text
//!   0 ┌──────────────────────┬─────────────┬──────────────┐
//!     │ "HWROSTER"           │ version u32 │ columns used │
//!  64 ├──────────────────────┴─────────────┴──────────────┤
//!     │ row 0: 128 beats, one u64 for each column         │  threads on core 0, 64, 128 …
//!     │ row 1 …, up to row 63                             │
//!     └───────────────────────────────────────────────────┘
//!       a beat: time in ms (32 bits) · thread (22 bits) · core (10 bits); 0: none
//! ```
//!
//! A device has a column, which is its own as long as it holds the lock on the column's byte; the kernel drops that lock however
//! the process ends. A thread that polls stores its beat now and then in the row of its core, and reads that row: so threads that have
//! their cores to themselves write to different cache lines, and cost each other nothing. A beat that is older than [`BEAT_LASTS_MS`]
//! counts as none: of a thread that has stopped polling, was stopped itself or was killed.
//!
//! Nothing here is trusted: a wrong beat makes a thread give its core away a few times for nothing.

use super::Registry;
use super::lock::{self, Byte};
use highwire_shmem::{Segment, Window};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"HWROSTER");
const VERSION: u32 = 1;
const AT_VERSION: usize = 8;
const AT_USED: usize = 12;
const ROWS_AT: usize = 64;
const ROWS: usize = 64;
const COLUMNS: usize = 128;
const ROW_BYTES: usize = COLUMNS * 8;
const FILE_BYTES: usize = ROWS_AT + ROWS * ROW_BYTES;
/// Programs with another layout have a roster of their own.
const NAME: &str = "roster-1";

/// How long a beat is believed. Threads that share a core by time slices of a few milliseconds beat in each of them.
pub const BEAT_LASTS_MS: u32 = 10;
/// A reader may have been kept from its core between its look at the clock and that at the beats.
const AHEAD_MS: u32 = 10;

const THREAD_BITS: u32 = 22;
const CORE_BITS: u32 = 10;
const STAMP_MASK: u64 = (1 << (THREAD_BITS + CORE_BITS)) - 1;

/// A thread that polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poller {
    /// Its number, as the kernel counts threads.
    pub thread: u32,
    /// The core that it runs on.
    pub core: u32,
}

/// A device's part of the roster.
#[derive(Debug)]
pub struct Roster {
    window: Window,
    /// None is left where 128 devices of this user poll.
    column: Option<usize>,
}

impl Poller {
    fn beat_at(self, now_ms: u32) -> u64 {
        u64::from(now_ms) << (THREAD_BITS + CORE_BITS) | self.stamp()
    }

    /// What tells it from others.
    fn stamp(self) -> u64 {
        let thread = u64::from(self.thread) & ((1 << THREAD_BITS) - 1);
        thread << CORE_BITS | u64::from(self.core) & ((1 << CORE_BITS) - 1)
    }
}

/// The stamp of a beat that still counts.
fn living(beat: u64, now_ms: u32) -> Option<u64> {
    let age = now_ms.wrapping_sub((beat >> (THREAD_BITS + CORE_BITS)) as u32);
    let is_new = age.wrapping_add(AHEAD_MS) <= BEAT_LASTS_MS + AHEAD_MS;
    (beat != 0 && is_new).then_some(beat & STAMP_MASK)
}

fn core_of(stamp: u64) -> u64 {
    stamp & ((1 << CORE_BITS) - 1)
}

impl Roster {
    /// Devices that can have a column.
    pub const COLUMNS: usize = COLUMNS;

    /// Takes a column for a device of this process. Without one, because all are taken, its threads see the others and
    /// are not seen.
    ///
    /// # Errors
    /// Those of making and mapping the file.
    pub fn join(registry: &Registry) -> io::Result<Roster> {
        let segment = open_or_make(registry)?;
        let window = Window::whole(&Arc::new(segment));
        let mut roster = Roster { window, column: None };
        roster.column = roster.take_column()?;
        roster.clear();
        Ok(roster)
    }

    /// The file.
    pub fn path(registry: &Registry) -> PathBuf {
        registry.root().join(NAME)
    }

    /// Whether other threads see the threads of this device.
    pub fn is_seen(&self) -> bool {
        self.column.is_some()
    }

    /// Takes note that a thread polls now.
    #[inline]
    pub fn beat(&self, poller: Poller, now_ms: u32) {
        if let Some(column) = self.column {
            self.window
                .u64_at(beat_at(row_of(poller), column))
                .store(poller.beat_at(now_ms), Ordering::Relaxed);
        }
    }

    /// Takes note that a thread which has beaten on this core has stopped polling.
    pub fn leave(&self, poller: Poller) {
        let Some(column) = self.column else { return };
        let word = self.window.u64_at(beat_at(row_of(poller), column));
        // Another thread of the device may have beaten there since.
        if word.load(Ordering::Relaxed) & STAMP_MASK == poller.stamp() {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// How many other threads poll on this thread's core.
    #[inline]
    pub fn others_here(&self, poller: Poller, now_ms: u32) -> u32 {
        let (row, me) = (row_of(poller), poller.stamp());
        let beats = (0..self.used()).map(|column| self.window.u64_at(beat_at(row, column)));
        let stamps = beats.filter_map(|beat| living(beat.load(Ordering::Relaxed), now_ms));
        stamps.filter(|stamp| *stamp != me && core_of(*stamp) == core_of(me)).count() as u32
    }

    /// How many threads poll on this machine. It reads what all cores have written, so no thread that polls should call it often.
    pub fn everywhere(&self, now_ms: u32) -> u32 {
        let mut threads = Vec::new();
        for row in 0..ROWS {
            for column in 0..self.used() {
                let beat = self.window.u64_at(beat_at(row, column)).load(Ordering::Relaxed);
                // A thread that has moved to another core has beats on both for a moment.
                threads.extend(living(beat, now_ms).map(|stamp| stamp >> CORE_BITS));
            }
        }
        threads.sort_unstable();
        threads.dedup();
        threads.len() as u32
    }

    /// Columns that have ever been taken. Another process may have written anything there.
    fn used(&self) -> usize {
        (self.used_word().load(Ordering::Relaxed) as usize).min(COLUMNS)
    }

    fn used_word(&self) -> &AtomicU32 {
        self.window.u32_at(AT_USED)
    }

    /// The first column whose process has ended or never was.
    fn take_column(&self) -> io::Result<Option<usize>> {
        let file = self.window.segment().file().expect("a mapped file that stays open");
        for column in 0..COLUMNS {
            if lock::try_lock(file, Byte::Column(column as u32))? {
                self.used_word().fetch_max(column as u32 + 1, Ordering::Relaxed);
                return Ok(Some(column));
            }
        }
        Ok(None)
    }

    /// Removes the beats of this column.
    fn clear(&self) {
        for row in self.column.iter().flat_map(|column| (0..ROWS).map(move |row| beat_at(row, *column))) {
            self.window.u64_at(row).store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        self.clear();
    }
}

fn row_of(poller: Poller) -> usize {
    poller.core as usize % ROWS
}

fn beat_at(row: usize, column: usize) -> usize {
    ROWS_AT + row * ROW_BYTES + column * 8
}

/// Maps the file. One that is no roster, or not a whole one, is replaced: processes that have it mapped no longer see newcomers.
fn open_or_make(registry: &Registry) -> io::Result<Segment> {
    let path = Roster::path(registry);
    if let Some(segment) = open(&path)? {
        return Ok(segment);
    }
    let _guard = registry.lock_for_housekeeping()?;
    if let Some(segment) = open(&path)? {
        return Ok(segment);
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let segment = Segment::create_file(&path, FILE_BYTES, 0o600)?;
    let window = Window::whole(&Arc::new(segment));
    window.u32_at(AT_VERSION).store(VERSION, Ordering::Relaxed);
    window.u64_at(0).store(MAGIC, Ordering::Release);
    drop(window);
    open(&path)?.ok_or_else(|| io::Error::other("a new roster cannot be read"))
}

/// The file, if it is there and is a roster.
fn open(path: &Path) -> io::Result<Option<Segment>> {
    let segment = match Segment::open(path) {
        Ok(segment) => Arc::new(segment),
        Err(error) => {
            let is_none = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData)
                || error.raw_os_error() == Some(libc::ELOOP);
            return if is_none { Ok(None) } else { Err(error) };
        }
    };
    let window = Window::whole(&segment);
    let is_roster = window.len() >= FILE_BYTES
        && window.u64_at(0).load(Ordering::Acquire) == MAGIC
        && window.u32_at(AT_VERSION).load(Ordering::Relaxed) == VERSION;
    drop(window);
    Ok(is_roster.then(|| Arc::into_inner(segment).expect("the window is gone")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Poller = Poller { thread: 70_001, core: 3 };

    #[test]
    fn a_beat_counts_for_a_while_across_the_end_of_the_clock_and_not_after_it() {
        for begin in [1, 1000, u32::MAX - 5, u32::MAX] {
            let beat = ME.beat_at(begin);
            for (later, counts) in
                [(0, true), (BEAT_LASTS_MS, true), (BEAT_LASTS_MS + 1, false), (1 << 31, false)]
            {
                let stamp = living(beat, begin.wrapping_add(later));
                assert_eq!(stamp, counts.then(|| ME.stamp()), "{begin} + {later}");
            }
            assert!(
                living(beat, begin.wrapping_sub(AHEAD_MS)).is_some(),
                "the reader was kept from its core"
            );
            assert!(
                living(beat, begin.wrapping_sub(AHEAD_MS + 1)).is_none(),
                "{begin}: a beat from the future"
            );
        }
        assert_eq!(living(0, 0), None, "no beat");
    }
}
