//! Passive targets: threads that spin on memory which a peer writes, and call nothing meanwhile. Packets for them are the background
//! thread's, which has to hear of each: none may lie in a ring until a sleep is over.

mod common;

use common::{End, PATIENCE, Setup, until};
use highwire_host::verbs::{
    Access, CompletionStatus, Operation, Recovery, RecvWr, Remote, RemoteKey, SendWr, Service,
};
use highwire_host::{
    Buffer, CompletionQueue, Engine, LinkChoice, MemoryWindow, QueuePair, QueuePairConfig, WakeMode,
};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

/// Where messages of a round arrive, each in a word of its own.
const ARRIVE: usize = 2048;
/// Receives that a passive target has posted before a round.
const RECEIVES: u64 = 60;
const WORD: u32 = 8;
/// Where a thread writes from, and where its peer writes to.
const FROM: usize = 0;
const TO: usize = 1024;
/// Looks at memory between two looks at the guard's clock.
const LOOKS: u32 = 1 << 16;

/// How many messages a conversation has, one at a time: more in `cargo xtask soak bells`.
fn messages() -> u64 {
    std::env::var("HIGHWIRE_SOAK_MESSAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

/// One thread's end of a conversation.
struct Seat {
    qp: QueuePair,
    cq: CompletionQueue,
    buffer: Buffer,
    /// Neighbours know nothing of windows, so requests that go through one are packets.
    _window: MemoryWindow,
    open: Remote,
}

fn seats(setup: &Setup, ends: &[End; 2]) -> [Seat; 2] {
    let queues = ends.each_ref().map(|end| {
        let cq = end.device.completion_queue(64).expect("a completion queue");
        let qp = end.pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq)).expect("a queue pair");
        (qp, cq)
    });
    setup.join(&queues[0].0, &queues[1].0);
    let mut ends = ends.iter();
    queues.map(|(qp, cq)| {
        let pd = &ends.next().expect("as many ends").pd;
        let buffer = pd.allocate(4096, Access::LOCAL_WRITE | Access::WINDOW_BIND).expect("a buffer");
        let window = pd.memory_window();
        let key = RemoteKey(window.rkey().0 & !0xFF | window.rkey().0.wrapping_add(1) & 0xFF);
        let bind = window.bind(window.rkey(), key, &buffer, TO as u64, WORD.into(), Access::REMOTE_WRITE);
        qp.post_send(&[SendWr::new(0, bind, &[])]).expect("posts");
        assert_eq!(until("the window", || cq.poll_one()).status, CompletionStatus::Success);
        let open = Remote { va: buffer.addr() + TO as u64, rkey: key };
        Seat { qp, cq, buffer, _window: window, open }
    })
}

impl Seat {
    /// Writes a number into the peer's memory, and waits until that has been acknowledged.
    fn say(&self, number: u64, to: Remote) {
        self.buffer.word(FROM).store(number, Ordering::Relaxed);
        let sges = [self.buffer.sge(FROM as u64, WORD)];
        self.qp.post_send(&[SendWr::new(number, Operation::Write(to), &sges)]).expect("posts");
        assert_eq!(until("an acknowledgement", || self.cq.poll_one()).status, CompletionStatus::Success);
    }

    /// Sends a number, which arrives in the peer's next receive.
    fn send(&self, number: u64) {
        self.buffer.word(FROM).store(number, Ordering::Relaxed);
        let sges = [self.buffer.sge(FROM as u64, WORD)];
        self.qp.post_send(&[SendWr::new(number, Operation::Send, &sges)]).expect("posts");
        assert_eq!(until("an acknowledgement", || self.cq.poll_one()).status, CompletionStatus::Success);
    }

    /// Spins until the peer has written a number, and calls nothing.
    fn hear(&self, number: u64) {
        self.hear_at(TO, number);
    }

    /// The same of another word.
    fn hear_at(&self, place: usize, number: u64) {
        let word = self.buffer.word(place);
        let guard = Instant::now() + PATIENCE;
        let mut looks = 0u32;
        while word.load(Ordering::Acquire) != number {
            looks = looks.wrapping_add(1);
            assert!(!looks.is_multiple_of(LOOKS) || Instant::now() < guard, "number {number} never came");
            std::hint::spin_loop();
        }
    }
}

