//! Headers survive the way to bytes and back, and no bytes make the parsers panic.

use std::fmt::Write as _;

use highwire_stdx::Rng;
use highwire_wire::{
    Aeth, AtomicEth, Bth, Deth, Ext, Frame, Headers, IRN_VERSION, IrnEth, IrnFlags, Layout, LinkType,
    MAX_HEADERS_LEN, NakCode, Opcode, Psn, Qpn, Reth, SackEth, Syndrome, icrc, parse_packet,
    parse_packet_with_icrc, pcap,
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

/// Changing any of these bytes under an IRN opcode is a new version of the extension.
#[test]
fn each_opcode_has_these_bytes_and_reads_so() {
    let mut text = String::new();
    for &opcode in Opcode::ALL {
        let headers =
            Headers::new(opcode, Qpn::new(0x0A_0B0C), Psn::new(0x01_0203), sample_ext(opcode.info().layout));
        let mut bytes = [0; MAX_HEADERS_LEN];
        let len = headers.emit(&mut bytes);
        writeln!(text, "{headers}").expect("writing to a string succeeds");
        for word in bytes[..len].chunks(4) {
            write!(text, " {:08x}", u32::from_be_bytes(word.try_into().expect("headers are whole words")))
                .expect("writing to a string succeeds");
        }
        text.push('\n');
    }
    let expected = include_str!("golden/headers.txt");
    assert!(text == expected, "tests/golden/headers.txt should read:\n{text}");
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
            Layout::Xrc
            | Layout::XrcImm
            | Layout::XrcInvalidate
            | Layout::XrcReth
            | Layout::XrcRethImm
            | Layout::XrcAtomic => expected[Bth::LEN] = 0,
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
        head.copy_from_slice(&[IRN_VERSION << 4 | 1, 0, 0, 9, 0, 0, 0, 5]);
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
    let syndrome = match rng.below(3) {
        0 => Syndrome::Ack { credits: rng.below(32) as u8 },
        1 => Syndrome::Rnr { timer: rng.below(32) as u8 },
        _ => Syndrome::Nak(*rng.pick(&[NakCode::PsnSequence, NakCode::RemoteAccess, NakCode::InvalidRd])),
    };
    let flags = *rng.pick(&[IrnFlags::NONE, IrnFlags::LAST, IrnFlags::LAST.with(IrnFlags::RETRANSMITTED)]);
    ext(layout, syndrome, flags, &mut || rng.next_u64())
}

/// Numbers by which every byte of a header differs from its neighbours.
fn sample_ext(layout: Layout) -> Ext {
    let mut next: u64 = 0x0102_0304_0506_0708;
    ext(layout, Syndrome::Ack { credits: 12 }, IrnFlags::LAST.with(IrnFlags::RETRANSMITTED), &mut || {
        next = next.wrapping_add(0x1010_1010_1010_1010);
        next
    })
}

fn ext(layout: Layout, syndrome: Syndrome, flags: IrnFlags, next: &mut dyn FnMut() -> u64) -> Ext {
    let imm = next() as u32;
    let original = next();
    let reth = Reth { va: next(), rkey: next() as u32, length: next() as u32 };
    let aeth = Aeth { syndrome, msn: next() as u32 & 0x00FF_FFFF };
    let atomic = AtomicEth { va: next(), rkey: next() as u32, swap_or_add: next(), compare: next() };
    let deth = Deth { qkey: next() as u32, source_qpn: Qpn::new(next() as u32) };
    let irn = IrnEth::new(next() as u32, next() as u32, flags);
    let sack = SackEth { psn: Psn::new(next() as u32), count: (next() % 255) as u8 + 1 };
    let srqn = Qpn::new(next() as u32);
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
        Layout::Xrc => Ext::Xrc(srqn),
        Layout::XrcImm => Ext::XrcImm(srqn, imm),
        Layout::XrcInvalidate => Ext::XrcInvalidate(srqn, imm),
        Layout::XrcReth => Ext::XrcReth(srqn, reth),
        Layout::XrcRethImm => Ext::XrcRethImm(srqn, reth, imm),
        Layout::XrcAtomic => Ext::XrcAtomic(srqn, atomic),
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
        Layout::IrnSendAck => Ext::IrnSendAck(irn, aeth, sack.psn),
        Layout::IrnWriteAck => Ext::IrnWriteAck(irn, reth, aeth, sack.psn),
    }
}
