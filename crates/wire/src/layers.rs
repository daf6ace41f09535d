//! Any Ethernet frame as its layers of headers, for steering rules and hashes.
//!
//! A layer is its kind and a key: the header's fields in a fixed order, as on the wire, in which libibverbs
//! also lays out the filters of its flow specifications. Neither checksums nor lengths are verified: a
//! steering engine passes frames on, it does not judge them. A header that is cut off, or unknown, ends the
//! list.

use crate::{HeaderName, ParseError, ParseErrorKind};

/// A kind of header for rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayerKind {
    /// Destination 6, source 6, ethertype behind the tags 2, first VLAN tag 2, and 1 if there is a tag.
    Ethernet,
    /// Source 4, destination 4, protocol, type of service, time to live, flags (2: do not fragment, 4: more follow).
    Ipv4,
    /// Source 16, destination 16, flow label 4, protocol behind the extension headers, traffic class, hop limit.
    Ipv6,
    /// Security parameters index 4, sequence number 4.
    Esp,
    /// Destination port 2, source port 2.
    Tcp,
    /// Destination port 2, source port 2.
    Udp,
    /// Network identifier 4.
    Vxlan,
    /// Flags and version 2, protocol 2, key 4.
    Gre,
}

/// Bytes of the longest key.
pub const LAYER_KEY_LEN: usize = 40;

/// One header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layer {
    /// The header's kind.
    pub kind: LayerKind,
    /// Whether it lies within a tunnel.
    pub is_inner: bool,
    /// Its fields, zeros behind them.
    pub key: [u8; LAYER_KEY_LEN],
}

/// A frame's headers, from the outside in. Of tunnels within tunnels only the outermost is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layers {
    list: [Layer; Layers::COUNT_MAX],
    count: usize,
}

const ETHERNET_LEN: usize = 14;
const VLAN_TPIDS: [u16; 2] = [0x8100, 0x88A8];
const TRANSPARENT_BRIDGING: u16 = 0x6558;
const VXLAN_PORT: u16 = 4789;
/// Extension headers and tags that are skipped at most.
const CHAIN_MAX: usize = 8;

impl Layers {
    /// Ethernet, IP, transport and tunnel, and the first three once more within it.
    const COUNT_MAX: usize = 7;

    /// Reads a frame that begins with its Ethernet header.
    ///
    /// # Errors
    /// The frame is shorter than that header.
    pub fn parse(frame: &[u8]) -> Result<Layers, ParseError> {
        let none = Layer { kind: LayerKind::Ethernet, is_inner: false, key: [0; LAYER_KEY_LEN] };
        let mut layers = Layers { list: [none; Layers::COUNT_MAX], count: 0 };
        if frame.len() < ETHERNET_LEN {
            return Err(ParseError::new(HeaderName::Ethernet, 0, ParseErrorKind::Truncated));
        }
        layers.ethernet(frame, false);
        Ok(layers)
    }

    /// Every layer.
    pub fn iter(&self) -> impl Iterator<Item = &Layer> {
        self.list[..self.count].iter()
    }

    /// The key of a layer, outside or within a tunnel.
    #[inline]
    pub fn find(&self, kind: LayerKind, is_inner: bool) -> Option<&[u8; LAYER_KEY_LEN]> {
        self.iter().find(|layer| layer.kind == kind && layer.is_inner == is_inner).map(|layer| &layer.key)
    }

    /// Whether the frame goes to a group of stations, or to all.
    pub fn is_multicast(&self) -> bool {
        self.list[0].key[0] & 1 == 1
    }

    fn push(&mut self, kind: LayerKind, is_inner: bool, fields: &[&[u8]]) {
        let Some(layer) = self.list.get_mut(self.count) else { return };
        *layer = Layer { kind, is_inner, key: [0; LAYER_KEY_LEN] };
        for (to, from) in layer.key.iter_mut().zip(fields.iter().copied().flatten()) {
            *to = *from;
        }
        self.count += 1;
    }

    fn ethernet(&mut self, bytes: &[u8], is_inner: bool) {
        let Some((head, mut rest)) = bytes.split_first_chunk::<ETHERNET_LEN>() else { return };
        let mut ethertype = u16::from_be_bytes([head[12], head[13]]);
        let mut tag = None;
        for _ in 0..CHAIN_MAX {
            if !VLAN_TPIDS.contains(&ethertype) {
                break;
            }
            let Some((next, behind)) = rest.split_first_chunk::<4>() else { break };
            tag = tag.or(Some([next[0], next[1]]));
            ethertype = u16::from_be_bytes([next[2], next[3]]);
            rest = behind;
        }
        let fields =
            [&head[..12], &ethertype.to_be_bytes(), &tag.unwrap_or_default(), &[u8::from(tag.is_some())]];
        self.push(LayerKind::Ethernet, is_inner, &fields);
        self.network(ethertype, rest, is_inner);
    }

