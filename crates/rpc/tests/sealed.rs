//! A cluster with a key, and attackers who have none: forged, bent, replayed, delayed and oversized datagrams change nothing, and are counted.

mod common;
#[path = "common/storm.rs"]
mod storm;

use common::{ECHO, Faults, Net, grh};
use highwire_rpc::wire::{GREETING_LEN, Greeting, HEADER_LEN, Header, Immediate, Kind};
use highwire_rpc::{CallError, ClusterKey, Config, Counters, Endpoint, Node, Received, SEAL_LEN, Worker};
use highwire_stdx::{Duration, Rng};
use highwire_wire::Qpn;
use std::cell::RefCell;
use std::rc::Rc;
use storm::Storm;

fn with_key(key: u8) -> impl Fn(&mut Config) + Copy {
    move |config| config.key = Some(ClusterKey([key; 32]))
}

/// What was on the wire: sender, receiver, immediate, bytes.
type Capture = Rc<RefCell<Vec<(usize, usize, u32, Vec<u8>)>>>;

fn capture(net: &mut Net) -> Capture {
    let capture = Capture::default();
    let of = Rc::clone(&capture);
    net.drop_if = Some(Box::new(move |from, to, immediate, bytes| {
        of.borrow_mut().push((from, to, immediate, bytes.to_vec()));
        false
    }));
    capture
}

async fn echo(worker: Worker, to: u16, length: usize) -> Result<usize, CallError> {
    worker.call(Node(to), ECHO, &vec![7; length]).await.map(|reply| reply.len())
}

/// Short and long calls in both directions.
fn talk(net: &mut Net) {
    for length in [1, 300, 9000] {
        for (from, to) in [(0, 1), (1, 0)] {
            let running = net.spawn(from, |worker| echo(worker, to, length));
            assert_eq!(net.until(&running), Ok(length));
        }
    }
}

/// The ways in which an endpoint counts a datagram that it does not take up.
fn turned_away(counters: &Counters) -> u64 {
    let Counters { forged, replayed, refused, malformed, strangers, stale_responses, duplicates, .. } =
        *counters;
    forged + replayed + refused + malformed + strangers + stale_responses + duplicates
}

/// What must not grow because of an attacker.
fn work(counters: &Counters) -> [u64; 7] {
    let Counters { handled, duplicates, refused, resent, silent, malformed, challenged, .. } = *counters;
    [handled, duplicates, refused, resent, silent, malformed, challenged]
}

#[test]
fn a_storm_with_a_key_is_answered_once_whatever_the_network_does() {
    for seed in 0..6 {
        let mut net = Net::new(3, seed, with_key(3));
        net.faults = Faults::ROUGH;
        let mut storm = Storm::new(3, 6, 12);
        (0..3).for_each(|index| storm.prepare(net.endpoint(index)));
        while !storm.is_over() {
            assert!(net.step(), "seed {seed}: nothing happens any more");
        }
        assert!(storm.check(&format!("seed {seed}")) > 100);
        for index in 0..3 {
            let counters = net.endpoint(index).counters();
            assert_eq!((counters.forged, counters.malformed), (0, 0), "{counters:?}");
            assert!(counters.replayed > 0, "the network has sent some twice");
        }
    }
}

