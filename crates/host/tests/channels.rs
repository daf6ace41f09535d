//! Completion channels and asynchronous events: descriptors for event loops.

mod common;

use common::{End, PATIENCE, Setup, Told, until};
use highwire_host::verbs::{
    AsyncEvent, CompletionStatus, Operation, QpAttr, QpState, RecvWr, RemoteKey, SendFlags, SendWr, Service,
};
use highwire_host::{
    ChannelTarget, CompletionQueueConfig, Endpoint, Engine, EventTarget, LinkChoice, NoChannel,
    QueuePairConfig, SharedReceiveQueueConfig, WaitFor,
};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

const LINKS: [LinkChoice; 2] = [LinkChoice::Udp, LinkChoice::Auto];

/// Sleeps on the descriptor as an event loop does: no call into the library until it is readable.
#[allow(unsafe_code)]
fn sleep_on(fd: BorrowedFd<'_>) {
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, of an open descriptor.
    let ready = unsafe { libc::poll(&raw mut polled, 1, PATIENCE.as_millis() as i32) };
    assert_eq!(ready, 1, "waited too long for an event");
}

#[test]
fn an_event_loop_sleeps_until_the_armed_queue_has_something() {
    for link in LINKS {
        for engine in [Engine::Both, Engine::Background] {
            let setup = Setup::new(Service::Rc, link).engine(engine);
            let (a, b) = (setup.end(), setup.end());
            let channel = b.device.completion_channel().expect("a channel");
            let queue = |tag| {
                let target = Some(ChannelTarget { channel: &channel, tag });
                b.device
                    .create_completion_queue(&CompletionQueueConfig {
                        channel: target,
                        ..CompletionQueueConfig::new(64)
                    })
                    .expect("a completion queue")
            };
            let (sends, receives) = (queue(10), queue(20));
            let config = QueuePairConfig {
                send_cq: &sends,
                recv_cq: &receives,
                ..QueuePairConfig::new(Service::Rc, &sends)
            };
            let qp = b.pd.queue_pair(&config).expect("a queue pair");
            a.qp.connect(&qp.endpoint(), &setup.options).expect("connects");
            qp.connect(&a.qp.endpoint(), &setup.options).expect("connects");
            for round in 0..50 {
                let sges = [b.buffer.sge(0, 64)];
                qp.post_recv(&RecvWr { wr_id: round, sges: &sges }).expect("posts");
                receives.request_notify(WaitFor::Any).expect("has a channel");
                receives.request_notify(WaitFor::Solicited).expect("has a channel");
                assert!(receives.poll_one().is_none() && channel.try_event().is_none());
                a.post(round, Operation::Send, 0, 64);
                sleep_on(channel.fd());
                assert_eq!((channel.try_event(), channel.try_event()), (Some(20), None), "{link} {engine}");
                let completion = receives.poll_one().expect("a completion");
                assert_eq!((completion.wr_id, completion.status), (round, CompletionStatus::Success));
                until("the send's completion", || a.cq.poll_one());
            }
            // Not armed: a completion causes no event. Events that were reported and not fetched go with the queue.
            assert_eq!(a.cq.request_notify(WaitFor::Any), Err(NoChannel));
            sends.request_notify(WaitFor::Any).expect("has a channel");
            qp.modify(&QpAttr::to_state(QpState::Error)).expect("an error");
            qp.post_send(&[SendWr::new(9, Operation::Send, &[])]).expect("posts");
            assert_eq!(channel.event(Some(PATIENCE)), Some(10));
            sends.request_notify(WaitFor::Any).expect("has a channel");
            qp.post_send(&[SendWr::new(10, Operation::Send, &[])]).expect("posts");
            until("both flushed", || (sends.poll_one()?.wr_id == 10).then_some(()));
            drop((qp, sends, receives));
            assert_eq!(channel.try_event(), None);
        }
    }
}

#[test]
fn a_program_may_block_on_a_channel_and_sleep_on_its_descriptor_by_turns() {
    for link in LINKS {
        let setup = Setup::new(Service::Rc, link).engine(Engine::Both);
        let (a, b) = (setup.end(), setup.end());
        let channel = b.device.completion_channel().expect("a channel");
        let target = Some(ChannelTarget { channel: &channel, tag: 1 });
        let config = CompletionQueueConfig { channel: target, ..CompletionQueueConfig::new(64) };
        let cq = b.device.create_completion_queue(&config).expect("a completion queue");
        let qp = b.pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq)).expect("a queue pair");
        a.qp.connect(&qp.endpoint(), &setup.options).expect("connects");
        qp.connect(&a.qp.endpoint(), &setup.options).expect("connects");
        for round in 0..60u64 {
            qp.post_recv(&RecvWr { wr_id: round, sges: &[] }).expect("posts");
            cq.request_notify(WaitFor::Any).expect("has a channel");
            // Sometimes the queue is armed and no thread waits, and the message comes later.
            if round % 7 == 6 {
                std::thread::sleep(Duration::from_millis(2));
            }
            let sender = std::thread::scope(|scope| {
                let sender = scope.spawn(|| a.post(round, Operation::Send, 0, 0));
                match round / 6 % 2 {
                    0 => assert_eq!(channel.event(Some(PATIENCE)), Some(1), "{link}, round {round}"),
                    _ => {
                        sleep_on(channel.fd());
                        assert_eq!(channel.try_event(), Some(1), "{link}, round {round}");
                    }
                }
                sender.join()
            });
            sender.expect("the message was posted");
            assert_eq!(cq.poll_one().map(|c| c.wr_id), Some(round));
            until("the send's completion", || a.cq.poll_one());
        }
    }
}

