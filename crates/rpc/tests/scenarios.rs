//! Conversations between endpoints, over a network that is as good or bad as a seed says.

mod common;
#[path = "common/storm.rs"]
mod storm;

use common::{COUNT, ECHO, Faults, Net};
use highwire_rpc::wire::{Immediate, Kind};
use highwire_rpc::{CallError, Config, Endpoint, Node, RequestType, Worker};
use highwire_stdx::{Duration, Instant};
use std::cell::Cell;
use std::rc::Rc;
use storm::Storm;

fn kind(immediate: u32) -> Option<Kind> {
    Immediate::from_bits(immediate).ok().map(|immediate| immediate.kind)
}

#[test]
fn a_call_brings_back_what_the_handler_wrote() {
    let mut net = Net::new(2, 1, |_| {});
    let running = net.spawn(0, |worker| async move {
        let reply = worker.call(Node(1), ECHO, b"hello").await?;
        Ok::<_, CallError>(reply.to_vec())
    });
    assert_eq!(net.until(&running), Ok(b"hello".to_vec()));
    // A greeting each way, a challenge and its answer between them, a request, a response.
    assert_eq!(net.sent, 6);
}

#[test]
fn a_batch_takes_one_datagram_per_destination_and_one_transmission() {
    let mut net = Net::new(3, 1, |_| {});
    let running = net.spawn(0, |worker| async move {
        for _ in 0..2 {
            let mut batch = worker.batch();
            for i in 0..10u8 {
                batch.add(Node(1 + u16::from(i % 2)), ECHO, &[i; 3]);
            }
            let replies = batch.send().await;
            for (i, reply) in replies.iter().enumerate() {
                assert_eq!(reply, Ok(&[i as u8; 3][..]));
            }
        }
    });
    net.until(&running);
    let counters = net.endpoint(0).counters();
    assert_eq!((counters.requests, counters.request_datagrams), (20, 4));
    // The greetings, the answers to challenges, the first batch as its destinations answered, the second.
    assert!(counters.transmissions <= 6, "{counters:?}");
    assert_eq!(net.endpoint(1).counters().handled, 10);
}

#[test]
fn without_coalescing_every_request_takes_a_datagram() {
    let mut net = Net::new(2, 1, |config| config.optimisations.coalescing = false);
    let running = net.spawn(0, |worker| async move {
        let mut batch = worker.batch();
        (0..40u8).for_each(|i| {
            batch.add(Node(1), ECHO, &[i]);
        });
        let replies = batch.send().await;
        replies.iter().map(|reply| reply.expect("an echo")[0]).collect::<Vec<_>>()
    });
    assert_eq!(net.until(&running), (0..40).collect::<Vec<_>>());
    assert_eq!(net.endpoint(0).counters().request_datagrams, 40);
}

/// A storm over a bad network; returns what was observed.
fn storm(seed: u64, slots: u16) -> (u64, u64, u64) {
    const NODES: u16 = 3;
    let mut net = Net::new(usize::from(NODES), seed, |config| {
        config.slots = slots;
        config.failure_after = Duration::from_secs(3600);
    });
    net.faults = Faults::ROUGH;
    let mut storm = Storm::new(NODES, 8, 6);
    for node in 0..usize::from(NODES) {
        storm.prepare(net.endpoint(node));
    }
    while !storm.is_over() {
        assert!(net.step(), "nothing happens any more");
    }
    (net.hash, net.sent, storm.check(&format!("seed {seed}")))
}

#[test]
fn every_request_is_executed_once_whatever_the_network_does() {
    for seed in 0..40 {
        let slots = 1 + (seed % 9) as u16;
        assert_eq!(storm(seed, slots), storm(seed, slots), "seed {seed} gave two runs");
    }
}

