//! Which packets may be sent or must be resent: the sender's half of IRN (IRN §3.1, §3.2).
//!
//! The window keeps the account and the timer, and a [rule](super::rule) decides what is sent again. Where the paper leaves a choice
//! open, eight rules follow from its prose and its authors' hardware code together. Each is marked where it lives.
//!
//! Invariants: `next_to_send` is at most `cap` ahead of `first_unacknowledged`, modulo 2^24; only packets in between are marked
//! in the SACK window.

mod flight;
mod told;

use super::config::IrnConfig;
use super::rule::{RecoveryRule, Rule, with_rule};
use super::sack::SackWindow;
use flight::Flight;
use highwire_stdx::Duration;
use highwire_wire::Psn;
use std::fmt;

/// One direction of a queue pair, as seen by the end that sends data.
#[derive(Clone, Debug)]
pub struct SenderWindow {
    flight: Flight,
    rule: Rule,
    config: IrnConfig,
    is_timer_quick: bool,
    counters: SenderCounters,
}

/// The result of an acknowledgement, positive or negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AckOutcome {
    /// Packets that the cumulative acknowledgement covers for the first time. Not zero: progress, so restart the timer.
    pub newly_acked: u32,
    /// Packets that were selectively acknowledged for the first time.
    pub newly_sacked: u32,
    /// Packets of either kind that were not known to have arrived before.
    pub newly_arrived: u32,
    /// A loss was detected that starts a new repair. Congestion control reacts to this.
    pub loss_detected: bool,
    /// The repair is over.
    pub recovered: bool,
}

/// The result of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutOutcome {
    /// Nothing is in flight; do not rearm.
    Idle,
    /// Too early after all: rearm for this long.
    Extended(Duration),
    /// A retransmission is scheduled; send it, then rearm.
    Resend,
}

/// Events worth showing to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SenderCounters {
    /// Packets sent again.
    pub retransmitted: u64,
    /// Timeouts that led to a retransmission.
    pub timeouts: u64,
    /// Quick timeouts that were extended.
    pub timeouts_extended: u64,
    /// Acknowledgements of packets that were acknowledged before: reordered or duplicated ones.
    pub stale: u64,
    /// Acknowledgements that no honest receiver of these packets sends.
    pub invalid: u64,
}

impl SenderWindow {
    /// A window whose first packet will be `initial`.
    ///
    /// # Panics
    /// If the cap is not in `1..=CAP_MAX`.
    pub fn new(initial: Psn, config: IrnConfig) -> SenderWindow {
        assert!((1..=IrnConfig::CAP_MAX).contains(&config.cap), "a cap of {} packets", config.cap);
        SenderWindow {
            flight: Flight::new(initial, config.cap),
            rule: Rule::new(initial, &config),
            config,
            is_timer_quick: false,
            counters: SenderCounters::default(),
        }
    }

    /// The oldest packet that is not cumulatively acknowledged.
    #[inline]
    pub fn first_unacknowledged(&self) -> Psn {
        self.flight.sacked.front()
    }

    /// The next packet that was never sent.
    #[inline]
    pub fn next_to_send(&self) -> Psn {
        self.flight.next_to_send
    }

