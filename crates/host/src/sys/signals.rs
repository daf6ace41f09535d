//! Threads of ours take no signals: which thread of the process does is the application's business.

/// All signals blocked in this thread, and in threads that it starts, until it is dropped.
pub struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Blocks them.
    pub fn all() -> SignalMask {
        // SAFETY: both sets are valid memory, and a set of zeroes is one.
        unsafe {
            let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
            SignalMask(old)
        }
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was in force.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
