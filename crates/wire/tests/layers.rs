//! Headers with optional parts and chains, for which steering rules look behind them.

use highwire_wire::{LayerKind, Layers};

fn ethernet(ethertype: u16) -> Vec<u8> {
    let mut frame = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    frame.extend(ethertype.to_be_bytes());
    frame
}

fn ipv4(protocol: u8) -> Vec<u8> {
    vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]
}

fn ipv6(next: u8) -> Vec<u8> {
    let mut head = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    head.extend([0xAA; 16]);
    head.extend([0xBB; 16]);
    head
}

/// RFC 2890: checksum and reserved, key, sequence number, each only if its bit is set, in this order.
#[test]
fn the_key_of_gre_lies_behind_the_checksum_and_before_the_sequence_number() {
    for has_checksum in [false, true] {
        for has_key in [false, true] {
            for has_sequence in [false, true] {
                let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
                let flags = bit(has_checksum, 0x80) | bit(has_key, 0x20) | bit(has_sequence, 0x10);
                let mut frame = ethernet(0x0800);
                frame.extend(ipv4(47));
                frame.extend([flags, 0, 0x08, 0x00]);
                frame.extend([0xC5; 4].iter().take(bit(has_checksum, 4).into()));
                frame.extend([1, 2, 3, 4].iter().take(bit(has_key, 4).into()));
                frame.extend([0x5E; 4].iter().take(bit(has_sequence, 4).into()));
                frame.extend(ipv4(6));
                frame.extend([0, 80, 1, 2]);
                let layers = Layers::parse(&frame).expect("an Ethernet header");
                let key = if has_key { [1, 2, 3, 4] } else { [0; 4] };
                let gre = layers.find(LayerKind::Gre, false).expect("GRE");
                assert_eq!(gre[..4], [flags, 0, 8, 0]);
                assert_eq!(gre[4..8], key, "flags {flags:#x}");
                let inside = layers.find(LayerKind::Tcp, true).expect("what the tunnel holds");
                assert_eq!(inside[..4], [1, 2, 0, 80], "flags {flags:#x}");
            }
        }
    }
}

/// RFC 8200 §4.5: the offset is the upper thirteen bits, the lowest says that more follow. The second byte is no length.
#[test]
fn only_the_first_fragment_of_ipv6_has_ports() {
    for (offset_and_flags, is_first) in
        [(0x0000, true), (0x0001, true), (0x0008, false), (0x0009, false), (0xFFF8, false)]
    {
        for reserved in [0, 3, 0xFF] {
            let mut frame = ethernet(0x86DD);
            frame.extend(ipv6(44));
            frame.extend([17, reserved]);
            frame.extend(u16::to_be_bytes(offset_and_flags));
            frame.extend([9, 9, 9, 9]);
            frame.extend([0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0]);
            let layers = Layers::parse(&frame).expect("an Ethernet header");
            let key = layers.find(LayerKind::Ipv6, false).expect("IPv6");
            assert_eq!(key[36], 17, "the protocol behind the fragment's header");
            let ports = layers.find(LayerKind::Udp, false).map(|key| [key[0], key[1], key[2], key[3]]);
            let expected = is_first.then_some([0x56, 0x78, 0x12, 0x34]);
            assert_eq!(ports, expected, "{offset_and_flags:#x} {reserved}");
        }
    }
}
