//! Neighbours that announce an operation and never finish it: no call waits for them for long.
#![allow(unsafe_code, reason = "the tests forge what a neighbour would write into a shared file")]

mod common;

use common::{End, PATIENCE, Setup, next, next_ok, until};
use highwire_host::verbs::{Access, CompletionStatus, Operation, QpState, Recovery, Service};
use highwire_host::{ConnectOptions, LinkChoice};
use highwire_link::shm::Registry;
use highwire_shmem::{Segment, Window};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

/// Of docs/uapi-neighbours.md: where channel slots begin in an engine of one lane, how long they are, and what lies in one.
const CHANNELS: usize = 512;
const CHANNEL_BYTES: usize = 256;
const IN_USE: usize = 128;
const ACCEPTED: u64 = 2;

/// Forges announcements of an engine's neighbours that they use something.
fn forge(end: &End, word: u64) -> usize {
    let registry = Registry::open().expect("a registry");
    let path = registry.directory(end.device.gid().to_ip()).join("engine");
    let window = Window::whole(&Arc::new(Segment::open(&path).expect("the engine's file")));
    let channels = (0..256).map(|slot| CHANNELS + slot * CHANNEL_BYTES);
    let open = channels.filter(|at| window.u64_at(*at).load(Ordering::Acquire) & 0xFF == ACCEPTED);
    open.inspect(|at| window.u64_at(at + IN_USE).store(word, Ordering::SeqCst)).count()
}

/// Fails if `act` does not end.
fn in_time<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || done.send(act()));
    is_done.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} waits"))
}

#[test]
fn no_call_waits_for_a_neighbour_that_never_finishes() {
    let ends = Setup::new(Service::Rc, LinkChoice::Shm).pair();
    let [a, b] = ends;
    b.receive(1, 0, 64);
    a.post(1, Operation::Send, 0, 64);
    next_ok(&a, &b);
    next_ok(&b, &a);
    let word = |rkey: u32| 1 << 63 | u64::from(b.qp.qpn().value()) << 32 | u64::from(rkey);
    let buffers: Vec<_> = (0..20).map(|_| b.pd.allocate(4096, Access::ALL).expect("a buffer")).collect();
    let first = buffers[0].as_ptr().addr();
    // One after the other: all share one patience, or this would take most of a minute.
    for buffer in buffers {
        assert!(forge(&b, word(buffer.rkey().0)) > 0, "a neighbour");
        in_time("deregistration", move || drop(buffer));
    }
    // Memory to which a neighbour may still be writing is not allocated again.
    let next_one = b.pd.allocate(4096, Access::ALL).expect("a buffer");
    assert!(!(first..first + (1 << 20)).contains(&next_one.as_ptr().addr()), "memory is used again");
    // The neighbour finishes, and the engine waits for it again from then on.
    assert!(forge(&b, 0) > 0);
    a.post(2, Operation::Write(next_one.remote(0)), 0, 64);
    next_ok(&a, &b);
    assert!(forge(&b, word(next_one.rkey().0)) > 0);
    let End { qp, buffer, cq, pd, device } = b;
    in_time("the end of a queue pair", move || drop(qp));
    in_time("the end of a device", move || drop((next_one, buffer, cq, pd, device)));
    drop(a);
}

#[test]
fn a_neighbour_that_has_gone_is_not_waited_for() {
    let [a, b] = Setup::new(Service::Rc, LinkChoice::Shm).pair();
    a.post(1, Operation::Write(b.buffer.remote(0)), 0, 64);
    next(&a, &b);
    b.receive(1, 0, 64);
    a.post(1, Operation::Send, 0, 64);
    next_ok(&a, &b);
    let word = 1 << 63 | u64::from(b.qp.qpn().value()) << 32 | u64::from(b.buffer.rkey().0);
    assert!(forge(&b, word) > 0);
    drop(a);
    in_time("the end of a device", move || drop(b));
}

/// Over shared memory the neighbour's lock tells that it lives, over UDP its socket.
const HASTY: [(Recovery, LinkChoice); 4] = [
    (Recovery::GoBackN, LinkChoice::Shm),
    (Recovery::Irn, LinkChoice::Shm),
    (Recovery::GoBackN, LinkChoice::Udp),
    (Recovery::Irn, LinkChoice::Udp),
];

fn hasty(recovery: Recovery, link: LinkChoice) -> Setup {
    let setup = Setup::new(Service::Rc, link).recovery(recovery);
    let options = ConnectOptions { timeout: 1, retry_count: 1, ..setup.options };
    Setup { options, ..setup }
}

#[test]
fn a_living_neighbour_that_does_not_run_is_not_given_up() {
    for (recovery, link) in HASTY {
        let [a, b] = &hasty(recovery, link).pair();
        b.receive(1, 0, 64);
        a.post(2, Operation::Send, 0, 64);
        next_ok(a, b);
        next_ok(b, a);
        // From here on the neighbour's engine does not run, because no thread polls it. Hundreds of timeouts pass.
        b.receive(3, 0, 64);
        a.post(4, Operation::Send, 0, 64);
        for _ in 0..if link == LinkChoice::Udp { 100_000 } else { 1_000_000 } {
            assert_eq!(a.cq.poll_one(), None, "{recovery:?} {link}");
        }
        assert_eq!(a.qp.state(), QpState::Rts, "{recovery:?} {link}");
        next_ok(a, b);
        assert_eq!(next_ok(b, a).wr_id, 3, "{recovery:?} {link}");
    }
}

#[test]
fn a_neighbour_that_runs_and_does_not_answer_is_given_up() {
    for (recovery, link) in HASTY {
        let [a, b] = hasty(recovery, link).pair();
        b.receive(1, 0, 64);
        a.post(2, Operation::Send, 0, 64);
        next_ok(&a, &b);
        let End { qp, cq, .. } = b;
        drop(qp);
        a.post(4, Operation::Send, 0, 64);
        let completion = until("the end", || {
            cq.poll_one();
            a.cq.poll_one()
        });
        assert_eq!(
            (completion.wr_id, completion.status),
            (4, CompletionStatus::RetryExceeded),
            "{recovery:?} {link}"
        );
    }
}
