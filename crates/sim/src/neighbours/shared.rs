//! The packets of such a network: an RNIC's packet or a nanoPU's frame.

use highwire_fabric::{HostId, Packet};
use highwire_nanopu::network::{Carrier, Frame};

use crate::parcel::Parcel;

/// A packet of either kind. `ABOVE`: whether nanoPUs' have priorities above RNICs'; otherwise all have the same.
#[derive(Clone, Copy)]
pub struct Shared<const ABOVE: bool>(Cargo);

// A packet in the fabric is plain data that is copied, so the smaller one cannot live elsewhere.
#[derive(Clone, Copy)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Cargo {
    Parcel(Parcel),
    Frame(Frame),
}

/// The highest priority of RNICs' data and control packets.
const BULK_PRIORITY_MAX: u8 = 1;

impl<const ABOVE: bool> Shared<ABOVE> {
    /// The priorities of switches: two for RNICs, and NDP's two.
    pub(super) const PRIORITIES: u8 = BULK_PRIORITY_MAX + 3;

    pub(super) fn from_parcel(parcel: Parcel) -> Shared<ABOVE> {
        Shared(Cargo::Parcel(parcel))
    }

    pub(super) fn cargo(&self) -> &Cargo {
        &self.0
    }

    /// Whether a nanoPU sent it.
    pub fn is_frame(&self) -> bool {
        matches!(self.0, Cargo::Frame(_))
    }
}

impl<const ABOVE: bool> Carrier for Shared<ABOVE> {
    fn from_frame(frame: Frame) -> Shared<ABOVE> {
        Shared(Cargo::Frame(frame))
    }

    fn frame(&self) -> Option<&Frame> {
        match &self.0 {
            Cargo::Frame(frame) => Some(frame),
            Cargo::Parcel(_) => None,
        }
    }
}

impl<const ABOVE: bool> Packet for Shared<ABOVE> {
    fn wire_bytes(&self) -> u32 {
        match &self.0 {
            Cargo::Parcel(parcel) => parcel.wire_bytes(),
            Cargo::Frame(frame) => frame.wire_bytes(),
        }
    }

    fn destination(&self) -> HostId {
        match &self.0 {
            Cargo::Parcel(parcel) => parcel.destination(),
            Cargo::Frame(frame) => frame.destination(),
        }
    }

    fn flow_hash(&self) -> u64 {
        match &self.0 {
            Cargo::Parcel(parcel) => parcel.flow_hash(),
            Cargo::Frame(frame) => frame.flow_hash(),
        }
    }

    fn priority(&self) -> u8 {
        match &self.0 {
            _ if !ABOVE => 0,
            Cargo::Parcel(parcel) => parcel.priority().min(BULK_PRIORITY_MAX),
            Cargo::Frame(frame) => {
                (BULK_PRIORITY_MAX + 1).saturating_add(frame.priority()).min(Self::PRIORITIES - 1)
            }
        }
    }

    fn is_ecn_capable(&self) -> bool {
        match &self.0 {
            Cargo::Parcel(parcel) => parcel.is_ecn_capable(),
            Cargo::Frame(_) => false,
        }
    }

    fn mark_congestion(&mut self) {
        if let Cargo::Parcel(parcel) = &mut self.0 {
            parcel.mark_congestion();
        }
    }

    fn trim(&mut self) -> bool {
        match &mut self.0 {
            Cargo::Parcel(parcel) => parcel.trim(),
            Cargo::Frame(frame) => frame.trim(),
        }
    }
}
