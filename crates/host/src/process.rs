//! Identifies the calling process, at the cost of a load.
//!
//! A child of `fork` has copies of all objects, and must touch none of them. The data path checks each time
//! whether a device belongs to the calling process. `getpid` is a system call, so the number lies in a page
//! that the kernel empties in every child.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process, told from those that it was forked from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u64);

/// Processes of this line of forks that have asked. A child begins with its parent's count.
static COUNT: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// The calling one.
    pub fn this() -> Process {
        let Some(word) = word() else { return Process(u64::from(std::process::id())) };
        if word.load(Ordering::Acquire) == 0 {
            let number = COUNT.fetch_add(1, Ordering::AcqRel) + 1;
            // Another thread may be faster; its number is as good.
            let _ = word.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
        }
        Process(word.load(Ordering::Acquire))
    }

    /// Whether it is the calling one.
    #[inline]
    pub fn is_this(self) -> bool {
        match word() {
            Some(word) => word.load(Ordering::Relaxed) == self.0,
            None => u64::from(std::process::id()) == self.0,
        }
    }
}

/// The word on the page; zero in a child that has not asked yet. `None` on kernels before 4.14.
#[inline]
fn word() -> Option<&'static AtomicU64> {
    static WORD: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    *WORD.get_or_init(make_word)
}

#[cold]
fn make_word() -> Option<&'static AtomicU64> {
    const BYTES: usize = 4096;
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new page at a place of the kernel's choice, which stays for as long as the process does.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), BYTES, prot, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, BYTES);
            return None;
        }
        Some(AtomicU64::from_ptr(page.cast()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges in a child.
    fn in_child(judge: &dyn Fn() -> bool) -> bool {
        // SAFETY: the child only looks at memory and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = judge();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 1;
        // SAFETY: the pointer is to a live local.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        status == 0
    }

    #[test]
    fn a_child_and_its_child_are_processes_of_their_own() {
        let parent = Process::this();
        let judge = || {
            let is_known = parent.is_this();
            let child = Process::this();
            let grandchild = || !parent.is_this() && !child.is_this() && Process::this() != child;
            !is_known && child != parent && child.is_this() && in_child(&grandchild)
        };
        assert!(in_child(&judge));
        assert!(parent.is_this() && Process::this() == parent);
    }
}
