//! A machine: a clock that is wrong, perhaps a process, perhaps the memory of the last one.

use std::collections::BTreeMap;

use crate::id::NodeId;
use crate::journal::Loaded;
use crate::node::{Memory, Node};

use super::clients::Client;
use super::disk::Disk;
use super::network::{Receiver, Sender};

/// A clock with an offset and a rate of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) offset_ns: u64,
    pub(super) drift_ppm: i64,
}

impl Clock {
    pub(super) fn local(&self, true_ns: u64) -> u64 {
        let scaled = i128::from(true_ns) * i128::from(1_000_000 + self.drift_ppm) / 1_000_000;
        self.offset_ns + scaled as u64
    }

    /// The first moment at which the clock shows at least `local_ns`.
    pub(super) fn true_time(&self, local_ns: u64) -> u64 {
        let past = i128::from(local_ns.saturating_sub(self.offset_ns));
        (past * 1_000_000 / i128::from(1_000_000 + self.drift_ppm)) as u64 + 1
    }
}

/// One life of a program.
pub(super) struct Process {
    pub(super) number: u64,
    pub(super) node: Node,
    pub(super) sender: Sender,
    pub(super) receivers: BTreeMap<(NodeId, u64), Receiver>,
    pub(super) clients: Vec<Client>,
    pub(super) timer_ns: u64,
    pub(super) service_call: u64,
    /// Answers that wait for the disk.
    pub(super) held: Vec<HeldReply>,
}

/// An answer that is a promise, which the disk must hold first.
pub(super) struct HeldReply {
    pub(super) after: u64,
    pub(super) to: NodeId,
    pub(super) process: u64,
    pub(super) ticket: u64,
    pub(super) bytes: Vec<u8>,
}

pub(super) struct Machine {
    pub(super) id: NodeId,
    pub(super) clock: Clock,
    pub(super) process: Option<Process>,
    pub(super) memory: Option<Memory>,
    pub(super) disk: Option<Disk>,
    /// The rest of what was loaded from the disk after the last crash.
    pub(super) loaded: Option<Loaded>,
    pub(super) paused_until_ns: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_clock_reaches_what_it_was_asked_for() {
        for drift_ppm in [-50_000, -1, 0, 17, 50_000] {
            let clock = Clock { offset_ns: 12_345, drift_ppm };
            for local in (12_345..90_000).step_by(777) {
                let time = clock.true_time(local);
                assert!(clock.local(time) >= local && clock.local(time) <= local + 3, "{drift_ppm} {local}");
            }
        }
    }
}
