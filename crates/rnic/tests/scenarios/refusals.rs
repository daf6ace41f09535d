//! The responder's refusals, and their effect at the requester.

use crate::RECOVERIES;
use crate::common::{A, B, Pair, Setup, Verdict};
use highwire_rnic::Counter;
use highwire_verbs::{
    Access, AsyncEvent, LocalKey, Operation, QpState, Recovery, RecvWr, Remote, RemoteKey, SendWr, Service,
    Sge,
};
use highwire_wire::Operation as Wire;

/// Posts `operation` between a WRITE that succeeds and one that comes too late; returns how A's requests end.
#[track_caller]
fn refused(setup: Setup, operation: Operation, length: u32) -> (Vec<String>, Pair) {
    let mut pair = Pair::new(setup);
    let fine = Operation::Write(pair.buffers[B].remote(0));
    pair.post(A, 1, fine, 0, 100);
    pair.post(A, 2, operation, 0, length);
    pair.post(A, 3, fine, 0, 100);
    pair.run();
    let outcomes = pair.outcomes(A);
    assert_eq!((outcomes[0].as_str(), outcomes[2].as_str()), ("1 Success", "3 Flushed"));
    assert_eq!([pair.state(A), pair.state(B)], [QpState::Error; 2]);
    (outcomes, pair)
}

#[test]
fn a_key_that_does_not_permit_it_is_a_remote_access_error() {
    for recovery in RECOVERIES {
        let pair = Pair::new(Setup::with(recovery));
        let good = pair.buffers[B].remote(0);
        let end = pair.buffers[B].remote(crate::common::BUFFER - 10);
        let wrong_key = Remote { rkey: RemoteKey(good.rkey.0 ^ 0x100), ..good };
        let stale_key = Remote { rkey: RemoteKey(good.rkey.0 ^ 1), ..good };
        let before = Remote { va: good.va - 1, ..good };
        for remote in [wrong_key, stale_key, before, end] {
            for operation in [Operation::Write(remote), Operation::Read(remote)] {
                let (outcomes, mut pair) = refused(Setup::with(recovery), operation, 100);
                assert_eq!(outcomes[1], "2 RemoteAccess", "{operation:?}");
                assert_eq!(pair.events(B), [AsyncEvent::QpAccessError(pair.ends[B].qpn)]);
                assert_eq!(pair.count(B, Counter::NaksSent), 1);
            }
        }
        let add =
            Operation::FetchAdd { remote: Remote { va: good.va + crate::common::BUFFER, ..good }, add: 1 };
        assert_eq!(refused(Setup::with(recovery), add, 8).0[1], "2 RemoteAccess");
    }
}

#[test]
fn a_queue_pair_without_the_permission_calls_it_an_invalid_request() {
    for recovery in RECOVERIES {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let setup = Setup { access, ..Setup::with(recovery) };
        let remote = Pair::new(setup).buffers[B].remote(0);
        let (outcomes, mut pair) = refused(setup, Operation::Read(remote), 100);
        assert_eq!(outcomes[1], "2 RemoteInvalidRequest");
        assert_eq!(pair.events(B), [AsyncEvent::QpRequestError(pair.ends[B].qpn)]);
    }
}

#[test]
fn a_message_longer_than_its_receive_hurts_both_sides() {
    for recovery in RECOVERIES {
        for length in [101, 5000] {
            let mut pair = Pair::new(Setup::with(recovery));
            pair.receive(B, 7, 0, 100);
            pair.receive(B, 8, 0, 100);
            pair.post(A, 1, Operation::Send, 0, length);
            pair.run();
            assert_eq!(pair.outcomes(A), ["1 RemoteInvalidRequest"]);
            assert_eq!(pair.outcomes(B), ["7 LocalLength", "8 Flushed"]);
            assert_eq!([pair.state(A), pair.state(B)], [QpState::Error; 2]);
        }
    }
}

#[test]
fn a_write_with_immediate_whose_key_is_wrong_takes_its_receive_along() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        let good = pair.buffers[B].remote(0);
        let bad = Remote { rkey: RemoteKey(good.rkey.0 ^ 0x100), ..good };
        pair.receive(B, 7, 0, 100);
        pair.receive(B, 8, 0, 100);
        pair.post(A, 1, Operation::WriteImm(bad, 9), 0, 10);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 RemoteAccess"]);
        assert_eq!(pair.outcomes(B), ["7 LocalAccess", "8 Flushed"]);
        // Without a receive the responder answers RNR, even if the key is wrong.
        let mut pair = Pair::new(Setup { rnr_retry: 1, ..Setup::with(recovery) });
        pair.post(A, 1, Operation::WriteImm(bad, 9), 0, 10);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 RnrRetryExceeded"]);
    }
}

