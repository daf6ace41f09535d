//! A thread of the device's own: of this machine, or of the model that the calling thread is in.

use crate::in_place::OwnThread;
use highwire_wake::world::{self, Started};
use std::io;
use std::thread::JoinHandle;

#[derive(Debug)]
pub(crate) enum Helper {
    Real(JoinHandle<()>),
    Modelled(Started),
}

impl Helper {
    /// Starts it.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Helper> {
        match world::spawn(name, body) {
            Ok(started) => Ok(Helper::Modelled(started)),
            Err(body) => OwnThread::spawn(name, body).map(Helper::Real),
        }
    }

    /// Waits for its end. If it panicked, its message has been printed already.
    pub(crate) fn join(self) {
        match self {
            Helper::Real(thread) => drop(thread.join()),
            Helper::Modelled(started) => started.join(),
        }
    }
}
