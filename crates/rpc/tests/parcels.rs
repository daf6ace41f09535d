//! Parcels: batches that no worker waits for, over the same networks as all others.

mod common;

use common::{COUNT, ECHO, Faults, Net};
use highwire_rpc::wire::{Immediate, Kind, MESSAGES_MAX};
use highwire_rpc::{CallError, Node, ParcelId};
use highwire_stdx::Duration;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A request and its response, or why there is none.
type Exchange = (Vec<u8>, Result<Vec<u8>, CallError>);

/// The next parcel that has come back, if there is one.
fn take(net: &mut Net, at: usize) -> Option<(ParcelId, Vec<Exchange>)> {
    let parcel = net.endpoint(at).take_parcel()?;
    let (id, mut all) = (parcel.id(), Vec::new());
    parcel.each(|place, request, reply| {
        assert_eq!(place, all.len());
        all.push((request.to_vec(), reply.map(<[u8]>::to_vec)));
    });
    Some((id, all))
}

/// Waits for the next parcel.
#[track_caller]
fn wait(net: &mut Net, at: usize) -> (ParcelId, Vec<Exchange>) {
    for _ in 0..1_000_000 {
        let goes_on = net.step();
        if let Some(parcel) = take(net, at) {
            return parcel;
        }
        assert!(goes_on, "nothing happens any more");
    }
    panic!("it takes for ever");
}

fn send(net: &mut Net, at: usize, to: u16, requests: &[&[u8]], timeout: Option<Duration>) -> ParcelId {
    let mut parcel = net.endpoint(at).parcel(Node(to));
    for (place, request) in requests.iter().enumerate() {
        assert_eq!(parcel.add(ECHO, request), Ok(place));
    }
    parcel.send(timeout)
}

#[test]
fn a_parcel_is_a_datagram_each_way_and_shows_requests_beside_their_responses() {
    let mut net = Net::new(2, 1, |_| {});
    let id = send(&mut net, 0, 1, &[b"one", b"two", b""], None);
    let (returned, all) = wait(&mut net, 0);
    assert_eq!(returned, id);
    let expected: [&[u8]; 3] = [b"one", b"two", b""];
    assert_eq!(all, expected.map(|bytes| (bytes.to_vec(), Ok(bytes.to_vec()))));
    // A greeting each way, a challenge and its answer between them, the requests, the responses.
    assert_eq!(net.sent, 6);
    assert!(take(&mut net, 0).is_none());
}

#[test]
fn every_request_is_executed_once_and_comes_back_whatever_the_network_does() {
    for seed in 0..20 {
        let mut net = Net::new(2, seed, |config| {
            config.slots = 1 + (seed % 5) as u16;
            config.failure_after = Duration::from_secs(3600);
        });
        net.faults = Faults::ROUGH;
        let executed = Rc::new(RefCell::new(BTreeMap::<Vec<u8>, u32>::new()));
        for at in 0..2 {
            let executed = Rc::clone(&executed);
            net.endpoint(at).register(COUNT, move |request, response| {
                *executed.borrow_mut().entry(request.bytes.to_vec()).or_default() += 1;
                response.write(request.bytes);
                response.write(b"!");
            });
        }
        let mut awaited = [BTreeMap::new(), BTreeMap::new()];
        for (number, at) in (0..40u32).flat_map(|number| [(number, 0usize), (number, 1)]) {
            let mut parcel = net.endpoint(at).parcel(Node(1 - at as u16));
            let count = 1 + number % MESSAGES_MAX as u32;
            for i in 0..count {
                let mut bytes = vec![at as u8, number as u8, i as u8];
                // Some are longer than a datagram.
                bytes.resize(if number % 9 == 0 { 3000 } else { 3 }, 5);
                parcel.add(COUNT, &bytes).expect("there is room");
            }
            assert!(awaited[at].insert(parcel.send(None), (number, count)).is_none(), "two have one name");
        }
        for (at, awaited) in awaited.iter_mut().enumerate() {
            while !awaited.is_empty() {
                let (id, all) = wait(&mut net, at);
                let (number, count) = awaited.remove(&id).expect("it was sent, and comes back once");
                assert_eq!(all.len(), count as usize);
                for (i, (request, reply)) in all.into_iter().enumerate() {
                    assert_eq!(request[..3], [at as u8, number as u8, i as u8]);
                    assert_eq!(reply, Ok([request, b"!".to_vec()].concat()));
                }
            }
        }
        assert!(executed.borrow().values().all(|&times| times == 1), "seed {seed}");
    }
}

