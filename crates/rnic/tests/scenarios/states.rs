//! The states of a queue pair, and the fate of posted requests (IBTA §10.3.1).

use crate::RECOVERIES;
use crate::common::{A, B, Pair, Seen, Setup};
use highwire_rnic::Counter;
use highwire_verbs::{
    AsyncEvent, LocalKey, Mtu, Operation, PostError, QpAttr, QpState, Recovery, SendFlags, SendWr, Service,
    Sge,
};
use highwire_wire::Operation as Wire;

#[test]
fn an_error_flushes_everything_in_order() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        for n in 0..3 {
            pair.receive(A, 10 + n, 0, 100);
            pair.try_post(A, n, Operation::Send, 0, 10, SendFlags::default()).expect("posts");
        }
        pair.modify(A, &QpAttr::to_state(QpState::Error));
        let flushed = ["0 Flushed", "1 Flushed", "2 Flushed", "10 Flushed", "11 Flushed", "12 Flushed"];
        assert_eq!(pair.outcomes(A), flushed);
        // Requests that are posted from now on are flushed at once.
        pair.post(A, 5, Operation::Send, 0, 10);
        pair.receive(A, 6, 0, 10);
        assert_eq!(pair.outcomes(A), ["5 Flushed", "6 Flushed"]);
    }
}

#[test]
fn a_queue_pair_on_a_shared_queue_reports_its_last_receive() {
    let mut pair = Pair::new(Setup { with_srq: true, ..Setup::default() });
    pair.modify(A, &QpAttr::to_state(QpState::Error));
    assert_eq!(pair.events(A), [AsyncEvent::LastWqeReached(pair.ends[A].qpn)]);
}

#[test]
fn a_drain_finishes_what_has_begun_and_starts_nothing() {
    for recovery in RECOVERIES {
        let mut setup = Setup::with(recovery);
        setup.link.rate = Some(10_000_000_000);
        let mut pair = Pair::new(setup);
        let write = Operation::Write(pair.buffers[B].remote(0));
        pair.post(A, 1, write, 0, 20_000);
        pair.post(A, 2, write, 0, 20_000);
        pair.run_for_us(1);
        pair.modify(A, &QpAttr::to_state(QpState::Sqd));
        assert_eq!(pair.events(A), []);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"]);
        assert_eq!(pair.events(A), [AsyncEvent::SendQueueDrained(pair.ends[A].qpn)]);
        pair.modify(A, &QpAttr::to_state(QpState::Rts));
        pair.run();
        assert_eq!(pair.outcomes(A), ["2 Success"]);
    }
}

#[test]
fn an_idle_queue_is_drained_at_once_each_time() {
    for setup in crate::operations::connected() {
        let mut pair = Pair::new(setup);
        for _ in 0..2 {
            pair.modify(A, &QpAttr::to_state(QpState::Sqd));
            assert_eq!(pair.events(A), [AsyncEvent::SendQueueDrained(pair.ends[A].qpn)]);
            pair.modify(A, &QpAttr::to_state(QpState::Rts));
        }
    }
}

/// Two Highwires may agree to speak IRN while one of them is drained already.
#[test]
fn a_visit_to_the_drained_state_is_reported_once_whatever_changes_meanwhile() {
    for (from, to) in [(Recovery::GoBackN, Recovery::Irn), (Recovery::Irn, Recovery::GoBackN)] {
        let mut pair = Pair::new(Setup::with(from));
        let drained = [AsyncEvent::SendQueueDrained(pair.ends[A].qpn)];
        pair.modify(A, &QpAttr::to_state(QpState::Sqd));
        assert_eq!(pair.events(A), drained);
        pair.modify(A, &QpAttr { recovery: Some(to), ..QpAttr::to_state(QpState::Sqd) });
        assert_eq!(pair.events(A), []);
        pair.modify(A, &QpAttr::to_state(QpState::Rts));
        pair.modify(A, &QpAttr::to_state(QpState::Sqd));
        assert_eq!(pair.events(A), drained, "the next visit");
    }
}

