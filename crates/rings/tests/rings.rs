//! Rings of every kind and shape against a simple model queue, and against memory with wrong values.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use highwire_rings::*;
use highwire_shmem::*;
use highwire_stdx::Rng;
use highwire_verbs::*;
use highwire_wire::Qpn;

const STEPS: usize = if cfg!(miri) { 300 } else { 20_000 };

fn ring(kind: RingKind, slots: u32, slot_bytes: u32) -> Window {
    let layout = RingLayout::new(kind, slots, slot_bytes).unwrap().with_ring_id(77);
    let window = Window::whole(&Arc::new(Segment::heap(layout.bytes())));
    layout.create(&window).unwrap();
    window
}

/// A request without SGEs.
fn random_request(rng: &mut Rng) -> SendWr<'static> {
    let remote = Remote { va: rng.next_u64(), rkey: RemoteKey(rng.next_u32()) };
    let (word, key) = (rng.next_u64(), rng.next_u32());
    let operation = match rng.below(10) {
        0 => Operation::Write(remote),
        1 => Operation::WriteImm(remote, key),
        2 => Operation::Send,
        3 => Operation::SendImm(key),
        4 => Operation::Read(remote),
        5 => Operation::CompareSwap { remote, compare: word, swap: rng.next_u64() },
        6 => Operation::FetchAdd { remote, add: word },
        7 => Operation::LocalInvalidate(RemoteKey(key)),
        8 => Operation::SendInvalidate(RemoteKey(key)),
        _ => Operation::BindWindow(WindowBind {
            window: RemoteKey(key),
            new_key: RemoteKey(key ^ 1),
            region: LocalKey(rng.next_u32()),
            va: rng.next_u64(),
            length: word,
            access: Access::from_bits_truncate(rng.next_u32()),
        }),
    };
    let is_send = operation.consumes_receive() && !matches!(operation, Operation::WriteImm(..));
    let number = Qpn::new(rng.between(1, 0xFF_FFFF) as u32);
    let datagram = match (rng.chance(0.3), is_send) {
        (true, true) => {
            let mut gid = [0; 16];
            rng.fill(&mut gid);
            let [traffic_class, hop_limit, ..] = rng.next_u32().to_le_bytes();
            let address = Address { gid: Gid(gid), hop_limit, traffic_class, flow_label: rng.next_u32() };
            Some(Datagram { address, qpn: number, qkey: rng.next_u32() })
        }
        (true, false) if !operation.is_local() => Some(Datagram::to_shared_queue(number)),
        _ => None,
    };
    let flags = SendFlags {
        signaled: rng.chance(0.5),
        solicited: rng.chance(0.5),
        fence: rng.chance(0.5),
        inline: false,
    };
    SendWr { flags, datagram, ..SendWr::new(rng.next_u64(), operation, &[]) }
}

fn is_same(a: &SendWr<'_>, b: &SendWr<'_>) {
    assert_eq!((a.wr_id, a.operation, a.flags, a.datagram), (b.wr_id, b.operation, b.flags, b.datagram));
}

fn random_sge(rng: &mut Rng) -> Sge {
    Sge { addr: rng.next_u64(), length: rng.next_u32(), lkey: LocalKey(rng.next_u32()) }
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
        Data::Sges((0..rng.between(0, room as u64 / 16)).map(|_| random_sge(rng)).collect())
    }
}

