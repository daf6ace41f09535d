//! Who is believed to be a node, and in which of its lives: forged, late and impossible datagrams.

mod common;

use common::{COUNT, ECHO, Net, grh};
use highwire_rpc::wire::{GREETING_LEN, Greeting, HEADER_LEN, Header, Immediate, Kind};
use highwire_rpc::{CallError, Config, Endpoint, Node, Received, Worker};
use highwire_stdx::{Duration, Instant};
use highwire_wire::Qpn;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

fn immediate(kind: Kind, count: u8, slot: u8) -> u32 {
    Immediate { kind, count, slot, fence: 0 }.to_bits()
}

fn datagram(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut head = [0; HEADER_LEN];
    header.emit(&mut head);
    [&head[..], body].concat()
}

fn hello(node: u16, incarnation: u64, challenge: u32) -> Vec<u8> {
    let mut body = [0; GREETING_LEN];
    Greeting { incarnation, slots: 32, datagram_bytes: 4096 }.emit(&mut body);
    datagram(&Header { node, from: incarnation as u32, to: 0, sequence: challenge }, &body)
}

async fn echo(worker: Worker) -> Result<Vec<u8>, CallError> {
    worker.call(Node(1), ECHO, b"x").await.map(|reply| reply.to_vec())
}

/// A datagram for endpoint 1 from the address of `from` and this queue pair; what endpoint 1 sends goes through the network.
fn forge(net: &mut Net, from: usize, qpn: u32, immediate: u32, bytes: &[u8]) {
    let (now, grh) = (net.now, grh(from));
    let received = Received { immediate, source_qpn: Qpn::new(qpn), grh: Some(&grh), bytes };
    net.endpoint(1).handle_receive(now, &received);
    net.drain();
}

/// The queue pair of endpoint 0 in its first life, as the network numbers them.
const QPN_0: u32 = 116;

#[test]
fn no_forged_greeting_ends_a_life_whatever_source_it_names() {
    for (from, qpn) in [(2, 999), (2, QPN_0), (0, 999), (0, QPN_0)] {
        for has_met in [false, true] {
            for challenge in [0, 1, u32::MAX] {
                let mut net = Net::new(2, 1, |_| {});
                if has_met {
                    let running = net.spawn(0, echo);
                    assert_eq!(net.until(&running), Ok(b"x".to_vec()));
                    let running = net
                        .spawn(1, |worker| async move { worker.call(Node(0), ECHO, b"y").await.map(|_| ()) });
                    assert_eq!(net.until(&running), Ok(()));
                }
                let bytes = hello(0, u64::MAX, challenge);
                forge(&mut net, from, qpn, immediate(Kind::Hello, 0, 0), &bytes);
                net.run_for(Duration::from_millis(20));
                let label = format!("source {from} {qpn}, met {has_met}, challenge {challenge}");
                for _ in 0..2 {
                    let running = net.spawn(0, echo);
                    assert_eq!(net.until(&running), Ok(b"x".to_vec()), "{label}");
                    let running = net
                        .spawn(1, |worker| async move { worker.call(Node(0), ECHO, b"y").await.map(|_| ()) });
                    assert_eq!(net.until(&running), Ok(()), "{label}");
                    // Its next life, which a believed greeting would have shut out for ever.
                    net.stop(0);
                    net.start(0, |_| {});
                }
                // Nothing was rescued: no call was repeated, and no peer was silent.
                let counters = net.endpoint(1).counters();
                assert_eq!((counters.resent, counters.silent), (0, 0), "{label}: {counters:?}");
            }
        }
    }
}