#[test]
fn what_the_responder_says_against_a_request_comes_before_where_its_answer_was_to_go() {
    for recovery in RECOVERIES {
        let good = Pair::new(Setup::with(recovery)).buffers[B].remote(0);
        let bad = Remote { rkey: RemoteKey(good.rkey.0 ^ 0x100), ..good };
        let odd = Remote { va: good.va + 1, ..good };
        let add = |remote| Operation::FetchAdd { remote, add: 1 };
        let cases = [
            (Operation::Read(good), "2 LocalProtection"),
            (Operation::Read(bad), "2 RemoteAccess"),
            (add(good), "2 LocalProtection"),
            (add(bad), "2 RemoteAccess"),
            (add(odd), "2 RemoteInvalidRequest"),
            (Operation::Write(bad), "2 LocalProtection"),
        ];
        for (operation, expected) in cases {
            let mut pair = Pair::new(Setup::with(recovery));
            pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 5000);
            let sges = [Sge { lkey: LocalKey(77), ..pair.buffers[A].sge(0, 8) }];
            assert_eq!(pair.post_wr(A, &SendWr::new(2, operation, &sges)), Ok(()));
            pair.post(A, 3, Operation::Send, 0, 8);
            pair.run();
            assert_eq!(pair.outcomes(A), ["1 Success", expected, "3 Flushed"], "{recovery:?} {operation:?}");
        }
    }
}

#[test]
fn a_datagram_longer_than_its_receive_leaves_the_receive_for_another() {
    let mut pair = Pair::new(Setup::of(Service::Ud));
    pair.receive(B, 7, 0, 140);
    pair.post(A, 1, Operation::Send, 0, 101);
    pair.post(A, 2, Operation::Send, 200, 100);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 Success", "2 Success"]);
    assert_eq!(pair.outcomes(B), ["7 Success"]);
    assert_eq!((pair.count(B, Counter::DroppedTooLong), pair.state(B)), (1, QpState::Rts));
    assert_eq!(pair.bytes(B, 40, 100), pair.bytes(A, 200, 100));
}

#[test]
fn a_receive_whose_memory_is_not_there_is_a_remote_operation_error() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        let sges = [Sge { lkey: LocalKey(0x1234_5600), ..pair.buffers[B].sge(0, 100) }];
        let (now, qpn) = (pair.net.now, pair.ends[B].qpn);
        pair.net.nodes[B].rnic.post_recv(now, qpn, &RecvWr { wr_id: 7, sges: &sges }).expect("posts");
        pair.post(A, 1, Operation::Send, 0, 10);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 RemoteOperation"]);
        assert_eq!(pair.outcomes(B), ["7 LocalProtection"]);
        assert_eq!(pair.events(B), [AsyncEvent::QpFatal(qpn)]);
    }
}

#[test]
fn a_broken_receive_behind_a_hole_waits_for_its_turn() {
    let mut pair = Pair::new(Setup::with(highwire_verbs::Recovery::Irn));
    pair.receive(B, 7, 0, 100);
    let sges = [Sge { lkey: LocalKey(0x1234_5600), ..pair.buffers[B].sge(0, 100) }];
    let (now, qpn) = (pair.net.now, pair.ends[B].qpn);
    pair.net.nodes[B].rnic.post_recv(now, qpn, &RecvWr { wr_id: 8, sges: &sges }).expect("posts");
    pair.drop_nth(A, &[0], |_| true);
    pair.post(A, 1, Operation::Send, 0, 10);
    pair.post(A, 2, Operation::Send, 0, 10);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 Success", "2 RemoteOperation"]);
    assert_eq!(pair.outcomes(B), ["7 Success", "8 LocalProtection"]);
}

