//! Connection management: messages of two kernels decode, re-encode to the same bytes, and have the expected
//! fields.

mod common;

use std::net::{IpAddr, Ipv4Addr};

use common::frames;
use highwire_stdx::Rng;
use highwire_wire::cm::{
    Answered, CmMad, CmMessage, CmPath, Drep, Dreq, IpCm, MAD_LEN, Mra, Rej, RejectReason, Rejected, Rep,
    Req, Rtu, SidrRep, SidrReq, SidrStatus, TransportType, service_id,
};
use highwire_wire::{Ethernet, Ext, Frame, Headers, LinkType, ParseErrorKind, Psn, Qpn};

/// The MADs of a captured connection, in order, each with the address that it went to.
fn captured() -> Vec<(Ipv4Addr, Vec<u8>)> {
    let mads = frames().filter(|(name, _)| *name == "cm_rping").filter_map(|(_, record)| {
        let frame = Frame::parse(LinkType::Ethernet, record.bytes).expect("captured frames are RoCEv2");
        let is_mad = matches!(frame.headers, Headers { bth, ext: Ext::Deth(_) } if bth.dest_qpn == Qpn::GSI);
        let source = &record.bytes[Ethernet::LEN + 12..][..4];
        is_mad.then(|| (Ipv4Addr::new(source[0], source[1], source[2], source[3]), frame.payload.to_vec()))
    });
    mads.collect()
}

#[test]
fn a_connection_of_two_kernels_encodes_to_the_same_bytes() {
    let mads = captured();
    let names: Vec<_> = mads
        .iter()
        .map(|(_, bytes)| {
            let mad = CmMad::parse(bytes).expect("captured MADs parse");
            assert_eq!(mad.emit().as_slice(), bytes.as_slice(), "{mad}");
            mad.message.attribute().as_str()
        })
        .collect();
    assert_eq!(names, ["REQ", "REP", "RTU", "DREQ", "DREP"]);
}

#[test]
fn the_kernels_request_reads_as_the_analyser_reads_it() {
    let mads = captured();
    let CmMad { message: CmMessage::Req(req), .. } = CmMad::parse(&mads[0].1).expect("it parses") else {
        panic!("the first message is a REQ");
    };
    assert_eq!((req.local_id, req.qpn, req.starting_psn), (0xa281_f706, Qpn::new(0x23), Psn::new(0xe0_d6dd)));
    assert_eq!((req.service_id, req.ca_guid), (service_id(0x0106, 0x4a48), 0x5054_00ff_fe77_0003));
    assert_eq!((req.responder_resources, req.initiator_depth, req.transport), (1, 1, TransportType::Rc));
    assert_eq!((req.remote_response_timeout, req.local_response_timeout), (20, 20));
    assert_eq!((req.retry_count, req.rnr_retry_count, req.max_cm_retries, req.path_mtu), (7, 7, 15, 3));
    assert_eq!((req.pkey, req.has_srq, req.has_flow_control), (0xFFFF, false, false));
    // Wireshark 4.0 shows the upper 16 of the label's 20 bits.
    let path = req.primary;
    assert_eq!(
        (path.local_lid, path.flow_label, path.hop_limit, path.local_ack_timeout),
        (0xFFFF, 0x19b67, 64, 19)
    );
    assert_eq!(path.local_gid, mads[0].0.to_ipv6_mapped().octets());
    let (header, _) = req.private_data.split_first_chunk().expect("long enough");
    let ip = |last| IpAddr::V4(Ipv4Addr::new(10, 77, 0, last));
    let expected = IpCm { source_port: 0x8f01, source: ip(3), destination: ip(2) };
    assert_eq!(IpCm::parse(header), Some(expected));
    assert_eq!(&expected.emit(), header);
}

#[test]
fn every_message_survives_a_round_trip() {
    let mut rng = Rng::new(12);
    for round in 0..2_000 {
        let message = random_message(&mut rng, round % 9);
        let mad = CmMad { transaction_id: rng.next_u64(), ece_options: rng.next_u32(), message };
        assert_eq!(CmMad::parse(&mad.emit()), Ok(mad), "round {round}");
    }
}

#[test]
fn every_address_pair_survives_a_round_trip() {
    let pairs = [("127.0.0.1", "10.0.0.9"), ("fe80::1", "::1"), ("::", "::ffff:1.2.3.4")];
    for (source, destination) in pairs {
        let parse = |text: &str| text.parse().expect("an address");
        let header = IpCm { source_port: 999, source: parse(source), destination: parse(destination) };
        assert_eq!(IpCm::parse(&header.emit()), Some(header));
    }
}

#[test]
fn what_is_not_a_message_is_an_error() {
    let whole = captured().remove(0).1;
    let check = |at: usize, value: u8, kind: ParseErrorKind| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        assert_eq!(CmMad::parse(&bytes).map_err(|error| error.kind), Err(kind), "byte {at} = {value}");
    };
    check(0, 2, ParseErrorKind::BadVersion);
    check(1, 3, ParseErrorKind::OtherProtocol);
    check(2, 1, ParseErrorKind::BadVersion);
    check(3, 1, ParseErrorKind::OtherProtocol);
    check(17, 0x19, ParseErrorKind::UnknownOpcode);
    check(17, 0x77, ParseErrorKind::UnknownOpcode);
    check(24 + 43, 0x06, ParseErrorKind::BadValue);
    for len in 0..MAD_LEN {
        assert_eq!(CmMad::parse(&whole[..len]).map_err(|e| e.kind), Err(ParseErrorKind::Truncated), "{len}");
    }
}

