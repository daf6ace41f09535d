//! Real faults for real processes: three nodes with etcd and clients that count, one fault after the other,
//! and how long each was felt.
//!
//! A [`Laboratory`] has the cluster. [`Fault`]s are injected while a load runs; after each of them the
//! committed transactions are counted again, and the [`timeline`] computes times from the nodes' milestones
//! and the clients' commits. All times are by one clock, the machine's.
//!
//! Partitions need a network that can be split. The network is a bridge in a namespace of its own, in which
//! this program runs, and a namespace for each node. Without the right to make them, nodes share the
//! machine's loopback, and there are no partitions.

mod etcd;
mod laboratory;
mod load;
mod network;
mod scenario;
pub mod timeline;

pub use etcd::Etcd;
pub use laboratory::{Laboratory, Launch, Level, Setting};
pub use load::{Commit, Counted, Load};
pub use network::{Network, is_private, private};
pub use scenario::{Episode, Fault};

use std::fmt;
use std::time::{Duration, Instant};

/// Why a check could not be made, or what is wrong with the store.
#[derive(Debug)]
pub struct FaultError(pub(crate) String);

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FaultError {}

pub(crate) fn failed(what: impl fmt::Display, error: impl fmt::Display) -> FaultError {
    FaultError(format!("{what}: {error}"))
}

/// Longer than any step takes, even on a machine whose cores are busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Calls `look` until it returns a value.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, FaultError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = look() {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(FaultError(format!("waited too long for {what}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