#[test]
fn no_bit_of_a_datagram_can_be_another_one() {
    let mut net = Net::new(2, 1, with_key(3));
    let wire = capture(&mut net);
    talk(&mut net);
    net.drop_if = None;
    let mut rng = Rng::new(5);
    let (mut tried, before) = ([0; 2], [0, 1].map(|index| net.endpoint(index).counters()));
    for (from, to, immediate, bytes) in wire.borrow().iter() {
        let mut bent =
            vec![(*immediate, bytes[..bytes.len() - 1].to_vec()), (*immediate, [bytes, &[0][..]].concat())];
        bent.push((*immediate, bytes[..bytes.len() - SEAL_LEN].to_vec()));
        bent.push((*immediate, vec![0xFF; 9000]));
        bent.extend((0..32).map(|bit| (immediate ^ 1 << bit, bytes.clone())));
        let places: Vec<usize> = match bytes.len() {
            short @ ..=400 => (0..short).collect(),
            long => (0..64).chain(long - 64..long).collect(),
        };
        bent.extend(places.into_iter().map(|at| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << rng.below(8);
            (*immediate, bytes)
        }));
        for (immediate, bytes) in bent {
            net.inject(*to, *from, immediate, &bytes);
            tried[*to] += 1;
        }
    }
    for index in 0..2 {
        let counters = net.endpoint(index).counters();
        // A request for another life is refused without being looked at. Nobody listens to that.
        let refused = counters.refused - before[index].refused;
        assert_eq!(counters.forged - before[index].forged + refused, tried[index], "{counters:?}");
        assert_eq!((counters.handled, counters.malformed), (before[index].handled, 0));
    }
    talk(&mut net);
    assert_eq!([0, 1].map(|index| net.endpoint(index).counters().resent), [0, 0], "nothing was rescued");
}

#[test]
fn what_was_on_the_wire_once_counts_once_in_any_order_and_in_any_later_life() {
    for seed in 0..8 {
        let mut net = Net::new(2, seed, with_key(3));
        let wire = capture(&mut net);
        talk(&mut net);
        net.drop_if = None;
        let mut rng = Rng::new(seed);
        let mut replay = |net: &mut Net, ends: &[usize]| {
            let all = wire.borrow();
            for _ in 0..2 * all.len() {
                let (from, to, immediate, bytes) = rng.pick(&all);
                if ends.contains(to) {
                    net.inject(*to, *from, *immediate, bytes);
                }
            }
        };
        let before = [0, 1].map(|index| work(&net.endpoint(index).counters()));
        replay(&mut net, &[0, 1]);
        net.run_for(Duration::from_millis(5));
        assert_eq!([0, 1].map(|index| work(&net.endpoint(index).counters())), before, "seed {seed}");
        assert!([0, 1].iter().all(|&index| net.endpoint(index).counters().replayed > 10));
        // One end has another life: it hears its former life's capture before anything else.
        net.stop(0);
        net.start(0, with_key(3));
        replay(&mut net, &[0]);
        net.run_for(Duration::from_millis(5));
        let counters = net.endpoint(0).counters();
        assert_eq!(counters.handled, 0, "seed {seed}: {counters:?}");
        talk(&mut net);
        replay(&mut net, &[0, 1]);
        net.run_for(Duration::from_millis(5));
        talk(&mut net);
        for index in 0..2 {
            let counters = net.endpoint(index).counters();
            assert_eq!((counters.resent, counters.silent), (0, 0), "seed {seed}: {counters:?}");
        }
    }
}

#[test]
fn without_the_key_or_with_another_one_nothing_is_heard() {
    let open = |config: &mut Config| config.key = None;
    let check = |own: &dyn Fn(&mut Config), theirs: &dyn Fn(&mut Config), is_keyed: bool| {
        let mut net = Net::new(2, 1, own);
        net.stop(0);
        net.start(0, |config| {
            theirs(config);
            config.failure_after = Duration::from_millis(50);
        });
        let running = net.spawn(0, |worker| echo(worker, 1, 1));
        assert_eq!(net.until(&running), Err(CallError::PeerSilent(Node(1))));
        let counters = net.endpoint(1).counters();
        assert_eq!((counters.handled, counters.challenged), (0, 0), "{counters:?}");
        let (dropped, other) = match is_keyed {
            true => (counters.forged, counters.malformed),
            false => (counters.malformed, counters.forged),
        };
        assert!(dropped > 0 && other == 0 && dropped == counters.received, "{counters:?}");
    };
    check(&with_key(3), &with_key(4), true);
    check(&with_key(3), &open, true);
    check(&open, &with_key(3), false);
}

