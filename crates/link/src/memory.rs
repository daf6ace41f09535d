//! Two links that are each other's wire, for tests and for measuring everything above a link.

use crate::batch::{Arrival, Ecn, RxBatch, TrainLimits, TxBatch};
use crate::{Link, Seal, Transmitted};
use highwire_stdx::Instant;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Trains under way in one direction; more are dropped, as in a full receive buffer.
const QUEUE_TRAINS_MAX: usize = 4096;

type Queue = Arc<Mutex<VecDeque<(Arrival, Vec<u8>)>>>;

/// One end of a wire in memory that loses and reorders nothing.
pub struct MemoryLink {
    local: SocketAddr,
    remote: SocketAddr,
    outgoing: Queue,
    incoming: Queue,
    ecn: Ecn,
    dropped: u64,
}

/// Two ends of one wire. Packets to any address but the other end's are dropped and counted.
pub fn memory_pair(a: SocketAddr, b: SocketAddr) -> (MemoryLink, MemoryLink) {
    let (to_b, to_a) = (Queue::default(), Queue::default());
    let end = |local, remote, outgoing: &Queue, incoming: &Queue| MemoryLink {
        local,
        remote,
        outgoing: Arc::clone(outgoing),
        incoming: Arc::clone(incoming),
        ecn: Ecn::NotCapable,
        dropped: 0,
    };
    (end(a, b, &to_b, &to_a), end(b, a, &to_a, &to_b))
}

impl MemoryLink {
    /// Sets the congestion mark that packets from this end arrive with.
    pub fn set_ecn(&mut self, ecn: Ecn) {
        self.ecn = ecn;
    }
}

impl Link for MemoryLink {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn train_limits(&self) -> TrainLimits {
        TrainLimits::GSO
    }

    fn transmit(&mut self, _now: Instant, batch: &mut TxBatch, seal: &mut Seal<'_>) -> Transmitted {
        batch.plan(TrainLimits::GSO);
        // A queue is whole at any moment, so it stays usable after a panic elsewhere.
        let mut queue = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        while batch.prepare(self.local, 1, seal) > 0 {
            for train in batch.ready(1) {
                if train.destination != self.remote || queue.len() >= QUEUE_TRAINS_MAX {
                    self.dropped += train.segments as u64;
                    continue;
                }
                let bytes = [train.head, train.tail].concat();
                let arrival = Arrival {
                    source: self.local,
                    bytes: bytes.len(),
                    segment_bytes: train.segment_bytes,
                    traffic_class: train.traffic_class & !Ecn::MASK | self.ecn.bits(),
                };
                queue.push_back((arrival, bytes));
            }
            batch.depart(1);
        }
        Transmitted::All
    }

    fn receive(&mut self, _now: Instant, batch: &mut RxBatch) -> usize {
        batch.clear();
        let next = self.incoming.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        if let Some((arrival, bytes)) = next {
            batch.buffer()[..bytes.len()].copy_from_slice(&bytes);
            batch.fill(arrival);
        }
        batch.len()
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("memory_tx_dropped", self.dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Order, Packet};

    #[test]
    fn trains_arrive_as_they_left() {
        let (a, b) = (SocketAddr::from(([127, 0, 0, 1], 1)), SocketAddr::from(([127, 0, 0, 2], 2)));
        let (mut left, mut right) = memory_pair(a, b);
        left.set_ecn(Ecn::CongestionExperienced);
        let (mut tx, mut rx) = (TxBatch::new(), RxBatch::new());
        tx.push(b, &[1; 48], Order::Strict).unwrap();
        tx.push(b, &[2; 20], Order::Free).unwrap();
        tx.push(a, &[3; 20], Order::Free).unwrap();
        assert_eq!(left.transmit(Instant::ZERO, &mut tx, &mut |_, _| {}), Transmitted::All);
        assert_eq!(right.receive(Instant::ZERO, &mut rx), 2);
        let traffic_class = Ecn::CongestionExperienced.bits();
        let packets: Vec<Packet<'_>> = rx.packets().collect();
        assert_eq!(packets[0], Packet { source: a, bytes: &[1; 48], train_index: 0, traffic_class });
        assert_eq!(packets[1], Packet { source: a, bytes: &[2; 20], train_index: 1, traffic_class });
        assert_eq!((right.receive(Instant::ZERO, &mut rx), rx.is_empty()), (0, true));
        left.counters(&mut |name, n| assert_eq!((name, n), ("memory_tx_dropped", 1)));
    }
}
