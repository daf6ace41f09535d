//! Swift: the window follows round trips towards a target (Kumar and others, SIGCOMM 2020).
//!
//! Below the target the window grows by a step per round trip; above it, it shrinks in proportion to the excess, at most once per round
//! trip. The more flows share a path, the smaller their windows, and the higher a target they need: so it falls as the window grows. A
//! window of less than a packet is a pace. One delay stands for both parts of the paper's, fabric and host.

use highwire_stdx::{Duration, Instant};
use highwire_transport::congestion::{
    AckSample, Algorithm, CongestionControl, Fraction, LossKind, Rate, Start,
};

/// Swift for networks of a few microseconds per link.
pub static SWIFT: Algorithm = Algorithm {
    hears_acks: true,
    ..Algorithm::new("swift", "Swift: the window follows round trips towards a target", &|start| {
        Some(Box::new(Swift::new(start)))
    })
};

/// A packet, in the units of windows.
const ONE: u64 = 1 << 16;
/// Windows never fall below a hundredth of a packet.
const WINDOW_MIN: u64 = ONE / 100;
/// Windows of a packet or less have this much more time.
const FLOW_RANGE_NS: u64 = 50_000;
/// The share of the excess that is taken away, and the most at once.
const BETA: Fraction = Fraction::new(4, 5);
const CUT_MAX: Fraction = Fraction::new(1, 2);

/// One flow's window.
#[derive(Clone, Debug)]
pub struct Swift {
    window: u64,
    window_max: u64,
    base_ns: u64,
    packet_bits: u64,
    rtt: Duration,
    last_cut: Instant,
}

impl Swift {
    /// A flow that starts with the bandwidth-delay product, which also gives the round trip of an empty network.
    pub fn new(start: &Start) -> Swift {
        let packet_bits = 8 * u64::from(start.packet_bytes);
        let packets = u64::from(start.bdp_packets);
        let base_ns = packets * packet_bits * 1_000_000_000 / start.line_rate.bits_per_second();
        Swift {
            window: packets * ONE,
            window_max: u64::from(start.window_max) * ONE,
            base_ns,
            packet_bits,
            rtt: Duration::from_nanos(base_ns),
            last_cut: Instant::ZERO,
        }
    }

    /// The round trip that the flow aims at, now.
    fn target_ns(&self) -> u64 {
        // The paper has 1/sqrt(window); an integer square root does it.
        let root = (self.window.max(ONE) << 16).isqrt();
        self.base_ns + self.base_ns / 4 + FLOW_RANGE_NS * ONE / root
    }

    fn cut(&mut self, now: Instant, part: Fraction) {
        // A cut shows its effect after a round trip.
        if now.saturating_since(self.last_cut) >= self.rtt {
            self.last_cut = now;
            self.window = part.min(CUT_MAX).complement().of(self.window).max(WINDOW_MIN);
        }
    }
}

impl CongestionControl for Swift {
    fn on_ack(&mut self, now: Instant, sample: AckSample) {
        if let Some(rtt) = sample.rtt {
            self.rtt = rtt;
        }
        let (delay, target) = (self.rtt.as_nanos(), self.target_ns());
        if delay < target {
            let step = u64::from(sample.packets) * ONE * ONE / self.window.max(ONE);
            self.window = (self.window + step).min(self.window_max);
        } else {
            self.cut(now, BETA.times(Fraction::ratio(delay - target, delay)));
        }
    }

    fn on_loss(&mut self, now: Instant, kind: LossKind) {
        if kind != LossKind::Trimmed {
            self.cut(now, CUT_MAX);
        }
    }

    fn window(&self) -> Option<u32> {
        Some((self.window / ONE).max(1) as u32)
    }

    fn rate(&self) -> Option<Rate> {
        let bits = u128::from(self.packet_bits * self.window / ONE) * 1_000_000_000;
        let rate = (bits / u128::from(self.rtt.as_nanos().max(1))) as u64;
        (self.window < ONE).then(|| Rate::from_bits_per_second(rate.max(1)))
    }

    fn wants_round_trips(&self) -> bool {
        true
    }
}
