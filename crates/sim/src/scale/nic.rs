//! A card beyond its protocol: a pipeline that takes time for each packet, and a cache of queue pairs'
//! contexts.
//!
//! The state of a queue pair lies in the host's memory. A card that has it in its cache handles a packet at
//! once; otherwise it fetches the state over PCIe and replaces the least recently used one. The cache's size
//! and the cost of fetching are parameters, because no vendor publishes them.

use crate::fabric::Span;
use highwire_wire::Qpn;
use std::collections::BTreeMap;

/// A card's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Contexts of queue pairs that it holds.
    pub cached: usize,
    /// The time of a packet, sent or received, with its context in the cache.
    pub packet: Span,
    /// The extra time to fetch a context, in which the pipeline waits.
    pub miss: Span,
}

/// The least recently used goes.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    used: BTreeMap<u32, u64>,
    by_use: BTreeMap<u64, u32>,
    clock: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl Contexts {
    /// The time of a packet of this queue pair.
    pub(super) fn cost(&mut self, nic: &Nic, qpn: Qpn) -> Span {
        self.clock += 1;
        let before = self.used.insert(qpn.value(), self.clock);
        self.by_use.insert(self.clock, qpn.value());
        if let Some(before) = before {
            self.by_use.remove(&before);
            self.hits += 1;
            return nic.packet;
        }
        self.misses += 1;
        if self.used.len() > nic.cached
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used.remove(&oldest);
        }
        nic.packet + nic.miss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_that_was_used_longest_ago_goes() {
        let nic = Nic { cached: 2, packet: Span::from_ns(20), miss: Span::from_ns(100) };
        let mut contexts = Contexts::default();
        let mut cost = |qpn| contexts.cost(&nic, Qpn::new(qpn)).as_ps() / 1000;
        assert_eq!([cost(1), cost(2), cost(1), cost(2)], [120, 120, 20, 20]);
        // The third takes the place of 1, which takes that of 2.
        assert_eq!([cost(3), cost(2), cost(1), cost(3)], [120, 20, 120, 120]);
        assert_eq!((contexts.hits, contexts.misses), (3, 5));
    }
}