/// Conversations of as many pairs of threads; each waits in memory alone.
fn converse(setup: &Setup, pairs: usize) {
    let ends = [setup.end(), setup.end()];
    let pairs: Vec<[Seat; 2]> = (0..pairs).map(|_| seats(setup, &ends)).collect();
    thread::scope(|threads| {
        for [one, other] in &pairs {
            threads.spawn(|| {
                for number in 1..=messages() {
                    one.say(number, other.open);
                    one.hear(number);
                }
            });
            threads.spawn(|| {
                for number in 1..=messages() {
                    other.hear(number);
                    other.say(number, one.open);
                }
            });
        }
    });
    let label =
        format!("{} pairs with {:?} and {:?}", pairs.len(), setup.config.wake, setup.options.recovery);
    judge(setup, &ends, &label);
}

/// A target whose threads never call while the initiator writes and sends. Rounds only renew its receives.
fn write_and_send(setup: &Setup) {
    let ends = [setup.end(), setup.end()];
    let [initiator, target] = &seats(setup, &ends);
    // A process has more threads than those that wait.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let sleeper = thread::spawn(move || stopped.recv().is_err());
    for round in 0..messages().div_ceil(RECEIVES) {
        let numbers = round * RECEIVES + 1..=(round + 1) * RECEIVES;
        let place = |number: u64| ARRIVE + 8 * ((number - 1) % RECEIVES) as usize;
        for number in numbers.clone() {
            let sges = [target.buffer.sge(place(number) as u64, WORD)];
            target.qp.post_recv(&RecvWr { wr_id: number, sges: &sges }).expect("posts");
        }
        thread::scope(|threads| {
            threads.spawn(|| {
                for number in numbers.clone() {
                    initiator.say(number, target.open);
                    initiator.send(number);
                }
            });
            for number in numbers.clone() {
                target.hear_at(place(number), number);
            }
            target.hear(*numbers.end());
        });
        for number in numbers {
            let received = until("a receive", || target.cq.poll_one());
            assert_eq!((received.wr_id, received.status), (number, CompletionStatus::Success));
        }
    }
    drop(stop);
    assert!(sleeper.join().expect("no panic"));
    judge(setup, &ends, &format!("a passive target with {:?}", setup.config.wake));
}

/// No bell was lost, and what was sent were packets.
fn judge(setup: &Setup, ends: &[End; 2], label: &str) {
    for end in ends {
        let counters = end.device.counters();
        assert_eq!(counters.value("wake_rescues"), 0, "{label}: a bell was lost: {counters:?}");
        assert_eq!(counters.value("direct"), 0, "{label}: the messages were no packets");
        if setup.config.link == LinkChoice::Shm {
            assert_eq!(counters.value("udp_rx_packets"), 0, "{label}");
        }
    }
}

fn setups() -> impl Iterator<Item = Setup> {
    let modes =
        [WakeMode::Latency, WakeMode::Balanced, WakeMode::Power, WakeMode::Dispatcher, WakeMode::Event];
    modes.into_iter().zip([Recovery::GoBackN, Recovery::Irn].into_iter().cycle()).map(|(mode, recovery)| {
        let mut setup = Setup::new(Service::Rc, LinkChoice::Shm).engine(Engine::Both).recovery(recovery);
        setup.config.wake = Some(mode);
        setup
    })
}

#[test]
fn no_bell_is_lost_where_both_ends_spin_on_memory() {
    setups().for_each(|setup| converse(&setup, 1));
}

#[test]
fn no_bell_is_lost_where_the_target_of_writes_and_sends_never_calls() {
    setups().for_each(|setup| write_and_send(&setup));
}

#[test]
fn nor_where_more_threads_spin_than_there_are_cores() {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let setup = setups().nth(1).expect("balanced");
    converse(&setup, cores / 2 + 1);
}
