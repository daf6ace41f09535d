//! Packets of which only the headers arrived: a switch had no room for the rest.
//!
//! The receiver names such a packet, so the sender resends it at once, without evidence by later packets. A packet that was resent
//! for this reason is no hole afterwards: SACKs above it come from before the repetition.
//!
//! Invariant: every packet is named once at most.

use highwire_wire::Psn;
use std::collections::VecDeque;

/// The packets that were named, until the cumulative acknowledgement has passed them.
#[derive(Clone, Debug, Default)]
pub(super) struct Trimmed {
    packets: VecDeque<Named>,
}

#[derive(Clone, Copy, Debug)]
struct Named {
    psn: Psn,
    /// The first packet that was new when it was resent; `None` until then.
    resent_before: Option<Psn>,
}

impl Trimmed {
    /// At most so many are remembered. Those beyond are left to the timeout.
    const PACKETS_MAX: usize = 4096;

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The receiver names a packet; returns whether it is to be resent and was not before.
    pub(super) fn name(&mut self, psn: Psn) -> bool {
        if let Some(named) = self.packets.iter_mut().find(|named| named.psn == psn) {
            return named.resent_before.take().is_some();
        }
        let has_room = self.packets.len() < Trimmed::PACKETS_MAX;
        if has_room {
            self.packets.push_back(Named { psn, resent_before: None });
        }
        has_room
    }

    /// The packet to resend, if there is one.
    #[inline]
    pub(super) fn next(&self) -> Option<Psn> {
        self.packets.iter().find(|named| named.resent_before.is_none()).map(|named| named.psn)
    }

    /// It leaves; packets from `next_to_send` on are new.
    pub(super) fn on_resent(&mut self, psn: Psn, next_to_send: Psn) {
        if let Some(named) = self.packets.iter_mut().find(|named| named.psn == psn) {
            named.resent_before = Some(next_to_send);
        }
    }

    /// Whether a packet was resent because it was named.
    pub(super) fn was_resent(&self, psn: Psn) -> bool {
        self.resent_before(psn).is_some()
    }

    /// The first packet that was new when this one was resent because it was named.
    pub(super) fn resent_before(&self, psn: Psn) -> Option<Psn> {
        self.packets.iter().find(|named| named.psn == psn)?.resent_before
    }

    /// Packets before `front`, and those that `has_arrived`, are of no interest any more.
    pub(super) fn forget(&mut self, front: Psn, has_arrived: impl Fn(Psn) -> bool) {
        self.packets.retain(|named| !named.psn.is_before(front) && !has_arrived(named.psn));
    }

    /// Nothing is known any more.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
    }
}