/// An endpoint that hears one datagram after the other; what it says is lost.
fn hear(endpoint: &mut Endpoint, net: &Net, immediate: u32, bytes: &[u8]) {
    let grh = grh(0);
    let received = Received { immediate, source_qpn: Qpn::new(116), grh: Some(&grh), bytes };
    endpoint.handle_receive(net.now, &received);
    endpoint.run(net.now);
    endpoint.transmit(|_| true);
}

#[test]
fn a_greeting_of_an_attacker_is_not_even_challenged() {
    let mut net = Net::new(2, 1, with_key(3));
    talk(&mut net);
    let before = net.endpoint(1).counters();
    let (mut head, mut body) = ([0; HEADER_LEN], [0; GREETING_LEN]);
    for sequence in 0..200 {
        Greeting { incarnation: 9999, slots: 32, datagram_bytes: 4096 }.emit(&mut body);
        Header { node: 0, from: 9999, to: 0, sequence }.emit(&mut head);
        let immediate = Immediate { kind: Kind::Hello, count: 0, slot: 0, fence: 0 }.to_bits();
        let bytes = [&head[..], &body, &u64::from(sequence).to_be_bytes(), &[sequence as u8; 8]].concat();
        let now = &Net::new(0, 1, |_| {});
        hear(net.endpoint(1), now, immediate, &bytes);
    }
    let after = net.endpoint(1).counters();
    assert_eq!((after.forged - before.forged, after.challenged), (200, before.challenged));
    assert_eq!(after.transmitted, before.transmitted, "nothing is said to an attacker");
    talk(&mut net);
}

#[test]
fn a_peer_that_has_started_again_is_told_from_one_that_is_silent() {
    let mut net = Net::new(2, 1, with_key(3));
    talk(&mut net);
    net.stop(1);
    net.start(1, with_key(3));
    let running = net.spawn(0, |worker| echo(worker, 1, 1));
    assert_eq!(net.until(&running), Err(CallError::PeerRestarted(Node(1))));
    talk(&mut net);
    assert_eq!(net.endpoint(0).counters().resent, 0);
}

#[test]
fn a_cluster_with_a_key_is_not_talked_down_to_none() {
    let mut open = Net::new(2, 1, |config| config.key = None);
    let wire = capture(&mut open);
    talk(&mut open);
    let mut net = Net::new(2, 1, with_key(3));
    // In one round before the nodes have met, and in one after: lives and names are those of the capture.
    for is_acquainted in [false, true] {
        if is_acquainted {
            talk(&mut net);
        }
        let before = [0, 1].map(|index| net.endpoint(index).counters());
        let mut tried = [0; 2];
        for (from, to, immediate, bytes) in wire.borrow().iter() {
            let other_key = [&bytes[..], &1u64.to_be_bytes(), &[0x5A; 8]].concat();
            for bytes in [bytes.clone(), [bytes, &[0; SEAL_LEN][..]].concat(), other_key] {
                net.inject(*to, *from, *immediate, &bytes);
                tried[*to] += 1;
            }
        }
        for index in 0..2 {
            let (now, before) = (net.endpoint(index).counters(), before[index]);
            assert_eq!(work(&now)[..2], work(&before)[..2], "something was executed");
            assert_eq!(now.malformed, 0, "an open endpoint's reading was tried: {now:?}");
            assert_eq!(turned_away(&now) - turned_away(&before), tried[index], "{now:?}");
            assert_eq!(now.challenged, before.challenged);
        }
    }
    talk(&mut net);
    // The other way round: a seal tells an endpoint without a key nothing.
    let mut keyed = Net::new(2, 1, with_key(3));
    let wire = capture(&mut keyed);
    talk(&mut keyed);
    let mut net = Net::new(2, 1, |config| config.key = None);
    talk(&mut net);
    let before = [0, 1].map(|index| net.endpoint(index).counters());
    for (from, to, immediate, bytes) in wire.borrow().iter() {
        net.inject(*to, *from, *immediate, bytes);
    }
    for index in 0..2 {
        let (now, before) = (net.endpoint(index).counters(), before[index]);
        assert_eq!(now.handled, before.handled, "something was executed");
        assert_eq!(turned_away(&now) - turned_away(&before), now.received - before.received, "{now:?}");
    }
    talk(&mut net);
}

