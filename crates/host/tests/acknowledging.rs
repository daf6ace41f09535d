//! A receiver that has its message goes away without an answer, and its sender hears of the message all the same, and soon.

mod common;

use common::{PATIENCE, Setup, Told};
use highwire_host::verbs::{Operation, RecvWr, SendWr, Service};
use highwire_host::{Engine, LinkChoice, WaitFor, WakeMode};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Sooner than the background thread looks by itself, and later than a busy machine lets it run.
const SOON: Duration = Duration::from_millis(60);
/// Acknowledgements in a row that come so soon.
const IN_A_ROW: u32 = 20;

/// How the receiver gets its message.
#[derive(Clone, Copy, Debug)]
enum By {
    Waiting,
    Polling,
}

/// Sends until so many acknowledgements in a row have come soon.
fn send(link: LinkChoice, mode: WakeMode, by: By) {
    let mut setup = Setup::new(Service::Rc, link).engine(Engine::Both);
    setup.config.wake = Some(mode);
    // No timer of the sender's own wakes it.
    setup.options.timeout = 0;
    let (sending, receiving) = (setup.end(), setup.end());
    let (sender, receiver) = (setup.told(&sending, 1), setup.told(&receiving, 2));
    setup.join(&sender.qp, &receiver.qp);
    let begun = Instant::now();
    let mut in_a_row = 0;
    while in_a_row < IN_A_ROW {
        let took = round(&sender, &receiver, by);
        in_a_row = if took < SOON { in_a_row + 1 } else { 0 };
        assert!(begun.elapsed() < PATIENCE, "{link} {mode} {by:?}: the last one took {took:?}");
    }
    assert_eq!(sending.device.counters().value("wake_rescues"), 0, "{link}: the sender found out by itself");
}

/// One message; returns after how long the sender has heard of it.
fn round(sender: &Told, receiver: &Told, by: By) -> Duration {
    receiver.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).expect("posts");
    sender.cq.request_notify(WaitFor::Any).expect("it has a channel");
    if matches!(by, By::Waiting) {
        receiver.cq.request_notify(WaitFor::Any).expect("it has a channel");
    }
    let took = std::thread::scope(|threads| {
        let (heard, hears) = mpsc::channel();
        threads.spawn(move || {
            match by {
                By::Waiting => assert_eq!(receiver.channel.event(Some(PATIENCE)), Some(2), "the message"),
                By::Polling => drop(common::until("the message", || receiver.cq.poll_one())),
            }
            // It does something else now, and makes no call.
            hears.recv_timeout(PATIENCE).expect("the sender hears of its message");
        });
        // The receiver waits by then, usually.
        std::thread::sleep(Duration::from_millis(1));
        let begun = Instant::now();
        sender.qp.post_send(&[SendWr::new(1, Operation::Send, &[])]).expect("posts");
        assert_eq!(sender.channel.event(Some(PATIENCE)), Some(1), "the acknowledgement");
        heard.send(()).expect("the receiver waits");
        begun.elapsed()
    });
    common::until("its completion", || sender.cq.poll_one());
    while receiver.cq.poll_one().is_some() {}
    took
}

#[test]
fn a_receiver_that_has_waited_leaves_no_acknowledgement_behind() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        for mode in WakeMode::ALL {
            send(link, mode, By::Waiting);
        }
    }
}

#[test]
fn a_receiver_that_has_polled_leaves_no_acknowledgement_behind() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        send(link, WakeMode::Balanced, By::Polling);
    }
}
