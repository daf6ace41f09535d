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

/// A sender's rule. IRN's own is asked before each packet, and so is not behind a pointer.
#[derive(Clone, Debug)]
pub(in crate::irn) enum Rule {
    Selective(Selective),
    FrontOnly(FrontOnly),
    GoBackN(GoBackN),
    Own(Box<dyn RecoveryRule>),
}

impl Rule {
    pub(in crate::irn) fn new(initial: Psn, config: &IrnConfig) -> Rule {
        match config.recovery {
            LossRecovery::SelectiveRepeat => Rule::Selective(Selective::new(initial, config)),
            LossRecovery::SelectiveWithoutSack => Rule::FrontOnly(FrontOnly::new(initial, config)),
            LossRecovery::GoBackN => Rule::GoBackN(GoBackN::new(initial, config)),
            LossRecovery::Own(choice) => Rule::Own(choice.start(config)),
        }
    }

    /// Whether it is IRN's own and has nothing in mind: the case of nearly every packet.
    #[inline(always)]
    pub(in crate::irn) fn is_idle(&self) -> bool {
        matches!(self, Rule::Selective(rule) if rule.is_idle())
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

macro_rules! pass_on {
    ($rule:expr, $inner:ident => $call:expr) => {
        match $rule {
            Rule::Selective($inner) => $call,
            Rule::FrontOnly($inner) => $call,
            Rule::GoBackN($inner) => $call,
            Rule::Own($inner) => $call,
        }
    };
}

impl RecoveryRule for Rule {
    #[inline]
    fn on_ack(&mut self, account: &Account<'_>, news: News) -> bool {
        pass_on!(self, rule => rule.on_ack(account, news))
    }

    #[inline]
    fn on_trimmed(&mut self, account: &Account<'_>, psn: Psn) -> bool {
        pass_on!(self, rule => rule.on_trimmed(account, psn))
    }

    #[inline]
    fn on_timeout(&mut self, account: &Account<'_>) {
        pass_on!(self, rule => rule.on_timeout(account));
    }

    #[inline]
    fn next(&mut self, account: &Account<'_>) -> Option<Psn> {
        pass_on!(self, rule => rule.next(account))
    }

    #[inline]
    fn on_resent(&mut self, account: &Account<'_>, psn: Psn) {
        pass_on!(self, rule => rule.on_resent(account, psn));
    }

    #[inline]
    fn begins_repair(&self, psn: Psn) -> bool {
        pass_on!(self, rule => rule.begins_repair(psn))
    }

    #[inline]
    fn repaired_since(&self, front: Psn) -> Option<Psn> {
        pass_on!(self, rule => rule.repaired_since(front))
    }

    #[inline]
    fn heeds_progress(&self) -> bool {
        pass_on!(self, rule => rule.heeds_progress())
    }

    #[inline]
    fn keeps_sacks(&self) -> bool {
        pass_on!(self, rule => rule.keeps_sacks())
    }
}