#[test]
fn a_greeting_counts_only_for_the_source_the_life_and_the_node_that_were_asked() {
    let mut net = Net::new(3, 1, |_| {});
    let greeting = immediate(Kind::Hello, 0, 0);
    // Endpoint 0's own address, a queue pair of another program there, which reads what is sent to it.
    let told = Rc::new(RefCell::new(Vec::new()));
    let ask = |net: &mut Net, node: u16, from: usize, qpn: u32, incarnation: u64, challenge: u32| {
        let before = net.endpoint(1).counters();
        let (now, grh) = (net.now, grh(from));
        let bytes = hello(node, incarnation, challenge);
        let received =
            Received { immediate: greeting, source_qpn: Qpn::new(qpn), grh: Some(&grh), bytes: &bytes };
        net.endpoint(1).handle_receive(now, &received);
        net.endpoint(1).transmit(|outgoing| {
            let (header, body) = Header::parse(outgoing.head).expect("a header");
            assert_eq!((outgoing.to.qpn.value(), body), (qpn, &[2, 0, 0, 0][..]));
            told.borrow_mut().push(header.sequence);
            true
        });
        let after = net.endpoint(1).counters();
        (after.challenged - before.challenged, after.strangers - before.strangers)
    };
    assert_eq!(ask(&mut net, 0, 0, 77, 9000, 0), (1, 0));
    let challenge = told.borrow()[0];
    assert_ne!(challenge, 0);
    // It is no answer for another queue pair, life or node, nor from another address.
    assert_eq!(ask(&mut net, 0, 0, 78, 9000, challenge), (1, 0));
    assert_eq!(ask(&mut net, 0, 0, 77, 9001, challenge), (1, 0));
    assert_eq!(ask(&mut net, 2, 2, 77, 9000, challenge), (1, 0));
    assert_eq!(ask(&mut net, 0, 2, 77, 9000, challenge), (0, 1));
    let all = told.borrow().clone();
    assert!(all[1..].iter().all(|&other| other != challenge), "{all:?}");
}

#[test]
fn a_strangers_greeting_takes_no_memory_until_it_is_proven() {
    let mut config = Config::new(Node(1), 7);
    config.accepts_strangers = true;
    let mut endpoint = Endpoint::new(config);
    let grh = grh(4);
    for node in (2..500).chain([u16::MAX]) {
        let bytes = hello(node, 5, 0);
        let received = Received {
            immediate: immediate(Kind::Hello, 0, 0),
            source_qpn: Qpn::new(9),
            grh: Some(&grh),
            bytes: &bytes,
        };
        endpoint.handle_receive(Instant::from_nanos(1), &received);
        // None of them is a peer to which batches could be sent.
        let running = endpoint
            .spawn(move |worker| async move { worker.call(Node(node), ECHO, b"x").await.map(|_| ()) })
            .expect("room for a worker");
        endpoint.run(Instant::from_nanos(1));
        assert_eq!(running.take(), Some(Err(CallError::NoSuchNode(Node(node)))));
    }
    assert_eq!(endpoint.counters().challenged, 499);
}

#[test]
fn a_late_greeting_of_an_earlier_life_changes_nothing() {
    let mut net = Net::new(2, 1, |_| {});
    // Every greeting of the first life, and its answer to the challenge among them, comes once more.
    let first = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&first);
    net.drop_if = Some(Box::new(move |from, _, immediate, bytes| {
        let is_hello = Immediate::from_bits(immediate).is_ok_and(|parsed| parsed.kind == Kind::Hello);
        if from == 0 && is_hello {
            heard.borrow_mut().push(bytes.to_vec());
        }
        false
    }));
    let running = net.spawn(0, echo);
    assert_eq!(net.until(&running), Ok(b"x".to_vec()));
    net.drop_if = None;
    let greetings = first.borrow().clone();
    assert_eq!(greetings.len(), 2, "a greeting, and the answer to the challenge");
    net.stop(0);
    net.start(0, |_| {});
    let running = net.spawn(0, echo);
    assert_eq!(net.until(&running), Ok(b"x".to_vec()));
    let before = (net.endpoint(1).counters(), net.sent);
    for bytes in &greetings {
        forge(&mut net, 0, QPN_0, immediate(Kind::Hello, 0, 0), bytes);
    }
    let after = net.endpoint(1).counters();
    assert_eq!(after.strangers - before.0.strangers, 2);
    assert_eq!(net.sent, before.1, "the earlier life is not even answered");
    let sent = net.sent;
    let running = net.spawn(0, echo);
    assert_eq!(net.until(&running), Ok(b"x".to_vec()));
    assert_eq!(net.sent - sent, 2, "a request and its response: the life that runs is still known");
}

