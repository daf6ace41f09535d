//! What happened, counted by name.

/// Something worth counting. The names are what `highwire stats` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
#[allow(missing_docs, reason = "the names say it, and NAMES spells them out")]
pub enum Counter {
    PacketsSent,
    PacketsReceived,
    BytesSent,
    BytesReceived,
    Retransmitted,
    Timeouts,
    AcksSent,
    NaksSent,
    NaksReceived,
    RnrSent,
    RnrReceived,
    CnpsSent,
    CnpsReceived,
    OutOfSequence,
    Duplicates,
    DroppedUnknownQp,
    DroppedWrongSource,
    DroppedWrongService,
    DroppedWrongState,
    DroppedWrongKey,
    DroppedNotNegotiated,
    DroppedMalformed,
    DroppedNoReceive,
    DroppedBeyondWindow,
    DroppedTooLong,
    DroppedStale,
    DroppedUnsteered,
    RefusedAccess,
    RefusedRequest,
}

impl Counter {
    /// Every counter's name, in order.
    pub const NAMES: [&'static str; 29] = [
        "packets_sent",
        "packets_received",
        "bytes_sent",
        "bytes_received",
        "retransmitted",
        "timeouts",
        "acks_sent",
        "naks_sent",
        "naks_received",
        "rnr_sent",
        "rnr_received",
        "cnps_sent",
        "cnps_received",
        "out_of_sequence",
        "duplicates",
        "dropped_unknown_qp",
        "dropped_wrong_source",
        "dropped_wrong_service",
        "dropped_wrong_state",
        "dropped_wrong_key",
        "dropped_not_negotiated",
        "dropped_malformed",
        "dropped_no_receive",
        "dropped_beyond_window",
        "dropped_too_long",
        "dropped_stale",
        "dropped_unsteered",
        "refused_access",
        "refused_request",
    ];
}

/// One value per [`Counter`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters([u64; Counter::NAMES.len()]);

impl Counters {
    /// Counts one occurrence.
    #[inline]
    pub fn count(&mut self, counter: Counter) {
        self.0[counter as usize] += 1;
    }

    /// Counts `n` of them.
    #[inline]
    pub fn add(&mut self, counter: Counter, n: u64) {
        self.0[counter as usize] += n;
    }

    /// The value of one counter.
    pub fn value(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Every counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Counter::NAMES.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_counter_has_the_last_name() {
        assert_eq!(Counter::RefusedRequest as usize, Counter::NAMES.len() - 1);
        let mut counters = Counters::default();
        counters.count(Counter::Timeouts);
        assert!(counters.iter().any(|(name, n)| (name, n) == ("timeouts", 1)));
    }
}
