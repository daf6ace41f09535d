//! The transport services and the path MTU.

use std::fmt;

/// A transport service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Service {
    /// Reliable connection: every operation, in order, exactly once.
    Rc,
    /// Unreliable connection: SEND and WRITE; a message with a gap is dropped.
    Uc,
    /// Unreliable datagram: SEND of one packet to any peer.
    Ud,
    /// Whole Ethernet frames, to and from a segment of their own.
    Raw,
    /// The requesting half of an extended reliable connection (IBTA A14): it names a shared receive queue
    /// with every request.
    XrcInitiator,
    /// The responding half: receives, memory and completions are those of the shared receive queue that the
    /// request names.
    XrcTarget,
}

impl Service {
    /// Whether messages are acknowledged, and sent again until they are.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Service::Rc | Service::XrcInitiator | Service::XrcTarget)
    }

    /// Whether it sends requests.
    pub const fn requests(self) -> bool {
        !matches!(self, Service::XrcTarget)
    }

    /// Whether it answers requests.
    pub const fn responds(self) -> bool {
        !matches!(self, Service::XrcInitiator)
    }

    /// Whether packets may come from any sender: there is no peer.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Service::Ud | Service::Raw)
    }

    /// Whether it is half of an extended reliable connection.
    pub const fn is_xrc(self) -> bool {
        matches!(self, Service::XrcInitiator | Service::XrcTarget)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Service::Rc => "RC",
            Service::Uc => "UC",
            Service::Ud => "UD",
            Service::Raw => "RAW",
            Service::XrcInitiator => "XRC INI",
            Service::XrcTarget => "XRC TGT",
        })
    }
}

/// A path MTU: the largest payload of one packet, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum Mtu {
    /// 256 bytes.
    B256,
    /// 512 bytes.
    B512,
    /// 1024 bytes: what fits an Ethernet frame of 1500 bytes.
    #[default]
    B1024,
    /// 2048 bytes.
    B2048,
    /// 4096 bytes.
    B4096,
}

impl Mtu {
    /// Every MTU, smallest first.
    pub const ALL: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

    /// The MTU in bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        256 << self as u32
    }

    /// The MTU of exactly `bytes` bytes.
    pub fn from_bytes(bytes: u32) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|m| m.bytes() == bytes)
    }

    /// How many packets carry `length` bytes; an empty message still takes one.
    #[inline]
    pub const fn packets(self, length: u32) -> u32 {
        let shift = 8 + self as u32;
        let packets = (length >> shift) + (length & (self.bytes() - 1) != 0) as u32;
        if packets == 0 { 1 } else { packets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_the_halves_that_they_are() {
        let check = |service: Service, name: &str, expected: [bool; 5]| {
            let halves = [
                service.is_reliable(),
                service.requests(),
                service.responds(),
                service.is_datagram(),
                service.is_xrc(),
            ];
            assert_eq!((halves, service.to_string().as_str()), (expected, name));
        };
        check(Service::Rc, "RC", [true, true, true, false, false]);
        check(Service::Uc, "UC", [false, true, true, false, false]);
        check(Service::Ud, "UD", [false, true, true, true, false]);
        check(Service::Raw, "RAW", [false, true, true, true, false]);
        check(Service::XrcInitiator, "XRC INI", [true, true, false, false, true]);
        check(Service::XrcTarget, "XRC TGT", [true, false, true, false, true]);
    }

    #[test]
    fn packets_round_up_and_never_reach_zero() {
        let check = |length, expected| assert_eq!(Mtu::B1024.packets(length), expected, "{length} bytes");
        check(0, 1);
        check(1, 1);
        check(1024, 1);
        check(1025, 2);
        check(1 << 31, 1 << 21);
        assert_eq!(Mtu::from_bytes(4096), Some(Mtu::B4096));
        assert_eq!(Mtu::from_bytes(1000), None);
    }
}
