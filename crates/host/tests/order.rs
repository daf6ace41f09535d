//! A request that is carried out in the peer's memory overtakes no earlier one.

mod common;

use common::{Setup, next_ok};
use highwire_host::LinkChoice;
use highwire_host::verbs::{CompletionOp, CompletionStatus, Operation, Service};

/// On UC a WRITE is complete when it has left. While one lies in the ring, a later one must go behind it.
#[test]
fn an_unreliable_write_is_direct_only_when_the_peer_has_taken_what_came_before() {
    let [a, b] = &Setup::new(Service::Uc, LinkChoice::Auto).pair();
    let direct = || a.device.counters().value("direct");
    let bytes = a.fill(0, 64, 3);
    for round in 0..3u64 {
        b.buffer.write(512, &[0; 64]);
        // No region has this key, so it goes as a packet, and the peer drops it.
        let nowhere =
            highwire_host::verbs::Remote { va: 0, rkey: highwire_host::verbs::RemoteKey(0xDEAD_BEEF) };
        a.post(2, Operation::Write(nowhere), 0, 64);
        assert_eq!(next_ok_alone(a), CompletionOp::Write);
        a.post(3, Operation::Write(b.buffer.remote(512)), 0, 64);
        assert_eq!(next_ok_alone(a), CompletionOp::Write);
        assert_eq!((direct(), b.buffer.to_vec(512, 64)), (round, vec![0; 64]), "it waits behind the other");
        common::until("both", || {
            b.cq.poll_one();
            (b.buffer.to_vec(512, 64) == bytes).then_some(())
        });
        // Nothing is under way any more.
        a.post(4, Operation::Write(b.buffer.remote(2048 + round)), 0, 64);
        assert_eq!(next_ok_alone(a), CompletionOp::Write);
        assert_eq!((direct(), b.buffer.to_vec(2048 + round as usize, 64)), (round + 1, bytes.clone()));
    }
}

/// The peer has taken a SEND from the ring and keeps it until there is a receive: a WRITE that was posted after it waits with it.
#[test]
fn an_unreliable_write_does_not_overtake_a_send_that_waits_for_its_receive() {
    let [a, b] = &Setup::new(Service::Uc, LinkChoice::Auto).pair();
    let bytes = a.fill(0, 64, 3);
    b.buffer.write(512, &[0; 64]);
    a.post(2, Operation::Send, 0, 64);
    assert_eq!(next_ok_alone(a), CompletionOp::Send);
    assert!(b.cq.poll_one().is_none(), "it has no receive");
    a.post(3, Operation::Write(b.buffer.remote(512)), 0, 64);
    assert_eq!(next_ok_alone(a), CompletionOp::Write);
    assert!(b.cq.poll_one().is_none());
    assert_eq!(b.buffer.to_vec(512, 64), [0; 64], "it waits behind the SEND");
    b.receive(1, 1024, 64);
    assert_eq!(next_ok(b, a).operation, CompletionOp::Receive);
    assert_eq!((b.buffer.to_vec(1024, 64), b.buffer.to_vec(512, 64)), (bytes.clone(), bytes));
    assert_eq!(a.device.counters().value("direct"), 0);
}

/// Only WRITEs: UC has no READ, even if the driver could carry it out.
#[test]
fn nothing_but_writes_is_direct_on_unreliable_connections() {
    let [a, b] = &Setup::new(Service::Uc, LinkChoice::Auto).pair();
    let before = a.fill(0, 8, 1);
    b.fill(0, 8, 2);
    let sges = [a.buffer.sge(0, 8)];
    let read = highwire_host::verbs::SendWr::new(1, Operation::Read(b.buffer.remote(0)), &sges);
    if a.qp.post_send(&[read]).is_ok() {
        let completion = common::next(a, b);
        assert_ne!(completion.status, CompletionStatus::Success);
    }
    assert_eq!((a.device.counters().value("direct"), a.buffer.to_vec(0, 8)), (0, before));
}

#[track_caller]
fn next_ok_alone(end: &common::End) -> CompletionOp {
    let completion = end.cq.poll_one().expect("nobody else is needed");
    assert_eq!(completion.status, CompletionStatus::Success);
    completion.operation
}