fn bytes<const N: usize>(rng: &mut Rng) -> [u8; N] {
    let mut bytes = [0; N];
    rng.fill(&mut bytes);
    bytes
}

/// A number of at most `bits` bits.
fn small(rng: &mut Rng, bits: u32) -> u8 {
    rng.below(1 << bits) as u8
}

fn path(rng: &mut Rng) -> CmPath {
    CmPath {
        local_lid: rng.next_u32() as u16,
        remote_lid: rng.next_u32() as u16,
        local_gid: bytes(rng),
        remote_gid: bytes(rng),
        flow_label: rng.next_u32() >> 12,
        packet_rate: small(rng, 6),
        traffic_class: small(rng, 8),
        hop_limit: small(rng, 8),
        service_level: small(rng, 4),
        is_subnet_local: rng.chance(0.5),
        local_ack_timeout: small(rng, 5),
    }
}

fn request(rng: &mut Rng) -> Req {
    let transports = [TransportType::Rc, TransportType::Uc, TransportType::Rd, TransportType::Xrc];
    Req {
        local_id: rng.next_u32(),
        ece_vendor: rng.next_u32() >> 8,
        service_id: rng.next_u64(),
        ca_guid: rng.next_u64(),
        qkey: rng.next_u32(),
        qpn: Qpn::new(rng.next_u32()),
        responder_resources: small(rng, 8),
        initiator_depth: small(rng, 8),
        remote_response_timeout: small(rng, 5),
        transport: *rng.pick(&transports),
        has_flow_control: rng.chance(0.5),
        starting_psn: Psn::new(rng.next_u32()),
        local_response_timeout: small(rng, 5),
        retry_count: small(rng, 3),
        pkey: rng.next_u32() as u16,
        path_mtu: small(rng, 4),
        rnr_retry_count: small(rng, 3),
        max_cm_retries: small(rng, 4),
        has_srq: rng.chance(0.5),
        primary: path(rng),
        alternate: path(rng),
        private_data: bytes(rng),
    }
}

fn reply(rng: &mut Rng) -> Rep {
    Rep {
        local_id: rng.next_u32(),
        remote_id: rng.next_u32(),
        qkey: rng.next_u32(),
        qpn: Qpn::new(rng.next_u32()),
        ece_vendor: rng.next_u32() >> 8,
        starting_psn: Psn::new(rng.next_u32()),
        responder_resources: small(rng, 8),
        initiator_depth: small(rng, 8),
        target_ack_delay: small(rng, 5),
        failover: small(rng, 2),
        has_flow_control: rng.chance(0.5),
        rnr_retry_count: small(rng, 3),
        has_srq: rng.chance(0.5),
        ca_guid: rng.next_u64(),
        private_data: bytes(rng),
    }
}

fn random_message(rng: &mut Rng, kind: u32) -> CmMessage {
    let (local_id, remote_id) = (rng.next_u32(), rng.next_u32());
    match kind {
        0 => CmMessage::Req(request(rng)),
        1 => CmMessage::Rep(reply(rng)),
        2 => CmMessage::Rtu(Rtu { local_id, remote_id, private_data: bytes(rng) }),
        3 => CmMessage::Dreq(Dreq {
            local_id,
            remote_id,
            remote_qpn: Qpn::new(rng.next_u32()),
            private_data: bytes(rng),
        }),
        4 => CmMessage::Drep(Drep { local_id, remote_id, private_data: bytes(rng) }),
        5 => CmMessage::Rej(Rej {
            local_id,
            remote_id,
            rejected: *rng.pick(&[Rejected::Req, Rejected::Rep, Rejected::None, Rejected::Reserved]),
            reason: RejectReason(rng.next_u32() as u16),
            info_len: small(rng, 7),
            info: bytes(rng),
            private_data: bytes(rng),
        }),
        6 => CmMessage::Mra(Mra {
            local_id,
            remote_id,
            answered: *rng.pick(&[Answered::Req, Answered::Rep, Answered::Lap]),
            service_timeout: small(rng, 5),
            private_data: bytes(rng),
        }),
        7 => CmMessage::SidrReq(SidrReq {
            request_id: local_id,
            pkey: rng.next_u32() as u16,
            service_id: rng.next_u64(),
            private_data: bytes(rng),
        }),
        _ => CmMessage::SidrRep(SidrRep {
            request_id: local_id,
            status: SidrStatus(small(rng, 8)),
            info_len: small(rng, 8),
            qpn: Qpn::new(rng.next_u32()),
            service_id: rng.next_u64(),
            qkey: rng.next_u32(),
            info: bytes(rng),
            private_data: bytes(rng),
        }),
    }
}
