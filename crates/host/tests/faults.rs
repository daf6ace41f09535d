//! A network that misbehaves, and peers that are not there.

mod common;

use common::{Setup, next_ok, until};
use highwire_host::verbs::{Address, CompletionStatus, Gid, Operation, QpAttr, QpState, Recovery, Service};
use highwire_host::{Endpoint, LinkChoice};
use std::net::IpAddr;
use std::sync::atomic::Ordering::SeqCst;

#[test]
fn reliable_connections_deliver_everything_once_and_in_order() {
    for recovery in [Recovery::GoBackN, Recovery::Irn] {
        for faults in ["loss=3%,seed=1", "duplicate=5%,reorder=5%,seed=2", "corrupt=3%,loss=1%,seed=3"] {
            let mut setup = Setup::new(Service::Rc, LinkChoice::Udp).recovery(recovery).faults(faults);
            // Eight milliseconds: tails that are lost are found soon.
            setup.options.timeout = 11;
            let [a, b] = &setup.pair();
            b.buffer.word(0).store(0, SeqCst);
            for round in 0..60u64 {
                let length = [1u32, 100, 4096, 30_000][round as usize % 4];
                let sent = a.fill(65_536, length as usize, round as u8);
                b.receive(round, 8192, 32_768);
                a.post(1, Operation::FetchAdd { remote: b.buffer.remote(0), add: 1 }, 0, 8);
                a.post(2, Operation::Send, 65_536, length);
                a.post(3, Operation::Write(b.buffer.remote(200_000)), 65_536, length);
                a.post(4, Operation::Read(b.buffer.remote(200_000)), 400_000, length);
                assert_eq!(next_ok(b, a).byte_len, length);
                for wr_id in 1..=4 {
                    assert_eq!(next_ok(a, b).wr_id, wr_id, "{recovery:?} {faults}");
                }
                assert_eq!(a.buffer.word(0).load(SeqCst), round, "each atomic once: {recovery:?} {faults}");
                let copies = [(b, 8192), (b, 200_000), (a, 400_000)];
                for (end, at) in copies {
                    assert_eq!(end.buffer.to_vec(at, length as usize), sent, "{recovery:?} {faults}");
                }
            }
            let counters = a.device.counters();
            assert!(
                counters.value("retransmitted") > 0 || faults.starts_with("dup"),
                "{faults}: nothing was lost"
            );
        }
    }
}

#[test]
fn irn_is_spoken_between_two_devices_that_asked_each_other() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        let [a, b] = &Setup::new(Service::Rc, link).recovery(Recovery::Irn).pair();
        b.receive(1, 0, 8);
        a.post(2, Operation::Send, 0, 8);
        next_ok(b, a);
        next_ok(a, b);
        assert_eq!(a.qp.query().recovery, Recovery::Irn, "{link}");
    }
}

#[test]
fn a_peer_that_does_not_answer_gets_standard_packets_and_then_none() {
    let mut setup = Setup::new(Service::Rc, LinkChoice::Udp).recovery(Recovery::Irn);
    (setup.options.timeout, setup.options.retry_count) = (6, 1);
    let a = setup.end();
    let nobody = Gid::from_ip("127.254.253.251".parse::<IpAddr>().expect("an address"));
    a.qp.connect(&Endpoint { gid: nobody, ..a.qp.endpoint() }, &setup.options).expect("connects");
    a.post(1, Operation::Send, 0, 8);
    let completion = until("the end of all retries", || a.cq.poll_one());
    assert_eq!(completion.status, CompletionStatus::RetryExceeded);
    assert_eq!(a.qp.query().recovery, Recovery::GoBackN);
    assert_eq!(a.qp.state(), QpState::Error);
}

#[test]
fn packets_of_strangers_are_dropped_and_counted() {
    let setup = Setup::new(Service::Rc, LinkChoice::Udp);
    let [a, b] = &setup.pair();
    let stranger = setup.end();
    // A third device that knows the queue pair's number and PSN.
    let target = Endpoint { psn: b.qp.endpoint().psn, ..b.qp.endpoint() };
    stranger.qp.connect(&target, &setup.options).expect("connects");
    stranger.post(1, Operation::Write(b.buffer.remote(0)), 0, 8);
    until("the packet to be dropped", || {
        let _ = [a, b, &stranger].map(|end| end.cq.poll_one());
        (b.device.counters().value("dropped_wrong_source") > 0).then_some(())
    });
    // The connection that was attacked is unharmed.
    b.receive(1, 0, 8);
    a.post(2, Operation::Send, 0, 8);
    next_ok(b, a);
}

#[test]
fn garbage_is_dropped_and_counted() {
    let [a, b] = &Setup::new(Service::Rc, LinkChoice::Udp).pair();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = (b.device.gid().to_ip(), 4791);
    for length in [1usize, 4, 11, 12, 16, 48, 1500] {
        socket.send_to(&vec![0xA5; length], to).expect("sends");
    }
    until("seven bad packets", || {
        b.cq.poll_one();
        (b.device.counters().value("dropped_bad_icrc") == 7).then_some(())
    });
    b.receive(1, 0, 8);
    a.post(2, Operation::Send, 0, 8);
    next_ok(b, a);
}

#[test]
fn a_change_that_the_state_does_not_allow_is_refused() {
    let a = Setup::new(Service::Rc, LinkChoice::Udp).end();
    assert!(a.qp.modify(&QpAttr::to_state(QpState::Rts)).is_err());
    let attr = QpAttr { address: Some(Address::new(a.device.gid())), ..QpAttr::default() };
    assert!(a.qp.modify(&attr).is_err());
    assert_eq!(a.qp.state(), QpState::Reset);
}
