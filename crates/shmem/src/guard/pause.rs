//! Memory that loses its rights for a moment: threads that touch it meanwhile wait in the handler, and then try again.
//!
//! A thread may come to the handler only after the moment has passed. So the handler does not look at the time but asks the
//! kernel whether the page has the rights *now*: then the access is simply repeated.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Somebody has paused memory in this process.
static EVER: AtomicBool = AtomicBool::new(false);
/// Threads that are in the handler for such memory.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// A range whose faults wait, until it is dropped.
#[derive(Debug)]
pub struct Pause(());

/// From now on, threads that fault in the range wait. There is one such range at a time: callers hold a lock.
pub fn pause(range: &Range<usize>) -> Pause {
    EVER.store(true, Ordering::Relaxed);
    START.store(range.start, Ordering::Relaxed);
    END.store(range.end, Ordering::SeqCst);
    Pause(())
}

impl Drop for Pause {
    fn drop(&mut self) {
        END.store(0, Ordering::SeqCst);
    }
}

/// Whether a thread is in the handler because of memory that was paused: it blocks the signal until it has returned.
pub fn is_anybody_inside() -> bool {
    INSIDE.load(Ordering::Relaxed) > 0
}

/// Whether the handler can tell what a fault wanted, and the kernel whether that is permitted.
pub fn can_pause() -> bool {
    let here = 0u8;
    cfg!(all(target_arch = "x86_64", not(miri)))
        && is_permitted(std::ptr::from_ref(&here).addr(), libc::MADV_POPULATE_READ)
}

fn is_permitted(address: usize, advice: libc::c_int) -> bool {
    let page = address & !(crate::segment::PAGE_BYTES - 1);
    // SAFETY: it brings in one page at most, as the access itself would.
    unsafe { libc::madvise(page as *mut libc::c_void, crate::segment::PAGE_BYTES, advice) == 0 }
}

/// Waits if the fault is one of a paused range; true if the access is to be repeated. Calls only what is safe in a handler.
///
/// # Safety
/// The arguments are those of a signal that is being handled.
pub(super) unsafe fn waited(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) -> bool {
    const MAP_ERROR: libc::c_int = 1;
    const ACCESS_ERROR: libc::c_int = 2;
    // SAFETY: the kernel's own argument.
    let code = unsafe { (*info).si_code };
    if signal != libc::SIGSEGV || !EVER.load(Ordering::Relaxed) || !matches!(code, MAP_ERROR | ACCESS_ERROR) {
        return false;
    }
    // SAFETY: such a fault has an address.
    let address = unsafe { (*info).si_addr().addr() };
    // SAFETY: the kernel's own argument.
    let Some(advice) = (unsafe { wanted(context) }) else { return false };
    INSIDE.fetch_add(1, Ordering::Relaxed);
    // The interrupted code may be about to look at its own.
    let error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    while address < END.load(Ordering::SeqCst) && address >= START.load(Ordering::Relaxed) {
        // SAFETY: a plain system call.
        unsafe { libc::sched_yield() };
    }
    let repeats = is_permitted(address, advice);
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = error };
    INSIDE.fetch_sub(1, Ordering::Relaxed);
    repeats
}

/// What the kernel is to be asked for an access; `None` if it fetched an instruction, or if the processor does not tell.
///
/// # Safety
/// The context is that of a signal that is being handled.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn wanted(context: *mut libc::c_void) -> Option<libc::c_int> {
    const WROTE: i64 = 1 << 1;
    const FETCHED: i64 = 1 << 4;
    // SAFETY: by contract.
    let error = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] };
    match error {
        error if error & FETCHED != 0 => None,
        error if error & WROTE != 0 => Some(libc::MADV_POPULATE_WRITE),
        _ => Some(libc::MADV_POPULATE_READ),
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn wanted(_: *mut libc::c_void) -> Option<libc::c_int> {
    None
}
