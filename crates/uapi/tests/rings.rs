//! Rings of every kind and shape against a queue that cannot be wrong, and against memory that lies.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use highwire_stdx::Rng;
use highwire_uapi::*;

const STEPS: usize = if cfg!(miri) { 300 } else { 20_000 };

fn ring(kind: RingKind, slots: u32, slot_bytes: u32) -> Window {
    let layout = RingLayout::new(kind, slots, slot_bytes).unwrap().with_ring_id(77);
    let window = Window::whole(&Arc::new(Segment::heap(layout.bytes())));
    layout.create(&window).unwrap();
    window
}

fn random_wqe(rng: &mut Rng, datagram: bool) -> SendWqe {
    let opcode = SendOpcode::from_u8(rng.below(10) as u8).unwrap();
    let addr = rng.next_u64();
    let rkey = rng.next_u32();
    let mut flags = SendFlags(rng.below(8) as u8);
    let mut imm = rng.next_u32();
    let target = match opcode {
        SendOpcode::Write | SendOpcode::WriteWithImm | SendOpcode::Read => Target::Remote { addr, rkey },
        SendOpcode::CompareSwap | SendOpcode::FetchAdd => {
            Target::Atomic { addr, rkey, compare_add: rng.next_u64(), swap: rng.next_u64() }
        }
        SendOpcode::BindWindow => {
            Target::Bind(BindWindow { addr, length: rng.next_u64(), rkey, lkey: imm, access: rng.next_u32() })
        }
        _ if datagram => {
            flags = flags | SendFlags::DATAGRAM;
            let mut gid = [0; 16];
            rng.fill(&mut gid);
            let [traffic_class, hop_limit, service_level, gid_index] = rng.next_u32().to_le_bytes();
            let (qpn, qkey, flow_label) = (rng.next_u32(), rng.next_u32(), rng.next_u32());
            Target::Datagram(AddressHandle {
                gid,
                qpn,
                qkey,
                flow_label,
                traffic_class,
                hop_limit,
                service_level,
                gid_index,
            })
        }
        _ => Target::Connected,
    };
    if opcode == SendOpcode::Send {
        imm = 0;
    }
    let srqn = match target {
        Target::Remote { .. } | Target::Atomic { .. } => rng.next_u32(),
        _ => 0,
    };
    SendWqe { wr_id: rng.next_u64(), opcode, flags, imm, target, srqn }
}

enum Data {
    Inline(Vec<u8>),
    Sges(Vec<Sge>),
}

fn random_data(rng: &mut Rng, slot_bytes: u32) -> Data {
    let room = slot_bytes as usize - 64;
    if rng.chance(0.5) {
        let mut bytes = vec![0; rng.between(0, room as u64) as usize];
        rng.fill(&mut bytes);
        Data::Inline(bytes)
    } else {
        let sge = |rng: &mut Rng| Sge { addr: rng.next_u64(), length: rng.next_u32(), lkey: rng.next_u32() };
        Data::Sges((0..rng.between(0, room as u64 / 16)).map(|_| sge(rng)).collect())
    }
}

fn check_send_ring(slots: u32, slot_bytes: u32, seed: u64) {
    let window = ring(RingKind::Send, slots, slot_bytes);
    let mut producer = SendQueueProducer::attach(&window).unwrap();
    let mut consumer = SendQueueConsumer::attach(&window).unwrap();
    let capacity = producer.layout().slot_count();
    let mut model: VecDeque<(SendWqe, Data)> = VecDeque::new();
    let (mut visible, mut held) = (0, 0);
    let mut rng = Rng::new(seed);
    for _ in 0..STEPS {
        match rng.below(8) {
            0..3 => {
                let datagram = rng.chance(0.3);
                let (mut wqe, data) = (random_wqe(&mut rng, datagram), random_data(&mut rng, slot_bytes));
                let posted = match &data {
                    Data::Inline(bytes) => producer.post(&wqe, WqeData::Inline(bytes)),
                    Data::Sges(sges) => producer.post(&wqe, WqeData::Sges(sges)),
                };
                if model.len() + held == capacity {
                    assert_eq!(posted, Err(PostError::Full));
                } else {
                    posted.unwrap();
                    if matches!(data, Data::Inline(_)) {
                        wqe.flags = wqe.flags | SendFlags::INLINE;
                    }
                    model.push_back((wqe, data));
                }
            }
            3 => {
                producer.publish_release();
                visible = model.len();
            }
            4..7 => {
                let Some(slot) = consumer.peek().unwrap() else {
                    assert_eq!(visible, 0);
                    continue;
                };
                let (wqe, data) = model.pop_front().unwrap();
                assert_eq!(slot.wqe(), Ok(wqe));
                let (mut bytes, mut sges) = ([0; MAX_INLINE_BYTES], [Sge::default(); MAX_SGES]);
                match data {
                    Data::Inline(expected) => assert_eq!(slot.inline(&mut bytes), expected),
                    Data::Sges(expected) => assert_eq!(slot.sges(&mut sges), expected),
                }
                consumer.advance();
                visible -= 1;
                held += 1;
            }
            _ => {
                consumer.release();
                held = 0;
            }
        }
    }
}

