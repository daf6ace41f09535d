//! The ICRC against its definition, and the search for an unknown identification.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use highwire_stdx::Rng;
use highwire_wire::{
    Bth, Ethernet, Ext, Frame, Headers, Icrc, Ip, Ipv4, Ipv6, LinkType, Opcode, PathIcrc, Psn, Qpn, UDP_PORT,
    Udp, icrc,
};

#[test]
fn both_ip_versions_agree_with_the_definition() {
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let payload = any_payload(&mut rng);
        for ip in [any_ipv4(&mut rng), any_ipv6(&mut rng)] {
            let frame = any_frame(&mut rng, ip).sealed(&payload);
            let mut bytes = Vec::new();
            frame.emit(&mut bytes);
            assert_eq!(Frame::parse(LinkType::Ethernet, &bytes), Ok(frame), "seed {seed}");
            let packet = &bytes[Ethernet::LEN..];
            let (body, icrc) = packet.split_at(packet.len() - 4);
            assert_eq!(by_definition(body).to_le_bytes(), icrc, "seed {seed}: {frame}");
            assert_eq!(icrc::verify_ip_packet(packet), Ok(true));
            let (path, id, roce) = behind_a_socket(&frame, packet);
            assert!(path.verify(id, roce), "seed {seed}: {frame}");
            assert_eq!(path.verify_unknown_id(id, roce), Some(id));
        }
    }
}

#[test]
fn what_switches_change_is_not_covered() {
    let mut rng = Rng::new(1);
    let payload = any_payload(&mut rng);
    for (ip, offsets) in [
        (any_ipv4(&mut rng), &[1, 8, 10, 11, 26, 27, 32][..]),
        (any_ipv6(&mut rng), &[0, 1, 2, 3, 7, 46, 47, 52]),
    ] {
        let mut bytes = Vec::new();
        any_frame(&mut rng, ip).sealed(&payload).emit(&mut bytes);
        let packet = &mut bytes[Ethernet::LEN..];
        for offset in 0..packet.len() {
            packet[offset] ^= 1;
            let sound = icrc::verify_ip_packet(packet) == Ok(true);
            assert_eq!(sound, offsets.contains(&offset), "byte {offset}");
            packet[offset] ^= 1;
        }
    }
}

#[test]
fn random_identifications_are_found() {
    let mut rng = Rng::new(2);
    for _ in 0..5_000 {
        let payload = any_payload(&mut rng);
        let ip = any_ipv4(&mut rng);
        let mut bytes = Vec::new();
        let frame = any_frame(&mut rng, ip).sealed(&payload);
        frame.emit(&mut bytes);
        let (path, id, roce) = behind_a_socket(&frame, &bytes[Ethernet::LEN..]);
        assert_eq!(path.verify_unknown_id(rng.next_u32() as u16, roce), Some(id));
    }
}

#[test]
fn damaged_packets_are_refused_but_for_one_in_two_to_the_sixteenth() {
    const PACKETS: u32 = 200_000;
    let mut rng = Rng::new(3);
    let payload = vec![7; 200];
    let ip = any_ipv4(&mut rng);
    let mut bytes = Vec::new();
    let frame = any_frame(&mut rng, ip).sealed(&payload);
    frame.emit(&mut bytes);
    let (path, id, roce) = behind_a_socket(&frame, &bytes[Ethernet::LEN..]);
    let mut damaged = roce.to_vec();
    let mut accepted = 0;
    for _ in 0..PACKETS {
        // Eight bytes anywhere but in the BTH's fifth byte, which the ICRC leaves out.
        let at = 5 + rng.below(roce.len() as u64 - 12) as usize;
        rng.fill(&mut damaged[at..at + 8]);
        let refused = path.verify_unknown_id(id, &damaged).is_none();
        accepted += u32::from(!refused && damaged != roce);
        damaged.copy_from_slice(roce);
    }
    // Three are expected on average.
    assert!((1..=9).contains(&accepted), "{accepted} of {PACKETS} damaged packets were accepted");
}

#[test]
fn short_packets_are_refused() {
    let path = PathIcrc::v4((Ipv4Addr::LOCALHOST, 1), (Ipv4Addr::LOCALHOST, UDP_PORT));
    for len in 0..16 {
        assert!(!path.verify(0, &vec![0; len]) && path.verify_unknown_id(0, &vec![0; len]).is_none());
    }
    assert!(PathIcrc::between((Ipv4Addr::LOCALHOST.into(), 1), (Ipv6Addr::LOCALHOST.into(), 2)).is_none());
}

