//! Packets between two kernels decode, re-encode to the same bytes, and carry the ICRCs that this crate
//! computes.

mod common;

use std::fmt::Write as _;

use common::{CAPTURES, frames};
use highwire_wire::{Ethernet, Frame, ICRC_LEN, Ip, Ipv4, Line, LinkType, PathIcrc, Udp, icrc, pcap};

#[test]
fn every_frame_decodes_and_encodes_to_the_same_bytes() {
    let mut count = 0;
    for (name, record) in frames() {
        let frame = Frame::parse(LinkType::Ethernet, record.bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut bytes = Vec::new();
        frame.emit(&mut bytes);
        assert_eq!(bytes, record.bytes, "{name}: {frame}");
        assert_eq!(
            frame.sealed(frame.payload),
            frame,
            "{name}: lengths, padding and ICRC follow from the rest"
        );
        count += 1;
    }
    assert_eq!(count, 294);
}

#[test]
fn every_icrc_verifies_in_each_way_of_computing_it() {
    for (name, record) in frames() {
        let ip = &record.bytes[Ethernet::LEN..];
        assert_eq!(icrc::verify_ip_packet(ip), Ok(true), "{name}");
        let (id, path, packet) = behind_a_socket(record.bytes);
        assert!(path.verify(id, packet), "{name}");
        let (body, icrc) = packet.split_at(packet.len() - ICRC_LEN);
        for split in [12, body.len() / 8 * 4 + 4, body.len()] {
            let (front, rest) = body.split_at(split.max(12));
            let computed = path.start(id, body.len(), front).update(rest).finish();
            assert_eq!(computed.to_le_bytes(), icrc, "{name}");
        }
    }
}

#[test]
fn the_hidden_identification_of_every_packet_is_found() {
    for (name, record) in frames() {
        let (id, path, packet) = behind_a_socket(record.bytes);
        for hint in [0, id, !id] {
            assert_eq!(path.verify_unknown_id(hint, packet), Some(id), "{name} with hint {hint}");
        }
    }
}

#[test]
fn captures_read_as_expected() {
    check("rc_read", include_str!("golden/rc_read.txt"));
    check("rc_send_odd", include_str!("golden/rc_send_odd.txt"));
    check("rc_rnr", include_str!("golden/rc_rnr.txt"));
    check("rc_atomic_cas", include_str!("golden/rc_atomic_cas.txt"));
    check("rc_write_imm", include_str!("golden/rc_write_imm.txt"));
    check("cm_rping", include_str!("golden/cm_rping.txt"));
}

/// Splits a frame as a UDP socket does: the IP identification, which it hides; the path; the packet from BTH
/// to ICRC.
fn behind_a_socket(frame: &[u8]) -> (u16, PathIcrc, &[u8]) {
    let (ip, _) = Ip::parse(&frame[Ethernet::LEN..]).expect("captured frames are IP");
    let Ip::V4(Ipv4 { id, source, destination, .. }) = ip else { panic!("captured frames are IPv4") };
    let udp = Frame::parse(LinkType::Ethernet, frame).expect("captured frames are RoCEv2").udp;
    let path = PathIcrc::v4((source, udp.source_port), (destination, udp.destination_port));
    (id, path, &frame[Ethernet::LEN + Ipv4::LEN + Udp::LEN..])
}

fn check(capture: &str, expected: &str) {
    let (_, file) = CAPTURES.iter().find(|(name, _)| *name == capture).expect("a capture of that name");
    let mut origin = None;
    let mut text = String::new();
    for record in pcap::Reader::new(file).expect(capture) {
        let record = record.expect(capture);
        let line = Line::new(*origin.get_or_insert(record.time), LinkType::Ethernet, &record);
        assert!(line.is_sound(), "{line}");
        writeln!(text, "{line}").expect("writing to a string succeeds");
    }
    assert!(text == expected, "tests/golden/{capture}.txt should read:\n{text}");
}
