//! Congestion notifications, and the pace that follows them.

use crate::RECOVERIES;
use crate::common::{A, B, Pair, Setup, Verdict};
use highwire_rnic::{CongestionChoice, Counter};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{Operation, Recovery, Service};
use std::cell::RefCell;
use std::rc::Rc;

/// The WRITE packets that A sends in each of some spans of 200 µs, of which the first few are marked.
fn packets_per_span(recovery: Recovery, marked_spans: u64, spans: usize) -> Vec<u64> {
    let mut setup = Setup::with(recovery);
    setup.transport.congestion = CongestionChoice::DCQCN;
    setup.transport.irn.cap = 4096;
    setup.transport.go_back_n_window = 4096;
    let mut pair = Pair::new(setup);
    let counts = Rc::new(RefCell::new(vec![0; spans + 1]));
    let copy = Rc::clone(&counts);
    pair.rule(move |seen, _| {
        let span = seen.now.as_nanos() / 200_000;
        if seen.from == A {
            let last = copy.borrow().len() as u64 - 1;
            copy.borrow_mut()[span.min(last) as usize] += 1;
        }
        Verdict { mark: seen.from == A && span < marked_spans, ..Verdict::PASS }
    });
    let write = Operation::Write(pair.buffers[B].remote(0));
    for n in 0..100 {
        pair.post(A, n, write, 0, 200_000);
    }
    pair.net.run_while(Duration::from_micros(200 * spans as u64), |_| true);
    assert!(pair.count(B, Counter::CnpsSent) >= marked_spans * 3, "one in 50 µs");
    assert!(pair.count(A, Counter::CnpsReceived) <= 4 * marked_spans + 1);
    let counts = counts.borrow();
    counts[..spans].to_vec()
}

#[test]
fn dcqcn_slows_down_while_marks_come_and_recovers_when_they_stop() {
    for recovery in RECOVERIES {
        let counts = packets_per_span(recovery, 3, 40);
        let (first, marked) = (counts[0], counts[2]);
        assert!(marked * 4 < first, "cut by repeated marks: {counts:?}");
        assert!(counts[10] > marked, "and better soon after: {counts:?}");
        assert!(counts[35] > 2 * marked, "and much better later: {counts:?}");
    }
}

#[test]
fn nobody_is_notified_without_marks_and_datagrams_never_are() {
    let mut pair = Pair::new(Setup::default());
    pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 20_000);
    pair.run();
    assert_eq!(pair.count(B, Counter::CnpsSent), 0);
    let mut pair = Pair::new(Setup::of(Service::Ud));
    pair.rule(|_, _| Verdict::MARK);
    pair.post(A, 1, Operation::Send, 0, 100);
    pair.run();
    assert_eq!(pair.count(B, Counter::CnpsSent), 0);
}

#[test]
fn a_paced_retransmission_waits_for_its_turn_and_for_no_timer() {
    let mut setup = Setup::with(Recovery::Irn);
    setup.transport.congestion = CongestionChoice::DCQCN;
    let mut pair = Pair::new(setup);
    pair.drop_nth(A, &[2], |_| true);
    pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 5 * 1024);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 Success"]);
    assert_eq!((pair.count(A, Counter::Retransmitted), pair.count(A, Counter::Timeouts)), (1, 0));
    assert!(pair.net.now < Instant::from_nanos(600_000), "{:?}", pair.net.now);
}

