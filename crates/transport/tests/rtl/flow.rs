//! A flow: a sender and a receiver over a channel without time, which loses, repeats and reorders in both directions. Each step
//! changes one of the two state machines and tells what it was before, what it is now, and what came out.

use std::collections::VecDeque;

use highwire_stdx::{Duration, Rng};
use highwire_transport::irn::{
    AckOutcome, Arrival, IrnConfig, PacketClass, ReceiverState, ReceiverWindow, SenderState, SenderWindow,
    TimeoutOutcome,
};
use highwire_wire::Psn;

/// The largest bitmap that is compared.
pub(crate) const WINDOW_MAX: usize = 512;

/// Bit n of a bitmap is the n-th packet of the window.
pub(crate) type Bitmap = [u64; WINDOW_MAX / 64];

/// What a block does with the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Timer {
    #[default]
    Keep = 0,
    Stop = 1,
    Low = 2,
    High = 3,
    Rest = 4,
}

/// A sender's whole state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) state: SenderState,
    pub(crate) sacked: Bitmap,
}

/// A receiver's whole state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiver {
    pub(crate) state: ReceiverState,
    pub(crate) first: Bitmap,
    pub(crate) second: Bitmap,
}

/// An acknowledgement: the cumulative one, and a run of packets by its last one and its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) cumulative: Psn,
    pub(crate) sack: Option<(Psn, u8)>,
}

/// A data packet has arrived.
#[derive(Clone, Debug)]
pub(crate) struct DataStep {
    pub(crate) before: Receiver,
    pub(crate) psn: Psn,
    pub(crate) class: PacketClass,
    pub(crate) after: Receiver,
    pub(crate) arrival: Arrival,
}

/// An acknowledgement has arrived.
#[derive(Clone, Debug)]
pub(crate) struct AckStep {
    pub(crate) before: Sender,
    pub(crate) ack: Ack,
    pub(crate) after: Sender,
    pub(crate) outcome: AckOutcome,
    pub(crate) stale: bool,
    pub(crate) invalid: bool,
    pub(crate) timer: Timer,
}

/// The link was free.
#[derive(Clone, Debug)]
pub(crate) struct LinkStep {
    pub(crate) before: Sender,
    pub(crate) has_new: bool,
    pub(crate) timer_runs: bool,
    pub(crate) after: Sender,
    /// The packet that leaves, and whether it left before.
    pub(crate) sent: Option<(Psn, bool)>,
    pub(crate) timer: Timer,
}

/// The timer has run out.
#[derive(Clone, Debug)]
pub(crate) struct TimerStep {
    pub(crate) before: Sender,
    pub(crate) after: Sender,
    pub(crate) outcome: TimeoutOutcome,
    pub(crate) timer: Timer,
}

/// What the channel does.
#[derive(Clone, Copy, Debug)]
struct Faults {
    loss: f64,
    repeat: f64,
    /// How often a packet other than the oldest arrives.
    overtaking: f64,
    /// How often something arrives that nobody sent.
    forged: f64,
}

/// The flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) config: IrnConfig,
    /// Bits of the bitmaps in hardware: the receiver of the model may track more.
    window: u32,
    rng: Rng,
    faults: Faults,
    sender: SenderWindow,
    receiver: ReceiverWindow,
    data: VecDeque<(Psn, PacketClass)>,
    acks: VecDeque<Ack>,
    pub(crate) timer_runs: bool,
}