#[test]
fn send_rings_of_every_shape_behave_like_a_queue() {
    for (slots, slot_bytes) in [(1, 128), (2, 192), (8, 128), (5, 320), (64, 256)] {
        check_send_ring(slots, slot_bytes, u64::from(slots * 1000 + slot_bytes));
    }
}

#[test]
fn receive_rings_behave_like_a_queue() {
    for (slots, slot_bytes, max_sges) in [(1, 64, 3), (16, 64, 3), (4, 128, 7), (4, 320, 16)] {
        let window = ring(RingKind::Receive, slots, slot_bytes);
        let mut producer = ReceiveQueueProducer::attach(&window).unwrap();
        let mut consumer = ReceiveQueueConsumer::attach(&window).unwrap();
        let mut model: VecDeque<(u64, Vec<Sge>)> = VecDeque::new();
        let mut rng = Rng::new(3);
        let too_many = vec![Sge::default(); max_sges + 1];
        assert_eq!(producer.post(0, &too_many), Err(PostError::TooManySges { max: max_sges }));
        for _ in 0..STEPS {
            if rng.chance(0.5) {
                let sges: Vec<Sge> = (0..rng.between(0, max_sges as u64))
                    .map(|_| Sge { addr: rng.next_u64(), length: rng.next_u32(), lkey: rng.next_u32() })
                    .collect();
                let wr_id = rng.next_u64();
                match producer.post(wr_id, &sges) {
                    Ok(()) => model.push_back((wr_id, sges)),
                    Err(error) => assert_eq!((error, model.len() as u32), (PostError::Full, slots)),
                }
                producer.publish_release();
            } else if let Some(slot) = consumer.peek().unwrap() {
                let (wr_id, sges) = model.pop_front().unwrap();
                assert_eq!(slot.wqe(), Ok(ReceiveWqe { wr_id, num_sge: sges.len() as u8 }));
                assert_eq!(slot.sges(&mut [Sge::default(); MAX_SGES]), sges);
                consumer.advance();
                consumer.release();
            } else {
                assert!(model.is_empty());
            }
        }
    }
}

fn random_cqe(rng: &mut Rng) -> Cqe {
    let opcodes = [
        CompletionOpcode::Send,
        CompletionOpcode::FetchAdd,
        CompletionOpcode::Receive,
        CompletionOpcode::ReceiveWriteWithImm,
    ];
    Cqe {
        wr_id: rng.next_u64(),
        status: CqeStatus::from_u8(rng.below(23) as u8).unwrap(),
        opcode: *rng.pick(&opcodes),
        wc_flags: WcFlags(rng.next_u32() as u16),
        vendor_error: rng.next_u32(),
        byte_len: rng.next_u32(),
        imm: rng.next_u32(),
        qpn: rng.next_u32(),
        src_qpn: rng.next_u32(),
        timestamp_ns: rng.next_u64(),
        slid: rng.next_u32() as u16,
        service_level: rng.next_u32() as u8,
        dlid_path_bits: rng.next_u32() as u8,
        pkey_index: rng.next_u32() as u16,
        tag: rng.next_u64(),
        tag_context: rng.next_u32(),
    }
}

#[test]
fn completion_rings_behave_like_a_queue_and_count_overruns() {
    let window = ring(RingKind::Completion, 8, CQE_BYTES);
    let mut producer = CompletionQueueProducer::attach(&window).unwrap();
    let mut consumer = CompletionQueueConsumer::attach(&window).unwrap();
    let mut model = VecDeque::new();
    let mut lost = 0;
    let mut rng = Rng::new(9);
    for _ in 0..STEPS {
        if rng.chance(0.5) {
            let cqe = random_cqe(&mut rng);
            match producer.push(&cqe, false) {
                Ok(()) => model.push_back(cqe),
                Err(PostError::Full) => lost += 1,
                Err(other) => panic!("{other}"),
            }
            producer.publish_release();
        } else {
            assert_eq!(consumer.poll().unwrap(), model.pop_front());
        }
        assert!(model.len() <= 8);
        assert_eq!(consumer.overruns(), lost);
    }
    assert!(lost > 0);
}

