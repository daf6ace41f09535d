//! Losses, duplicates and reordering, one at a time.

use crate::RECOVERIES;
use crate::common::{A, B, Pair, Seen, Setup, Verdict};
use highwire_rnic::Counter;
use highwire_stdx::Duration;
use highwire_verbs::{CompletionStatus, ModifyError, Operation, QpAttr, QpState, Recovery, SendFlags};
use highwire_wire::Operation as Wire;
use std::cell::RefCell;
use std::rc::Rc;

fn is(operation: Wire) -> impl Fn(&Seen<'_>) -> bool {
    move |seen| seen.headers.bth.opcode.info().operation == operation
}

/// Sends a WRITE of ten packets, of which the fourth is lost; returns the packets that A sent, counted from
/// its first.
fn write_with_a_hole(recovery: Recovery) -> Vec<u32> {
    let mut pair = Pair::new(Setup { psn: [0, 0], ..Setup::with(recovery) });
    let log = pair.watch();
    pair.drop_nth(A, &[3], is(Wire::Write));
    pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 10 * 1024);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 Success"]);
    assert_eq!(pair.bytes(B, 0, 10 * 1024), pair.bytes(A, 0, 10 * 1024));
    let log = log.borrow();
    let sent = log.iter().filter(|l| l.starts_with("A ") && l.contains("WRITE"));
    sent.map(|l| l.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number")).collect()
}

#[test]
fn irn_resends_only_the_hole() {
    assert_eq!(write_with_a_hole(Recovery::Irn), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3]);
}

#[test]
fn go_back_n_resends_everything_since_the_hole() {
    let sent = write_with_a_hole(Recovery::GoBackN);
    assert_eq!(sent, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_lost_tail_is_found_by_the_quick_timer() {
    for (recovery, at_most_us) in [(Recovery::GoBackN, 1200), (Recovery::Irn, 130)] {
        let mut pair = Pair::new(Setup::with(recovery));
        pair.drop_nth(A, &[0], is(Wire::Write));
        pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 100);
        pair.run_for_us(at_most_us);
        assert_eq!(pair.outcomes(A), ["1 Success"]);
        assert_eq!(pair.count(A, Counter::Timeouts), 1);
    }
}

#[test]
fn an_early_completion_waits_for_its_turn() {
    let mut pair = Pair::new(Setup::with(Recovery::Irn));
    for n in 0..3 {
        pair.receive(B, n, 4096 * n, 4096);
    }
    pair.drop_nth(A, &[0], is(Wire::Send));
    for n in 0..3 {
        pair.post(A, n, Operation::SendImm(n as u32), 4096 * n, 2000);
    }
    pair.run_for_us(9);
    // All packets but the first are in place, and no completion tells of them.
    assert_eq!(pair.bytes(B, 4096, 2000), pair.bytes(A, 4096, 2000));
    assert_eq!(pair.completions(B), []);
    pair.run();
    let got = pair.completions(B);
    assert_eq!(got.iter().map(|c| (c.wr_id, c.immediate)).collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 2)]);
    assert_eq!(pair.count(A, Counter::Retransmitted), 1);
}

#[test]
fn a_read_response_that_is_lost_is_repaired_by_its_sender() {
    let mut pair = Pair::new(Setup::with(Recovery::Irn));
    let log = pair.watch();
    // The last packet is lost: no packet behind it reveals the loss.
    pair.drop_nth(B, &[4], is(Wire::ReadResponse));
    pair.post(A, 1, Operation::Read(pair.buffers[B].remote(0)), 0, 5 * 1024);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 Success"]);
    assert_eq!(pair.bytes(A, 0, 5 * 1024), pair.bytes(B, 0, 5 * 1024));
    assert_eq!((pair.count(B, Counter::Timeouts), pair.count(A, Counter::Timeouts)), (1, 0));
    assert_eq!(log.borrow().iter().filter(|l| l.contains("IRN_READ ")).count(), 1);
}

