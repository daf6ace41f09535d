//! Packets that carry what switches see: in-band telemetry.
//!
//! They are a type of their own, so that a network without telemetry carries no more than before. A data packet collects; its
//! receiver copies what came into the next acknowledgement, which carries it back unchanged.

use highwire_fabric::{HostId, Packet, Stamp};
use highwire_rnic::Hop;
use highwire_transport::congestion::Rate;

use crate::parcel::Parcel;

/// The stamps of a way, first to last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trail {
    len: u8,
    stamps: [Option<Stamp>; Trail::HOPS_MAX],
}

impl Trail {
    /// More switches of a way are not recorded; a fat tree has five.
    pub(crate) const HOPS_MAX: usize = 8;
    pub(crate) const EMPTY: Trail = Trail { len: 0, stamps: [None; Trail::HOPS_MAX] };

    fn push(&mut self, stamp: Stamp) {
        if let Some(place) = self.stamps.get_mut(usize::from(self.len)) {
            *place = Some(stamp);
            self.len += 1;
        }
    }

    /// As a congestion control knows them.
    pub(crate) fn hops(&self, told: &mut Vec<Hop>) {
        told.clear();
        told.extend(self.stamps.iter().flatten().map(|stamp| Hop {
            queue_bytes: stamp.queue_bytes,
            sent_bytes: stamp.sent_bytes,
            rate: Rate::from_bits_per_second(stamp.rate.as_bps().max(1)),
            at: stamp.at.instant(),
        }));
    }
}

/// A packet of either kind.
pub(crate) trait Wire: Packet + Send + 'static {
    fn of(parcel: Parcel, trail: Trail) -> Self;
    fn parcel(&self) -> &Parcel;
    fn trail(&self) -> Option<&Trail>;
}

impl Wire for Parcel {
    #[inline]
    fn of(parcel: Parcel, _trail: Trail) -> Parcel {
        parcel
    }

    #[inline]
    fn parcel(&self) -> &Parcel {
        self
    }

    #[inline]
    fn trail(&self) -> Option<&Trail> {
        None
    }
}

/// A packet with its trail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamped {
    parcel: Parcel,
    trail: Trail,
}

impl Wire for Stamped {
    fn of(parcel: Parcel, trail: Trail) -> Stamped {
        Stamped { parcel, trail }
    }

    fn parcel(&self) -> &Parcel {
        &self.parcel
    }

    fn trail(&self) -> Option<&Trail> {
        Some(&self.trail)
    }
}

impl Packet for Stamped {
    const IS_STAMPED: bool = true;

    fn wire_bytes(&self) -> u32 {
        self.parcel.wire_bytes()
    }

    fn destination(&self) -> HostId {
        self.parcel.destination()
    }

    fn flow_hash(&self) -> u64 {
        self.parcel.flow_hash()
    }

    fn priority(&self) -> u8 {
        self.parcel.priority()
    }

    fn is_ecn_capable(&self) -> bool {
        self.parcel.is_ecn_capable()
    }

    fn mark_congestion(&mut self) {
        self.parcel.mark_congestion();
    }

    fn trim(&mut self) -> bool {
        self.parcel.trim()
    }

    fn stamp(&mut self, stamp: Stamp) {
        if self.parcel.is_data() {
            self.trail.push(stamp);
        }
    }
}
