//! What must wait: queues, fences, credits, limits, numbers that wrap.

use crate::RECOVERIES;
use crate::common::{A, B, Pair, Setup, Verdict, gid};
use highwire_rnic::{Arrival, Counter};
use highwire_verbs::{
    AsyncEvent, Operation, PostError, QpCaps, QpState, Recovery, SendFlags, SendWr, Service,
};
use highwire_wire::{Ext, Headers, Opcode, Operation as WireOperation, Psn, Reth};

#[test]
fn inline_data_may_be_overwritten_as_soon_as_it_is_posted() {
    for setup in crate::operations::connected() {
        let mut pair = Pair::new(setup);
        let sges = [pair.net.nodes[A].copy_inline(b"forty-two")];
        let flags = SendFlags { inline: true, ..SendFlags::SIGNALED };
        let operation = Operation::Write(pair.buffers[B].remote(0));
        let wr = SendWr { flags, ..SendWr::new(1, operation, &sges) };
        assert_eq!(pair.post_wr(A, &wr), Ok(()));
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success"]);
        assert_eq!(pair.bytes(B, 0, 9), b"forty-two");
    }
}

#[test]
fn inline_is_for_what_leaves_and_up_to_its_limit() {
    let mut pair = Pair::new(Setup::default());
    let remote = pair.buffers[B].remote(0);
    let flags = SendFlags { inline: true, ..SendFlags::SIGNALED };
    assert_eq!(pair.try_post(A, 1, Operation::Read(remote), 0, 8, flags), Err(PostError::Unsupported));
    assert_eq!(pair.try_post(A, 1, Operation::Write(remote), 0, 257, flags), Err(PostError::TooLong));
}

#[test]
fn a_fence_waits_for_reads_and_nothing_else_does() {
    for (recovery, is_fenced) in RECOVERIES.into_iter().flat_map(|r| [(r, false), (r, true)]) {
        let mut pair = Pair::new(Setup::with(recovery));
        let log = pair.watch();
        pair.post(A, 1, Operation::Read(pair.buffers[B].remote(0)), 0, 8);
        let flags = SendFlags { fence: is_fenced, ..SendFlags::SIGNALED };
        let write = Operation::Write(pair.buffers[B].remote(100));
        pair.try_post(A, 2, write, 50, 8, flags).expect("posts");
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success", "2 Success"]);
        let log = log.borrow();
        let write = log.iter().position(|l| l.contains("WRITE")).expect("a WRITE");
        let answer = log.iter().position(|l| l.contains("RESPONSE")).expect("an answer");
        assert_eq!(answer < write, is_fenced, "{log:?}");
    }
}

#[test]
fn no_more_reads_are_asked_at_once_than_the_peer_answers() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup { rd_atomic: 2, ..Setup::with(recovery) });
        for n in 0..8 {
            pair.post(A, n, Operation::Read(pair.buffers[B].remote(0)), 4096 * n, 3000);
        }
        let log = pair.watch();
        pair.run_for_us(1);
        assert_eq!(log.borrow().len(), 0, "two have left, the rest waits");
        pair.run();
        assert_eq!(pair.completions(A).len(), 8);
        assert_eq!(pair.count(B, Counter::RefusedRequest), 0);
    }
}

#[test]
fn a_full_queue_says_so_and_forgets_nothing() {
    for recovery in RECOVERIES {
        let caps = QpCaps { max_send_wr: 2, ..QpCaps::default() };
        let mut pair = Pair::new(Setup { caps, ..Setup::with(recovery) });
        let write = Operation::Write(pair.buffers[B].remote(0));
        pair.post(A, 1, write, 0, 8);
        pair.post(A, 2, write, 0, 8);
        let third = pair.try_post(A, 3, write, 0, 8, SendFlags::SIGNALED);
        assert_eq!(third, Err(PostError::QueueFull));
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success", "2 Success"]);
        pair.post(A, 3, write, 0, 8);
        pair.run();
        assert_eq!(pair.outcomes(A), ["3 Success"]);
    }
}

#[test]
fn numbers_wrap_in_the_middle_of_everything() {
    for setup in crate::operations::connected() {
        let mut pair = Pair::new(Setup { psn: [0xFF_FFFD, 0xFF_FFFF], ..setup });
        for n in 0..4 {
            pair.receive(B, n, 20_000 * n, 20_000);
            pair.post(A, n, Operation::Send, 0, 5000);
        }
        if setup.service == Service::Rc {
            pair.post(A, 9, Operation::Read(pair.buffers[B].remote(0)), 100_000, 9000);
        }
        pair.run();
        assert_eq!(pair.completions(B).len(), 4);
        assert_eq!(pair.count(A, Counter::Retransmitted), 0);
        let qp = pair.net.nodes[A].rnic.query_qp(pair.ends[A].qpn).expect("the queue pair");
        assert!(qp.sq_psn.value() < 100, "{:?}", qp.sq_psn);
        // Without acknowledgements nothing stays in flight; otherwise sending would stop after half of all PSNs.
        assert_eq!(qp.in_flight, 0);
    }
}

