//! DCTCP: a window that shrinks in proportion to the share of packets that were marked (RFC 8257, IRN §4.4.4).
//!
//! Acknowledgements echo each packet's mark. Once per window of them, α moves towards the share that was marked; the first mark
//! after that cuts the window by half of α. Acknowledgements without a mark let it grow as in TCP, losses halve it. Flows
//! start with a window of the bandwidth-delay product, as all flows do in the paper, which says nothing else
//! about its DCTCP.

use super::window::PacketWindow;
use super::{AckSample, Algorithm, CongestionControl, Fraction, LossKind, Marking, Marks, Start};
use highwire_stdx::Instant;

/// The constants of DCTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DctcpParameters {
    /// The window that flows start with, in packets.
    pub window_initial: u32,
    /// The window that no cut goes below, in packets.
    pub window_min: u32,
    /// The window that none exceeds, in packets.
    pub window_max: u32,
    /// g: the weight of news in α.
    pub gain: Fraction,
    /// α before the first acknowledgement (RFC 8257 §4.2).
    pub alpha_initial: Fraction,
    /// The part of the window that a loss takes away.
    pub loss_cut: Fraction,
}

impl DctcpParameters {
    /// The usual values: g = 1/16, α = 1 at first; a window from `bdp` packets down to one, and up to `max`.
    pub const fn usual(bdp: u32, max: u32) -> DctcpParameters {
        DctcpParameters {
            window_initial: bdp,
            window_min: 1,
            window_max: max,
            gain: Fraction::new(1, 16),
            alpha_initial: Fraction::ONE,
            loss_cut: Fraction::new(1, 2),
        }
    }
}

/// DCTCP with the usual values.
pub(super) static USUAL: Algorithm = Algorithm {
    marks: Marks::Echoes,
    marking: Some(Marking::step(120_000)),
    hears_acks: true,
    ..Algorithm::new("dctcp", "DCTCP with the usual values", &|start: &Start| {
        Some(Box::new(Dctcp::new(DctcpParameters::usual(start.bdp_packets, start.window_max))))
    })
};

/// One flow's window.
#[derive(Clone, Debug)]
pub struct Dctcp {
    parameters: DctcpParameters,
    window: PacketWindow,
    alpha: Fraction,
    /// Packets acknowledged in this observation, those that were marked, and when it ends.
    seen: u32,
    marked: u32,
    observed_at: u32,
    /// Acknowledged packets until a mark or a loss counts again.
    deaf_for: u32,
}

impl Dctcp {
    /// A flow that starts with its initial window.
    ///
    /// # Panics
    /// If the window is not at least one packet, or its bounds are out of order.
    pub fn new(parameters: DctcpParameters) -> Dctcp {
        let p = &parameters;
        let window = PacketWindow::new(p.window_initial, p.window_min, p.window_max);
        Dctcp {
            window,
            alpha: p.alpha_initial,
            parameters,
            seen: 0,
            marked: 0,
            observed_at: window.packets(),
            deaf_for: 0,
        }
    }

    /// The constants it was made with.
    pub fn parameters(&self) -> &DctcpParameters {
        &self.parameters
    }

    /// α: the running share of marked packets.
    pub fn alpha(&self) -> Fraction {
        self.alpha
    }

    fn observe(&mut self, sample: AckSample) {
        self.seen += sample.packets;
        self.marked += if sample.is_ecn_echo { sample.packets } else { 0 };
        if self.seen < self.observed_at {
            return;
        }
        let gain = self.parameters.gain;
        let share = Fraction::new(self.marked, self.seen);
        self.alpha = gain.complement().times(self.alpha).plus(gain.times(share));
        (self.seen, self.marked, self.observed_at) = (0, 0, self.window.packets());
    }

    /// Cuts the window, and ignores congestion until the packets now in flight have been acknowledged: all
    /// but the `arrived` packets that reported it.
    fn cut(&mut self, part: Fraction, arrived: u32) {
        self.deaf_for = self.window.packets().saturating_sub(arrived);
        self.window.cut(part);
    }
}

impl CongestionControl for Dctcp {
    fn on_ack(&mut self, _now: Instant, sample: AckSample) {
        if sample.packets == 0 {
            return;
        }
        self.observe(sample);
        let is_deaf = self.deaf_for > 0;
        self.deaf_for = self.deaf_for.saturating_sub(sample.packets);
        if !sample.is_ecn_echo {
            self.window.grow(sample.packets);
        } else if !is_deaf {
            self.cut(self.alpha.halved(), sample.packets);
        }
    }

    fn on_loss(&mut self, _now: Instant, kind: LossKind) {
        if self.deaf_for == 0 || kind == LossKind::Timeout {
            self.cut(self.parameters.loss_cut, 0);
        }
    }

    #[inline]
    fn window(&self) -> Option<u32> {
        Some(self.window.packets())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(window: u32) -> Dctcp {
        Dctcp::new(DctcpParameters::usual(window, 1000))
    }

    fn ack(dctcp: &mut Dctcp, packets: u32, is_ecn_echo: bool) {
        for _ in 0..packets {
            dctcp.on_ack(Instant::ZERO, AckSample { packets: 1, is_ecn_echo, ..AckSample::default() });
        }
    }

    #[test]
    fn alpha_moves_by_a_sixteenth_per_window() {
        let mut dctcp = flow(100);
        ack(&mut dctcp, 99, false);
        assert_eq!(dctcp.alpha(), Fraction::ONE, "the window is not over");
        ack(&mut dctcp, 1, false);
        assert_eq!(dctcp.alpha(), Fraction::new(15, 16));
        let size = dctcp.window().expect("a window");
        ack(&mut dctcp, size / 2, false);
        ack(&mut dctcp, size - size / 2, true);
        let expected = 15.0 / 16.0 * 15.0 / 16.0 + 0.5 / 16.0;
        let alpha = f64::from(dctcp.alpha().numerator()) / f64::from(1 << 30);
        assert!((alpha - expected).abs() < 1e-3, "{alpha} is not {expected}");
    }

    #[test]
    fn one_cut_by_half_of_alpha_per_window() {
        let mut dctcp = flow(64);
        ack(&mut dctcp, 1, true);
        assert_eq!(dctcp.window(), Some(32), "alpha is one at first");
        ack(&mut dctcp, 63, true);
        assert_eq!(dctcp.window(), Some(32), "marks of the same window");
        ack(&mut dctcp, 1, true);
        assert_eq!(dctcp.window(), Some(16));
    }

    /// A flow that sees few marks gives little away: with one mark in 64 packets α tends to about 1/64.
    #[test]
    fn rare_marks_cost_little() {
        let mut dctcp = flow(64);
        for _ in 0..200 {
            ack(&mut dctcp, 63, false);
            ack(&mut dctcp, 1, true);
        }
        let before = dctcp.window().expect("a window");
        let alpha = f64::from(dctcp.alpha().numerator()) / f64::from(1 << 30);
        assert!(alpha < 0.03, "{alpha}");
        ack(&mut dctcp, before, false);
        ack(&mut dctcp, 1, true);
        assert!(dctcp.window().expect("a window") >= before - 1);
    }

    #[test]
    fn losses_halve_and_the_window_never_closes() {
        let mut dctcp = flow(64);
        dctcp.on_loss(Instant::ZERO, LossKind::Nack);
        dctcp.on_loss(Instant::ZERO, LossKind::Nack);
        assert_eq!(dctcp.window(), Some(32));
        (0..20).for_each(|_| dctcp.on_loss(Instant::ZERO, LossKind::Timeout));
        assert_eq!(dctcp.window(), Some(1));
    }
}
