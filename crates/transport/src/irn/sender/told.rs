//! The sender's state, as a card would store it and as a person reads it.

use super::super::state::{RepairStep, SenderState};
use super::{Repair, SenderWindow};
use highwire_wire::Psn;
use std::fmt;

impl SenderWindow {
    /// Everything that a card would store, but the SACK window.
    pub(in crate::irn) fn copy_state(&self) -> SenderState {
        // `went_back_to` serves go-back-N, which IRN is compared with, `trimmed` a network that trims, and `own` another
        // crate's rule; the rest is no state of the protocol.
        let SenderWindow {
            sacked,
            next_to_send,
            config: _,
            repair,
            in_recovery,
            is_timer_quick,
            recovery_psn,
            retransmit_psn,
            evident_psn,
            is_presumed,
            went_back_to: _,
            trimmed: _,
            own: _,
            counters: _,
        } = self;
        SenderState {
            first_unacknowledged: sacked.front(),
            next_to_send: *next_to_send,
            retransmit: *retransmit_psn,
            recovery: *recovery_psn,
            repair: match repair {
                Repair::Idle => RepairStep::Idle,
                Repair::Resend => RepairStep::Resend,
                Repair::Search => RepairStep::Search,
            },
            in_recovery: *in_recovery,
            is_timer_quick: *is_timer_quick,
            evident: *evident_psn,
            is_presumed: *is_presumed,
        }
    }

    /// The state on one line, with PSNs counted from `origin`.
    pub(in crate::irn) fn describe(&self, out: &mut dyn fmt::Write, origin: Psn) -> fmt::Result {
        let n = |psn: Psn| psn.sub(origin.value()).value();
        write!(out, "{}..{}", n(self.first_unacknowledged()), n(self.next_to_send))?;
        if !self.sacked.is_empty() {
            out.write_str(" sacked")?;
            self.sacked.iter().try_for_each(|psn| write!(out, " {}", n(psn)))?;
        }
        if self.in_recovery {
            write!(out, " | recovery to {}", n(self.recovery_psn))?;
        }
        if let Some(psn) = self.trimmed.next() {
            write!(out, " | trimmed {}", n(psn))?;
        }
        match self.repair {
            Repair::Idle => Ok(()),
            Repair::Resend => write!(out, " | resend {}", n(self.retransmit_psn)),
            Repair::Search => write!(out, " | search after {}", n(self.retransmit_psn)),
        }
    }
}
