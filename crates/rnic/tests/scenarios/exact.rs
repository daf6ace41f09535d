//! Counts and times that a retransmission would put right again, and that a message which arrives does not show.

use crate::RECOVERIES;
use crate::common::{A, B, Pair, Seen, Setup, Verdict, gid};
use highwire_rnic::Counter;
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{Gid, Operation, QpAttr, Recovery, Service};
use highwire_wire::{Ext, Headers, IrnEth, IrnFlags, Operation as Wire, Syndrome, rnr_delay};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

fn is(operation: Wire) -> impl Fn(&Seen<'_>) -> bool {
    move |seen| seen.headers.bth.opcode.info().operation == operation
}

/// Notes when packets that match leave.
fn times_of(pair: &mut Pair, matches: impl Fn(&Seen<'_>) -> bool + 'static) -> Rc<RefCell<Vec<Instant>>> {
    let times = Rc::new(RefCell::new(Vec::new()));
    let copy = Rc::clone(&times);
    pair.rule(move |seen, _| {
        if matches(seen) {
            copy.borrow_mut().push(seen.now);
        }
        Verdict::PASS
    });
    times
}

/// Loses A's packets while the cell is true.
fn silence(pair: &mut Pair) -> Rc<Cell<bool>> {
    let is_silent = Rc::new(Cell::new(true));
    let copy = Rc::clone(&is_silent);
    pair.rule(move |seen, _| Verdict::drop_if(seen.from == A && copy.get()));
    is_silent
}

/// Runs A's next timer; the driver says that B lives and has not looked yet. Returns whether A would have given up.
fn time_out(pair: &mut Pair, is_unheard: bool) -> bool {
    let at = pair.net.nodes[A].rnic.poll_timeout().expect("something is awaited");
    pair.net.now = at;
    let mut gave_up = false;
    pair.net.nodes[A].rnic.handle_timeout_unless(at, |_: Gid, _, gives_up| {
        gave_up |= gives_up;
        is_unheard
    });
    pair.net.drain();
    gave_up
}

#[test]
fn progress_gives_every_retry_back() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup { retry_count: 2, timeout: 4, ..Setup::with(recovery) });
        // The first message is lost twice and arrives; then so is the second.
        pair.drop_nth(A, &[0, 1, 3, 4], is(Wire::Write));
        for n in 0..2 {
            pair.post(A, n, Operation::Write(pair.buffers[B].remote(0)), 0, 100);
            pair.run();
        }
        assert_eq!(pair.outcomes(A), ["0 Success", "1 Success"], "{recovery:?}");
        assert_eq!(pair.count(A, Counter::Timeouts), 4, "{recovery:?}");
    }
}

#[test]
fn a_host_that_does_not_run_has_waited_once_also_after_an_earlier_loss() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup { retry_count: 2, timeout: 4, ..Setup::with(recovery) });
        pair.drop_nth(A, &[0, 1, 3], is(Wire::Write));
        let write = Operation::Write(pair.buffers[B].remote(0));
        pair.post(A, 0, write, 0, 100);
        pair.run();
        pair.post(A, 1, write, 0, 100);
        let later = pair.net.now + Duration::from_secs(60);
        pair.net.nodes[A].rnic.handle_timeout(later);
        pair.net.advance_to(later);
        pair.run();
        assert_eq!(pair.outcomes(A), ["0 Success", "1 Success"], "{recovery:?}");
    }
}

