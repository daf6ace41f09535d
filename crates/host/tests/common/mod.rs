//! Two devices of one process, and steps that tests share.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of it")]

use highwire_host::verbs::{
    Access, Completion, CompletionStatus, Operation, Recovery, RecvWr, SendWr, Service,
};
use highwire_host::{
    Buffer, ChannelTarget, CompletionChannel, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device,
    DeviceConfig, EMPTY_COMPLETION, Engine, FaultConfig, LinkChoice, ProtectionDomain, QueuePair,
    QueuePairConfig,
};
use std::time::{Duration, Instant};

pub const QKEY: u32 = 0x1234_5678;
pub const BUFFER_BYTES: usize = 1 << 20;
/// Far longer than anything takes, even on a machine with other things to do.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// One end of a conversation.
pub struct End {
    pub qp: QueuePair,
    pub buffer: Buffer,
    pub cq: CompletionQueue,
    pub pd: ProtectionDomain,
    pub device: Device,
}

/// The configuration of a pair.
#[derive(Clone)]
pub struct Setup {
    pub service: Service,
    pub config: DeviceConfig,
    pub options: ConnectOptions,
}

impl Setup {
    pub fn new(service: Service, link: LinkChoice) -> Setup {
        // Engines that only the test's own thread runs, so that nothing happens by itself.
        let config = DeviceConfig { link, engine: Engine::Inline, ..DeviceConfig::default() };
        let options = ConnectOptions { recovery: Recovery::GoBackN, ..ConnectOptions::default() };
        Setup { service, config, options }
    }

    pub fn label(&self) -> String {
        format!("{} over {} with {:?}", self.service, self.config.link, self.options.recovery)
    }

    pub fn engine(mut self, engine: Engine) -> Setup {
        self.config.engine = engine;
        self
    }

    pub fn recovery(mut self, recovery: Recovery) -> Setup {
        self.options.recovery = recovery;
        self
    }

    pub fn faults(mut self, text: &str) -> Setup {
        self.config.faults = Some(text.parse::<FaultConfig>().expect("faults"));
        self
    }

    pub fn pair(&self) -> [End; 2] {
        let ends = [self.end(), self.end()];
        self.connect(&ends);
        ends
    }

    pub fn end(&self) -> End {
        let device = Device::open(&self.config).expect("a device");
        let pd = device.protection_domain();
        let cq = device.completion_queue(1024).expect("a completion queue");
        let qp = pd.queue_pair(&QueuePairConfig::new(self.service, &cq)).expect("a queue pair");
        let buffer = pd.allocate(BUFFER_BYTES, Access::ALL).expect("a buffer");
        End { qp, buffer, cq, pd, device }
    }

    pub fn connect(&self, [a, b]: &[End; 2]) {
        if self.service == Service::Ud {
            [a, b].iter().for_each(|end| end.qp.activate(QKEY).expect("activates"));
            return;
        }
        self.join(&a.qp, &b.qp);
    }
}

/// A queue pair with a completion queue of its own, which reports to a channel.
pub struct Told {
    pub qp: QueuePair,
    pub cq: CompletionQueue,
    pub channel: CompletionChannel,
}

impl Setup {
    /// One more queue pair of `end`, whose queue reports to a channel with `tag`.
    pub fn told(&self, end: &End, tag: u64) -> Told {
        let channel = end.device.completion_channel().expect("a channel");
        let target = Some(ChannelTarget { channel: &channel, tag });
        let config = CompletionQueueConfig { channel: target, ..CompletionQueueConfig::new(16) };
        let cq = end.device.create_completion_queue(&config).expect("a completion queue");
        let qp = end.pd.queue_pair(&QueuePairConfig::new(self.service, &cq)).expect("a queue pair");
        Told { qp, cq, channel }
    }

    /// Connects two queue pairs with each other.
    pub fn join(&self, a: &QueuePair, b: &QueuePair) {
        a.connect(&b.endpoint(), &self.options).expect("connects");
        b.connect(&a.endpoint(), &self.options).expect("connects");
    }

    /// One more queue pair of `end`, whose queue reports to a channel, connected to a queue pair of `peer`.
    pub fn told_by(&self, end: &End, tag: u64, peer: &End) -> (Told, QueuePair) {
        let told = self.told(end, tag);
        let theirs = peer.pd.queue_pair(&QueuePairConfig::new(self.service, &peer.cq)).expect("a queue pair");
        self.join(&told.qp, &theirs);
        (told, theirs)
    }
}

/// Calls `step` until it has something.
#[track_caller]
pub fn until<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = step() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
    }
}

/// The next completion of `end`, while both ends are polled.
#[track_caller]
pub fn next(end: &End, other: &End) -> Completion {
    let mut stolen = [EMPTY_COMPLETION; 0];
    until("a completion", || {
        other.cq.poll(&mut stolen);
        end.cq.poll_one()
    })
}

#[track_caller]
pub fn next_ok(end: &End, other: &End) -> Completion {
    let completion = next(end, other);
    assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
    completion
}

impl End {
    pub fn post(&self, wr_id: u64, operation: Operation, offset: u64, length: u32) {
        let sges = [self.buffer.sge(offset, length)];
        self.qp.post_send(&[SendWr::new(wr_id, operation, &sges)]).expect("posts");
    }

    pub fn receive(&self, wr_id: u64, offset: u64, length: u32) {
        let sges = [self.buffer.sge(offset, length)];
        self.qp.post_recv(&RecvWr { wr_id, sges: &sges }).expect("posts");
    }

    pub fn fill(&self, offset: usize, length: usize, seed: u8) -> Vec<u8> {
        let bytes: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        self.buffer.write(offset, &bytes);
        bytes
    }
}
