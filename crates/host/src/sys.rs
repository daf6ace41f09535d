//! The few system calls that std does not offer.
#![allow(unsafe_code)]

mod apart;
mod multicast;
mod restart;
mod signals;

pub(crate) use multicast::{group_socket, send_groups_from};
pub use restart::{ends_waits, may_be_interrupted_in_poll};
pub use signals::EndSignals;
pub use signals::SignalMask;

use crate::process::Process;
use highwire_stdx::Duration;
use highwire_wake::world;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Whether a thread of another process is runnable and may lack a processor, so that the process will go on
/// by itself. False for a process that cannot be looked at, and for this one, which runs.
pub(crate) fn wants_to_run(process: u32) -> bool {
    if process == std::process::id() {
        return false;
    }
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads
        .flatten()
        .any(|thread| state_in(&thread.path().join("stat")).is_some_and(|state| matches!(state, 'R' | 'D')))
}

/// Whether a process has not ended; a zombie has.
pub(crate) fn is_alive(process: u32) -> bool {
    state_in(format!("/proc/{process}/stat").as_ref()).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The state that a `stat` of a process or thread tells; `None` if it is not there.
fn state_in(stat: &std::path::Path) -> Option<char> {
    let stat = std::fs::read_to_string(stat).ok()?;
    // The name, which may hold anything, ends with the last parenthesis; the state follows (proc_pid_stat(5)).
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The process that connected a socket; 0 if it belongs to another namespace.
pub(crate) fn peer_process(socket: &std::os::unix::net::UnixStream) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to live locals, and `length` says how long the first one is.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(credentials.pid as u32) } else { Err(io::Error::last_os_error()) }
}

/// The user that this process works for.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: reads the process's own identity and cannot fail.
    unsafe { libc::geteuid() }
}

/// A counter that makes its descriptor readable while it is not zero.
#[derive(Debug)]
pub struct EventFd(apart::Marked);

impl EventFd {
    pub(crate) fn new() -> io::Result<EventFd> {
        // SAFETY: a plain system call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        Ok(EventFd(apart::Marked::new(unsafe { OwnedFd::from_raw_fd(fd) }, false)))
    }

    /// A counter whose reads take one each, and which blocks unless told otherwise: applications get this
    /// descriptor, and some check its flags.
    ///
    /// # Errors
    /// Those of `eventfd`.
    pub fn counting() -> io::Result<EventFd> {
        // SAFETY: a plain system call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        Ok(EventFd(apart::Marked::new(unsafe { OwnedFd::from_raw_fd(fd) }, true)))
    }

    /// Takes one off the count; false if a reader has done so already.
    pub fn take_one(&self) -> bool {
        let Some(own) = self.0.held() else { return false };
        let mut value = 0u64;
        let vector = libc::iovec { iov_base: std::ptr::from_mut(&mut value).cast(), iov_len: 8 };
        // SAFETY: there is room for eight bytes. The call does not wait, whatever the descriptor's mode.
        unsafe { libc::preadv2(own.as_raw_fd(), &raw const vector, 1, -1, libc::RWF_NOWAIT) == 8 }
    }

