//! Packets of UC and UD that wait for a receive.
//!
//! The specification lets a responder of an unreliable service drop packets without a receive (IBTA
//! §9.8.2.2.4, §9.8.3.3), and cards do. But a card's application has a core; here it competes for one with
//! the engines of both ends, and a sender with a whole time slice of the processor sends more packets than
//! any queue has receives. So the engine keeps packets that lack nothing but a receive for a while, in order,
//! and the packets behind them. When many are kept, the lane takes nothing further from the links: rings and
//! sockets fill, and senders on this machine wait, as on a lossless network.
//!
//! If the application posts no receive for `PATIENCE`, the lane stops waiting for it: the kept packets are dropped, as a card would
//! drop them, and so are later ones, until there is a receive again.
//!
//! Invariant: while packets of a queue pair are kept, the RNIC sees no other packet of it.

use crate::memory::{Bytes, HostMemory};
use highwire_rnic::{Arrival, Rnic};
use highwire_stdx::{Duration, Instant};
use highwire_wire::{Headers, Opcode, Qpn, Service, parse_packet_head};
use std::collections::VecDeque;

/// How long packets wait for a receive: longer than a thread that wants to run waits for a core, as a rule.
const PATIENCE: Duration = Duration::from_millis(1_000);
/// Bytes kept for a queue pair before nothing further is taken.
const QUEUE_PAIR_BYTES: usize = 8 << 20;
/// The same for all of a lane.
const LANE_BYTES: usize = 32 << 20;

/// The packets that a lane keeps.
#[derive(Default)]
pub(crate) struct Held {
    queues: Vec<Queue>,
    bytes: usize,
}

/// The packets kept for one queue pair, BTH to padding.
struct Queue {
    qpn: Qpn,
    packets: VecDeque<(Arrival, Box<[u8]>)>,
    bytes: usize,
    /// Since when no receive has been found.
    since: Instant,
    /// Nothing is kept until there is a receive again.
    given_up: bool,
}

/// Whether packets of this kind may have to wait.
#[inline]
pub(super) fn may_wait(opcode: Opcode) -> bool {
    matches!(opcode.info().service, Some(Service::Uc | Service::Ud))
}

impl Held {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether so much is kept that nothing further should be taken from the links.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= LANE_BYTES || self.queues.iter().any(|queue| queue.bytes >= QUEUE_PAIR_BYTES)
    }

    /// When the next queue pair is waited for no longer.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let waiting = self.queues.iter().filter(|queue| !queue.packets.is_empty());
        waiting.map(|queue| queue.since + PATIENCE).min()
    }

    /// Keeps a copy of a packet, made by `copy`, if it has to wait. False if the RNIC is to have it now.
    pub(super) fn keeps(
        &mut self,
        now: Instant,
        rnic: &Rnic,
        (arrival, headers): (&Arrival, &Headers),
        copy: impl FnOnce() -> Box<[u8]>,
    ) -> bool {
        let qpn = headers.bth.dest_qpn;
        let known = self.queues.iter().position(|queue| queue.qpn == qpn);
        let is_behind_others = known.is_some_and(|at| !self.queues[at].packets.is_empty());
        if !is_behind_others && !rnic.lacks_receive(arrival, headers) {
            // The queue pair has receives again.
            known.map(|at| self.queues.swap_remove(at));
            return false;
        }
        let at = known.unwrap_or_else(|| {
            let queue = Queue { qpn, packets: VecDeque::new(), bytes: 0, since: now, given_up: false };
            self.queues.push(queue);
            self.queues.len() - 1
        });
        let queue = &mut self.queues[at];
        if queue.given_up {
            return false;
        }
        let packet = copy();
        queue.bytes += packet.len();
        self.bytes += packet.len();
        queue.packets.push_back((*arrival, packet));
        true
    }

    /// Forgets what is kept for a queue pair that begins anew.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        if let Some(at) = self.queues.iter().position(|queue| queue.qpn == qpn) {
            self.bytes -= self.queues.swap_remove(at).bytes;
        }
    }

    /// Hands on the packets that now have a receive, and those whose wait is over; returns the number of packets.
    #[cold]
    pub(super) fn release(&mut self, now: Instant, rnic: &mut Rnic, memory: &mut HostMemory) -> u32 {
        let mut released = 0;
        for queue in &mut self.queues {
            while let Some((arrival, packet)) = queue.packets.front() {
                // It was parsed before it was kept.
                if let Ok((headers, payload)) = &parse_packet_head(packet, packet.len()) {
                    if !rnic.lacks_receive(arrival, headers) {
                        queue.since = now;
                    } else if now.saturating_since(queue.since) < PATIENCE {
                        break;
                    } else {
                        queue.given_up = true;
                    }
                    let payload = Bytes::of(&packet[payload.clone()]);
                    rnic.handle_packet(now, arrival, headers, payload, memory);
                }
                queue.bytes -= packet.len();
                self.bytes -= packet.len();
                queue.packets.pop_front();
                released += 1;
            }
        }
        self.queues
            .retain(|queue| !queue.packets.is_empty() || queue.given_up && rnic.qp(queue.qpn).is_some());
        released
    }
}
