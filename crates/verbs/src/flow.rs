//! Steering: which frames of the Ethernet segment a raw packet queue pair gets.
//!
//! The segment is an Ethernet that all Highwires share, as a hub would make it: a frame travels whole, as a datagram to one
//! multicast group under one Q_Key, and every device with a rule looks at it. A peer that is no Highwire is not in the
//! group and hears nothing of it.

use crate::address::Gid;
use highwire_wire::{LAYER_KEY_LEN, LayerKind, Layers};

/// The group to which frames are sent: transient, site-local (RFC 4291 §2.7). A device of IPv4 uses another
/// instead.
pub const SEGMENT_GROUP: Gid = Gid([0xFF, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x48, 0x57, 0, 1]);

/// The Q_Key of datagrams that carry a frame; a controlled one (IBTA §10.2.5).
pub const SEGMENT_QKEY: u32 = 0x8048_5701;

/// The shortest frame: its header (IEEE 802.3 §3.2). It is not padded.
pub const FRAME_BYTES_MIN: u32 = 14;

/// Bytes that a frame may have beyond the path MTU: its header and a VLAN tag.
pub const FRAME_OVERHEAD_BYTES: u32 = 18;

/// A rule's condition on one header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSpec {
    /// Which header.
    pub kind: LayerKind,
    /// Whether it is the header within a tunnel.
    pub is_inner: bool,
    /// The fields, in the order of the layer's key.
    pub value: [u8; LAYER_KEY_LEN],
    /// The bits of the fields that count.
    pub mask: [u8; LAYER_KEY_LEN],
}

impl FlowSpec {
    /// A condition on these fields, as far as the mask says. Bytes beyond the length of a key are cut off.
    pub fn new(kind: LayerKind, is_inner: bool, value: &[u8], mask: &[u8]) -> FlowSpec {
        let key = |bytes: &[u8]| {
            let mut key = [0; LAYER_KEY_LEN];
            key.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            key
        };
        let mut spec = FlowSpec { kind, is_inner, value: key(value), mask: key(mask) };
        if kind == LayerKind::Ethernet {
            // A rule about a tag's value demands a tag.
            let asks_for_tag = spec.mask[14] | spec.mask[15] != 0;
            (spec.value[16], spec.mask[16]) = (1, u8::from(asks_for_tag));
        }
        spec
    }

    /// Whether a frame fulfils the condition.
    pub fn matches(&self, layers: &Layers) -> bool {
        layers.find(self.kind, self.is_inner).is_some_and(|key| {
            let fields = key.iter().zip(&self.value).zip(&self.mask);
            fields.into_iter().all(|((field, value), mask)| (field ^ value) & mask == 0)
        })
    }
}

/// Which frames a rule is for, before its specifications are looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FlowKind {
    /// Frames that match.
    Normal,
    /// Frames that no normal rule of the device has taken.
    AllDefault,
    /// Frames to more than one station that no normal rule of the device has taken.
    MulticastDefault,
    /// All frames, even if other queue pairs take them, and also those that the queue pair itself sends.
    Sniffer,
}

/// A steering rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRule {
    /// Which frames it is for.
    pub kind: FlowKind,
    /// Among normal rules, lower numbers come first.
    pub priority: u16,
    /// Whether rules of lower priority also get a frame that matches.
    pub passes_on: bool,
    /// Whether matching frames are dropped.
    pub drops: bool,
    /// The conditions on the frame's headers; none for any frame.
    pub specs: Vec<FlowSpec>,
}

/// Why a rule was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowError {
    /// There is no such queue pair.
    NoSuchQp,
    /// The queue pair is of another service.
    NotRaw,
    /// Only normal rules have specifications, drop matching frames, or pass them on.
    NotApplicable,
    /// Two specifications are about the same header, or too many were given.
    BadSpecs,
}

impl std::fmt::Display for FlowError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FlowError::NoSuchQp => "there is no such queue pair",
            FlowError::NotRaw => "frames are steered to raw packet queue pairs only",
            FlowError::NotApplicable => "only normal rules have specifications",
            FlowError::BadSpecs => "two specifications are about the same header, or there are too many",
        })
    }
}

impl std::error::Error for FlowError {}