#[test]
fn one_that_nobody_waits_for_any_more_comes_back_at_once_and_leaves_its_slot() {
    let mut net = Net::new(2, 1, |config| config.slots = 1);
    net.drop_if = Some(Box::new(|_, _, immediate, _| {
        Immediate::from_bits(immediate).is_ok_and(|immediate| immediate.kind == Kind::Request)
    }));
    // One parcel has the slot, the other waits for it.
    let both = [(); 2].map(|()| send(&mut net, 0, 1, &[b"never"], None));
    net.run_for(Duration::from_millis(1));
    for id in both {
        net.endpoint(0).cancel_parcel(id);
        let (returned, all) = take(&mut net, 0).expect("it is there");
        assert_eq!((returned, all), (id, vec![(b"never".to_vec(), Err(CallError::DeadlineExceeded))]));
        // By now, the id may name another parcel, or none.
        net.endpoint(0).cancel_parcel(id);
        assert!(take(&mut net, 0).is_none());
    }
    net.drop_if = None;
    send(&mut net, 0, 1, &[b"now"], None);
    assert_eq!(wait(&mut net, 0).1, [(b"now".to_vec(), Ok(b"now".to_vec()))]);
}

#[test]
fn a_timeout_and_a_node_that_nobody_knows_bring_it_back_with_the_reason() {
    let mut net = Net::new(2, 1, |_| {});
    net.drop_if = Some(Box::new(|_, _, _, _| true));
    // Endpoints know what time it is.
    net.drain();
    send(&mut net, 0, 1, &[b"late"], Some(Duration::from_millis(3)));
    let began = net.now;
    assert_eq!(wait(&mut net, 0).1, [(b"late".to_vec(), Err(CallError::DeadlineExceeded))]);
    assert!(net.now.saturating_since(began) >= Duration::from_millis(3));
    send(&mut net, 0, 7, &[b"nobody"], None);
    assert_eq!(wait(&mut net, 0).1, [(b"nobody".to_vec(), Err(CallError::NoSuchNode(Node(7))))]);
}

#[test]
fn a_full_one_takes_no_more_and_one_that_is_not_sent_is_nothing() {
    let mut net = Net::new(2, 1, |_| {});
    let mut full = net.endpoint(0).parcel(Node(1));
    (0..MESSAGES_MAX).for_each(|place| assert_eq!(full.add(ECHO, b"x"), Ok(place)));
    assert!(full.is_full() && full.len() == MESSAGES_MAX);
    assert_eq!(full.add(ECHO, b"x"), Err(CallError::TooLong));
    drop(full);
    net.run_for(Duration::from_millis(10));
    assert!(take(&mut net, 0).is_none() && net.sent == 0);
    let empty = net.endpoint(0).parcel(Node(1));
    assert!(empty.is_empty());
    let id = empty.send(None);
    assert_eq!(take(&mut net, 0), Some((id, Vec::new())));
    // To the node itself: without a network.
    send(&mut net, 0, 0, &[b"self"], None);
    assert_eq!(wait(&mut net, 0).1, [(b"self".to_vec(), Ok(b"self".to_vec()))]);
    assert_eq!(net.sent, 0);
}

