//! The state that both halves of a queue pair share: its attributes and its peer.

use crate::congestion::{Congestion, CongestionChoice, Rate, Start};
use crate::irn::{IrnConfig, SACK_RUN_MAX};
use crate::requester::FRAME_OVERHEAD;
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{Access, Address, Mtu, QpConfig, QpState};
use highwire_wire::{Psn, Qpn, SackEth};
use std::collections::VecDeque;

/// How an RNIC's transport behaves, for all its queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportConfig {
    /// IRN's parameters.
    pub irn: IrnConfig,
    /// Go-back-N: most packets sent and not acknowledged.
    pub go_back_n_window: u32,
    /// Go-back-N: the timeout, where it is not the one of the queue pair's attributes.
    pub go_back_n_timeout: Option<Duration>,
    /// Whether requesters retry for ever and ignore their queue pair's retry counts: for simulations, where a
    /// broken connection would hide how long a repair takes.
    pub never_gives_up: bool,
    /// An acknowledgement is asked for at least this often, in packets, besides at the end of a burst.
    pub ack_interval: u32,
    /// IRN: how long a responder may keep an acknowledgement back that the requester did not ask for, so that it covers more
    /// packets. Zero acknowledges every packet, as the paper has it (IRN §3.1). Less than the peer's `rto_low`.
    pub ack_delay: Duration,
    /// IRN: a long message waits until the window has room for so many packets, so that they leave in one train. One sends each
    /// packet as soon as it may leave, as the paper has it. No more than half of the cap counts.
    pub train_packets: u32,
    /// IRN: whether an acknowledgement may ride on a message of one packet that leaves alone. Fewer packets, but no longer one
    /// per arrival, as the paper has it.
    pub acks_ride: bool,
    /// Whether responders advertise receive credits, and requesters heed them (IBTA §9.7.7.2).
    pub credits: bool,
    /// Link rate in bits per second: where congestion control starts.
    pub link_rate: u64,
    /// How rates follow congestion.
    pub congestion: CongestionChoice,
    /// How much of its schedule a late flow may catch up with: nothing on an exact clock, the polling jitter on a host.
    pub pacing_burst: Duration,
}

impl TransportConfig {
    /// The congestion control of a new flow. A window starts at the bandwidth-delay product, as BDP-FC's cap has it, and stays
    /// within what flow control allows anyway.
    pub(crate) fn congestion_control(&self, mtu: Mtu, is_irn: bool) -> Congestion {
        let window_max = if is_irn { self.irn.cap } else { self.go_back_n_window };
        self.congestion.start(&Start {
            line_rate: Rate::from_bits_per_second(self.link_rate),
            bdp_packets: self.irn.cap,
            window_max: window_max.max(1),
            packet_bytes: mtu.bytes() + FRAME_OVERHEAD,
        })
    }
}

impl Default for TransportConfig {
    fn default() -> TransportConfig {
        TransportConfig {
            irn: IrnConfig::default(),
            go_back_n_window: 1024,
            go_back_n_timeout: None,
            never_gives_up: false,
            ack_interval: 32,
            ack_delay: Duration::ZERO,
            train_packets: 1,
            acks_ride: false,
            credits: true,
            link_rate: 40_000_000_000,
            congestion: CongestionChoice::NONE,
            pacing_burst: Duration::ZERO,
        }
    }
}

/// A queue pair's attributes, resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) qpn: Qpn,
    pub(crate) config: QpConfig,
    pub(crate) transport: TransportConfig,
    pub(crate) state: QpState,
    pub(crate) access: Access,
    pub(crate) qkey: u32,
    pub(crate) address: Address,
    pub(crate) remote_qpn: Qpn,
    pub(crate) mtu: Mtu,
    pub(crate) max_rd_atomic: u32,
    pub(crate) max_dest_rd_atomic: u32,
    pub(crate) min_rnr_timer: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) notify_drained: bool,
    /// XRC: the packet that is being handled names a shared receive queue that does not exist here.
    pub(crate) has_no_queue: bool,
}

impl Connection {
    /// The local ACK timeout, `None` for "wait for ever" (IBTA §9.7.6.1.3).
    pub(crate) fn ack_timeout(&self) -> Option<Duration> {
        let attribute = (self.timeout > 0).then(|| Duration::from_nanos(4096 << self.timeout));
        self.transport.go_back_n_timeout.or(attribute)
    }