#[test]
fn a_hole_in_a_read_is_filled_and_nothing_else_is_sent_again() {
    for (recovery, responses) in [(Recovery::Irn, 6), (Recovery::GoBackN, 9)] {
        let mut pair = Pair::new(Setup::with(recovery));
        let log = pair.watch();
        pair.drop_nth(B, &[1], is(Wire::ReadResponse));
        pair.post(A, 1, Operation::Read(pair.buffers[B].remote(0)), 0, 5 * 1024);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"]);
        assert_eq!(pair.bytes(A, 0, 5 * 1024), pair.bytes(B, 0, 5 * 1024));
        let log = log.borrow();
        assert_eq!(log.iter().filter(|l| l.contains("RESPONSE")).count(), responses, "{log:?}");
    }
}

#[test]
fn an_atomic_that_comes_again_is_answered_and_not_executed() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        pair.set_word(B, 0, 100);
        pair.drop_nth(B, &[0], |_| true);
        pair.drop_nth(B, &[0], is(Wire::AtomicResponse));
        pair.rule(|seen, _| Verdict { duplicate: seen.from == A, ..Verdict::PASS });
        let remote = pair.buffers[B].remote(0);
        pair.post(A, 1, Operation::FetchAdd { remote, add: 5 }, 0, 8);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"]);
        assert_eq!((pair.word(A, 0), pair.word(B, 0)), (100, 105));
        assert!(pair.count(B, Counter::Duplicates) > 0);
    }
}

#[test]
fn a_lost_acknowledgement_costs_nothing_when_a_later_one_comes() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        pair.drop_nth(B, &[0], is(Wire::Acknowledge));
        for n in 0..2 {
            pair.post(A, n, Operation::Write(pair.buffers[B].remote(0)), 0, 100);
            pair.run_for_us(2);
        }
        pair.run();
        assert_eq!(pair.outcomes(A), ["0 Success", "1 Success"]);
        assert_eq!(pair.count(A, Counter::Timeouts), 0);
    }
}

#[test]
fn a_damaged_packet_is_a_lost_one() {
    for setup in RECOVERIES.map(Setup::with) {
        let mut pair = Pair::new(setup);
        let mut packets = 0;
        pair.rule(move |_, _| {
            packets += 1;
            Verdict { corrupt: packets % 7 == 3, ..Verdict::PASS }
        });
        pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 50_000);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"]);
        assert_eq!(pair.bytes(B, 0, 50_000), pair.bytes(A, 0, 50_000));
        assert!(pair.net.nodes[B].rejected > 0);
    }
}

#[test]
fn without_agreement_irn_is_never_sent_and_never_taken() {
    let mut pair = Pair::new(Setup::with(Recovery::GoBackN));
    let log = pair.watch();
    pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 5000);
    pair.run();
    assert!(log.borrow().iter().all(|l| !l.contains("IRN")), "{:?}", log.borrow());

    // A speaks IRN although B never agreed: B drops all packets, and A gives up.
    let mut pair = Pair::new(Setup { timeout: 4, ..Setup::with(Recovery::Irn) });
    let qpn = pair.ends[B].qpn;
    pair.net.nodes[B].rnic.set_irn_accepted(qpn, false);
    pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 100);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 RetryExceeded"]);
    assert!(pair.count(B, Counter::DroppedNotNegotiated) > 1);
    assert_eq!(pair.count(B, Counter::PacketsSent), 0);
}

#[test]
fn each_direction_recovers_in_its_own_way() {
    let setup = Setup { recovery: [Recovery::Irn, Recovery::GoBackN], ..Setup::default() };
    let mut pair = Pair::new(setup);
    let log = pair.watch();
    for side in [A, B] {
        pair.post(side, 1, Operation::Read(pair.buffers[1 - side].remote(0)), 100_000, 3000);
        pair.post(side, 2, Operation::Write(pair.buffers[1 - side].remote(50_000)), 0, 3000);
    }
    pair.run();
    for side in [A, B] {
        assert_eq!(pair.outcomes(side), ["1 Success", "2 Success"]);
    }
    for line in log.borrow().iter() {
        let is_request = line.contains("WRITE") || line.contains("READ ") || line.contains("READ_ACK");
        let is_a = line.starts_with("A ");
        assert_eq!(line.contains("IRN"), is_request == is_a, "{line}");
    }
}