impl Flow {
    pub(crate) fn new(seed: u64, config: IrnConfig, window: u32) -> Flow {
        let mut rng = Rng::new(seed);
        // Half of the flows cross the wrap.
        let initial = match rng.chance(0.5) {
            true => Psn::new(0).sub(rng.below(3_000) as u32),
            false => Psn::new(rng.next_u32()),
        };
        let faults = Faults {
            loss: *rng.pick(&[0.0, 0.01, 0.05, 0.2, 0.5]),
            repeat: *rng.pick(&[0.0, 0.0, 0.05, 0.3]),
            overtaking: *rng.pick(&[0.0, 0.0, 0.05, 0.5]),
            forged: *rng.pick(&[0.0, 0.0, 0.02, 0.2]),
        };
        Flow {
            config,
            window,
            rng,
            faults,
            sender: SenderWindow::new(initial, config),
            receiver: ReceiverWindow::new(initial, &config),
            data: VecDeque::new(),
            acks: VecDeque::new(),
            timer_runs: false,
        }
    }

    /// The PSN with which both ends begin, before the first step.
    pub(crate) fn initial(&self) -> Psn {
        self.sender.next_to_send()
    }

    pub(crate) fn sender(&self) -> Sender {
        let (state, sacked) = (self.sender.state(), self.sender.sacked());
        let bits = bitmap(self.window, |n| sacked.contains(state.first_unacknowledged.add(n)));
        Sender { state, sacked: bits }
    }

    pub(crate) fn receiver(&self) -> Receiver {
        let state = self.receiver.state();
        let class = |n| self.receiver.early_class(state.next_expected.add(n));
        Receiver {
            state,
            first: bitmap(self.window, |n| class(n).is_some_and(|class| class != PacketClass::Last)),
            second: bitmap(self.window, |n| class(n).is_some_and(|class| class != PacketClass::Middle)),
        }
    }

    /// The link is free; sometimes nothing new waits.
    pub(crate) fn link(&mut self) -> LinkStep {
        let (before, timer_runs) = (self.sender(), self.timer_runs);
        let has_new = self.rng.chance(0.9);
        let sent = match self.sender.poll_retransmit() {
            Some(psn) => Some((psn, true)),
            None if has_new && self.sender.can_send_new() => Some((self.sender.on_send_new(), false)),
            None => None,
        };
        let timer = if sent.is_some() && !timer_runs { self.arm() } else { Timer::Keep };
        if let Some((psn, _)) = sent {
            let class = self.class(psn);
            self.put(|flow| flow.data.push_back((psn, class)));
        }
        LinkStep { before, has_new, timer_runs, after: self.sender(), sent, timer }
    }

    /// A packet arrives, if one is on its way.
    pub(crate) fn data(&mut self) -> Option<DataStep> {
        let (psn, class) = match self.rng.chance(self.faults.forged) {
            true => (self.near(self.receiver.next_expected()), *self.rng.pick(&CLASSES)),
            false => {
                let index = self.next_of(self.data.len())?;
                self.data.remove(index)?
            }
        };
        let before = self.receiver();
        // A card with a smaller bitmap than the model's drops what does not fit.
        let is_beyond = psn.distance_from(before.state.next_expected) >= self.window as i32;
        let arrival = if is_beyond { Arrival::BeyondWindow } else { self.receiver.on_arrival(psn, class) };
        let sack = match arrival {
            Arrival::InOrder { .. } | Arrival::Duplicate => None,
            Arrival::OutOfOrder { run_len, .. } => Some((psn, run_len as u8)),
            Arrival::BeyondWindow => {
                return Some(DataStep { before, psn, class, after: before, arrival });
            }
        };
        let ack = Ack { cumulative: self.receiver.next_expected(), sack };
        self.put(|flow| flow.acks.push_back(ack));
        Some(DataStep { before, psn, class, after: self.receiver(), arrival })
    }