#[test]
fn datagrams_of_no_length_that_there_is_are_counted_and_nothing_else() {
    let mut net = Net::new(2, 1, with_key(3));
    let wire = capture(&mut net);
    talk(&mut net);
    net.drop_if = None;
    let (before, sent) = (net.endpoint(1).counters(), net.sent);
    let mut rng = Rng::new(9);
    let mut tried = 0;
    for (from, to, immediate, bytes) in wire.borrow().iter().filter(|datagram| datagram.1 == 1) {
        let lengths = (0..=HEADER_LEN + SEAL_LEN + GREETING_LEN).chain([4096, 4097, 9000, 65_507]);
        for length in lengths.filter(|&length| length != bytes.len()) {
            let mut other = bytes.clone();
            other.truncate(length);
            other.resize_with(length, || rng.below(256) as u8);
            let forged = net.endpoint(1).counters().forged;
            net.inject(*to, *from, *immediate, &other);
            let is_forged = net.endpoint(1).counters().forged > forged;
            assert!(is_forged || length >= SEAL_LEN, "one without a seal was read");
            tried += 1;
        }
    }
    let now = net.endpoint(1).counters();
    assert!(tried > 500, "{tried}");
    assert_eq!(turned_away(&now) - turned_away(&before), tried, "{now:?}");
    assert_eq!((now.received - before.received, now.handled), (tried, before.handled));
    // A request for another life is told so, and nothing else is said.
    assert_eq!(net.sent - sent, now.refused - before.refused, "an attacker was answered");
    talk(&mut net);
}

#[test]
fn a_stolen_capture_is_counted_datagram_by_datagram_and_changes_nothing() {
    let mut net = Net::new(2, 1, with_key(3));
    let wire = capture(&mut net);
    talk(&mut net);
    net.drop_if = None;
    let is_greeting =
        |immediate: u32| Immediate::from_bits(immediate).is_ok_and(|immediate| immediate.kind == Kind::Hello);
    for life in 0..2 {
        if life > 0 {
            // The life that the capture was for is over.
            net.stop(1);
            net.start(1, with_key(3));
            let running = net.spawn(0, |worker| echo(worker, 1, 1));
            assert_eq!(net.until(&running), Err(CallError::PeerRestarted(Node(1))));
            talk(&mut net);
        }
        net.run_for(Duration::from_millis(500));
        let before = [0, 1].map(|index| net.endpoint(index).counters());
        let mut played = [0; 2];
        for (from, to, immediate, bytes) in wire.borrow().iter().filter(|datagram| !is_greeting(datagram.2)) {
            net.inject(*to, *from, *immediate, bytes);
            played[*to] += 1;
        }
        let now = [0, 1].map(|index| net.endpoint(index).counters());
        for index in 0..2 {
            assert_eq!(now[index].handled, before[index].handled, "life {life}");
            let counted = turned_away(&now[index]) - turned_away(&before[index]);
            assert_eq!(counted, played[index], "life {life}: {:?}", now[index]);
        }
        talk(&mut net);
        assert_eq!([0, 1].map(|index| net.endpoint(index).counters().resent), [0, 0], "nothing was rescued");
    }
}

