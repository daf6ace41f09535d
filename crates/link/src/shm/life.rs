//! A word that tells whether an engine's process lives, which the kernel itself changes at its end.
//!
//! A neighbour that reaches into an engine's memory must not do so after the engine's death is known to anybody. The lock on the engine's
//! file tells, but takes a system call to ask. So a thread of the engine that lives as long as the process names itself in this word, as
//! the owner of a robust futex (set_robust_list(2)). However that thread ends, the kernel marks the word before anybody can wait for the
//! process's end; a look at it is one load.
//!
//! ```text
//! engine segment, byte 136: u32  0 no thread has named itself · its number · bit 30: it has died
//! ```
//!
//! The mark is a hint: a child made by `fork` may keep the engine alive. Whoever finds it asks for the lock.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use highwire_shmem::Window;

use super::engine::LocalEngine;
use super::layout::LIFE;

/// `FUTEX_OWNER_DIED`.
const HAS_DIED: u32 = 0x4000_0000;

/// While it lives, the thread that made it stands for its process. To be dropped by that thread.
#[derive(Debug)]
pub struct Life {
    engine: Arc<LocalEngine>,
    list: Box<List>,
    /// The list that the thread had before.
    before: (*const Head, usize),
    _of_this_thread: PhantomData<*const ()>,
}

/// `struct robust_list_head`, with a list of one entry.
#[repr(C)]
#[derive(Debug)]
struct List {
    head: Head,
    entry: Entry,
}

#[repr(C)]
#[derive(Debug)]
struct Head {
    first: *const Entry,
    /// From an entry to its futex: the entry is in this process's own memory, where no neighbour can change it.
    futex_offset: isize,
    pending: *const Entry,
}

#[repr(C)]
#[derive(Debug)]
struct Entry {
    next: *const Entry,
}

impl Life {
    /// The calling thread lives as long as its process, or until this is dropped. `None` where the system has no such lists: neighbours
    /// then find out from the lock.
    pub fn begin(engine: &Arc<LocalEngine>) -> Option<Life> {
        let none = std::ptr::null();
        let mut list = Box::new(List {
            head: Head { first: none, futex_offset: 0, pending: none },
            entry: Entry { next: none },
        });
        let word = word(engine.window());
        list.head.first = &raw const list.entry;
        list.head.futex_offset = word.as_ptr().addr().wrapping_sub((&raw const list.entry).addr()) as isize;
        // The list ends where it begins.
        list.entry.next = (&raw const list.head).cast();
        let before = this_threads_list()?;
        let engine = Arc::clone(engine);
        let life = Life { engine, list, before, _of_this_thread: PhantomData };
        // SAFETY: the list and the word that it leads to stay until `drop` has put the list before it back.
        if !unsafe { set_list(&raw const life.list.head, size_of::<Head>()) } {
            return None;
        }
        // SAFETY: asks for the thread's own number.
        word.store(unsafe { libc::gettid() } as u32, Ordering::Release);
        Some(life)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let (head, length) = self.before;
        word(self.engine.window()).store(0, Ordering::Release);
        // SAFETY: the list that this thread had.
        unsafe { set_list(head, length) };
    }
}

fn word(window: &Window) -> &AtomicU32 {
    window.u32_at(LIFE)
}

/// Whether the thread that stands for an engine's process has died.
#[inline]
pub(super) fn seems_over(window: &Window) -> bool {
    word(window).load(Ordering::Acquire) & HAS_DIED != 0
}

fn this_threads_list() -> Option<(*const Head, usize)> {
    let (mut head, mut length) = (std::ptr::null::<Head>(), 0usize);
    // SAFETY: both places are writable; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut length) };
    (result == 0).then_some((head, if length == 0 { size_of::<Head>() } else { length }))
}

/// # Safety
/// The list stays as long as the thread lives or has it.
unsafe fn set_list(head: *const Head, length: usize) -> bool {
    // SAFETY: as the caller promises; the kernel only reads it, when the thread ends.
    unsafe { libc::syscall(libc::SYS_set_robust_list, head, length) == 0 }
}