#[test]
fn a_lost_response_is_sent_again_and_the_handler_does_not_run_again() {
    let mut net = Net::new(2, 1, |_| {});
    let runs = Rc::new(Cell::new(0));
    let counted = Rc::clone(&runs);
    net.endpoint(1).register(COUNT, move |_, response| {
        counted.set(counted.get() + 1);
        response.write(&[counted.get()]);
    });
    let mut lost = 0;
    net.drop_if = Some(Box::new(move |_, _, immediate, _| {
        lost += u32::from(kind(immediate) == Some(Kind::Response));
        kind(immediate) == Some(Kind::Response) && lost <= 3
    }));
    let running = net
        .spawn(0, |worker| async move { worker.call(Node(1), COUNT, &[]).await.map(|reply| reply.to_vec()) });
    assert_eq!(net.until(&running), Ok(vec![1]));
    assert_eq!(runs.get(), 1);
    assert_eq!(net.endpoint(1).counters().repeated_responses, 3);
}

#[test]
fn a_silent_peer_fails_the_call_after_the_time_that_was_set_and_not_before() {
    let mut net = Net::new(2, 1, |_| {});
    let hello = net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"x").await.map(|_| ()) });
    assert_eq!(net.until(&hello), Ok(()));
    let since = net.now;
    net.stop(1);
    let running = net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"x").await.map(|_| ()) });
    assert_eq!(net.until(&running), Err(CallError::PeerSilent(Node(1))));
    let waited = net.now - since;
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_millis(1200), "{waited:?}");
    // A peer that was never greeted: the same.
    let mut net = Net::new(2, 1, |_| {});
    net.stop(1);
    let running = net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"x").await.map(|_| ()) });
    assert_eq!(net.until(&running), Err(CallError::PeerSilent(Node(1))));
}

#[test]
fn a_node_that_has_started_again_does_not_execute_what_its_earlier_life_was_sent() {
    let mut net = Net::new(2, 1, |_| {});
    let hello = net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"x").await.map(|_| ()) });
    assert_eq!(net.until(&hello), Ok(()));
    net.stop(1);
    let running = net.spawn(0, |worker| async move { worker.call(Node(1), COUNT, b"x").await.map(|_| ()) });
    net.run_for(Duration::from_millis(20));
    net.start(1, |_| {});
    net.endpoint(1).register(COUNT, |_, _| panic!("the request was for another life"));
    assert_eq!(net.until(&running), Err(CallError::PeerRestarted(Node(1))));
    // A new call greets the peer's new incarnation.
    let again =
        net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"y").await.map(|r| r.to_vec()) });
    assert_eq!(net.until(&again), Ok(b"y".to_vec()));
}

#[test]
fn a_requester_that_has_started_again_is_served_from_the_beginning() {
    let mut net = Net::new(2, 1, |_| {});
    for life in 0..3u8 {
        let running = net.spawn(0, move |worker| async move {
            let mut last = Vec::new();
            for i in 0..=life {
                last = worker.call(Node(1), ECHO, &[life, i]).await?.to_vec();
            }
            Ok::<_, CallError>(last)
        });
        assert_eq!(net.until(&running), Ok(vec![life, life]));
        net.stop(0);
        net.start(0, |_| {});
    }
}

#[test]
fn a_removed_peer_fails_what_is_under_way_and_can_come_back() {
    let mut net = Net::new(2, 1, |_| {});
    let hello = net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"x").await.map(|_| ()) });
    assert_eq!(net.until(&hello), Ok(()));
    net.drop_if = Some(Box::new(|_, _, _, _| true));
    let running = net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"x").await.map(|_| ()) });
    net.run_for(Duration::from_millis(1));
    let to = highwire_verbs::Datagram {
        address: highwire_verbs::Address::new(highwire_verbs::Gid::from_ip([10, 0, 0, 2].into())),
        qpn: highwire_wire::Qpn::new(117),
        qkey: 0,
    };
    net.endpoint(0).remove_peer(Node(1));
    assert_eq!(net.until(&running), Err(CallError::PeerRemoved(Node(1))));
    let gone = net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"x").await.map(|_| ()) });
    assert_eq!(net.until(&gone), Err(CallError::NoSuchNode(Node(1))));
    net.drop_if = None;
    net.endpoint(0).add_peer(Node(1), to).expect("another node");
    let back =
        net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"z").await.map(|r| r.to_vec()) });
    assert_eq!(net.until(&back), Ok(b"z".to_vec()));
}