/// The specification's definition, bit by bit: CRC-32 over ones, masked headers and the rest.
fn by_definition(packet: &[u8]) -> u32 {
    let mut masked = vec![0xFF; 8];
    masked.extend(packet);
    let ip = &mut masked[8..];
    let (header_len, covered_not): (usize, &[usize]) = match ip[0] >> 4 {
        4 => (20, &[1, 8, 10, 11]),
        _ => (40, &[1, 2, 3, 7]),
    };
    if header_len == 40 {
        ip[0] |= 0x0F;
    }
    for &at in covered_not {
        ip[at] = 0xFF;
    }
    for at in [header_len + 6, header_len + 7, header_len + 12] {
        ip[at] = 0xFF;
    }
    let mut register = u32::MAX;
    for byte in masked {
        register ^= u32::from(byte);
        for _ in 0..8 {
            register = if register & 1 == 1 { register >> 1 ^ 0xEDB8_8320 } else { register >> 1 };
        }
    }
    !register
}

fn behind_a_socket<'a>(frame: &Frame<'_>, packet: &'a [u8]) -> (PathIcrc, u16, &'a [u8]) {
    let id = if let Ip::V4(v4) = frame.ip { v4.id } else { 0 };
    let (source, destination): (IpAddr, IpAddr) = (frame.ip.source(), frame.ip.destination());
    let path = PathIcrc::between((source, frame.udp.source_port), (destination, frame.udp.destination_port))
        .expect("one family");
    (path, id, &packet[frame.ip.header_len() + Udp::LEN..])
}

fn any_payload(rng: &mut Rng) -> Vec<u8> {
    let len = if rng.chance(0.5) { rng.below(100) } else { rng.below(4200) };
    let mut payload = vec![0; len as usize];
    rng.fill(&mut payload);
    payload
}

fn any_ipv4(rng: &mut Rng) -> Ip {
    Ip::V4(Ipv4 {
        traffic_class: rng.next_u32() as u8,
        id: rng.next_u32() as u16,
        ttl: rng.next_u32() as u8,
        ..Ipv4::new(rng.next_u32().into(), rng.next_u32().into())
    })
}

fn any_ipv6(rng: &mut Rng) -> Ip {
    let mut address = || Ipv6Addr::from(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()));
    let (source, destination) = (address(), address());
    Ip::V6(Ipv6 {
        traffic_class: rng.next_u32() as u8,
        flow_label: rng.below(1 << 20) as u32,
        hop_limit: rng.next_u32() as u8,
        ..Ipv6::new(source, destination)
    })
}

fn any_frame(rng: &mut Rng, ip: Ip) -> Frame<'static> {
    let ethertype = if matches!(ip, Ip::V4(_)) { Ethernet::IPV4 } else { Ethernet::IPV6 };
    let bth = Bth {
        fecn: rng.chance(0.5),
        reserved6: rng.below(64) as u8,
        ..Bth::new(Opcode::RcSendOnly, Qpn::new(rng.next_u32()), Psn::new(rng.next_u32()))
    };
    Frame {
        ethernet: Some(Ethernet { destination: [2; 6], source: [4; 6], vlan: None, ethertype }),
        ip,
        udp: Udp {
            source_port: rng.next_u32() as u16,
            destination_port: UDP_PORT,
            length: 0,
            checksum: rng.next_u32() as u16,
        },
        headers: Headers { bth, ext: Ext::None },
        payload: &[],
        padding: &[],
        icrc: 0,
        trailer: &[],
    }
}

#[test]
fn an_icrc_in_parts_is_the_icrc_of_the_whole() {
    let mut rng = Rng::new(4);
    let path = PathIcrc::v6((Ipv6Addr::LOCALHOST, 0xC123), (Ipv6Addr::LOCALHOST, UDP_PORT));
    for _ in 0..1_000 {
        let mut packet = vec![0; 12 + 4 * rng.below(300) as usize];
        rng.fill(&mut packet);
        let (front, mut rest) = packet.split_at(12 + rng.below(packet.len() as u64 - 11) as usize);
        let mut running: Icrc = path.start(0, packet.len(), front);
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(1 + rng.below(rest.len() as u64) as usize);
            running = running.update(part);
            rest = behind;
        }
        assert_eq!(running.finish(), path.icrc(0, &packet));
    }
}
