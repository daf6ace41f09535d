//! The golden datagrams: bytes to meaning, and meaning to the same bytes.

use highwire_rpc::wire::{
    Greeting, Header, Immediate, Kind, MESSAGE_HEADER_LEN, Messages, ParseError, Part, Progress, Stage,
    emit_message_header,
};

const VECTORS: &str = include_str!("../../../vectors/rpc/datagrams.txt");

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hexadecimal"))
        .collect()
}

fn vector(name: &str) -> (u32, Vec<u8>) {
    let line = VECTORS.lines().find(|line| line.split(' ').next() == Some(name)).expect("a vector");
    let mut words = line.split(' ').skip(1);
    let immediate = u32::from_str_radix(words.next().expect("an immediate"), 16).expect("hexadecimal");
    (immediate, unhex(words.next().expect("bytes")))
}

fn whole(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut head = [0; 16];
    header.emit(&mut head);
    [&head[..], body].concat()
}

fn messages(list: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (tag, text) in list {
        let at = bytes.len();
        bytes.extend_from_slice(&[0; MESSAGE_HEADER_LEN]);
        emit_message_header(&mut bytes, at, *tag, text.len());
        bytes.extend_from_slice(text);
    }
    bytes
}

const A: u32 = 0x1122_3344;
const B: u32 = 0xA1B2_C3D4;

#[track_caller]
fn check(name: &str, immediate: Immediate, header: Header, body: &[u8]) -> Vec<u8> {
    let (bits, bytes) = vector(name);
    assert_eq!(immediate.to_bits(), bits, "{name}");
    assert_eq!(Immediate::from_bits(bits), Ok(immediate), "{name}");
    let (parsed, rest) = Header::parse(&bytes).expect("a header");
    assert_eq!(parsed, header, "{name}");
    assert_eq!(whole(&header, body), bytes, "{name}");
    rest.to_vec()
}

fn immediate(kind: Kind, count: u8, slot: u8, fence: u16) -> Immediate {
    Immediate { kind, count, slot, fence }
}

fn header(node: u16, from: u32, to: u32, sequence: u32) -> Header {
    Header { node, from, to, sequence }
}

#[test]
fn greetings() {
    for (name, kind, fence, header, greeting) in [
        (
            "hello",
            Kind::Hello,
            0,
            header(1, A, 0, 0),
            Greeting { incarnation: 0x0006_4A2B_1122_3344, slots: 32, datagram_bytes: 4096 },
        ),
        (
            "welcome",
            Kind::Welcome,
            7,
            header(2, B, A, 0),
            Greeting { incarnation: 0x0006_4A2B_A1B2_C3D4, slots: 16, datagram_bytes: 1024 },
        ),
    ] {
        let mut body = [0; 12];
        greeting.emit(&mut body);
        let rest = check(name, immediate(kind, 0, 0, fence), header, &body);
        assert_eq!(Greeting::parse(&rest), Ok(greeting));
        assert_eq!(
            Greeting::parse(&rest[1..]),
            Err(ParseError::TooShort { what: "greeting", have: 11, need: 12 })
        );
    }
}

#[test]
fn batches() {
    for (name, kind, head, list) in [
        ("request", Kind::Request, header(1, A, B, u32::MAX), [(9u8, &b"key"[..]), (10, b"")]),
        ("response", Kind::Response, header(2, B, A, u32::MAX), [(0, b"value"), (1, b"")]),
    ] {
        let rest = check(name, immediate(kind, 2, 5, 0x0102), head, &messages(&list));
        let parsed: Vec<_> =
            Messages::parse(&rest, 2).expect("two").map(|m| (m.tag, m.bytes.to_vec())).collect();
        assert_eq!(parsed, list.map(|(tag, bytes)| (tag, bytes.to_vec())));
        assert!(matches!(Messages::parse(&rest, 1), Err(ParseError::Behind(_))));
        assert!(matches!(Messages::parse(&rest, 3), Err(ParseError::TooShort { .. })));
    }
}

#[test]
fn parts() {
    let part = Part { total: 10, index: 2, part_bytes: 4 };
    let mut head = [0; 8];
    part.emit(&mut head);
    let body = [&head[..], b"ij"].concat();
    let rest = check("request_part", immediate(Kind::RequestPart, 1, 255, 0), header(1, A, B, 3), &body);
    assert_eq!(Part::parse(&rest), Ok((part, &b"ij"[..])));
    let part = Part { total: 10, index: 0, part_bytes: 4 };
    part.emit(&mut head);
    let body = [&head[..], b"abcd"].concat();
    let rest =
        check("response_part", immediate(Kind::ResponsePart, 31, 0, 0xFFFF), header(2, B, A, 3), &body);
    assert_eq!(Part::parse(&rest), Ok((part, &b"abcd"[..])));
    for wrong in [[0, 0, 0, 10, 0, 3, 0, 4], [0, 0, 0, 10, 0, 0, 0, 0], [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 4]]
    {
        let bytes = [&wrong[..], b"abcd"].concat();
        assert!(matches!(Part::parse(&bytes), Err(ParseError::Part { have: 4, .. })), "{wrong:?}");
    }
}

#[test]
fn reports_and_refusals() {
    let cases = [
        (
            "progress_requests",
            header(2, B, A, 4),
            Progress { stage: Stage::Request, base: 3, bitmap: 0b1010 },
        ),
        (
            "progress_responses",
            header(1, A, B, 4),
            Progress { stage: Stage::Response, base: 0xFFFE, bitmap: 1 << 63 },
        ),
        ("progress_working", header(2, B, A, 4), Progress { stage: Stage::Working, base: 0, bitmap: 0 }),
    ];
    for (name, header, progress) in cases {
        let mut body = [0; 12];
        progress.emit(&mut body);
        let rest = check(name, immediate(Kind::Progress, 0, 1, 0), header, &body);
        assert_eq!(Progress::parse(&rest), Ok(progress));
    }
    assert_eq!(Progress::parse(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(ParseError::Stage(3)));
    check("refusal", immediate(Kind::Refusal, 0, 9, 0), header(2, B, A, 5), &[1, 0, 0, 0]);
    check("challenge", immediate(Kind::Refusal, 0, 0, 0), header(2, B, A, 0x5EED_0001), &[2, 0, 0, 0]);
}

#[test]
fn immediates_that_contradict_themselves_are_refused() {
    for bits in 0..=u32::from(u16::MAX) {
        let bits = bits << 16 | 0xABCD;
        if let Ok(immediate) = Immediate::from_bits(bits) {
            assert_eq!(immediate.to_bits(), bits);
            let has_batch = (2..=5).contains(&(bits >> 29));
            assert_eq!(has_batch, immediate.count > 0);
        }
    }
    let error = Immediate::from_bits(2 << 29).expect_err("a batch of nothing");
    assert_eq!(error.to_string(), "0 messages in a Request");
    let error =
        Header::parse(&[0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).expect_err("the version before");
    assert_eq!(error.to_string(), "version 1, flags 0x0: this is version 2 without flags");
}
