//! Threads that block, each on a channel of its own, under every mode: each gets its own events, and none is
//! lost.

mod common;

use common::{PATIENCE, Setup, Told};
use highwire_host::verbs::{
    CompletionOp, CompletionStatus, Operation, QpAttr, QpState, RecvWr, SendWr, Service,
};
use highwire_host::{
    CompletionChannel, Device, Engine, LinkChoice, QueuePair, QueuePairConfig, WaitFor, WakeMode,
    running_devices,
};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

const THREADS: usize = 6;
const ROUNDS: u64 = 150;

/// Answers every message, asleep or polling in between as the mode has it.
fn serve(served: &Told) {
    let mut answered = 0;
    loop {
        served.cq.request_notify(WaitFor::Any).expect("it has a channel");
        while let Some(completion) = served.cq.poll_one() {
            assert_eq!(completion.status, CompletionStatus::Success);
            if completion.operation == CompletionOp::Receive {
                served.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).expect("posts");
                served.qp.post_send(&[SendWr::new(1, Operation::Send, &[])]).expect("posts");
                answered += 1;
            }
        }
        if answered == ROUNDS {
            return;
        }
        assert_eq!(served.channel.event(Some(PATIENCE)), Some(7), "an event after {answered} answers");
    }
}

/// A figure of the channel that has this descriptor.
fn figure(device: &Device, channel: &CompletionChannel, wanted: &str) -> u64 {
    let name = format!("channel {}", channel.fd().as_raw_fd());
    let channels = device.channel_figures();
    let channel = channels.iter().find(|channel| channel.name == name);
    let figure = channel.and_then(|channel| channel.figures.iter().find(|(name, _)| name == wanted));
    figure.map_or(0, |(_, value)| *value)
}

/// Threads that block answer so many messages at a time, and nothing is found only because a thread looks by itself now and then.
fn serve_threads(link: LinkChoice, mode: WakeMode, at_a_time: usize) {
    let mut setup = Setup::new(Service::Rc, link).engine(Engine::Both);
    setup.config.wake = Some(mode);
    let (asking, serving) = (setup.end(), setup.end());
    let connections: Vec<(QueuePair, Told)> = (0..THREADS)
        .map(|_| {
            let (served, peer) = setup.told_by(&serving, 7, &asking);
            served.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).expect("posts");
            (peer, served)
        })
        .collect();
    std::thread::scope(|threads| {
        for (_, served) in &connections {
            threads.spawn(|| serve(served));
        }
        for _ in 0..ROUNDS {
            for asked in connections.chunks(at_a_time) {
                for (peer, _) in asked {
                    peer.post_recv(&RecvWr { wr_id: 2, sges: &[] }).expect("posts");
                    peer.post_send(&[SendWr::new(3, Operation::Send, &[])]).expect("posts");
                }
                let mut missing = 2 * asked.len();
                while missing > 0 {
                    assert!(asking.cq.wait(WaitFor::Any, PATIENCE), "{link} {mode}: an answer");
                    missing -= std::iter::from_fn(|| asking.cq.poll_one()).count();
                }
            }
        }
    });
    let counters = serving.device.counters();
    let of = |wanted: &str| counters.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| value);
    assert!(of("wakes_ready") + of("wakes_own") + of("wakes_woken") > 0, "{mode}: nobody waited");
    assert_eq!((of("wakes_in_vain"), of("wake_rescues")), (0, 0), "{link} {mode}");
    match mode {
        WakeMode::Power | WakeMode::Dispatcher | WakeMode::Event => {
            assert_eq!(of("wake_polls"), 0, "{link}: nobody that waits polls");
        }
        _ => assert!(of("wake_polls") > 0, "{link} {mode}: somebody polls"),
    }
}

#[test]
fn threads_that_block_are_all_served() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        // One message at a time, so that each time another thread is to be woken.
        WakeMode::ALL.into_iter().for_each(|mode| serve_threads(link, mode, 1));
    }
}

/// Leaders leave the seat to the threads that they wake, and these to each other.
#[test]
fn threads_that_share_a_core_are_all_served() {
    highwire_wake::pin(&[highwire_wake::current_core()]).expect("it may stay where it is");
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        for at_a_time in [1, THREADS] {
            WakeMode::ALL.into_iter().for_each(|mode| serve_threads(link, mode, at_a_time));
        }
    }
}

/// Whether the descriptor is readable within that time.
#[allow(unsafe_code)]
fn is_readable(fd: BorrowedFd<'_>, within: Duration) -> bool {
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, of an open descriptor.
    unsafe { libc::poll(&raw mut polled, 1, within.as_millis() as i32) == 1 }
}