fn check_send_ring(slots: u32, slot_bytes: u32, seed: u64) {
    let window = ring(SEND_RING, slots, slot_bytes);
    let mut producer = SendQueueProducer::attach(&window).unwrap();
    let mut consumer = SendQueueConsumer::attach(&window).unwrap();
    let capacity = producer.layout().slot_count();
    let mut model: VecDeque<(SendWr<'static>, Data)> = VecDeque::new();
    let (mut visible, mut held) = (0, 0);
    let mut rng = Rng::new(seed);
    for _ in 0..STEPS {
        match rng.below(8) {
            0..3 => {
                let (mut wr, data) = (random_request(&mut rng), random_data(&mut rng, slot_bytes));
                // A window to bind has no data.
                let data = if wr.operation.is_local() { Data::Sges(Vec::new()) } else { data };
                let posted = match &data {
                    Data::Inline(bytes) => producer.post_inline(&wr, bytes),
                    Data::Sges(sges) => producer.post(&SendWr { sges, ..wr }),
                };
                if model.len() + held == capacity {
                    assert_eq!(posted, Err(PostError::QueueFull));
                } else {
                    posted.unwrap();
                    wr.flags.inline = matches!(data, Data::Inline(_));
                    model.push_back((wr, data));
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
                let (expected, data) = model.pop_front().unwrap();
                let (mut bytes, mut sges) = ([0; MAX_INLINE_BYTES], [Sge::default(); MAX_SGES]);
                let found = slot.request(slot.sges(&mut sges)).unwrap();
                is_same(&found, &expected);
                match data {
                    Data::Inline(expected) => assert_eq!(slot.inline(&mut bytes), expected),
                    Data::Sges(expected) => assert_eq!(found.sges, expected),
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
fn what_a_check_permits_is_what_a_slot_holds() {
    for slot_bytes in [128, 192, 320] {
        let window = ring(SEND_RING, 64, slot_bytes);
        let mut producer = SendQueueProducer::attach(&window).unwrap();
        let room = slot_bytes as usize - 64;
        for count in [0, 1, room / 16, room / 16 + 1] {
            let sges = vec![Sge::default(); count];
            let wr = SendWr::new(1, Operation::Send, &sges);
            let expected = if count > room / 16 { Err(PostError::TooManySges) } else { Ok(()) };
            assert_eq!((producer.check(&wr, None), producer.post(&wr)), (expected, expected), "{count} SGEs");
        }
        let wr = SendWr::new(1, Operation::Send, &[]);
        for bytes in [0, 1, room, room + 1] {
            let expected = if bytes > room { Err(PostError::TooLong) } else { Ok(()) };
            let posted = producer.post_inline(&wr, &vec![7; bytes]);
            assert_eq!((producer.check(&wr, Some(bytes)), posted), (expected, expected), "{bytes} bytes");
        }
    }
}

#[test]
fn receive_rings_behave_like_a_queue() {
    for (slots, slot_bytes, max_sges) in [(1, 64, 3), (16, 64, 3), (4, 128, 7), (4, 320, 16)] {
        let window = ring(RECEIVE_RING, slots, slot_bytes);
        let mut producer = ReceiveQueueProducer::attach(&window).unwrap();
        let mut consumer = ReceiveQueueConsumer::attach(&window).unwrap();
        let mut model: VecDeque<(u64, Vec<Sge>)> = VecDeque::new();
        let mut rng = Rng::new(3);
        let too_many = vec![Sge::default(); max_sges + 1];
        let too_many = RecvWr { wr_id: 0, sges: &too_many };
        assert_eq!(producer.post(&too_many), Err(PostError::TooManySges));
        for _ in 0..STEPS {
            if rng.chance(0.5) {
                let sges: Vec<Sge> =
                    (0..rng.between(0, max_sges as u64)).map(|_| random_sge(&mut rng)).collect();
                let wr_id = rng.next_u64();
                match producer.post(&RecvWr { wr_id, sges: &sges }) {
                    Ok(()) => model.push_back((wr_id, sges)),
                    Err(error) => assert_eq!((error, model.len() as u32), (PostError::QueueFull, slots)),
                }
                producer.publish_release();
            } else if let Some(slot) = consumer.peek().unwrap() {
                let (wr_id, sges) = model.pop_front().unwrap();
                let mut buffer = [Sge::default(); MAX_SGES];
                let found = slot.request(&mut buffer).unwrap();
                assert_eq!((found.wr_id, found.sges), (wr_id, &sges[..]));
                consumer.advance();
                consumer.release();
            } else {
                assert!(model.is_empty());
            }
        }
    }
}

fn ended(wr_id: u64, status: CompletionStatus) -> Completion {
    Completion::new(wr_id, status, CompletionOp::Send, Qpn::new(7))
}

fn random_cqe(rng: &mut Rng) -> Cqe {
    let operation = loop {
        if let Some(operation) = CompletionOp::from_u8(rng.next_u32() as u8) {
            break operation;
        }
    };
    let status = loop {
        if let Some(status) = CompletionStatus::from_u8(rng.below(23) as u8) {
            break status;
        }
    };
    let completion = Completion {
        byte_len: rng.next_u32(),
        immediate: rng.next_u32(),
        source_qpn: Qpn::new(rng.next_u32()),
        flags: CompletionFlags {
            grh: rng.chance(0.5),
            with_immediate: rng.chance(0.5),
            with_invalidate: rng.chance(0.5),
            solicited: false,
            tags: TagFlags(rng.next_u32() as u8 & TagFlags::ALL.0),
        },
        ..Completion::new(rng.next_u64(), status, operation, Qpn::new(rng.next_u32()))
    };
    Cqe { completion, tag: rng.next_u64(), tag_context: rng.next_u32() }
}

#[test]
fn completion_rings_behave_like_a_queue_and_count_overruns() {
    let window = ring(COMPLETION_RING, 8, CQE_BYTES);
    let mut producer = CompletionQueueProducer::attach(&window).unwrap();
    let mut consumer = CompletionQueueConsumer::attach(&window).unwrap();
    let mut model = VecDeque::new();
    let (mut lost, mut pushed) = (0, 0u64);
    let mut rng = Rng::new(9);
    for _ in 0..STEPS {
        if rng.chance(0.5) {
            let cqe = random_cqe(&mut rng);
            match producer.push(&cqe) {
                Ok(()) => {
                    model.push_back(cqe);
                    pushed += 1;
                }
                Err(PushError::Overrun) => lost += 1,
                Err(other) => panic!("{other}"),
            }
            producer.publish_release();
        } else {
            let polled = consumer.poll().unwrap();
            assert_eq!(polled, model.pop_front());
            // It looks only if it has nothing left.
            let known = consumer.observed();
            assert!(known <= pushed && known >= pushed - model.len() as u64);
            assert!(polled.is_some() || known == pushed);
        }
        assert!(model.len() <= 8);
        assert_eq!(consumer.overruns(), lost);
    }
    assert!(lost > 0);
}

#[test]
fn arming_wakes_once_for_what_was_asked() {
    let window = ring(COMPLETION_RING, 8, CQE_BYTES);
    let mut engine = CompletionQueueProducer::attach(&window).unwrap();
    let mut application = CompletionQueueConsumer::attach(&window).unwrap();
    let mut complete = |status, solicited| {
        let mut completion = ended(1, status);
        completion.flags.solicited = solicited;
        engine.push(&completion.into()).unwrap();
        engine.publish_release();
        engine.take_notification()
    };
    assert!(!complete(CompletionStatus::Success, true), "nobody asked");
    assert_eq!(application.arm(Arm::Next), Ok(true), "one is waiting already");
    assert!(complete(CompletionStatus::Success, false));
    assert!(!complete(CompletionStatus::Success, false), "one request, one wake-up");
    while application.poll().unwrap().is_some() {}
    assert_eq!(application.arm(Arm::Solicited), Ok(false));
    assert!(!complete(CompletionStatus::Success, false), "not solicited");
    assert!(complete(CompletionStatus::Success, true));
    application.arm(Arm::Solicited).unwrap();
    assert!(complete(CompletionStatus::RemoteAccess, false), "a failure always wakes");
    application.arm(Arm::Next).unwrap();
    application.arm(Arm::Solicited).unwrap();
    assert!(complete(CompletionStatus::Success, false), "the weaker request does not replace the stronger");
}

#[test]
fn impossible_cursors_are_errors_on_both_sides() {
    let impossible = [9, 100, u64::MAX, 1 << 63, u64::MAX - 8];
    for cursor in impossible {
        let window = ring(SEND_RING, 8, 128);
        let mut consumer = SendQueueConsumer::attach(&window).unwrap();
        window.u64_at(offset::TAIL).store(cursor, Ordering::Release);
        assert_eq!(consumer.peek().unwrap_err(), CursorError { own: 0, found: cursor });
        assert!(SendQueueConsumer::attach(&window).is_err());

        let window = ring(COMPLETION_RING, 8, CQE_BYTES);
        let mut producer = CompletionQueueProducer::attach(&window).unwrap();
        for _ in 0..8 {
            producer.push(&ended(1, CompletionStatus::Success).into()).unwrap();
        }
        producer.publish_release();
        window.u64_at(offset::HEAD).store(cursor, Ordering::Release);
        let expected = PushError::Corrupt(CursorError { own: 8, found: cursor });
        assert_eq!(producer.push(&ended(1, CompletionStatus::Success).into()), Err(expected));
    }
}

#[test]
fn a_producer_that_takes_its_cursor_back_is_an_error() {
    let window = ring(RECEIVE_RING, 8, 64);
    let mut producer = ReceiveQueueProducer::attach(&window).unwrap();
    let mut consumer = ReceiveQueueConsumer::attach(&window).unwrap();
    for wr_id in 0..5 {
        producer.post(&RecvWr { wr_id, sges: &[] }).unwrap();
    }
    producer.publish_release();
    assert_eq!(consumer.available(), Ok(5));
    window.u64_at(offset::TAIL).store(2, Ordering::Release);
    assert_eq!(consumer.observe_available_acquire(), Err(CursorError { own: 0, found: 2 }));
}

#[test]
fn scribbled_slots_are_refused_and_never_read_beyond() {
    let mut rng = Rng::new(1);
    let window = ring(SEND_RING, 4, 128);
    let mut producer = SendQueueProducer::attach(&window).unwrap();
    let mut consumer = SendQueueConsumer::attach(&window).unwrap();
    for _ in 0..STEPS {
        producer.post_inline(&random_request(&mut rng), &[7; 64]).unwrap();
        producer.publish_release();
        for word in 0..64 {
            // The word with the opcode is often one that says no more than that, so that the others are looked at.
            let is_plain = word % 16 == 1 && rng.chance(0.5);
            let value = if is_plain { rng.below(12) } else { rng.next_u64() };
            window.u64_at(RING_HEADER_BYTES + 8 * word).store(value, Ordering::Relaxed);
        }
        let slot = consumer.peek().unwrap().unwrap();
        if let Ok(wr) = slot.request(slot.sges(&mut [Sge::default(); MAX_SGES])) {
            assert!(wr.sges.len() <= 4, "no more than the slot holds");
            assert!(!wr.operation.is_local() || wr.datagram.is_none(), "a local operation goes nowhere");
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
    let layout = RingLayout::new(COMPLETION_RING, 16, CQE_BYTES).unwrap();
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
                let completion = ended(wr_id, CompletionStatus::Success);
                if producer.push(&Cqe { completion, tag: !wr_id, tag_context: 0 }).is_ok() {
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
                    assert_eq!((cqe.completion.wr_id, cqe.tag), (expected, !expected));
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
        }
    });
}

#[test]
fn a_receive_that_several_want_has_one_taker() {
    let receives = if cfg!(miri) { 200 } else { 4_000 };
    let window = ring(RECEIVE_RING, 16, 64);
    let mut producer = ReceiveQueueProducer::attach(&window).unwrap();
    let mut takers: Vec<_> = (0..3).map(|_| ReceiveQueueConsumer::attach(&window).unwrap()).collect();
    let taken: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = takers
            .iter_mut()
            .map(|taker| {
                scope.spawn(move || {
                    let mut taken = Vec::new();
                    loop {
                        let mut buffer = [Sge::default(); MAX_SGES];
                        match taker.claim(&mut buffer) {
                            // Other threads were first every time.
                            Err(_) | Ok(None) => std::thread::yield_now(),
                            Ok(Some(Err(_))) => return taken,
                            Ok(Some(Ok(wr))) => {
                                let sge = Sge { addr: wr.wr_id, length: 8, lkey: LocalKey(9) };
                                assert_eq!(wr.sges, [sge], "it is whole");
                                taken.push(wr.wr_id);
                            }
                        }
                    }
                })
            })
            .collect();
        let post = |producer: &mut ReceiveQueueProducer, wr: &RecvWr<'_>| {
            while producer.post(wr).is_err() {
                std::thread::yield_now();
            }
            producer.publish_release();
        };
        for wr_id in 0..receives {
            let sge = Sge { addr: wr_id, length: 8, lkey: LocalKey(9) };
            post(&mut producer, &RecvWr { wr_id, sges: &[sge] });
        }
        while window.u64_at(offset::HEAD).load(Ordering::Acquire) != receives {
            std::thread::yield_now();
        }
        // One for each that claims more SGEs than fit: then the queue ends.
        for end in receives..receives + 3 {
            let slot = RING_HEADER_BYTES + (end % 16) as usize * 64;
            window.store_words_relaxed(slot, &[end, 0xFF]);
            window.u64_at(offset::TAIL).store(end + 1, Ordering::Release);
        }
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut sorted = taken;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..receives).collect::<Vec<_>>());
    // A cursor that no consumer can have reached.
    window.u64_at(offset::HEAD).store(receives + 99, Ordering::Relaxed);
    assert!(takers[0].claim(&mut [Sge::default(); MAX_SGES]).is_err());
}
