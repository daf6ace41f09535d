//! Threads that wait in `poll` for a channel's descriptor among others: they do the work themselves, see whatever is ready first, and leave
//! when another thread does the work.
#![allow(unsafe_code)]

mod common;

use common::{PATIENCE, Setup, Told};
use highwire_host::verbs::{CompletionOp, Operation, RecvWr, SendWr, Service};
use highwire_host::{CompletionChannel, Descriptors, Device, Engine, LinkChoice, Outcome, WaitFor, WakeMode};
use std::cell::Cell;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 300;
const LINKS: [LinkChoice; 2] = [LinkChoice::Udp, LinkChoice::Auto];

/// The kernel's `poll`: how many of these are readable within that time.
fn poll(fds: &[RawFd], within: Duration) -> i32 {
    let mut fds: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the array has that length.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, within.as_millis() as i32) }
}

/// Waits in `wait_beside`, with a look at the descriptors by the kernel's `poll`.
fn wait_beside(channel: &CompletionChannel, fds: &[RawFd], within: Duration) -> Outcome {
    let polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let is_ready = || poll(fds, Duration::ZERO) > 0;
    channel.wait_beside(&Descriptors { fds: &polled, is_ready: &is_ready }, Some(within))
}

fn figure(device: &Device, wanted: &str) -> u64 {
    let counters = device.counters();
    counters.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| value)
}

fn setup(link: LinkChoice, mode: WakeMode) -> Setup {
    let mut setup = Setup::new(Service::Rc, link).engine(Engine::Both);
    setup.config.wake = Some(mode);
    setup
}

/// Answers every message, and sleeps on the descriptor if it is told to. Returns how often it was.
fn serve(served: &Told) -> u64 {
    let (mut answered, mut slept) = (0, 0);
    loop {
        served.cq.request_notify(WaitFor::Any).expect("it has a channel");
        while let Some(completion) = served.cq.poll_one() {
            if completion.operation == CompletionOp::Receive {
                served.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).expect("posts");
                served.qp.post_send(&[SendWr::new(1, Operation::Send, &[])]).expect("posts");
                answered += 1;
            }
        }
        if answered == ROUNDS {
            return slept;
        }
        let fds = [served.channel.fd().as_raw_fd()];
        match wait_beside(&served.channel, &fds, PATIENCE) {
            Outcome::Over => {}
            Outcome::Elsewhere => {
                slept += 1;
                assert_eq!(poll(&fds, PATIENCE), 1, "an event after {answered} answers");
            }
            outcome => panic!("{outcome:?} after {answered} answers"),
        }
        assert_eq!(served.channel.try_event(), Some(7), "what it was told of is there");
    }
}

#[test]
fn a_thread_in_poll_finds_its_events_itself_where_threads_do_the_work() {
    for link in LINKS {
        for mode in WakeMode::ALL {
            let setup = setup(link, mode);
            let (asking, serving) = (setup.end(), setup.end());
            let (served, peer) = setup.told_by(&serving, 7, &asking);
            served.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).expect("posts");
            let slept = std::thread::scope(|threads| {
                let server = threads.spawn(|| serve(&served));
                for _ in 0..ROUNDS {
                    peer.post_recv(&RecvWr { wr_id: 2, sges: &[] }).expect("posts");
                    peer.post_send(&[SendWr::new(3, Operation::Send, &[])]).expect("posts");
                    let mut missing = 2;
                    while missing > 0 {
                        assert!(asking.cq.wait(WaitFor::Any, PATIENCE), "{link} {mode}: an answer");
                        missing -= std::iter::from_fn(|| asking.cq.poll_one()).count();
                    }
                }
                server.join().expect("no panic")
            });
            let of = |wanted| figure(&serving.device, wanted);
            match mode {
                WakeMode::Power | WakeMode::Dispatcher | WakeMode::Event => {
                    assert!(slept > 0 && of("wake_polls") == 0, "{link} {mode}: it does not poll");
                }
                _ => {
                    assert_eq!(slept, 0, "{link} {mode}: no other thread leads");
                    assert!(of("wakes_own") > 0 && of("wake_polls") > 0, "{link} {mode}: it found nothing");
                }
            }
        }
    }
}

fn channel_and_pipe(setup: &Setup) -> (common::End, Told, PipeReader, PipeWriter) {
    let end = setup.end();
    let told = setup.told(&end, 1);
    told.cq.request_notify(WaitFor::Any).expect("has a channel");
    let (reader, writer) = pipe().expect("a pipe");
    (end, told, reader, writer)
}

#[test]
fn a_descriptor_of_another_kind_is_seen_while_the_thread_polls_and_while_it_rests() {
    // A leader polls for 10 ms in vain under the one, and for 50 µs under the other; a byte comes before and after that.
    for (mode, after_ms) in
        [(WakeMode::Latency, 0), (WakeMode::Latency, 2), (WakeMode::Balanced, 0), (WakeMode::Balanced, 30)]
    {
        let (end, told, mut reader, mut writer) = channel_and_pipe(&setup(LinkChoice::Auto, mode));
        for round in 0..5u8 {
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    std::thread::sleep(Duration::from_millis(after_ms));
                    writer.write_all(&[round]).expect("it is open");
                });
                let fds = [told.channel.fd().as_raw_fd(), reader.as_raw_fd()];
                assert_eq!(wait_beside(&told.channel, &fds, PATIENCE), Outcome::Over, "{mode} {round}");
                let mut byte = [0xFF];
                reader.read_exact(&mut byte).expect("it is readable");
                assert_eq!((byte[0], told.channel.try_event()), (round, None));
            });
        }
        assert_eq!(figure(&end.device, "wake_rescues"), 0, "{mode}: it slept on something else");
    }
}

