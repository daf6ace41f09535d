//! IRN's rule: selective retransmission, guided by the SACK bitmap (IRN §3.1).
//!
//! The paper's prose leaves choices open that its authors made in the hardware code they published. Eight rules follow from the two
//! together; each is marked where it lives, here or in [`SenderWindow`](super::super::SenderWindow). Where the two disagree, or a rule
//! would rely on an honest network, the comment says what is done instead.
//!
//! Invariant: while a loss is being repaired, `retransmit_psn` is the last packet resent or the next to be.

use super::super::config::{IrnConfig, PartialAcks};
use super::super::trimmed::Trimmed;
use super::{Account, News, RecoveryRule, Repair};
use highwire_wire::Psn;

/// The state of a direction's repair.
#[derive(Clone, Debug)]
pub(in crate::irn) struct Selective {
    pub(in crate::irn) repair: Repair,
    pub(in crate::irn) retransmit_psn: Psn,
    /// The first packet that was new when a packet was last resent because of a SACK or a timeout.
    evident_psn: Psn,
    /// The scheduled packet is only presumed lost, because of a partial acknowledgement.
    is_presumed: bool,
    /// Packets whose headers alone arrived.
    pub(in crate::irn) trimmed: Trimmed,
    partial_acks: PartialAcks,
    reordering_packets: u32,
}

impl Selective {
    /// For packets from `initial` on.
    pub(super) fn new(initial: Psn, config: &IrnConfig) -> Selective {
        Selective {
            repair: Repair::Idle,
            retransmit_psn: initial,
            evident_psn: initial,
            is_presumed: false,
            trimmed: Trimmed::default(),
            partial_acks: config.partial_acks,
            reordering_packets: config.reordering_packets,
        }
    }

    /// Everything that a card would store beside the packet to resend: what founds presumptions, and whether one is under way.
    pub(in crate::irn) fn evidence(&self) -> (Psn, bool) {
        // Each field must be listed: a new one does not compile until it is.
        let Selective {
            repair: _,
            retransmit_psn: _,
            evident_psn,
            is_presumed,
            trimmed: _,
            partial_acks: _,
            reordering_packets: _,
        } = self;
        (*evident_psn, *is_presumed)
    }

    /// Whether nothing is to be resent.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.repair == Repair::Idle && self.trimmed.is_empty()
    }

    fn resend_front(&mut self, account: &Account<'_>) {
        self.retransmit_psn = account.first_unacknowledged;
        self.repair = Repair::Resend;
        self.is_presumed = false;
    }

    #[inline]
    fn continue_recovery(&mut self, account: &Account<'_>, news: News) {
        let front = account.first_unacknowledged;
        if news.newly_acked > 0
            && self.retransmit_psn.is_before(front)
            && !self.trimmed.was_resent(front)
            && self.may_presume(account, news)
        {
            // Rule 6 (authors' hardware code): a partial acknowledgement stops at a packet that was sent before the last
            // retransmission and never resent. A packet that was resent and lost again is left to the timeout: a repeated
            // SACK above it may well have been sent before the retransmission arrived.
            // The hardware lets one presumption found the next. Once a NACK is lost and a packet resent in vain, every
            // acknowledgement then stops at a packet that is merely on its way, and each packet leaves twice for good; so
            // by default only packets that were sent before the last evident loss are presumed lost (`PartialAcks`).
            let is_presumed = !account.is_passed(news.sack_high, self.reordering_packets);
            self.resend_front(account);
            self.is_presumed = is_presumed;
        } else if self.repair == Repair::Resend && self.retransmit_psn.is_before(front) {
            // The scheduled packet has arrived.
            self.repair = Repair::Search;
        } else if news.sack_high.is_some() {
            self.rethink_hole(account, news);
        }
    }

    /// Whether the packet at which a partial acknowledgement stops may be taken for lost.
    fn may_presume(&self, account: &Account<'_>, news: News) -> bool {
        match self.partial_acks {
            PartialAcks::Never => false,
            PartialAcks::Evident => {
                account.is_passed(news.sack_high, self.reordering_packets)
                    || account.first_unacknowledged.add(self.reordering_packets).is_before(self.evident_psn)
            }
            PartialAcks::Hardware => true,
        }
    }

    /// Rule 5 (authors' hardware code): how a further SACK changes the hole to fill.
    fn rethink_hole(&mut self, account: &Account<'_>, news: News) {
        if self.repair == Repair::Resend {
            if news.covers(self.retransmit_psn) {
                self.repair = Repair::Search;
            }
        } else if account.sacked.highest() == news.sack_high {
            // Below any lower SACK, every hole has been found already.
            self.repair = Repair::Search;
        }
    }

    fn look_for_loss(&mut self, account: &Account<'_>) -> bool {
        // Rule 2 (IRN §3.1): a NACK starts recovery at the cumulative acknowledgement; recovery itself follows when that packet
        // leaves. The hardware wants a second NACK if the first one also moves the cumulative acknowledgement, and forgets
        // SACKs above the recovery sequence when recovery ends. The paper calls a packet lost as soon as a higher one is
        // selectively acknowledged, so neither is copied.
        let front = account.first_unacknowledged;
        if self.repair == Repair::Resend && self.retransmit_psn == front && front != account.next_to_send {
            return false;
        }
        if account.is_passed(None, self.reordering_packets) {
            self.resend_front(account);
            return true;
        }
        // All packets that were to be resent have been acknowledged in the meantime.
        self.repair = Repair::Idle;
        false
    }

    /// If the front was resent because its headers alone had arrived, it is being repaired, as if a SACK had caused that.
    fn take_as_resent(&mut self, account: &Account<'_>) -> bool {
        let front = account.first_unacknowledged;
        let Some(new) = self.trimmed.resent_before(front).filter(|_| !account.in_recovery) else {
            return false;
        };
        (self.evident_psn, self.is_presumed) = (new, false);
        self.retransmit_psn = front;
        self.repair = Repair::Search;
        true
    }

    /// Rule 4 (IRN §3.1): a packet is a hole only below a selectively acknowledged one.
    #[inline]
    fn find_hole(&mut self, account: &Account<'_>) -> Option<Psn> {
        let mut hole = account.sacked.next_hole(self.retransmit_psn.next());
        while let Some(psn) = hole.filter(|&psn| self.trimmed.was_resent(psn)) {
            hole = account.sacked.next_hole(psn.next());
        }
        // A packet that was merely overtaken is no hole.
        let tolerated = self.reordering_packets as i32;
        let highest = account.sacked.highest();
        let hole = hole.filter(|&psn| highest.is_some_and(|highest| highest.distance_from(psn) > tolerated));
        self.repair = if hole.is_some() { Repair::Resend } else { Repair::Idle };
        self.retransmit_psn = hole.unwrap_or(self.retransmit_psn);
        hole
    }

    /// Whether this packet is the next one to leave because its headers alone had arrived.
    #[inline]
    fn is_trimmed(&self, psn: Psn) -> bool {
        !self.trimmed.is_empty() && self.trimmed.next() == Some(psn)
    }
}

