//! Every operation of every service, without faults.

use crate::RECOVERIES;
use crate::common::{A, B, Pair, Setup};
use highwire_verbs::{Completion, CompletionOp, CompletionStatus, Operation, QpState, SendFlags, Service};

const LENGTHS: [u32; 8] = [0, 1, 3, 32, 1023, 1024, 1025, 10_000];

#[track_caller]
fn only(completions: Vec<Completion>) -> Completion {
    let [completion] = completions[..] else { panic!("one completion, not {completions:?}") };
    assert_eq!(completion.status, CompletionStatus::Success);
    completion
}

/// The connected services, each with every recovery that it has.
pub(crate) fn connected() -> Vec<Setup> {
    let mut setups: Vec<_> = RECOVERIES.map(Setup::with).to_vec();
    setups.push(Setup::of(Service::Uc));
    setups
}

#[test]
fn a_send_fills_the_next_receive() {
    for setup in connected() {
        let mut pair = Pair::new(setup);
        for (n, length) in LENGTHS.into_iter().enumerate() {
            let n = n as u64;
            pair.receive(B, 100 + n, 0, 20_000);
            pair.post(A, n, Operation::Send, 64, length);
            pair.run();
            let sent = only(pair.completions(A));
            assert_eq!((sent.wr_id, sent.operation), (n, CompletionOp::Send));
            let received = only(pair.completions(B));
            assert_eq!((received.wr_id, received.operation), (100 + n, CompletionOp::Receive));
            assert_eq!((received.byte_len, received.flags.with_immediate), (length, false));
            assert_eq!(pair.bytes(B, 0, length.into()), pair.bytes(A, 64, length.into()));
        }
    }
}

#[test]
fn a_write_lands_where_it_was_told_to() {
    for setup in connected() {
        let mut pair = Pair::new(setup);
        for (n, length) in LENGTHS.into_iter().enumerate() {
            let remote = pair.buffers[B].remote(5);
            let before = pair.bytes(B, 5 + u64::from(length), 8);
            pair.post(A, n as u64, Operation::Write(remote), 64, length);
            pair.run();
            assert_eq!(only(pair.completions(A)).operation, CompletionOp::Write);
            assert_eq!(pair.completions(B), []);
            assert_eq!(pair.bytes(B, 5, length.into()), pair.bytes(A, 64, length.into()));
            assert_eq!(pair.bytes(B, 5 + u64::from(length), 8), before);
        }
    }
}

#[test]
fn a_read_brings_the_peers_bytes() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        for (n, length) in LENGTHS.into_iter().enumerate() {
            let remote = pair.buffers[B].remote(77);
            pair.post(A, n as u64, Operation::Read(remote), 0, length);
            pair.run();
            let read = only(pair.completions(A));
            assert_eq!((read.operation, read.byte_len), (CompletionOp::Read, length));
            assert_eq!(pair.bytes(A, 0, length.into()), pair.bytes(B, 77, length.into()));
        }
    }
}

#[test]
fn atomics_return_what_was_there() {
    for recovery in RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        let remote = pair.buffers[B].remote(16);
        pair.set_word(B, 16, 40);
        pair.post(A, 1, Operation::FetchAdd { remote, add: 2 }, 0, 8);
        pair.post(A, 2, Operation::CompareSwap { remote, compare: 42, swap: 7 }, 8, 8);
        pair.post(A, 3, Operation::CompareSwap { remote, compare: 42, swap: 9 }, 16, 8);
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 Success", "2 Success", "3 Success"]);
        assert_eq!([pair.word(A, 0), pair.word(A, 8), pair.word(A, 16)], [40, 42, 7]);
        assert_eq!(pair.word(B, 16), 7);
    }
}

#[test]
fn immediate_data_arrives_with_sends_and_writes() {
    for setup in connected() {
        let mut pair = Pair::new(setup);
        for length in LENGTHS {
            pair.receive(B, 1, 0, 20_000);
            pair.receive(B, 2, 0, 0);
            let remote = pair.buffers[B].remote(30_000);
            pair.post(A, 1, Operation::SendImm(0xDEAD_BEEF), 64, length);
            pair.post(A, 2, Operation::WriteImm(remote, 17), 64, length);
            pair.run();
            assert_eq!(pair.outcomes(A), ["1 Success", "2 Success"]);
            let got = pair.completions(B);
            assert_eq!(got.len(), 2, "{got:?}");
            assert_eq!(
                (got[0].operation, got[1].operation),
                (CompletionOp::Receive, CompletionOp::ReceiveWriteImm)
            );
            assert_eq!((got[0].immediate, got[1].immediate), (0xDEAD_BEEF, 17));
            assert!(got.iter().all(|c| c.flags.with_immediate && c.byte_len == length));
            assert_eq!(pair.bytes(B, 30_000, length.into()), pair.bytes(A, 64, length.into()));
        }
    }
}

#[test]
fn a_datagram_lies_behind_forty_bytes_and_tells_who_sent_it() {
    let mut pair = Pair::new(Setup::of(Service::Ud));
    for length in [0, 1, 500, 1024] {
        pair.receive(B, 9, 0, 2048);
        pair.post(A, 1, Operation::SendImm(5), 64, length);
        pair.run();
        only(pair.completions(A));
        let got = only(pair.completions(B));
        assert_eq!((got.byte_len, got.source_qpn, got.immediate), (length + 40, pair.ends[A].qpn, 5));
        assert!(got.flags.grh);
        assert_eq!(pair.bytes(B, 40, length.into()), pair.bytes(A, 64, length.into()));
        assert_eq!(pair.bytes(B, 32, 4), [10, 0, 0, 1]);
    }
}

#[test]
fn a_solicited_message_says_so() {
    for setup in connected() {
        let mut pair = Pair::new(setup);
        pair.receive(B, 1, 0, 4000);
        let flags = SendFlags { solicited: true, ..SendFlags::SIGNALED };
        pair.try_post(A, 1, Operation::Send, 0, 3000, flags).expect("posts");
        pair.run();
        assert!(only(pair.completions(B)).flags.solicited);
    }
}

#[test]
fn an_unsignaled_request_completes_silently() {
    for setup in connected() {
        let mut pair = Pair::new(setup);
        let remote = pair.buffers[B].remote(0);
        pair.try_post(A, 1, Operation::Write(remote), 0, 100, SendFlags::default()).expect("posts");
        pair.post(A, 2, Operation::Write(remote), 0, 100);
        pair.run();
        assert_eq!(pair.outcomes(A), ["2 Success"]);
    }
}

#[test]
fn both_sides_talk_at_once() {
    for setup in connected() {
        let mut pair = Pair::new(setup);
        for n in 0..20 {
            for side in [A, B] {
                pair.receive(side, 100 + n, 100_000 + 8000 * n, 8000);
                pair.post(side, n, Operation::Send, 300 * n, 5000);
            }
        }
        pair.run();
        for side in [A, B] {
            let all = pair.completions(side);
            assert_eq!(all.len(), 40);
            assert!(all.iter().all(|c| c.status == CompletionStatus::Success));
            for n in 0..20 {
                assert_eq!(pair.bytes(side, 100_000 + 8000 * n, 5000), pair.bytes(1 - side, 300 * n, 5000));
            }
            assert_eq!(pair.state(side), QpState::Rts);
        }
    }
}