#[test]
fn a_queue_armed_for_solicited_completions_sleeps_through_the_others() {
    for link in LINKS {
        let setup = Setup::new(Service::Rc, link).engine(Engine::Both);
        let (a, b) = (setup.end(), setup.end());
        let channel = b.device.completion_channel().expect("a channel");
        let target = Some(ChannelTarget { channel: &channel, tag: 1 });
        let cq = b
            .device
            .create_completion_queue(&CompletionQueueConfig {
                channel: target,
                ..CompletionQueueConfig::new(8)
            })
            .expect("a completion queue");
        let qp = b.pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq)).expect("a queue pair");
        a.qp.connect(&qp.endpoint(), &setup.options).expect("connects");
        qp.connect(&a.qp.endpoint(), &setup.options).expect("connects");
        (0..2).for_each(|wr_id| qp.post_recv(&RecvWr { wr_id, sges: &[] }).expect("posts"));
        cq.request_notify(WaitFor::Solicited).expect("has a channel");
        a.post(0, Operation::Send, 0, 0);
        // The message has arrived once the sender has its completion, and the receiver's channel has no event.
        until("the first message", || a.cq.poll_one());
        assert_eq!(channel.try_event(), None, "{link}");
        let flags = SendFlags { solicited: true, ..SendFlags::default() };
        a.qp.post_send(&[SendWr { flags, ..SendWr::new(1, Operation::Send, &[]) }]).expect("posts");
        sleep_on(channel.fd());
        assert_eq!(channel.try_event(), Some(1));
        assert_eq!((cq.poll_one().map(|c| c.wr_id), cq.poll_one().map(|c| c.wr_id)), (Some(0), Some(1)));
    }
}

/// A queue pair that sends to one whose queue reports to a channel, with tag 7.
struct TellingPair {
    told: Told,
    /// The receiver's device.
    _receiver: End,
    sender: End,
    _setup: Setup,
}

impl TellingPair {
    fn new(link: LinkChoice) -> TellingPair {
        let setup = Setup::new(Service::Rc, link).engine(Engine::Both);
        let (sender, receiver) = (setup.end(), setup.end());
        let told = setup.told(&receiver, 7);
        setup.join(&sender.qp, &told.qp);
        TellingPair { told, _receiver: receiver, sender, _setup: setup }
    }

    /// Sends an empty message, and waits until it has arrived, as it has once the sender has its completion.
    fn send(&self, wr_id: u64, solicited: bool) {
        self.told.qp.post_recv(&RecvWr { wr_id, sges: &[] }).expect("posts");
        let flags = SendFlags { solicited, ..SendFlags::SIGNALED };
        let request = SendWr { flags, ..SendWr::new(wr_id, Operation::Send, &[]) };
        self.sender.qp.post_send(&[request]).expect("posts");
        until("the message", || self.sender.cq.poll_one());
    }

    fn taken(&self) -> Option<u64> {
        self.told.cq.poll_one().map(|completion| completion.wr_id)
    }

    /// Arms the queue. The event, if there is one at once.
    fn arm(&self, what: WaitFor) -> Option<u64> {
        self.told.cq.request_notify(what).expect("has a channel");
        self.told.channel.try_event()
    }
}

