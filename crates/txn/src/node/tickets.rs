//! Requests under way, by their tickets: what each is for.
//!
//! A ticket is a serial number with the place of its entry in its low bits. So later tickets are greater, no two are alike, and a response
//! finds its entry with one look.

use highwire_stdx::Slab;

use crate::id::NodeId;

use super::Purpose;

const PLACE_BITS: u32 = 24;

#[derive(Debug, Default)]
pub(super) struct Tickets {
    serial: u64,
    entries: Slab<(u64, NodeId, Purpose)>,
}

impl Tickets {
    pub(super) fn issue(&mut self, to: NodeId, purpose: Purpose) -> u64 {
        self.serial += 1;
        let place = self.entries.insert((0, to, purpose));
        debug_assert!(place >> PLACE_BITS == 0, "millions of requests are under way");
        let ticket = self.serial << PLACE_BITS | u64::from(place);
        if let Some(entry) = self.entries.get_mut(place) {
            entry.0 = ticket;
        }
        ticket
    }

    /// A bound: every ticket so far is smaller, and every later one is at least this.
    pub(super) fn next(&self) -> u64 {
        (self.serial + 1) << PLACE_BITS
    }

    pub(super) fn contains(&self, ticket: u64) -> bool {
        self.entries.get(place(ticket)).is_some_and(|entry| entry.0 == ticket)
    }

    /// Takes a ticket's entry out: its response has arrived, or the node no longer waits for it.
    pub(super) fn redeem(&mut self, ticket: u64) -> Option<(NodeId, Purpose)> {
        if !self.contains(ticket) {
            return None;
        }
        self.entries.remove(place(ticket)).map(|(_, to, purpose)| (to, purpose))
    }

    pub(super) fn retain(&mut self, keeps: impl Fn(u64, Purpose) -> bool) {
        let gone = |(place, &(ticket, _, purpose))| (!keeps(ticket, purpose)).then_some(place);
        let gone: Vec<u32> = self.entries.iter().filter_map(gone).collect();
        for place in gone {
            self.entries.remove(place);
        }
    }

    pub(super) fn purposes_mut(&mut self) -> impl Iterator<Item = &mut Purpose> {
        self.entries.iter_mut().map(|(_, (_, _, purpose))| purpose)
    }

    /// Serial numbers go on: a late response finds nothing.
    pub(super) fn clear(&mut self) {
        self.entries = Slab::default();
    }
}

fn place(ticket: u64) -> u32 {
    (ticket & ((1 << PLACE_BITS) - 1)) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_redeemed_once_and_never_issued_again() {
        let mut tickets = Tickets::default();
        let (to, purpose) = (NodeId(3), Purpose::Fetch);
        let first = tickets.issue(to, purpose);
        assert!(tickets.contains(first));
        assert_eq!(tickets.redeem(first), Some((to, purpose)));
        assert_eq!((tickets.contains(first), tickets.redeem(first)), (false, None));
        // The next one has the same place, and is another.
        let bound = tickets.next();
        let second = tickets.issue(to, Purpose::Open);
        assert!(second >= bound && bound > first && tickets.redeem(first).is_none());
        assert!(tickets.contains(second));
        tickets.clear();
        assert!(!tickets.contains(second) && tickets.issue(to, purpose) > second);
    }

    #[test]
    fn those_that_are_not_kept_are_gone() {
        let mut tickets = Tickets::default();
        let all: Vec<u64> = (0..9).map(|_| tickets.issue(NodeId(1), Purpose::Heartbeat)).collect();
        let bound = tickets.next();
        let late = tickets.issue(NodeId(1), Purpose::Heartbeat);
        let other = tickets.issue(NodeId(1), Purpose::Fetch);
        tickets.retain(|ticket, purpose| ticket >= bound || purpose != Purpose::Heartbeat);
        assert!(all.iter().all(|&ticket| !tickets.contains(ticket)));
        assert!(tickets.contains(late) && tickets.contains(other));
    }
}