    fn network(&mut self, ethertype: u16, bytes: &[u8], is_inner: bool) {
        match ethertype {
            crate::Ethernet::IPV4 => self.ipv4(bytes, is_inner),
            crate::Ethernet::IPV6 => self.ipv6(bytes, is_inner),
            _ => {}
        }
    }

    fn ipv4(&mut self, bytes: &[u8], is_inner: bool) {
        let Some(head) = bytes.first_chunk::<20>().filter(|head| head[0] >> 4 == 4) else { return };
        let length = usize::from(head[0] & 15) * 4;
        let fragment = u16::from_be_bytes([head[6], head[7]]);
        let flags = (fragment >> 13 & 2) as u8 | (fragment >> 11 & 4) as u8;
        let [protocol, tos, ttl] = [head[9], head[1], head[8]];
        let fields: [&[u8]; 3] = [&head[12..16], &head[16..20], &[protocol, tos, ttl, flags]];
        self.push(LayerKind::Ipv4, is_inner, &fields);
        // Only the first fragment has the next header.
        if let Some(rest) = bytes.get(length..).filter(|_| length >= 20 && fragment & 0x1FFF == 0) {
            self.transport(protocol, rest, is_inner);
        }
    }

    fn ipv6(&mut self, bytes: &[u8], is_inner: bool) {
        let Some((head, rest)) = bytes.split_first_chunk::<40>().filter(|(head, _)| head[0] >> 4 == 6) else {
            return;
        };
        let label = [0, head[1] & 15, head[2], head[3]];
        let class = head[0] << 4 | head[1] >> 4;
        let (protocol, rest) = behind_extensions(head[6], rest);
        let fields: [&[u8]; 4] = [&head[8..24], &head[24..40], &label, &[protocol, class, head[7]]];
        self.push(LayerKind::Ipv6, is_inner, &fields);
        if let Some(rest) = rest {
            self.transport(protocol, rest, is_inner);
        }
    }

    fn transport(&mut self, protocol: u8, bytes: &[u8], is_inner: bool) {
        match protocol {
            6 => self.ports(LayerKind::Tcp, bytes, is_inner),
            17 => {
                self.ports(LayerKind::Udp, bytes, is_inner);
                let port = bytes.first_chunk::<4>().map(|head| u16::from_be_bytes([head[2], head[3]]));
                if port == Some(VXLAN_PORT) && !is_inner {
                    self.vxlan(bytes.get(8..).unwrap_or_default());
                }
            }
            47 if !is_inner => self.gre(bytes),
            50 => {
                if let Some(head) = bytes.first_chunk::<8>() {
                    self.push(LayerKind::Esp, is_inner, &[head]);
                }
            }
            _ => {}
        }
    }

    fn ports(&mut self, kind: LayerKind, bytes: &[u8], is_inner: bool) {
        if let Some(head) = bytes.first_chunk::<4>() {
            self.push(kind, is_inner, &[&head[2..4], &head[..2]]);
        }
    }

    /// RFC 7348.
    fn vxlan(&mut self, bytes: &[u8]) {
        let Some((head, rest)) = bytes.split_first_chunk::<8>().filter(|(head, _)| head[0] & 8 != 0) else {
            return;
        };
        self.push(LayerKind::Vxlan, false, &[&[0], &head[4..7]]);
        self.ethernet(rest, true);
    }

    /// RFC 2784, RFC 2890.
    fn gre(&mut self, bytes: &[u8]) {
        let Some(head) = bytes.first_chunk::<4>() else { return };
        let has = |bit: u8| usize::from(head[0] & bit != 0) * 4;
        let (checksum, key, sequence) = (has(0x80), has(0x20), has(0x10));
        let place = 4 + checksum;
        let value = if key > 0 { bytes.get(place..place + 4).unwrap_or_default() } else { &[] };
        self.push(LayerKind::Gre, false, &[head, value]);
        let rest = bytes.get(place + key + sequence..).unwrap_or_default();
        match u16::from_be_bytes([head[2], head[3]]) {
            TRANSPARENT_BRIDGING => self.ethernet(rest, true),
            ethertype => self.network(ethertype, rest, true),
        }
    }
}

