//! Bursts of unreliable services to a late receiver: packets without a receive wait, up to a limit.

mod common;

use common::{End, PATIENCE, QKEY, Setup, until};
use highwire_host::verbs::{Address, CompletionOp, Datagram, Operation, PostError, RecvWr, SendWr, Service};
use highwire_host::{Engine, LinkChoice, QueuePairConfig};
use std::thread;
use std::time::{Duration, Instant};

const SERVICES: [Service; 2] = [Service::Ud, Service::Uc];
/// A datagram without its header, or the whole of a message.
const MESSAGE_BYTES: u32 = 1024;
const GRH_BYTES: u32 = 40;

fn request<'a>(from: &End, to: &End, sges: &'a [highwire_host::verbs::Sge]) -> SendWr<'a> {
    let datagram = (from.qp.service() == Service::Ud).then(|| Datagram {
        address: Address::new(to.device.gid()),
        qpn: to.qp.qpn(),
        qkey: QKEY,
    });
    SendWr { datagram, ..SendWr::new(0, Operation::Send, sges) }
}

/// A message with its number in its first bytes.
fn send(from: &End, to: &End, number: u64) {
    from.buffer.write(0, &number.to_le_bytes());
    let sges = [from.buffer.sge(0, MESSAGE_BYTES)];
    let wr = request(from, to, &sges);
    until("room in the send queue", || {
        from.cq.poll_one();
        match from.qp.post_send(&[wr]) {
            Ok(()) => Some(()),
            Err(refused) => {
                assert_eq!(refused.error, PostError::QueueFull);
                None
            }
        }
    });
    until("its end", || from.cq.poll_one());
}

fn receive(end: &End, slot: u64) {
    let sges = [end.buffer.sge(slot * 2048, 2048)];
    end.qp.post_recv(&RecvWr { wr_id: slot, sges: &sges }).expect("posts");
}

/// The number of a message that has arrived.
fn number(end: &End, slot: u64) -> u64 {
    let at = slot * 2048 + if end.qp.service() == Service::Ud { u64::from(GRH_BYTES) } else { 0 };
    u64::from_le_bytes(end.buffer.to_vec(at as usize, 8).try_into().expect("eight bytes"))
}

#[test]
fn what_comes_before_its_receive_is_kept_in_order() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        for service in SERVICES {
            let [a, b] = &Setup::new(service, link).pair();
            for sent in 0..50 {
                send(a, b, sent);
                b.cq.poll(&mut []);
            }
            until("all of them", || {
                b.cq.poll(&mut []);
                (b.device.counters().value("held_for_receive") == 50).then_some(())
            });
            for expected in 0..50 {
                receive(b, expected % 4);
                let done = until("a message", || b.cq.poll_one());
                assert_eq!((done.wr_id, done.operation), (expected % 4, CompletionOp::Receive));
                assert_eq!(number(b, done.wr_id), expected, "{service} over {link}");
            }
            assert_eq!(b.device.counters().value("dropped_no_receive"), 0);
        }
    }
}

#[test]
fn a_burst_of_many_megabytes_goes_at_the_pace_of_its_receiver() {
    // Three times as much as the engine keeps, so the sender has to wait.
    const MESSAGES: u64 = 24 << 10;
    for service in SERVICES {
        let [a, b] = &Setup::new(service, LinkChoice::Auto).engine(Engine::Both).pair();
        thread::scope(|threads| {
            threads.spawn(|| (0..MESSAGES).for_each(|sent| send(a, b, sent)));
            // It has a core now and then, and few receives.
            for expected in 0..MESSAGES {
                if expected % 4096 == 0 {
                    thread::sleep(Duration::from_millis(20));
                }
                receive(b, expected % 8);
                let done = until("a message", || b.cq.poll_one());
                assert_eq!(number(b, done.wr_id), expected, "{service}");
            }
        });
        let counters = b.device.counters();
        assert_eq!(counters.value("dropped_no_receive"), 0, "{service}");
        assert!(counters.value("held_for_receive") > 0, "{service}");
    }
}

#[test]
fn more_than_is_kept_is_not_taken_and_its_sender_waits() {
    const MESSAGES: u64 = 100;
    const LARGE: u32 = 256 << 10;
    let [a, b] = &Setup::new(Service::Uc, LinkChoice::Auto).pair();
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    let turn = |posted: &mut u64, sent: &mut u64| {
        let sges = [a.buffer.sge(0, LARGE)];
        if *posted < MESSAGES && a.qp.post_send(&[SendWr::new(0, Operation::Send, &sges)]).is_ok() {
            *posted += 1;
        }
        *sent += std::iter::from_fn(|| a.cq.poll_one()).count() as u64;
    };
    until("a full store", || {
        turn(&mut posted, &mut sent);
        b.cq.poll(&mut []);
        (b.device.counters().value("waited_for_receive") > 10).then_some(())
    });
    let held = b.device.counters().value("held_for_receive") * 4096;
    assert!((4 << 20..12 << 20).contains(&held), "{held} bytes are kept");
    assert!(sent < MESSAGES, "the sender has to wait");
    while received < MESSAGES {
        b.qp.post_recv(&RecvWr { wr_id: received, sges: &[b.buffer.sge(0, LARGE)] }).expect("posts");
        let done = until("a message", || {
            turn(&mut posted, &mut sent);
            b.cq.poll_one()
        });
        assert_eq!((done.wr_id, done.byte_len), (received, LARGE));
        received += 1;
    }
    assert_eq!(b.device.counters().value("dropped_no_receive"), 0);
}

