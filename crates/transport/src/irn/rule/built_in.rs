//! The rules that come with the crate, and the one that a sender has.

use super::super::config::{IrnConfig, LossRecovery};
use super::front_only::FrontOnly;
use super::go_back_n::GoBackN;
use super::selective::Selective;
use super::{Account, News, RecoveryAlgorithm, RecoveryRule, Repair};
use highwire_wire::Psn;

/// Stands for the packet that was resent last. No rule looks at it before it has sent one again.
const NOT_YET: Psn = Psn::new(0);

/// IRN's own rule: selective retransmission with SACK. A rule of another crate may start it and pass on to it what it does not change.
pub static SACK: RecoveryAlgorithm =
    RecoveryAlgorithm { name: "sack", start: &|config| Box::new(Selective::new(NOT_YET, config)) };

/// Selective retransmission without SACK.
pub static NO_SACK: RecoveryAlgorithm =
    RecoveryAlgorithm { name: "no-sack", start: &|config| Box::new(FrontOnly::new(NOT_YET, config)) };

/// Go-back-N. Under another name the receiver keeps what arrives early.
pub static GO_BACK_N: RecoveryAlgorithm =
    RecoveryAlgorithm { name: "go-back-n", start: &|config| Box::new(GoBackN::new(NOT_YET, config)) };

/// A sender's rule. Those of this crate are not behind a pointer: IRN's own is asked before each packet.
// With a tag of its own, for the same reason: a rule's spare bits would have to be decoded each time.
#[derive(Clone, Debug)]
#[repr(u8)]
pub(in crate::irn) enum Rule {
    Selective(Selective),
    FrontOnly(FrontOnly),
    GoBackN(GoBackN),
    Own(Distrusted),
}

/// Does something with the rule itself, whichever it is: the code is made for each, with all that a rule leaves to its trait.
macro_rules! with_rule {
    ($rule:expr, $inner:ident => $call:expr) => {
        match $rule {
            Rule::Selective($inner) => $call,
            Rule::FrontOnly($inner) => $call,
            Rule::GoBackN($inner) => $call,
            Rule::Own($inner) => $call,
        }
    };
}
pub(in crate::irn) use with_rule;

impl Rule {
    pub(in crate::irn) fn new(initial: Psn, config: &IrnConfig) -> Rule {
        match config.recovery {
            LossRecovery::SelectiveRepeat => Rule::Selective(Selective::new(initial, config)),
            LossRecovery::SelectiveWithoutSack => Rule::FrontOnly(FrontOnly::new(initial, config)),
            LossRecovery::GoBackN => Rule::GoBackN(GoBackN::new(initial, config)),
            LossRecovery::Own(choice) => Rule::Own(Distrusted(choice.start(config))),
        }
    }

    /// Whether it is this crate's and has nothing in mind: the case of nearly every packet.
    #[inline(always)]
    pub(in crate::irn) fn is_idle(&self) -> bool {
        match self {
            Rule::Selective(rule) => rule.is_idle(),
            Rule::FrontOnly(rule) => rule.repair == Repair::Idle,
            Rule::GoBackN(rule) => rule.repair == Repair::Idle,
            Rule::Own(_) => false,
        }
    }

    /// What the rule will do next, and the packet that it has in mind; nothing of another crate's rule.
    pub(in crate::irn) fn step(&self) -> Option<(Repair, Psn)> {
        match self {
            Rule::Selective(rule) => Some((rule.repair, rule.retransmit_psn)),
            Rule::FrontOnly(rule) => Some((rule.repair, rule.retransmit_psn)),
            Rule::GoBackN(rule) => Some((rule.repair, rule.retransmit_psn)),
            Rule::Own(_) => None,
        }
    }
}

/// Another crate's rule. It may name any packet; only those that are missing leave.
#[derive(Clone, Debug)]
pub(in crate::irn) struct Distrusted(Box<dyn RecoveryRule>);

impl RecoveryRule for Distrusted {
    fn on_ack(&mut self, account: &Account<'_>, news: News) -> bool {
        self.0.on_ack(account, news)
    }

    fn on_trimmed(&mut self, account: &Account<'_>, psn: Psn) -> bool {
        self.0.on_trimmed(account, psn)
    }

    fn on_timeout(&mut self, account: &Account<'_>) {
        self.0.on_timeout(account);
    }

    fn next(&mut self, account: &Account<'_>) -> Option<Psn> {
        self.0.next(account).filter(|&psn| account.is_missing(psn))
    }

    fn on_resent(&mut self, account: &Account<'_>, psn: Psn) {
        self.0.on_resent(account, psn);
    }

    fn begins_repair(&self, psn: Psn) -> bool {
        self.0.begins_repair(psn)
    }

    fn repaired_since(&self, front: Psn) -> Option<Psn> {
        self.0.repaired_since(front)
    }

    fn heeds_progress(&self) -> bool {
        self.0.heeds_progress()
    }

    fn keeps_sacks(&self) -> bool {
        self.0.keeps_sacks()
    }
}