/// The protocol behind extension headers (RFC 8200 §4), and its bytes; none in fragments that are not the first.
fn behind_extensions(first: u8, bytes: &[u8]) -> (u8, Option<&[u8]>) {
    let (mut protocol, mut rest) = (first, bytes);
    for _ in 0..CHAIN_MAX {
        let length = match (protocol, rest) {
            // Hop by hop, routing, destination options.
            (0 | 43 | 60, [_, units, ..]) => (usize::from(*units) + 1) * 8,
            (44, [next, _, high, low, ..]) => {
                if u16::from_be_bytes([*high, *low]) >> 3 != 0 {
                    return (*next, None);
                }
                8
            }
            _ => break,
        };
        let next = rest[0];
        let Some(behind) = rest.get(length..) else { return (next, None) };
        (protocol, rest) = (next, behind);
    }
    (protocol, Some(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use LayerKind::{Esp, Ethernet, Gre, Ipv4, Ipv6, Tcp, Udp, Vxlan};

    fn ethernet(ethertype: u16) -> Vec<u8> {
        let mut frame = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        frame.extend(ethertype.to_be_bytes());
        frame
    }

    fn ipv4(protocol: u8, fragment: u16) -> Vec<u8> {
        let mut head = vec![0x45, 0xB8, 0, 0, 0, 0];
        head.extend(fragment.to_be_bytes());
        head.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        head
    }

    fn ipv6(next: u8) -> Vec<u8> {
        let mut head = vec![0x6A, 0xB1, 0x23, 0x45, 0, 0, next, 64];
        head.extend([0xAA; 16]);
        head.extend([0xBB; 16]);
        head
    }

    fn kinds(frame: &[u8]) -> Vec<(LayerKind, bool)> {
        let layers = Layers::parse(frame).expect("an Ethernet header");
        layers.iter().map(|layer| (layer.kind, layer.is_inner)).collect()
    }

    #[test]
    fn keys_hold_the_fields_in_their_order() {
        let mut frame = ethernet(0x8100);
        frame.extend([0x60, 0x05, 0x08, 0x00]);
        frame.extend(ipv4(17, 0x4000));
        frame.extend([0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0]);
        let layers = Layers::parse(&frame).expect("an Ethernet header");
        let key = |kind, length| &layers.find(kind, false).expect("the layer")[..length];
        assert_eq!(key(Ethernet, 17), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0, 0x60, 5, 1]);
        assert_eq!(key(Ipv4, 12), [10, 0, 0, 1, 10, 0, 0, 2, 17, 0xB8, 64, 2]);
        assert_eq!(key(Udp, 4), [0x56, 0x78, 0x12, 0x34]);
        assert!(layers.is_multicast() && layers.find(Udp, true).is_none());
    }

    #[test]
    fn an_ipv6_packet_is_looked_at_behind_its_extension_headers() {
        let mut frame = ethernet(0x86DD);
        frame.extend(ipv6(0));
        frame.extend([43, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend([6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend([0, 80, 1, 2]);
        let layers = Layers::parse(&frame).expect("an Ethernet header");
        let key = layers.find(Ipv6, false).expect("IPv6");
        assert_eq!(key[32..39], [0, 1, 0x23, 0x45, 6, 0xAB, 64]);
        assert_eq!(layers.find(Tcp, false).expect("TCP")[..4], [1, 2, 0, 80]);
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let check = |fragment: u16, expected: &[(LayerKind, bool)]| {
            let mut frame = ethernet(0x0800);
            frame.extend(ipv4(17, fragment));
            frame.extend([0; 8]);
            assert_eq!(kinds(&frame), expected);
        };
        check(0x2000, &[(Ethernet, false), (Ipv4, false), (Udp, false)]);
        check(0x0010, &[(Ethernet, false), (Ipv4, false)]);
    }

    #[test]
    fn tunnels_are_opened_once() {
        let mut inner = ethernet(0x0800);
        inner.extend(ipv4(50, 0));
        inner.extend([9; 8]);
        let mut vxlan = ethernet(0x0800);
        vxlan.extend(ipv4(17, 0));
        vxlan.extend([0, 1, 0x12, 0xB5, 0, 0, 0, 0]);
        vxlan.extend([8, 0, 0, 0, 0x76, 0xAD, 0xF1, 0]);
        vxlan.extend(&inner);
        let outside = [(Ethernet, false), (Ipv4, false)];
        let within = [(Ethernet, true), (Ipv4, true), (Esp, true)];
        let expected = [&outside[..], &[(Udp, false), (Vxlan, false)], &within].concat();
        assert_eq!(kinds(&vxlan), expected);
        let layers = Layers::parse(&vxlan).expect("an Ethernet header");
        assert_eq!(layers.find(Vxlan, false).expect("VXLAN")[..4], 7_777_777u32.to_be_bytes());
        let mut gre = ethernet(0x0800);
        gre.extend(ipv4(47, 0));
        gre.extend([0x20, 0, 0x65, 0x58, 0, 0, 0, 7]);
        gre.extend(&inner);
        assert_eq!(kinds(&gre), [&outside[..], &[(Gre, false)], &within].concat());
        let layers = Layers::parse(&gre).expect("an Ethernet header");
        assert_eq!(layers.find(Gre, false).expect("GRE")[..8], [0x20, 0, 0x65, 0x58, 0, 0, 0, 7]);
    }

    #[test]
    fn what_is_cut_off_ends_the_list() {
        let mut frame = ethernet(0x0800);
        frame.extend(ipv4(6, 0));
        frame.extend([0, 80, 1, 2]);
        for length in 0..frame.len() {
            let layers = Layers::parse(&frame[..length]);
            assert_eq!(layers.is_err(), length < 14, "{length} bytes");
        }
        assert_eq!(kinds(&frame[..33]), [(Ethernet, false)]);
        assert_eq!(kinds(&frame[..37]), [(Ethernet, false), (Ipv4, false)]);
    }
}
