//! A network that misbehaves, and peers that are not there.

mod common;

use common::{End, QKEY, Setup, next_ok, until};
use highwire_host::verbs::{
    Address, CompletionStatus, Datagram, Gid, Operation, QpAttr, QpState, Recovery, SendWr, Service,
};
use highwire_host::{CounterSnapshot, Endpoint, LinkChoice};
use highwire_wire::{Ethernet, Frame, LinkType, icrc, pcap};
use std::net::IpAddr;
use std::sync::atomic::Ordering::SeqCst;

/// Every operation in turn, with the bytes checked at both ends.
fn converse(a: &End, b: &End, recovery: Recovery, faults: &str) {
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
}

#[test]
fn reliable_connections_deliver_everything_once_and_in_order() {
    for recovery in [Recovery::GoBackN, Recovery::Irn] {
        for faults in ["loss=3%,seed=1", "duplicate=5%,reorder=5%,seed=2", "corrupt=3%,loss=1%,seed=3"] {
            let mut setup = Setup::new(Service::Rc, LinkChoice::Udp).recovery(recovery).faults(faults);
            // Eight milliseconds: tails that are lost are found soon.
            setup.options.timeout = 11;
            let [a, b] = &setup.pair();
            converse(a, b, recovery, faults);
            let counters = a.device.counters();
            assert!(
                counters.value("retransmitted") > 0 || faults.starts_with("dup"),
                "{faults}: nothing was lost"
            );
        }
    }
}

#[test]
fn shared_memory_can_be_as_bad_as_a_network() {
    let kinds = [
        ("loss", "fault_dropped"),
        ("duplicate", "fault_duplicated"),
        ("reorder", "fault_reordered"),
        ("corrupt", "dropped_bad_icrc"),
    ];
    let lists = [
        (Recovery::GoBackN, "loss=2%,duplicate=2%,reorder=2%,corrupt=1%,delay=20us,seed=11"),
        (Recovery::Irn, "loss=3%,seed=1"),
        (Recovery::Irn, "duplicate=5%,reorder=5%,seed=2"),
        (Recovery::Irn, "corrupt=3%,loss=1%,seed=3"),
    ];
    for (recovery, faults) in lists {
        let mut setup = Setup::new(Service::Rc, LinkChoice::Shm).recovery(recovery).faults(faults);
        setup.options.timeout = 11;
        let [a, b] = &setup.pair();
        converse(a, b, recovery, faults);
        for counters in [a, b].map(|end| end.device.counters()) {
            for (_, name) in kinds.iter().filter(|(kind, _)| faults.contains(kind)) {
                assert!(counters.value(name) > 0, "{recovery:?} {faults}: no {name}");
            }
            // A damaged packet may still be on its way, or be damaged in bits that the ICRC does not cover.
            assert!(counters.value("dropped_bad_icrc") <= counters.value("fault_corrupted"));
            assert_eq!((counters.value("direct"), counters.value("udp_tx_packets")), (0, 0));
        }
    }
}

#[test]
fn nobody_gets_around_the_faults_of_a_neighbour() {
    let bad = Setup::new(Service::Rc, LinkChoice::Shm).faults("loss=1%,seed=1");
    let good = Setup::new(Service::Rc, LinkChoice::Shm);
    let ends = [good.end(), bad.end()];
    good.connect(&ends);
    let [a, b] = &ends;
    for (from, to) in [(a, b), (b, a)] {
        let sent = from.fill(0, 4096, 5);
        for wr_id in 0..20 {
            from.post(wr_id, Operation::Write(to.buffer.remote(8192)), 0, 4096);
            next_ok(from, to);
        }
        assert_eq!(to.buffer.to_vec(8192, 4096), sent);
        assert_eq!(from.device.counters().value("direct"), 0);
    }
}

