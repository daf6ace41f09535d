//! The background thread beside packets, bells and other threads, turn by turn.

use super::*;
use crate::{Buffer, CompletionQueue, Device, DeviceConfig, LinkChoice, QueuePair, QueuePairConfig};
use highwire_verbs::{Access, Address, Datagram, Operation, RecvWr, SendWr, Service};
use highwire_wake::duty::Said;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc;

/// Sleeps beside a packet that lies in the socket, makes a turn and sleeps again; returns which of the two sleeps the packet ended.
fn sleeps_ended_by_a_packet(is_lane_taken: bool) -> [bool; 2] {
    let config = DeviceConfig { link: LinkChoice::Udp, engine: Engine::Inline, ..DeviceConfig::default() };
    let device = Device::open(&config).expect("opens");
    let address = device.gid().to_ip();
    let socket = UdpSocket::bind((address, 0)).expect("a socket");
    let shared = device.inner();
    let mut thread = Thread::new(shared);
    // Housekeeping takes the lanes, and comes ten times a second.
    shared.look_around();
    std::thread::scope(|threads| {
        let (taken, is_taken) = mpsc::channel();
        let (done, is_done) = mpsc::channel::<()>();
        threads.spawn(move || {
            let hold = || {
                taken.send(()).expect("the test waits");
                let _ = is_done.recv_timeout(std::time::Duration::from_secs(1));
            };
            if is_lane_taken { shared.lanes[0].control(|_| hold()) } else { hold() }
        });
        is_taken.recv().expect("no panic");
        let to = SocketAddr::new(address, highwire_link::ROCE_PORT);
        socket.send_to(&[0; 64], to).expect("a datagram");
        assert!(is_readable(shared));
        let sleeps = [(); 2].map(|()| {
            thread.sleep();
            let was_woken = thread.decisions.lane(0).was_woken();
            thread.turn();
            was_woken
        });
        drop(done);
        sleeps
    })
}

#[test]
fn a_packet_in_a_lane_that_another_thread_runs_does_not_keep_the_thread_awake() {
    assert_eq!(sleeps_ended_by_a_packet(false), [true, false], "it is served after the first");
    assert_eq!(sleeps_ended_by_a_packet(true), [true, false], "that thread may wait for this one's core");
}

/// A queue pair for datagrams that come through shared memory, and a receive's buffer.
struct End {
    device: Device,
    qp: QueuePair,
    buffer: Buffer,
    _cq: CompletionQueue,
}

/// A datagram's payload lies behind room for a header (IBTA §11.4.1.2).
const PAYLOAD: usize = 40;

impl End {
    fn open(engine: Engine) -> End {
        let config = DeviceConfig { link: LinkChoice::Shm, engine, ..DeviceConfig::default() };
        let device = Device::open(&config).expect("opens");
        let (pd, cq) = (device.protection_domain(), device.completion_queue(512).expect("a queue"));
        let qp = pd.queue_pair(&QueuePairConfig::new(Service::Ud, &cq)).expect("a queue pair");
        qp.activate(1).expect("activates");
        let buffer = pd.allocate(64, Access::LOCAL_WRITE).expect("a buffer");
        End { device, qp, buffer, _cq: cq }
    }

    fn receive(&self) {
        self.qp.post_recv(&RecvWr { wr_id: 0, sges: &[self.buffer.sge(0, 64)] }).expect("posts");
    }

    fn send(&self, number: u64, to: &End) {
        self.buffer.word(0).store(number, Ordering::Relaxed);
        let handle = Datagram { address: Address::new(to.device.gid()), qpn: to.qp.qpn(), qkey: 1 };
        let sges = [self.buffer.sge(0, 8)];
        let request = SendWr { datagram: Some(handle), ..SendWr::new(number, Operation::Send, &sges) };
        self.qp.post_send(&[request]).expect("posts");
    }

    /// Spins on its memory, and calls nothing, until a number has come.
    fn hear(&self, number: u64) {
        let guard = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while self.buffer.word(PAYLOAD).load(Ordering::Acquire) != number {
            assert!(std::time::Instant::now() < guard, "number {number} never came");
            std::hint::spin_loop();
        }
    }

    fn rescues(&self) -> u64 {
        self.device.counters().value("wake_rescues")
    }
}

/// The background thread sleeps on all lanes.
fn watches(device: &Device) -> bool {
    matches!(device.inner().waker.said(), Said::Asleep { is_settled: true, duty, .. } if duty.rules().watches)
}

#[test]
fn a_passive_target_whose_neighbours_bell_is_lost_gets_the_message_and_the_rescue_is_counted() {
    let (target, initiator) = (End::open(Engine::Both), End::open(Engine::Inline));
    // The first one announces the sender, and its bell rings.
    target.receive();
    initiator.send(1, &target);
    target.hear(1);
    let mut number = 1;
    while target.rescues() == 0 {
        target.receive();
        number += 1;
        while !watches(&target.device) {
            std::thread::yield_now();
        }
        // Now and then the thread wakes by itself before the message is sent, and the bell is heard.
        target.device.inner().lanes[0].try_run(|engine| engine.lose_bells());
        initiator.send(number, &target);
        target.hear(number);
        assert!(number < 1000, "a bell is lost at last");
    }
}

#[test]
fn no_bell_is_missed_where_none_is_lost() {
    let (target, initiator) = (End::open(Engine::Both), End::open(Engine::Inline));
    for number in 1..200 {
        target.receive();
        if number % 2 == 0 {
            while !watches(&target.device) {
                std::thread::yield_now();
            }
        }
        initiator.send(number, &target);
        target.hear(number);
    }
    assert_eq!(target.rescues(), 0);
}

#[test]
fn a_sleep_that_was_called_for_does_not_begin() {
    let end = End::open(Engine::Inline);
    let shared = end.device.inner();
    let mut thread = Thread::new(shared);
    // Work is left as the thread goes to sleep, and the one who leaves it finds it awake still.
    shared.waiting.leave_for_test();
    thread.sleep();
    assert_eq!(shared.waker.said(), Said::Awake);
    assert!(thread.decisions.has_slept() && !thread.decisions.is_led());
    // It has not slept, so nothing has ended by time.
    assert!(shared.waiting.take_sight().is_left);
}
