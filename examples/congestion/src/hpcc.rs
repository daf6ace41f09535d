//! HPCC: the window follows what the switches of the way tell (Li and others, SIGCOMM 2019).
//!
//! Each acknowledgement brings, hop by hop, what waits there and what the hop has sent. The busiest hop decides: its queue over a
//! bandwidth-delay product, plus its rate over the link's. The window is set so that this utilisation becomes 95 %. It is set relative
//! to a reference window of the last round trip, so that an acknowledgement of the same round trip does not cut again.

use highwire_stdx::Instant;
use highwire_transport::congestion::{AckSample, Algorithm, CongestionControl, Hop, LossKind, Rate, Start};

/// HPCC with its paper's constants.
pub static HPCC: Algorithm = Algorithm {
    hears_acks: true,
    telemetry: true,
    ..Algorithm::new("hpcc", "HPCC: the window follows what switches tell", &|start| {
        Some(Box::new(Hpcc::new(start)))
    })
};

/// One, in the units of utilisation.
const ONE: u64 = 1 << 20;
/// η: the utilisation aimed at.
const TARGET: u64 = ONE * 95 / 100;
/// maxStage: so many additive steps in a row, then one that multiplies.
const STAGES_MAX: u32 = 5;

/// One flow's window.
#[derive(Clone, Debug)]
pub struct Hpcc {
    window: u64,
    reference: u64,
    window_max: u64,
    /// W_AI.
    step: u64,
    base_ns: u64,
    utilisation: u64,
    stages: u32,
    /// What each hop told last, and what it tells now.
    before: Vec<Hop>,
    hops: Vec<Hop>,
    /// Packets until an acknowledgement belongs to the next round trip.
    same_round: u32,
}

impl Hpcc {
    /// A flow that starts with the bandwidth-delay product.
    pub fn new(start: &Start) -> Hpcc {
        let window = u64::from(start.bdp_packets) * u64::from(start.packet_bytes);
        let base_ns = window * 8 * 1_000_000_000 / start.line_rate.bits_per_second();
        Hpcc {
            window,
            reference: window,
            window_max: window,
            // N of about a hundred flows share 5 % of a link.
            step: (window / 20 / 100).max(1),
            base_ns,
            utilisation: ONE,
            stages: 0,
            before: Vec::new(),
            hops: Vec::new(),
            same_round: 0,
        }
    }

    /// MeasureInflight: smooths the utilisation of the busiest hop.
    fn measure(&mut self) {
        let mut busiest = (0, self.base_ns);
        for (before, hop) in self.before.iter().zip(&self.hops) {
            let bps = hop.rate.bits_per_second().max(1);
            let passed = hop.at.saturating_since(before.at).as_nanos();
            if passed == 0 {
                continue;
            }
            let sent_bits = u128::from(8 * hop.sent_bytes.saturating_sub(before.sent_bytes));
            let carried =
                sent_bits * u128::from(ONE) * 1_000_000_000 / (u128::from(passed) * u128::from(bps));
            let waiting_bits = u128::from(8 * hop.queue_bytes.min(before.queue_bytes));
            let product = (u128::from(bps) * u128::from(self.base_ns) / 1_000_000_000).max(1);
            let share = (carried + waiting_bits * u128::from(ONE) / product) as u64;
            if share > busiest.0 {
                busiest = (share, passed.min(self.base_ns));
            }
        }
        let (share, passed) = busiest;
        let old = u128::from(self.utilisation) * u128::from(self.base_ns - passed);
        self.utilisation = ((old + u128::from(share) * u128::from(passed)) / u128::from(self.base_ns)) as u64;
    }
}

impl CongestionControl for Hpcc {
    fn on_telemetry(&mut self, _now: Instant, hops: &[Hop]) {
        self.hops.clear();
        self.hops.extend_from_slice(hops);
    }

    fn on_ack(&mut self, _now: Instant, sample: AckSample) {
        if self.hops.is_empty() {
            return;
        }
        // A way with other switches than before tells nothing about them yet.
        if self.before.len() == self.hops.len() {
            self.measure();
            let multiplies = self.utilisation >= TARGET || self.stages >= STAGES_MAX;
            let scaled =
                u128::from(self.reference) * u128::from(TARGET) / u128::from(self.utilisation.max(1));
            let window = if multiplies { scaled as u64 + self.step } else { self.reference + self.step };
            self.window = window.clamp(self.step, self.window_max);
            self.same_round = self.same_round.saturating_sub(sample.packets);
            if self.same_round == 0 {
                self.stages = if multiplies { 0 } else { self.stages + 1 };
                (self.reference, self.same_round) = (self.window, sample.in_flight);
            }
        }
        std::mem::swap(&mut self.before, &mut self.hops);
        self.hops.clear();
    }

    fn on_loss(&mut self, _now: Instant, kind: LossKind) {
        if kind == LossKind::Timeout {
            (self.window, self.reference) = (self.step, self.step);
        }
    }

    fn window_bytes(&self) -> Option<u64> {
        Some(self.window)
    }

    fn rate(&self) -> Option<Rate> {
        let bps = u128::from(self.window) * 8 * 1_000_000_000 / u128::from(self.base_ns.max(1));
        Some(Rate::from_bits_per_second((bps as u64).max(1)))
    }
}