    /// Takes one off the count as a `read` by the application would: it waits where the descriptor blocks, and only the kernel knows
    /// whether a signal ends that. A wait for `most` is ended by such a signal as [`ends_waits`] says, and by any other one as if the time was
    /// up. False if it was.
    ///
    /// # Errors
    /// EAGAIN, EINTR, or EBADF if the application has closed the descriptor and the library's own.
    pub fn take(&self, most: Option<std::time::Duration>) -> io::Result<bool> {
        let Some(most) = most else { return self.read().map(|()| true) };
        if self.take_one() {
            return Ok(true);
        }
        let own = self.0.held().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        // SAFETY: a call about a number.
        let flags = unsafe { libc::fcntl(own.as_raw_fd(), libc::F_GETFL) };
        if flags & libc::O_NONBLOCK != 0 {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        match wait_readable_or_signal(&[own], Some(Duration::from(most))) {
            // Unless another thread has been faster.
            Waited::Readable => Ok(self.take_one()),
            Waited::Interrupted if ends_waits() => Err(io::Error::from_raw_os_error(libc::EINTR)),
            Waited::Interrupted | Waited::TimedOut => Ok(false),
        }
    }

    fn read(&self) -> io::Result<()> {
        let own = self.0.held().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        let mut value = 0u64;
        // SAFETY: there is room for eight bytes.
        let read = unsafe { libc::read(own.as_raw_fd(), std::ptr::from_mut(&mut value).cast(), 8) };
        if read == 8 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes it readable.
    pub fn signal(&self) {
        let Some(own) = self.0.held() else { return };
        let one = 1u64;
        // SAFETY: eight bytes are there to read. It fails only when the counter is about to overflow, and then the
        // descriptor is readable already.
        unsafe { libc::write(own.as_raw_fd(), std::ptr::from_ref(&one).cast(), 8) };
    }

    /// Makes it unreadable.
    pub(crate) fn clear(&self) {
        let Some(own) = self.0.held() else { return };
        let mut value = 0u64;
        // SAFETY: there is room for eight bytes. The call fails when the counter is zero, which is fine.
        unsafe { libc::read(own.as_raw_fd(), std::ptr::from_mut(&mut value).cast(), 8) };
    }

    /// The descriptor that applications know. The library itself waits at [`own`](Self::own).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.shown()
    }

    /// Whether that is still this counter's: the application may have closed it, and opened another file.
    pub fn is_open(&self) -> bool {
        self.0.is_shown()
    }

    /// The library's own descriptor of it, unless the application has closed that one as well.
    pub fn own(&self) -> Option<BorrowedFd<'_>> {
        self.0.held()
    }
}

/// How long a thread has its core if others want it as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turns {
    /// As long as the scheduler has it, a millisecond or more.
    Usual,
    /// For a tenth of a millisecond.
    Short,
}

thread_local!(static TURNS: Cell<Option<Turns>> = const { Cell::new(None) });

/// Asks the scheduler to let this thread run as soon as it wakes, and in return for short turns only. That needs no privilege:
/// the thread's total share of the processor stays the same. For a thread that is about to sleep.
pub(crate) fn be_quick_to_run() {
    take_turns(Turns::Short);
}

/// Calls [`be_quick_to_run`] once for a thread of the application, which comes here often.
pub(crate) fn be_quick_to_run_once() {
    if TURNS.get().is_none() {
        be_quick_to_run();
    }
}

/// Takes turns as long as those of other threads, for a thread that gives its core away again and again. Each time that counts as a whole turn: a thread
/// with short turns has the core back a dozen times before one with the usual turns has had it once.
pub(crate) fn be_patient() {
    // One that has asked for nothing is.
    if TURNS.get().is_some() {
        take_turns(Turns::Usual);
    }
}

fn take_turns(turns: Turns) {
    /// `struct sched_attr` of sched_setattr(2), as far as it is used.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    const TURN_NS: u64 = 100_000;
    if world::thread().is_some() || TURNS.replace(Some(turns)) == Some(turns) {
        return;
    }
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: plain system calls on this thread; the structure has the size that is passed. Kernels before
    // 6.12 ignore the length of the turn, and any kernel may refuse: then the thread stays as it was.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) == 0
            && attributes.policy == libc::SCHED_OTHER as u32
        {
            // Zero: as the scheduler has it.
            attributes.runtime_ns = if turns == Turns::Short { TURN_NS } else { 0 };
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

/// Lets timers end this thread's sleeps on time, not 50 µs later.
pub(crate) fn be_punctual() {
    // SAFETY: a plain system call on this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// This thread's number, as the kernel counts them. It asks only once.
pub(crate) fn thread_number() -> u32 {
    thread_local!(static NUMBER: Cell<Option<(Process, u32)>> = const { Cell::new(None) });
    if let Some(thread) = world::thread() {
        return thread as u32;
    }
    let process = Process::this();
    match NUMBER.get() {
        Some((asked, number)) if asked == process => number,
        // The copy of a thread in a forked child is another thread.
        _ => {
            // SAFETY: a plain system call, which does not fail.
            let number = unsafe { libc::gettid() } as u32;
            NUMBER.set(Some((process, number)));
            number
        }
    }
}

/// A clock that all processes of the machine share and that costs nearly nothing: in milliseconds, as precise as the scheduler's tick.
pub(crate) fn machine_time_ms() -> u32 {
    if let Some(time) = world::time() {
        return time.as_millis() as u32;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the structure is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    (time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000) as u32
}

/// Several descriptors that become readable as one.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: a plain system call.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Becomes readable when `other` does, until that is closed.
    pub(crate) fn watch(&self, other: &impl AsRawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        let (epoll, other) = (self.0.as_raw_fd(), other.as_raw_fd());
        // SAFETY: both descriptors are open, the event lives on this stack.
        let failed = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, other, &raw mut event) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.as_fd()
    }
}

/// How a wait for descriptors ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waited {
    Readable,
    TimedOut,
    /// A signal was handled.
    Interrupted,
}

/// Waits until one of the descriptors is readable. False if the time is up, or a signal interrupts.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> bool {
    wait_readable_or_signal(fds, timeout) == Waited::Readable
}