#[test]
fn names_and_slots_are_used_again_whatever_became_of_their_parcels() {
    let mut net = Net::new(2, 1, |config| config.slots = 2);
    let silence = || -> common::DropRule { Box::new(|_, _, _, _| true) };
    net.drain();
    for round in 0..50 {
        // One parcel is never sent, one comes back unread, one is late, and three are given up, of which one
        // waits for a slot.
        drop(net.endpoint(0).parcel(Node(1)));
        let unread = send(&mut net, 0, 1, &[b"unread"], None);
        while net.endpoint(0).take_parcel().is_none() {
            assert!(net.step(), "nothing happens any more");
        }
        net.drop_if = Some(silence());
        let late = send(&mut net, 0, 1, &[b"late"], Some(Duration::from_millis(1)));
        let given_up = [(); 3].map(|()| send(&mut net, 0, 1, &[b"given", b"up"], None));
        net.run_for(Duration::from_millis(2));
        assert_eq!(take(&mut net, 0).map(|parcel| parcel.0), Some(late));
        // The waiting parcel is cancelled first: a slot that becomes free must not go to it.
        for id in given_up.into_iter().rev() {
            net.endpoint(0).cancel_parcel(id);
            assert_eq!(take(&mut net, 0).map(|parcel| parcel.0), Some(id));
        }
        net.run_for(Duration::from_millis(1));
        assert!(take(&mut net, 0).is_none(), "round {round}: one came back twice");
        net.drop_if = None;
        let nobody = send(&mut net, 0, 9, &[b"nobody"], None);
        assert!(take(&mut net, 0).is_some_and(|(_, all)| all[0].1.is_err()));
        let names = [unread, late, given_up[0], given_up[1], given_up[2], nobody];
        assert!(names.iter().all(|id| id.0 < 4), "round {round}: {names:?} of four at a time");
    }
    // Both slots are free, and no earlier failure shows.
    let all = [(); 6].map(|()| send(&mut net, 0, 1, &[b"again"], None));
    for _ in all {
        assert_eq!(wait(&mut net, 0).1, [(b"again".to_vec(), Ok(b"again".to_vec()))]);
    }
}

/// What a receiver did with requests, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Did {
    Looked(Vec<u8>),
    Executed(Vec<u8>),
}

#[test]
fn a_batch_is_looked_at_before_its_first_request_is_executed_and_a_lone_request_is_not() {
    let mut net = Net::new(2, 5, |_| ());
    let done = Rc::<RefCell<Vec<Did>>>::default();
    let (looked, executed) = (Rc::clone(&done), Rc::clone(&done));
    net.endpoint(1).register(COUNT, move |request, response| {
        executed.borrow_mut().push(Did::Executed(request.bytes.to_vec()));
        response.write(request.bytes);
    });
    net.endpoint(1).look_ahead(COUNT, move |bytes| looked.borrow_mut().push(Did::Looked(bytes.to_vec())));
    for requests in [&[b"a".as_slice(), b"bc", b"d"] as &[&[u8]], &[b"alone"]] {
        let mut parcel = net.endpoint(0).parcel(Node(1));
        for bytes in requests {
            parcel.add(COUNT, bytes).expect("it is short");
        }
        // Requests of other types are none of its business.
        parcel.add(ECHO, b"echo").expect("it is short");
        parcel.send(None);
        assert_eq!(wait(&mut net, 0).1.len(), requests.len() + 1);
        let looks = requests.iter().map(|bytes| Did::Looked(bytes.to_vec()));
        let runs = requests.iter().map(|bytes| Did::Executed(bytes.to_vec()));
        assert_eq!(done.take(), looks.chain(runs).collect::<Vec<_>>());
    }
    let mut parcel = net.endpoint(0).parcel(Node(1));
    parcel.add(COUNT, b"alone").expect("it is short");
    parcel.send(None);
    wait(&mut net, 0);
    assert_eq!(done.take(), [Did::Executed(b"alone".to_vec())]);
}