    /// Packets sent and not cumulatively acknowledged, selectively acknowledged ones included (IRN §3.2).
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.flight.count()
    }

    /// Whether a lost packet has been resent whose repair is not confirmed yet.
    pub fn is_in_recovery(&self) -> bool {
        self.flight.in_recovery
    }

    /// The packets that have been selectively acknowledged.
    pub fn sacked(&self) -> &SackWindow {
        &self.flight.sacked
    }

    /// The parameters it was made with.
    pub fn config(&self) -> &IrnConfig {
        &self.config
    }

    /// Counts of what has happened so far.
    pub fn counters(&self) -> SenderCounters {
        self.counters
    }

    /// Whether BDP-FC lets a new packet leave. Retransmissions come first: ask [`poll_retransmit`](Self::poll_retransmit)
    /// before.
    #[inline]
    pub fn can_send_new(&self) -> bool {
        // Rule 1 (IRN §3.2): the cap counts what the cumulative acknowledgement leaves, whether or not it was lost, so a
        // flow that repairs a loss does not add to the congestion.
        self.in_flight() < self.config.cap
    }

    /// A new packet leaves; returns its PSN.
    #[inline]
    pub fn on_send_new(&mut self) -> Psn {
        debug_assert!(self.can_send_new(), "{} packets in flight, all that BDP-FC allows", self.in_flight());
        let psn = self.flight.next_to_send;
        self.flight.next_to_send = psn.next();
        psn
    }

    /// The packet to resend now, if any; calling it again gives the same answer.
    #[inline]
    pub fn peek_retransmit(&mut self) -> Option<Psn> {
        if self.rule.is_idle() { None } else { self.ask_rule() }
    }

    #[inline(never)]
    fn ask_rule(&mut self) -> Option<Psn> {
        with_rule!(&mut self.rule, rule => rule.next(&self.flight.account()))
    }

    /// The packet to resend now, if any; the caller transmits it.
    // Rule 1, second half: the cap does not hold a retransmission back, and it has priority over new packets.
    #[inline]
    pub fn poll_retransmit(&mut self) -> Option<Psn> {
        if self.rule.is_idle() { None } else { self.resend() }
    }

    #[inline(never)]
    fn resend(&mut self) -> Option<Psn> {
        let psn = with_rule!(&mut self.rule, rule => self.flight.resend(rule))?;
        self.counters.retransmitted += 1;
        Some(psn)
    }

    /// A cumulative acknowledgement: every packet before `cumulative` has arrived.
    #[inline]
    pub fn on_ack(&mut self, cumulative: Psn) -> AckOutcome {
        let Some((newly_acked, newly_arrived)) = self.advance(cumulative) else {
            return AckOutcome::default();
        };
        let mut outcome = AckOutcome { newly_acked, newly_arrived, ..AckOutcome::default() };
        if self.flight.is_disturbed() || !self.rule.is_idle() {
            self.reconsider(&mut outcome);
        }
        outcome
    }

    #[inline(never)]
    fn reconsider(&mut self, outcome: &mut AckOutcome) {
        with_rule!(&mut self.rule, rule => self.flight.on_progress(rule, outcome));
    }

    /// A negative acknowledgement: every packet before `cumulative` has arrived, `cumulative` itself has not, and neither
    /// are the `run_len` packets that end with `sack_high` missing. A `run_len` of 0 counts as 1.
    pub fn on_nack(&mut self, cumulative: Psn, sack_high: Psn, run_len: u32) -> AckOutcome {
        // The hardware shifts by the difference without looking; a packet from the network may say anything.
        if !sack_high.is_before(self.next_to_send()) || !cumulative.is_before(sack_high) {
            self.counters.invalid += 1;
            return AckOutcome::default();
        }
        let Some((newly_acked, newly_arrived)) = self.advance(cumulative) else {
            return AckOutcome::default();
        };
        let mut outcome = AckOutcome { newly_acked, newly_arrived, ..AckOutcome::default() };
        // Nothing at or before the front can have been selectively acknowledged: a later cumulative acknowledgement would
        // have passed it. The rest of an overtaken NACK is known already.
        let height = sack_high.distance_from(self.first_unacknowledged());
        let (sack_high, run) = match height > 0 {
            true => (Some(sack_high), run_len.clamp(1, height as u32)),
            false => (None, 0),
        };
        with_rule!(&mut self.rule, rule => self.flight.on_sack(rule, sack_high, run, &mut outcome));
        outcome
    }

    /// Every packet before `cumulative` has arrived, and of `psn` the headers alone: a switch had no room for the rest. The packet is
    /// resent at once; the way still delivers, so nothing else is presumed lost.
    pub fn on_trimmed(&mut self, cumulative: Psn, psn: Psn) -> AckOutcome {
        if !psn.is_before(self.next_to_send()) || psn.is_before(cumulative) {
            self.counters.invalid += 1;
            return AckOutcome::default();
        }
        let mut outcome = self.on_ack(cumulative);
        let front = self.first_unacknowledged();
        if psn.is_before(front) || self.flight.sacked.contains(psn) {
            return outcome;
        }
        let account = self.flight.account();
        outcome.loss_detected |= with_rule!(&mut self.rule, rule => rule.on_trimmed(&account, psn));
        outcome
    }

    /// How long to wait for progress before [`on_timeout`](Self::on_timeout), as things stand.
    pub fn rto(&self) -> Duration {
        if self.in_flight() <= self.config.rto_low_in_flight_max {
            self.config.rto_low
        } else {
            self.config.rto_high
        }
    }

    /// Has one timeout from now on, however many packets are in flight.
    pub fn set_rto(&mut self, rto: Duration) {
        (self.config.rto_low, self.config.rto_high) = (rto, rto);
        self.config.rto_low_in_flight_max = 0;
    }

    /// Arms the timer: how long from now, or `None` to stop it as nothing is in flight. To be called when a packet leaves
    /// and no timer runs, after progress, and after a timeout.
    #[inline]
    pub fn arm_timeout(&mut self) -> Option<Duration> {
        let in_flight = self.in_flight();
        self.is_timer_quick = in_flight <= self.config.rto_low_in_flight_max;
        (in_flight > 0).then(|| self.rto())
    }

    /// The timer that was last armed has run out.
    pub fn on_timeout(&mut self) -> TimeoutOutcome {
        let in_flight = self.in_flight();
        if in_flight == 0 {
            return TimeoutOutcome::Idle;
        }
        // Rule 7 (IRN §3.1 and the authors' hardware code): the quick timer was armed while few packets were in flight; if
        // more have followed, queueing may explain the silence, and it goes on to RTO_high. The hardware extends for a second
        // reason, a rate cut more than fourfold, which the paper does not mention; it is left out.
        if self.is_timer_quick && in_flight > self.config.rto_low_in_flight_max {
            self.is_timer_quick = false;
            self.counters.timeouts_extended += 1;
            let rest = self.config.rto_high.as_nanos().saturating_sub(self.config.rto_low.as_nanos());
            return TimeoutOutcome::Extended(Duration::from_nanos(rest));
        }
        self.counters.timeouts += 1;
        with_rule!(&mut self.rule, rule => rule.on_timeout(&self.flight.account()));
        TimeoutOutcome::Resend
    }

    /// Moves the front; returns by how much (0 if it is stale) and how many packets of those were not selectively
    /// acknowledged before, or `None` if the acknowledgement is not to be believed.
    #[inline]
    fn advance(&mut self, cumulative: Psn) -> Option<(u32, u32)> {
        let steps = cumulative.distance_from(self.first_unacknowledged());
        if steps < 0 {
            self.counters.stale += 1;
            return Some((0, 0));
        }
        // Rule 8: the hardware lets an acknowledgement beyond `next_to_send` move `next_to_send`. On a real network such a
        // packet is forged or left over from an earlier connection: believing it would complete requests never sent.
        if steps as u32 > self.in_flight() {
            self.counters.invalid += 1;
            return None;
        }
        let steps = steps as u32;
        Some((steps, steps - self.flight.sacked.advance(cumulative)))
    }
}

/// The state on one line, for tests and traces.
impl fmt::Display for SenderWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f, Psn::new(0))
    }
}
