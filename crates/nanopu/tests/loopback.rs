//! One message at a time through a node, from the first word in to the last word out, against the prototype's published range.

mod support;

use highwire_nanopu::packet::flag;
use highwire_nanopu::{Node, NodeConfig, NodeEvent};
use support::{program, request};

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
                    let reply = highwire_nanopu::packet::Packet {
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
    assert_eq!(node.misuse(0).empty_reads, 0);
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
        // The program is not the authors': its loops cost a few cycles more here, a few less there.
        assert!((ours as f64 - median).abs() <= 5.0, "{bytes} B: {ours} instead of {median}");
    }
}
