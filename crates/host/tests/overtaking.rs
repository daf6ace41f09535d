//! Requests that the initiator carries out itself, in the memory of a peer: never before those that are under way, and never through a
//! queue pair that its owner has reset.

mod common;

use common::{Setup, next_ok, until};
use highwire_host::LinkChoice;
use highwire_host::verbs::{Operation, QpAttr, QpState, Recovery, Service};

#[test]
fn a_request_overtakes_none_that_is_under_way() {
    for recovery in [Recovery::GoBackN, Recovery::Irn] {
        let [a, b] = Setup::new(Service::Rc, LinkChoice::Shm).recovery(recovery).pair();
        let direct = || a.device.counters().value("direct");
        // So that recovery has been agreed on.
        b.receive(1, 0, 64);
        a.post(1, Operation::Send, 0, 64);
        next_ok(&a, &b);
        next_ok(&b, &a);
        let (first, second) = (a.fill(0, 64, 1), a.fill(64, 64, 2));
        // It waits for its peer, whose engine does not run.
        b.receive(2, 4096, 64);
        a.post(2, Operation::Send, 0, 64);
        let before = direct();
        a.post(3, Operation::Write(b.buffer.remote(8192)), 64, 64);
        a.post(4, Operation::Read(b.buffer.remote(8192)), 128, 64);
        a.post(5, Operation::FetchAdd { remote: b.buffer.remote(16_384), add: 1 }, 256, 8);
        assert_eq!(direct(), before, "{recovery:?}: it overtook a message");
        assert_eq!(b.buffer.to_vec(8192, 64), [0; 64], "{recovery:?}");
        assert_eq!([2, 3, 4, 5].map(|_| next_ok(&a, &b).wr_id), [2, 3, 4, 5]);
        next_ok(&b, &a);
        assert_eq!(b.buffer.to_vec(4096, 64), first);
        assert_eq!((b.buffer.to_vec(8192, 64), a.buffer.to_vec(128, 64)), (second.clone(), second));
        // Nothing is under way any more.
        a.post(6, Operation::Write(b.buffer.remote(8192)), 0, 64);
        assert_eq!((next_ok(&a, &b).wr_id, direct()), (6, before + 1), "{recovery:?}");
    }
}

#[test]
fn a_queue_pair_that_was_reset_lets_nobody_in() {
    for state in [QpState::Reset, QpState::Error] {
        let mut setup = Setup::new(Service::Rc, LinkChoice::Shm);
        (setup.options.timeout, setup.options.retry_count) = (10, 0);
        let [a, b] = setup.pair();
        let direct = || a.device.counters().value("direct");
        a.fill(0, 64, 1);
        a.post(1, Operation::Write(b.buffer.remote(0)), 0, 64);
        next_ok(&a, &b);
        let before = direct();
        assert_eq!(before, 1, "it is open");
        b.qp.modify(&QpAttr { state: Some(state), ..QpAttr::default() }).expect("any time");
        a.post(2, Operation::Write(b.buffer.remote(4096)), 0, 64);
        assert_eq!(
            (direct(), b.buffer.to_vec(4096, 64)),
            (before, vec![0; 64]),
            "{state:?}: it stays published"
        );
        until("the end of its retries", || {
            b.cq.poll(&mut []);
            a.cq.poll_one()
        });
        assert_eq!(b.buffer.to_vec(4096, 64), [0; 64]);
    }
}
