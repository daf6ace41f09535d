//! The library's threads take no signals: the application decides which thread does. Signals of faults are
//! never blocked, since they belong to the thread and tell of memory that is gone.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{io, ptr};

/// All signals blocked in this thread, and in threads that it starts, until it is dropped.
pub struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Blocks all signals.
    pub fn all() -> SignalMask {
        // SAFETY: both sets are valid memory, and a set of zeroes is one.
        unsafe {
            let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
                libc::sigdelset(&mut all, fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
            SignalMask(old)
        }
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was in force.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

/// The signals that ask a process to end, blocked so that one thread can wait for them.
pub struct EndSignals {
    set: libc::sigset_t,
    /// The thread's mask before.
    before: libc::sigset_t,
}

impl EndSignals {
    /// Blocks them in this thread, and in those that it starts from now on.
    pub fn block() -> EndSignals {
        // SAFETY: the set is valid memory, and a set of zeroes is one.
        unsafe {
            let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            EndSignals { set, before }
        }
    }

    /// Lets the command begin with the mask that this thread had before: a program inherits what is blocked.
    pub fn spare(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: between fork and exec only this call is made, which is safe there; the set is a copy.
        unsafe {
            command.pre_exec(move || {
                match libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) {
                    0 => Ok(()),
                    error => Err(io::Error::from_raw_os_error(error)),
                }
            });
        }
    }

    /// Waits for one of them for so long; false if none has come.
    pub fn wait_for(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = libc::timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: the set and the time are valid memory; no information about the signal is asked for.
            let signal = unsafe { libc::sigtimedwait(&self.set, ptr::null_mut(), &left) };
            if signal > 0 {
                return true;
            }
            // A handler of another signal has ended the wait early.
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return false;
            }
        }
    }

    /// Waits for one of them. Returns its number, and whether a process has sent it, rather than the keyboard.
    pub fn wait(&self) -> (i32, bool) {
        // SAFETY: both are valid memory, and zeroes are such a structure.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            loop {
                let signal = libc::sigwaitinfo(&self.set, &mut info);
                // A debugger may end the call without a signal.
                if signal > 0 {
                    return (signal, info.si_code <= 0);
                }
            }
        }
    }
}
