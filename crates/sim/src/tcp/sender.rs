//! The half of a connection that sends: window, recovery, timer (RFC 5681, 6298, 6582, 6675, 3042).
//!
//! One rule serves all phases: a segment may leave while the pipe, the bytes believed to be in the network,
//! leaves room for it in the congestion window. The phases differ in that belief and in the next segment.
//! After a timeout everything sent before it is believed lost, in SACK-based recovery the segments that the
//! scoreboard shows as lost; NewReno knows no scoreboard and lets duplicate acknowledgements inflate its
//! window instead.
//!
//! Invariants: `una <= resent_to <= next`; the timer runs exactly while something is unacknowledged.

mod recovery;

use highwire_stdx::{Duration, Instant};
use highwire_transport::irn::RetransmissionTimeout;
use std::collections::VecDeque;

use super::scoreboard::{DUP_THRESH, Scoreboard};
use super::{Ack, Config};

/// A data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins in the stream.
    pub offset: u64,
    /// Its payload.
    pub length: u32,
    /// The message that it belongs to.
    pub message: u32,
    /// Whether it was sent before.
    pub is_resent: bool,
}

/// Counts of what has happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Segments sent again.
    pub resent: u64,
    /// Times that the timer ran out.
    pub timeouts: u64,
    /// Times that duplicate acknowledgements started a recovery.
    pub recoveries: u64,
}

/// The sending half of a connection.
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    /// The oldest unacknowledged byte, the first one never sent, the first one never posted.
    una: u64,
    next: u64,
    end: u64,
    messages: VecDeque<Message>,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes that the receiver accepts beyond `una`.
    receive_window: u64,
    phase: Phase,
    board: Scoreboard,
    /// Losses below it have been resent in this recovery (HighRxt).
    resent_to: u64,
    /// The oldest segment is to be resent even if the window is full.
    must_resend: bool,
    /// Where the last rescue retransmission of this recovery reached (RescueRxt).
    rescued_to: Option<u64>,
    /// Bytes believed to be in the network.
    pipe: u64,
    duplicates: u32,
    /// NewReno: duplicates below it may be echoes of the last recovery (`recover`, RFC 6582 §3.2).
    recover: u64,
    /// NewReno: this recovery has seen a partial acknowledgement.
    is_partial: bool,
    timeout: RetransmissionTimeout,
    /// Timeouts in a row.
    backoffs: u32,
    deadline: Option<Instant>,
    /// The end of the segment whose round trip is being measured, and when it left (Karn's rule).
    timing: Option<(u64, Instant)>,
    last_sent: Instant,
    counters: Counters,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    end: u64,
    name: u32,
}

/// Where the next segment begins.
#[derive(Clone, Copy, Debug)]
struct Choice {
    offset: u64,
    /// Whether it is the one extra retransmission that a recovery may make out of its turn.
    is_rescue: bool,
}

