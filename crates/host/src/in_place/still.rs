//! Ways to keep other threads from memory while it moves.
//!
//! | way | who waits | what it needs |
//! |---|---|---|
//! | alone | nobody: no thread could touch the pages | no thread but the caller, and the library's own |
//! | faults | threads and their system calls | userfaultfd(2), as root, or `/dev/userfaultfd` |
//! | faults of threads | threads; a system call on the very pages fails with EFAULT | userfaultfd(2) as anybody |
//! | protection | as above | no thread blocks SIGSEGV; the pages lose their rights, and the guard's handler waits |
//!
//! Filters of system calls (seccomp), as containers have them, often forbid userfaultfd(2), and some end the process that
//! tries. So it is not tried below a filter, and the last way has to be there.

use super::threads::{self, Company};
use highwire_shmem::guard::{self, Pause};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// How memory is kept still while it moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MovingWay {
    /// No other thread could notice.
    Alone,
    /// Threads and their system calls wait in faults.
    Faults,
    /// Threads wait in faults.
    ThreadFaults,
    /// Threads wait in the handler of SIGSEGV.
    Protection,
}

impl MovingWay {
    /// All of them, the best first.
    pub const ALL: [MovingWay; 4] =
        [MovingWay::Alone, MovingWay::Faults, MovingWay::ThreadFaults, MovingWay::Protection];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

static PERMITTED: AtomicU8 = AtomicU8::new(0b1111);
static USED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Permits the process only these ways from now on: for tests, and for programs that find one of them in their way.
pub fn permit_moving(ways: &[MovingWay]) {
    PERMITTED.store(ways.iter().fold(0, |bits, way| bits | way.bit()), Ordering::Relaxed);
}

/// How often each way has moved memory onto shared memory in this process.
pub fn moved_by(way: MovingWay) -> u64 {
    USED[way as usize].load(Ordering::Relaxed)
}

/// A way, ready to be used.
#[derive(Debug)]
pub(super) enum Still {
    Alone,
    Faults(UserFaults),
    Protection,
}

impl Still {
    /// The best way for pages that are the region's alone, or that hold other data as well.
    ///
    /// `is_watched`: threads of the library that no token holds back may use the pages.
    pub(super) fn choose(is_watched: bool) -> Option<(Still, bool)> {
        let permitted = |way: MovingWay| PERMITTED.load(Ordering::Relaxed) & way.bit() != 0;
        let company = threads::company();
        if company == Company::Nobody && permitted(MovingWay::Alone) {
            return Some((Still::Alone, true));
        }
        // System calls wait as well, so pages that hold other data may move.
        if permitted(MovingWay::Faults)
            && let Some(faults) = UserFaults::of_all()
        {
            return Some((Still::Faults(faults), true));
        }
        if company == Company::OwnThreads && !is_watched && permitted(MovingWay::Alone) {
            return Some((Still::Alone, false));
        }
        if permitted(MovingWay::ThreadFaults)
            && let Some(faults) = UserFaults::of_threads()
        {
            return Some((Still::Faults(faults), false));
        }
        Some((Still::protection()?, false))
    }

    /// The way that needs nothing of the kernel's but rights.
    pub(super) fn protection() -> Option<Still> {
        let is_permitted = PERMITTED.load(Ordering::Relaxed) & MovingWay::Protection.bit() != 0;
        if !is_permitted || !guard::can_pause() || threads::any_blocks_faults() {
            return None;
        }
        // The program may have installed a handler of its own since.
        guard::install();
        Some(Still::Protection)
    }

    /// Counts a move.
    pub(super) fn count(&self) {
        let way = match self {
            Still::Alone => MovingWay::Alone,
            Still::Faults(faults) if faults.of_all => MovingWay::Faults,
            Still::Faults(_) => MovingWay::ThreadFaults,
            Still::Protection => MovingWay::Protection,
        };
        USED[way as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Lets no thread read or write pages of anonymous memory as soon as they have moved away; with protection, at once.
    pub(super) fn hide(&self, range: &Range<usize>) -> io::Result<Held<'_>> {
        self.hold(range, libc::PROT_NONE, MODE_MISSING)
    }

    /// Lets no thread write to pages of shared memory.
    pub(super) fn freeze(&self, range: &Range<usize>, rights: libc::c_int) -> io::Result<Held<'_>> {
        self.hold(range, rights & !libc::PROT_WRITE, MODE_WRITE_PROTECTED)
    }

    fn hold(&self, range: &Range<usize>, rights: libc::c_int, mode: u64) -> io::Result<Held<'_>> {
        let mut held = Held { still: self, range: range.clone(), pause: None };
        match self {
            Still::Alone => {}
            Still::Faults(faults) => faults.watch(range, mode)?,
            Still::Protection => {
                held.pause = Some(guard::pause(range));
                protect(range, rights)?;
            }
        }
        Ok(held)
    }
}

