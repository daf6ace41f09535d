//! Shared memory with any bytes of the other side: attaching fails, or reading stays within bounds.

use std::sync::Arc;

use highwire_rings::{
    COMPLETION_RING, CompletionQueueConsumer, CompletionQueueProducer, MAX_INLINE_BYTES, MAX_SGES,
    RECEIVE_RING, ReceiveQueueConsumer, ReceiveQueueProducer, SEND_RING, SendQueueConsumer,
    SendQueueProducer,
};
use highwire_shmem::{DoorbellBoard, RingHeader, RingLayout, Segment, Window};
use highwire_stdx::Rng;
use highwire_verbs::{Completion, CompletionOp, CompletionStatus, LocalKey, RecvWr, Sge};
use highwire_wire::Qpn;

/// Mapped memory is whole words.
const WORD_BYTES: usize = 8;
const SEGMENT_BYTES_MAX: usize = 16 * 1024;
const READS: usize = 64;

/// Memory of any content, to which every kind of end attaches.
pub(crate) fn rings(input: &[u8]) {
    let bytes = &input[..input.len().min(SEGMENT_BYTES_MAX) / WORD_BYTES * WORD_BYTES];
    if bytes.is_empty() {
        return;
    }
    let segment = Arc::new(Segment::heap(bytes.len()));
    let window = Window::whole(&segment);
    window.copy_in(0, bytes);
    for kind in [SEND_RING, RECEIVE_RING, COMPLETION_RING] {
        if let Ok(header) = RingHeader::read(&window)
            && let Ok(layout) = RingLayout::validate(&header, kind, window.len())
        {
            assert!(layout.bytes() <= window.len(), "a valid ring lies within its memory");
        }
    }
    send(&window);
    receive(&window);
    completion(&window);
    if let Ok(board) = DoorbellBoard::attach(&window) {
        assert!(board.bits() as usize <= window.len() * 8, "a bit for every doorbell");
    }
}

fn send(window: &Window) {
    if let Ok(mut consumer) = SendQueueConsumer::attach(window) {
        for _ in 0..READS {
            let Ok(Some(slot)) = consumer.peek() else { break };
            let (mut data, mut sges) = ([0; MAX_INLINE_BYTES], [Sge::default(); MAX_SGES]);
            if let Ok(wr) = slot.request(slot.sges(&mut sges)) {
                assert!(slot.inline(&mut data).len() <= MAX_INLINE_BYTES);
                assert!(wr.sges.len() <= MAX_SGES);
            }
            consumer.advance();
        }
        consumer.release();
    }
    if let Ok(mut producer) = SendQueueProducer::attach(window) {
        let slots = producer.layout().slot_count() as u64;
        if let Ok(free) = producer.free_slots() {
            assert!(free <= slots, "no more slots are free than there are");
        }
    }
}

fn receive(window: &Window) {
    if let Ok(mut consumer) = ReceiveQueueConsumer::attach(window) {
        for _ in 0..READS {
            let Ok(Some(slot)) = consumer.peek() else { break };
            let mut sges = [Sge::default(); MAX_SGES];
            if let Ok(wr) = slot.request(&mut sges) {
                assert!(wr.sges.len() <= MAX_SGES);
            }
            consumer.advance();
        }
        consumer.release();
    }
    if let Ok(mut producer) = ReceiveQueueProducer::attach(window) {
        let posted =
            producer.post(&RecvWr { wr_id: 7, sges: &[Sge { addr: 64, length: 64, lkey: LocalKey(1) }] });
        if posted.is_ok() {
            producer.publish_release();
        }
    }
}

fn completion(window: &Window) {
    if let Ok(mut consumer) = CompletionQueueConsumer::attach(window) {
        for _ in 0..READS {
            if !matches!(consumer.poll(), Ok(Some(_))) {
                break;
            }
        }
    }
    if let Ok(mut producer) = CompletionQueueProducer::attach(window) {
        let done = Completion::new(7, CompletionStatus::Success, CompletionOp::Send, Qpn::new(9));
        let _ = producer.push(&done.into());
        producer.publish_release();
        producer.take_notification();
    }
}

/// Rings as they are made, with slots of random bytes and some of them in use.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut rng = Rng::new(1);
    let mut seeds = Vec::new();
    for (kind, slot_bytes) in [(SEND_RING, 128), (SEND_RING, 320), (RECEIVE_RING, 64), (COMPLETION_RING, 64)]
    {
        for slots in [1, 4, 16] {
            let Ok(layout) = RingLayout::new(kind, slots, slot_bytes) else { continue };
            let window = Window::whole(&Arc::new(Segment::heap(layout.bytes())));
            let mut noise = vec![0; layout.bytes()];
            rng.fill(&mut noise);
            window.copy_in(0, &noise);
            layout.create(&window).expect("the window has the layout's size");
            seeds.push(contents(&window));
            let tail = highwire_shmem::offset::TAIL;
            window.copy_in(tail, &u64::from(slots).to_le_bytes());
            seeds.push(contents(&window));
        }
    }
    seeds
}

fn contents(window: &Window) -> Vec<u8> {
    let mut bytes = vec![0; window.len()];
    window.copy_out(0, &mut bytes);
    bytes
}