#[test]
fn a_deadline_is_kept_and_the_late_response_is_nobodys() {
    let mut net = Net::new(2, 1, |_| {});
    net.drop_if = Some(Box::new(|_, _, immediate, _| kind(immediate) == Some(Kind::Response)));
    let running = net.spawn(0, |worker| async move {
        worker.call_within(Node(1), ECHO, b"x", Duration::from_millis(3)).await.map(|_| ())
    });
    assert_eq!(net.until(&running), Err(CallError::DeadlineExceeded));
    net.drop_if = None;
    let next =
        net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"y").await.map(|r| r.to_vec()) });
    assert_eq!(net.until(&next), Ok(b"y".to_vec()));
    assert_eq!(net.endpoint(0).counters().cancelled, 1);
}

#[test]
fn a_dropped_batch_is_cancelled_and_its_slot_is_used_again() {
    let mut net = Net::new(2, 1, |config| config.slots = 1);
    net.drop_if = Some(Box::new(|_, _, immediate, _| kind(immediate) == Some(Kind::Request)));
    let running = net.spawn(0, |worker| async move {
        let mut batch = worker.batch();
        batch.add(Node(1), ECHO, b"never");
        let mut sending = Box::pin(batch.send());
        let mut sleep = Box::pin(worker.sleep(Duration::from_millis(1)));
        // Whichever is first.
        std::future::poll_fn(|cx| {
            assert!(sending.as_mut().poll(cx).is_pending());
            sleep.as_mut().poll(cx)
        })
        .await;
        drop(sending);
    });
    net.until(&running);
    net.drop_if = None;
    let next =
        net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"y").await.map(|r| r.to_vec()) });
    assert_eq!(net.until(&next), Ok(b"y".to_vec()));
}

#[test]
fn more_batches_than_slots_wait_their_turn() {
    let mut net = Net::new(2, 1, |config| config.slots = 2);
    let hello = net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"x").await.map(|_| ()) });
    assert_eq!(net.until(&hello), Ok(()));
    let running: Vec<_> = (0..20u8)
        .map(|i| net.spawn(0, move |w| async move { w.call(Node(1), ECHO, &[i]).await.map(|r| r[0]) }))
        .collect();
    for (i, running) in running.iter().enumerate() {
        assert_eq!(net.until(running), Ok(i as u8));
    }
    assert!(net.endpoint(0).counters().waited_for_slot >= 16, "{:?}", net.endpoint(0).counters());
}

#[test]
fn messages_far_longer_than_a_datagram_arrive_whole_and_only_lost_parts_are_repeated() {
    for (seed, faults) in [(1, Faults::NONE), (2, Faults::ROUGH), (3, Faults::ROUGH)] {
        let mut net = Net::new(2, seed, |config| config.failure_after = Duration::from_secs(3600));
        net.faults = faults;
        let running = net.spawn(0, |worker| async move {
            for length in [4075usize, 4076, 4077, 8143, 8144, 8145, 100_000, 1_000_000] {
                let bytes: Vec<u8> = (0..length).map(|i| (i * 31 + i / 255) as u8).collect();
                let reply = worker.call(Node(1), ECHO, &bytes).await?;
                assert!(*reply == *bytes, "{length} bytes came back as others");
            }
            Ok::<_, CallError>(())
        });
        assert_eq!(net.until(&running), Ok(()));
        let [a, b] = [0, 1].map(|i| net.endpoint(i).counters());
        if seed == 1 {
            assert_eq!((a.resent, b.resent), (0, 0));
        } else {
            let repeated = a.resent + b.resent;
            // One datagram in ten is lost, and one in five is late and may be taken for lost.
            assert!(repeated > 0 && repeated < (a.parts + b.parts) * 6 / 10, "{a:?} {b:?}");
        }
    }
}

#[test]
fn what_is_longer_than_the_peer_takes_is_refused_with_a_reason() {
    let mut net = Net::new(2, 1, |config| {
        config.batch_bytes_max = if config.node == Node(1) { 10_000 } else { 1 << 20 };
    });
    let running = net.spawn(0, |worker| async move {
        let long = worker.call(Node(1), ECHO, &[0; 20_000]).await.map(|_| ());
        let longer = worker.call(Node(1), ECHO, &vec![0; 2 << 20]).await.map(|_| ());
        (long, longer, worker.call(Node(1), ECHO, &[1; 5000]).await.map(|r| r.len()))
    });
    assert_eq!(net.until(&running), (Err(CallError::TooLong), Err(CallError::TooLong), Ok(5000)));
}