/// Memory that threads are kept from. Those that wait go on when it is dropped, wherever the addresses lead then.
pub(super) struct Held<'a> {
    still: &'a Still,
    range: Range<usize>,
    pause: Option<Pause>,
}

impl Held<'_> {
    /// The pages stay as they are, after all, with these rights.
    pub(super) fn give_up(self, rights: libc::c_int) {
        match self.still {
            Still::Alone => {}
            Still::Faults(faults) => faults.forget(&self.range),
            // It had these rights before, so the kernel gives them again.
            Still::Protection => drop(protect(&self.range, rights)),
        }
    }

    /// Whether the rights of what was moved away are gone.
    pub(super) fn takes_rights(&self) -> bool {
        self.pause.is_some()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Still::Faults(faults) = self.still {
            faults.wake(&self.range);
        }
    }
}

/// Changes the rights of pages. Calls nothing that allocates.
pub(super) fn protect(range: &Range<usize>, rights: libc::c_int) -> io::Result<()> {
    // SAFETY: it moves no memory, and the callers choose rights with which nothing is lost.
    match unsafe { libc::mprotect(range.start as *mut libc::c_void, range.len(), rights) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor of userfaultfd(2), for one move.
#[derive(Debug)]
pub(super) struct UserFaults {
    fd: OwnedFd,
    /// Faults of system calls wait as well.
    of_all: bool,
}

const MODE_MISSING: u64 = 1;
const MODE_WRITE_PROTECTED: u64 = 2;
const USER_MODE_ONLY: libc::c_int = 1;
const API: u64 = 0xAA;

/// `struct uffdio_range`.
#[repr(C)]
struct FaultRange {
    start: u64,
    len: u64,
}

/// `struct uffdio_api`, `uffdio_register` and `uffdio_writeprotect` have three or four words.
type Words<const N: usize> = [u64; N];

const fn request(direction: u64, number: u64, bytes: usize) -> u64 {
    direction << 30 | (bytes as u64) << 16 | API << 8 | number
}
const BOTH_WAYS: u64 = 3;
const READS: u64 = 2;
const NEW_DESCRIPTOR: u64 = API << 8;

impl UserFaults {
    fn of_all() -> Option<UserFaults> {
        UserFaults::open(0).or_else(UserFaults::through_device)
    }

    fn of_threads() -> Option<UserFaults> {
        UserFaults::open(USER_MODE_ONLY)
    }

    fn open(flags: libc::c_int) -> Option<UserFaults> {
        // A filter may end the process for a call that it does not know.
        if threads::has_filter() {
            return None;
        }
        // SAFETY: a plain system call.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags) };
        UserFaults::from_raw(fd as libc::c_int, flags == 0)
    }

    fn through_device() -> Option<UserFaults> {
        let device = std::fs::File::open("/dev/userfaultfd").ok()?;
        // SAFETY: the request takes flags and returns a descriptor.
        let fd = unsafe { libc::ioctl(device.as_raw_fd(), NEW_DESCRIPTOR as _, libc::O_CLOEXEC) };
        UserFaults::from_raw(fd, true)
    }

    fn from_raw(fd: libc::c_int, of_all: bool) -> Option<UserFaults> {
        if fd < 0 {
            return None;
        }
        // SAFETY: the descriptor is new and ours.
        let faults = UserFaults { fd: unsafe { OwnedFd::from_raw_fd(fd) }, of_all };
        let mut api: Words<3> = [API, 0, 0];
        faults.call(request(BOTH_WAYS, 0x3F, size_of_val(&api)), &mut api).ok()?;
        Some(faults)
    }

    fn watch(&self, range: &Range<usize>, mode: u64) -> io::Result<()> {
        let (start, len) = (range.start as u64, range.len() as u64);
        let mut register: Words<4> = [start, len, mode, 0];
        self.call(request(BOTH_WAYS, 0x00, size_of_val(&register)), &mut register)?;
        if mode == MODE_WRITE_PROTECTED {
            let mut protect: Words<3> = [start, len, 1];
            let done = self.call(request(BOTH_WAYS, 0x06, size_of_val(&protect)), &mut protect);
            if done.is_err() {
                self.forget(range);
            }
            return done;
        }
        Ok(())
    }

    fn forget(&self, range: &Range<usize>) {
        let mut range = FaultRange { start: range.start as u64, len: range.len() as u64 };
        // If it fails, closing the descriptor does it.
        let _ = self.call(request(READS, 0x01, size_of_val(&range)), &mut range);
    }

    fn wake(&self, range: &Range<usize>) {
        let mut range = FaultRange { start: range.start as u64, len: range.len() as u64 };
        // If it fails, closing the descriptor does it.
        let _ = self.call(request(READS, 0x02, size_of_val(&range)), &mut range);
    }

    fn call<T>(&self, request: u64, argument: &mut T) -> io::Result<()> {
        // SAFETY: the request has the size of the argument, which lives on the caller's stack.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, std::ptr::from_mut(argument)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
