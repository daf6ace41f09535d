//! Fast retransmit and fast recovery: by SACKs (RFC 6675), or without them (NewReno, RFC 6582).

use super::{Choice, DUP_THRESH, Phase, Sender};

impl Sender {
    /// A segment arrived beyond the oldest unacknowledged one.
    pub(super) fn on_duplicate(&mut self) {
        self.duplicates += 1;
        match self.phase {
            Phase::Open if self.is_loss_evident() => self.enter_recovery(),
            // RFC 6582 §3.2, step 4: each duplicate is a segment that has left the network.
            Phase::Recovery { .. } if !self.config.sack => self.cwnd += self.mss(),
            _ => {}
        }
    }

    /// RFC 6675 §5, steps 1 and 2; RFC 6582 §3.2, step 2.
    fn is_loss_evident(&self) -> bool {
        if !self.config.sack {
            return self.duplicates >= DUP_THRESH && (self.una > self.recover || self.recover == 0);
        }
        let is_lost = self.board.lost_before(self.config.mss).is_some_and(|edge| self.una < edge);
        self.duplicates >= DUP_THRESH || is_lost
    }

    /// RFC 6675 §5, step 4; RFC 6582 §3.2, steps 2 and 3.
    fn enter_recovery(&mut self) {
        self.counters.recoveries += 1;
        self.phase = Phase::Recovery { until: self.next };
        self.recover = self.next;
        self.ssthresh = self.halved_flight();
        self.cwnd = self.ssthresh;
        if !self.config.sack {
            self.cwnd += u64::from(DUP_THRESH) * self.mss();
        }
        self.resent_to = self.una;
        self.rescued_to = None;
        self.is_partial = false;
        self.must_resend = true;
    }

    pub(super) fn leave_recovery(&mut self) {
        self.phase = Phase::Open;
        self.resent_to = self.una;
        // RFC 6582 §3.2, step 3: the window is deflated, to prevent a burst.
        self.cwnd = if self.config.sack {
            self.ssthresh
        } else {
            self.ssthresh.min(self.in_flight().max(self.mss()) + self.mss())
        };
    }

    /// Some of the segments in flight when recovery began are still missing. Returns whether to restart the
    /// timer.
    pub(super) fn on_partial(&mut self, acknowledged: u64) -> bool {
        if self.config.sack {
            return true;
        }
        // RFC 6582 §3.2, step 3: the next hole is resent at once, and the window shrinks by what left it. Only the first
        // partial acknowledgement restarts the timer, lest many losses be repaired one round trip each.
        self.must_resend = true;
        self.cwnd = self.cwnd.saturating_sub(acknowledged).max(self.mss());
        if acknowledged >= self.mss() {
            self.cwnd += self.mss();
        }
        !std::mem::replace(&mut self.is_partial, true)
    }

    /// `NextSeg` (RFC 6675 §4).
    pub(super) fn next_in_recovery(&mut self, until: u64) -> Option<Choice> {
        let from = self.resent_to.max(self.una);
        let highest = self.board.highest().unwrap_or(self.una);
        let lost = self.board.lost_before(self.config.mss).unwrap_or(self.una);
        // Rule 1: lost bytes. Rule 2: new data. Rule 3: missing bytes, even if not evidently lost.
        let missing = |to| self.board.gap(from, to).map(|gap| Choice::at(gap.0));
        missing(lost)
            .or_else(|| self.new_data(0, u64::MAX))
            .or_else(|| missing(highest))
            .or_else(|| self.rescue(until))
    }

    /// Rule 4: once per recovery, the last segment that is not known to have arrived, so that the loss of a tail need not
    /// wait for the timer.
    fn rescue(&mut self, until: u64) -> Option<Choice> {
        if self.rescued_to.is_some_and(|to| self.una <= to) {
            return None;
        }
        let (start, end) = self.board.last_gap(self.una, self.next)?;
        self.rescued_to = Some(until);
        Some(Choice { offset: start.max(end.saturating_sub(self.mss())), is_rescue: true })
    }

    /// `SetPipe` (RFC 6675 §4): the unacknowledged bytes that are not lost, plus those that were resent.
    pub(super) fn measure_pipe(&mut self) {
        let lost = match self.phase {
            Phase::Loss { until } => until,
            Phase::Recovery { .. } | Phase::Open if self.config.sack => {
                self.board.lost_before(self.config.mss).unwrap_or(self.una)
            }
            _ => self.una,
        };
        self.pipe = self.board.unmarked(lost.max(self.una), self.next)
            + self.board.unmarked(self.una, self.resent_to);
    }
}
