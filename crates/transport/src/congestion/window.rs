//! A congestion window in packets with a fraction, so that growing by a packet per round trip adds up exactly enough.
//!
//! Invariant: `min <= packets <= max`, and `min` is at least one, or nothing would ever leave.

use super::Fraction;

/// The window of AIMD and DCTCP.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketWindow {
    /// In units of 2^-16 packets.
    size: u64,
    min: u64,
    max: u64,
}

impl PacketWindow {
    pub(super) fn new(initial: u32, min: u32, max: u32) -> PacketWindow {
        assert!((1..=max).contains(&min), "a window of {min} to {max} packets");
        PacketWindow {
            size: u64::from(initial.clamp(min, max)) << 16,
            min: u64::from(min) << 16,
            max: u64::from(max) << 16,
        }
    }

    /// Whole packets.
    #[inline]
    pub(super) fn packets(self) -> u32 {
        (self.size >> 16) as u32
    }

    /// Grows by one packet per window of acknowledgements.
    pub(super) fn grow(&mut self, acknowledged: u32) {
        let step = (u64::from(acknowledged) << 32) / self.size;
        self.size = (self.size + step).min(self.max);
    }

    /// Takes `part` of it away.
    pub(super) fn cut(&mut self, part: Fraction) {
        self.size = part.complement().of(self.size).max(self.min);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_acknowledgements_is_one_packet_more() {
        let mut window = PacketWindow::new(10, 1, 100);
        for expected in 11..=100 {
            for _ in 0..expected {
                window.grow(1);
            }
            assert_eq!(window.packets(), expected);
        }
        window.grow(1000);
        assert_eq!(window.packets(), 100);
    }

    #[test]
    fn cuts_stop_at_the_minimum() {
        let mut window = PacketWindow::new(64, 2, 64);
        let sizes: Vec<u32> = (0..7)
            .map(|_| {
                window.cut(Fraction::new(1, 2));
                window.packets()
            })
            .collect();
        assert_eq!(sizes, [32, 16, 8, 4, 2, 2, 2]);
    }
}
