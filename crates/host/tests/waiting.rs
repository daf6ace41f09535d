//! Threads that block, each on a channel of its own, under every mode: each gets what is for it, and no event is lost.

mod common;

use common::{PATIENCE, Setup};
use highwire_host::verbs::{CompletionOp, CompletionStatus, Operation, RecvWr, SendWr, Service};
use highwire_host::{
    ChannelTarget, CompletionChannel, CompletionQueue, CompletionQueueConfig, Engine, LinkChoice, QueuePair,
    QueuePairConfig, WaitFor, WakeMode,
};
use std::os::fd::AsRawFd;

const THREADS: usize = 6;
const ROUNDS: u64 = 150;

/// A served connection.
struct Served {
    qp: QueuePair,
    cq: CompletionQueue,
    channel: CompletionChannel,
}

impl Served {
    /// Answers every message, asleep or polling in between as the mode has it.
    fn serve(&self) {
        let mut answered = 0;
        loop {
            self.cq.request_notify(WaitFor::Any).expect("it has a channel");
            while let Some(completion) = self.cq.poll_one() {
                assert_eq!(completion.status, CompletionStatus::Success);
                if completion.operation == CompletionOp::Receive {
                    self.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).expect("posts");
                    self.qp.post_send(&[SendWr::new(1, Operation::Send, &[])]).expect("posts");
                    answered += 1;
                }
            }
            if answered == ROUNDS {
                return;
            }
            assert_eq!(self.channel.event(Some(PATIENCE)), Some(7), "an event after {answered} answers");
        }
    }
}

#[test]
fn threads_that_block_are_all_served() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        for mode in WakeMode::ALL {
            let mut setup = Setup::new(Service::Rc, link).engine(Engine::Both);
            setup.config.wake = Some(mode);
            let (asking, serving) = (setup.end(), setup.end());
            let connections: Vec<(QueuePair, Served)> = (0..THREADS)
                .map(|_| {
                    let channel = serving.device.completion_channel().expect("a channel");
                    let target = Some(ChannelTarget { channel: &channel, tag: 7 });
                    let config = CompletionQueueConfig { channel: target, ..CompletionQueueConfig::new(16) };
                    let cq = serving.device.create_completion_queue(&config).expect("a completion queue");
                    let qp =
                        serving.pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq)).expect("a queue pair");
                    let config = QueuePairConfig::new(Service::Rc, &asking.cq);
                    let peer = asking.pd.queue_pair(&config).expect("a queue pair");
                    peer.connect(&qp.endpoint(), &setup.options).expect("connects");
                    qp.connect(&peer.endpoint(), &setup.options).expect("connects");
                    qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).expect("posts");
                    (peer, Served { qp, cq, channel })
                })
                .collect();
            std::thread::scope(|threads| {
                for (_, served) in &connections {
                    threads.spawn(|| served.serve());
                }
                // One message at a time, so that each time another thread is to be woken.
                for _ in 0..ROUNDS {
                    for (peer, _) in &connections {
                        peer.post_recv(&RecvWr { wr_id: 2, sges: &[] }).expect("posts");
                        peer.post_send(&[SendWr::new(3, Operation::Send, &[])]).expect("posts");
                        let mut missing = 2;
                        while missing > 0 {
                            assert!(asking.cq.wait(WaitFor::Any, PATIENCE), "{link} {mode}: an answer");
                            missing -= std::iter::from_fn(|| asking.cq.poll_one()).count();
                        }
                    }
                }
            });
            let counters = serving.device.counters();
            let of = |wanted: &str| {
                counters.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| value)
            };
            assert!(of("wakes_ready") + of("wakes_own") + of("wakes_woken") > 0, "{mode}: nobody waited");
            assert_eq!(of("wakes_in_vain"), 0, "{link} {mode}");
            match mode {
                WakeMode::Power => assert_eq!(of("wake_polls"), 0, "{link}: nobody polls"),
                _ => assert!(of("wake_polls") > 0, "{link} {mode}: somebody polls"),
            }
        }
    }
}

/// A thread waits in `event` while another looks at the descriptor: whoever comes late finds it readable.
#[test]
#[allow(unsafe_code)]
fn the_descriptor_is_quiet_while_a_thread_takes_the_events() {
    let setup = Setup::new(Service::Rc, LinkChoice::Auto).engine(Engine::Both);
    let ends = [setup.end(), setup.end()];
    let channel = ends[1].device.completion_channel().expect("a channel");
    let target = Some(ChannelTarget { channel: &channel, tag: 1 });
    let config = CompletionQueueConfig { channel: target, ..CompletionQueueConfig::new(16) };
    let cq = ends[1].device.create_completion_queue(&config).expect("a completion queue");
    let qp = ends[1].pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq)).expect("a queue pair");
    ends[0].qp.connect(&qp.endpoint(), &setup.options).expect("connects");
    qp.connect(&ends[0].qp.endpoint(), &setup.options).expect("connects");
    let readable = || {
        let mut polled = libc::pollfd { fd: channel.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, of an open descriptor.
        unsafe { libc::poll(&raw mut polled, 1, 0) == 1 }
    };
    for round in 0..20 {
        qp.post_recv(&RecvWr { wr_id: round, sges: &[] }).expect("posts");
        cq.request_notify(WaitFor::Any).expect("has a channel");
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| channel.event(Some(PATIENCE)));
            ends[0].post(round, Operation::Send, 0, 0);
            assert_eq!(waiting.join().expect("no panic"), Some(1));
        });
        assert!(!readable(), "the thread has taken it");
        common::until("the completion", || cq.poll_one());
        common::until("the other end's", || ends[0].cq.poll_one());
    }
}

/// A thread rests on the lane's sockets, and another brings its event without a packet: an unreliable message is complete once sent.
#[test]
fn a_thread_that_rests_hears_of_what_another_thread_completes() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        let mut setup = Setup::new(Service::Uc, link).engine(Engine::Both);
        setup.config.wake = Some(WakeMode::Balanced);
        let ends = [setup.end(), setup.end()];
        let channel = ends[0].device.completion_channel().expect("a channel");
        let target = Some(ChannelTarget { channel: &channel, tag: 1 });
        let config = CompletionQueueConfig { channel: target, ..CompletionQueueConfig::new(16) };
        let cq = ends[0].device.create_completion_queue(&config).expect("a completion queue");
        let qp = ends[0].pd.queue_pair(&QueuePairConfig::new(Service::Uc, &cq)).expect("a queue pair");
        qp.connect(&ends[1].qp.endpoint(), &setup.options).expect("connects");
        ends[1].qp.connect(&qp.endpoint(), &setup.options).expect("connects");
        let counter = |wanted: &str| {
            let counters = ends[0].device.counters();
            counters.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| value)
        };
        for round in 0..20 {
            cq.request_notify(WaitFor::Any).expect("has a channel");
            std::thread::scope(|threads| {
                let before = counter("wake_sleeps");
                let waiting = threads.spawn(|| channel.event(Some(PATIENCE)));
                common::until("the thread's sleep", || (counter("wake_sleeps") > before).then_some(()));
                // It counts its sleep just before it begins.
                std::thread::sleep(std::time::Duration::from_millis(5));
                qp.post_send(&[SendWr::new(round, Operation::Send, &[])]).expect("posts");
                assert_eq!(waiting.join().expect("no panic"), Some(1));
            });
            common::until("the completion", || cq.poll_one());
        }
        assert_eq!(counter("wake_rescues"), 0, "{link}: it found its event when it looked for itself");
    }
}
