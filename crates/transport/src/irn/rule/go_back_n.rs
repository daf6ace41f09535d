//! Go-back-N: everything from the cumulative acknowledgement on is resent (IRN §4.3, question 1). The receiver keeps nothing that
//! arrives early.

use super::super::config::IrnConfig;
use super::{Account, News, RecoveryRule, Repair};
use highwire_wire::Psn;

/// The state of a direction's repair.
#[derive(Clone, Debug)]
pub(in crate::irn) struct GoBackN {
    pub(in crate::irn) repair: Repair,
    pub(in crate::irn) retransmit_psn: Psn,
    /// Where the last pass began.
    went_back_to: Psn,
    reordering_packets: u32,
}

impl GoBackN {
    /// For packets from `initial` on.
    pub(super) fn new(initial: Psn, config: &IrnConfig) -> GoBackN {
        let reordering_packets = config.reordering_packets;
        GoBackN { repair: Repair::Idle, retransmit_psn: initial, went_back_to: initial, reordering_packets }
    }

    fn go_back(&mut self, account: &Account<'_>) {
        self.retransmit_psn = account.first_unacknowledged;
        self.went_back_to = self.retransmit_psn;
        self.repair = Repair::Resend;
    }

    /// A pass over everything unacknowledged is under way or its outcome unknown.
    fn continue_pass(&mut self, account: &Account<'_>, news: News) -> bool {
        let front = account.first_unacknowledged;
        if news.sack_high.is_some() && self.went_back_to.is_before(front) {
            // This pass lost a packet, too. NACKs caused by the pass before it stop where this pass began.
            self.go_back(account);
            return true;
        }
        if self.repair == Repair::Resend && self.retransmit_psn.is_before(front) {
            self.repair = Repair::Search;
        }
        false
    }
}

impl RecoveryRule for GoBackN {
    fn on_ack(&mut self, account: &Account<'_>, news: News) -> bool {
        let front = account.first_unacknowledged;
        if news.recovered {
            self.repair = Repair::Idle;
        }
        if account.in_recovery {
            return self.continue_pass(account, news);
        }
        if self.repair == Repair::Resend && self.retransmit_psn == front && front != account.next_to_send {
            return false;
        }
        let is_lost = news.sack_high.is_some() && account.is_passed(news.sack_high, self.reordering_packets);
        if is_lost {
            self.go_back(account);
        } else {
            self.repair = Repair::Idle;
        }
        is_lost
    }

    fn on_trimmed(&mut self, account: &Account<'_>, _psn: Psn) -> bool {
        let begins = !account.in_recovery && self.repair == Repair::Idle;
        if begins {
            self.go_back(account);
        }
        begins
    }

    fn on_timeout(&mut self, account: &Account<'_>) {
        self.go_back(account);
    }

    fn next(&mut self, account: &Account<'_>) -> Option<Psn> {
        if self.repair == Repair::Search {
            let (front, next) = (account.first_unacknowledged, self.retransmit_psn.next());
            let from = if next.is_before(front) { front } else { next };
            let is_in_flight = from.is_before(account.next_to_send);
            self.repair = if is_in_flight { Repair::Resend } else { Repair::Idle };
            self.retransmit_psn = if is_in_flight { from } else { self.retransmit_psn };
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