#[test]
fn an_answer_to_a_greeting_of_long_ago_is_a_replay() {
    let mut net = Net::new(2, 1, with_key(3));
    let wire = capture(&mut net);
    talk(&mut net);
    let is_welcome =
        |immediate: u32| Immediate::from_bits(immediate).is_ok_and(|parsed| parsed.kind == Kind::Welcome);
    let wire = wire.borrow();
    let (from, to, immediate, bytes) =
        wire.iter().find(|datagram| datagram.1 == 0 && is_welcome(datagram.2)).expect("an answer");
    // The same lives once more, and the other end says nothing.
    let mut net = Net::new(2, 1, with_key(3));
    net.stop(1);
    let running = net.spawn(0, |worker| echo(worker, 1, 1));
    net.run_for(Duration::from_millis(800));
    assert!(net.sent > 8, "{} greetings", net.sent);
    let before = net.endpoint(0).counters();
    net.inject(*to, *from, *immediate, bytes);
    let now = net.endpoint(0).counters();
    assert_eq!((now.replayed - before.replayed, now.transmitted), (1, before.transmitted), "{now:?}");
    assert_eq!(net.until(&running), Err(CallError::PeerSilent(Node(1))));
}

/// Endpoint 0 serves the others, of which each has a key of its own that it gets from `key`. None of them has the cluster's.
fn guests(count: usize, key: impl Fn(usize) -> ClusterKey + Copy) -> Net {
    let mut net = Net::new(count, 1, with_key(3));
    for index in 1..count {
        net.endpoint(0).set_peer_key(Node(index as u16), key(index));
        net.start(index, |config| config.key = Some(key(index)));
    }
    net
}

#[test]
fn a_peer_with_a_key_of_its_own_is_heard_and_cannot_speak_for_another_one() {
    let mut net = guests(3, |index| ClusterKey([10 + index as u8; 32]));
    let wire = capture(&mut net);
    for from in [1, 2] {
        let running = net.spawn(from, |worker| echo(worker, 0, 300));
        assert_eq!(net.until(&running), Ok(300));
    }
    net.drop_if = None;
    assert_eq!(net.endpoint(0).counters().handled, 2);
    // Peer 1 has all that peer 2 has but its key.
    net.start(2, |config| config.key = Some(ClusterKey([11; 32])));
    let running = net.spawn(2, |worker| echo(worker, 0, 1));
    assert_eq!(net.until(&running), Err(CallError::PeerSilent(Node(0))));
    let counters = net.endpoint(0).counters();
    assert!(counters.handled == 2 && counters.forged > 0, "{counters:?}");
    // And what peer 2 has sent is not heard from peer 1.
    for (from, _, immediate, bytes) in wire.borrow().iter().filter(|datagram| datagram.1 == 0) {
        net.inject(0, 3 - from, *immediate, bytes);
    }
    assert_eq!(net.endpoint(0).counters().handled, 2);
}

#[test]
fn a_forgotten_peer_is_not_heard_and_its_number_serves_another_one() {
    let mut net = guests(2, |_| ClusterKey([11; 32]));
    let wire = capture(&mut net);
    let running = net.spawn(1, |worker| echo(worker, 0, 9000));
    assert_eq!(net.until(&running), Ok(9000));
    net.drop_if = None;
    net.endpoint(0).forget_peer(Node(1));
    let before = net.endpoint(0).counters();
    for (_, to, immediate, bytes) in wire.borrow().iter().filter(|datagram| datagram.1 == 0) {
        net.inject(*to, 1, *immediate, bytes);
    }
    let now = net.endpoint(0).counters();
    assert_eq!((now.handled, now.transmitted), (before.handled, before.transmitted), "{now:?}");
    net.endpoint(0).set_peer_key(Node(1), ClusterKey([12; 32]));
    net.start(1, |config| config.key = Some(ClusterKey([12; 32])));
    let running = net.spawn(1, |worker| echo(worker, 0, 5));
    assert_eq!(net.until(&running), Ok(5));
    assert_eq!(net.endpoint(0).counters().resent, 0, "nothing was rescued");
}