/// Sends datagrams through shared memory; the faults counted at the sender, and how many arrived.
fn send_datagrams(faults: &str) -> (Vec<u64>, u64) {
    const DATAGRAMS: u64 = 400;
    let [a, b] = &Setup::new(Service::Ud, LinkChoice::Shm).faults(faults).pair();
    for wr_id in 0..DATAGRAMS + 1 {
        // The last ones may wait a millisecond for others to overtake them.
        b.receive(wr_id, 0, 1024);
        let sges = [a.buffer.sge(0, 100)];
        let to = Datagram { address: Address::new(b.device.gid()), qpn: b.qp.endpoint().qpn, qkey: QKEY };
        a.qp.post_send(&[SendWr { datagram: Some(to), ..SendWr::new(wr_id, Operation::Send, &sges) }])
            .expect("posts");
        next_ok(a, b);
    }
    until("what was held back to leave", || {
        let counters = [a, b].map(|end| {
            end.cq.poll_one();
            end.device.counters()
        });
        (counters[1].value("packets_received") == survivors(&counters[0])).then_some(())
    });
    let counters = a.device.counters();
    let faults = counters.iter().filter(|(name, _)| name.starts_with("fault_"));
    (faults.map(|(_, value)| value).collect(), b.device.counters().value("packets_received"))
}

/// How many packets of a device with faults reach its neighbours.
fn survivors(counters: &CounterSnapshot) -> u64 {
    counters.value("packets_sent") + counters.value("fault_duplicated")
        - counters.value("fault_dropped")
        - counters.value("dropped_bad_icrc")
}

#[test]
fn datagrams_are_lost_in_shared_memory_and_the_same_ones_with_the_same_seed() {
    let faults = "loss=5%,duplicate=3%,reorder=3%,corrupt=2%,seed=";
    let (counted, arrived) = send_datagrams(&format!("{faults}4"));
    assert!(counted.iter().filter(|n| **n > 0).count() >= 5, "every kind: {counted:?}");
    assert_eq!(send_datagrams(&format!("{faults}4")), (counted.clone(), arrived));
    assert_ne!(send_datagrams(&format!("{faults}5")).0, counted);
    let (_, arrived) = send_datagrams("loss=20%,seed=1");
    assert!(arrived < 400, "{arrived} of 401");
}

#[test]
fn shared_memory_is_recorded_in_both_directions_with_right_icrcs() {
    let folder = std::env::temp_dir().join(format!("highwire-host-capture-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let file = folder.join("shm.pcap");
    let setup = Setup::new(Service::Rc, LinkChoice::Shm);
    let mut recorded = setup.clone();
    recorded.config.capture = Some(file.clone());
    let ends = [recorded.end(), setup.end()];
    setup.connect(&ends);
    let [a, b] = &ends;
    let counts = [(a, b), (b, a)].map(|(from, to)| {
        from.post(1, Operation::Write(to.buffer.remote(0)), 0, 10_000);
        from.post(2, Operation::Read(to.buffer.remote(0)), 0, 300);
        next_ok(from, to);
        next_ok(from, to);
        from.device.counters()
    });
    let gid = a.device.gid().to_ip();
    let last = a.device.counters();
    assert_eq!(last.value("capture_recorded"), last.value("packets_sent") + last.value("packets_received"));
    assert!(counts[0].value("packets_sent") >= 4, "three of the WRITE, one of the READ");
    drop(ends);
    let bytes = std::fs::read(&file).expect("the capture");
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let mut sent = 0;
    let mut received = 0;
    for record in pcap::Reader::new(&bytes).expect("a capture") {
        let record = record.expect("a whole record");
        let frame = Frame::parse(LinkType::Ethernet, record.bytes).expect("a RoCEv2 frame");
        let (_, ip_start) = Ethernet::parse(record.bytes).expect("an Ethernet frame");
        assert_eq!(icrc::verify_ip_packet(&record.bytes[ip_start..]), Ok(true));
        *(if frame.ip.source() == gid { &mut sent } else { &mut received }) += 1;
    }
    assert!(sent >= last.value("packets_sent") && received >= last.value("packets_received"));
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
