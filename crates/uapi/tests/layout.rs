//! The bytes that other languages rely on, and headers that lie.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use highwire_stdx::Rng;
use highwire_uapi::*;

fn hex(window: &Window, from: usize, len: usize) -> String {
    let mut bytes = vec![0; len];
    window.copy_out(from, &mut bytes);
    bytes
        .chunks(8)
        .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + " ")
        .collect()
}

fn ring(kind: RingKind, slots: u32, slot_bytes: u32) -> Window {
    let layout = RingLayout::new(kind, slots, slot_bytes).unwrap().with_ring_id(0xABCDEF).with_doorbell(9);
    let window = Window::whole(&Arc::new(Segment::heap(layout.bytes())));
    layout.create(&window).unwrap();
    window
}

#[test]
fn a_ring_header_has_these_bytes() {
    let window = ring(RingKind::Send, 3, 128);
    let expected = "4857524701000100 8000000004000000 00020000efcdab00 0004000000000000 0900000000000000 ";
    assert_eq!(hex(&window, 0, 40), expected);
}

#[test]
fn a_send_wqe_has_these_bytes() {
    let window = ring(RingKind::Send, 4, 128);
    let mut queue = SendQueueProducer::attach(&window).unwrap();
    let write = SendWqe {
        wr_id: 0x1122334455667788,
        opcode: SendOpcode::WriteWithImm,
        flags: SendFlags::SIGNALED,
        imm: 0xA1A2A3A4,
        target: Target::Remote { addr: 0xB1B2B3B4B5B6B7B8, rkey: 0xC1C2C3C4 },
        srqn: 0,
    };
    queue.post(&write, WqeData::Sges(&[Sge { addr: 0xD1, length: 0xD2, lkey: 0xD3 }])).unwrap();
    let datagram = AddressHandle {
        gid: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        qpn: 0x010203,
        qkey: 0x11121314,
        flow_label: 0x21222324,
        traffic_class: 0x31,
        hop_limit: 0x32,
        service_level: 0x33,
        gid_index: 0x34,
    };
    let send = SendWqe { opcode: SendOpcode::Send, imm: 0, target: Target::Datagram(datagram), ..write };
    queue.post(&send, WqeData::Inline(b"sixteen bytes...")).unwrap();
    queue.publish_release();
    assert_eq!(
        hex(&window, 512, 80),
        "8877665544332211 0102010000000000 a4a3a2a1c4c3c2c1 b8b7b6b5b4b3b2b1 0000000000000000 0000000000000000 \
         0000000000000000 0000000000000000 d100000000000000 d2000000d3000000 "
    );
    assert_eq!(
        hex(&window, 640, 80),
        "8877665544332211 028a000010000000 0000000000000000 0000000000000000 0001020304050607 08090a0b0c0d0e0f \
         0302010014131211 2423222131323334 7369787465656e20 62797465732e2e2e "
    );
    assert_eq!(hex(&window, offset::TAIL, 8), "0200000000000000 ");
}