#[test]
fn progress_counts_also_while_later_packets_are_in_flight() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup { retry_count: 2, timeout: 4, ..Setup::with(recovery) });
        // Nothing arrives for two timeouts; then only the first of two packets does.
        let first = pair.ends[A];
        let (mut passed, is_open) = (0, Rc::new(Cell::new(false)));
        let open = Rc::clone(&is_open);
        pair.rule(move |seen, _| {
            let is_first = seen.from == first.node && seen.headers.bth.psn.value() == 0x123;
            passed += u32::from(is_first);
            Verdict::drop_if(seen.from == A && !open.get() && !(is_first && passed > 2))
        });
        let write = Operation::Write(pair.buffers[B].remote(0));
        pair.post(A, 0, write, 0, 100);
        pair.post(A, 1, write, 0, 100);
        pair.net.run_while(Duration::from_secs(1), |net| net.nodes[A].completions.is_empty());
        assert_eq!(pair.outcomes(A), ["0 Success"], "{recovery:?}");
        // The host does not run for a minute, which is one timeout.
        let later = pair.net.now + Duration::from_secs(60);
        pair.net.nodes[A].rnic.handle_timeout(later);
        pair.net.now = later;
        is_open.set(true);
        pair.net.drain();
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"], "{recovery:?}");
    }
}

#[test]
fn a_peer_that_has_not_looked_yet_costs_no_retry() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup { retry_count: 3, timeout: 4, ..Setup::with(recovery) });
        let is_silent = silence(&mut pair);
        pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 100);
        // However long it stands still.
        for _ in 0..1000 {
            assert!(!time_out(&mut pair, true), "{recovery:?}");
        }
        for _ in 0..2 {
            assert!(!time_out_is_last(&mut pair), "{recovery:?}: a retry is gone");
        }
        is_silent.set(false);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"], "{recovery:?}");
    }
}

/// Another process may have taken the address of the peer, and have other packets in its ring whenever this one asks.
#[test]
fn a_peer_that_runs_now_and_then_and_never_answers_is_given_up() {
    for recovery in RECOVERIES {
        let time = |looks_once_in: u32| {
            let mut pair = Pair::new(Setup { retry_count: 3, timeout: 4, ..Setup::with(recovery) });
            let _silent = silence(&mut pair);
            pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, 100);
            let begun = pair.net.now;
            for n in 1..1000 {
                time_out(&mut pair, n % looks_once_in != 0);
                let outcomes = pair.outcomes(A);
                if !outcomes.is_empty() {
                    assert_eq!(outcomes, ["1 RetryExceeded"], "{recovery:?}");
                    return pair.net.now - begun;
                }
            }
            panic!("{recovery:?}: it goes on for ever");
        };
        let (always, seldom) = (time(1), time(5));
        // The times in which it does not run do not count.
        assert!(
            seldom >= always.saturating_mul(4),
            "{recovery:?}: {seldom:?}, and {always:?} if it always runs"
        );
    }
}

/// Runs A's next timer, and forgives it if it is the last one.
fn time_out_is_last(pair: &mut Pair) -> bool {
    let at = pair.net.nodes[A].rnic.poll_timeout().expect("something is awaited");
    let qpn = pair.ends[A].qpn;
    let gives_up = pair.net.nodes[A].rnic.qp(qpn).is_some_and(|qp| qp.gives_up(at));
    assert_eq!(time_out(pair, gives_up), gives_up);
    gives_up
}

#[test]
fn a_receiver_that_is_not_ready_is_left_alone_as_long_as_it_asked() {
    for recovery in RECOVERIES {
        for code in 0..32 {
            let mut pair = Pair::new(Setup { timeout: 20, ..Setup::with(recovery) });
            pair.modify(B, &QpAttr { min_rnr_timer: Some(code), ..QpAttr::default() });
            let is_rnr = |seen: &Seen<'_>| {
                let aeth = match seen.headers.ext {
                    Ext::Aeth(aeth) | Ext::IrnAck(aeth) => Some(aeth),
                    _ => None,
                };
                aeth.is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Rnr { .. }))
            };
            let refused = times_of(&mut pair, is_rnr);
            let sent = times_of(&mut pair, is(Wire::Send));
            pair.post(A, 1, Operation::Send, 0, 100);
            pair.run_for_us(15);
            pair.receive(B, 2, 0, 100);
            pair.run();
            assert_eq!(pair.outcomes(A), ["1 Success"]);
            let (refused, sent) = (refused.borrow(), sent.borrow());
            assert_eq!((refused.len(), sent.len()), (1, 2), "{recovery:?}, code {code}");
            let arrived = refused[0] + pair.net.link.latency;
            assert_eq!(sent[1] - arrived, rnr_delay(code), "{recovery:?}, code {code}");
        }
    }
}

