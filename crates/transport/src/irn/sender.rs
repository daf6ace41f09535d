//! Which packets may be sent or must be resent: the sender's half of IRN (IRN §3.1, §3.2).
//!
//! The paper's prose leaves choices open that its authors made in the hardware code they published. Eight rules follow
//! from the two together; each is marked where it lives. Where the two disagree, or a rule would rely on an honest
//! network, the comment says what is done instead.
//!
//! Invariants: `next_to_send` is at most `cap` ahead of `first_unacknowledged`, modulo 2^24; only packets in between are marked
//! in the SACK window; while a loss is being repaired, `retransmit_psn` is the last packet resent or the next to be.

mod told;

use super::config::{IrnConfig, LossRecovery, PartialAcks};
use super::rule::{Account, News, RecoveryRule};
use super::sack::SackWindow;
use super::trimmed::Trimmed;
use highwire_stdx::Duration;
use highwire_wire::Psn;
use std::fmt;

/// One direction of a queue pair, as seen by the end that sends data.
#[derive(Clone, Debug)]
pub struct SenderWindow {
    /// Its front is the first unacknowledged packet.
    sacked: SackWindow,
    next_to_send: Psn,
    config: IrnConfig,
    repair: Repair,
    in_recovery: bool,
    is_timer_quick: bool,
    /// The last packet that was new when a packet was last resent.
    recovery_psn: Psn,
    retransmit_psn: Psn,
    /// The first packet that was new when a packet was last resent because of a SACK or a timeout.
    evident_psn: Psn,
    /// The scheduled packet is only presumed lost, because of a partial acknowledgement.
    is_presumed: bool,
    /// Where the last pass of go-back-N began.
    went_back_to: Psn,
    /// Packets whose headers alone arrived.
    trimmed: Trimmed,
    /// The rule of another crate that decides in the place of all above.
    own: Option<Box<dyn RecoveryRule>>,
    counters: SenderCounters,
}