    /// An acknowledgement arrives, if one is on its way.
    pub(crate) fn ack(&mut self) -> Option<AckStep> {
        let ack = match self.rng.chance(self.faults.forged) {
            true => self.forged_ack(),
            false => {
                let index = self.next_of(self.acks.len())?;
                self.acks.remove(index)?
            }
        };
        let (before, counted) = (self.sender(), self.sender.counters());
        let outcome = match ack.sack {
            None => self.sender.on_ack(ack.cumulative),
            Some((high, run)) => self.sender.on_nack(ack.cumulative, high, run.into()),
        };
        let restarts = outcome.newly_acked > 0 || self.config.sack_restarts_timer && outcome.newly_sacked > 0;
        let timer = if restarts { self.arm() } else { Timer::Keep };
        let counters = self.sender.counters();
        Some(AckStep {
            before,
            ack,
            after: self.sender(),
            outcome,
            stale: counters.stale > counted.stale,
            invalid: counters.invalid > counted.invalid,
            timer,
        })
    }

    /// The timer runs out, if it runs.
    pub(crate) fn timer(&mut self) -> Option<TimerStep> {
        if !self.timer_runs {
            return None;
        }
        let before = self.sender();
        let outcome = self.sender.on_timeout();
        self.timer_runs = false;
        let timer = match outcome {
            TimeoutOutcome::Idle => Timer::Keep,
            TimeoutOutcome::Extended(rest) => self.set(Some(rest)),
            TimeoutOutcome::Resend => self.arm(),
        };
        Some(TimerStep { before, after: self.sender(), outcome, timer })
    }

    /// Whether the next step should be a timeout: often if nothing is on its way, else rarely.
    pub(crate) fn is_late(&mut self) -> bool {
        let is_quiet = self.data.is_empty() && self.acks.is_empty();
        self.timer_runs && self.rng.chance(if is_quiet { 0.3 } else { 0.003 })
    }

    pub(crate) fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn arm(&mut self) -> Timer {
        let rto = self.sender.arm_timeout();
        self.set(rto)
    }

    fn set(&mut self, rto: Option<Duration>) -> Timer {
        let IrnConfig { rto_low, rto_high, .. } = self.config;
        self.timer_runs = rto.is_some();
        match rto {
            None => Timer::Stop,
            Some(rto) if rto == rto_low => Timer::Low,
            Some(rto) if rto == rto_high => Timer::High,
            Some(rto) => {
                assert_eq!(rto.as_nanos(), rto_high.as_nanos() - rto_low.as_nanos());
                Timer::Rest
            }
        }
    }

    /// Which packet arrives next of so many on their way.
    fn next_of(&mut self, waiting: usize) -> Option<usize> {
        match waiting {
            0 => None,
            _ if self.rng.chance(self.faults.overtaking) => Some(self.rng.below(waiting as u64) as usize),
            _ => Some(0),
        }
    }

    fn put(&mut self, put: impl Fn(&mut Flow)) {
        let copies = if self.rng.chance(self.faults.repeat) { 2 } else { 1 };
        for _ in 0..copies {
            if !self.rng.chance(self.faults.loss) {
                put(self);
            }
        }
    }

    fn class(&self, psn: Psn) -> PacketClass {
        *Rng::new(psn.value().into()).pick(&CLASSES)
    }

    fn near(&mut self, psn: Psn) -> Psn {
        match self.rng.chance(0.1) {
            true => Psn::new(self.rng.next_u32()),
            false => {
                psn.add(self.rng.below(u64::from(self.window) + 3) as u32).sub(self.rng.below(40) as u32)
            }
        }
    }

    fn forged_ack(&mut self) -> Ack {
        let cumulative = self.near(self.sender.first_unacknowledged());
        let sack = self.near(self.sender.first_unacknowledged());
        let run = self.rng.next_u32() as u8;
        Ack { cumulative, sack: self.rng.chance(0.7).then_some((sack, run)) }
    }
}

const CLASSES: [PacketClass; 3] = [PacketClass::Middle, PacketClass::Last, PacketClass::LastWithCompletion];

fn bitmap(window: u32, is_set: impl Fn(u32) -> bool) -> Bitmap {
    let mut bits = Bitmap::default();
    for n in (0..window).filter(|&n| is_set(n)) {
        bits[n as usize / 64] |= 1 << (n % 64);
    }
    bits
}
