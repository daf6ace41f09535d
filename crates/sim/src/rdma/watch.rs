//! A second opinion on a sender: a queue pair's visible behaviour must obey IRN's and RoCE's rules.
//!
//! Never more in flight than the cap; nothing new out of order; no packet repeated unless, since it left, a
//! NAK arrived or another packet was repeated, or the shortest timeout has passed in silence. It shares no
//! code with the transport that it watches.

use highwire_stdx::{Duration, Instant};
use highwire_verbs::Recovery;
use highwire_wire::{Ext, Headers, Psn, Syndrome};

/// An observer's account of one connection's sender. Packets are counted from its first PSN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    first: Psn,
    /// Packets sent, each counted once.
    sent: u32,
    /// Packets that the highest acknowledgement covers.
    acknowledged: u32,
    /// Packets below may be repeated, because of a NAK, a repetition or a timeout.
    excused: u32,
    repeated: u32,
    /// Since when nothing has moved while packets were in flight.
    silent_since: Instant,
}

impl Watch {
    pub(super) fn new(first: Psn) -> Watch {
        Watch { first, sent: 0, acknowledged: 0, excused: 0, repeated: 0, silent_since: Instant::ZERO }
    }

    pub(super) fn first(&self) -> Psn {
        self.first
    }

    pub(super) fn repeated(&self) -> u32 {
        self.repeated
    }

    /// A data packet leaves.
    #[inline]
    pub(super) fn on_sent(
        &mut self,
        now: Instant,
        psn: Psn,
        cap: u32,
        rto_min: Duration,
    ) -> Result<(), String> {
        let ahead = psn.distance_from(self.first.add(self.sent));
        if ahead == 0 {
            if self.sent == self.acknowledged {
                self.silent_since = now;
            }
            self.sent += 1;
            let in_flight = self.sent - self.acknowledged;
            return if in_flight > cap {
                Err(format!("{in_flight} packets in flight, the cap is {cap}"))
            } else {
                Ok(())
            };
        }
        self.repeat(now, ahead, rto_min)
    }

    #[cold]
    fn repeat(&mut self, now: Instant, ahead: i32, rto_min: Duration) -> Result<(), String> {
        if ahead > 0 {
            return Err(format!(
                "packet {} left before packet {}",
                self.sent as i64 + i64::from(ahead),
                self.sent
            ));
        }
        self.repeated += 1;
        let packet = self.sent.wrapping_add_signed(ahead);
        if packet >= self.excused {
            let silence = now.saturating_since(self.silent_since);
            if silence < rto_min {
                return Err(format!("packet {packet} was repeated after {silence:?} without a NAK"));
            }
        }
        // Packets in flight together with a repaired loss may be taken for lost as well (IRN's partial
        // acknowledgements).
        self.excused = self.sent;
        Ok(())
    }

    /// An answer arrives.
    #[inline]
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        headers: &Headers,
        recovery: Recovery,
        rto_min: Duration,
    ) {
        let (aeth, is_nak) = match headers.ext {
            Ext::IrnAck(aeth) => (aeth, false),
            Ext::IrnNack(aeth, _) => (aeth, true),
            Ext::Aeth(aeth) => (aeth, !matches!(aeth.syndrome, Syndrome::Ack { .. })),
            _ => return,
        };
        // RoCE's positive acknowledgement covers its own PSN, IRN's the PSNs before it.
        let is_inclusive = recovery == Recovery::GoBackN && matches!(aeth.syndrome, Syndrome::Ack { .. });
        let psn = headers.bth.psn.add(u32::from(is_inclusive));
        let ahead = psn.distance_from(self.first.add(self.acknowledged));
        if ahead > 0 && ahead as u32 <= self.sent - self.acknowledged {
            // The sender may have gone back in the meantime without having had its turn at the port.
            if now.saturating_since(self.silent_since) >= rto_min {
                self.excused = self.sent;
            }
            self.acknowledged += ahead as u32;
            self.silent_since = now;
        }
        if is_nak {
            self.excused = self.sent;
        }
    }
}