#[test]
fn arming_wakes_once_for_what_was_asked() {
    let window = ring(RingKind::Completion, 8, CQE_BYTES);
    let mut engine = CompletionQueueProducer::attach(&window).unwrap();
    let mut application = CompletionQueueConsumer::attach(&window).unwrap();
    let mut complete = |status, solicited| {
        engine.push(&Cqe { status, ..Cqe::default() }, solicited).unwrap();
        engine.publish_release();
        engine.take_notification()
    };
    assert!(!complete(CqeStatus::Success, true), "nobody asked");
    assert_eq!(application.arm(Arm::Next), Ok(true), "one is waiting already");
    assert!(complete(CqeStatus::Success, false));
    assert!(!complete(CqeStatus::Success, false), "one request, one wake-up");
    while application.poll().unwrap().is_some() {}
    assert_eq!(application.arm(Arm::Solicited), Ok(false));
    assert!(!complete(CqeStatus::Success, false), "not solicited");
    assert!(complete(CqeStatus::Success, true));
    application.arm(Arm::Solicited).unwrap();
    assert!(complete(CqeStatus::RemoteAccess, false), "a failure always wakes");
    application.arm(Arm::Next).unwrap();
    application.arm(Arm::Solicited).unwrap();
    assert!(complete(CqeStatus::Success, false), "the weaker request does not replace the stronger");
}

#[test]
fn impossible_cursors_are_errors_on_both_sides() {
    let impossible = [9, 100, u64::MAX, 1 << 63, u64::MAX - 8];
    for cursor in impossible {
        let window = ring(RingKind::Send, 8, 128);
        let mut consumer = SendQueueConsumer::attach(&window).unwrap();
        window.u64_at(offset::TAIL).store(cursor, Ordering::Release);
        assert_eq!(consumer.peek().unwrap_err(), CursorError { own: 0, found: cursor });
        assert!(SendQueueConsumer::attach(&window).is_err());

        let window = ring(RingKind::Completion, 8, CQE_BYTES);
        let mut producer = CompletionQueueProducer::attach(&window).unwrap();
        for _ in 0..8 {
            producer.push(&Cqe::default(), false).unwrap();
        }
        producer.publish_release();
        window.u64_at(offset::HEAD).store(cursor, Ordering::Release);
        let expected = PostError::Corrupt(CursorError { own: 8, found: cursor });
        assert_eq!(producer.push(&Cqe::default(), false), Err(expected));
    }
}

#[test]
fn a_producer_that_takes_its_cursor_back_is_an_error() {
    let window = ring(RingKind::Receive, 8, 64);
    let mut producer = ReceiveQueueProducer::attach(&window).unwrap();
    let mut consumer = ReceiveQueueConsumer::attach(&window).unwrap();
    for wr_id in 0..5 {
        producer.post(wr_id, &[]).unwrap();
    }
    producer.publish_release();
    assert_eq!(consumer.available(), Ok(5));
    window.u64_at(offset::TAIL).store(2, Ordering::Release);
    assert_eq!(consumer.observe_available_acquire(), Err(CursorError { own: 0, found: 2 }));
}

#[test]
fn scribbled_slots_are_refused_and_never_read_beyond() {
    let mut rng = Rng::new(1);
    let window = ring(RingKind::Send, 4, 128);
    let mut producer = SendQueueProducer::attach(&window).unwrap();
    let mut consumer = SendQueueConsumer::attach(&window).unwrap();
    for _ in 0..STEPS {
        let wqe = random_wqe(&mut rng, false);
        producer.post(&wqe, WqeData::Inline(&[7; 64])).unwrap();
        producer.publish_release();
        for word in 0..64 {
            window.u64_at(RING_HEADER_BYTES + 8 * word).store(rng.next_u64(), Ordering::Relaxed);
        }
        let slot = consumer.peek().unwrap().unwrap();
        if let Ok(wqe) = slot.wqe() {
            assert!(wqe.flags.contains(SendFlags::INLINE) || slot.sges(&mut [Sge::default(); 16]).len() <= 4);
        }
        assert!(slot.inline(&mut [0; MAX_INLINE_BYTES]).len() <= 64);
        assert!(slot.sges(&mut [Sge::default(); MAX_SGES]).len() <= 4);
        consumer.advance();
        consumer.release();
    }
}

#[test]
fn two_threads_pass_every_completion_in_order() {
    const COUNT: u64 = if cfg!(miri) { 200 } else { 50_000 };
    let layout = RingLayout::new(RingKind::Completion, 16, CQE_BYTES).unwrap();
    let segment = if cfg!(miri) {
        Segment::heap(layout.bytes())
    } else {
        Segment::anonymous_shared(layout.bytes()).unwrap()
    };
    let window = Window::whole(&Arc::new(segment));
    layout.create(&window).unwrap();
    let mut producer = CompletionQueueProducer::attach(&window).unwrap();
    let mut consumer = CompletionQueueConsumer::attach(&window).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut wr_id = 0;
            while wr_id < COUNT {
                let cqe = Cqe { wr_id, timestamp_ns: !wr_id, ..Cqe::default() };
                if producer.push(&cqe, false).is_ok() {
                    wr_id += 1;
                } else {
                    std::thread::yield_now();
                }
                producer.publish_release();
            }
        });
        let mut expected = 0;
        while expected < COUNT {
            match consumer.poll().unwrap() {
                Some(cqe) => {
                    assert_eq!((cqe.wr_id, cqe.timestamp_ns), (expected, !expected));
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
        }
    });
}
