//! The sender's state, as a card would store it and as a person reads it.

use super::super::rule::{Repair, Rule};
use super::super::state::{RepairStep, SenderState};
use super::{Flight, SenderWindow};
use highwire_wire::Psn;
use std::fmt;

impl SenderWindow {
    /// Everything that a card would store, but the SACK window.
    pub(in crate::irn) fn copy_state(&self) -> SenderState {
        // The rest is no state of the protocol.
        let SenderWindow { flight, rule, config: _, is_timer_quick, counters: _ } = self;
        let Flight { sacked, next_to_send, in_recovery, recovery_psn } = flight;
        // A card has IRN's rule. `trimmed` serves a network that trims, and what was copied from `config` never changes.
        let (repair, retransmit) = rule.step().unwrap_or((Repair::Idle, *recovery_psn));
        let (evident, is_presumed) = match rule {
            Rule::Selective(rule) => rule.evidence(),
            _ => (*recovery_psn, false),
        };
        SenderState {
            first_unacknowledged: sacked.front(),
            next_to_send: *next_to_send,
            retransmit,
            recovery: *recovery_psn,
            repair: match repair {
                Repair::Idle => RepairStep::Idle,
                Repair::Resend => RepairStep::Resend,
                Repair::Search => RepairStep::Search,
            },
            in_recovery: *in_recovery,
            is_timer_quick: *is_timer_quick,
            evident,
            is_presumed,
        }
    }

    /// The state on one line, with PSNs counted from `origin`.
    pub(in crate::irn) fn describe(&self, out: &mut dyn fmt::Write, origin: Psn) -> fmt::Result {
        let n = |psn: Psn| psn.sub(origin.value()).value();
        write!(out, "{}..{}", n(self.first_unacknowledged()), n(self.next_to_send()))?;
        if !self.sacked().is_empty() {
            out.write_str(" sacked")?;
            self.sacked().iter().try_for_each(|psn| write!(out, " {}", n(psn)))?;
        }
        if self.flight.in_recovery {
            write!(out, " | recovery to {}", n(self.flight.recovery_psn))?;
        }
        if let Rule::Selective(rule) = &self.rule
            && let Some(psn) = rule.trimmed.next()
        {
            write!(out, " | trimmed {}", n(psn))?;
        }
        match self.rule.step() {
            None | Some((Repair::Idle, _)) => Ok(()),
            Some((Repair::Resend, psn)) => write!(out, " | resend {}", n(psn)),
            Some((Repair::Search, psn)) => write!(out, " | search after {}", n(psn)),
        }
    }
}
