//! Whether other threads could be using this process's memory, and what must stay in its place.

use super::PAGE_BYTES;
use crate::sys::SignalMask;
use highwire_shmem::guard;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Threads that touch the application's memory only on an engine's behalf.
static OWN: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

/// While it lives, the thread that made it counts as one of the library's own: it touches memory of the application only with
/// a lane's token. Every helper thread of a library on top of this crate should have one.
#[derive(Debug)]
pub struct OwnThread(libc::pid_t);

impl OwnThread {
    /// Marks the calling thread.
    pub fn mark() -> OwnThread {
        let thread = current();
        own().push(thread);
        OwnThread(thread)
    }

    /// Starts a thread that counts as one of the library's own before this returns, and takes no signals.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        let (ready, is_ready) = channel();
        let masked = SignalMask::all();
        let thread = Builder::new().name(name.into()).spawn(move || {
            let _own = OwnThread::mark();
            // Fails only if the spawning thread does not wait for it.
            let _ = ready.send(());
            body();
        })?;
        drop(masked);
        // Until the thread is marked it counts as the application's, and no memory moves.
        let _ = is_ready.recv();
        Ok(thread)
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        let mut own = own();
        if let Some(at) = own.iter().position(|thread| *thread == self.0) {
            own.swap_remove(at);
        }
    }
}

/// Who could use this process's memory beside the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Company {
    Nobody,
    /// Threads of the library's, which use their own memory, and the application's with a lane's token.
    OwnThreads,
    Others,
}

/// Asks the kernel; if it does not answer, there may be others.
pub(super) fn company() -> Company {
    let own = own();
    let Ok(tasks) = numbers() else { return Company::Others };
    let caller = current();
    let mut company = Company::Nobody;
    for thread in tasks {
        match thread {
            Some(thread) if thread == caller || is_over(thread) => {}
            Some(thread) if own.contains(&thread) => company = Company::OwnThreads,
            _ => return Company::Others,
        }
    }
    company
}

/// Whether any thread would be killed by a fault, instead of coming to the handler. If the kernel does not tell, one might.
pub(super) fn any_blocks_faults() -> bool {
    /// The last attempts were all in vain, so there is such a thread.
    static IS_KNOWN: AtomicBool = AtomicBool::new(false);
    let at_once = if IS_KNOWN.load(Ordering::Relaxed) { 1 } else { 200 };
    // A thread that begins or ends, or that is on its way out of the handler, blocks faults until it gets a core, for which
    // other programs may make it wait.
    let later = 1000;
    let mut found = Faults::Blocked;
    for attempt in 0..at_once + later {
        found = faults();
        match found {
            Faults::Arrive => break,
            _ if attempt < at_once => std::thread::yield_now(),
            Faults::Blocked if !guard::is_anybody_inside() => break,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    let blocks = found != Faults::Arrive;
    IS_KNOWN.store(blocks, Ordering::Relaxed);
    blocks
}

/// What faults of the process's threads meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Faults {
    /// The handler.
    Arrive,
    /// A thread that the C library is about to start or to end, and whose every signal it blocks meanwhile.
    BlockedForNow,
    /// A thread that blocks them.
    Blocked,
}

fn faults() -> Faults {
    let Ok(tasks) = numbers() else { return Faults::Blocked };
    tasks.map(|thread| thread.map_or(Faults::Blocked, faults_of)).max().unwrap_or(Faults::Blocked)
}

fn faults_of(thread: libc::pid_t) -> Faults {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status"));
    // A thread that has ended meanwhile touches nothing.
    let Ok(status) = status else { return Faults::Arrive };
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    blocked.map_or(Faults::Blocked, faults_with)
}

/// What a fault meets in a thread that blocks these signals.
fn faults_with(blocked: u64) -> Faults {
    const FAULT: u64 = 1 << (libc::SIGSEGV - 1);
    /// The C library keeps two signals for itself: programs cannot block them through it.
    const ITS_OWN: u64 = 0b11 << (32 - 1);
    match blocked {
        set if set & FAULT == 0 => Faults::Arrive,
        set if set & ITS_OWN == ITS_OWN => Faults::BlockedForNow,
        _ => Faults::Blocked,
    }
}

/// Whether a filter looks at the process's system calls, or the kernel does not tell.
pub(super) fn has_filter() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let filter = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    filter.is_none_or(|mode| mode.trim() != "0")
}

/// Memory that stays where it is: the caller's own stack and `errno`, which are used while pages move, and what the C library
/// keeps of each thread. The kernel wakes whoever joins a thread by the address of a word there, or by the file
/// that lies behind it, so no file may come between.
pub(super) fn fixed() -> Vec<Range<usize>> {
    /// More than the functions that move memory take, and more than their callers down to the application.
    const STACK_BYTES: usize = 64 << 10;
    const BESIDE_BYTES: usize = 1024;
    let page_of = |address: usize| address / PAGE_BYTES * PAGE_BYTES;
    let around = |address, below, above| page_of(address) - below..page_of(address) + PAGE_BYTES + above;
    let here = 0u8;
    // SAFETY: asks where errno lies.
    let errno = unsafe { libc::__errno_location() }.addr();
    let mut fixed = vec![around(ptr::from_ref(&here).addr(), STACK_BYTES, STACK_BYTES), around(errno, 0, 0)];
    for thread in numbers().into_iter().flatten().flatten() {
        let (mut list, mut length) = (0usize, 0usize);
        // SAFETY: the call fills two words on this stack: where the thread's descriptor has the list of its locks.
        let asked =
            unsafe { libc::syscall(libc::SYS_get_robust_list, thread, &raw mut list, &raw mut length) };
        if asked == 0 && list > PAGE_BYTES {
            // The word is in front of the list. A page more would take one from memory behind the thread's stack.
            fixed.push(page_of(list - BESIDE_BYTES)..page_of(list + BESIDE_BYTES) + PAGE_BYTES);
        }
    }
    fixed
}

/// The numbers of the process's threads, `None` for one that is not understood.
fn numbers() -> io::Result<impl Iterator<Item = Option<libc::pid_t>>> {
    let tasks = std::fs::read_dir("/proc/self/task")?;
    Ok(tasks.map(|task| task.ok().and_then(|task| task.file_name().to_str()?.parse().ok())))
}

/// Whether a thread is listed only because it has not quite ended: it has let go of the process's memory.
fn is_over(thread: libc::pid_t) -> bool {
    let pages = std::fs::read_to_string(format!("/proc/self/task/{thread}/statm"));
    pages.is_ok_and(|pages| pages.starts_with("0 "))
}

fn current() -> libc::pid_t {
    // SAFETY: asks for the thread's own number.
    unsafe { libc::gettid() }
}

fn own() -> std::sync::MutexGuard<'static, Vec<libc::pid_t>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_every_signal_blocked_is_about_to_begin_or_to_end() {
        let segv = 1 << (libc::SIGSEGV - 1);
        // What `sigfillset` gives: all but the two of the C library.
        let all_of_a_program = !(0b11u64 << 31);
        for (set, expected) in [
            (0, Faults::Arrive),
            (!segv, Faults::Arrive),
            (segv, Faults::Blocked),
            (all_of_a_program, Faults::Blocked),
            (u64::MAX, Faults::BlockedForNow),
        ] {
            assert_eq!(faults_with(set), expected, "{set:#x}");
        }
        assert!(Faults::Arrive < Faults::BlockedForNow && Faults::BlockedForNow < Faults::Blocked);
    }
}
