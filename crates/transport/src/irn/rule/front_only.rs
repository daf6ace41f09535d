//! Selective retransmission without SACK: only the packet at the cumulative acknowledgement is resent (IRN §4.3, question 2).

use super::super::config::IrnConfig;
use super::{Account, News, RecoveryRule, Repair};
use highwire_wire::Psn;

/// The state of a direction's repair.
#[derive(Clone, Debug)]
pub(in crate::irn) struct FrontOnly {
    pub(in crate::irn) repair: Repair,
    pub(in crate::irn) retransmit_psn: Psn,
    reordering_packets: u32,
}

impl FrontOnly {
    /// For packets from `initial` on.
    pub(super) fn new(initial: Psn, config: &IrnConfig) -> FrontOnly {
        let reordering_packets = config.reordering_packets;
        FrontOnly { repair: Repair::Idle, retransmit_psn: initial, reordering_packets }
    }

    fn resend_front(&mut self, account: &Account<'_>) {
        self.retransmit_psn = account.first_unacknowledged;
        self.repair = Repair::Resend;
    }
}

impl RecoveryRule for FrontOnly {
    fn on_ack(&mut self, account: &Account<'_>, news: News) -> bool {
        let front = account.first_unacknowledged;
        if news.recovered {
            self.repair = Repair::Idle;
        }
        if account.in_recovery {
            // Nothing else would tell of a second loss in the window.
            if news.newly_acked > 0 && self.retransmit_psn.is_before(front) {
                self.resend_front(account);
            } else if self.repair == Repair::Resend && self.retransmit_psn.is_before(front) {
                self.repair = Repair::Search;
            }
            return false;
        }
        if self.repair == Repair::Resend && self.retransmit_psn == front && front != account.next_to_send {
            return false;
        }
        let is_lost = news.sack_high.is_some() && account.is_passed(news.sack_high, self.reordering_packets);
        if is_lost {
            self.resend_front(account);
        } else {
            self.repair = Repair::Idle;
        }
        is_lost
    }

    fn on_trimmed(&mut self, account: &Account<'_>, _psn: Psn) -> bool {
        let begins = !account.in_recovery && self.repair == Repair::Idle;
        if begins {
            self.resend_front(account);
        }
        begins
    }

    fn on_timeout(&mut self, account: &Account<'_>) {
        self.resend_front(account);
    }

    fn next(&mut self, _account: &Account<'_>) -> Option<Psn> {
        if self.repair == Repair::Search {
            self.repair = Repair::Idle;
        }
        (self.repair == Repair::Resend).then_some(self.retransmit_psn)
    }

    fn on_resent(&mut self, _account: &Account<'_>, _psn: Psn) {
        self.repair = Repair::Search;
    }

    fn heeds_progress(&self) -> bool {
        self.repair != Repair::Idle
    }

    fn keeps_sacks(&self) -> bool {
        false
    }
}
