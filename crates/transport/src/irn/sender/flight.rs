//! What is in flight, and what passes between it and the rule that decides what is sent again.
//!
//! Each function is made for each rule, so that what a rule leaves to its trait costs nothing.

use super::super::rule::{Account, News, RecoveryRule};
use super::super::sack::SackWindow;
use super::AckOutcome;
use highwire_wire::Psn;

/// The account of one direction.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// Its front is the first unacknowledged packet.
    pub(super) sacked: SackWindow,
    pub(super) next_to_send: Psn,
    pub(super) in_recovery: bool,
    /// The last packet that was new when a packet was last resent.
    pub(super) recovery_psn: Psn,
}

impl Flight {
    /// Nothing is in flight, and the first packet will be `initial`.
    pub(super) fn new(initial: Psn, cap: u32) -> Flight {
        let sacked = SackWindow::new(initial, cap);
        Flight { sacked, next_to_send: initial, in_recovery: false, recovery_psn: initial }
    }

    /// Packets sent and not cumulatively acknowledged.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.next_to_send.distance_from(self.sacked.front()) as u32
    }

    /// Whether a packet is known to be missing, or a repair is under way.
    #[inline]
    pub(super) fn is_disturbed(&self) -> bool {
        self.in_recovery || !self.sacked.is_empty()
    }

    /// What the rule may see.
    #[inline]
    pub(super) fn account(&self) -> Account<'_> {
        Account {
            first_unacknowledged: self.sacked.front(),
            next_to_send: self.next_to_send,
            sacked: &self.sacked,
            in_recovery: self.in_recovery,
        }
    }

    /// The front has moved, or an acknowledgement came again.
    pub(super) fn on_progress<R: RecoveryRule>(&mut self, rule: &mut R, outcome: &mut AckOutcome) {
        if self.is_disturbed() || rule.heeds_progress() {
            self.reconsider(rule, None, 0, outcome);
        }
    }

    /// The front may have moved, and the `run` packets that end with `high` have arrived, if there is one beyond it.
    pub(super) fn on_sack<R: RecoveryRule>(
        &mut self,
        rule: &mut R,
        high: Option<Psn>,
        run: u32,
        outcome: &mut AckOutcome,
    ) {
        let Some(last) = high else {
            self.on_progress(rule, outcome);
            return;
        };
        if rule.keeps_sacks() {
            outcome.newly_sacked = self.sacked.insert_run(last, run);
            outcome.newly_arrived += outcome.newly_sacked;
        }
        self.reconsider(rule, high, run, outcome);
    }

    /// Lets the rule decide what to repair after the front or the SACK window has changed.
    #[inline(always)]
    fn reconsider<R: RecoveryRule>(
        &mut self,
        rule: &mut R,
        sack_high: Option<Psn>,
        sack_run: u32,
        outcome: &mut AckOutcome,
    ) {
        // Rule 3, second half (IRN §3.1): everything sent before the last retransmission has arrived.
        let recovered = self.in_recovery && self.recovery_psn.is_before(self.sacked.front());
        self.in_recovery &= !recovered;
        outcome.recovered = recovered;
        let news = News { newly_acked: outcome.newly_acked, sack_high, sack_run, recovered };
        outcome.loss_detected |= rule.on_ack(&self.account(), news);
        self.take_as_resent(rule);
    }

    /// The packet that the rule wants to resend leaves, if there is one.
    pub(super) fn resend<R: RecoveryRule>(&mut self, rule: &mut R) -> Option<Psn> {
        let psn = rule.next(&self.account())?;
        let begins = rule.begins_repair(psn);
        rule.on_resent(&self.account(), psn);
        if begins {
            // Rule 2, second half (authors' hardware code): recovery begins when the packet is transmitted, not when it is
            // scheduled, for an acknowledgement in between may make it unnecessary.
            self.in_recovery = true;
            // Rule 3 (authors' hardware code): every retransmission moves the recovery sequence, not only the first.
            self.recovery_psn = self.next_to_send.sub(1);
        }
        self.take_as_resent(rule);
        Some(psn)
    }

    /// Recovery begins with a packet that was resent without beginning it, once that is the front.
    #[inline]
    fn take_as_resent<R: RecoveryRule>(&mut self, rule: &R) {
        if !self.in_recovery
            && let Some(new) = rule.repaired_since(self.sacked.front())
        {
            (self.in_recovery, self.recovery_psn) = (true, new.sub(1));
        }
    }
}