#[test]
fn handlers_may_call_other_nodes_and_the_order_of_a_batch_stays() {
    const FORWARD: RequestType = RequestType(9);
    let mut net = Net::new(3, 5, |_| {});
    net.faults = Faults::ROUGH;
    net.endpoint(1).register_nested(FORWARD, |worker, request| async move {
        // Longer than the time to a retransmission: the responder tells the requester that it is at work.
        worker.sleep(Duration::from_millis(30)).await;
        let mut bytes =
            worker.call(Node(2), ECHO, &request.bytes).await.map(|r| r.to_vec()).unwrap_or_default();
        bytes.push(b'!');
        bytes
    });
    let running = net.spawn(0, |worker| async move {
        let mut batch = worker.batch();
        batch.add(Node(1), ECHO, b"plain");
        batch.add(Node(1), FORWARD, b"nested");
        batch.add(Node(1), RequestType(77), b"unknown");
        batch.add(Node(1), ECHO, b"plain again");
        batch.add(Node(1), FORWARD, b"nested again");
        let replies = batch.send().await;
        replies
            .iter()
            .map(|reply| reply.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
            .collect::<Vec<_>>()
    });
    let text = |text: &str| Ok(text.to_owned());
    assert_eq!(
        net.until(&running),
        [
            text("plain"),
            text("nested!"),
            Err(CallError::NoSuchType),
            text("plain again"),
            text("nested again!")
        ]
    );
    assert_eq!(net.endpoint(2).counters().handled, 2, "each nested handler ran once");
}

#[test]
fn a_node_without_places_for_nested_handlers_says_so() {
    const SLOW: RequestType = RequestType(9);
    let mut net = Net::new(2, 5, |config| config.tasks_max = if config.node == Node(1) { 2 } else { 64 });
    net.endpoint(1).register_nested(SLOW, |worker, _| async move {
        worker.sleep(Duration::from_millis(5)).await;
        vec![1]
    });
    let running = net.spawn(0, |worker| async move {
        let mut batch = worker.batch();
        (0..3).for_each(|_| {
            batch.add(Node(1), SLOW, b"");
        });
        let replies = batch.send().await;
        let ends: Vec<_> = replies.iter().map(|reply| reply.map(<[u8]>::len)).collect();
        (ends, worker.call(Node(1), SLOW, b"").await.map(|r| r.len()))
    });
    assert_eq!(net.until(&running), (vec![Ok(1), Ok(1), Err(CallError::Overloaded)], Ok(1)));
}

#[test]
fn a_request_of_another_configuration_is_not_executed_where_a_fence_was_asked_for() {
    let mut net = Net::new(2, 1, |_| {});
    let runs = Rc::new(Cell::new(0));
    let counted = Rc::clone(&runs);
    net.endpoint(1).register(COUNT, move |_, _| counted.set(counted.get() + 1));
    net.endpoint(1).set_fenced(COUNT, true);
    net.endpoint(1).set_fence(7);
    let ask = |net: &mut Net| {
        let running = net.spawn(0, |worker| async move {
            let mut batch = worker.batch();
            batch.add(Node(1), COUNT, b"");
            batch.add(Node(1), ECHO, b"free");
            let replies = batch.send().await;
            (replies.get(0).map(<[u8]>::len), replies.get(1).map(<[u8]>::len), replies.fence(1))
        });
        net.until(&running)
    };
    assert_eq!(ask(&mut net), (Err(CallError::Fenced), Ok(4), Some(7)));
    assert_eq!(runs.get(), 0);
    net.endpoint(0).set_fence(7);
    assert_eq!(ask(&mut net), (Ok(0), Ok(4), Some(7)));
    assert_eq!((runs.get(), net.endpoint(1).counters().fenced), (1, 1));
}

#[test]
fn requests_to_the_node_itself_see_no_network() {
    let mut net = Net::new(1, 1, |_| {});
    net.endpoint(0).register_nested(COUNT, |worker, request| async move {
        worker.call(worker.node(), ECHO, &request.bytes).await.map(|r| r.to_vec()).unwrap_or_default()
    });
    let running = net.spawn(0, |worker| async move {
        let mut batch = worker.batch();
        batch.add(Node(0), ECHO, b"one");
        batch.add(Node(0), COUNT, b"two");
        let replies = batch.send().await;
        replies.iter().map(|reply| reply.map(<[u8]>::to_vec)).collect::<Vec<_>>()
    });
    assert_eq!(net.until(&running), [Ok(b"one".to_vec()), Ok(b"two".to_vec())]);
    assert_eq!((net.sent, net.endpoint(0).counters().local), (0, 3));
}

#[test]
fn an_unknown_node_introduces_itself_and_is_served_where_that_is_allowed() {
    for allowed in [true, false] {
        let mut net = Net::new(2, 1, |config| {
            config.accepts_strangers = allowed;
            config.failure_after = Duration::from_millis(50);
        });
        net.endpoint(1).remove_peer(Node(0));
        let running =
            net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"hi").await.map(|r| r.len()) });
        let expected = if allowed { Ok(2) } else { Err(CallError::PeerSilent(Node(1))) };
        assert_eq!(net.until(&running), expected);
    }
}