#[test]
fn a_shared_queue_serves_in_order_and_reports_its_limit_once() {
    for setup in crate::operations::connected() {
        let mut pair = Pair::new(Setup { with_srq: true, ..setup });
        for n in 0..4 {
            pair.receive(B, n, 4096 * n, 4096);
        }
        let srq = pair.srqs[B].expect("it has one");
        pair.net.nodes[B].rnic.srq_mut(srq).expect("it is there").set_limit(3);
        for n in 0..4 {
            pair.post(A, n, Operation::Send, 0, 100);
        }
        pair.run();
        assert_eq!(pair.outcomes(B), ["0 Success", "1 Success", "2 Success", "3 Success"]);
        assert_eq!(pair.events(B), [AsyncEvent::SrqLimitReached(srq)]);
        assert!(pair.net.nodes[B].rnic.srq_mut(srq).expect("it is there").is_empty());
    }
}

#[test]
fn credits_hold_back_all_but_one_request() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        pair.receive(B, 0, 0, 100);
        pair.post(A, 0, Operation::Send, 0, 8);
        pair.run();
        // B has reported that no receive is left: one request goes to find out, the others stay.
        let log = pair.watch();
        for n in 1..5 {
            pair.post(A, n, Operation::Send, 0, 8);
        }
        pair.run_for_us(8);
        let sends = log.borrow().iter().filter(|l| l.starts_with("A")).count();
        assert_eq!(sends, 1, "{:?}", log.borrow());
        for n in 1..5 {
            pair.receive(B, n, 0, 100);
        }
        pair.run();
        assert_eq!(pair.completions(A).len(), 5);
        assert_eq!(pair.completions(B).len(), 5);
        assert_eq!(pair.count(B, Counter::RnrSent), 1);
    }
}

#[test]
fn stale_credits_do_not_stop_a_requester() {
    let mut pair = Pair::new(Setup::with(Recovery::Irn));
    for n in 0..3 {
        pair.receive(B, n, 0, 100);
    }
    // The acknowledgement of the first SEND comes last, and grants fewer credits than the others did.
    let mut acks = 0;
    pair.rule(move |seen, _| {
        let is_ack = seen.headers.bth.opcode.info().operation == WireOperation::Acknowledge;
        acks += u32::from(is_ack);
        Verdict::delay(highwire_stdx::Duration::from_micros(if is_ack && acks == 1 { 50 } else { 0 }))
    });
    pair.post(A, 0, Operation::Send, 0, 8);
    pair.run_for_us(1);
    for n in 3..8 {
        pair.receive(B, n, 0, 100);
    }
    for n in 1..8 {
        pair.post(A, n, Operation::Send, 0, 8);
    }
    pair.run_for_us(200);
    assert_eq!(pair.completions(A).len(), 8);
    for n in 8..12 {
        pair.receive(B, n, 0, 100);
        pair.post(A, n, Operation::Send, 0, 8);
    }
    pair.run();
    assert_eq!(pair.completions(A).len(), 4);
}

#[test]
fn answers_given_twice_do_not_count_against_the_peers_depth() {
    let mut pair = Pair::new(Setup { rd_atomic: 2, ..Setup::default() });
    for n in 0..2 {
        pair.post(A, n, Operation::Read(pair.buffers[B].remote(0)), 100 * n, 8);
    }
    pair.run();
    assert_eq!(pair.outcomes(A), ["0 Success", "1 Success"]);
    // Delayed copies of both requests arrive in one batch with a third.
    let remote = pair.buffers[B].remote(0);
    let reth = Reth { va: remote.va, rkey: remote.rkey.0, length: 8 };
    for n in 0..3 {
        let psn = Psn::new(Setup::default().psn[A]).add(n);
        let headers = Headers::new(Opcode::RcRead, pair.ends[B].qpn, psn, Ext::Reth(reth));
        let arrival = Arrival { source: gid(A), destination: gid(B), traffic_class: 0 };
        let node = &mut pair.net.nodes[B];
        node.rnic.handle_packet(pair.net.now, &arrival, &headers, &[][..], &mut node.memory);
    }
    pair.run();
    assert_eq!(pair.count(B, Counter::RefusedRequest), 0);
    assert_eq!(pair.state(B), QpState::Rts);
}

#[test]
fn a_read_that_is_asked_for_again_while_it_is_answered_is_cut_where_it_begins_anew() {
    // Of ten packets six have left, and the requester goes back to the fourth.
    let mut setup = Setup::default();
    setup.link.rate = Some(1_000_000_000);
    setup.timeout = 14;
    let mut pair = Pair::new(setup);
    pair.drop_nth(B, &[3], |seen| seen.headers.bth.opcode.info().operation == WireOperation::ReadResponse);
    pair.post(A, 1, Operation::Read(pair.buffers[B].remote(0)), 0, 10 * 1024);
    pair.run();
    assert_eq!(pair.outcomes(A), ["1 Success"]);
    assert_eq!(pair.bytes(A, 0, 10 * 1024), pair.bytes(B, 0, 10 * 1024));
    // Four, the lost one, the two that were in flight, and seven again.
    assert!(pair.count(B, Counter::PacketsSent) <= 14, "{}", pair.count(B, Counter::PacketsSent));
}
