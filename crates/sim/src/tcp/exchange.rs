//! A connection over a link that drops, doubles and delays, for tests: two ends on one timeline.

use highwire_stdx::{Duration, Instant, Rng};

use super::{Ack, Config, Receiver, Segment, Sender};

/// What happens to a data segment or an acknowledgement: the delays of its copies, none if it is lost.
pub(super) type Fate = Vec<Duration>;

enum Flying {
    Data(Segment),
    Ack(Ack),
}

pub(super) struct Exchange<'a> {
    pub(super) now: Instant,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// Fresh bytes placed so far.
    pub(super) placed: u64,
    /// Every segment sent, with its time.
    pub(super) sent: Vec<(Instant, Segment)>,
    flying: Vec<(Instant, u64, Flying)>,
    count: u64,
    data_fate: Box<dyn FnMut(&Segment) -> Fate + 'a>,
    ack_fate: Box<dyn FnMut(&Ack) -> Fate + 'a>,
}

/// One way.
pub(super) const DELAY: Duration = Duration::from_micros(10);

impl<'a> Exchange<'a> {
    pub(super) fn new(config: Config, data_fate: impl FnMut(&Segment) -> Fate + 'a) -> Exchange<'a> {
        Exchange {
            now: Instant::ZERO,
            sender: Sender::new(config),
            receiver: Receiver::new(&config),
            placed: 0,
            sent: Vec::new(),
            flying: Vec::new(),
            count: 0,
            data_fate: Box::new(data_fate),
            ack_fate: Box::new(|_| vec![DELAY]),
        }
    }

    pub(super) fn with_ack_fate(mut self, fate: impl FnMut(&Ack) -> Fate + 'a) -> Exchange<'a> {
        self.ack_fate = Box::new(fate);
        self
    }

    fn fly(&mut self, fate: Fate, what: impl Fn() -> Flying) {
        for delay in fate {
            self.count += 1;
            self.flying.push((self.now + delay, self.count, what()));
        }
    }

    fn acknowledge(&mut self, ack: Option<Ack>) {
        if let Some(ack) = ack {
            let fate = (self.ack_fate)(&ack);
            self.fly(fate, || Flying::Ack(ack));
        }
    }

    /// Sends all segments that may leave.
    pub(super) fn drain(&mut self) {
        while let Some(segment) = self.sender.poll_transmit(self.now) {
            assert!(self.sent.len() < 200_000, "it sends for ever");
            self.sent.push((self.now, segment));
            let fate = (self.data_fate)(&segment);
            self.fly(fate, || Flying::Data(segment));
        }
    }

    /// Lets the next thing happen; `false` if nothing ever will.
    pub(super) fn step(&mut self) -> bool {
        let arrival = self.flying.iter().map(|(at, ..)| *at).min();
        let timers = [self.sender.poll_timeout(), self.receiver.poll_timeout()];
        let Some(at) = timers.into_iter().flatten().chain(arrival).min() else { return false };
        self.now = self.now.max(at);
        let mut due: Vec<_> = Vec::new();
        let now = self.now;
        self.flying.sort_by_key(|(at, order, _)| (*at, *order));
        while self.flying.first().is_some_and(|(at, ..)| *at <= now) {
            due.push(self.flying.remove(0).2);
        }
        for what in due {
            match what {
                Flying::Data(segment) => {
                    let received = self.receiver.handle_segment(self.now, segment.offset, segment.length);
                    self.placed += u64::from(received.fresh);
                    self.acknowledge(received.ack);
                }
                Flying::Ack(ack) => self.sender.handle_ack(self.now, &ack),
            }
            self.drain();
        }
        self.sender.handle_timeout(self.now);
        let ack = self.receiver.handle_timeout(self.now);
        self.acknowledge(ack);
        self.drain();
        true
    }

    /// Until nothing happens any more.
    pub(super) fn run(&mut self) {
        self.drain();
        while self.step() {}
    }

    /// The segments that were sent, in units of segments: `3` the fourth for the first time, `3*` again.
    pub(super) fn story(&self, mss: u64) -> String {
        let name = |s: &Segment| format!("{}{}", s.offset / mss, if s.is_resent { "*" } else { "" });
        self.sent.iter().map(|(_, s)| name(s)).collect::<Vec<_>>().join(" ")
    }
}

/// Every byte arrives once, and both ends come to rest, with any network faults.
#[test]
fn every_byte_arrives_exactly_once_whatever_the_network_does() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let config = Config {
            mss: 100,
            sack: rng.chance(0.6),
            initial_window: *rng.pick(&[1, 2, 10]),
            ack_delay: Duration::from_micros(*rng.pick(&[0, 0, 30])),
            window_bytes: *rng.pick(&[100, 250, 2_000, Config::WINDOW_BYTES_MAX]),
            min_rto: Duration::from_micros(*rng.pick(&[30, 320])),
            max_rto: Duration::from_millis(2),
            ..Config::default()
        };
        let (loss, double, jitter) = (rng.below(30) as f64 / 100.0, rng.chance(0.3), rng.below(60));
        let fate = |seed: u64| {
            let mut rng = Rng::new(seed);
            move || -> Fate {
                let copies = if rng.chance(loss) { 0 } else { 1 + u64::from(double && rng.chance(0.1)) };
                (0..copies).map(|_| Duration::from_micros(10 + rng.below(jitter + 1))).collect()
            }
        };
        let (mut data, mut ack) = (fate(seed ^ 1), fate(seed ^ 2));
        let mut exchange = Exchange::new(config, move |_| data()).with_ack_fate(move |_| ack());
        let lengths: Vec<u64> = (0..rng.between(1, 4)).map(|_| rng.between(1, 6_000)).collect();
        for (name, &length) in lengths.iter().enumerate() {
            exchange.sender.post(Instant::ZERO, name as u32, length);
        }
        exchange.run();
        let total: u64 = lengths.iter().sum();
        assert_eq!((exchange.placed, exchange.receiver.next()), (total, total), "seed {seed}: {config:?}");
        assert!(exchange.sender.is_idle(), "seed {seed}");
        let complete: Vec<u32> = std::iter::from_fn(|| exchange.sender.poll_complete()).collect();
        assert!(complete.into_iter().eq(0..lengths.len() as u32), "seed {seed}");
    }
}