impl RecoveryRule for Selective {
    #[inline(always)]
    fn on_ack(&mut self, account: &Account<'_>, news: News) -> bool {
        let mut in_recovery = account.in_recovery;
        if news.recovered {
            self.repair = Repair::Idle;
        }
        if !self.trimmed.is_empty() {
            self.trimmed.forget(account.first_unacknowledged, |psn| account.sacked.contains(psn));
            in_recovery |= self.take_as_resent(account);
        }
        if in_recovery {
            self.continue_recovery(account, news);
            return false;
        }
        self.look_for_loss(account)
    }

    #[inline]
    fn on_trimmed(&mut self, _account: &Account<'_>, psn: Psn) -> bool {
        self.trimmed.name(psn)
    }

    #[inline]
    fn on_timeout(&mut self, account: &Account<'_>) {
        self.trimmed.clear();
        self.resend_front(account);
    }

    #[inline(always)]
    fn next(&mut self, account: &Account<'_>) -> Option<Psn> {
        if !self.trimmed.is_empty()
            && let Some(psn) = self.trimmed.next()
        {
            return Some(psn);
        }
        match self.repair {
            Repair::Idle => None,
            Repair::Resend => Some(self.retransmit_psn),
            Repair::Search => self.find_hole(account),
        }
    }

    #[inline]
    fn on_resent(&mut self, account: &Account<'_>, psn: Psn) {
        if self.is_trimmed(psn) {
            self.trimmed.on_resent(psn, account.next_to_send);
            if self.repair == Repair::Resend && self.retransmit_psn == psn {
                self.repair = Repair::Search;
            }
            self.take_as_resent(account);
            return;
        }
        if !self.is_presumed {
            self.evident_psn = account.next_to_send;
        }
        self.is_presumed = false;
        // Rule 4 (authors' hardware code): go on to the next hole. It is searched when the next packet may leave, and so
        // knows of the SACKs that have come by then.
        self.repair = Repair::Search;
    }

    #[inline]
    fn begins_repair(&self, psn: Psn) -> bool {
        !self.is_trimmed(psn)
    }

    #[inline]
    fn repaired_since(&self, front: Psn) -> Option<Psn> {
        if self.trimmed.is_empty() { None } else { self.trimmed.resent_before(front) }
    }

    #[inline]
    fn heeds_progress(&self) -> bool {
        !self.is_idle()
    }
}
