//! Chain replication: replicas agree after every write, even if packets are lost on the way.

use std::collections::BTreeMap;

use highwire_nanopu::packet::Packet;
use highwire_nanopu::testbed::HOST;

use super::*;

const WRITE: u64 = 1;
const READ: u64 = 2;
const PEEK: u64 = 3;
const CONFIGURE: u64 = 4;
const UPDATE: u64 = 5;
const REPLY: u64 = 6;
const REPLICAS: usize = 3;

fn value(first: u64) -> impl Iterator<Item = u64> {
    (first..).take(8)
}

fn write(token: u64, key: u64, first: u64) -> Vec<u64> {
    [WRITE, token, key, !key].into_iter().chain(value(first)).collect()
}

/// The status, version and value in a reply.
fn reply(words: &[u64], token: u64) -> (u64, Option<u64>, Vec<u64>) {
    assert_eq!(words[..2], [REPLY, token], "{words:?}");
    (words[2], words.get(3).copied(), words.get(4..).unwrap_or_default().to_vec())
}

fn chain(proxies: usize) -> Option<Testbed> {
    let programs = [vec!["chain"; REPLICAS], vec!["chain_proxy"; proxies]].concat();
    let mut testbed = testbed(&programs, 1)?;
    let at = |number: usize| u64::from(address(number));
    for number in 0..REPLICAS {
        let before = if number == 0 { 0 } else { at(number - 1) };
        let behind = if number + 1 == REPLICAS { 0 } else { at(number + 1) };
        let words = ask_node(&mut testbed, number, &[CONFIGURE, 7, before, behind]);
        assert_eq!(reply(&words, 7).0, status::OK);
    }
    for proxy in REPLICAS..REPLICAS + proxies {
        let words = ask_node(&mut testbed, proxy, &[CONFIGURE, at(0), at(REPLICAS - 1)]);
        assert_eq!(words, [status::OK]);
    }
    Some(testbed)
}

/// What each replica holds of a key: version and value.
fn peek(testbed: &mut Testbed, replica: usize, key: u64) -> Option<(u64, Vec<u64>)> {
    let words = ask_node(testbed, replica, &[PEEK, 1, key, !key]);
    let (status, version, value) = reply(&words, 1);
    (status == status::OK).then(|| (version.expect("a version"), value))
}

/// Loses every `period`th packet between nodes that `rule` picks.
fn lose(testbed: &mut Testbed, period: u64, rule: impl Fn(&Packet) -> bool + Send + 'static) {
    let mut count = 0;
    testbed.lose(Some(Box::new(move |_, packet| {
        let is_inner = packet.source != HOST && packet.destination != HOST;
        count += u64::from(is_inner && rule(packet));
        is_inner && rule(packet) && count % period == 0
    })));
}

#[test]
fn replicas_agree_after_every_write() {
    let Some(mut testbed) = chain(0) else { return };
    let mut model = BTreeMap::new();
    let mut rng = Rng::new(8);
    lose(&mut testbed, 7, |_| true);
    for step in 1..=120 {
        let key = rng.below(20);
        let words = ask(&mut testbed, &write(step, key, 100 * step));
        assert_eq!(reply(&words, step), (status::OK, Some(step), vec![]));
        model.insert(key, (step, value(100 * step).collect::<Vec<_>>()));
        for replica in 0..REPLICAS {
            assert_eq!(peek(&mut testbed, replica, key).as_ref(), model.get(&key), "replica {replica}");
        }
    }
    assert!(testbed.lost() > 20, "{} packets lost", testbed.lost());
    for key in 0..20 {
        let words = ask_node(&mut testbed, REPLICAS - 1, &[READ, 2, key, !key]);
        let (status, version, value) = reply(&words, 2);
        match model.get(&key) {
            None => assert_eq!(status, status::NOT_FOUND),
            Some(expected) => assert_eq!((version.expect("found"), value), *expected),
        }
    }
}

