//! Ethernet II header, with up to one VLAN tag (IEEE 802.3, 802.1Q).

use crate::{HeaderName, ParseError, ParseErrorKind, bytes};

/// Addresses, VLAN tag and the payload's protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ethernet {
    /// Destination MAC address.
    pub destination: [u8; 6],
    /// Source MAC address.
    pub source: [u8; 6],
    /// Priority, drop eligibility and VLAN, as in an 802.1Q tag; `None` if there is no tag.
    pub vlan: Option<u16>,
    /// Protocol of the payload.
    pub ethertype: u16,
}

impl Ethernet {
    /// Length on the wire without a VLAN tag.
    pub const LEN: usize = 14;
    /// Ethertype of IPv4.
    pub const IPV4: u16 = 0x0800;
    /// Ethertype of IPv6.
    pub const IPV6: u16 = 0x86DD;
    /// Ethertype of a VLAN tag.
    pub const VLAN: u16 = 0x8100;

    /// Reads the header at the front of `frame` and returns it with its length.
    ///
    /// # Errors
    /// The frame ends before the header does.
    pub fn parse(frame: &[u8]) -> Result<(Ethernet, usize), ParseError> {
        let truncated = ParseError::new(HeaderName::Ethernet, 0, ParseErrorKind::Truncated);
        let (head, rest) = frame.split_first_chunk::<{ Ethernet::LEN }>().ok_or(truncated)?;
        let [destination @ .., _, _, _, _, _, _, _, _] = *head;
        let [_, _, _, _, _, _, source @ .., _, _] = *head;
        let untagged = Ethernet { destination, source, vlan: None, ethertype: bytes::u16(head, 12) };
        if untagged.ethertype != Ethernet::VLAN {
            return Ok((untagged, Ethernet::LEN));
        }
        let tag = rest.first_chunk::<4>().ok_or(truncated)?;
        let tagged = Ethernet { vlan: Some(bytes::u16(tag, 0)), ethertype: bytes::u16(tag, 2), ..untagged };
        Ok((tagged, tagged.encoded_len()))
    }

    /// Length on the wire.
    pub const fn encoded_len(&self) -> usize {
        if self.vlan.is_some() { Ethernet::LEN + 4 } else { Ethernet::LEN }
    }

    /// Appends the header to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.destination);
        out.extend(self.source);
        if let Some(tag) = self.vlan {
            out.extend(Ethernet::VLAN.to_be_bytes());
            out.extend(tag.to_be_bytes());
        }
        out.extend(self.ethertype.to_be_bytes());
    }
}
