//! Congestion notifications, and the pace that follows them.

use crate::RECOVERIES;
use crate::common::{A, B, Pair, Setup, Verdict};
use highwire_rnic::{CongestionChoice, Counter};
use highwire_stdx::Instant;
use highwire_verbs::{Operation, Recovery, Service};
use std::cell::RefCell;
use std::rc::Rc;

/// The WRITE packets that A sends in each of some spans of 200 µs, of which the first few are marked.
fn packets_per_span(recovery: Recovery, marked_spans: u64, spans: usize) -> Vec<u64> {
    let mut setup = Setup::with(recovery);
    setup.transport.congestion = CongestionChoice::Dcqcn;
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
    pair.net.run_while(highwire_stdx::Duration::from_micros(200 * spans as u64), |_| true);
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
    setup.transport.congestion = CongestionChoice::Dcqcn;
    let mut pair = Pair::new(setup);
    pair.drop_nth(A, &[2], |_| true);
    pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 5 * 1024);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 Success"]);
    assert_eq!((pair.count(A, Counter::Retransmitted), pair.count(A, Counter::Timeouts)), (1, 0));
    assert!(pair.net.now < Instant::from_nanos(600_000), "{:?}", pair.net.now);
}