#[test]
fn requests_and_responses_from_another_address_are_nobodys() {
    let mut net = Net::new(2, 1, |_| {});
    let runs = Rc::new(Cell::new(0));
    let counted = Rc::clone(&runs);
    net.endpoint(1).register(COUNT, move |_, _| counted.set(counted.get() + 1));
    let running = net.spawn(0, echo);
    assert_eq!(net.until(&running), Ok(b"x".to_vec()));
    let request = datagram(&Header { node: 0, from: 1001, to: 1002, sequence: 9 }, &[COUNT.0, 0, 0, 1, b'x']);
    for (from, qpn, expected) in [(2, QPN_0, 0), (0, QPN_0 + 1, 0), (0, QPN_0, 1)] {
        forge(&mut net, from, qpn, immediate(Kind::Request, 1, 3), &request);
        assert_eq!(runs.get(), expected, "from {from}, queue pair {qpn}");
    }
}

#[test]
fn sequences_wrap_and_what_is_earlier_stays_earlier() {
    let mut net = Net::new(2, 1, |_| {});
    let runs = Rc::new(Cell::new(0));
    let counted = Rc::clone(&runs);
    net.endpoint(1).register(COUNT, move |_, _| counted.set(counted.get() + 1));
    let running = net.spawn(0, echo);
    assert_eq!(net.until(&running), Ok(b"x".to_vec()));
    let mut expected = 0;
    for (sequence, is_later) in [
        (i32::MAX as u32, true),
        (u32::MAX - 1, true),
        (u32::MAX, true),
        (u32::MAX, false),
        (0, true),
        (u32::MAX, false),
        (u32::MAX - 1, false),
        (0, false),
        (1, true),
        (0, false),
    ] {
        let bytes = datagram(&Header { node: 0, from: 1001, to: 1002, sequence }, &[COUNT.0, 0, 0, 0]);
        forge(&mut net, 0, QPN_0, immediate(Kind::Request, 1, 7), &bytes);
        expected += u32::from(is_later);
        assert_eq!(runs.get(), expected, "sequence {sequence}");
    }
}

#[test]
fn a_batch_in_a_slot_that_was_not_granted_is_not_executed() {
    // A requester may ask for more slots than the responder gives.
    for asked in [4, 32] {
        only_granted_slots_are_served(asked);
    }
}

fn only_granted_slots_are_served(asked: u16) {
    let mut net = Net::new(2, 1, |config| config.slots = if config.node == Node(0) { asked } else { 4 });
    let runs = Rc::new(Cell::new(0));
    let counted = Rc::clone(&runs);
    net.endpoint(1).register(COUNT, move |_, _| counted.set(counted.get() + 1));
    let running = net.spawn(0, echo);
    assert_eq!(net.until(&running), Ok(b"x".to_vec()));
    let header = Header { node: 0, from: 1001, to: 1002, sequence: 9 };
    let sent = net.sent;
    for slot in 4..=u8::MAX {
        let whole = datagram(&header, &[COUNT.0, 0, 0, 0]);
        forge(&mut net, 0, QPN_0, immediate(Kind::Request, 1, slot), &whole);
        let part = datagram(&header, &[0, 0, 0, 8, 0, 0, 0, 4, COUNT.0, 0, 0, 4]);
        forge(&mut net, 0, QPN_0, immediate(Kind::RequestPart, 1, slot), &part);
    }
    net.run_for(Duration::from_millis(1));
    assert_eq!((runs.get(), net.sent), (0, sent), "asked for {asked}: neither executed nor answered");
    let whole = datagram(&header, &[COUNT.0, 0, 0, 0]);
    forge(&mut net, 0, QPN_0, immediate(Kind::Request, 1, 3), &whole);
    assert_eq!(runs.get(), 1, "the last slot of the grant");
}

