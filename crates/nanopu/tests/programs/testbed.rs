//! The switch in the middle adds nothing of its own.

use highwire_nanopu::client::{self, Client};

use super::*;
use crate::support::{CLIENT, NODE};

#[test]
fn a_host_in_the_switch_sees_what_a_generator_at_the_link_sees() {
    let Some(mut testbed) = testbed(&["loopback"], 1) else { return };
    let program = program("loopback").expect("built before");
    let mut alone = Node::new(&program, &NodeConfig::default()).expect("it fits");
    let sizes = [16, 64, 600, 1500, 8, 2048];
    let due = |i: usize| 10_000 + 3_001 * i as u64;
    let direct: Vec<_> = (0..24)
        .map(|i| client::Request { sent: due(i), context: 0, payload: vec![i as u8; sizes[i % 6]] })
        .collect();
    let around: Vec<_> = direct
        .iter()
        .map(|request| Request {
            sent: request.sent,
            node: NODE,
            context: 0,
            payload: request.payload.clone(),
        })
        .collect();
    let times = testbed.play(around, 100_000).expect("no trap");
    let answers = Client::new(CLIENT, NODE, LINK_CYCLES).play(&mut alone, &direct, 100_000, |_, _| {});
    for ((time, answer), request) in times.iter().zip(answers.expect("no trap")).zip(&direct) {
        let there = answer.map(|answer| answer.received - request.sent);
        assert_eq!(*time, there, "{} bytes", request.payload.len());
    }
}

#[test]
fn what_is_lost_comes_again() {
    let Some(mut testbed) = testbed(&["loopback"], 1) else { return };
    let mut count = 0;
    // Requests, answers and acknowledgements alike.
    testbed.lose(Some(Box::new(move |_, _| {
        count += 1;
        count % 3 == 0
    })));
    for i in 0..20 {
        let words: Vec<u64> = (i..i + 200).collect();
        assert_eq!(ask(&mut testbed, &words), words);
    }
    assert!(testbed.lost() > 20);
}
