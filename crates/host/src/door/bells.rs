//! Names for the sockets by which programs behind the door wake each other.
//!
//! A program listens at `wake-<number>` in the device's directory, and its neighbours write to it: the engine takes no part. The engine
//! gives out the number and removes the file, so that a program that was killed leaves none behind.

use super::protocol::{Refusal, Status};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many a session may have.
pub(super) const BELLS_MAX: usize = 1024;

/// The numbers of one device.
#[derive(Debug)]
pub(super) struct Bells {
    directory: PathBuf,
    last: AtomicU32,
}

/// A number that one program has. Dropping it removes the socket's file, so that no neighbour connects any more.
#[derive(Debug)]
pub(super) struct BellName {
    number: u32,
    of: Arc<Bells>,
}

impl Bells {
    pub(super) fn new(directory: PathBuf) -> Arc<Bells> {
        Arc::new(Bells { directory, last: AtomicU32::new(0) })
    }

    /// A number for a session that has so many. Numbers count from 1, and 0 stands for none.
    pub(super) fn name(self: &Arc<Bells>, taken: usize) -> Result<BellName, Refusal> {
        if taken >= BELLS_MAX {
            return Err(Refusal::new(Status::NoMemory, format!("a program has at most {BELLS_MAX} bells")));
        }
        let used = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| last.checked_add(1));
        let used =
            used.map_err(|_| Refusal::new(Status::NoMemory, "the device has no number left for a bell"));
        Ok(BellName { number: used? + 1, of: Arc::clone(self) })
    }
}

impl BellName {
    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for BellName {
    fn drop(&mut self) {
        // There is none if the program has not listened yet.
        let _ = std::fs::remove_file(self.of.directory.join(format!("wake-{}", self.number)));
    }
}
