//! Frames that the captures lack: tags, trailers, bare IP; and frames that are not RoCEv2.

use std::net::Ipv4Addr;

use highwire_stdx::{Duration, Instant};
use highwire_wire::{
    Ethernet, Ext, Frame, HeaderName, Headers, Ip, Ipv4, Line, LinkType, Opcode, ParseErrorKind, Psn, Qpn,
    UDP_PORT, Udp, pcap,
};

fn frame() -> Frame<'static> {
    Frame {
        ethernet: None,
        ip: Ip::V4(Ipv4::new(Ipv4Addr::new(127, 1, 2, 3), Ipv4Addr::new(127, 3, 2, 1))),
        udp: Udp { source_port: 0xC001, destination_port: UDP_PORT, length: 0, checksum: 0 },
        headers: Headers::new(Opcode::UcSendOnly, Qpn::new(9), Psn::new(8), Ext::None),
        payload: &[],
        padding: &[],
        icrc: 0,
        trailer: &[],
    }
    .sealed(b"hello")
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.emit(&mut bytes);
    bytes
}

fn line(link: LinkType, bytes: &[u8]) -> String {
    let record = pcap::Record { time: Instant::from_nanos(12_345), original_len: bytes.len() as u32, bytes };
    Line::new(Instant::from_nanos(45), link, &record).to_string()
}

#[test]
fn bare_ip_packets_are_frames() {
    let bytes = bytes(&frame());
    assert_eq!(Frame::parse(LinkType::RawIp, &bytes), Ok(frame()));
    assert_eq!(
        line(LinkType::RawIp, &bytes),
        "12.3µs 127.1.2.3 > 127.3.2.1 UC_SEND_ONLY qpn 0x000009 psn 0x000008 len 5 icrc ok"
    );
}

#[test]
fn tags_and_trailers_are_kept() {
    for vlan in [None, Some(0x6005)] {
        let ethernet = Ethernet { destination: [2; 6], source: [3; 6], vlan, ethertype: Ethernet::IPV4 };
        let frame = Frame { ethernet: Some(ethernet), trailer: &[0, 1, 2], ..frame() };
        let bytes = bytes(&frame);
        assert_eq!(bytes.len(), ethernet.encoded_len() + 20 + 8 + 12 + 8 + 4 + 3);
        assert_eq!(Frame::parse(LinkType::Ethernet, &bytes), Ok(frame));
        assert!(line(LinkType::Ethernet, &bytes).ends_with("icrc ok"));
    }
}

#[test]
fn a_wrong_icrc_is_shown() {
    let mut bytes = bytes(&frame());
    bytes[42] ^= 1;
    let text = line(LinkType::RawIp, &bytes);
    assert!(text.contains("icrc 0x") && text.contains("should be 0x"), "{text}");
    let record = pcap::Record { time: Instant::ZERO, original_len: 0, bytes: &bytes };
    let line = Line::new(Instant::FAR_FUTURE, LinkType::RawIp, &record);
    assert!(!line.is_sound());
    assert_eq!(line.time, Duration::ZERO);
}

#[test]
fn what_leads_elsewhere_is_refused() {
    use HeaderName::{Bth, Icrc, Udp as UdpName};
    use ParseErrorKind::{
        BadChecksum, BadLength, BadValue, BadVersion, Fragment, OtherProtocol, Truncated, UnknownOpcode,
    };
    let v4 = HeaderName::Ipv4;
    let with_ip = |change: fn(&mut Ipv4)| {
        let mut changed = frame();
        let Ip::V4(ip) = &mut changed.ip else { panic!("the sample is IPv4") };
        change(ip);
        bytes(&changed)
    };
    let with_byte = |at: usize, value: u8| {
        let mut changed = bytes(&frame());
        changed[at] = value;
        changed
    };
    let cases = [
        (vec![], v4, 0, Truncated),
        (with_byte(0, 0x55), v4, 0, BadVersion),
        (with_byte(0, 0x46), v4, 0, BadValue),
        (with_byte(3, 5), v4, 2, BadLength),
        (with_byte(3, 0), v4, 2, BadLength),
        (with_byte(8, 1), v4, 10, BadChecksum),
        (with_ip(|ip| ip.flags_fragment = 0x2000), v4, 6, Fragment),
        (with_ip(|ip| ip.protocol = 6), v4, 9, OtherProtocol),
        (with_byte(23, 0), UdpName, 22, OtherProtocol),
        (with_byte(25, 33), UdpName, 24, BadLength),
        (with_byte(25, 2), UdpName, 24, BadLength),
        (with_byte(28, 0xFF), Bth, 28, UnknownOpcode),
        (bytes(&frame())[..40].to_vec(), UdpName, 20, Truncated),
    ];
    for (bytes, header, offset, kind) in cases {
        let error = Frame::parse(LinkType::RawIp, &bytes).expect_err("a malformed frame");
        assert_eq!((error.header, error.offset, error.kind), (header, offset, kind), "{error}");
        assert!(line(LinkType::RawIp, &bytes).contains("not RoCEv2"));
    }
    // UDP to the right port, too short for an ICRC.
    let mut tiny = vec![0; 28];
    Ipv4 { payload_len: 8, ..Ipv4::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST) }
        .emit(tiny.first_chunk_mut().expect("a header fits"));
    Udp { source_port: 1, destination_port: UDP_PORT, length: 8, checksum: 0 }
        .emit((&mut tiny[20..28]).try_into().expect("a header fits"));
    let error = Frame::parse(LinkType::RawIp, &tiny).expect_err("no packet at all");
    assert_eq!((error.header, error.offset, error.kind), (Icrc, 28, Truncated));
}
