//! Every operation of every service, over both links, through the public API.

mod common;

use common::{End, QKEY, Setup, next, next_ok, until};
use highwire_host::LinkChoice;
use highwire_host::verbs::{
    Access, Address, CompletionOp, CompletionStatus, Datagram, Operation, QpState, Recovery, RemoteKey,
    SendFlags, SendWr, Service,
};

const LINKS: [LinkChoice; 2] = [LinkChoice::Udp, LinkChoice::Auto];
/// Around the sizes of packets, and one of many packets.
const LENGTHS: [u32; 9] = [0, 1, 31, 256, 4095, 4096, 4097, 20_000, 200_000];

fn connected() -> Vec<(Setup, [End; 2])> {
    let mut all = Vec::new();
    for link in LINKS {
        for (service, recovery) in
            [(Service::Rc, Recovery::GoBackN), (Service::Rc, Recovery::Irn), (Service::Uc, Recovery::GoBackN)]
        {
            let setup = Setup::new(service, link).recovery(recovery);
            let pair = setup.pair();
            all.push((setup, pair));
        }
    }
    all
}

#[test]
fn send_arrives_whole_with_its_immediate() {
    for (setup, [a, b]) in &connected() {
        for (i, length) in LENGTHS.into_iter().enumerate() {
            let bytes = a.fill(0, length as usize, i as u8);
            b.receive(7, 0, length);
            a.post(8, Operation::SendImm(i as u32), 0, length);
            let received = next_ok(b, a);
            assert_eq!((received.wr_id, received.operation), (7, CompletionOp::Receive), "{}", setup.label());
            assert_eq!((received.byte_len, received.immediate), (length, i as u32));
            assert!(received.flags.with_immediate);
            assert_eq!(b.buffer.to_vec(0, length as usize), bytes);
            assert_eq!(next_ok(a, b).wr_id, 8);
        }
    }
}

#[test]
fn write_places_bytes_and_nothing_beside_them() {
    for (setup, [a, b]) in &connected() {
        for (i, length) in LENGTHS.into_iter().enumerate() {
            let bytes = a.fill(0, length as usize, i as u8);
            b.buffer.fill(0xEE);
            b.receive(9, 0, 0);
            a.post(1, Operation::Write(b.buffer.remote(64)), 0, length);
            a.post(2, Operation::WriteImm(b.buffer.remote(300_000), 5), 0, length);
            let received = next_ok(b, a);
            assert_eq!((received.operation, received.immediate), (CompletionOp::ReceiveWriteImm, 5));
            assert_eq!(received.byte_len, length, "{}", setup.label());
            assert_eq!([next_ok(a, b).wr_id, next_ok(a, b).wr_id], [1, 2]);
            for at in [64, 300_000] {
                let around = b.buffer.to_vec(at - 8, length as usize + 16);
                assert_eq!(&around[8..8 + length as usize], bytes, "{}", setup.label());
                assert_eq!((&around[..8], &around[around.len() - 8..]), (&[0xEE; 8][..], &[0xEE; 8][..]));
            }
        }
    }
}

#[test]
fn read_fetches_what_is_there() {
    for (setup, [a, b]) in connected().iter().filter(|(setup, _)| setup.service == Service::Rc) {
        for (i, length) in LENGTHS.into_iter().enumerate() {
            let bytes = b.fill(100, length as usize, i as u8);
            a.post(3, Operation::Read(b.buffer.remote(100)), 8, length);
            let read = next_ok(a, b);
            assert_eq!((read.operation, read.byte_len), (CompletionOp::Read, length), "{}", setup.label());
            assert_eq!(a.buffer.to_vec(8, length as usize), bytes);
        }
    }
}

#[test]
fn atomics_return_the_old_value_and_leave_the_new_one() {
    use std::sync::atomic::Ordering::SeqCst;
    for (setup, [a, b]) in connected().iter().filter(|(setup, _)| setup.service == Service::Rc) {
        let remote = b.buffer.remote(64);
        b.buffer.word(64).store(5, SeqCst);
        let steps = [
            (Operation::FetchAdd { remote, add: 3 }, 5, 8),
            (Operation::CompareSwap { remote, compare: 8, swap: 100 }, 8, 100),
            (Operation::CompareSwap { remote, compare: 8, swap: 7 }, 100, 100),
            (Operation::FetchAdd { remote, add: u64::MAX }, 100, 99),
        ];
        for (operation, before, after) in steps {
            a.post(4, operation, 0, 8);
            next_ok(a, b);
            let got = (a.buffer.word(0).load(SeqCst), b.buffer.word(64).load(SeqCst));
            assert_eq!(got, (before, after), "{operation:?} {}", setup.label());
        }
    }
}

