//! A device's own counters, beside those of its RNICs and links.

/// Counters of one lane's driver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DriverCounters {
    /// Packets whose ICRC is wrong under every identification.
    pub(crate) dropped_bad_icrc: u64,
    /// Packets that are no RoCE packets behind a right ICRC.
    pub(crate) dropped_malformed: u64,
    /// Packets that a link could not take.
    pub(crate) dropped_link_full: u64,
    /// Packets for another lane whose mailbox was full.
    pub(crate) dropped_mailbox_full: u64,
    /// Packets for peers that the chosen link cannot reach.
    pub(crate) dropped_unreachable: u64,
    /// Packets from the network for a connection whose packets come through shared memory.
    pub(crate) dropped_beside_shm: u64,
    /// Packets that arrived at one lane for another.
    pub(crate) handed_over: u64,
    /// Looks at a peer's socket that found it too full for more.
    pub(crate) waited_for_room: u64,
    /// Packets of UC and UD that were kept until there would be a receive.
    pub(crate) held_for_receive: u64,
    /// Turns that took nothing from the links, because so many were kept.
    pub(crate) waited_for_receive: u64,
    /// Requests that were executed directly in a peer's memory.
    pub(crate) direct: u64,
    /// Completion queues that were full when another completion came.
    pub(crate) cq_overruns: u64,
}

impl DriverCounters {
    pub(crate) fn each(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let DriverCounters {
            dropped_bad_icrc,
            dropped_malformed,
            dropped_link_full,
            dropped_mailbox_full,
            dropped_unreachable,
            dropped_beside_shm,
            handed_over,
            waited_for_room,
            held_for_receive,
            waited_for_receive,
            direct,
            cq_overruns,
        } = *self;
        each("dropped_bad_icrc", dropped_bad_icrc);
        each("dropped_malformed_packet", dropped_malformed);
        each("dropped_link_full", dropped_link_full);
        each("dropped_mailbox_full", dropped_mailbox_full);
        each("dropped_unreachable", dropped_unreachable);
        each("dropped_beside_shm", dropped_beside_shm);
        each("handed_over", handed_over);
        each("waited_for_room", waited_for_room);
        each("held_for_receive", held_for_receive);
        each("waited_for_receive", waited_for_receive);
        each("direct", direct);
        each("cq_overruns", cq_overruns);
    }
}

/// Every counter of a device by name, summed over its lanes, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot(Vec<(&'static str, u64)>);

impl CounterSnapshot {
    pub(crate) fn add(&mut self, name: &'static str, value: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += value,
            None => self.0.push((name, value)),
        }
    }

    /// The value of one counter; 0 if nothing of that name was counted.
    pub fn value(&self, name: &str) -> u64 {
        self.0.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
    }

    /// All names with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().copied()
    }
}