/// The gaps between the transmissions of a packet that is always lost, with `packets` in flight, in microseconds.
fn gaps(packets: u32, computes_rto: bool, count: usize) -> Vec<u64> {
    let mut setup = Setup::with(Recovery::Irn);
    setup.transport.irn.computes_rto = computes_rto;
    setup.transport.never_gives_up = true;
    let mut pair = Pair::new(setup);
    let first = Rc::new(RefCell::new(Vec::new()));
    let copy = Rc::clone(&first);
    pair.rule(move |seen, _| {
        if seen.headers.bth.psn.value() == 0x123 {
            copy.borrow_mut().push(seen.now);
        }
        Verdict::DROP
    });
    pair.post(A, 1, Operation::Write(pair.buffers[B].remote(0)), 0, packets * 1024);
    while first.borrow().len() <= count {
        assert!(pair.net.step(), "it goes on for ever");
    }
    let times = first.borrow();
    times.windows(2).map(|pair| (pair[1] - pair[0]).as_nanos() / 1_000).collect()
}

#[test]
fn irn_waits_shortly_while_few_packets_are_in_flight_and_long_otherwise() {
    assert_eq!(gaps(1, false, 4), [100; 4]);
    assert_eq!(gaps(3, false, 4), [100; 4]);
    assert_eq!(gaps(4, false, 4), [320; 4]);
    assert_eq!(gaps(50, false, 4), [320; 4]);
}

#[test]
fn a_computed_timeout_doubles_up_to_a_second() {
    let expected: Vec<u64> = (0..16).map(|n| (320 << n).min(1_000_000)).collect();
    assert_eq!(gaps(1, true, 16), expected);
    assert_eq!(expected[12..], [1_000_000; 4]);
}

#[test]
fn a_response_of_another_request_or_place_is_not_taken() {
    let mut pair = Pair::new(Setup::with(Recovery::Irn));
    let responses: Rc<RefCell<Vec<Headers>>> = Rc::default();
    let copy = Rc::clone(&responses);
    let is_lost = Rc::new(Cell::new(true));
    let lost = Rc::clone(&is_lost);
    pair.rule(move |seen, _| {
        let is_response = seen.headers.bth.opcode.info().operation == Wire::ReadResponse;
        if is_response && lost.get() {
            copy.borrow_mut().push(*seen.headers);
        }
        Verdict::drop_if(is_response && lost.get())
    });
    // An earlier READ, so that numbers are not zero.
    is_lost.set(false);
    pair.post(A, 1, Operation::Read(pair.buffers[B].remote(0)), 100_000, 8);
    pair.run();
    is_lost.set(true);
    pair.post(A, 2, Operation::Read(pair.buffers[B].remote(0)), 0, 3 * 1024);
    pair.run_for_us(30);
    assert_eq!(pair.outcomes(A), ["1 Success"]);
    let before = pair.bytes(A, 0, 4096);
    let right: Vec<Headers> = responses.borrow()[..3].to_vec();
    for headers in &right {
        let (Ext::IrnReadResponse(eth, aeth), payload) = (headers.ext, [0xAB; 1024]) else {
            panic!("a response of IRN: {headers}")
        };
        let flags = if eth.is_last() { IrnFlags::LAST } else { IrnFlags::NONE };
        for (number, offset) in [(1, 0), (u32::MAX, 0), (0, 1), (0, u32::MAX), (1, 1)] {
            let wrong = IrnEth::new(
                eth.wqe_sn().wrapping_add(number) & 0xFF_FFFF,
                eth.offset().wrapping_add(offset) & 0xFF_FFFF,
                flags,
            );
            let headers = Headers { ext: Ext::IrnReadResponse(wrong, aeth), ..*headers };
            let dropped = pair.count(A, Counter::DroppedMalformed);
            pair.inject(A, gid(B), &headers, &payload);
            assert_eq!(pair.count(A, Counter::DroppedMalformed), dropped + 1, "{headers}");
        }
        assert_eq!(pair.bytes(A, 0, 4096), before, "not a byte has changed");
    }
    for headers in &right {
        pair.inject(A, gid(B), headers, &[0xAB; 1024]);
    }
    assert_eq!(pair.bytes(A, 0, 3 * 1024), [0xAB; 3 * 1024], "the right ones are taken");
    assert_eq!(pair.outcomes(A), ["2 Success"]);
}

