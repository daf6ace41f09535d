//! One message at a time through a node, from the first word in to the last word out, against the prototype's published range.

mod support;

use highwire_nanopu::nic::CutThrough;
use highwire_nanopu::packet::{Packet, flag};
use highwire_nanopu::{Mistake, Node, NodeConfig, NodeEvent, Stage, Stamp};
use support::{CLIENT, NODE, program};

/// A message of one packet for a context of the node.
fn request(message: u16, context: u16, payload: Vec<u8>) -> Packet {
    Packet {
        source: CLIENT,
        destination: NODE,
        flags: flag::DATA,
        source_context: 9,
        destination_context: context,
        message_bytes: payload.len() as u16,
        message,
        buffer: message,
        payload,
        ..Packet::default()
    }
}

/// Payload bytes, and the published minimum, median and maximum in cycles.
const PUBLISHED: [(usize, u64, f64, u64); 7] = [
    (16, 52, 55.0, 57),
    (32, 60, 63.0, 113),
    (64, 75, 78.0, 82),
    (128, 99, 101.0, 110),
    (256, 149, 151.5, 172),
    (512, 247, 250.0, 271),
    (1024, 441, 445.0, 463),
];

/// Sends `payload` when the node is idle; the cycles of the first word in, the acknowledgement out, and the answer out.
fn once(node: &mut Node, message: u16, payload: &[u8], wait: u64) -> (u64, u64, u64) {
    for _ in 0..wait {
        node.tick(|_, _| {});
    }
    let first = node.cycle();
    node.receive(first, request(message, 0, payload.to_vec()));
    let (mut control, mut answer) = (None, None);
    for _ in 0..4000 {
        node.tick(|_, _| {});
        for event in node.take_events() {
            match event {
                NodeEvent::Sent { first, packet } if packet.flags & flag::DATA != 0 => {
                    assert_eq!(packet.payload, payload);
                    let ack = flag::ACK | flag::PULL;
                    let reply = Packet {
                        source: packet.destination,
                        destination: packet.source,
                        flags: ack,
                        pull_offset: 9,
                        payload: Vec::new(),
                        ..packet
                    };
                    answer = Some(first);
                    node.receive(first + 200, reply);
                }
                NodeEvent::Sent { first, packet } => {
                    assert_eq!(packet.flags, flag::ACK | flag::PULL);
                    control = Some(first);
                }
                NodeEvent::Trapped { pc, trap, .. } => panic!("{trap} at {pc:#x}"),
            }
        }
        if let (Some(control), Some(answer)) = (control, answer) {
            return (first, control, answer);
        }
    }
    panic!(
        "no answer to message {message}: {:?} {:?} {:?} at {:#x}",
        node.nic().received(),
        node.nic().sent(),
        node.misuse(0),
        node.core(0).hart.pc
    );
}

fn latencies(bytes: usize) -> Option<Vec<u64>> {
    let mut node = Node::new(&program("loopback")?, &NodeConfig::default()).expect("it fits");
    let payload: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
    let words = (64 + bytes as u64) / 8;
    // The first messages warm the caches and the predictor up.
    let all = (0..24u16).map(|message| {
        let (first, control, answer) = once(&mut node, message, &payload, 3000 + 7 * u64::from(message));
        assert_eq!(
            control - first,
            words - 1 + 10,
            "the acknowledgement leaves before the core has seen anything"
        );
        answer + words - first
    });
    let all: Vec<u64> = all.collect();
    assert_eq!(node.misuse(0).count(Mistake::EmptyRead), 0);
    Some(all[4..].to_vec())
}

#[test]
fn loopback_is_as_fast_as_the_prototype() {
    for (bytes, least, median, most) in PUBLISHED {
        let Some(mut found) = latencies(bytes) else { return };
        found.sort_unstable();
        let ours = found[found.len() / 2];
        println!(
            "{bytes} B: {} to {}, median {ours}; published {least} to {most}, {median}",
            found[0], found[19]
        );
        // The program is not the authors', so not the median, but what they saw is the band.
        assert!((least..=most).contains(&ours), "{bytes} B: {ours} outside {least} to {most}");
    }
}

/// The cycles at which `stage` was passed after `from`, counted from there.
fn passed(stamps: &[Stamp], from: u64, stage: Stage) -> Vec<u64> {
    let after = stamps.iter().filter(|stamp| stamp.cycle >= from && stamp.stage == stage);
    after.map(|stamp| stamp.cycle - from).collect()
}

#[test]
fn each_stage_takes_what_it_does_in_hardware() {
    let Some(program) = program("loopback") else { return };
    let mut node = Node::new(&program, &NodeConfig::default()).expect("it fits");
    let payload = [7; 16];
    for message in 0..4 {
        once(&mut node, message, &payload, 4000);
    }
    node.record_timeline();
    let (from, ..) = once(&mut node, 4, &payload, 4000);
    let stamps = node.take_timeline();
    let at = |stage| passed(&stamps, from, stage);
    // Cycles of one 16-byte message on the prototype, from its first word on the interface.
    assert_eq!(at(Stage::WireIn)[0], 0);
    assert_eq!(at(Stage::Ingress)[0], 16);
    assert_eq!(at(Stage::Controlled), [18]);
    assert_eq!(at(Stage::Reassembled), [19]);
    assert_eq!(at(Stage::WordDelivered), [21, 22, 23]);
    // When the program reads depends on where its loop stands; from its last write on, hardware counts again: 42 · 43 · 46 · 47.
    let written = *at(Stage::WordWritten).last().unwrap();
    assert_eq!(*at(Stage::WordAccepted).last().unwrap(), written + 1);
    assert_eq!(at(Stage::Packetized), [written + 4]);
    assert_eq!(at(Stage::WireOut)[..2], [19, written + 5]);
    let reads = at(Stage::WordRead);
    assert!((24..=37).contains(&reads[0]) && reads.len() == 3, "{reads:?}");
}

#[test]
fn cut_through_saves_two_of_three_stores() {
    let Some(program) = program("loopback") else { return };
    let mut config = NodeConfig::default();
    config.nic.cut_through = Some(CutThrough::default());
    let mut node = Node::new(&program, &config).expect("it fits");
    for (bytes, most) in [(1024, 210), (256, 110), (16, 54)] {
        let payload = vec![3; bytes];
        let words = (64 + bytes as u64) / 8;
        // The first messages are slowed down by cold caches, and damaged for it.
        for message in 0..8u16 {
            let before = node.nic().sent().underruns;
            let (first, _, answer) = once(&mut node, message + 8 * bytes as u16, &payload, 4000);
            let (last, damaged) = (answer + words - first, node.nic().sent().underruns - before);
            println!("{bytes} B: {last} cycles with cut-through, {damaged} times damaged");
            assert!(message < 5 || (last <= most && damaged == 0), "{bytes} B: {last}, {damaged}");
        }
    }
}
