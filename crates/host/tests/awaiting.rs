//! Completions awaited as futures, without any executor but the few lines here.

mod common;

use common::{End, PATIENCE, Setup};
use highwire_host::verbs::{Completion, CompletionStatus, Operation, RecvWr, SendWr, Service};
use highwire_host::{Engine, LinkChoice, Next};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

/// Wakes a thread, and counts how often it did.
struct Unpark {
    thread: Thread,
    wakes: AtomicU64,
}

impl Unpark {
    fn new() -> Arc<Unpark> {
        Arc::new(Unpark { thread: thread::current(), wakes: AtomicU64::new(0) })
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Runs a future on this thread. It is polled only after it was woken, so a lost wake-up shows.
#[track_caller]
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let unpark = Unpark::new();
    let waker = Waker::from(Arc::clone(&unpark));
    let begun = Instant::now();
    let mut seen = 0;
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        while unpark.wakes.load(Ordering::SeqCst) == seen {
            assert!(begun.elapsed() < PATIENCE, "never woken again, after {seen} times");
            thread::park_timeout(PATIENCE);
        }
        seen = unpark.wakes.load(Ordering::SeqCst);
    }
}

/// Whichever is ready first, as an executor with several tasks would find out.
struct Any<'a, const N: usize>([Next<'a>; N]);

impl<const N: usize> Future for Any<'_, N> {
    type Output = (usize, Completion);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        for (index, next) in self.0.iter_mut().enumerate() {
            if let Poll::Ready(completion) = Pin::new(next).poll(context) {
                return Poll::Ready((index, completion));
            }
        }
        Poll::Pending
    }
}

const ENGINES: [Engine; 3] = [Engine::Both, Engine::Background, Engine::Inline];

fn receive(end: &End, wr_id: u64) {
    end.qp.post_recv(&RecvWr { wr_id, sges: &[] }).expect("posts");
}

fn send(end: &End, wr_id: u64) {
    end.qp.post_send(&[SendWr::new(wr_id, Operation::Send, &[])]).expect("posts");
}

#[test]
fn a_conversation_can_be_awaited_whoever_runs_the_engines() {
    const ROUNDS: u64 = 100;
    const ANSWER: u64 = 1000;
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        for engine in ENGINES {
            let setup = Setup::new(Service::Rc, link).engine(engine);
            let [a, b] = setup.pair();
            receive(&b, 0);
            thread::scope(|threads| {
                threads.spawn(|| {
                    block_on(async {
                        let mut answered = 0;
                        while answered < ROUNDS {
                            let completion = b.cq.next().await;
                            assert_eq!(completion.status, CompletionStatus::Success);
                            // The answer's own completion may come after the next message.
                            if completion.wr_id == ANSWER {
                                continue;
                            }
                            assert_eq!(completion.wr_id, answered);
                            answered += 1;
                            receive(&b, answered);
                            send(&b, ANSWER);
                        }
                    });
                });
                block_on(async {
                    for round in 0..ROUNDS {
                        receive(&a, 1);
                        send(&a, 2);
                        let mut done = [a.cq.next().await.wr_id, a.cq.next().await.wr_id];
                        done.sort_unstable();
                        assert_eq!(done, [1, 2], "{} in round {round}", setup.label());
                    }
                });
            });
        }
    }
}

#[test]
fn a_task_that_nobody_polls_is_woken_by_the_thread_that_delivers() {
    let [a, b] = Setup::new(Service::Rc, LinkChoice::Auto).engine(Engine::Both).pair();
    receive(&b, 7);
    // The task waits before there is a completion, and no thread polls its queue.
    let unpark = Unpark::new();
    let waker = Waker::from(Arc::clone(&unpark));
    let mut next = pin!(b.cq.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    send(&a, 1);
    let begun = Instant::now();
    while unpark.wakes.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < PATIENCE, "not woken");
        thread::park_timeout(PATIENCE);
    }
    let Poll::Ready(found) = next.poll(&mut Context::from_waker(&waker)) else { panic!("woken for nothing") };
    assert_eq!(found.wr_id, 7);
}

#[test]
fn each_of_several_tasks_on_one_queue_gets_a_completion() {
    let [a, b] = Setup::new(Service::Rc, LinkChoice::Auto).engine(Engine::Both).pair();
    for wr_id in 0..3 {
        receive(&b, wr_id);
    }
    let mut found = thread::scope(|threads| {
        let tasks = [(); 3].map(|()| threads.spawn(|| block_on(b.cq.next()).wr_id));
        for wr_id in 0..3 {
            send(&a, wr_id);
            assert_eq!(block_on(a.cq.next()).wr_id, wr_id);
        }
        tasks.map(|task| task.join().expect("a completion"))
    });
    found.sort_unstable();
    assert_eq!(found, [0, 1, 2]);
}

#[test]
fn a_task_that_is_dropped_loses_no_completion_and_leaves_no_waker() {
    let [a, b] = Setup::new(Service::Rc, LinkChoice::Auto).engine(Engine::Both).pair();
    receive(&b, 1);
    receive(&b, 2);
    let unpark = Unpark::new();
    let waker = Waker::from(Arc::clone(&unpark));
    let kept_before = Arc::strong_count(&unpark);
    let mut dropped = Box::pin(b.cq.next());
    assert!(dropped.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(Arc::strong_count(&unpark) > kept_before, "the queue has the waker");
    drop(dropped);
    assert_eq!(Arc::strong_count(&unpark), kept_before, "the queue has let go of it");
    // One of two waiting tasks gives up after both were woken: the other one gets the completion.
    let (first, second) = (a.cq.next(), a.cq.next());
    send(&a, 3);
    let (which, completion) = block_on(Any([first, second]));
    assert_eq!((which < 2, completion.wr_id), (true, 3));
    send(&a, 4);
    assert_eq!(block_on(a.cq.next()).wr_id, 4);
    assert_eq!([block_on(b.cq.next()).wr_id, block_on(b.cq.next()).wr_id], [1, 2]);
    assert_eq!(unpark.wakes.load(Ordering::SeqCst), 0, "nobody wakes who has gone");
}
