//! Whether another thread could be writing to this process's memory.

use crate::sys::SignalMask;
use std::io;
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

/// Whether the process has no threads but the caller and the library's own. Asks the kernel; false if it does
/// not answer.
pub(super) fn is_alone() -> bool {
    let own = own();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
    let caller = current();
    tasks.into_iter().all(|task| {
        let thread = task.ok().and_then(|task| task.file_name().to_str()?.parse().ok());
        thread.is_some_and(|thread| thread == caller || own.contains(&thread) || is_over(thread))
    })
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