/// A thread waits in `event` while another looks at the descriptor: a thread that comes late finds it readable.
#[test]
fn the_descriptor_is_quiet_while_a_thread_takes_the_events() {
    let setup = Setup::new(Service::Rc, LinkChoice::Auto).engine(Engine::Both);
    let ends = [setup.end(), setup.end()];
    let Told { qp, cq, channel } = setup.told(&ends[1], 1);
    setup.join(&ends[0].qp, &qp);
    let readable = || is_readable(channel.fd(), Duration::ZERO);
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
        let Told { qp, cq, channel } = setup.told(&ends[0], 1);
        setup.join(&qp, &ends[1].qp);
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
                std::thread::sleep(Duration::from_millis(5));
                qp.post_send(&[SendWr::new(round, Operation::Send, &[])]).expect("posts");
                assert_eq!(waiting.join().expect("no panic"), Some(1));
            });
            common::until("the completion", || cq.poll_one());
        }
        assert_eq!(counter("wake_rescues"), 0, "{link}: it found its event when it looked for itself");
    }
}

/// So long a leader waits in vain here: it rests, and the background thread has looked twice and relies on it.
const IN_VAIN: Duration = Duration::from_millis(250);

/// The leader goes, because its time is up, or its event was taken and its queue destroyed, and no other thread waits. The
/// background thread, which slept because the leader rested, is told at once and serves programs that watch a descriptor.
#[test]
fn a_leader_that_goes_leaves_its_work_to_the_background_thread() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        let mut setup = Setup::new(Service::Rc, link).engine(Engine::Both);
        setup.config.wake = Some(WakeMode::Balanced);
        let (asking, serving) = (setup.end(), setup.end());
        let (watched, to_watched) = setup.told_by(&serving, 1, &asking);
        for round in 0..6 {
            let (led, to_led) = setup.told_by(&serving, 2, &asking);
            for told in [&watched, &led] {
                told.qp.post_recv(&RecvWr { wr_id: round, sges: &[] }).expect("posts");
                told.cq.request_notify(WaitFor::Any).expect("has a channel");
            }
            std::thread::scope(|threads| {
                let leader = threads.spawn(|| {
                    if round % 2 == 0 {
                        led.channel.event(Some(IN_VAIN))
                    } else {
                        led.channel.event(Some(PATIENCE))
                    }
                });
                if round % 2 == 1 {
                    std::thread::sleep(IN_VAIN);
                    to_led.post_send(&[SendWr::new(round, Operation::Send, &[])]).expect("posts");
                }
                assert_eq!(leader.join().expect("no panic"), (round % 2 == 1).then_some(2), "{link}");
            });
            drop((led, to_led));
            to_watched.post_send(&[SendWr::new(round, Operation::Send, &[])]).expect("posts");
            assert!(is_readable(watched.channel.fd(), PATIENCE), "{link}: an event at the descriptor");
            assert_eq!(watched.channel.try_event(), Some(1));
            common::until("the completion", || watched.cq.poll_one());
            std::iter::from_fn(|| asking.cq.poll_one()).for_each(drop);
        }
        let rescues = serving.device.counters().value("wake_rescues");
        assert_eq!(rescues, 0, "{link}: the background thread found out by itself that nobody leads");
    }
}

/// The same while another thread waits: that one leads from then on, and rests on the sockets itself.
#[test]
fn a_leader_that_goes_calls_one_that_follows() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        let mut setup = Setup::new(Service::Rc, link).engine(Engine::Both);
        setup.config.wake = Some(WakeMode::Balanced);
        let (asking, serving) = (setup.end(), setup.end());
        let (served, peer) = setup.told_by(&serving, 1, &asking);
        let first = setup.told(&serving, 2);
        served.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).expect("posts");
        served.cq.request_notify(WaitFor::Any).expect("has a channel");
        std::thread::scope(|threads| {
            let sleeps = |told: &Told| figure(&serving.device, &told.channel, "wake_sleeps");
            let leader = threads.spawn(|| first.channel.event(Some(5 * IN_VAIN)));
            common::until("the leader's rest", || (sleeps(&first) > 0).then_some(()));
            let follower = threads.spawn(|| served.channel.event(Some(2 * PATIENCE)));
            common::until("the follower's sleep", || (sleeps(&served) > 0).then_some(()));
            assert_eq!(leader.join().expect("no panic"), None);
            // A follower sleeps until it is woken, a leader looks every now and then.
            common::until("its rest as a leader", || (sleeps(&served) > 1).then_some(()));
            peer.post_send(&[SendWr::new(0, Operation::Send, &[])]).expect("posts");
            assert_eq!(follower.join().expect("no panic"), Some(1), "{link}");
        });
        assert_eq!(figure(&serving.device, &first.channel, "wakes_in_vain"), 1, "{link}");
        let ends = ["wakes_ready", "wakes_own", "wakes_woken", "wakes_in_vain"];
        let ended = ends.map(|name| figure(&serving.device, &served.channel, name));
        assert_eq!(ended.iter().sum::<u64>(), 1, "{link}: {ended:?}");
        assert_eq!(
            serving.device.counters().value("wakes_in_vain"),
            1,
            "{link}: the device's are those of its channels"
        );
    }
}