impl FlowRule {
    /// Most specifications of one rule.
    pub const SPECS_MAX: usize = 10;

    /// A normal rule of the highest priority that delivers matching frames.
    pub fn new(specs: Vec<FlowSpec>) -> FlowRule {
        FlowRule { kind: FlowKind::Normal, priority: 0, passes_on: false, drops: false, specs }
    }

    /// A rule of another kind, which has no specifications.
    pub fn of_kind(kind: FlowKind) -> FlowRule {
        FlowRule { kind, ..FlowRule::new(Vec::new()) }
    }

    /// Checks that the rule is consistent.
    ///
    /// # Errors
    /// [`FlowError::NotApplicable`], [`FlowError::BadSpecs`].
    pub fn check(&self) -> Result<(), FlowError> {
        // A priority has no meaning for the other kinds, and does no harm.
        let is_plain = self.specs.is_empty() && !self.drops && !self.passes_on;
        if self.kind != FlowKind::Normal && !is_plain {
            return Err(FlowError::NotApplicable);
        }
        let header = |spec: &FlowSpec| (level(spec.kind), spec.is_inner);
        let is_twice = |(index, spec)| self.specs[..index].iter().any(|other| header(other) == header(spec));
        if self.specs.len() > FlowRule::SPECS_MAX || self.specs.iter().enumerate().any(is_twice) {
            return Err(FlowError::BadSpecs);
        }
        Ok(())
    }

    /// Whether every specification matches.
    pub fn matches(&self, layers: &Layers) -> bool {
        self.specs.iter().all(|spec| spec.matches(layers))
    }
}

/// The level of a header; a frame has one header of each level.
fn level(kind: LayerKind) -> u8 {
    match kind {
        LayerKind::Ethernet => 2,
        LayerKind::Ipv4 | LayerKind::Ipv6 => 3,
        LayerKind::Esp | LayerKind::Tcp | LayerKind::Udp => 4,
        LayerKind::Vxlan | LayerKind::Gre => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tag: Option<u16>) -> Layers {
        let mut bytes = vec![0x33; 12];
        if let Some(tag) = tag {
            bytes.extend([0x81, 0]);
            bytes.extend(tag.to_be_bytes());
        }
        bytes.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0, 1, 0, 2, 0, 0, 0, 0]);
        Layers::parse(&bytes).expect("an Ethernet header")
    }

    #[test]
    fn only_bits_of_the_mask_count() {
        let check = |mask: [u8; 4], expected| {
            let spec = FlowSpec::new(LayerKind::Ipv4, false, &[10, 0, 9, 9], &mask);
            assert_eq!(spec.matches(&frame(None)), expected, "{mask:?}");
        };
        check([255, 255, 0, 0], true);
        check([255, 255, 1, 0], false);
        check([0; 4], true);
        let other = FlowSpec::new(LayerKind::Tcp, false, &[], &[]);
        assert!(!other.matches(&frame(None)), "a header that is not there is not as wanted");
    }

    #[test]
    fn a_wanted_tag_must_be_there() {
        let mut mask = [0; 16];
        let spec = |mask: &[u8]| FlowSpec::new(LayerKind::Ethernet, false, &[0; 16], mask);
        assert!(spec(&mask).matches(&frame(None)));
        (mask[14], mask[15]) = (0x0F, 0xFF);
        assert!(!spec(&mask).matches(&frame(None)));
        assert!(spec(&mask).matches(&frame(Some(0xE000))));
        assert!(!spec(&mask).matches(&frame(Some(7))));
    }

    #[test]
    fn a_header_is_asked_for_once() {
        let ports = |kind| FlowSpec::new(kind, false, &[], &[]);
        let both = FlowRule::new(vec![ports(LayerKind::Tcp), ports(LayerKind::Udp)]);
        assert_eq!(both.check(), Err(FlowError::BadSpecs));
        let inner = FlowSpec { is_inner: true, ..ports(LayerKind::Tcp) };
        assert_eq!(FlowRule::new(vec![ports(LayerKind::Udp), inner]).check(), Ok(()));
        let default = FlowRule { specs: vec![inner], ..FlowRule::of_kind(FlowKind::AllDefault) };
        assert_eq!(default.check(), Err(FlowError::NotApplicable));
    }
}
