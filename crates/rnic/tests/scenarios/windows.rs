//! Memory windows of type 2, and the two ways to invalidate them (IBTA §10.6.7.2).

use crate::RECOVERIES;
use crate::common::{A, B, Pair, Setup};
use highwire_rnic::Counter;
use highwire_verbs::{Access, CompletionOp, Operation, QpState, Recovery, Remote, RemoteKey, WindowBind};

/// Binds a window of B over bytes 100..200 of its buffer, and returns its key.
fn bind(pair: &mut Pair) -> RemoteKey {
    let (buffer, node) = (pair.buffers[B], &mut pair.net.nodes[B]);
    let window = node.rnic.regions_mut().allocate_window(node.pd);
    let bind = WindowBind {
        window: window.rkey,
        new_key: RemoteKey(window.rkey.0 & !0xFF | (window.rkey.0 + 7) & 0xFF),
        region: buffer.key,
        va: buffer.iova + 100,
        length: 100,
        access: Access::REMOTE_WRITE | Access::REMOTE_READ,
    };
    pair.post(B, 50, Operation::BindWindow(bind), 0, 0);
    let done = pair.completions(B);
    assert_eq!(done.iter().map(|c| c.operation).collect::<Vec<_>>(), [CompletionOp::BindWindow]);
    bind.new_key
}

fn via(pair: &Pair, rkey: RemoteKey, offset: u64) -> Remote {
    Remote { va: pair.buffers[B].iova + offset, rkey }
}

#[test]
fn a_window_opens_its_range_and_no_more() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        let key = bind(&mut pair);
        pair.post(A, 1, Operation::Write(via(&pair, key, 100)), 0, 100);
        pair.post(A, 2, Operation::Read(via(&pair, key, 150)), 300, 50);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success", "2 Success"]);
        assert_eq!(pair.bytes(A, 300, 50), pair.bytes(A, 50, 50));
        pair.post(A, 3, Operation::Write(via(&pair, key, 101)), 0, 100);
        pair.run();
        assert_eq!(pair.outcomes(A), ["3 RemoteAccess"]);
    }
}

#[test]
fn a_send_with_invalidate_closes_the_window_once_everything_before_it_is_there() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        let key = bind(&mut pair);
        pair.receive(B, 9, 1000, 100);
        // The WRITE through the window is lost at first; with IRN the SEND arrives before it.
        pair.drop_nth(A, &[0], |_| true);
        pair.post(A, 1, Operation::Write(via(&pair, key, 100)), 0, 100);
        pair.post(A, 2, Operation::SendInvalidate(key), 0, 10);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success", "2 Success"]);
        let got = pair.completions(B);
        assert!(got[0].flags.with_invalidate && got[0].immediate == key.0, "{got:?}");
        assert_eq!(pair.bytes(B, 100, 100), pair.bytes(A, 0, 100));
        pair.post(A, 3, Operation::Write(via(&pair, key, 100)), 0, 8);
        pair.run();
        assert_eq!(pair.outcomes(A), ["3 RemoteAccess"]);
    }
}

#[test]
fn a_failed_invalidate_breaks_the_responder_without_a_word() {
    for recovery in RECOVERIES {
        for is_early in [false, true] {
            let mut pair = Pair::new(Setup { retry_count: 2, ..Setup::with(recovery) });
            let region = RemoteKey(pair.buffers[B].key.0);
            pair.receive(B, 8, 1000, 100);
            pair.receive(B, 9, 1000, 100);
            if is_early {
                pair.drop_nth(A, &[0], |_| true);
            }
            pair.post(A, 1, Operation::Send, 0, 10);
            pair.post(A, 2, Operation::SendInvalidate(region), 0, 10);
            pair.post(A, 3, Operation::Write(pair.buffers[B].remote(0)), 0, 10);
            pair.run();
            assert_eq!(pair.outcomes(A), ["1 Success", "2 RetryExceeded", "3 Flushed"]);
            assert_eq!(
                pair.count(B, Counter::NaksSent),
                u64::from(is_early),
                "for the hole, if there was one"
            );
            assert_eq!(pair.outcomes(B), ["8 Success", "9 LocalAccess"]);
            assert_eq!(pair.state(B), QpState::Error);
            // The region itself works as before.
            assert!(pair.net.nodes[B].rnic.regions().region(pair.buffers[B].key).is_some());
        }
    }
}

#[test]
fn a_local_invalidate_waits_for_what_was_posted_before_it() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        let key = bind(&mut pair);
        pair.post(B, 1, Operation::Write(pair.buffers[A].remote(0)), 0, 5000);
        pair.post(B, 2, Operation::LocalInvalidate(key), 0, 0);
        pair.post(B, 3, Operation::Write(pair.buffers[A].remote(0)), 0, 10);
        assert_eq!(pair.completions(B), []);
        pair.run();
        assert_eq!(pair.outcomes(B), ["1 Success", "2 Success", "3 Success"]);
        pair.post(A, 4, Operation::Write(via(&pair, key, 100)), 0, 8);
        pair.run();
        assert_eq!(pair.outcomes(A), ["4 RemoteAccess"]);
    }
}

#[test]
fn a_bind_that_the_region_does_not_permit_fails_and_breaks_the_queue_pair() {
    let mut pair = Pair::new(Setup::with(Recovery::GoBackN));
    let plain = pair.net.nodes[B].register(100, Access::ALL);
    let node = &mut pair.net.nodes[B];
    let window = node.rnic.regions_mut().allocate_window(node.pd);
    let bind = WindowBind {
        window: window.rkey,
        new_key: window.rkey,
        region: plain.key,
        va: plain.iova,
        length: 100,
        access: Access::REMOTE_READ,
    };
    // A WRITE keeps the bind waiting, and a request stands behind it.
    pair.post(B, 0, Operation::Write(pair.buffers[A].remote(0)), 0, 10);
    pair.post(B, 1, Operation::BindWindow(bind), 0, 0);
    pair.post(B, 2, Operation::Write(pair.buffers[A].remote(0)), 0, 10);
    pair.run();
    assert_eq!(pair.outcomes(B), ["0 Success", "1 WindowBind", "2 Flushed"]);
    assert_eq!(pair.state(B), QpState::Error);
}
