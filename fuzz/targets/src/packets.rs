//! Parsers: they never panic, and accepted bytes survive a round trip.

use std::net::Ipv4Addr;

use highwire_stdx::{Duration, Instant};
use highwire_wire::cm::{CmMad, CmMessage, IpCm};
use highwire_wire::icrc::{icrc_of_ip_packet, verify_ip_packet};
use highwire_wire::{
    Bth, Frame, Headers, ICRC_LEN, Line, LinkType, MAX_HEADERS_LEN, PathIcrc, UDP_PORT, parse_packet,
    parse_packet_with_icrc, pcap as capture,
};

/// A whole frame of either link type: the first byte chooses.
pub(crate) fn frame(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let link = if choice & 1 == 0 { LinkType::Ethernet } else { LinkType::RawIp };
    let Ok(frame) = Frame::parse(link, bytes) else { return };
    let mut emitted = Vec::new();
    frame.emit(&mut emitted);
    assert_eq!(emitted.len(), bytes.len(), "a frame keeps its length");
    let again = Frame::parse(link, &emitted).expect("what was emitted parses");
    assert_eq!(again, frame, "what was emitted means the same");
    let record = capture::Record { time: Instant::from_nanos(0), original_len: bytes.len() as u32, bytes };
    let line = Line::new(Instant::from_nanos(0), link, &record);
    assert!(!line.to_string().is_empty());

    let sealed = frame.sealed(frame.payload);
    let mut whole = Vec::new();
    sealed.emit(&mut whole);
    let sealed_again = Frame::parse(link, &whole).expect("a sealed frame parses");
    assert_eq!(sealed_again.payload, frame.payload, "sealing keeps the payload");
    let ip_end = whole.len() - sealed.trailer.len();
    let ip_start = whole.len() - sealed.trailer.len() - ip_len(&sealed);
    assert_eq!(verify_ip_packet(&whole[ip_start..ip_end]), Ok(true), "a sealed frame's ICRC is right");
}

/// The length of a frame's IP packet.
fn ip_len(frame: &Frame<'_>) -> usize {
    frame.ip.header_len() + usize::from(frame.ip.payload_len())
}

/// A UDP payload: BTH, extension headers, payload, padding, ICRC.
pub(crate) fn headers(input: &[u8]) {
    if let Ok((headers, len)) = Headers::parse(input) {
        assert!(len <= input.len() && len <= MAX_HEADERS_LEN);
        assert_eq!(headers.encoded_len(), len);
        let mut emitted = [0; MAX_HEADERS_LEN];
        assert_eq!(headers.emit(&mut emitted), len);
        assert_eq!(Headers::parse(&emitted[..len]), Ok((headers, len)), "headers mean the same again");
        assert!(!headers.to_string().is_empty());
    }
    if let Ok((_, payload)) = parse_packet(input) {
        assert!(payload.start <= payload.end && payload.end <= input.len());
    }
    if let Ok((_, payload, icrc)) = parse_packet_with_icrc(input) {
        let tail = input.last_chunk::<ICRC_LEN>().expect("it has an ICRC");
        assert!(payload.end <= input.len() - ICRC_LEN);
        assert_eq!(icrc, u32::from_le_bytes(*tail));
    }
}

/// The ICRC seen from an IP packet, and from behind a socket that hides the identification.
pub(crate) fn icrc(input: &[u8]) {
    if let Ok(right) = verify_ip_packet(input) {
        let (body, tail) = input.split_last_chunk::<ICRC_LEN>().expect("it has an ICRC");
        assert_eq!(icrc_of_ip_packet(body).map(|crc| crc == u32::from_le_bytes(*tail)), Ok(right));
    }
    let Some((id, packet)) = input.split_first_chunk::<2>() else { return };
    // A packet is padded to whole words (IBTA §9.2.3); the identification is solved for only of such packets.
    if Headers::parse(packet).is_err() || packet.len() < Bth::LEN + ICRC_LEN || packet.len() % 4 != 0 {
        return;
    }
    let id = u16::from_le_bytes(*id);
    let path = PathIcrc::v4((Ipv4Addr::new(10, 0, 0, 1), 49_152), (Ipv4Addr::new(10, 0, 0, 2), UDP_PORT));
    let mut sealed = packet.to_vec();
    let body = sealed.len() - ICRC_LEN;
    let crc = path.icrc(id, &sealed[..body]);
    sealed[body..].copy_from_slice(&crc.to_le_bytes());
    assert!(path.verify(id, &sealed), "a sealed packet verifies");
    assert_eq!(path.verify_unknown_id(0, &sealed), Some(id), "the identification can be solved for");
    if let Some(found) = path.verify_unknown_id(id, packet) {
        assert!(path.verify(found, packet), "the identification that was found verifies");
    }
}

/// A capture file.
pub(crate) fn pcap(input: &[u8]) {
    let Ok(reader) = capture::Reader::new(input) else { return };
    let link = reader.link_type();
    let records: Vec<_> = reader.map_while(Result::ok).collect();
    let mut rewritten = Vec::new();
    let mut writer = capture::Writer::new(link, |bytes: &[u8]| rewritten.extend_from_slice(bytes));
    for record in &records {
        let line = Line::new(Instant::from_nanos(0), link, record);
        assert!(line.time >= Duration::from_nanos(0) && !line.to_string().is_empty());
        writer.write(record.time, &[record.bytes]);
    }
    let again = capture::Reader::new(&rewritten).expect("what was written is a capture");
    let again: Vec<_> = again.map(|record| record.expect("every record is whole")).collect();
    assert_eq!(again.len(), records.len());
    for (a, b) in again.iter().zip(&records) {
        assert_eq!(a.bytes, b.bytes, "a record keeps its bytes");
    }
}

/// A packet of queue pair 1: the MAD begins behind the headers, or at once if these bytes are no packet.
pub(crate) fn cm_mad(input: &[u8]) {
    let headers = Headers::parse(input).map_or(0, |(_, len)| len);
    for bytes in [input, &input[headers..]] {
        let Ok(mad) = CmMad::parse(bytes) else { continue };
        assert_eq!(CmMad::parse(&mad.emit()), Ok(mad), "a message means the same again");
        assert!(!mad.to_string().is_empty());
        if let CmMessage::Req(req) = mad.message {
            let header = req.private_data.first_chunk().expect("private data is longer than the header");
            if let Some(header) = IpCm::parse(header) {
                assert_eq!(IpCm::parse(&header.emit()), Some(header), "addresses mean the same again");
            }
        }
    }
}