impl Choice {
    fn at(offset: u64) -> Choice {
        Choice { offset, is_rescue: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Slow start or congestion avoidance.
    Open,
    /// Losses are repaired until everything before `until` has arrived (RecoveryPoint).
    Recovery { until: u64 },
    /// The timer ran out: everything before `until` that was not acknowledged is sent again.
    Loss { until: u64 },
}

impl Sender {
    /// A connection without data.
    ///
    /// # Panics
    /// If a segment or the first window is empty, or the receive window does not hold a segment.
    pub fn new(config: Config) -> Sender {
        assert!(config.mss > 0 && config.initial_window > 0, "an empty window");
        assert!((config.mss..=Config::WINDOW_BYTES_MAX).contains(&config.window_bytes), "a useless window");
        Sender {
            una: 0,
            next: 0,
            end: 0,
            messages: VecDeque::new(),
            cwnd: u64::from(config.initial_window) * u64::from(config.mss),
            ssthresh: u64::MAX,
            receive_window: u64::from(config.window_bytes),
            phase: Phase::Open,
            board: Scoreboard::default(),
            resent_to: 0,
            must_resend: false,
            rescued_to: None,
            pipe: 0,
            duplicates: 0,
            recover: 0,
            is_partial: false,
            timeout: RetransmissionTimeout::new(config.initial_rto, config.min_rto, config.max_rto),
            backoffs: 0,
            deadline: None,
            timing: None,
            last_sent: Instant::ZERO,
            counters: Counters::default(),
            config,
        }
    }

    /// Takes a message of `bytes` to send after all others.
    pub fn post(&mut self, now: Instant, name: u32, bytes: u64) {
        // RFC 5681 §4.1: the window is stale after a silence as long as a timeout.
        let is_idle = self.una == self.end && self.end > 0;
        if is_idle && now.saturating_since(self.last_sent) > self.timeout.current() {
            self.cwnd = self.cwnd.min(self.initial_window());
        }
        self.end += bytes;
        self.messages.push_back(Message { end: self.end, name });
    }

    /// The next message that has been acknowledged as a whole.
    pub fn poll_complete(&mut self) -> Option<u32> {
        self.messages.front().filter(|message| message.end <= self.una)?;
        self.messages.pop_front().map(|message| message.name)
    }

    /// Whether everything that was posted has been acknowledged.
    pub fn is_idle(&self) -> bool {
        self.una == self.end
    }

    /// Bytes sent and not cumulatively acknowledged (FlightSize).
    pub fn in_flight(&self) -> u64 {
        self.next - self.una
    }

    /// The congestion window in bytes.
    pub fn congestion_window(&self) -> u64 {
        self.cwnd
    }

    /// Where slow start ends, in bytes; `u64::MAX` before the first loss.
    pub fn slow_start_threshold(&self) -> u64 {
        self.ssthresh
    }

    /// The retransmission timeout as it is now.
    pub fn retransmission_timeout(&self) -> Duration {
        self.timeout.current()
    }

    /// Counts of what has happened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn mss(&self) -> u64 {
        u64::from(self.config.mss)
    }

    fn initial_window(&self) -> u64 {
        u64::from(self.config.initial_window) * self.mss()
    }

    /// The next segment, if one may leave.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        let Choice { offset, is_rescue } = self.choose()?;
        let message = self.messages.iter().find(|message| offset < message.end)?;
        let is_resent = offset < self.next;
        let mut end = (offset + self.mss()).min(message.end);
        if is_resent {
            // The segment ends where bytes that have arrived begin.
            end = self.board.gap(offset, end).map_or(end, |gap| gap.1);
            self.counters.resent += 1;
            self.timing = None;
            self.must_resend = false;
            if !is_rescue {
                self.resent_to = self.resent_to.max(end);
            }
        } else {
            self.next = end;
            self.timing.get_or_insert((end, now));
        }
        let segment = Segment { offset, length: (end - offset) as u32, message: message.name, is_resent };
        self.pipe += end - offset;
        self.last_sent = now;
        if self.deadline.is_none() {
            self.deadline = Some(now + self.timeout.current());
        }
        Some(segment)
    }

    /// Which segment is next, if one may leave.
    fn choose(&mut self) -> Option<Choice> {
        if self.must_resend {
            return Some(Choice::at(self.una));
        }
        match self.phase {
            Phase::Open => self.new_data(self.pipe, self.cwnd + self.limited_transmit()),
            Phase::Recovery { .. } if !self.config.sack => self.new_data(self.in_flight(), self.cwnd),
            Phase::Recovery { until } => {
                if self.pipe + self.mss() > self.cwnd {
                    return None;
                }
                self.next_in_recovery(until)
            }
            Phase::Loss { until } => {
                if self.pipe + self.mss() > self.cwnd {
                    return None;
                }
                let lost = self.board.gap(self.resent_to.max(self.una), until);
                lost.map(|gap| Choice::at(gap.0)).or_else(|| self.new_data(self.pipe, self.cwnd))
            }
        }
    }

