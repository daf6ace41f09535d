//! Which thread runs the engine: the polling thread, a thread of the device's own, or a waiting thread.

mod common;

use common::{PATIENCE, Setup, until};
use highwire_host::verbs::{Access, CompletionStatus, Operation, QpCaps, SendWr, Service};
use highwire_host::{Engine, LinkChoice, QueuePairConfig, WaitFor};
use std::sync::atomic::Ordering::SeqCst;

const LINKS: [LinkChoice; 2] = [LinkChoice::Udp, LinkChoice::Auto];

#[test]
fn a_target_that_calls_nothing_is_written_and_read() {
    for link in LINKS {
        for engine in [Engine::Both, Engine::Background] {
            let [a, b] = &Setup::new(Service::Rc, link).engine(engine).pair();
            // Memory that is not shared: even on one host, only the target's own engine can reach it.
            let mut memory = vec![0u64; 4096];
            let length = memory.len() * 8;
            // SAFETY: the vector outlives the region, and is looked at only when no request is under way.
            #[allow(unsafe_code)]
            let region = unsafe { b.pd.register(memory.as_mut_ptr().cast(), length, Access::ALL) };
            let region = region.expect("registers");
            let bytes = a.fill(0, length, 7);
            let requests = [
                (Operation::Write(region.remote(0)), 0, length),
                (Operation::Read(region.remote(0)), 65_536, length),
                (Operation::FetchAdd { remote: region.remote(8), add: 1 }, 200_000, 8),
            ];
            for (wr_id, (operation, at, length)) in (1..).zip(requests) {
                a.post(wr_id, operation, at, length as u32);
                assert!(a.cq.wait(WaitFor::Any, PATIENCE), "{link} {engine}");
                let completion = until("a completion", || a.cq.poll_one());
                assert_eq!((completion.wr_id, completion.status), (wr_id, CompletionStatus::Success));
            }
            assert!(a.buffer.to_vec(65_536, length) == bytes, "what was read is not what was written");
            drop(region);
            let word = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
            assert_eq!((a.buffer.word(200_000).load(SeqCst), memory[1]), (word, word + 1));
        }
    }
}

#[test]
fn a_conversation_works_whoever_runs_the_engines() {
    for link in LINKS {
        for engine in [Engine::Inline, Engine::Background, Engine::Both] {
            let [a, b] = &Setup::new(Service::Rc, link).engine(engine).pair();
            let rounds = 300u64;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for round in 0..rounds {
                        b.receive(round, 0, 8);
                        let completion = wait_for(b, true);
                        assert_eq!(
                            (completion, b.buffer.word(0).load(SeqCst)),
                            (round, round),
                            "{link} {engine}"
                        );
                        b.buffer.word(8).store(round + 1, SeqCst);
                        b.post(round, Operation::Send, 8, 8);
                        wait_for(b, false);
                    }
                });
                for round in 0..rounds {
                    a.receive(round, 8, 8);
                    a.buffer.word(0).store(round, SeqCst);
                    a.post(round, Operation::Send, 0, 8);
                    // Both come, in either order.
                    let seen = [next(a), next(a)];
                    assert!(seen.contains(&true) && seen.contains(&false));
                    assert_eq!(a.buffer.word(8).load(SeqCst), round + 1, "{link} {engine}");
                }
            });
        }
    }
}

/// Sleeps until the next completion; true for a receive.
fn next(end: &common::End) -> bool {
    until("a completion", || {
        end.cq.wait(WaitFor::Any, PATIENCE);
        let completion = end.cq.poll_one()?;
        assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
        Some(completion.operation == highwire_host::verbs::CompletionOp::Receive)
    })
}

fn wait_for(end: &common::End, receive: bool) -> u64 {
    until("a completion", || {
        end.cq.wait(WaitFor::Any, PATIENCE);
        let completion = end.cq.poll_one()?;
        assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
        assert_eq!(completion.operation == highwire_host::verbs::CompletionOp::Receive, receive);
        Some(completion.wr_id)
    })
}

#[test]
fn threads_that_post_and_poll_at_once_lose_nothing() {
    for link in LINKS {
        let [a, b] = &Setup::new(Service::Rc, link).engine(Engine::Both).pair();
        let (threads, each) = (3u64, 400u64);
        let posted = std::sync::atomic::AtomicU64::new(0);
        let received = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let posted = &posted;
                scope.spawn(move || {
                    let data = thread.to_le_bytes();
                    for i in 0..each {
                        let wr = SendWr::new(thread << 32 | i, Operation::Send, &[]);
                        until("room in the queue", || a.qp.post_inline(&wr, &data).ok());
                        posted.fetch_add(1, SeqCst);
                    }
                });
            }
            scope.spawn(|| {
                for i in 0..64 {
                    b.receive(i, i * 8, 8);
                }
                let mut of_thread = [0u64; 3];
                while received.load(SeqCst) < threads * each {
                    let completion = until("a message", || b.cq.poll_one());
                    assert_eq!(completion.status, CompletionStatus::Success);
                    of_thread[b.buffer.word(completion.wr_id as usize * 8).load(SeqCst) as usize] += 1;
                    b.receive(completion.wr_id, completion.wr_id * 8, 8);
                    received.fetch_add(1, SeqCst);
                }
                assert_eq!(of_thread, [each; 3]);
            });
            let mut next_of = [0u64; 3];
            for _ in 0..threads * each {
                let completion = until("a completion", || a.cq.poll_one());
                assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
                // Each thread's own requests keep their order.
                let thread = (completion.wr_id >> 32) as usize;
                assert_eq!(completion.wr_id & 0xFFFF_FFFF, next_of[thread]);
                next_of[thread] += 1;
            }
        });
    }
}

/// A program may block a signal in its threads and read it from a descriptor: it must find no thread of ours instead.
#[test]
fn the_devices_own_thread_takes_no_signals() {
    let _pair = Setup::new(Service::Rc, LinkChoice::Udp).engine(Engine::Background).pair();
    let mut threads = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("threads").flatten() {
        // Threads of other tests may end meanwhile.
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim().to_string()
        };
        if field("Name:") != "highwire" {
            continue;
        }
        threads += 1;
        let blocked = u64::from_str_radix(&field("SigBlk:"), 16).expect("a set of signals");
        let (user_2, child) = (1 << 11, 1 << 16);
        assert_eq!(blocked & (user_2 | child), user_2 | child, "{blocked:#x}");
    }
    assert!(threads >= 2, "each device has one");
}

/// A queue pair without room for inline data needs smaller slots than the ring has.
#[test]
fn inline_data_without_room_for_it_completes_as_too_long() {
    let setup = Setup::new(Service::Rc, LinkChoice::Udp).engine(Engine::Background);
    let [mut a, b] = [setup.end(), setup.end()];
    let caps = QpCaps { max_inline: 0, ..QpCaps::default() };
    let config = QueuePairConfig { caps, ..QueuePairConfig::new(Service::Rc, &a.cq) };
    a.qp = a.pd.queue_pair(&config).expect("a queue pair");
    let ends = [a, b];
    setup.connect(&ends);
    let [a, b] = &ends;
    b.receive(1, 0, 64);
    a.qp.post_inline(&SendWr::new(2, Operation::Send, &[]), b"sixteen bytes...").expect("the slot holds it");
    assert_eq!(
        common::next(a, b).status,
        CompletionStatus::LocalLength,
        "and does not leave as an empty message"
    );
    assert!(b.cq.poll_one().is_none());
}