#[test]
fn a_peer_that_is_gone_is_given_up_after_all_retries() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup { timeout: 4, retry_count: 3, ..Setup::with(recovery) });
        pair.rule(|_, _| Verdict::DROP);
        for n in 0..3 {
            pair.post(A, n, Operation::Write(pair.buffers[B].remote(0)), 0, 100);
        }
        pair.receive(A, 50, 0, 100);
        pair.run();
        assert_eq!(pair.outcomes(A), ["0 RetryExceeded", "1 Flushed", "2 Flushed", "50 Flushed"]);
        assert_eq!(pair.state(A), QpState::Error);
        // Four times in all, each after a timeout of 65 µs.
        if recovery == Recovery::GoBackN {
            assert_eq!(pair.count(A, Counter::PacketsSent), 4 * 3);
        }
        assert!(pair.net.now.as_nanos() >= 4 * 65_536, "{:?}", pair.net.now);
    }
}

#[test]
fn a_read_in_flight_does_not_hide_the_timer_of_what_follows() {
    let mut pair = Pair::new(Setup::with(Recovery::Irn));
    // The answer is delayed for long, and the WRITE behind the READ is lost.
    pair.rule(|seen, _| {
        let is_answer = seen.headers.bth.opcode.info().operation == Wire::ReadResponse;
        Verdict::delay(if is_answer { Duration::from_micros(3000) } else { Duration::ZERO })
    });
    pair.post(A, 1, Operation::Read(pair.buffers[B].remote(0)), 0, 8);
    pair.run_for_us(50);
    pair.drop_nth(A, &[0], is(Wire::Write));
    let flags = SendFlags::SIGNALED;
    pair.try_post(A, 2, Operation::Write(pair.buffers[B].remote(64)), 64, 8, flags).expect("posts");
    pair.run_for_us(300);
    assert_eq!(pair.bytes(B, 64, 8), pair.bytes(A, 64, 8), "it was sent again after RTO_low");
    pair.run();
    let all = pair.completions(A);
    assert!(all.iter().all(|c| c.status == CompletionStatus::Success) && all.len() == 2, "{all:?}");
}

#[test]
fn the_recovery_may_be_chosen_while_requests_wait_and_not_later() {
    let mut pair = Pair::new(Setup::default());
    let log = pair.watch();
    let qpn = pair.ends[A].qpn;
    let now = pair.net.now;
    pair.net.nodes[A].rnic.hold_transmit(now, qpn, true);
    let write = Operation::Write(pair.buffers[B].remote(0));
    pair.post(A, 1, write, 0, 5000);
    // Both ends proved to be Highwires while the request was held back.
    pair.net.nodes[B].rnic.set_irn_accepted(pair.ends[B].qpn, true);
    let irn = QpAttr { recovery: Some(Recovery::Irn), ..QpAttr::default() };
    pair.modify(A, &irn);
    pair.net.nodes[A].rnic.hold_transmit(now, qpn, false);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 Success"]);
    assert!(log.borrow().iter().all(|l| l.contains("IRN")), "{:?}", log.borrow());

    pair.post(A, 2, write, 0, 5000);
    let back = QpAttr { recovery: Some(Recovery::GoBackN), ..QpAttr::default() };
    let refused = pair.net.nodes[A].rnic.modify_qp(pair.net.now, qpn, &back);
    assert_eq!(refused, Err(ModifyError::NotApplicable("recovery")));
    pair.run();
    assert_eq!(pair.outcomes(A), ["2 Success"]);
}

/// The responder goes by the format of the first packet that it executed, however long ago that was.
#[test]
fn the_recovery_stays_as_it_is_when_everything_sent_has_been_acknowledged() {
    for (recovery, other) in [(Recovery::GoBackN, Recovery::Irn), (Recovery::Irn, Recovery::GoBackN)] {
        let mut pair = Pair::new(Setup::with(recovery));
        let write = Operation::Write(pair.buffers[B].remote(0));
        let (qpn, attr) = (pair.ends[A].qpn, QpAttr { recovery: Some(other), ..QpAttr::default() });
        pair.post(A, 1, write, 0, 5000);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"]);
        let refused = pair.net.nodes[A].rnic.modify_qp(pair.net.now, qpn, &attr);
        assert_eq!(refused, Err(ModifyError::NotApplicable("recovery")), "from {recovery:?}");
        let same = QpAttr { recovery: Some(recovery), ..QpAttr::default() };
        pair.modify(A, &same);
        pair.post(A, 2, write, 0, 5000);
        pair.run();
        assert_eq!(pair.outcomes(A), ["2 Success"], "with {recovery:?}");
    }
}