#[test]
fn a_queue_tells_once_of_what_came_between_the_last_look_and_the_arming() {
    for link in LINKS {
        let pair = TellingPair::new(link);
        let (send, taken, arm) =
            (|wr_id, solicited| pair.send(wr_id, solicited), || pair.taken(), |what| pair.arm(what));
        let Told { channel, .. } = &pair.told;
        send(1, false);
        assert_eq!(arm(WaitFor::Solicited), None, "{link}: not solicited");
        assert_eq!(arm(WaitFor::Any), Some(7), "{link}: the program has not seen it");
        // The program has its event now, and may arm the queue before it polls.
        assert_eq!(arm(WaitFor::Any), None, "{link}");
        send(2, false);
        assert_eq!((channel.try_event(), channel.try_event()), (Some(7), None), "{link}: armed meanwhile");
        assert_eq!((taken(), taken(), taken()), (Some(1), Some(2), None));
        assert_eq!(arm(WaitFor::Any), None, "{link}: nothing is there");
        send(3, false);
        assert_eq!(channel.try_event(), Some(7), "{link}");
        assert_eq!((taken(), taken()), (Some(3), None));
        send(4, true);
        send(5, false);
        assert_eq!((arm(WaitFor::Solicited), arm(WaitFor::Solicited)), (Some(7), None), "{link}: the first");
        assert_eq!((taken(), taken(), taken()), (Some(4), Some(5), None));
        send(6, true);
        assert_eq!((channel.try_event(), taken()), (Some(7), Some(6)), "{link}");
        send(7, true);
        assert_eq!(taken(), Some(7), "{link}");
        let both = (arm(WaitFor::Solicited), arm(WaitFor::Any));
        assert_eq!(
            both,
            (None, None),
            "{link}: what was taken is not told, although no event has told of it"
        );
    }
}

/// Of what waits when a queue is resized, a program is told as if it had not been.
#[test]
fn a_queue_that_is_resized_still_tells_once_of_what_it_has_not_told() {
    for link in LINKS {
        let pair = TellingPair::new(link);
        let (send, taken, arm) =
            (|wr_id, solicited| pair.send(wr_id, solicited), || pair.taken(), |what| pair.arm(what));
        let Told { cq, channel, .. } = &pair.told;
        let mut capacity = cq.capacity();
        let mut resize = || {
            capacity *= 2;
            cq.resize(capacity).expect("there is memory");
        };
        send(1, false);
        send(2, false);
        assert_eq!(taken(), Some(1));
        resize();
        assert_eq!((arm(WaitFor::Solicited), arm(WaitFor::Any)), (None, Some(7)), "{link}: of the second");
        resize();
        assert_eq!(arm(WaitFor::Any), None, "{link}: it was told");
        send(3, true);
        assert_eq!(channel.try_event(), Some(7), "{link}: it was armed all the time");
        send(4, true);
        resize();
        assert_eq!((taken(), taken()), (Some(2), Some(3)));
        assert_eq!(arm(WaitFor::Solicited), Some(7), "{link}: the fourth was solicited, and is new");
        assert_eq!((taken(), taken()), (Some(4), None));
        resize();
        assert_eq!((arm(WaitFor::Solicited), arm(WaitFor::Any)), (None, None), "{link}: nothing is there");
        send(5, false);
        assert_eq!((channel.try_event(), taken()), (Some(7), Some(5)), "{link}: as ever");
    }
}

#[test]
fn events_come_to_the_queue_that_the_object_was_made_with() {
    for link in LINKS {
        let setup = Setup::new(Service::Rc, link).engine(Engine::Both);
        let (a, b) = (setup.end(), setup.end());
        let events = b.device.event_queue().expect("a queue");
        let target = |tag| Some(EventTarget { queue: &events, tag });
        let config = SharedReceiveQueueConfig { events: target(3), ..SharedReceiveQueueConfig::new(8, 1) };
        let srq = b.device.create_shared_receive_queue(&b.pd, &config).expect("a shared receive queue");
        let config = QueuePairConfig {
            srq: Some(&srq),
            events: target(4),
            ..QueuePairConfig::new(Service::Rc, &b.cq)
        };
        let qp = b.pd.queue_pair(&config).expect("a queue pair");
        let elsewhere = Endpoint { qpn: qp.qpn(), ..qp.endpoint() };
        a.qp.connect(&elsewhere, &setup.options).expect("connects");
        qp.connect(&a.qp.endpoint(), &setup.options).expect("connects");
        (0..3).for_each(|wr_id| srq.post_recv(&RecvWr { wr_id, sges: &[] }).expect("posts"));
        srq.set_limit(3);
        a.post(0, Operation::Send, 0, 0);
        sleep_on(events.fd());
        let event = events.try_next().expect("an event");
        assert_eq!((event.tag, matches!(event.event, AsyncEvent::SrqLimitReached(_))), (3, true), "{link}");
        // A key that no region has: the responder refuses, and its queue pair breaks.
        until("the send's completion", || a.cq.poll_one());
        let nowhere = highwire_host::verbs::Remote { va: 0, rkey: RemoteKey(0x0102_0304) };
        a.post(1, Operation::Write(nowhere), 0, 8);
        let seen =
            [events.next(Some(PATIENCE)), events.next(Some(PATIENCE))].map(|event| event.expect("an event"));
        assert_eq!(seen.map(|event| event.tag), [4, 4]);
        assert_eq!(
            seen.map(|event| event.event),
            [AsyncEvent::QpAccessError(qp.qpn()), AsyncEvent::LastWqeReached(qp.qpn())],
            "{link}"
        );
        assert_eq!((events.try_next(), b.device.async_event()), (None, None));
    }
}