#[test]
fn an_atomic_never_overtakes_a_read() {
    // The READ's request is lost; or late, so that the atomic's arrives first; or so long that its window is full when the
    // atomic's comes.
    for recovery in RECOVERIES {
        for (is_lost, delay_us, length) in
            [(true, 0, 8), (false, 40, 8), (true, 0, 3000), (false, 0, 20 * 1024), (false, 0, 150 * 1024)]
        {
            let mut setup = Setup::with(recovery);
            // Answers leave slowly: the atomic's request arrives long before the READ's last byte has left.
            setup.link.rate = Some(1_000_000_000);
            let mut pair = Pair::new(setup);
            let last = u64::from(length) - 8;
            pair.set_word(B, last, 100);
            if is_lost {
                pair.drop_nth(A, &[0], is(Wire::Read));
            }
            pair.rule(move |seen, _| {
                let is_read = seen.headers.bth.opcode.info().operation == Wire::Read;
                Verdict::delay(if is_read { Duration::from_micros(delay_us) } else { Duration::ZERO })
            });
            pair.post(A, 1, Operation::Read(pair.buffers[B].remote(0)), 0, length);
            let remote = pair.buffers[B].remote(last);
            pair.post(A, 2, Operation::FetchAdd { remote, add: 5 }, 200_000, 8);
            pair.post(A, 3, Operation::CompareSwap { remote, compare: 105, swap: 7 }, 200_008, 8);
            pair.run();
            let case = format!("{recovery:?}, lost {is_lost}, late by {delay_us} us, {length} bytes");
            assert_eq!(pair.outcomes(A), ["1 Success", "2 Success", "3 Success"], "{case}");
            assert_eq!(pair.word(A, last), 100, "what was there before the atomic: {case}");
            assert_eq!((pair.word(A, 200_000), pair.word(A, 200_008)), (100, 105), "{case}");
            assert_eq!(pair.word(B, last), 7, "{case}");
        }
    }
}

#[test]
fn a_group_without_members_is_forgotten() {
    let mut pair = Pair::new(Setup::of(Service::Ud));
    let group = |n: u8| Gid::from_ip(std::net::IpAddr::from([239, 1, 1, n]));
    let qpn = pair.ends[A].qpn;
    let rnic = &mut pair.net.nodes[A].rnic;
    let config = *rnic.qp(qpn).expect("the queue pair").config();
    let other = rnic.create_qp(config).expect("another one");
    for n in 0..3 {
        rnic.attach_multicast(qpn, group(n)).expect("it joins");
    }
    rnic.attach_multicast(other, group(2)).expect("it joins");
    assert!(rnic.detach_multicast(qpn, group(0)));
    assert!(!rnic.has_group(group(0)), "its last member has left");
    assert!(!rnic.detach_multicast(qpn, group(0)));
    rnic.destroy_qp(qpn).expect("it goes");
    assert!(!rnic.has_group(group(1)), "its last member is gone");
    assert!(rnic.has_group(group(2)), "the other one is still in it");
    rnic.destroy_qp(other).expect("it goes");
    assert!(!rnic.has_group(group(2)));
}
