//! What departures and acknowledgements tell those who listen: the congestion control, the pacer, the computed timeout.

use super::FRAME_OVERHEAD;
use super::common::Common;
use super::round_trips::RoundTrips;
use crate::congestion::AckSample;
use crate::connection::Connection;
use crate::plan::Plan;
use highwire_stdx::Instant;
use highwire_wire::Psn;

impl Common {
    /// Finds out, once the congestion control is known, whether departures and arrivals must be noted.
    pub(super) fn set_listeners(&mut self, conn: &Connection, first: Psn, is_irn: bool) {
        let window = if is_irn { conn.transport.irn.cap } else { conn.transport.go_back_n_window };
        let wants = self.congestion.wants_round_trips() || is_irn && conn.transport.irn.computes_rto;
        self.round_trips = wants.then(|| Box::new(RoundTrips::new(first, window)));
        self.has_listeners = self.congestion.is_some() || wants;
        self.flight = self.congestion.window_bytes().map(|_| Box::default());
        self.spreads = conn.transport.congestion.algorithm().spreads;
        // A congestion window moves with every acknowledgement, and a small one would wait for the end of the
        // burst. Round trips need undelayed acknowledgements: one that an IRN responder keeps back tells
        // nothing about the network.
        let has_window = self.congestion.window().is_some() || self.flight.is_some();
        self.asks_always = has_window || wants && is_irn;
    }

    /// A packet leaves.
    // Kept out of line, like the next one: a requester without listeners should not pay for their code.
    #[inline(never)]
    pub(super) fn note_departure(&mut self, now: Instant, plan: &mut Plan, first_unacknowledged: Psn) {
        let (psn, bytes) = (plan.headers.bth.psn, plan.length + FRAME_OVERHEAD);
        if let Some(control) = self.congestion.control() {
            if self.spreads {
                plan.path = control.path(now);
            }
            control.on_sent(now, bytes);
            self.pacer.on_sent(now, bytes, control.rate());
        }
        if let Some(flight) = &mut self.flight {
            flight.on_sent(psn, bytes);
        }
        if let Some(round_trips) = &mut self.round_trips {
            round_trips.on_sent(psn, now, plan.path, first_unacknowledged);
        }
    }

    /// Tells the control of an acknowledgement.
    #[inline]
    pub(super) fn tell(&mut self, now: Instant, sample: AckSample) {
        if let Some(control) = self.congestion.control() {
            control.on_ack(now, sample);
        }
    }

    /// Whether the acknowledgement at hand echoes a mark.
    #[inline]
    pub(super) fn note_echo(&mut self, is_echo: bool) {
        if self.has_listeners {
            self.news.is_ecn_echo = is_echo;
        }
    }

    /// The sample of an acknowledgement that the arrival of `cause` caused.
    #[inline(never)]
    pub(super) fn sample(&mut self, now: Instant, cause: Option<Psn>) -> AckSample {
        let trip = match (&mut self.round_trips, cause) {
            (Some(round_trips), Some(psn)) => round_trips.take(psn, now),
            _ => None,
        };
        let (rtt, path) = trip.map_or((None, 0), |(rtt, path)| (Some(rtt), path));
        AckSample { rtt, path, ..std::mem::take(&mut self.news) }
    }
}