#[test]
fn writes_that_overtake_each_other_leave_the_newest() {
    let Some(mut testbed) = chain(0) else { return };
    // Half of the updates and acknowledgements are lost, so later writes pass earlier ones by.
    lose(&mut testbed, 2, |packet| packet.is_data());
    let start = testbed.cycle() + 100;
    let numbers: Vec<usize> = (1..=60)
        .map(|step| {
            let words = write(step, step % 3, 1000 * step);
            testbed.send(Request::of_words(start + 60 * step, address(0), 0, &words))
        })
        .collect();
    testbed.run(400_000).expect("no trap");
    for (number, step) in numbers.into_iter().zip(1..) {
        let words = testbed.answer(number).expect("every write is answered").words();
        assert_eq!(reply(&words, step), (status::OK, Some(step), vec![]));
    }
    for (key, last) in [(0, 60), (1, 58), (2, 59)] {
        for replica in 0..REPLICAS {
            let held = peek(&mut testbed, replica, key).expect("it was written");
            assert_eq!(held, (last, value(1000 * last).collect()), "replica {replica}");
        }
    }
}

#[test]
fn a_chain_goes_on_without_its_tail() {
    let Some(mut testbed) = chain(0) else { return };
    ask(&mut testbed, &write(0, 5, 50));
    let last = address(REPLICAS - 1);
    testbed.lose(Some(Box::new(move |_, packet| packet.destination == last || packet.source == last)));
    let stuck = testbed.call(address(0), 0, &write(0, 5, 60), 50_000);
    assert!(stuck.is_err(), "the tail has not seen it");
    ask_node(&mut testbed, 1, &[CONFIGURE, 0, address(0).into(), 0]);
    let words = ask(&mut testbed, &write(0, 5, 70));
    assert_eq!(reply(&words, 0), (status::OK, Some(3), vec![]));
    let words = ask_node(&mut testbed, 1, &[READ, 0, 5, !5]);
    assert_eq!(reply(&words, 0), (status::OK, Some(3), value(70).collect()));
}

#[test]
fn a_proxy_knows_whom_to_ask() {
    let Some(mut testbed) = chain(1) else { return };
    lose(&mut testbed, 5, |_| true);
    for step in 1..=30u64 {
        let words: Vec<u64> = [WRITE, step % 4, 9].into_iter().chain(value(step)).collect();
        assert_eq!(ask_node(&mut testbed, REPLICAS, &words), [status::OK, step]);
        let words = ask_node(&mut testbed, REPLICAS, &[READ, step % 4, 9]);
        assert_eq!(words, [status::OK, step].into_iter().chain(value(step)).collect::<Vec<_>>());
    }
    assert_eq!(ask_node(&mut testbed, REPLICAS, &[READ, 77, 9]), [status::NOT_FOUND]);
    for wrong in [vec![], vec![READ], vec![WRITE, 1, 2, 3], vec![9, 1, 2], vec![CONFIGURE, 1]] {
        assert_eq!(ask_node(&mut testbed, REPLICAS, &wrong), [status::MALFORMED], "{wrong:?}");
    }
}

#[test]
fn replicas_refuse_what_is_not_theirs() {
    let Some(mut testbed) = chain(0) else { return };
    let at = |words: &[u64], number| {
        let mut answer = Vec::new();
        if let Some(testbed) = chain(0).as_mut() {
            answer = ask_node(testbed, number, words);
        }
        answer
    };
    assert_eq!(at(&write(3, 1, 1), 1), [REPLY, 3, status::NOT_HERE]);
    assert_eq!(at(&[READ, 3, 1, 1], 0), [REPLY, 3, status::NOT_HERE]);
    let forged: Vec<u64> = [UPDATE, 3, 0, 99, 1, 1].into_iter().chain(value(0)).collect();
    assert_eq!(at(&forged, 1), [REPLY, 3, status::NOT_HERE]);
    for wrong in [vec![], vec![WRITE, 3], vec![READ, 3, 1], vec![0, 3], vec![99, 3, 1, 1]] {
        let token = wrong.get(1).copied().unwrap_or(0);
        assert_eq!(ask(&mut testbed, &wrong), [REPLY, token, status::MALFORMED], "{wrong:?}");
    }
    let silent = testbed.call(address(0), 0, &[REPLY, 1, 2], 20_000);
    assert!(silent.is_err(), "replies are never answered");
    throw_garbage(&mut testbed, 9, 4);
}
