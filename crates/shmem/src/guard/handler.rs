//! The handler of SIGSEGV and SIGBUS, and the handlers that were there before it.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The handlers of other faults: the first from before the first installation, the second from before the
/// last. They are never freed, because a handler may be reading them.
struct Others {
    first: AtomicPtr<libc::sigaction>,
    last: AtomicPtr<libc::sigaction>,
}

static OTHERS: [Others; 2] =
    [const { Others { first: AtomicPtr::new(ptr::null_mut()), last: AtomicPtr::new(ptr::null_mut()) } }; 2];

/// The context of the fault that was handed on last, while that is under way.
static HANDED_ON: AtomicUsize = AtomicUsize::new(0);

/// A thread is installing. No lock: the child of a fork, which inherits the handlers, might find it held for
/// ever.
static INSTALLING: AtomicBool = AtomicBool::new(false);

pub(super) fn install() {
    if INSTALLING.swap(true, Ordering::AcqRel) {
        return;
    }
    for (signal, others) in SIGNALS.into_iter().zip(&OTHERS) {
        // SAFETY: plain values that the call fills.
        let mut present: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a query only.
        if unsafe { libc::sigaction(signal, ptr::null(), &raw mut present) } != 0
            || present.sa_sigaction == on_fault as *const () as usize
        {
            continue;
        }
        // It runs as the former handler would: on the same stack, with the same signals blocked.
        let ours = libc::sigaction {
            sa_sigaction: on_fault as *const () as usize,
            sa_flags: libc::SA_SIGINFO | libc::SA_ONSTACK | present.sa_flags & libc::SA_NODEFER,
            ..present
        };
        let present = Box::into_raw(Box::new(present));
        let _ = others.first.compare_exchange(ptr::null_mut(), present, Ordering::AcqRel, Ordering::Relaxed);
        others.last.store(present, Ordering::Release);
        // SAFETY: the handler is a function that lives as long as the process, and so do the values that it
        // reads.
        unsafe { libc::sigaction(signal, &raw const ours, ptr::null_mut()) };
    }
    INSTALLING.store(false, Ordering::Release);
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's own arguments.
    if unsafe { super::pause::waited(signal, info, context) } {
        return;
    }
    // SAFETY: the kernel's own arguments.
    if unsafe { super::machine::give_up(context) } {
        return;
    }
    // SAFETY: the kernel's own argument, which has a fault's address.
    let fault = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr().addr()) };
    if signal == libc::SIGBUS && fault.is_some_and(super::segments::mend) {
        return;
    }
    let Some(at) = SIGNALS.iter().position(|known| *known == signal) else { return };
    // A handler that was installed after this one may hand back a fault that this one has handed to it.
    let came_back = HANDED_ON.swap(context.addr(), Ordering::AcqRel) == context.addr();
    let other = if came_back { &OTHERS[at].first } else { &OTHERS[at].last };
    // SAFETY: set before this handler was installed, and never freed.
    if let Some(other) = unsafe { other.load(Ordering::Acquire).as_ref() } {
        // SAFETY: the kernel's own arguments.
        unsafe { hand_on(other, signal, info, context) };
    }
    HANDED_ON.store(0, Ordering::Release);
}

/// Does what would have happened without this handler.
///
/// # Safety
/// The arguments are those of a signal that is being handled.
unsafe fn hand_on(
    other: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel's own.
    let is_sent = unsafe { (*info).si_code } <= 0;
    match other.sa_sigaction {
        libc::SIG_IGN if is_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the process ends as soon as this handler returns: the instruction faults once more, and
            // a sent signal is sent again.
            unsafe {
                let default = libc::sigaction { sa_sigaction: libc::SIG_DFL, ..std::mem::zeroed() };
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if is_sent {
                    libc::raise(signal);
                }
            }
        }
        function if other.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: the flag says that it is such a function.
            let function = unsafe { std::mem::transmute::<usize, Handler>(function) };
            function(signal, info, context);
        }
        function => {
            // SAFETY: without the flag it is such a function.
            let function = unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(function) };
            function(signal);
        }
    }
}
