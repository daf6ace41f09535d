//! The fates of datagrams to queue pair 1, counted where other processes can read them.

use highwire_link::shm::stats::StatsFile;
use highwire_link::shm::{EngineName, Registry};
use std::net::IpAddr;

/// The fate of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Given to its process.
    Delivered,
    /// Kept for a listener that may soon come.
    Parked,
    /// Answered in place of a process that does not exist.
    Declined,
    /// Sent from queue pair 1 for a process.
    Sent,
    /// Damaged, or its addresses are not those that it was sent with.
    DroppedBadIcrc,
    /// No packet of RoCEv2.
    DroppedMalformed,
    /// Not to queue pair 1, or not with its Q_Key (IBTA §10.2.5).
    DroppedBadQkey,
    /// Not a message of connection management, or an invalid one.
    DroppedNotManagement,
    /// A message of connection management that names no recipient.
    DroppedNoRecipient,
    /// For a process that has yet to come back from a broker that was killed.
    DroppedOwnerAway,
    /// For a process that does not exist, and of a kind without answer.
    DroppedNobody,
    /// Its process does not receive the datagrams that wait.
    DroppedProcessFull,
    /// Too many requests wait for listeners.
    DroppedParkedFull,
    /// The link had no room.
    DroppedLinkFull,
}

const FATES: [(Fate, &str); 14] = [
    (Fate::Delivered, "gsi_delivered"),
    (Fate::Parked, "gsi_parked"),
    (Fate::Declined, "gsi_declined"),
    (Fate::Sent, "gsi_sent"),
    (Fate::DroppedBadIcrc, "dropped_bad_icrc"),
    (Fate::DroppedMalformed, "dropped_malformed"),
    (Fate::DroppedBadQkey, "dropped_bad_qkey"),
    (Fate::DroppedNotManagement, "dropped_not_management"),
    (Fate::DroppedNoRecipient, "dropped_no_recipient"),
    (Fate::DroppedOwnerAway, "dropped_owner_away"),
    (Fate::DroppedNobody, "dropped_nobody"),
    (Fate::DroppedProcessFull, "dropped_process_full"),
    (Fate::DroppedParkedFull, "dropped_parked_full"),
    (Fate::DroppedLinkFull, "dropped_link_full"),
];

pub(super) struct Counters {
    values: [u64; FATES.len()],
    /// Without the file, other programs cannot read the counters.
    file: Option<StatsFile>,
    is_written: bool,
}

impl Counters {
    pub(super) fn new(registry: &Registry, address: IpAddr) -> Counters {
        let file = StatsFile::create_in(registry, EngineName::broker(address)).ok();
        Counters { values: [0; FATES.len()], file, is_written: false }
    }

    pub(super) fn count(&mut self, fate: Fate) {
        self.values[fate as usize] += 1;
        self.is_written = false;
    }

    /// Removes the file: no program can read the counters any more.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// Writes the counters, if any has changed, and those that `others` passes to its argument.
    pub(super) fn write(&mut self, others: impl FnOnce(&mut dyn FnMut(&'static str, u64))) {
        if std::mem::replace(&mut self.is_written, true) {
            return;
        }
        if let Some(file) = &self.file {
            let mut all: Vec<_> =
                FATES.iter().map(|(fate, name)| (*name, self.values[*fate as usize])).collect();
            others(&mut |name, value| all.push((name, value)));
            file.write(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fate_has_its_own_line_and_name() {
        for (line, (fate, name)) in FATES.iter().enumerate() {
            assert_eq!(*fate as usize, line, "{name}");
            assert!(FATES[..line].iter().all(|(_, other)| other != name), "{name}");
        }
    }
}