#[test]
fn a_failed_send_of_an_unreliable_service_stops_sends_alone() {
    for service in [Service::Uc, Service::Ud] {
        let mut pair = Pair::new(Setup::of(service));
        let datagram = (service == Service::Ud).then(|| pair.datagram_to(B));
        let sges = [Sge { lkey: LocalKey(77), ..pair.buffers[A].sge(0, 8) }];
        let bad = SendWr { datagram, ..SendWr::new(2, Operation::Send, &sges) };
        pair.post(A, 1, Operation::Send, 0, 8);
        assert_eq!(pair.post_wr(A, &bad), Ok(()));
        pair.post(A, 3, Operation::Send, 0, 8);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success", "2 LocalProtection", "3 Flushed"]);
        assert_eq!(pair.state(A), QpState::Sqe);
        // Receives work in SQD, and so do sends after the way back to RTS.
        pair.receive(A, 9, 0, 100);
        pair.post(B, 4, Operation::Send, 0, 8);
        pair.run();
        assert_eq!(pair.outcomes(A), ["9 Success"]);
        pair.modify(A, &QpAttr::to_state(QpState::Rts));
        pair.receive(B, 8, 0, 100);
        pair.post(A, 5, Operation::Send, 0, 8);
        pair.run();
        assert_eq!(pair.outcomes(A), ["5 Success"]);
        assert_eq!(pair.outcomes(B), ["4 Success", "8 Success"]);
    }
}

#[test]
fn what_a_service_has_no_packets_for_ends_in_an_error_of_its_own_queue() {
    type Made = fn(highwire_verbs::Remote) -> Operation;
    let flags = SendFlags::SIGNALED;
    let cases: [(Service, Made, u32, &str); 6] = [
        (Service::Uc, Operation::Read, 8, "1 LocalQpOperation"),
        (Service::Uc, |remote| Operation::SendInvalidate(remote.rkey), 8, "1 LocalQpOperation"),
        (Service::Ud, Operation::Write, 8, "1 LocalQpOperation"),
        (Service::Ud, |_| Operation::Send, 1025, "1 LocalLength"),
        (Service::Rc, |remote| Operation::FetchAdd { remote, add: 1 }, 9, "1 LocalLength"),
        (Service::Rc, |remote| Operation::CompareSwap { remote, compare: 0, swap: 1 }, 4, "1 LocalLength"),
    ];
    for (service, operation, length, expected) in cases {
        let mut pair = Pair::new(Setup::of(service));
        let operation = operation(pair.buffers[B].remote(0));
        assert_eq!(pair.try_post(A, 1, operation, 0, length, flags), Ok(()), "{operation:?}");
        assert_eq!(pair.try_post(A, 2, Operation::Send, 0, 8, flags), Ok(()), "{operation:?}");
        pair.run();
        assert_eq!(pair.outcomes(A), [expected, "2 Flushed"], "{service:?} {operation:?}");
        let state = if service == Service::Rc { QpState::Error } else { QpState::Sqe };
        assert_eq!((pair.state(A), pair.count(A, Counter::PacketsSent)), (state, 0));
    }
}

#[test]
fn what_the_service_or_the_state_does_not_have_is_refused_at_once() {
    let flags = SendFlags::SIGNALED;
    let mut pair = Pair::new(Setup::of(Service::Ud));
    let local = Operation::LocalInvalidate(pair.buffers[B].remote(0).rkey);
    assert_eq!(pair.try_post(A, 1, local, 0, 0, flags), Err(PostError::Unsupported));
    let mut pair = Pair::new(Setup::default());
    pair.modify(A, &QpAttr::to_state(QpState::Reset));
    assert_eq!(pair.try_post(A, 1, Operation::Send, 0, 8, flags), Err(PostError::WrongState));
}

#[test]
fn requests_that_are_held_back_leave_together() {
    let mut pair = Pair::new(Setup::default());
    let (now, qpn) = (pair.net.now, pair.ends[A].qpn);
    pair.net.nodes[A].rnic.hold_transmit(now, qpn, true);
    let write = Operation::Write(pair.buffers[B].remote(0));
    pair.post(A, 1, write, 0, 100);
    pair.run();
    assert_eq!(pair.net.packets, 0);
    let now = pair.net.now;
    pair.net.nodes[A].rnic.hold_transmit(now, qpn, false);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 Success"]);
}

#[test]
fn who_only_answers_repairs_its_answers_too() {
    for recovery in RECOVERIES {
        let mtu = Mtu::B256;
        let mut pair = Pair::new(Setup { is_passive: true, mtu, ..Setup::with(recovery) });
        assert_eq!(pair.state(B), QpState::Rtr);
        // More packets than may be in flight at once, so only acknowledgements of answers bring all across.
        let length = 512 * mtu.bytes();
        let is_answer = |seen: &Seen<'_>| seen.headers.bth.opcode.info().operation == Wire::ReadResponse;
        pair.drop_nth(B, &[3, 4, 40, 300], is_answer);
        pair.post(A, 1, Operation::Read(pair.buffers[B].remote(0)), 0, length);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"]);
        assert_eq!(pair.bytes(A, 0, u64::from(length)), pair.bytes(B, 0, u64::from(length)));
        assert_eq!(pair.state(B), QpState::Rtr);
        assert_eq!(pair.count(B, Counter::DroppedWrongState), 0);
    }
}