#[test]
fn rubbish_is_counted_and_harms_nobody() {
    let mut net = Net::new(2, 1, |_| {});
    let mut rng = highwire_stdx::Rng::new(3);
    let hello = net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"x").await.map(|_| ()) });
    assert_eq!(net.until(&hello), Ok(()));
    for _ in 0..3000 {
        let mut bytes = vec![0; rng.below(80) as usize];
        rng.fill(&mut bytes);
        if bytes.len() > 4 && rng.chance(0.8) {
            bytes[..4].copy_from_slice(&[0, 0, highwire_rpc::wire::VERSION, 0]);
        }
        net.inject(1, 0, rng.next_u32(), &bytes);
    }
    let counters = net.endpoint(1).counters();
    assert!(counters.malformed > 300 && counters.strangers > 100, "{counters:?}");
    let again =
        net.spawn(0, |worker| async move { worker.call(Node(1), ECHO, b"y").await.map(|r| r.to_vec()) });
    assert_eq!(net.until(&again), Ok(b"y".to_vec()));
}

#[test]
fn time_that_passed_while_nothing_happened_is_not_the_peers_fault() {
    let mut endpoint = Endpoint::new(Config::new(Node(0), 1));
    let to = highwire_verbs::Datagram {
        address: highwire_verbs::Address::default(),
        qpn: highwire_wire::Qpn::new(9),
        qkey: 0,
    };
    endpoint.add_peer(Node(1), to).expect("another node");
    endpoint.run(Instant::from_nanos(1));
    let late = Instant::from_nanos(1) + Duration::from_secs(100);
    let call = |worker: Worker| async move { worker.call(Node(1), ECHO, b"x").await.map(|_| ()) };
    let running = endpoint.spawn(call).expect("room for a worker");
    endpoint.run(late);
    assert!(endpoint.poll_timeout().is_some_and(|at| at > late));
    endpoint.handle_timeout(late + Duration::from_millis(900));
    endpoint.run(late + Duration::from_millis(900));
    assert!(!running.is_done(), "the peer has a second");
}

#[test]
fn an_answer_that_is_late_is_not_given_to_the_requesters_next_life() {
    const SLOW: RequestType = RequestType(9);
    let mut net = Net::new(2, 1, |_| {});
    net.endpoint(1).register_nested(SLOW, |worker, request| async move {
        worker.sleep(Duration::from_millis(u64::from(request.bytes[0]))).await;
        request.bytes
    });
    let ask = |net: &mut Net, length: u8| {
        net.spawn(0, move |worker| async move {
            worker.call(Node(1), SLOW, &[length]).await.map(|reply| reply.to_vec())
        })
    };
    let lost = ask(&mut net, 20);
    net.run_for(Duration::from_millis(3));
    drop(lost);
    net.stop(0);
    net.start(0, |_| {});
    // The first request of this life has the sequence of the one before, in the same slot.
    let running = ask(&mut net, 60);
    assert_eq!(net.until(&running), Ok(vec![60]));
    assert_eq!(net.endpoint(1).counters().handled, 2);
}
