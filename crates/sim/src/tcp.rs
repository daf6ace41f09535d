//! iWARP's transport: a full TCP, sans-IO.
//!
//! Slow start, congestion avoidance and fast retransmit (RFC 5681), NewReno (RFC 6582) or SACK-based recovery (RFC 6675), limited
//! transmit (RFC 3042), timeouts from measured round trips (RFC 6298), delayed acknowledgements, larger initial windows (RFC
//! 6928). A [`Sender`] and a [`Receiver`] per connection; data is a length. As in iWARP's framing a segment belongs to one
//! message, whose name it carries, so it can be placed before its turn.
//!
//! What is left out: connections exist from the beginning, as queue pairs do; there are no urgent data, no timestamps and no
//! detection of spurious timeouts; offsets count from zero in 64 bits where the wire's sequence numbers are their lower 32.

mod receiver;
mod scoreboard;
mod sender;

#[cfg(test)]
mod exchange;
#[cfg(test)]
mod scenarios;

pub use receiver::{Received, Receiver};
pub use sender::{Counters, Segment, Sender};

use highwire_stdx::Duration;

/// SACK blocks per acknowledgement: as many as fit beside other options (RFC 2018 §3).
pub const SACK_BLOCKS: usize = 3;

/// How a connection behaves, for both its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// SMSS: payload of a full segment.
    pub mss: u32,
    /// The first congestion window, in segments.
    pub initial_window: u32,
    /// The timeout before a round trip has been measured.
    pub initial_rto: Duration,
    /// The shortest timeout.
    pub min_rto: Duration,
    /// The longest timeout.
    pub max_rto: Duration,
    /// Selective acknowledgements and recovery by them; otherwise NewReno.
    pub sack: bool,
    /// How long the acknowledgement of a lone segment may wait; zero: an acknowledgement per segment.
    pub ack_delay: Duration,
    /// The receive window. Data goes straight to its place, so it never shrinks.
    pub window_bytes: u32,
}

impl Config {
    /// The largest window that TCP's scaling can tell (RFC 7323 §2.3).
    pub const WINDOW_BYTES_MAX: u32 = 1 << 30;
}

impl Default for Config {
    /// Segments of 1024 bytes, ten of them at first, SACK, an acknowledgement per segment, timeouts of 320 µs to a second.
    fn default() -> Config {
        Config {
            mss: 1024,
            initial_window: 10,
            initial_rto: Duration::from_millis(1),
            min_rto: Duration::from_micros(320),
            max_rto: Duration::from_secs(1),
            sack: true,
            ack_delay: Duration::ZERO,
            window_bytes: Config::WINDOW_BYTES_MAX,
        }
    }
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Everything before this offset has arrived.
    pub cumulative: u64,
    /// How far beyond it the sender may go.
    pub window: u32,
    /// Bytes that have arrived beyond it, as half-open ranges counted from it; empty ranges say nothing.
    pub blocks: [(u32, u32); SACK_BLOCKS],
}

impl Ack {
    /// Bytes that have arrived beyond the cumulative acknowledgement, as ranges of offsets.
    pub fn sacked(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let told = self.blocks.iter().filter(|(start, end)| start < end);
        told.map(|&(start, end)| (self.cumulative + u64::from(start), self.cumulative + u64::from(end)))
    }

    /// Bytes that its options take in the TCP header: two for SACK's kind and length, eight per block, padded to four.
    pub fn option_bytes(&self) -> u32 {
        match self.sacked().count() as u32 {
            0 => 0,
            blocks => 4 + 8 * blocks,
        }
    }
}
