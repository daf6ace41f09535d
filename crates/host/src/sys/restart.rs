//! The effect of a signal on a thread that sleeps in `ppoll`.
//!
//! `read` goes on after a handler that was installed with `SA_RESTART`, and ends after another. `ppoll` ends after both, and does not
//! tell them apart. So a thread sleeps there only where all handlers of the process are of one kind; else it sleeps on a futex,
//! which behaves as `read` does.

use std::sync::atomic::{AtomicU32, Ordering};

/// Sleeps between two looks at the handlers: a look is as many system calls as there are signals.
const SLEEPS_PER_LOOK: u32 = 1024;

/// The kinds of handlers that the process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Handlers {
    /// None, or such as let a call go on.
    Restart = 1,
    /// Such as end a call.
    End = 2,
    Both = 3,
}

/// The last look in the upper bits, and sleeps until the next in the lower.
static LOOK: AtomicU32 = AtomicU32::new(0);

/// Whether a thread may sleep in `ppoll`, and can tell what to do if a signal ends it.
pub fn may_be_interrupted_in_poll() -> bool {
    let last = LOOK.load(Ordering::Relaxed);
    if last & 0xFFFF > 0 {
        LOOK.store(last - 1, Ordering::Relaxed);
        return last >> 16 != Handlers::Both as u32;
    }
    note(look(action)) != Handlers::Both
}

fn note(handlers: Handlers) -> Handlers {
    LOOK.store((handlers as u32) << 16 | SLEEPS_PER_LOOK, Ordering::Relaxed);
    handlers
}

/// Whether a signal handler that has just run ends a call that waits, as it does unless it was installed with `SA_RESTART`.
pub fn ends_waits() -> bool {
    // Kept for the next sleep, too: where a signal ends every sleep, looks would take more time than work.
    let handlers = note(look(action));
    handlers != Handlers::Restart
}

fn look(action: impl Fn(libc::c_int) -> Option<libc::sigaction>) -> Handlers {
    // Handlers of these signals react to a fault of the thread itself, which a sleeping thread cannot commit.
    const FAULTS: [libc::c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
    let handled = (1..=64).filter(|signal| !FAULTS.contains(signal)).filter_map(action);
    let mut handled = handled.filter(|action| ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction));
    let restarts = |action: libc::sigaction| action.sa_flags & libc::SA_RESTART != 0;
    let Some(first) = handled.next().map(restarts) else { return Handlers::Restart };
    match (first, handled.all(|action| restarts(action) == first)) {
        (_, false) => Handlers::Both,
        (true, true) => Handlers::Restart,
        (false, true) => Handlers::End,
    }
}

fn action(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: zeros are a valid value, which the call fills in; it changes nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0).then_some(action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handlers(of: &[(libc::c_int, bool)]) -> Handlers {
        look(|signal| {
            let (_, restarts) = of.iter().find(|(handled, _)| *handled == signal)?;
            // SAFETY: zeros are a valid value.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = 4096;
            action.sa_flags = if *restarts { libc::SA_RESTART } else { 0 };
            Some(action)
        })
    }

    #[test]
    fn handlers_of_one_kind_say_what_an_interruption_means() {
        use libc::{SIGALRM, SIGBUS, SIGCHLD, SIGINT};
        assert_eq!(handlers(&[]), Handlers::Restart, "nobody handles any");
        assert_eq!(handlers(&[(SIGINT, true), (SIGCHLD, true)]), Handlers::Restart);
        assert_eq!(handlers(&[(SIGINT, false), (SIGALRM, false)]), Handlers::End);
        assert_eq!(handlers(&[(SIGINT, false), (SIGALRM, true)]), Handlers::Both);
        assert_eq!(handlers(&[(SIGALRM, true), (SIGBUS, false)]), Handlers::Restart, "a fault is no event");
    }
}