/// A peer may promise more than was asked for.
#[test]
fn a_requester_uses_no_more_slots_than_it_asked_for_whatever_it_is_promised() {
    for promised in [1, 4, 5, 256, 257, u16::MAX] {
        let mut net = Net::new(2, 1, |config| config.slots = 4);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let noted = Rc::clone(&seen);
        // The peer's own answers are lost, and so are all requests: what is under way stays so.
        net.drop_if = Some(Box::new(move |from, _, bits, _| {
            let parsed = Immediate::from_bits(bits).expect("well-formed");
            if parsed.kind == Kind::Request {
                noted.borrow_mut().push(parsed.slot);
            }
            from == 0 || parsed.kind != Kind::Hello
        }));
        let running: Vec<_> = (0..12)
            .map(|_| net.spawn(1, |worker| async move { worker.call(Node(0), ECHO, b"x").await.map(|_| ()) }))
            .collect();
        net.drain();
        let welcome = welcome(1001, promised);
        forge(&mut net, 0, QPN_0, immediate(Kind::Welcome, 0, 0), &welcome);
        let mut slots = seen.borrow().clone();
        slots.sort_unstable();
        // No greeting says more than 256.
        let expected: Vec<u8> = (0..if promised > 256 { 0 } else { promised.min(4) as u8 }).collect();
        assert_eq!(slots, expected, "promised {promised}");
        assert!(running.iter().all(|call| !call.is_done()));
    }
}

/// An answer of this life of endpoint 0 to the greeting of endpoint 1.
fn welcome(incarnation: u64, slots: u16) -> Vec<u8> {
    let mut body = [0; GREETING_LEN];
    Greeting { incarnation, slots, datagram_bytes: 4096 }.emit(&mut body);
    datagram(&Header { node: 0, from: incarnation as u32, to: 1002, sequence: 0 }, &body)
}

/// A node that starts again may get the queue pair of its earlier life, so its address does not tell the two apart.
#[test]
fn a_late_answer_of_an_earlier_life_is_not_taken_for_that_of_the_life_that_has_introduced_itself() {
    let mut net = Net::new(2, 1, |_| {});
    net.stop(0);
    net.start(0, |_| {});
    // Endpoint 0 introduces its second life, and does not answer greetings yet.
    net.drop_if = Some(Box::new(|from, _, bits, _| {
        from == 1 && Immediate::from_bits(bits).is_ok_and(|parsed| parsed.kind == Kind::Hello)
    }));
    let running = net.spawn(0, echo);
    assert_eq!(net.until(&running), Ok(b"x".to_vec()));
    let running = net
        .spawn(1, |worker| async move { worker.call(Node(0), ECHO, b"y").await.map(|reply| reply.to_vec()) });
    net.drain();
    let before = net.endpoint(1).counters();
    let late = welcome(1001, 32);
    forge(&mut net, 0, QPN_0 + 16, immediate(Kind::Welcome, 0, 0), &late);
    let after = net.endpoint(1).counters();
    assert_eq!(after.stale_responses - before.stale_responses, 1);
    assert_eq!(
        after.request_datagrams, before.request_datagrams,
        "nothing is sent to the life that has ended"
    );
    net.drop_if = None;
    assert_eq!(net.until(&running), Ok(b"y".to_vec()));
}

#[test]
fn a_silent_peer_is_asked_again_after_waits_that_double_up_to_the_longest_one() {
    for is_met in [false, true] {
        let mut net = Net::new(2, 1, |config| config.failure_after = Duration::from_secs(3));
        if is_met {
            let running = net.spawn(0, echo);
            assert_eq!(net.until(&running), Ok(b"x".to_vec()));
        }
        net.stop(1);
        let since = net.now;
        let running = net.spawn(0, echo);
        let mut sent_at = vec![(since, net.sent)];
        while !running.is_done() {
            assert!(net.step(), "nothing happens any more");
            if sent_at.last().is_some_and(|&(_, sent)| sent != net.sent) {
                sent_at.push((net.now, net.sent));
            }
        }
        assert_eq!(running.take(), Some(Err(CallError::PeerSilent(Node(1)))));
        // In milliseconds; what a first datagram took on its way is less than half of one.
        let gap = |pair: &[(Instant, u64)]| ((pair[1].0 - pair[0].0).as_nanos() + 500_000) / 1_000_000;
        let gaps: Vec<u64> = sent_at[1..].windows(2).map(gap).collect();
        assert_eq!(gaps[..5], [4, 8, 16, 32, 64], "met {is_met}: {gaps:?}");
        assert!(gaps[5..].iter().all(|&gap| gap == 64), "met {is_met}: {gaps:?}");
        assert!(gaps.len() > 40, "it goes on until the peer is given up: {gaps:?}");
    }
}
