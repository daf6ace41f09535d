//! What became of the datagrams for queue pair 1, where other processes can read it.

use highwire_link::shm::stats::StatsFile;
use highwire_link::shm::{EngineName, Registry};
use std::net::IpAddr;

/// Why a datagram went no further, or where it went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Given to the process that it is for.
    Delivered,
    /// Kept for a listener that may come in a moment.
    Parked,
    /// Answered in place of a process that is not there.
    Declined,
    /// Sent from queue pair 1 for a process.
    Sent,
    /// Damaged, or its addresses are not those that it was sent with.
    DroppedBadIcrc,
    /// No packet of RoCEv2.
    DroppedMalformed,
    /// Not for queue pair 1, or not with its Q_Key (IBTA §10.2.5).
    DroppedBadQkey,
    /// Not a message of connection management, or one of no meaning.
    DroppedNotManagement,
    /// A message of connection management that names no recipient.
    DroppedNoRecipient,
    /// For a process that has yet to come back from a broker that was killed.
    DroppedOwnerAway,
    /// For a process that is not there, and of a kind that is not answered.
    DroppedNobody,
    /// Its process does not take what waits for it.
    DroppedProcessFull,
    /// More requests wait for listeners than may.
    DroppedParkedFull,
    /// The network took no more.
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
    /// Without it, other programs cannot read them.
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

    /// Removes the file: the counters cannot be read any more.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// Writes them, if any has changed, and those that `others` calls its argument with.
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
