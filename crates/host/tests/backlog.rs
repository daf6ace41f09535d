//! Packets that lie unread in a socket: an engine reads them before it decides what to send, or to send
//! again.

mod common;

use common::{Setup, next_ok, until};
use highwire_host::verbs::{Operation, SendWr, Service};
use highwire_host::{ConnectOptions, DeviceConfig, EMPTY_COMPLETION, LinkChoice};
use std::time::Duration;

#[test]
fn acknowledgements_that_came_one_by_one_are_read_before_much_is_sent() {
    const WRITES: u64 = 40;
    let [a, b] = Setup::new(Service::Rc, LinkChoice::Udp).pair();
    for wr_id in 1..=WRITES {
        a.post(wr_id, Operation::Write(b.buffer.remote(0)), 0, 8);
        // Each acknowledgement has a datagram of its own, and the requester has read none of them.
        until("an acknowledgement", || {
            b.cq.poll(&mut []);
            (b.device.counters().value("acks_sent") == wr_id).then_some(())
        });
    }
    // More than one turn sends.
    let sges = [a.buffer.sge(0, common::BUFFER_BYTES as u32)];
    let long = |wr_id| SendWr::new(wr_id, Operation::Write(b.buffer.remote(0)), &sges);
    a.qp.post_send(&[long(100), long(101), long(102), long(103)]).expect("posts");
    let mut done = [EMPTY_COMPLETION; 64];
    let count = a.cq.poll(&mut done);
    assert_eq!(count, WRITES as usize, "one turn reads them all");
}

#[test]
fn a_timer_that_is_due_waits_for_what_the_socket_has() {
    /// Turns until the engine looks at a silent socket only now and then, and a few in which it does not
    /// look.
    const TURNS: u32 = 4096 + 5;
    /// 4.096 µs × 2^18: 1.07 s.
    const TIMEOUT: u8 = 18;
    let mut setup = Setup::new(Service::Rc, LinkChoice::Auto);
    setup.options = ConnectOptions { timeout: TIMEOUT, ..setup.options };
    let a = setup.end();
    setup.config = DeviceConfig { link: LinkChoice::Udp, ..setup.config };
    let ends = [a, setup.end()];
    setup.connect(&ends);
    let [a, b] = ends;
    a.post(1, Operation::Write(b.buffer.remote(0)), 0, 8);
    for _ in 0..TURNS {
        a.cq.poll(&mut []);
    }
    until("an acknowledgement", || {
        b.cq.poll(&mut []);
        (b.device.counters().value("acks_sent") == 1).then_some(())
    });
    // The requester does not run until long after its timer.
    std::thread::sleep(Duration::from_millis(1500));
    next_ok(&a, &b);
    let counters = a.device.counters();
    assert_eq!((counters.value("timeouts"), counters.value("retransmitted")), (0, 0));
}