#[test]
fn a_host_that_did_not_run_for_a_while_has_waited_once() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        let remote = pair.buffers[B].remote(0);
        for (from, operation) in
            [(A, Operation::Write(remote)), (A, Operation::Read(remote)), (B, Operation::Read(remote))]
        {
            // The request is lost, or its answer. Neither side runs for a minute, and then each looks at the
            // clock before anything else.
            pair.drop_nth(from, &[0], |_| true);
            pair.post(A, 1, operation, 0, 1000);
            let later = pair.net.now + highwire_stdx::Duration::from_secs(60);
            for side in [A, B] {
                pair.net.nodes[side].rnic.handle_timeout(later);
            }
            pair.net.advance_to(later);
            pair.net.drain();
            pair.run();
            assert_eq!(pair.outcomes(A), ["1 Success"], "{recovery:?} {operation:?}");
        }
    }
}

/// The last packet is lost, and N = 0 leaves it to `rto_high`. A timeout that was computed from round trips of 10 µs is at its
/// lower bound, `rto_low`, by then.
#[test]
fn computed_timeouts_follow_round_trips() {
    let duration_us = |computes_rto| {
        let mut setup = Setup::with(Recovery::Irn);
        setup.transport.irn.computes_rto = computes_rto;
        setup.transport.irn.rto_low_in_flight_max = 0;
        let mut pair = Pair::new(setup);
        let write = Operation::Write(pair.buffers[B].remote(0));
        pair.post(A, 1, write, 0, 20 * 1024);
        pair.run();
        let start = pair.net.now;
        pair.drop_nth(A, &[19], |_| true);
        pair.post(A, 2, write, 0, 20 * 1024);
        pair.net.run_while(Duration::from_millis(1), |net| net.nodes[A].completions.len() < 2);
        assert_eq!(pair.outcomes(A), ["1 Success", "2 Success"]);
        (pair.net.now - start).as_nanos() / 1_000
    };
    assert!((320..420).contains(&duration_us(false)), "{}", duration_us(false));
    assert!((100..200).contains(&duration_us(true)), "{}", duration_us(true));
}

#[test]
fn an_acknowledgement_rides_on_a_message_that_leaves_alone() {
    for (operation, is_lost) in [("SEND", false), ("WRITE", false), ("SEND", true), ("WRITE", true)] {
        let mut setup = Setup::with(Recovery::Irn);
        setup.transport.acks_ride = true;
        setup.link.rate = Some(1_000_000_000);
        let mut pair = Pair::new(setup);
        let log = pair.watch();
        (0..2).for_each(|n| pair.receive(A, n, 8192 + 4096 * n, 4096));
        pair.receive(B, 7, 8192, 4096);
        if is_lost {
            pair.drop_nth(B, &[0], |seen| seen.headers.ext.riding_ack().is_some());
        }
        let remote = pair.buffers[A].remote(0);
        // The first one keeps B's port busy until A's has arrived.
        pair.post(B, 1, Operation::Send, 0, 1000);
        pair.post(
            B,
            2,
            if operation == "SEND" { Operation::Send } else { Operation::Write(remote) },
            4096,
            100,
        );
        pair.post(A, 7, Operation::Send, 4096, 50);
        pair.run();
        let sent = |what: &str| log.borrow().iter().filter(|l| l.starts_with(what)).count();
        assert_eq!(sent(&format!("B IRN_{operation}_ACK")), 1, "{:?}", log.borrow());
        // The retransmission carries no acknowledgement, and A asks once more for the one that it lacks.
        assert_eq!(sent("B IRN_ACK"), usize::from(is_lost), "{:?}", log.borrow());
        assert_eq!(pair.count(B, Counter::Retransmitted), u64::from(is_lost));
        // The acknowledged message came before the one that it rides on, and completes before it.
        let expected = ["0 Success", "7 Success", "1 Success"];
        let received = if operation == "SEND" { 3 } else { 2 };
        assert_eq!(pair.outcomes(A), expected[..received], "{operation}, {is_lost}");
        assert_eq!(pair.outcomes(B).len(), 3, "two sends and a receive");
    }
}

