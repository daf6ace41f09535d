//! Pages of the process that are registered where they lie, and the ways to move them.

use std::ptr;

use highwire_host::verbs::{Access, CompletionStatus, Operation, Service};
use highwire_host::{LinkChoice, MemoryRegion, MovingWay, RegisterOptions, moved_by, permit_moving};

use crate::common::{End, Setup, until};

pub(crate) const PAGE: usize = 4096;

/// Pages of the process, as `malloc` gives large blocks.
pub(crate) struct Pages {
    pub(crate) start: *mut u8,
    pub(crate) length: usize,
}

impl Pages {
    pub(crate) fn new(pages: usize) -> Pages {
        let length = pages * PAGE;
        // SAFETY: new memory at a place of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let pages = Pages { start: start.cast(), length };
        (0..length).for_each(|at| pages.set(at, at as u8));
        pages
    }

    pub(crate) fn set(&self, at: usize, byte: u8) {
        assert!(at < self.length);
        // SAFETY: within the pages; volatile, because peers write there, too.
        unsafe { self.start.add(at).write_volatile(byte) }
    }

    pub(crate) fn get(&self, at: usize) -> u8 {
        assert!(at < self.length);
        // SAFETY: as above.
        unsafe { self.start.add(at).read_volatile() }
    }

    pub(crate) fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|i| self.get(at + i)))
    }

    pub(crate) fn register(&self, end: &End, from: usize, to: usize) -> MemoryRegion {
        let options = RegisterOptions { in_place: true, ..RegisterOptions::default() };
        // SAFETY: the pages outlive every region of the tests below, or the test says so.
        let region = unsafe { end.pd.register_with(self.start.add(from), to - from, Access::ALL, &options) };
        region.expect("registers")
    }

    /// Whether the kernel shows a file at this place.
    pub(crate) fn is_moved(&self, at: usize) -> bool {
        let address = self.start as usize + at;
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel tells");
        maps.lines().any(|line| {
            let (range, rest) = line.split_once(' ').expect("a range and more");
            let (start, end) = range.split_once('-').expect("two ends");
            let hex = |text| usize::from_str_radix(text, 16).expect("an address");
            (hex(start)..hex(end)).contains(&address) && rest.starts_with("rw-s")
        })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are ours and no longer used.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

pub(crate) fn pair() -> [End; 2] {
    Setup::new(Service::Rc, LinkChoice::Auto).pair()
}

pub(crate) fn direct(end: &End) -> u64 {
    end.device.counters().value("direct")
}

/// Posts, and finds the request done without the peer's help. It may take a moment if a thread of this side's device was about
/// to look after the queue.
#[track_caller]
pub(crate) fn done_alone(end: &End, operation: Operation, offset: u64, length: u32) {
    end.post(7, operation, offset, length);
    let completion = until("a request that nobody else is needed for", || end.cq.poll_one());
    assert_eq!(completion.status, CompletionStatus::Success);
}

/// Runs `act` while another thread lives.
pub(crate) fn with_another_thread<R>(act: impl FnOnce() -> R) -> R {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv().is_err());
    let result = act();
    drop(stop);
    assert!(thread.join().expect("no panic"));
    // It is gone for the library once it is gone for the kernel, which comes a little later.
    while std::fs::read_dir("/proc/self/task").expect("the kernel tells").count() > 1 {
        std::thread::yield_now();
    }
    result
}

/// The ways that need no way to be alone.
pub(crate) const BESIDE_THREADS: [MovingWay; 3] =
    [MovingWay::Faults, MovingWay::ThreadFaults, MovingWay::Protection];

/// Runs a test with each way that this system permits.
pub(crate) fn by_every_way(mut test: impl FnMut(MovingWay)) {
    for way in BESIDE_THREADS {
        permit_moving(&[way]);
        let before = moved_by(way);
        let [_, b] = &pair();
        let pages = Pages::new(1);
        drop(pages.register(b, 0, PAGE));
        if moved_by(way) == before {
            assert_ne!((way, cfg!(target_arch = "x86_64")), (MovingWay::Protection, true));
            println!("skipped: {way:?} is not permitted here");
            continue;
        }
        test(way);
    }
}

/// Ends the threads of a test even if it fails.
pub(crate) struct Stops<'a>(pub(crate) &'a std::sync::atomic::AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