/// READs of 10 packets: the answers to sixteen are more than one window of them.
fn asks_more_than_granted(recovery: Recovery) -> (Vec<String>, Pair) {
    let mut pair = Pair::new(Setup { rd_atomic: 16, granted_rd_atomic: Some(2), ..Setup::with(recovery) });
    let good = pair.buffers[B].remote(0);
    for n in 0..16 {
        pair.post(A, n, Operation::Read(good), n * 10_000, 10_000);
    }
    pair.run();
    (pair.outcomes(A), pair)
}

#[test]
fn a_requester_that_asks_for_more_at_once_than_it_was_granted_is_refused() {
    for recovery in RECOVERIES {
        let (outcomes, mut pair) = asks_more_than_granted(recovery);
        let refused = outcomes.iter().position(|outcome| outcome.ends_with("RemoteInvalidRequest"));
        let refused = refused.unwrap_or_else(|| panic!("{recovery:?}: {outcomes:?}"));
        assert!(refused >= 2, "what was granted is answered: {outcomes:?}");
        for (n, outcome) in outcomes.iter().enumerate().filter(|&(n, _)| n != refused) {
            let expected = if n < refused { "Success" } else { "Flushed" };
            assert_eq!(*outcome, format!("{n} {expected}"), "{recovery:?}");
        }
        assert_eq!(pair.count(B, Counter::NaksSent), 1);
        assert_eq!(pair.events(B), [AsyncEvent::QpRequestError(pair.ends[B].qpn)]);
    }
}

/// READs whose answers leave before the next READ comes are accepted, whether the answers arrive or not: such
/// a requester is never caught, and losses are repaired for it.
#[test]
fn irn_repairs_answers_to_a_requester_that_asks_for_too_many_as_well() {
    for lost in 0..16 {
        let recovery = Setup::with(Recovery::Irn);
        let mut pair = Pair::new(Setup { rd_atomic: 16, granted_rd_atomic: Some(2), ..recovery });
        let mut answers = 0;
        pair.rule(move |seen, _| {
            let is_answer = seen.headers.bth.opcode.info().operation == Wire::ReadResponse;
            answers += u32::from(is_answer);
            Verdict::drop_if(is_answer && answers == lost + 1)
        });
        let good = pair.buffers[B].remote(0);
        for n in 0..16 {
            pair.post(A, n, Operation::Read(good), n * 100, 100);
            pair.run_for_us(1);
        }
        pair.run();
        let expected: Vec<String> = (0..16).map(|n| format!("{n} Success")).collect();
        assert_eq!(pair.outcomes(A), expected, "answer {lost} lost");
    }
}

#[test]
fn the_answers_to_what_came_before_a_refusal_still_arrive() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        let good = pair.buffers[B].remote(0);
        let bad = Remote { rkey: RemoteKey(good.rkey.0 ^ 0x100), ..good };
        pair.post(A, 1, Operation::Read(good), 0, 10_000);
        pair.post(A, 2, Operation::FetchAdd { remote: good, add: 1 }, 16_000, 8);
        pair.post(A, 3, Operation::Write(bad), 0, 10);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success", "2 Success", "3 RemoteAccess"]);
    }
}

#[test]
fn local_memory_that_is_not_there_breaks_the_own_side_in_its_turn() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        let write = Operation::Write(pair.buffers[B].remote(0));
        pair.post(A, 1, write, 0, 5000);
        let sges = [Sge { lkey: LocalKey(77), ..pair.buffers[A].sge(0, 8) }];
        assert_eq!(pair.post_wr(A, &SendWr::new(2, write, &sges)), Ok(()));
        pair.post(A, 3, write, 0, 8);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success", "2 LocalProtection", "3 Flushed"]);
        assert_eq!(pair.state(A), QpState::Error);
    }
}

#[test]
fn a_receiver_that_is_not_ready_is_asked_again() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup { rnr_retry: 6, ..Setup::with(recovery) });
        pair.post(A, 1, Operation::Send, 0, 3000);
        pair.run_for_us(25);
        assert_eq!((pair.count(B, Counter::RnrSent), pair.count(A, Counter::RnrReceived)), (2, 1));
        pair.receive(B, 7, 0, 4000);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"]);
        assert_eq!(pair.outcomes(B), ["7 Success"]);
        assert_eq!(pair.bytes(B, 0, 3000), pair.bytes(A, 0, 3000));
    }
}