#[test]
fn datagrams_reach_the_queue_pair_they_name() {
    for link in LINKS {
        let [a, b] = &Setup::new(Service::Ud, link).pair();
        for length in [0u32, 1, 32, 1000, 4096] {
            let bytes = a.fill(0, length as usize, 9);
            b.receive(1, 0, length + 40);
            let sges = [a.buffer.sge(0, length)];
            let to = Datagram { address: Address::new(b.device.gid()), qpn: b.qp.qpn(), qkey: QKEY };
            let wr = SendWr { datagram: Some(to), ..SendWr::new(2, Operation::SendImm(77), &sges) };
            a.qp.post_send(&[wr]).expect("posts");
            let received = next_ok(b, a);
            assert_eq!((received.byte_len, received.immediate), (length + 40, 77));
            assert_eq!(received.source_qpn, a.qp.qpn());
            assert!(received.flags.grh);
            assert_eq!(b.buffer.to_vec(40, length as usize), bytes);
            assert_eq!(next_ok(a, b).wr_id, 2);
        }
    }
}

#[test]
fn inline_data_may_change_as_soon_as_it_is_posted() {
    for (_, [a, b]) in &connected() {
        for round in 0..200u8 {
            let mut data = [round; 100];
            b.receive(u64::from(round), 0, 100);
            a.qp.post_inline(&SendWr::new(1, Operation::Send, &[]), &data).expect("posts");
            data.fill(0xFF);
            next_ok(b, a);
            assert_eq!(b.buffer.to_vec(0, 100), [round; 100]);
            next_ok(a, b);
        }
    }
}

#[test]
fn a_chain_completes_in_order_and_unsignaled_requests_silently() {
    for (setup, [a, b]) in &connected() {
        let count = 100u64;
        (0..count).for_each(|i| b.receive(i, i * 8, 8));
        let sges: Vec<_> = (0..count).map(|i| [a.buffer.sge(i * 8, 8)]).collect();
        (0..count).for_each(|i| a.buffer.write(i as usize * 8, &i.to_le_bytes()));
        let chain: Vec<_> = (0..count)
            .map(|i| SendWr {
                flags: SendFlags { signaled: i % 10 == 9, ..SendFlags::default() },
                ..SendWr::new(i, Operation::Send, &sges[i as usize])
            })
            .collect();
        a.qp.post_send(&chain).expect("posts");
        for i in 0..count {
            assert_eq!(next_ok(b, a).wr_id, i, "{}", setup.label());
            assert_eq!(b.buffer.to_vec(i as usize * 8, 8), i.to_le_bytes());
        }
        (0..10).for_each(|i| assert_eq!(next_ok(a, b).wr_id, i * 10 + 9));
        assert_eq!(a.cq.poll_one(), None);
    }
}

#[test]
fn what_the_peer_does_not_allow_fails_with_its_reason_and_flushes_the_rest() {
    for link in LINKS {
        let check = |operation: fn(&End) -> Operation, expected| {
            let [a, b] = &Setup::new(Service::Rc, link).pair();
            a.post(1, operation(b), 0, 8);
            assert_eq!(next(a, b).status, expected, "{link}");
            assert_eq!(a.qp.state(), QpState::Error);
            a.post(2, Operation::Send, 0, 8);
            assert_eq!(next(a, b).status, CompletionStatus::Flushed);
        };
        let beyond = |b: &End| Operation::Write(b.buffer.remote(common::BUFFER_BYTES as u64 - 4));
        check(beyond, CompletionStatus::RemoteAccess);
        let bad_key = |b: &End| {
            let mut remote = b.buffer.remote(0);
            remote.rkey = RemoteKey(!remote.rkey.0);
            Operation::Read(remote)
        };
        check(bad_key, CompletionStatus::RemoteAccess);
    }
}

#[test]
fn a_region_without_the_permission_refuses_on_both_links() {
    for link in LINKS {
        let [a, b] = &Setup::new(Service::Rc, link).pair();
        let closed = b.pd.allocate(64, Access::LOCAL_WRITE).expect("a buffer");
        a.post(1, Operation::Write(closed.remote(0)), 0, 8);
        assert_eq!(next(a, b).status, CompletionStatus::RemoteAccess);
    }
}