/// A's WRITE packets in each of `spans` spans of 200 µs, with at most `cap` packets in flight and a round
/// trip of 10 µs, while the network applies `what` to them.
fn packets_under(
    recovery: Recovery,
    choice: CongestionChoice,
    cap: u32,
    spans: usize,
    mut what: impl FnMut(u64) -> Verdict + 'static,
) -> (Vec<u64>, Pair) {
    let mut setup = Setup::with(recovery);
    setup.transport.congestion = choice;
    setup.transport.irn.cap = cap;
    setup.transport.go_back_n_window = cap;
    setup.timeout = 14;
    let mut pair = Pair::new(setup);
    let counts = Rc::new(RefCell::new(vec![0; spans + 1]));
    let copy = Rc::clone(&counts);
    pair.rule(move |seen, _| {
        let span = seen.now.as_nanos() / 200_000;
        if seen.from != A {
            return Verdict::PASS;
        }
        copy.borrow_mut()[span.min(spans as u64) as usize] += 1;
        what(span)
    });
    let write = Operation::Write(pair.buffers[B].remote(0));
    for n in 0..100 {
        pair.post(A, n, write, 0, 200_000);
    }
    pair.net.run_while(Duration::from_micros(200 * spans as u64), |_| true);
    (counts.take(), pair)
}

/// Marked packets halve the window again and again, down to one packet per round trip; then it grows by one in each.
#[test]
fn dctcp_hears_of_marks_in_acknowledgements_and_not_by_notifications() {
    for recovery in RECOVERIES {
        let marked = |span| Verdict { mark: span == 0, ..Verdict::PASS };
        let (counts, pair) = packets_under(recovery, CongestionChoice::DCTCP, 64, 6, marked);
        assert!(counts[0] < 64 * 2 + 20, "64 + 32 + 16 + … and then one in each: {counts:?}");
        assert!((1 + 20) * 20 / 2 <= counts[1] && counts[1] <= (3 + 22) * 20 / 2, "{counts:?}");
        assert!(counts[4] > 1_200, "nearly all of the window again: {counts:?}");
        assert_eq!(pair.count(B, Counter::CnpsSent), 0);
    }
}

#[test]
fn acknowledgements_echo_nothing_to_those_who_listen_to_notifications() {
    for recovery in RECOVERIES {
        let echoes = Rc::new(RefCell::new(0));
        let copy = Rc::clone(&echoes);
        let mut setup = Setup::with(recovery);
        setup.transport.congestion = CongestionChoice::DCQCN;
        let mut pair = Pair::new(setup);
        pair.rule(move |seen, _| {
            let is_cnp = seen.headers.bth.opcode == highwire_wire::Opcode::Cnp;
            *copy.borrow_mut() += u32::from(seen.headers.bth.becn && !is_cnp);
            Verdict::MARK
        });
        pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 20_000);
        pair.run();
        assert_eq!(*echoes.borrow(), 0);
    }
}

/// One loss halves the window; it takes a round trip per packet to come back.
#[test]
fn aimd_halves_its_window_at_a_loss() {
    for recovery in RECOVERIES {
        let mut sent = 0;
        let lossy = move |span| {
            sent += u64::from(span == 1);
            Verdict::drop_if(sent == 1 && span == 1)
        };
        let (counts, pair) = packets_under(recovery, CongestionChoice::AIMD, 64, 6, lossy);
        assert_eq!(counts[0], 64 * 20);
        assert!(counts[1] < 64 + 51 * 20, "32 to 51 packets per round trip: {counts:?}");
        assert!(counts[3] > 62 * 20, "the window is whole again: {counts:?}");
        assert!(pair.count(A, Counter::Retransmitted) >= 1);
        assert_eq!(pair.count(A, Counter::Timeouts), 0);
    }
}

/// While round trips of 10 µs grow by 20 µs every 10 µs, the gradient says stop.
#[test]
fn timely_slows_down_while_round_trips_grow() {
    for recovery in RECOVERIES {
        let mut delay = 0;
        let queueing = move |span| {
            delay = if (1..3).contains(&span) { delay + 400 } else { 0 };
            Verdict::delay(Duration::from_nanos(delay))
        };
        let (counts, pair) = packets_under(recovery, CongestionChoice::TIMELY, 512, 6, queueing);
        assert!(counts[0] > 800, "40 Gb/s are 921 packets of 1086 bytes: {counts:?}");
        assert!(counts[2] < counts[0] / 4, "{counts:?}");
        assert_eq!(pair.count(A, Counter::Timeouts) + pair.count(B, Counter::CnpsSent), 0);
    }
}
