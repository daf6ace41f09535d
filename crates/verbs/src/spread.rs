//! Spreading frames over queues: the Toeplitz hash, and the fields of a frame that it covers (receive-side
//! scaling).

use highwire_wire::{LayerKind, Layers};

/// Bytes of a key: enough for two addresses of IPv6 and two ports.
pub const SPREAD_KEY_LEN: usize = 40;

/// Fields of a frame, as bits that `libibverbs` also uses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SpreadFields(pub u64);

#[allow(missing_docs, reason = "the verbs' own names")]
impl SpreadFields {
    pub const SOURCE_IPV4: SpreadFields = SpreadFields(1);
    pub const DESTINATION_IPV4: SpreadFields = SpreadFields(1 << 1);
    pub const SOURCE_IPV6: SpreadFields = SpreadFields(1 << 2);
    pub const DESTINATION_IPV6: SpreadFields = SpreadFields(1 << 3);
    pub const SOURCE_PORT_TCP: SpreadFields = SpreadFields(1 << 4);
    pub const DESTINATION_PORT_TCP: SpreadFields = SpreadFields(1 << 5);
    pub const SOURCE_PORT_UDP: SpreadFields = SpreadFields(1 << 6);
    pub const DESTINATION_PORT_UDP: SpreadFields = SpreadFields(1 << 7);
    pub const SECURITY_INDEX: SpreadFields = SpreadFields(1 << 8);
    /// The fields of the frame within a tunnel.
    pub const INNER: SpreadFields = SpreadFields(1 << 31);

    /// Every existing field.
    pub const ALL: SpreadFields = SpreadFields(0x1FF | 1 << 31);

    /// Whether every field of `other` is there.
    pub const fn contains(self, other: SpreadFields) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How frames are spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread {
    /// The hash's key.
    pub key: [u8; SPREAD_KEY_LEN],
    /// The fields to hash; the frame may lack some of them.
    pub fields: SpreadFields,
}

/// A field's bit, its layer, and its place in the layer's key. Their order is that of the hash's input:
/// addresses before ports, source before destination.
const PLACES: [(SpreadFields, LayerKind, usize, usize); 9] = [
    (SpreadFields::SOURCE_IPV4, LayerKind::Ipv4, 0, 4),
    (SpreadFields::DESTINATION_IPV4, LayerKind::Ipv4, 4, 8),
    (SpreadFields::SOURCE_IPV6, LayerKind::Ipv6, 0, 16),
    (SpreadFields::DESTINATION_IPV6, LayerKind::Ipv6, 16, 32),
    (SpreadFields::SOURCE_PORT_TCP, LayerKind::Tcp, 2, 4),
    (SpreadFields::DESTINATION_PORT_TCP, LayerKind::Tcp, 0, 2),
    (SpreadFields::SOURCE_PORT_UDP, LayerKind::Udp, 2, 4),
    (SpreadFields::DESTINATION_PORT_UDP, LayerKind::Udp, 0, 2),
    (SpreadFields::SECURITY_INDEX, LayerKind::Esp, 0, 4),
];

impl Spread {
    /// The hash of a frame; zero for one that has none of the fields.
    pub fn hash(&self, layers: &Layers) -> u32 {
        let is_inner = self.fields.contains(SpreadFields::INNER);
        let mut input = [0; SPREAD_KEY_LEN];
        let mut length = 0;
        for (field, kind, from, to) in PLACES {
            if !self.fields.contains(field) {
                continue;
            }
            let Some(key) = layers.find(kind, is_inner) else { continue };
            // A frame has one network and one transport header, so everything fits.
            let Some(place) = input.get_mut(length..length + to - from) else { break };
            place.copy_from_slice(&key[from..to]);
            length += to - from;
        }
        toeplitz(&self.key, &input[..length])
    }
}

/// The Toeplitz hash: for every bit of the input that is set, the 32 bits of the key that begin there, added
/// without carry. Input beyond the length of the key does not count.
pub fn toeplitz(key: &[u8; SPREAD_KEY_LEN], input: &[u8]) -> u32 {
    let [a, b, c, d, ..] = *key;
    let mut window = u32::from_be_bytes([a, b, c, d]);
    let mut hash = 0;
    for (byte, next) in input.iter().zip(&key[4..]) {
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key and the values with which Microsoft's documentation of receive-side scaling verifies implementations.
    const KEY: [u8; SPREAD_KEY_LEN] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn hash(protocol: u8, addresses: &[u8], ports: [u16; 2], fields: u64) -> u32 {
        let mut frame = vec![0; 12];
        if addresses.len() == 8 {
            frame.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0]);
        } else {
            frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 0, protocol, 64]);
        }
        frame.extend(addresses);
        ports.iter().for_each(|port| frame.extend(port.to_be_bytes()));
        let layers = Layers::parse(&frame).expect("an Ethernet header");
        Spread { key: KEY, fields: SpreadFields(fields) }.hash(&layers)
    }

    #[test]
    fn the_published_values_come_out() {
        let check = |source: [u8; 4], destination: [u8; 4], ports, without, with| {
            let addresses = [source, destination].concat();
            assert_eq!(hash(6, &addresses, ports, 0b0011), without);
            assert_eq!(hash(6, &addresses, ports, 0b11_0011), with);
            assert_eq!(hash(17, &addresses, ports, 0b1100_0011), with);
        };
        check([66, 9, 149, 187], [161, 142, 100, 80], [2794, 1766], 0x323e_8fc2, 0x51cc_c178);
        check([199, 92, 111, 2], [65, 69, 140, 83], [14230, 4739], 0xd718_262a, 0xc626_b0ea);
        check([24, 19, 198, 95], [12, 22, 207, 184], [12898, 38024], 0xd2d0_a5de, 0x5c2b_394a);
        let check = |source: &str, destination: &str, ports, without, with| {
            let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
            let addresses = [octets(source), octets(destination)].concat();
            assert_eq!(hash(6, &addresses, ports, 0b1100), without);
            assert_eq!(hash(6, &addresses, ports, 0b11_1100), with);
        };
        check("3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", [2794, 1766], 0x2cc1_8cd5, 0x4020_7d3d);
        check("3ffe:501:8::260:97ff:fe40:efab", "ff02::1", [14230, 4739], 0x0f0c_461c, 0xdde5_1bbf);
    }

    #[test]
    fn fields_are_the_bits_of_the_verbs() {
        assert_eq!(SpreadFields::ALL.0, 0x8000_01FF);
        assert_eq!(PLACES.map(|(field, ..)| field.0), [1, 2, 4, 8, 16, 32, 64, 128, 256]);
        assert!(PLACES.iter().all(|(field, ..)| SpreadFields::ALL.contains(*field)));
        assert!(
            SpreadFields::ALL.contains(SpreadFields::INNER)
                && !SpreadFields(0x1FF).contains(SpreadFields::INNER)
        );
    }

    #[test]
    fn what_a_frame_has_not_is_not_hashed() {
        let addresses = [10, 0, 0, 1, 10, 0, 0, 2];
        assert_eq!(hash(17, &addresses, [1, 2], 0b1100), 0);
        assert_eq!(hash(17, &addresses, [1, 2], 0b11_1111), hash(17, &addresses, [9, 9], 0b11));
        assert_eq!(hash(17, &addresses, [1, 2], 0b11 | 1 << 31), 0);
    }
}