/// The same, but reports the interruption.
pub(crate) fn wait_readable_or_signal(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Waited {
    wait_beside(fds, &[], timeout).0
}

/// The same, and whether the first descriptor was readable.
pub(crate) fn wait_with_bell(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> (Waited, bool) {
    wait_beside(fds, &[], timeout)
}

/// The same; `beside` are descriptors of the program, each with the events that it asks for.
pub(crate) fn wait_beside(
    fds: &[BorrowedFd<'_>],
    beside: &[libc::pollfd],
    timeout: Option<Duration>,
) -> (Waited, bool) {
    let ours = fds.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let polled: Vec<libc::pollfd> = ours.chain(beside.iter().copied()).collect();
    // In a model a sleep is as long as other threads do nothing about it.
    let is_ready = || poll(&mut polled.clone(), Some(Duration::ZERO)).0 != Waited::TimedOut;
    match world::sleep_until(&is_ready, timeout.map(Into::into)) {
        Some(_) => poll(&mut polled.clone(), Some(Duration::ZERO)),
        None => poll(&mut { polled }, timeout),
    }
}

/// Asks the kernel, and waits there.
fn poll(polled: &mut [libc::pollfd], timeout: Option<Duration>) -> (Waited, bool) {
    let timeout = timeout.map(|t| {
        let nanos = t.as_nanos();
        libc::timespec {
            tv_sec: libc::time_t::try_from(nanos / 1_000_000_000).unwrap_or(libc::time_t::MAX),
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        }
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // Not the C library's function: below `highwire run` that one comes here if a channel's descriptor is among them.
    // SAFETY: the array has the length that is passed, the timeout lives on this stack; numbers that are no descriptors are reported.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            polled.as_mut_ptr(),
            polled.len(),
            timeout,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    let waited = match ready {
        0 => Waited::TimedOut,
        1.. => Waited::Readable,
        _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => Waited::Interrupted,
        // No memory, perhaps: as if the time were up.
        _ => Waited::TimedOut,
    };
    (waited, waited == Waited::Readable && polled.first().is_some_and(|first| first.revents != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_a_wait_at_once() {
        let event = EventFd::new().expect("an eventfd");
        event.signal();
        assert!(wait_readable(&[event.fd()], None));
        event.clear();
        assert!(!wait_readable(&[event.fd()], Some(Duration::ZERO)));
    }

    #[test]
    fn a_process_that_spins_wants_to_run_and_one_that_is_stopped_does_not() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let pid = child.id();
        let until = |wanted: bool| {
            let begun = std::time::Instant::now();
            while wants_to_run(pid) != wanted {
                assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it never was: {wanted}");
                std::thread::yield_now();
            }
        };
        until(true);
        // SAFETY: the process is ours, and not waited for yet.
        assert_eq!(unsafe { libc::kill(pid as libc::pid_t, libc::SIGSTOP) }, 0);
        until(false);
        assert!(is_alive(pid) && is_alive(std::process::id()), "stopped is not ended");
        child.kill().expect("it is ours");
        let begun = std::time::Instant::now();
        while is_alive(pid) {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "nobody has waited for it yet");
            std::thread::yield_now();
        }
        child.wait().expect("it has ended");
        assert!(!is_alive(pid) && !wants_to_run(pid) && !wants_to_run(std::process::id()));
    }
}
