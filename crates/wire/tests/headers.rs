//! Headers survive the way to bytes and back, and no bytes make the parsers panic.

use highwire_stdx::Rng;
use highwire_wire::{
    Aeth, AtomicEth, Bth, Deth, Ext, Frame, Headers, IrnEth, IrnFlags, Layout, LinkType, MAX_HEADERS_LEN,
    NakCode, Opcode, Psn, Qpn, Reth, SackEth, Syndrome, icrc, parse_packet, parse_packet_with_icrc, pcap,
};

#[test]
fn every_kind_of_headers_round_trips() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        for &opcode in Opcode::ALL {
            let headers = any_headers(&mut rng, opcode);
            let mut bytes = [0xA5; MAX_HEADERS_LEN + 1];
            let len = headers.emit(&mut bytes);
            assert_eq!(len, headers.encoded_len());
            assert_eq!(Headers::parse(&bytes), Ok((headers, len)), "seed {seed}");
            assert!(bytes[len..].iter().all(|&b| b == 0xA5), "nothing is written behind the headers");
            for cut in 0..len {
                assert!(Headers::parse(&bytes[..cut]).is_err(), "{opcode} cut to {cut} of {len} bytes");
            }
        }
    }
}

#[test]
fn whatever_parses_emits_the_same_bytes() {
    let mut rng = Rng::new(11);
    let mut parsed = 0;
    for _ in 0..100_000 {
        let bytes = any_bytes(&mut rng);
        let Ok((headers, len)) = Headers::parse(&bytes) else { continue };
        parsed += 1;
        let mut again = [0; MAX_HEADERS_LEN];
        assert_eq!(headers.emit(&mut again), len);
        let mut expected = bytes[..len].to_vec();
        match headers.ext.layout() {
            Layout::Deth | Layout::DethImm => expected[Bth::LEN + 4] = 0,
            Layout::Cnp => expected[Bth::LEN..].fill(0),
            _ => {}
        }
        assert_eq!(again[..len], expected);
    }
    assert!(parsed > 10_000, "only {parsed} of the random inputs were headers at all");
}

#[test]
fn no_bytes_make_a_parser_panic() {
    let mut rng = Rng::new(12);
    for _ in 0..100_000 {
        let mut bytes = any_bytes(&mut rng);
        let _ = parse_packet(&bytes);
        let _ = parse_packet_with_icrc(&bytes);
        let _ = icrc::verify_ip_packet(&bytes);
        let _ = Frame::parse(LinkType::RawIp, &bytes);
        if let Some(ethertype) = bytes.get_mut(12..14) {
            ethertype.copy_from_slice(&[[8, 0], [0x86, 0xDD], [0x81, 0]][rng.below(3) as usize]);
        }
        let _ = Frame::parse(LinkType::Ethernet, &bytes);
        if let Some(magic) = bytes.get_mut(..24) {
            magic.copy_from_slice(&pcap::file_header(LinkType::Ethernet));
        }
        let records = pcap::Reader::new(&bytes).map_or(0, |reader| reader.count());
        assert!(records < 200);
    }
}

/// Up to 200 random bytes, of which the first two are likely to be a known opcode and plain flags.
fn any_bytes(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; rng.below(200) as usize];
    rng.fill(&mut bytes);
    if rng.chance(0.5)
        && let [opcode, flags, ..] = &mut bytes[..]
    {
        *opcode = rng.pick(Opcode::ALL).to_u8();
        *flags &= 0xF0;
    }
    if rng.chance(0.5)
        && let Some(head) = bytes.get_mut(12..20)
    {
        // A version and flags that IRN's header may have, and a syndrome that AETH may have.
        head.copy_from_slice(&[0x11, 0, 0, 9, 0, 0, 0, 5]);
    }
    bytes
}

fn any_headers(rng: &mut Rng, opcode: Opcode) -> Headers {
    let bth = Bth {
        solicited: rng.chance(0.5),
        mig_req: rng.chance(0.5),
        pad_count: rng.below(4) as u8,
        pkey: rng.next_u32() as u16,
        fecn: rng.chance(0.5),
        becn: rng.chance(0.5),
        reserved6: rng.below(64) as u8,
        ack_request: rng.chance(0.5),
        reserved7: rng.below(128) as u8,
        ..Bth::new(opcode, Qpn::new(rng.next_u32()), Psn::new(rng.next_u32()))
    };
    Headers { bth, ext: any_ext(rng, opcode.info().layout) }
}

fn any_ext(rng: &mut Rng, layout: Layout) -> Ext {
    let imm = rng.next_u32();
    let original = rng.next_u64();
    let reth = Reth { va: rng.next_u64(), rkey: rng.next_u32(), length: rng.next_u32() };
    let syndrome = match rng.below(3) {
        0 => Syndrome::Ack { credits: rng.below(32) as u8 },
        1 => Syndrome::Rnr { timer: rng.below(32) as u8 },
        _ => Syndrome::Nak(*rng.pick(&[NakCode::PsnSequence, NakCode::RemoteAccess, NakCode::InvalidRd])),
    };
    let aeth = Aeth { syndrome, msn: rng.below(1 << 24) as u32 };
    let atomic = AtomicEth {
        va: rng.next_u64(),
        rkey: rng.next_u32(),
        swap_or_add: rng.next_u64(),
        compare: rng.next_u64(),
    };
    let deth = Deth { qkey: rng.next_u32(), source_qpn: Qpn::new(rng.next_u32()) };
    let flags = *rng.pick(&[IrnFlags::NONE, IrnFlags::LAST, IrnFlags::LAST.with(IrnFlags::RETRANSMITTED)]);
    let irn = IrnEth::new(rng.next_u32(), rng.next_u32(), flags);
    let sack = SackEth { psn: Psn::new(rng.next_u32()), count: rng.between(1, 255) as u8 };
    match layout {
        Layout::None => Ext::None,
        Layout::Imm => Ext::Imm(imm),
        Layout::Invalidate => Ext::Invalidate(imm),
        Layout::Reth => Ext::Reth(reth),
        Layout::RethImm => Ext::RethImm(reth, imm),
        Layout::Aeth => Ext::Aeth(aeth),
        Layout::AtomicAck => Ext::AtomicAck(aeth, original),
        Layout::Atomic => Ext::Atomic(atomic),
        Layout::Deth => Ext::Deth(deth),
        Layout::DethImm => Ext::DethImm(deth, imm),
        Layout::Cnp => Ext::Cnp,
        Layout::IrnSend => Ext::IrnSend(irn),
        Layout::IrnSendImm => Ext::IrnSendImm(irn, imm),
        Layout::IrnSendInvalidate => Ext::IrnSendInvalidate(irn, imm),
        Layout::IrnWrite => Ext::IrnWrite(irn, reth),
        Layout::IrnWriteImm => Ext::IrnWriteImm(irn, reth, imm),
        Layout::IrnRead => Ext::IrnRead(irn, reth),
        Layout::IrnAtomic => Ext::IrnAtomic(irn, atomic),
        Layout::IrnReadResponse => Ext::IrnReadResponse(irn, aeth),
        Layout::IrnAtomicResponse => Ext::IrnAtomicResponse(irn, aeth, original),
        Layout::IrnAck => Ext::IrnAck(aeth),
        Layout::IrnNack => Ext::IrnNack(aeth, sack),
        Layout::IrnReadAck => Ext::IrnReadAck,
        Layout::IrnReadNack => Ext::IrnReadNack(sack),
    }
}