#[test]
fn a_receive_wqe_and_a_cqe_have_these_bytes() {
    let window = ring(RingKind::Receive, 4, 64);
    let mut queue = ReceiveQueueProducer::attach(&window).unwrap();
    queue.post(0x99, &[Sge { addr: 1, length: 2, lkey: 3 }, Sge { addr: 4, length: 5, lkey: 6 }]).unwrap();
    let expected = "9900000000000000 0200000000000000 0100000000000000 0200000003000000 0400000000000000 \
                    0500000006000000 ";
    assert_eq!(hex(&window, 512, 48), expected);

    let window = ring(RingKind::Completion, 4, CQE_BYTES);
    let mut queue = CompletionQueueProducer::attach(&window).unwrap();
    let cqe = Cqe {
        wr_id: 1,
        status: CqeStatus::RemoteAccess,
        opcode: CompletionOpcode::Receive,
        wc_flags: WcFlags::GRH | WcFlags::WITH_IMM,
        vendor_error: 2,
        byte_len: 3,
        imm: 4,
        qpn: 5,
        src_qpn: 6,
        timestamp_ns: 7,
        slid: 8,
        service_level: 9,
        dlid_path_bits: 10,
        pkey_index: 11,
        tag: 12,
        tag_context: 13,
    };
    queue.push(&cqe, false).unwrap();
    let expected = "0100000000000000 0a80030002000000 0300000004000000 0500000006000000 0700000000000000 \
                    0800090a0b000000 0c00000000000000 0d00000000000000 ";
    assert_eq!(hex(&window, 512, 64), expected);
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    use LayoutError::{SlotBytes, SlotCount};
    let check = |kind, slots, bytes, expected| {
        let found =
            RingLayout::new(kind, slots, bytes).map(|layout| (layout.slot_count(), layout.slot_bytes()));
        assert_eq!(found, expected, "{kind:?} {slots} × {bytes}");
    };
    check(RingKind::Send, 0, 128, Err(SlotCount { found: 0 }));
    check(RingKind::Send, u32::MAX, 128, Err(SlotCount { found: u32::MAX }));
    check(RingKind::Send, 8, 64, Err(SlotBytes { found: 64 }));
    check(RingKind::Send, 8, 100, Err(SlotBytes { found: 100 }));
    check(RingKind::Send, 8, 384, Err(SlotBytes { found: 384 }));
    check(RingKind::Completion, 8, 128, Err(SlotBytes { found: 128 }));
    check(RingKind::Send, 100, 320, Ok((128, 320)));
    check(RingKind::Receive, 1, 64, Ok((1, 64)));
}

#[test]
fn a_header_is_believed_only_if_every_field_holds() {
    let window = ring(RingKind::Send, 8, 128);
    let good = RingHeader::read(&window).unwrap();
    assert_eq!(RingLayout::validate(&good, window.len()).map(|layout| layout.doorbell()), Ok(Some(9)));
    let check = |change: fn(&mut RingHeader), expected: LayoutError| {
        let mut header = good;
        change(&mut header);
        assert_eq!(RingLayout::validate(&header, 1536), Err(expected));
    };
    check(|h| h.magic = 7, LayoutError::Magic { found: 7 });
    check(|h| h.version = 2, LayoutError::Version { found: 2 });
    check(|h| h.kind = 9, LayoutError::Kind { found: 9 });
    check(|h| h.slot_count = 6, LayoutError::SlotCount { found: 6 });
    check(|h| h.slot_count = 16, LayoutError::TotalBytes { found: 1536, mapped: 1536 });
    check(|h| h.slot_bytes = 65, LayoutError::SlotBytes { found: 65 });
    check(|h| h.slots_offset = 256, LayoutError::SlotsOffset { found: 256 });
    check(|h| h.total_bytes = 1 << 40, LayoutError::TotalBytes { found: 1 << 40, mapped: 1536 });
    assert!(RingLayout::validate(&good, 1535).is_err(), "the mapping is shorter than the header claims");
    assert!(ReceiveQueueConsumer::attach(&window).is_err(), "it is a send ring");
    assert!(SendQueueConsumer::attach(&window.part(0, 64).unwrap()).is_err(), "shorter than a header");
}

#[test]
fn random_headers_never_panic_and_never_reach_beyond_the_mapping() {
    let mut rng = Rng::new(11);
    let window = ring(RingKind::Send, 8, 128);
    let original = window.load_words_relaxed::<5>(0);
    for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
        window.store_words_relaxed(0, &original);
        for _ in 0..rng.between(1, 3) {
            let at = 8 * rng.below(5) as usize;
            let flip = window.u64_at(at).load(Ordering::Relaxed) ^ (1 << rng.below(64));
            window.u64_at(at).store(flip, Ordering::Relaxed);
        }
        window.u64_at(offset::TAIL).store(rng.below(12), Ordering::Relaxed);
        if let Ok(mut queue) = SendQueueConsumer::attach(&window) {
            assert!(queue.layout().bytes() <= window.len());
            while let Some(slot) = queue.peek().unwrap() {
                slot.sges(&mut [Sge::default(); MAX_SGES]);
                queue.advance();
            }
        }
    }
}
