//! Programs of `riscv/` on a core with a DMA NIC: every answer against a model in Rust, and on which cycle it leaves.

mod support;

use highwire_nanopu::client::Request;
use highwire_nanopu::dma::{DmaAnswer, DmaCounters, DmaError, DmaEvent, DmaLink, DmaNode, DmaNodeConfig};
use highwire_stdx::Rng;
use support::{CLIENT, NODE, program};

const START: u64 = 20_000;
const PATIENCE: u64 = 400_000;

fn node(name: &str) -> Option<DmaNode> {
    Some(DmaNode::new(&program(name)?, &DmaNodeConfig::default()).expect("it fits"))
}

fn requests(payloads: impl IntoIterator<Item = Vec<u8>>, interval: u64) -> Vec<Request> {
    let request = |(number, payload)| Request { sent: START + interval * number as u64, context: 3, payload };
    payloads.into_iter().enumerate().map(request).collect()
}

/// Plays requests to a program; nothing may be refused, and nothing may come back that was not asked for.
fn play(node: &mut DmaNode, requests: &[Request]) -> Vec<Option<DmaAnswer>> {
    let mut link = DmaLink::new(CLIENT, NODE, requests);
    let answers = link.play(node, PATIENCE, |_| {}).unwrap_or_else(|event| panic!("{event:?}"));
    assert_eq!((link.refused.as_slice(), link.strays), (&[][..], 0));
    answers
}

/// The payloads of all answers.
fn payloads(answers: Vec<Option<DmaAnswer>>) -> Vec<Vec<u8>> {
    answers.into_iter().map(|answer| answer.expect("answered").payload).collect()
}

fn bytes_of(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.next_u32() as u8).collect()
}

/// Lengths around every border, and some.
fn lengths(rng: &mut Rng) -> Vec<usize> {
    let edges = [0, 1, 2, 7, 8, 9, 15, 16, 63, 64, 65, 1023, 1024];
    edges.into_iter().chain((0..60).map(|_| rng.below(1025) as usize)).collect()
}

/// How a program takes the words of a message.
#[derive(Clone, Copy)]
struct Words {
    load: fn([u8; 8]) -> u64,
    store: fn(u64) -> [u8; 8],
}

const HOST: Words = Words { load: u64::from_le_bytes, store: u64::to_le_bytes };
const NETWORK: Words = Words { load: u64::from_be_bytes, store: u64::to_be_bytes };

impl Words {
    fn of(self, payload: &[u8]) -> Vec<u64> {
        payload.chunks_exact(8).map(|word| (self.load)(word.try_into().expect("eight"))).collect()
    }

    fn bytes(self, words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|&word| (self.store)(word)).collect()
    }
}

#[test]
fn loopback_returns_every_frame() {
    let mut rng = Rng::new(1);
    // One at a time, and as fast as the wire brings them.
    for interval in [3_000, 1] {
        let Some(mut node) = node("loopback_dma") else { return };
        let lengths = lengths(&mut rng);
        let sent: Vec<Vec<u8>> = lengths.into_iter().map(|bytes| bytes_of(&mut rng, bytes)).collect();
        // No more requests may be on their way than the NIC and its buffers hold.
        for sent in sent.chunks(13) {
            let start = node.cycle();
            let mut requests = requests(sent.to_vec(), interval);
            requests.iter_mut().for_each(|request| request.sent += start);
            assert_eq!(payloads(play(&mut node, &requests)), sent);
        }
        let DmaCounters { received, delivered, sent: left, probed, .. } = node.counters();
        assert_eq!((received, delivered, left, node.counters().lost()), (73, 73, 73, 0));
        assert!(probed > 73, "the headers of each frame lie in the first-level cache: {probed}");
    }
}

#[test]
fn stream_adds_one_to_each_word() {
    for (name, words) in [("stream_dma", HOST), ("stream_dma_swap", NETWORK)] {
        let Some(mut node) = node(name) else { return };
        let mut rng = Rng::new(2);
        let sent: Vec<Vec<u8>> =
            lengths(&mut rng).into_iter().map(|bytes| bytes_of(&mut rng, bytes)).collect();
        let found = payloads(play(&mut node, &requests(sent.clone(), 6_000)));
        for (sent, found) in sent.iter().zip(found) {
            let mut expected = words.of(sent);
            expected.iter_mut().for_each(|word| *word = word.wrapping_add(1));
            let rest = &sent[sent.len() / 8 * 8..];
            assert_eq!(found, [&words.bytes(&expected), rest].concat(), "{name}");
        }
    }
}