#[test]
fn a_long_message_leaves_in_trains_and_never_stalls() {
    for train_packets in [1, 16, 100] {
        let mut setup = Setup::with(Recovery::Irn);
        (setup.transport.irn.cap, setup.transport.ack_interval) = (64, 8);
        setup.transport.train_packets = train_packets;
        let mut pair = Pair::new(setup);
        let starts = Rc::new(RefCell::new(Vec::new()));
        let seen_at = Rc::clone(&starts);
        pair.rule(move |seen, _| {
            if seen.from == A {
                seen_at.borrow_mut().push(seen.now);
            }
            Verdict::PASS
        });
        pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 200 * 1024);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"]);
        assert_eq!((pair.count(A, Counter::Timeouts), starts.borrow().len()), (0, 200));
        // Packets of one instant are one train; the last train has the packets that are left.
        let starts = starts.borrow();
        let trains: Vec<usize> = starts.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
        let (_, all_but_last) = trains.split_last().expect("some");
        assert!(all_but_last.iter().all(|&packets| packets >= train_packets.min(32) as usize), "{trains:?}");
    }
}

/// When A's WRITE packets left, counted from its first PSN, if a repetition takes `delay` to come from memory.
fn departures(delay: Duration, lost: &'static [u32]) -> Vec<(u32, u64)> {
    let mut setup = Setup { psn: [0, 0], ..Setup::with(Recovery::Irn) };
    setup.transport.irn.retransmission_delay = delay;
    setup.transport.irn.cap = 16;
    let mut pair = Pair::new(setup);
    let log = Rc::new(RefCell::new(Vec::new()));
    let copy = Rc::clone(&log);
    pair.rule(move |seen, _| {
        if seen.from == A && is(Wire::Write)(seen) {
            copy.borrow_mut().push((seen.headers.bth.psn.value(), seen.now.as_nanos()));
        }
        Verdict::PASS
    });
    pair.drop_nth(A, lost, is(Wire::Write));
    pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 20 * 1024);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 Success"]);
    assert_eq!(pair.bytes(B, 0, 20 * 1024), pair.bytes(A, 0, 20 * 1024));
    assert_eq!(pair.count(A, Counter::Timeouts), 0);
    log.borrow().clone()
}

/// IRN §6.3: a repetition leaves so much after it became the next one; a second one is fetched behind it, and new packets pass both.
#[test]
fn a_repetition_that_comes_from_memory_leaves_later_by_exactly_that_and_alone() {
    let delay = Duration::from_nanos(2_000);
    let (at_once, fetched) = (departures(Duration::ZERO, &[3, 5]), departures(delay, &[3, 5]));
    let again = |log: &[(u32, u64)]| -> Vec<(u32, u64)> {
        let is_again = |at: &usize| log[..*at].iter().any(|(psn, _)| *psn == log[*at].0);
        (0..log.len()).filter(is_again).map(|at| log[at]).collect()
    };
    let (before, after) = (again(&at_once), again(&fetched));
    assert_eq!(before.iter().map(|(psn, _)| *psn).collect::<Vec<_>>(), [3, 5]);
    assert_eq!(after, [(3, before[0].1 + 2_000), (5, before[0].1 + 4_000)]);
    let first_times = |log: &[(u32, u64)]| {
        let mut seen = Vec::new();
        for (psn, at) in log {
            if !seen.iter().any(|(other, _)| other == psn) {
                seen.push((*psn, *at));
            }
        }
        seen
    };
    assert_eq!(first_times(&at_once)[..16], first_times(&fetched)[..16], "the first window is the same");
}