    pub(crate) fn ack_deadline(&self, now: Instant) -> Option<Instant> {
        self.ack_timeout().map(|timeout| now + timeout)
    }

    /// How long a requester of IRN goes without progress before it gives up: the sum of go-back-N's timeouts.
    pub(crate) fn patience(&self) -> Option<Duration> {
        Some(self.patience_step()?.saturating_mul(u64::from(self.retry_count) + 1))
    }

    /// One of those timeouts.
    pub(crate) fn patience_step(&self) -> Option<Duration> {
        if self.transport.never_gives_up {
            return None;
        }
        // A timeout shorter than IRN's own would give up before the first repair.
        Some(self.ack_timeout()?.max(self.transport.irn.rto_high))
    }
}

/// Acknowledgements that are due: one cumulative one, or one per run of packets that came early.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckQueue {
    is_due: bool,
    runs: VecDeque<SackEth>,
    /// Packets of which the headers alone came.
    trimmed: VecDeque<Psn>,
}

impl AckQueue {
    /// At most so many runs wait. Beyond that the oldest is forgotten, which has the effect of a lost NACK.
    const RUNS_MAX: usize = 256;

    /// A packet in order, or one that was there already.
    #[inline]
    pub(crate) fn acknowledge(&mut self) {
        self.is_due = true;
    }

    /// A packet that came early, the last of `run_len` in a row that have.
    // The whole run is told each time, so that a NACK that is lost costs nothing when another follows.
    pub(crate) fn report(&mut self, psn: Psn, run_len: u32) {
        let run = SackEth { psn, count: run_len.clamp(1, SACK_RUN_MAX) as u8 };
        if let Some(last) = self.runs.back_mut()
            && last.psn.next() == psn
            && u32::from(last.count) < SACK_RUN_MAX
        {
            *last = SackEth { count: run.count.max(last.count + 1), ..run };
            return;
        }
        if self.runs.len() == AckQueue::RUNS_MAX {
            self.runs.pop_front();
        }
        self.runs.push_back(run);
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.is_due && self.runs.is_empty() && self.trimmed.is_empty()
    }

    /// A packet came without its payload.
    pub(crate) fn report_trimmed(&mut self, psn: Psn) {
        if self.trimmed.len() == AckQueue::RUNS_MAX {
            self.trimmed.pop_front();
        }
        self.trimmed.push_back(psn);
    }

    /// The next packet to name of those that came without their payload, unless the rest has come since.
    pub(crate) fn next_trimmed(&mut self, cumulative: Psn) -> Option<Psn> {
        while let Some(psn) = self.trimmed.pop_front() {
            if !psn.is_before(cumulative) {
                return Some(psn);
            }
        }
        None
    }

    /// Whether nothing but a plain acknowledgement is due.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_due && self.runs.is_empty() && self.trimmed.is_empty()
    }

    /// What to send next: a plain acknowledgement of everything before `cumulative`, or one with a run beyond it.
    // Every NACK carries the cumulative acknowledgement, so a plain one is due only without them.
    #[inline]
    pub(crate) fn next(&mut self, cumulative: Psn) -> Option<Option<SackEth>> {
        while let Some(run) = self.runs.pop_front() {
            self.is_due = !cumulative.is_before(run.psn);
            if !self.is_due {
                return Some(Some(run));
            }
            // The gap before the run was closed in the meantime, so the cumulative acknowledgement covers the
            // run.
        }
        std::mem::take(&mut self.is_due).then_some(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_and_what_the_cumulative_acknowledgement_covers_is_not_told() {
        let psn = Psn::new;
        let mut acks = AckQueue::default();
        acks.report(psn(5), 1);
        acks.report(psn(6), 2);
        acks.report(psn(9), 1);
        assert_eq!(acks.next(psn(4)), Some(Some(SackEth { psn: psn(6), count: 2 })));
        assert_eq!(acks.next(psn(4)), Some(Some(SackEth { psn: psn(9), count: 1 })));
        assert_eq!(acks.next(psn(4)), None);
        // The gap is closed before the NACK has left: a NACK would not be believed.
        acks.report(psn(6), 2);
        acks.acknowledge();
        assert_eq!(acks.next(psn(7)), Some(None));
        assert!(acks.is_empty());
    }
}
