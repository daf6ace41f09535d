//! The cost of posting and polling on this machine: `cargo run --release -p highwire-rings --example
//! ring_cost`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use highwire_rings::*;
use highwire_shmem::*;
use highwire_verbs::{Completion, CompletionOp, CompletionStatus, Operation, SendWr};
use highwire_wire::Qpn;

const ROUNDS: u32 = 40_000;
const BATCH: u32 = 32;

fn ring(kind: RingKind, slot_bytes: u32) -> Window {
    let layout = RingLayout::new(kind, 256, slot_bytes).expect("a possible shape");
    let segment = Segment::anonymous_shared(layout.bytes()).expect("a memory file");
    let window = Window::whole(&Arc::new(segment));
    layout.create(&window).expect("room for the ring");
    window
}

/// Runs `batch` often and prints the median time per operation.
fn report(what: &str, mut batch: impl FnMut() -> std::time::Duration) {
    let mut times: Vec<_> = (0..ROUNDS).map(|_| batch()).collect();
    times.sort();
    let median_ns = times[times.len() / 2].as_nanos() as f64 / f64::from(BATCH);
    println!("{what:<44} {median_ns:6.1} ns");
}

fn main() {
    let window = ring(SEND_RING, 128);
    let mut producer = SendQueueProducer::attach(&window).expect("a valid ring");
    let mut consumer = SendQueueConsumer::attach(&window).expect("a valid ring");
    let board_window = Window::whole(&Arc::new(Segment::heap(4096)));
    let board = DoorbellBoard::create(&board_window, 64).expect("room for the board");
    let wr = SendWr::new(7, Operation::Send, &[]);
    let payload = [7u8; 32];
    let drain = |consumer: &mut SendQueueConsumer| {
        let mut bytes = [0; MAX_INLINE_BYTES];
        while let Some(slot) = consumer.peek().expect("sane cursors") {
            black_box((slot.request(&[]).expect("a good WQE"), slot.inline(&mut bytes)));
            consumer.advance();
        }
        consumer.release();
    };
    report("post 32 B inline SEND and publish", || {
        let start = Instant::now();
        for _ in 0..BATCH {
            producer.post_inline(black_box(&wr), black_box(&payload)).expect("room");
            producer.publish_release();
        }
        let time = start.elapsed();
        drain(&mut consumer);
        time
    });
    report("the same with the doorbell", || {
        let start = Instant::now();
        for _ in 0..BATCH {
            producer.post_inline(black_box(&wr), black_box(&payload)).expect("room");
            producer.publish_release();
            board.ring_seqcst(5);
        }
        let time = start.elapsed();
        black_box(board.take_acquire().count());
        drain(&mut consumer);
        time
    });
    report("engine: take and decode a WQE", || {
        for _ in 0..BATCH {
            producer.post_inline(&wr, &payload).expect("room");
        }
        producer.publish_release();
        let start = Instant::now();
        drain(&mut consumer);
        start.elapsed()
    });

    let window = ring(COMPLETION_RING, CQE_BYTES);
    let mut engine = CompletionQueueProducer::attach(&window).expect("a valid ring");
    let mut application = CompletionQueueConsumer::attach(&window).expect("a valid ring");
    let cqe = Cqe::from(Completion::new(7, CompletionStatus::Success, CompletionOp::Send, Qpn::new(9)));
    report("engine: push a CQE and publish", || {
        let start = Instant::now();
        for _ in 0..BATCH {
            engine.push(black_box(&cqe)).expect("room");
            engine.publish_release();
        }
        let time = start.elapsed();
        while application.poll().expect("sane cursors").is_some() {}
        time
    });
    report("poll a CQE", || {
        for _ in 0..BATCH {
            engine.push(&cqe).expect("room");
        }
        engine.publish_release();
        let start = Instant::now();
        for _ in 0..BATCH {
            black_box(application.poll().expect("sane cursors").expect("a completion"));
        }
        start.elapsed()
    });
    report("poll an empty CQ", || {
        let start = Instant::now();
        for _ in 0..BATCH {
            black_box(application.poll().expect("sane cursors"));
        }
        start.elapsed()
    });
}