#[test]
fn a_withdrawn_key_opens_nothing() {
    for link in LINKS {
        let [a, b] = &Setup::new(Service::Rc, link).pair();
        let short_lived = b.pd.allocate(64, Access::ALL).expect("a buffer");
        let remote = short_lived.remote(0);
        a.post(1, Operation::Write(remote), 0, 8);
        next_ok(a, b);
        drop(short_lived);
        a.post(2, Operation::Write(remote), 0, 8);
        assert_eq!(next(a, b).status, CompletionStatus::RemoteAccess);
    }
}

#[test]
fn a_local_key_that_is_not_ours_fails_here() {
    let [a, b] = &Setup::new(Service::Rc, LinkChoice::Udp).pair();
    let mut sge = a.buffer.sge(0, 8);
    sge.lkey.0 ^= 0x100;
    a.qp.post_send(&[SendWr::new(1, Operation::Send, &[sge])]).expect("posts");
    assert_eq!(next(a, b).status, CompletionStatus::LocalProtection);
}

#[test]
fn receives_of_a_shared_queue_serve_whoever_sends() {
    use highwire_host::QueuePairConfig;
    use highwire_host::verbs::RecvWr;
    for link in LINKS {
        let setup = Setup::new(Service::Rc, link);
        let (a, b) = (setup.end(), setup.end());
        let srq = b.device.shared_receive_queue(&b.pd, 64, 2).expect("an SRQ");
        let config = QueuePairConfig { srq: Some(&srq), ..QueuePairConfig::new(Service::Rc, &b.cq) };
        let qps = [b.pd.queue_pair(&config).expect("a QP"), b.pd.queue_pair(&config).expect("a QP")];
        let other = a.pd.queue_pair(&QueuePairConfig::new(Service::Rc, &a.cq)).expect("a QP");
        for (ours, theirs) in [&a.qp, &other].into_iter().zip(&qps) {
            ours.connect(&theirs.endpoint(), &setup.options).expect("connects");
            theirs.connect(&ours.endpoint(), &setup.options).expect("connects");
        }
        for i in 0..20u64 {
            let sges = [b.buffer.sge(i * 64, 64)];
            srq.post_recv(&RecvWr { wr_id: i, sges: &sges }).expect("posts");
        }
        let sges = [a.buffer.sge(0, 8)];
        for i in 0..20u64 {
            let (from, to) = if i % 3 == 0 { (&other, &qps[1]) } else { (&a.qp, &qps[0]) };
            from.post_send(&[SendWr::new(i, Operation::Send, &sges)]).expect("posts");
            let received = next_ok(&b, &a);
            assert_eq!((received.wr_id, received.qpn), (i, to.qpn()));
            next_ok(&a, &b);
        }
    }
}

#[test]
fn a_wait_for_receives_ends_when_they_are_posted() {
    for link in LINKS {
        let [a, b] = &Setup::new(Service::Rc, link).pair();
        a.post(1, Operation::Send, 0, 8);
        // Until the peer has been told that there is no receive.
        until("an RNR NAK", || {
            let _ = [a, b].map(|end| end.cq.poll_one());
            (b.device.counters().value("rnr_sent") > 0).then_some(())
        });
        b.receive(2, 0, 8);
        assert_eq!(next_ok(b, a).wr_id, 2);
        assert_eq!(next_ok(a, b).wr_id, 1);
    }
}

#[test]
fn a_ring_that_is_full_is_waited_for() {
    // An unreliable connection repeats no lost packet, and ten times as many packets as a ring and its backlog hold are under way.
    let [a, b] = &Setup::new(Service::Uc, LinkChoice::Auto).pair();
    const MESSAGES: u64 = 60;
    let length = (1 << 20) - 1;
    a.fill(0, length as usize, 3);
    for number in 0..MESSAGES {
        b.receive(number, 0, length);
        a.post(number, Operation::Send, 0, length);
    }
    for number in 0..MESSAGES {
        assert_eq!(next_ok(b, a).wr_id, number);
    }
    assert_eq!(a.device.counters().value("dropped_link_full"), 0);
    assert_eq!(b.buffer.to_vec(0, length as usize), a.buffer.to_vec(0, length as usize));
}