#[test]
fn all_dot_products_are_the_sum() {
    const OK: u64 = 0;
    const MALFORMED: u64 = 2;
    for (name, words) in [("dot_dma", HOST), ("dot_naive_dma", HOST), ("dot_naive_dma_swap", NETWORK)] {
        let Some(mut node) = node(name) else { return };
        let mut rng = Rng::new(3);
        let sent: Vec<Vec<u8>> =
            lengths(&mut rng).into_iter().map(|bytes| bytes_of(&mut rng, bytes)).collect();
        let found = payloads(play(&mut node, &requests(sent.clone(), 6_000)));
        for (sent, found) in sent.iter().zip(found) {
            let weighted = words.of(sent).into_iter().zip((0..).map(|index| 2 * index + 1));
            let sum = weighted.fold(0u64, |sum, (word, weight)| sum.wrapping_add(word.wrapping_mul(weight)));
            let expected = if sent.len() % 8 == 0 { vec![OK, sum] } else { vec![MALFORMED] };
            assert_eq!(words.of(&found), expected, "{name}, {} bytes", sent.len());
        }
    }
}

#[test]
fn frames_that_are_no_messages_get_no_answer() {
    for name in ["loopback_dma", "stream_dma", "dot_dma"] {
        let Some(mut node) = node(name) else { return };
        let mut rng = Rng::new(4);
        for number in 0..100 {
            let bytes = rng.between(1, 300) as usize;
            node.receive(START + 3_000 * number, bytes_of(&mut rng, bytes));
        }
        while node.cycle() < START + 400_000 {
            node.tick(|_| {});
        }
        let short =
            |event: &DmaEvent| matches!(event, DmaEvent::Sent(departure) if departure.frame.len() < 64);
        let events = node.take_events();
        assert!(events.iter().all(|event| matches!(event, DmaEvent::Sent(_))), "{events:?}");
        assert!(!events.iter().any(short), "loopback alone answers what it does not understand");
        assert_eq!((node.counters().delivered, node.counters().lost()), (100, 0));
        // The node still serves requests.
        let mut asked = requests([vec![0; 16]], 0);
        asked[0].sent = node.cycle();
        assert_eq!(payloads(play(&mut node, &asked)).len(), 1, "{name}");
    }
}

#[test]
fn a_run_repeats_itself_to_the_cycle() {
    let run = || {
        let mut node = node("stream_dma")?;
        let mut rng = Rng::new(5);
        let sent = (0..20).map(|_| bytes_of(&mut rng, 256));
        let answers = play(&mut node, &requests(sent, 1));
        Some((answers, node.counters(), node.core().hart.csrs.minstret))
    };
    assert_eq!(run(), run());
}

#[test]
fn more_frames_than_it_can_take_are_lost_and_counted() {
    let Some(mut node) = node("stream_dma") else { return };
    let asked = requests((0..200).map(|_| vec![1; 1024]), 1);
    let mut link = DmaLink::new(CLIENT, NODE, &asked);
    let answers = link.play(&mut node, PATIENCE, |_| {}).unwrap_or_else(|event| panic!("{event:?}"));
    let answered = answers.iter().flatten().count() as u64;
    let counters = node.counters();
    assert!(counters.without_room > 0, "{counters:?}");
    assert_eq!(answered + counters.lost(), 200);
    assert_eq!((counters.received, counters.delivered, counters.sent), (200, answered, answered));
}

#[test]
fn a_program_that_reads_no_register_traps() {
    // The nanoPU's program finds none of its registers here.
    let Some(mut node) = node("loopback") else { return };
    let asked = requests([vec![0; 16]], 0);
    let mut link = DmaLink::new(CLIENT, NODE, &asked);
    let end = link.play(&mut node, PATIENCE, |_| {});
    assert!(matches!(end, Err(DmaEvent::Trapped { .. })), "{end:?}");
    let refusal = DmaError::Misaligned { address: 0x8000_0004 };
    assert_eq!(refusal.to_string(), "a receive buffer at 0x80000004, no multiple of eight");
}

/// The median cycles from a frame's first word in to its answer's last word out, and those from first to first.
fn latency(bytes: usize) -> Option<(u64, u64)> {
    let mut node = node("loopback_dma")?;
    // The first ones meet receive buffers that no cache holds; there are 32.
    let asked = requests((0..60).map(|_| vec![7; bytes]), 3_007);
    let answers = play(&mut node, &asked);
    let middle = |span: fn(&DmaAnswer) -> u64| {
        let mut spans: Vec<u64> = answers[40..].iter().flatten().map(span).collect();
        spans.sort_unstable();
        spans[spans.len() / 2]
    };
    Some((middle(|answer| answer.last + 1 - answer.asked), middle(|answer| answer.first - answer.asked)))
}

#[test]
fn loopback_is_slower_than_the_nanopu_at_every_size() {
    // The nanoPU's published medians.
    let nanopu = [(16, 55), (32, 63), (64, 78), (128, 101), (256, 151), (512, 250), (1024, 445)];
    for (bytes, cycles) in nanopu {
        let Some((last, first)) = latency(bytes) else { return };
        println!("{bytes} B: {first} to the first word, {last} to the last: {:.1} ns", last as f64 / 3.2);
        assert!(last > cycles + 50, "{bytes} bytes: {last} cycles");
        // Frames are stored twice on their way in, and once on their way out.
        assert!(last >= 3 * (64 + bytes as u64) / 8);
    }
}