/// Places that no file has room for all of.
const PLACES: usize = 70;

/// Other programs see the channels that have counted most, as they are: after a wait and after a channel has gone.
#[test]
fn other_processes_see_what_the_busiest_channels_count() {
    let setup = Setup::new(Service::Rc, LinkChoice::Auto).engine(Engine::Both);
    let end = setup.end();
    let mut places: Vec<Told> = (0..PLACES).map(|_| setup.told(&end, 1)).collect();
    let wait = |told: &Told| assert_eq!(told.channel.event(Some(Duration::from_millis(1))), None);
    places.iter().for_each(wait);
    let shown = || {
        let running = running_devices().expect("the directory can be read");
        running.into_iter().find(|device| device.address == end.device.gid().to_ip())
    };
    common::until("all of them", || shown().filter(|shown| shown.channels_left_out == 6));
    let name = format!("channel {}", places[PLACES - 1].channel.fd().as_raw_fd());
    for times in 1..=20 {
        wait(&places[PLACES - 1]);
        common::until("its wait", || {
            let shown = shown()?;
            let place = shown.channels.iter().find(|place| place.name == name)?;
            let in_vain = place.figures.iter().find(|(name, _)| name == "wakes_in_vain")?.1;
            let all = shown.counters.iter().find(|(name, _)| name == "wakes_in_vain")?.1;
            (shown.channels.len() == 64 && in_vain == 1 + times && all == PLACES as u64 + times).then_some(())
        });
    }
    places.drain(..30);
    common::until("those that are left", || {
        shown().filter(|shown| (shown.channels.len(), shown.channels_left_out) == (PLACES - 30, 0))
    });
}

/// A leader that gets no packets sleeps for longer and longer. A thread that posts, and then does something else, wakes no other thread.
/// Its timer is served in time all the same: here a retransmission to a peer whose engine does not run.
#[test]
fn what_a_thread_has_posted_is_seen_to_while_the_leader_sleeps_for_long() {
    const LONG: Duration = Duration::from_millis(700);
    let mut setup = Setup::new(Service::Rc, LinkChoice::Udp).engine(Engine::Both);
    setup.config.wake = Some(WakeMode::Balanced);
    // Four milliseconds, several times.
    (setup.options.timeout, setup.options.retry_count) = (10, 7);
    let (end, silent) = (setup.end(), setup.clone().engine(Engine::Inline).end());
    let led = setup.told(&end, 1);
    led.cq.request_notify(WaitFor::Any).expect("has a channel");
    let pause = || std::thread::sleep(Duration::from_millis(2));
    let timeouts = || end.device.counters().value("timeouts");
    // When the leader has begun to sleep for long.
    let long_sleep = || {
        let sleeps = || figure(&end.device, &led.channel, "wake_sleeps");
        let (mut began, mut seen) = (Instant::now(), sleeps());
        common::until("a long sleep", || {
            pause();
            let was_long = sleeps() > seen && began.elapsed() > LONG;
            if sleeps() > seen {
                (began, seen) = (Instant::now(), sleeps());
            }
            was_long.then_some(())
        });
    };
    std::thread::scope(|threads| {
        let leader = threads.spawn(|| led.channel.event(Some(4 * PATIENCE)));
        // On a machine with other things to do it may take long by chance, but not every time.
        let is_soon = (0..5).any(|round| {
            let [qp, theirs] = [&end, &silent].map(|end| {
                let config = QueuePairConfig::new(Service::Rc, &end.cq);
                end.pd.queue_pair(&config).expect("a queue pair")
            });
            setup.join(&qp, &theirs);
            // Looking at counters is a visit, too, and wakes the background thread: not between here and the end.
            let before = timeouts();
            long_sleep();
            qp.post_send(&[SendWr::new(round, Operation::Send, &[])]).expect("posts");
            std::thread::sleep(LONG / 2);
            timeouts() > before
        });
        led.qp.modify(&QpAttr { state: Some(QpState::Error), ..QpAttr::default() }).expect("any time");
        led.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).expect("posts");
        assert_eq!(leader.join().expect("no panic"), Some(1));
        assert!(is_soon, "it was left until the leader woke by itself");
    });
}
