//! The bytes on which other languages rely, and headers with wrong values.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use highwire_rings::*;
use highwire_shmem::*;
use highwire_stdx::Rng;
use highwire_verbs::*;
use highwire_wire::Qpn;

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
    let window = ring(SEND_RING, 3, 128);
    let expected = "4857524701000100 8000000004000000 00020000efcdab00 0004000000000000 0900000000000000 ";
    assert_eq!(hex(&window, 0, 40), expected);
}

#[test]
fn a_send_wqe_has_these_bytes() {
    let window = ring(SEND_RING, 4, 128);
    let mut queue = SendQueueProducer::attach(&window).unwrap();
    let (wr_id, lkey) = (0x1122334455667788, LocalKey(0xD3));
    let to = Remote { va: 0xB1B2B3B4B5B6B7B8, rkey: RemoteKey(0xC1C2C3C4) };
    let sges = [Sge { addr: 0xD1, length: 0xD2, lkey }];
    queue.post(&SendWr::new(wr_id, Operation::WriteImm(to, 0xA1A2A3A4), &sges)).unwrap();
    let gid = Gid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let address = Address { gid, flow_label: 0x21222324, traffic_class: 0x31, hop_limit: 0x32 };
    let datagram = Some(Datagram { address, qpn: Qpn::new(0x010203), qkey: 0x11121314 });
    let send = SendWr { datagram, ..SendWr::new(wr_id, Operation::Send, &[]) };
    queue.post_inline(&send, b"sixteen bytes...").unwrap();
    queue.publish_release();
    assert_eq!(
        hex(&window, 512, 80),
        "8877665544332211 0102010000000000 a4a3a2a1c4c3c2c1 b8b7b6b5b4b3b2b1 0000000000000000 0000000000000000 \
         0000000000000000 0000000000000000 d100000000000000 d2000000d3000000 "
    );
    assert_eq!(
        hex(&window, 640, 80),
        "8877665544332211 028a000010000000 0000000000000000 0000000000000000 0001020304050607 08090a0b0c0d0e0f \
         0302010014131211 2423222131320000 7369787465656e20 62797465732e2e2e "
    );
    assert_eq!(hex(&window, offset::TAIL, 8), "0200000000000000 ");

    let bind = WindowBind {
        window: RemoteKey(0xA1A2A301),
        new_key: RemoteKey(0xA1A2A302),
        region: LocalKey(0xB1B2B3B4),
        va: 0xC1,
        length: 0xC2,
        access: Access::REMOTE_READ,
    };
    queue.post(&SendWr::new(wr_id, Operation::BindWindow(bind), &[])).unwrap();
    assert_eq!(
        hex(&window, 768, 80),
        "8877665544332211 0802010000000000 b4b3b2b102a3a2a1 c100000000000000 0000000000000000 c200000000000000 \
         0000000004000000 0000000000000000 0000000000000000 0000000001a3a2a1 "
    );
}

#[test]
fn a_receive_wqe_and_a_cqe_have_these_bytes() {
    let window = ring(RECEIVE_RING, 4, 64);
    let mut queue = ReceiveQueueProducer::attach(&window).unwrap();
    let sge = |addr, length, key| Sge { addr, length, lkey: LocalKey(key) };
    queue.post(&RecvWr { wr_id: 0x99, sges: &[sge(1, 2, 3), sge(4, 5, 6)] }).unwrap();
    let expected = "9900000000000000 0200000000000000 0100000000000000 0200000003000000 0400000000000000 \
                    0500000006000000 ";
    assert_eq!(hex(&window, 512, 48), expected);

    let window = ring(COMPLETION_RING, 4, CQE_BYTES);
    let mut queue = CompletionQueueProducer::attach(&window).unwrap();
    let flags = CompletionFlags { grh: true, with_immediate: true, ..CompletionFlags::default() };
    let completion = Completion {
        byte_len: 3,
        immediate: 4,
        source_qpn: Qpn::new(6),
        flags: CompletionFlags { tags: TagFlags::MATCHED, ..flags },
        ..Completion::new(1, CompletionStatus::RemoteAccess, CompletionOp::Receive, Qpn::new(5))
    };
    queue.push(&Cqe { completion, tag: 12, tag_context: 13 }).unwrap();
    let expected = "0100000000000000 0a80230000000000 0300000004000000 0500000006000000 0000000000000000 \
                    0000000000000000 0c00000000000000 0d00000000000000 ";
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
    check(SEND_RING, 0, 128, Err(SlotCount { found: 0 }));
    check(SEND_RING, u32::MAX, 128, Err(SlotCount { found: u32::MAX }));
    check(SEND_RING, 8, 64, Err(SlotBytes { found: 64 }));
    check(SEND_RING, 8, 100, Err(SlotBytes { found: 100 }));
    check(SEND_RING, 8, 384, Err(SlotBytes { found: 384 }));
    check(COMPLETION_RING, 8, 128, Err(SlotBytes { found: 128 }));
    check(SEND_RING, 100, 320, Ok((128, 320)));
    check(RECEIVE_RING, 1, 64, Ok((1, 64)));
}

#[test]
fn a_header_is_believed_only_if_every_field_holds() {
    let window = ring(SEND_RING, 8, 128);
    let good = RingHeader::read(&window).unwrap();
    assert_eq!(
        RingLayout::validate(&good, SEND_RING, window.len()).map(|layout| layout.doorbell()),
        Ok(Some(9))
    );
    let check = |change: fn(&mut RingHeader), expected: LayoutError| {
        let mut header = good;
        change(&mut header);
        assert_eq!(RingLayout::validate(&header, SEND_RING, 1536), Err(expected));
    };
    check(|h| h.magic = 7, LayoutError::Magic { found: 7 });
    check(|h| h.version = 2, LayoutError::Version { found: 2 });
    check(|h| h.kind = 9, LayoutError::Kind { found: 9 });
    check(|h| h.slot_count = 6, LayoutError::SlotCount { found: 6 });
    check(|h| h.slot_count = 16, LayoutError::TotalBytes { found: 1536, mapped: 1536 });
    check(|h| h.slot_bytes = 65, LayoutError::SlotBytes { found: 65 });
    check(|h| h.slots_offset = 256, LayoutError::SlotsOffset { found: 256 });
    check(|h| h.total_bytes = 1 << 40, LayoutError::TotalBytes { found: 1 << 40, mapped: 1536 });
    assert!(
        RingLayout::validate(&good, SEND_RING, 1535).is_err(),
        "the mapping is shorter than the header claims"
    );
    assert!(ReceiveQueueConsumer::attach(&window).is_err(), "it is a send ring");
    assert!(SendQueueConsumer::attach(&window.part(0, 64).unwrap()).is_err(), "shorter than a header");
}

#[test]
fn random_headers_never_panic_and_never_reach_beyond_the_mapping() {
    let mut rng = Rng::new(11);
    let window = ring(SEND_RING, 8, 128);
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