    /// Where new data begins, if there is some and both windows have room for it.
    fn new_data(&self, used: u64, window: u64) -> Option<Choice> {
        let message = self.messages.iter().find(|message| self.next < message.end)?;
        let length = self.mss().min(message.end - self.next);
        let fits = used + length <= window && self.in_flight() + length <= self.receive_window;
        fits.then_some(Choice::at(self.next))
    }

    /// The first two duplicates each let one segment more leave (RFC 3042). With SACK the pipe already
    /// shrinks by as much.
    fn limited_transmit(&self) -> u64 {
        if self.config.sack { 0 } else { u64::from(self.duplicates.min(DUP_THRESH - 1)) * self.mss() }
    }

    /// When [`Self::handle_timeout`] is wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Time has passed; early calls are harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_none_or(|due| now < due) {
            return;
        }
        self.counters.timeouts += 1;
        // RFC 5681 §3.1: the threshold follows from the flight at the first timeout, not from the rest after
        // later ones.
        if self.backoffs == 0 {
            self.ssthresh = self.halved_flight();
        }
        self.backoffs += 1;
        self.cwnd = self.mss();
        self.timeout.back_off();
        self.phase = Phase::Loss { until: self.next };
        self.recover = self.next;
        self.resent_to = self.una;
        self.rescued_to = None;
        self.must_resend = false;
        self.duplicates = 0;
        self.timing = None;
        self.deadline = Some(now + self.timeout.current());
        self.measure_pipe();
    }

    /// Half of what is in flight, at least two segments (RFC 5681 §3.1, equation 4).
    fn halved_flight(&self) -> u64 {
        (self.in_flight() / 2).max(2 * self.mss())
    }

    /// An acknowledgement arrives.
    pub fn handle_ack(&mut self, now: Instant, ack: &Ack) {
        if ack.cumulative > self.next {
            return;
        }
        self.receive_window = u64::from(ack.window);
        let mut news = 0;
        if self.config.sack {
            for (start, end) in ack.sacked() {
                news += self.board.insert(start.max(self.una), end.min(self.next));
            }
        }
        if ack.cumulative > self.una {
            self.on_progress(now, ack.cumulative);
        } else if ack.cumulative == self.una && self.in_flight() > 0 && (news > 0 || !self.config.sack) {
            self.on_duplicate();
        }
        self.measure_pipe();
    }

    fn on_progress(&mut self, now: Instant, cumulative: u64) {
        let acknowledged = cumulative - self.una;
        self.una = cumulative;
        self.board.advance(cumulative);
        self.resent_to = self.resent_to.max(cumulative);
        self.must_resend = false;
        self.duplicates = 0;
        self.backoffs = 0;
        if let Some((_, sent_at)) = self.timing.filter(|&(end, _)| end <= cumulative) {
            self.timing = None;
            self.timeout.on_round_trip(now.saturating_since(sent_at));
        }
        let mut restarts_timer = true;
        match self.phase {
            Phase::Open => self.grow(acknowledged),
            Phase::Loss { until } => {
                self.grow(acknowledged);
                if cumulative >= until {
                    self.phase = Phase::Open;
                    self.resent_to = cumulative;
                }
            }
            Phase::Recovery { until } if cumulative >= until => self.leave_recovery(),
            Phase::Recovery { .. } => restarts_timer = self.on_partial(acknowledged),
        }
        // RFC 6298 §5.2, §5.3.
        if self.in_flight() == 0 {
            self.deadline = None;
        } else if restarts_timer {
            self.deadline = Some(now + self.timeout.current());
        }
    }

    /// Slow start below the threshold, congestion avoidance above (RFC 5681 §3.1, equations 2 and 3).
    fn grow(&mut self, acknowledged: u64) {
        let mss = self.mss();
        self.cwnd +=
            if self.cwnd < self.ssthresh { acknowledged.min(mss) } else { (mss * mss / self.cwnd).max(1) };
        // More than the receiver takes is never used.
        self.cwnd = self.cwnd.min(u64::from(self.config.window_bytes).max(2 * mss));
    }
}
