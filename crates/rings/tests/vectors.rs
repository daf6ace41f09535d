//! The golden bytes and numbers that programs in other languages are tested with, too: `vectors/uapi`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use highwire_rings::*;
use highwire_shmem::*;
use highwire_verbs::*;
use highwire_wire::Qpn;

fn vectors(file: &str) -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/uapi").join(file);
    let text = std::fs::read_to_string(path).expect("the vectors are in the repository");
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn hex(window: &Window, from: usize, len: usize) -> String {
    let mut bytes = vec![0; len];
    window.copy_out(from, &mut bytes);
    let words = bytes.chunks(8).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    words.collect::<Vec<_>>().join(" ")
}

fn ring(kind: RingKind, slots: u32, slot_bytes: u32) -> Window {
    let layout = RingLayout::new(kind, slots, slot_bytes).unwrap().with_ring_id(0xABCDEF).with_doorbell(9);
    let window = Window::whole(&Arc::new(Segment::heap(layout.bytes())));
    layout.create(&window).unwrap();
    window
}

#[test]
fn rings_have_the_bytes_of_the_vectors() {
    let golden = vectors("rings.txt");
    let window = ring(SEND_RING, 3, 128);
    assert_eq!(hex(&window, 0, 40), golden["send_header"]);
    let mut queue = SendQueueProducer::attach(&window).unwrap();
    let to = Remote { va: 0xB1B2B3B4B5B6B7B8, rkey: RemoteKey(0xC1C2C3C4) };
    let (wr_id, lkey) = (0x1122334455667788, LocalKey(0xD3));
    let sges = [Sge { addr: 0xD1, length: 0xD2, lkey }];
    queue.post(&SendWr::new(wr_id, Operation::WriteImm(to, 0xA1A2A3A4), &sges)).unwrap();
    let address = Address::new(Gid(std::array::from_fn(|at| at as u8)));
    let datagram = Some(Datagram { address, qpn: Qpn::new(0x010203), qkey: 0x11121314 });
    let send = SendWr { datagram, ..SendWr::new(wr_id, Operation::Send, &[]) };
    queue.post_inline(&send, b"sixteen bytes...").unwrap();
    let swap = Operation::CompareSwap { remote: to, compare: 2, swap: 3 };
    queue.post(&SendWr::new(wr_id, swap, &[Sge { addr: 0xD1, length: 8, lkey }])).unwrap();
    for (slot, name) in
        ["send_write_imm", "send_datagram_inline", "send_compare_swap"].into_iter().enumerate()
    {
        assert_eq!(hex(&window, 512 + 128 * slot, 80), golden[name], "{name}");
    }

    let window = ring(RECEIVE_RING, 4, 64);
    let mut queue = ReceiveQueueProducer::attach(&window).unwrap();
    let sge = |addr, length, key| Sge { addr, length, lkey: LocalKey(key) };
    queue.post(&RecvWr { wr_id: 0x99, sges: &[sge(1, 2, 3), sge(4, 5, 6)] }).unwrap();
    assert_eq!(hex(&window, 512, 48), golden["receive"]);

    let window = ring(COMPLETION_RING, 4, CQE_BYTES);
    let mut queue = CompletionQueueProducer::attach(&window).unwrap();
    let flags = CompletionFlags { grh: true, with_immediate: true, ..CompletionFlags::default() };
    let completion = Completion {
        byte_len: 3,
        immediate: 4,
        source_qpn: Qpn::new(6),
        flags,
        ..Completion::new(1, CompletionStatus::RemoteAccess, CompletionOp::Receive, Qpn::new(5))
    };
    queue.push(&Cqe { completion, tag: 12, tag_context: 13 }).unwrap();
    assert_eq!(hex(&window, 512, 64), golden["cqe"]);
}

#[test]
fn numbers_are_those_of_the_description() {
    let layout = vectors("layout.txt");
    let number = |name: &str| layout[name].parse::<usize>().expect("a number");
    let ours = [
        ("ring.version", usize::from(VERSION)),
        ("ring.tail", offset::TAIL),
        ("ring.overrun", offset::OVERRUN),
        ("ring.in_use", offset::IN_USE),
        ("ring.completed", offset::COMPLETED),
        ("ring.head", offset::HEAD),
        ("ring.held", offset::HELD),
        ("ring.arm", offset::ARM),
        ("ring.bell", offset::BELL),
        ("ring.wanted", offset::WANTED),
        ("ring.header_bytes", RING_HEADER_BYTES),
        ("cqe.bytes", CQE_BYTES as usize),
    ];
    for (name, value) in ours {
        assert_eq!(number(name), value, "{name}");
    }
    // The board's constants are private, so its behaviour shows them.
    let window = Window::whole(&Arc::new(Segment::heap(DoorbellBoard::bytes(128).unwrap())));
    let board = DoorbellBoard::create(&window, 128).unwrap();
    assert!(board.prepare_sleep_seqcst());
    assert_eq!(window.u64_at(number("board.sleeping")).load(Ordering::Relaxed), 1);
    assert!(board.ring_seqcst(65), "the engine sleeps");
    assert_eq!(window.u64_at(number("board.summary")).load(Ordering::Relaxed), 2);
    assert_eq!(window.u64_at(number("board.words") + 8).load(Ordering::Relaxed), 2);
}