#[test]
fn a_receiver_that_is_never_ready_is_given_up() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup { rnr_retry: 2, ..Setup::with(recovery) });
        pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 10);
        pair.post(A, 2, Operation::SendImm(1), 0, 10);
        pair.post(A, 3, Operation::Send, 0, 10);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success", "2 RnrRetryExceeded", "3 Flushed"]);
        assert_eq!(pair.count(B, Counter::RnrSent), 3, "asked once, and twice again");
    }
}

#[test]
fn seven_rnr_retries_are_for_ever_and_outlast_the_timeout() {
    for recovery in RECOVERIES {
        // The wait of 10 µs is shorter than the timeout of 8 µs … and many of them longer than all retries.
        let mut pair = Pair::new(Setup { timeout: 1, retry_count: 1, ..Setup::with(recovery) });
        pair.net.link.latency = highwire_stdx::Duration::from_nanos(500);
        pair.post(A, 1, Operation::Send, 0, 10);
        pair.run_for_us(2000);
        assert!(pair.count(B, Counter::RnrSent) > 100);
        pair.receive(B, 7, 0, 4000);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"]);
    }
}

#[test]
fn a_write_with_immediate_waits_for_a_receive_with_its_data_in_place() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        pair.post(A, 1, Operation::WriteImm(pair.buffers[B].remote(0), 9), 0, 5000);
        pair.run_for_us(100);
        assert_eq!(pair.completions(B), []);
        pair.receive(B, 7, 0, 0);
        pair.run();
        assert_eq!(
            (pair.outcomes(A), pair.outcomes(B)),
            (vec!["1 Success".into()], vec!["7 Success".into()])
        );
        assert_eq!(pair.bytes(B, 0, 5000), pair.bytes(A, 0, 5000));
    }
}

#[test]
fn an_unreliable_message_without_a_receive_or_with_a_hole_is_dropped_whole() {
    let mut pair = Pair::new(Setup::of(Service::Uc));
    pair.post(A, 1, Operation::Send, 0, 3000);
    pair.run();
    assert_eq!(pair.count(B, Counter::DroppedNoReceive), 1);
    pair.receive(B, 7, 0, 4000);
    pair.drop_nth(A, &[1], |seen| seen.headers.bth.opcode.info().operation == Wire::Send);
    pair.post(A, 2, Operation::Send, 1000, 3000);
    pair.post(A, 3, Operation::Send, 2000, 3000);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 Success", "2 Success", "3 Success"]);
    assert_eq!(pair.outcomes(B), ["7 Success"]);
    assert_eq!(pair.bytes(B, 0, 3000), pair.bytes(A, 2000, 3000));
}

#[test]
fn an_unreliable_message_that_comes_twice_is_run_once() {
    let mut pair = Pair::new(Setup::of(Service::Uc));
    pair.rule(|_, _| Verdict::DUPLICATE);
    for n in 0..4 {
        pair.receive(B, n, 4096 * n, 4096);
    }
    pair.post(A, 1, Operation::Send, 0, 100);
    pair.post(A, 2, Operation::Send, 0, 100);
    pair.run();
    assert_eq!(pair.outcomes(B), ["0 Success", "1 Success"]);
}

#[test]
fn memory_that_goes_away_under_way_is_never_touched_again() {
    // The network is slow enough to take the keys away in the middle of each message.
    for (recovery, side) in RECOVERIES.into_iter().flat_map(|r| [(r, A), (r, B)]) {
        for which in 0..3 {
            let mut setup = Setup { timeout: 5, retry_count: 2, ..Setup::with(recovery) };
            setup.link.rate = Some(1_000_000_000);
            let mut pair = Pair::new(setup);
            pair.receive(B, 7, 0, 50_000);
            let remote = pair.buffers[B].remote(0);
            let operation = [Operation::Send, Operation::Write(remote), Operation::Read(remote)][which];
            pair.post(A, 1, operation, 0, 50_000);
            pair.run_for_us(150);
            let buffer = pair.buffers[side];
            pair.net.nodes[side].deregister(&buffer);
            pair.run();
            let outcomes = pair.outcomes(A);
            let expected: &[&str] = match (side, which) {
                (A, _) => &["1 LocalProtection", "1 RemoteAccess"],
                (_, 0) => &["1 RemoteOperation"],
                _ => &["1 RemoteAccess"],
            };
            assert!(
                expected.contains(&outcomes[0].as_str()),
                "{recovery:?} {operation:?} {side}: {outcomes:?}"
            );
        }
    }
}
