//! Whether other threads could be using this process's memory, and what must stay in its place.

use super::PAGE_BYTES;
use crate::sys::SignalMask;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

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
    // A thread that begins, or that is on its way out of the handler, blocks faults for a moment.
    let attempts = if IS_KNOWN.load(Ordering::Relaxed) { 1 } else { 200 };
    let found = (0..attempts).all(|_| {
        let found = one_blocks_faults();
        if found {
            std::thread::yield_now();
        }
        found
    });
    IS_KNOWN.store(found, Ordering::Relaxed);
    found
}

fn one_blocks_faults() -> bool {
    let Ok(mut tasks) = numbers() else { return true };
    let blocks = |thread: libc::pid_t| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status"));
        // A thread that has ended meanwhile touches nothing.
        let Ok(status) = status else { return false };
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked = blocked.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        blocked.is_none_or(|set| set & 1 << (libc::SIGSEGV - 1) != 0)
    };
    tasks.any(|thread| thread.is_none_or(blocks))
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
