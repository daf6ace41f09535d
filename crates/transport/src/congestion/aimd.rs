//! AIMD: TCP's additive increase and multiplicative decrease, without slow start (IRN §4.4.4).
//!
//! The window starts at its maximum, the bandwidth-delay product, since every flow of the paper starts at line rate; it grows by
//! a packet per window of acknowledgements and is halved when a loss is detected, at most once per window. The paper
//! says no more than "TCP's AIMD", so these are our choices.

use super::window::PacketWindow;
use super::{AckSample, Algorithm, CongestionControl, Fraction, LossKind, Start};
use highwire_stdx::Instant;

/// The constants of AIMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AimdParameters {
    /// The window that flows start with, in packets.
    pub window_initial: u32,
    /// The window that no cut goes below, in packets.
    pub window_min: u32,
    /// The window that none exceeds, in packets.
    pub window_max: u32,
    /// The part of the window that a loss takes away.
    pub decrease: Fraction,
}

impl AimdParameters {
    /// TCP's values, from a window of `bdp` packets down to one, and up to `max`.
    pub const fn tcp(bdp: u32, max: u32) -> AimdParameters {
        AimdParameters { window_initial: bdp, window_min: 1, window_max: max, decrease: Fraction::new(1, 2) }
    }
}

/// AIMD with TCP's values.
pub(super) static TCP: Algorithm = Algorithm {
    hears_acks: true,
    ..Algorithm::new("aimd", "TCP's additive increase and multiplicative decrease", &|start: &Start| {
        Some(Box::new(Aimd::new(AimdParameters::tcp(start.bdp_packets, start.window_max))))
    })
};

/// One flow's window.
#[derive(Clone, Debug)]
pub struct Aimd {
    parameters: AimdParameters,
    window: PacketWindow,
    /// Acknowledged packets until a loss counts again.
    deaf_for: u32,
}

impl Aimd {
    /// A flow that starts with its initial window.
    ///
    /// # Panics
    /// If the window is not at least one packet, or its bounds are out of order.
    pub fn new(parameters: AimdParameters) -> Aimd {
        let p = &parameters;
        Aimd {
            window: PacketWindow::new(p.window_initial, p.window_min, p.window_max),
            parameters,
            deaf_for: 0,
        }
    }

    /// The constants it was made with.
    pub fn parameters(&self) -> &AimdParameters {
        &self.parameters
    }
}

impl CongestionControl for Aimd {
    fn on_ack(&mut self, _now: Instant, sample: AckSample) {
        self.deaf_for = self.deaf_for.saturating_sub(sample.packets);
        self.window.grow(sample.packets);
    }

    fn on_loss(&mut self, _now: Instant, kind: LossKind) {
        // Packets in flight at a cut left before it, so their losses do not cut again. After a timeout none
        // of them is in flight any more.
        if self.deaf_for > 0 && kind != LossKind::Timeout {
            return;
        }
        self.deaf_for = self.window.packets();
        self.window.cut(self.parameters.decrease);
    }

    #[inline]
    fn window(&self) -> Option<u32> {
        Some(self.window.packets())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Aimd {
        Aimd::new(AimdParameters::tcp(100, 111))
    }

    fn ack(aimd: &mut Aimd, packets: u32) {
        (0..packets)
            .for_each(|_| aimd.on_ack(Instant::ZERO, AckSample { packets: 1, ..AckSample::default() }));
    }

    #[test]
    fn halved_once_per_window_and_back_by_one_packet_each() {
        let mut aimd = flow();
        aimd.on_loss(Instant::ZERO, LossKind::Nack);
        assert_eq!(aimd.window(), Some(50));
        ack(&mut aimd, 50);
        assert_eq!(aimd.window(), Some(50), "a window of less than 51 packets was acknowledged");
        aimd.on_loss(Instant::ZERO, LossKind::Nack);
        assert_eq!(aimd.window(), Some(50), "of the hundred in flight at the cut, fifty are still out");
        ack(&mut aimd, 50);
        aimd.on_loss(Instant::ZERO, LossKind::Nack);
        assert_eq!(aimd.window(), Some(25));
    }

    #[test]
    fn timeouts_always_count_and_one_packet_is_always_allowed() {
        let mut aimd = flow();
        (0..10).for_each(|_| aimd.on_loss(Instant::ZERO, LossKind::Timeout));
        assert_eq!(aimd.window(), Some(1));
        ack(&mut aimd, 1 + 2);
        assert_eq!(aimd.window(), Some(2));
        ack(&mut aimd, 100_000);
        assert_eq!(aimd.window(), Some(111));
        assert_eq!(aimd.rate(), None);
    }
}
