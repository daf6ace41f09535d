//! Completion queues as their engine and the threads that wait see them.

use super::*;
use crate::{ConnectOptions, Device, DeviceConfig, QueuePairConfig, sys};
use highwire_verbs::{Operation, RecvWr, SendWr, Service};

/// Stands for the threads that wait for a queue.
struct Probe {
    device: Arc<Owner>,
    shown: AtomicU64,
    /// Wake-ups, and those at which a woken thread would have had the token.
    woken: AtomicU64,
    with_token: AtomicU64,
}

impl Notify for Probe {
    fn look(&self) -> Waiters {
        Waiters::default()
    }

    fn note_urgent(&self, _urgent: u64) {}

    fn notify(&self, shown: u64) -> bool {
        self.shown.store(shown, Ordering::Relaxed);
        false
    }

    fn wake(&self, _has_reported: bool) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        let token = self.device.lane(0).and_then(|lane| lane.try_run(|_| ()));
        self.with_token.fetch_add(u64::from(token.is_some()), Ordering::Relaxed);
    }
}

#[test]
fn a_thread_is_woken_when_the_token_is_free() {
    // Without a background thread no other thread takes the token here.
    let config = DeviceConfig { engine: Engine::Inline, ..DeviceConfig::default() };
    let device = Device::open(&config).expect("a device");
    let queue = device.completion_queue(8).expect("a queue");
    let pd = device.protection_domain();
    let qp = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &queue)).expect("a queue pair");
    qp.connect(&qp.endpoint(), &ConnectOptions::default()).expect("with itself");
    queue.inner.use_events();
    let probe = Arc::new(Probe {
        device: Arc::clone(device.owner()),
        shown: AtomicU64::new(0),
        woken: AtomicU64::new(0),
        with_token: AtomicU64::new(0),
    });
    let notifier = Arc::<Probe>::clone(&probe);
    let id = queue.inner.id;
    queue.inner.lane().control(|engine| engine.cq(id).expect("a queue").notifier = notifier);
    queue.inner.consumer().arm(Arm::Next).expect("a ring");
    qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).expect("room");
    qp.post_send(&[SendWr::new(2, Operation::Send, &[])]).expect("room");
    let begin = std::time::Instant::now();
    while queue.poll_one().is_none() {
        assert!(begin.elapsed() < Duration::from_secs(60), "no completion");
    }
    assert!(probe.shown.load(Ordering::Relaxed) > 0);
    let counts = (probe.woken.load(Ordering::Relaxed), probe.with_token.load(Ordering::Relaxed));
    assert_eq!(counts, (1, 1));
    // The probe holds the device, and the queue the probe.
    queue.inner.lane().control(|engine| engine.remove_cq(id));
}

#[test]
fn a_turn_looks_at_the_queues_that_have_something_however_many_have_not() {
    let config = DeviceConfig { engine: Engine::Inline, ..DeviceConfig::default() };
    let device = Device::open(&config).expect("a device");
    let queues: Vec<_> = (0..200).map(|_| device.completion_queue(8).expect("a queue")).collect();
    let queue = &queues[77];
    let write = |engine: &mut crate::engine::Engine| {
        for _ in 0..2 {
            engine.write_completion(queue.inner.id, &EMPTY);
        }
        engine.publish()
    };
    assert_eq!(queue.inner.lane().control(write), 1);
    assert_eq!(queue.inner.lane().control(|engine| engine.publish()), 0, "all was shown");
    assert_eq!(queue.inner.lane().control(write), 1);
    assert_eq!(queue.poll(&mut [EMPTY; 8]), 4);
}

#[test]
fn a_thread_that_runs_the_device_itself_is_woken_in_its_sleep() {
    let config = DeviceConfig { engine: Engine::Inline, ..DeviceConfig::default() };
    let device = Device::open(&config).expect("a device");
    let queue = device.completion_queue(8).expect("a queue");
    let waker = &queue.inner.device.waker;
    let is_rung = || sys::wait_readable(&[waker.fd()], Some(highwire_stdx::Duration::ZERO));
    queue.wake();
    assert!(!is_rung(), "a thread that is awake looks anyway");
    let _ = waker.announce(highwire_wake::duty::Duty::Checking, highwire_stdx::Instant::ZERO);
    queue.wake();
    assert!(is_rung());
    assert!(waker.awake(false));
    assert!(!is_rung());
}

/// A program that hears of an empty queue asks for events next, and may find there that its peer has gone.
#[test]
fn a_poll_that_gave_its_core_away_looks_again() {
    for choice in [Engine::Inline, Engine::Both, Engine::Background] {
        let config = DeviceConfig { engine: choice, ..DeviceConfig::default() };
        let device = Device::open(&config).expect("a device");
        let queue = device.completion_queue(8).expect("a queue");
        device.owner().crowd.note(usize::MAX);
        let before = device.owner().crowd.turns();
        let other = queue.clone();
        crate::crowd::MEANWHILE.set(Some(Box::new(move || {
            let write = |engine: &mut crate::engine::Engine| {
                engine.write_completion(other.inner.id, &EMPTY);
                engine.publish()
            };
            assert_eq!(other.inner.lane().control(write), 1);
        })));
        while device.owner().crowd.turns() == before {
            // Housekeeping counts the neighbours anew: there are none.
            device.owner().crowd.note(usize::MAX);
            let found = queue.poll_one();
            assert_eq!(found.is_some(), device.owner().crowd.turns() > before, "{choice:?}");
        }
    }
}