#[test]
fn a_wait_ends_at_its_time_and_looks_before_it_sleeps() {
    let (_end, told, _reader, mut writer) = channel_and_pipe(&setup(LinkChoice::Auto, WakeMode::Balanced));
    let fd = _reader.as_raw_fd();
    let begin = Instant::now();
    let within = Duration::from_millis(40);
    assert_eq!(wait_beside(&told.channel, &[fd], within), Outcome::TimedOut);
    assert!(begin.elapsed() >= within);
    writer.write_all(&[1]).expect("it is open");
    let looks = Cell::new(0);
    let is_ready = || {
        looks.set(looks.get() + 1);
        true
    };
    let wanted = Descriptors { fds: &[], is_ready: &is_ready };
    assert_eq!(told.channel.wait_beside(&wanted, Some(PATIENCE)), Outcome::Over);
    assert_eq!(looks.get(), 1, "what a look has found is not looked for again");
}

#[test]
fn a_thread_that_polls_looks_at_its_descriptors_now_and_then() {
    // On a busy machine it may have its core for a small part of the time that it polls.
    const LOOKS: u64 = 3;
    let (end, told, reader, _writer) = channel_and_pipe(&setup(LinkChoice::Auto, WakeMode::Latency));
    let (sleeps_before, polled) = (Cell::new(0), Cell::new(0));
    let is_ready = || {
        // After a sleep it looks in any case. Only a look without a sleep before it is one that it makes while it polls, and on a busy
        // machine there may be many sleeps in between.
        let sleeps = figure(&end.device, "wake_sleeps");
        polled.set(polled.get() + u64::from(sleeps_before.replace(sleeps) == sleeps));
        polled.get() >= LOOKS
    };
    let fds = [libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    let wanted = Descriptors { fds: &fds, is_ready: &is_ready };
    assert_eq!(told.channel.wait_beside(&wanted, Some(PATIENCE)), Outcome::Over);
    assert_eq!(polled.get(), LOOKS);
}

#[test]
fn a_thread_in_poll_leaves_the_work_to_another_that_does_it() {
    let setup = setup(LinkChoice::Auto, WakeMode::Latency);
    let end = setup.end();
    let [leading, other] = [1, 2].map(|tag| setup.told(&end, tag));
    let peer = setup.end();
    setup.join(&leading.qp, &peer.qp);
    leading.qp.post_recv(&RecvWr { wr_id: 0, sges: &[] }).expect("posts");
    leading.cq.request_notify(WaitFor::Any).expect("has a channel");
    other.cq.request_notify(WaitFor::Any).expect("has a channel");
    let has_left = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let leader = threads.spawn(|| leading.channel.event(Some(PATIENCE)));
        let fds = [other.channel.fd().as_raw_fd()];
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE && !has_left.load(Ordering::Relaxed) {
            // Until the other thread has the seat this one takes it.
            let outcome = wait_beside(&other.channel, &fds, Duration::from_millis(1));
            has_left.store(outcome == Outcome::Elsewhere, Ordering::Relaxed);
        }
        peer.qp.post_send(&[SendWr::new(3, Operation::Send, &[])]).expect("posts");
        assert_eq!(leader.join().expect("no panic"), Some(1));
    });
    assert!(has_left.load(Ordering::Relaxed));
    let inline = Setup::new(Service::Rc, LinkChoice::Auto).engine(Engine::Background);
    let end = inline.end();
    let told = inline.told(&end, 1);
    let fds = [told.channel.fd().as_raw_fd()];
    assert_eq!(
        wait_beside(&told.channel, &fds, PATIENCE),
        Outcome::Elsewhere,
        "threads may not run lanes there"
    );
}

extern "C" fn handle(_: libc::c_int) {}

#[test]
fn a_signal_ends_a_wait_in_poll_whatever_its_handler_says() {
    let (_end, told, reader, _writer) = channel_and_pipe(&setup(LinkChoice::Auto, WakeMode::Balanced));
    for flags in [0, libc::SA_RESTART] {
        // SAFETY: the handler does nothing; zeros are an empty mask.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
        }
        let thread = AtomicU64::new(0);
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| {
                // SAFETY: no arguments.
                thread.store(unsafe { libc::pthread_self() }, Ordering::SeqCst);
                let fds = [told.channel.fd().as_raw_fd(), reader.as_raw_fd()];
                wait_beside(&told.channel, &fds, PATIENCE)
            });
            let begin = Instant::now();
            // A signal that comes while the thread polls ends nothing, so there are several.
            while begin.elapsed() < PATIENCE && !waiting.is_finished() {
                let thread = thread.load(Ordering::SeqCst);
                if thread != 0 {
                    // SAFETY: the thread is joined after this.
                    unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(waiting.join().expect("no panic"), Outcome::Interrupted, "flags {flags}");
        });
    }
}