/// The next step of loss recovery. The hardware keeps two flags, "retransmit" and "find a new hole", of which at most one
/// is ever set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    /// Nothing is known to be missing that was not resent already.
    Idle,
    /// `retransmit_psn` is to be resent.
    Resend,
    /// The first hole after `retransmit_psn` is to be resent, if there is one.
    Search,
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
            sacked: SackWindow::new(initial, config.cap),
            next_to_send: initial,
            config,
            repair: Repair::Idle,
            in_recovery: false,
            is_timer_quick: false,
            recovery_psn: initial,
            retransmit_psn: initial,
            evident_psn: initial,
            is_presumed: false,
            went_back_to: initial,
            trimmed: Trimmed::default(),
            own: match config.recovery {
                LossRecovery::Own(choice) => Some(choice.start(&config)),
                _ => None,
            },
            counters: SenderCounters::default(),
        }
    }

    /// The oldest packet that is not cumulatively acknowledged.
    #[inline]
    pub fn first_unacknowledged(&self) -> Psn {
        self.sacked.front()
    }

    /// The next packet that was never sent.
    #[inline]
    pub fn next_to_send(&self) -> Psn {
        self.next_to_send
    }

    /// Packets sent and not cumulatively acknowledged, selectively acknowledged ones included (IRN §3.2).
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.next_to_send.distance_from(self.sacked.front()) as u32
    }

    /// Whether a lost packet has been resent whose repair is not confirmed yet.
    pub fn is_in_recovery(&self) -> bool {
        self.in_recovery
    }

    /// The packets that have been selectively acknowledged.
    pub fn sacked(&self) -> &SackWindow {
        &self.sacked
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
        let psn = self.next_to_send;
        self.next_to_send = psn.next();
        psn
    }

    /// The packet to resend now, if any; calling it again gives the same answer.
    #[inline]
    pub fn peek_retransmit(&mut self) -> Option<Psn> {
        if self.own.is_some() {
            return self.ask_own();
        }
        if !self.trimmed.is_empty()
            && let Some(psn) = self.trimmed.next()
        {
            return Some(psn);
        }
        match self.repair {
            Repair::Idle => None,
            Repair::Resend => Some(self.retransmit_psn),
            Repair::Search => self.find_hole(),
        }
    }

    /// The packet to resend now, if any; the caller transmits it.
    // Rule 1, second half: the cap does not hold a retransmission back, and it has priority over new packets.
    #[inline]
    pub fn poll_retransmit(&mut self) -> Option<Psn> {
        let psn = self.peek_retransmit()?;
        if self.own.is_some() {
            self.on_retransmit_own(psn);
        } else if !self.trimmed.is_empty() && self.trimmed.next() == Some(psn) {
            self.on_retransmit_trimmed(psn);
        } else {
            self.on_retransmit();
        }
        Some(psn)
    }

    /// A cumulative acknowledgement: every packet before `cumulative` has arrived.
    #[inline]
    pub fn on_ack(&mut self, cumulative: Psn) -> AckOutcome {
        let Some((newly_acked, newly_arrived)) = self.advance(cumulative) else {
            return AckOutcome::default();
        };
        let mut outcome = AckOutcome { newly_acked, newly_arrived, ..AckOutcome::default() };
        let is_disturbed = self.in_recovery || self.repair != Repair::Idle || !self.sacked.is_empty();
        if is_disturbed || !self.trimmed.is_empty() || self.own.is_some() {
            self.reconsider(None, &mut outcome);
        }
        outcome
    }

    /// A negative acknowledgement: every packet before `cumulative` has arrived, `cumulative` itself has not, and neither
    /// are the `run_len` packets that end with `sack_high` missing. A `run_len` of 0 counts as 1.
    pub fn on_nack(&mut self, cumulative: Psn, sack_high: Psn, run_len: u32) -> AckOutcome {
        // The hardware shifts by the difference without looking; a packet from the network may say anything.
        if !sack_high.is_before(self.next_to_send) || !cumulative.is_before(sack_high) {
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
        let sack =
            (height > 0).then(|| Sack { high: sack_high, run: run_len.clamp(1, height.max(1) as u32) });
        let keeps_sacks =
            matches!(self.config.recovery, LossRecovery::SelectiveRepeat | LossRecovery::Own(_));
        if let Some(sack) = sack.filter(|_| keeps_sacks) {
            outcome.newly_sacked = self.sacked.insert_run(sack.high, sack.run);
            outcome.newly_arrived += outcome.newly_sacked;
        }
        self.reconsider(sack, &mut outcome);
        outcome
    }

    /// Every packet before `cumulative` has arrived, and of `psn` the headers alone: a switch had no room for the rest. The packet is
    /// resent at once; the way still delivers, so nothing else is presumed lost.
    pub fn on_trimmed(&mut self, cumulative: Psn, psn: Psn) -> AckOutcome {
        if !psn.is_before(self.next_to_send) || psn.is_before(cumulative) {
            self.counters.invalid += 1;
            return AckOutcome::default();
        }
        let mut outcome = self.on_ack(cumulative);
        let front = self.first_unacknowledged();
        if psn.is_before(front) || self.sacked.contains(psn) {
            return outcome;
        }
        if let Some(own) = &mut self.own {
            let account = Account {
                first_unacknowledged: front,
                next_to_send: self.next_to_send,
                sacked: &self.sacked,
            };
            outcome.loss_detected |= own.on_trimmed(&account, psn);
        } else if self.config.recovery == LossRecovery::SelectiveRepeat {
            outcome.loss_detected |= self.trimmed.name(psn);
        } else if !self.in_recovery && self.repair == Repair::Idle {
            self.resend_front();
            outcome.loss_detected = true;
        }
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
        if let Some(own) = &mut self.own {
            let first_unacknowledged = self.sacked.front();
            let next_to_send = self.next_to_send;
            own.on_timeout(&Account { first_unacknowledged, next_to_send, sacked: &self.sacked });
            return TimeoutOutcome::Resend;
        }
        self.trimmed.clear();
        self.resend_front();
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
        Some((steps, steps - self.sacked.advance(cumulative)))
    }

    /// Decides what to repair after the front or the SACK window has changed.
    fn reconsider(&mut self, sack: Option<Sack>, outcome: &mut AckOutcome) {
        let front = self.first_unacknowledged();
        if !self.trimmed.is_empty() {
            self.trimmed.forget(front, |psn| self.sacked.contains(psn));
        }
        if self.in_recovery && self.recovery_psn.is_before(front) {
            // Rule 3, second half (IRN §3.1): everything sent before the last retransmission has arrived.
            self.in_recovery = false;
            self.repair = Repair::Idle;
            outcome.recovered = true;
        }
        if !self.trimmed.is_empty() {
            self.take_as_resent(front);
        }
        if let Some(own) = &mut self.own {
            let account = Account {
                first_unacknowledged: front,
                next_to_send: self.next_to_send,
                sacked: &self.sacked,
            };
            let news = News { newly_acked: outcome.newly_acked, sack_high: sack.map(|sack| sack.high) };
            outcome.loss_detected |= own.on_ack(&account, news);
        } else if self.in_recovery {
            self.continue_recovery(front, sack, outcome);
        } else {
            self.look_for_loss(front, sack, outcome);
        }
    }

    fn continue_recovery(&mut self, front: Psn, sack: Option<Sack>, outcome: &mut AckOutcome) {
        if self.config.recovery == LossRecovery::GoBackN {
            self.continue_pass(front, sack, outcome);
        } else if outcome.newly_acked > 0
            && self.retransmit_psn.is_before(front)
            && !self.trimmed.was_resent(front)
            && self.may_presume(front, sack)
        {
            // Rule 6 (authors' hardware code): a partial acknowledgement stops at a packet that was sent before the last
            // retransmission and never resent. A packet that was resent and lost again is left to the timeout: a repeated
            // SACK above it may well have been sent before the retransmission arrived.
            // The hardware lets one presumption found the next. Once a NACK is lost and a packet resent in vain, every
            // acknowledgement then stops at a packet that is merely on its way, and each packet leaves twice for good; so
            // by default only packets that were sent before the last evident loss are presumed lost (`PartialAcks`).
            let is_presumed = !self.has_evidence(sack);
            self.resend_front();
            self.is_presumed = is_presumed;
        } else if self.repair == Repair::Resend && self.retransmit_psn.is_before(front) {
            // The scheduled packet has arrived.
            self.repair = Repair::Search;
        } else if let (Some(sack), LossRecovery::SelectiveRepeat) = (sack, self.config.recovery) {
            self.rethink_hole(sack);
        }
    }

    /// Whether the packet at which a partial acknowledgement stops may be taken for lost.
    fn may_presume(&self, front: Psn, sack: Option<Sack>) -> bool {
        if self.config.recovery == LossRecovery::SelectiveWithoutSack {
            return true;
        }
        match self.config.partial_acks {
            PartialAcks::Never => false,
            PartialAcks::Evident => {
                self.has_evidence(sack)
                    || front.add(self.config.reordering_packets).is_before(self.evident_psn)
            }
            PartialAcks::Hardware => true,
        }
    }

    /// Whether a packet is known to have arrived that is too far beyond the front to have overtaken it.
    #[inline]
    fn has_evidence(&self, sack: Option<Sack>) -> bool {
        let front = self.first_unacknowledged();
        let has_passed = |high: Psn| high.distance_from(front) > self.config.reordering_packets as i32;
        sack.is_some_and(|sack| has_passed(sack.high)) || self.sacked.highest().is_some_and(has_passed)
    }

    /// Go-back-N, while a pass over everything unacknowledged is under way or its outcome unknown.
    fn continue_pass(&mut self, front: Psn, sack: Option<Sack>, outcome: &mut AckOutcome) {
        if sack.is_some() && self.went_back_to.is_before(front) {
            // This pass lost a packet, too. NACKs caused by the pass before it stop where this pass began.
            self.resend_front();
            outcome.loss_detected = true;
        } else if self.repair == Repair::Resend && self.retransmit_psn.is_before(front) {
            self.repair = Repair::Search;
        }
    }

    /// Rule 5 (authors' hardware code): how a further SACK changes the hole to fill.
    fn rethink_hole(&mut self, sack: Sack) {
        if self.repair == Repair::Resend {
            if sack.covers(self.retransmit_psn) {
                self.repair = Repair::Search;
            }
        } else if self.sacked.highest() == Some(sack.high) {
            // Below any lower SACK, every hole has been found already.
            self.repair = Repair::Search;
        }
    }

    fn look_for_loss(&mut self, front: Psn, sack: Option<Sack>, outcome: &mut AckOutcome) {
        // Rule 2 (IRN §3.1): a NACK starts recovery at the cumulative acknowledgement; `in_recovery` follows when that packet
        // leaves. The hardware wants a second NACK if the first one also moves the cumulative acknowledgement, and forgets
        // SACKs above the recovery sequence when recovery ends. The paper calls a packet lost as soon as a higher one is
        // selectively acknowledged, so neither is copied.
        let is_lost = match self.config.recovery {
            LossRecovery::SelectiveRepeat => self.has_evidence(None),
            LossRecovery::Own(_) => false,
            LossRecovery::SelectiveWithoutSack | LossRecovery::GoBackN => {
                sack.is_some() && self.has_evidence(sack)
            }
        };
        let is_scheduled = self.repair == Repair::Resend && self.retransmit_psn == front;
        if is_scheduled && front != self.next_to_send {
            return;
        }
        if is_lost {
            self.resend_front();
            outcome.loss_detected = true;
        } else {
            // All packets that were to be resent have been acknowledged in the meantime.
            self.repair = Repair::Idle;
        }
    }

    fn resend_front(&mut self) {
        self.retransmit_psn = self.first_unacknowledged();
        self.went_back_to = self.retransmit_psn;
        self.repair = Repair::Resend;
        self.is_presumed = false;
    }

    fn on_retransmit(&mut self) {
        // Rule 2, second half (authors' hardware code): recovery begins when the packet is transmitted, not when it is
        // scheduled, for an acknowledgement in between may make it unnecessary.
        self.in_recovery = true;
        // Rule 3 (authors' hardware code): every retransmission moves the recovery sequence, not only the first.
        self.recovery_psn = self.next_to_send.sub(1);
        if !self.is_presumed {
            self.evident_psn = self.next_to_send;
        }
        self.is_presumed = false;
        // Rule 4 (authors' hardware code): go on to the next hole. It is searched when the next packet may leave, and so
        // knows of the SACKs that have come by then.
        self.repair = Repair::Search;
        self.counters.retransmitted += 1;
    }

    /// The packet that another crate's rule wants to be resent, if it is one that is missing.
    fn ask_own(&mut self) -> Option<Psn> {
        let front = self.sacked.front();
        let account =
            Account { first_unacknowledged: front, next_to_send: self.next_to_send, sacked: &self.sacked };
        let psn = self.own.as_mut()?.next(&account)?;
        let is_missing =
            !psn.is_before(front) && psn.is_before(self.next_to_send) && !self.sacked.contains(psn);
        is_missing.then_some(psn)
    }

    fn on_retransmit_own(&mut self, psn: Psn) {
        let account = Account {
            first_unacknowledged: self.sacked.front(),
            next_to_send: self.next_to_send,
            sacked: &self.sacked,
        };
        if let Some(own) = &mut self.own {
            own.on_resent(&account, psn);
        }
        (self.in_recovery, self.recovery_psn) = (true, self.next_to_send.sub(1));
        self.counters.retransmitted += 1;
    }

    /// A packet leaves again because its headers alone had arrived.
    fn on_retransmit_trimmed(&mut self, psn: Psn) {
        self.trimmed.on_resent(psn, self.next_to_send);
        self.counters.retransmitted += 1;
        if self.repair == Repair::Resend && self.retransmit_psn == psn {
            self.repair = Repair::Search;
        }
        self.take_as_resent(self.first_unacknowledged());
    }

    /// The front was resent because its headers alone had arrived: it is being repaired, as if a SACK had caused that.
    fn take_as_resent(&mut self, front: Psn) {
        if !self.in_recovery
            && let Some(new) = self.trimmed.resent_before(front)
        {
            self.in_recovery = true;
            self.recovery_psn = new.sub(1);
            (self.evident_psn, self.is_presumed) = (new, false);
            self.retransmit_psn = front;
            self.repair = Repair::Search;
        }
    }

    /// Whether a packet has arrived that is too far beyond this one to have overtaken it.
    fn is_overtaken(&self, hole: Psn) -> bool {
        let tolerated = self.config.reordering_packets as i32;
        self.sacked.highest().is_some_and(|highest| highest.distance_from(hole) > tolerated)
    }

    fn find_hole(&mut self) -> Option<Psn> {
        let from = self.retransmit_psn.next();
        let hole = match self.config.recovery {
            // Rule 4 (IRN §3.1): a packet is a hole only below a selectively acknowledged one.
            LossRecovery::SelectiveRepeat => {
                let mut hole = self.sacked.next_hole(from);
                while let Some(psn) = hole.filter(|&psn| self.trimmed.was_resent(psn)) {
                    hole = self.sacked.next_hole(psn.next());
                }
                hole.filter(|&hole| self.is_overtaken(hole))
            }
            LossRecovery::SelectiveWithoutSack | LossRecovery::Own(_) => None,
            LossRecovery::GoBackN => {
                let front = self.first_unacknowledged();
                let from = if from.is_before(front) { front } else { from };
                from.is_before(self.next_to_send).then_some(from)
            }
        };
        self.repair = if hole.is_some() { Repair::Resend } else { Repair::Idle };
        self.retransmit_psn = hole.unwrap_or(self.retransmit_psn);
        hole
    }
}

/// The state on one line, for tests and traces.
impl fmt::Display for SenderWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f, Psn::new(0))
    }
}

/// The selective half of a NACK, cut to what lies beyond the front.
#[derive(Clone, Copy)]
struct Sack {
    high: Psn,
    run: u32,
}

impl Sack {
    fn covers(self, psn: Psn) -> bool {
        let below = self.high.distance_from(psn);
        below >= 0 && (below as u32) < self.run
    }
}
