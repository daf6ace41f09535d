//! An algorithm from outside, by name on a device, over sockets of this machine.

use example_congestion::swift::SWIFT;
use highwire_host::verbs::{Access, CompletionStatus, Operation, SendWr, Service};
use highwire_host::{ConnectOptions, Device, DeviceConfig, Engine, LinkChoice, QueuePairConfig};
use highwire_stdx::Instant as Moment;
use highwire_transport::congestion::{AckSample, Algorithm, CongestionControl, LossKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static PACKETS: AtomicU64 = AtomicU64::new(0);
static TRIPS: AtomicU64 = AtomicU64::new(0);

/// Swift, and a count of what it hears.
#[derive(Clone, Debug)]
struct Counted(Box<dyn CongestionControl>);

static COUNTED: Algorithm = Algorithm {
    hears_acks: true,
    ..Algorithm::new("counted-swift", "Swift, and a count of what it hears", &|start| {
        Some(Box::new(Counted((SWIFT.start)(start)?)))
    })
};

impl CongestionControl for Counted {
    fn on_ack(&mut self, now: Moment, sample: AckSample) {
        PACKETS.fetch_add(sample.packets.into(), Ordering::Relaxed);
        TRIPS.fetch_add(sample.rtt.is_some().into(), Ordering::Relaxed);
        self.0.on_ack(now, sample);
    }

    fn on_loss(&mut self, now: Moment, kind: LossKind) {
        self.0.on_loss(now, kind);
    }

    fn window(&self) -> Option<u32> {
        self.0.window()
    }

    fn rate(&self) -> Option<highwire_transport::congestion::Rate> {
        self.0.rate()
    }

    fn wants_round_trips(&self) -> bool {
        true
    }
}

#[test]
fn swift_carries_messages_over_the_loopback_device() {
    const BYTES: u32 = 3_000_000;
    let congestion = highwire_transport::congestion::register(&COUNTED).expect("the name is free");
    let config = DeviceConfig {
        link: LinkChoice::Udp,
        engine: Engine::Inline,
        congestion: "counted-swift".parse().expect("it was registered"),
        ..DeviceConfig::default()
    };
    assert_eq!(config.congestion, congestion);
    let ends: Vec<_> = (0..2)
        .map(|_| {
            let device = Device::open(&config).expect("a device");
            let pd = device.protection_domain();
            let cq = device.completion_queue(16).expect("a completion queue");
            let qp = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq)).expect("a queue pair");
            let buffer = pd.allocate(BYTES as usize, Access::ALL).expect("a buffer");
            (device, cq, qp, buffer)
        })
        .collect();
    let options = ConnectOptions::default();
    ends[0].2.connect(&ends[1].2.endpoint(), &options).expect("connects");
    ends[1].2.connect(&ends[0].2.endpoint(), &options).expect("connects");
    let content: Vec<u8> = (0..BYTES).map(|i| (i as u8).wrapping_mul(29)).collect();
    ends[0].3.write(0, &content);
    let sges = [ends[0].3.sge(0, BYTES)];
    ends[0].2.post_send(&[SendWr::new(1, Operation::Write(ends[1].3.remote(0)), &sges)]).expect("posts");
    // A guard against hangs only.
    let deadline = Instant::now() + Duration::from_secs(120);
    let status = loop {
        assert!(Instant::now() < deadline, "the WRITE does not end");
        if let Some(completion) = ends[0].1.poll_one() {
            break completion.status;
        }
        // Inline engines run while their threads poll.
        assert!(ends[1].1.poll_one().is_none());
    };
    assert_eq!(status, CompletionStatus::Success);
    assert!(ends[1].3.to_vec(0, BYTES as usize) == content, "every byte arrived");
    let packets = u64::from(BYTES.div_ceil(4096));
    assert!(
        PACKETS.load(Ordering::Relaxed) >= packets,
        "{} packets were told",
        PACKETS.load(Ordering::Relaxed)
    );
    assert!(TRIPS.load(Ordering::Relaxed) > 0, "round trips were measured");
}