#[test]
fn who_posts_no_receive_is_waited_for_only_for_a_while() {
    for service in SERVICES {
        let [a, b] = &Setup::new(service, LinkChoice::Auto).pair();
        let counter = |name: &str| b.device.counters().value(name);
        send(a, b, 1);
        // Its time passes, and then it is dropped like any packet without a receive.
        until("its end", || {
            b.cq.poll(&mut []);
            (counter("dropped_no_receive") == 1).then_some(())
        });
        // Later packets are dropped at once, however many there are.
        let begun = Instant::now();
        for sent in 2..10_002 {
            send(a, b, sent);
            b.cq.poll(&mut []);
        }
        until("the rest", || {
            b.cq.poll(&mut []);
            (counter("dropped_no_receive") == 10_001).then_some(())
        });
        assert_eq!(counter("held_for_receive"), 1, "{service}: after {:?}", begun.elapsed());
        // Until there is a receive again.
        receive(b, 0);
        send(a, b, 77);
        until("a message", || b.cq.poll_one());
        assert_eq!(number(b, 0), 77);
        send(a, b, 78);
        receive(b, 1);
        until("the one that waited", || b.cq.poll_one());
        assert_eq!(number(b, 1), 78);
    }
}

#[test]
fn what_is_kept_for_one_queue_pair_holds_up_no_other() {
    let [a, b] = &Setup::new(Service::Ud, LinkChoice::Auto).pair();
    // Another queue pair of the same lane, with a receive of its own.
    let other = b.pd.queue_pair(&QueuePairConfig::new(Service::Ud, &b.cq)).expect("a queue pair");
    other.activate(QKEY).expect("activates");
    for sent in 0..100 {
        send(a, b, sent);
    }
    other.post_recv(&RecvWr { wr_id: 500, sges: &[b.buffer.sge(0, 2048)] }).expect("posts");
    let sges = [a.buffer.sge(0, 8)];
    let to = Datagram { address: Address::new(b.device.gid()), qpn: other.qpn(), qkey: QKEY };
    a.qp.post_send(&[SendWr { datagram: Some(to), ..request(a, b, &sges) }]).expect("posts");
    let begun = Instant::now();
    let done = until("the other's", || {
        a.cq.poll_one();
        b.cq.poll_one()
    });
    assert_eq!((done.wr_id, done.qpn), (500, other.qpn()));
    assert!(begun.elapsed() < PATIENCE);
    // A stranger's Q_Key is no reason to keep anything.
    let before = b.device.counters().value("held_for_receive");
    a.qp.post_send(&[SendWr {
        datagram: Some(Datagram { qpn: other.qpn(), qkey: 7, ..to }),
        ..request(a, b, &sges)
    }])
    .expect("posts");
    until("a drop", || {
        a.cq.poll_one();
        b.cq.poll(&mut []);
        (b.device.counters().value("dropped_wrong_key") == 1).then_some(())
    });
    assert_eq!(b.device.counters().value("held_for_receive"), before);
}

/// Datagrams for a neighbour do not wait for a turn of the engine, and need none: the sending thread may turn to something else once
/// it has posted them.
#[test]
fn all_datagrams_of_a_chain_arrive_though_their_sender_does_nothing_more() {
    const CHAIN: u64 = 20;
    let [a, b] = &Setup::new(Service::Ud, LinkChoice::Auto).pair();
    for round in 0..10 {
        let sges: Vec<_> = (0..CHAIN).map(|slot| [a.buffer.sge(slot * 8, 8)]).collect();
        for slot in 0..CHAIN {
            receive(b, slot);
            a.buffer.write(slot as usize * 8, &(round * CHAIN + slot).to_le_bytes());
        }
        let unsignaled = highwire_host::verbs::SendFlags::default();
        let chain: Vec<_> =
            sges.iter().map(|sges| SendWr { flags: unsignaled, ..request(a, b, sges) }).collect();
        a.qp.post_send(&chain).expect("posts");
        for slot in 0..CHAIN {
            assert_eq!(until("a datagram", || b.cq.poll_one()).wr_id, slot);
            assert_eq!(number(b, slot), round * CHAIN + slot);
        }
    }
}

/// The same when there are more of them than a ring has room for: those that wait are not overtaken by later ones.
#[test]
fn no_datagram_overtakes_those_that_wait_for_room() {
    // A ring takes a thousand, more or less.
    const SENT: u64 = 1900;
    let [a, b] = &Setup::new(Service::Ud, LinkChoice::Auto).pair();
    let unsignaled = highwire_host::verbs::SendFlags::default();
    let post = |number: u64| {
        a.buffer.write(0, &number.to_le_bytes());
        let sges = [a.buffer.sge(0, 8)];
        a.qp.post_send(&[SendWr { flags: unsignaled, ..request(a, b, &sges) }]).expect("posts");
    };
    (0..SENT).for_each(post);
    // There is room again now and then, and more datagrams come all the time.
    for number in 0..2 * SENT {
        receive(b, number % 64);
        until("a datagram", || {
            a.cq.poll(&mut []);
            b.cq.poll_one()
        });
        assert_eq!(self::number(b, number % 64), number);
        if number < SENT {
            post(SENT + number);
        }
    }
}
