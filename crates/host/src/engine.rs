//! The engine of one lane: an RNIC, the links its packets take, and the engine's ends of its queues.
//!
//! The thread that holds the lane's token calls into this; only one thread holds it at a time. After each change to the RNIC,
//! the engine drains it: packets go into the links, completions into their rings, events to the device.

mod deferral;
mod direct;
mod ends;
mod gsi;
mod held;
mod multicast;
mod on_demand;
mod places;
mod pump;
mod queues;
mod receive;
mod segment;
mod sinks;
mod sleep;
mod tagged;
mod turn;
mod views;
mod watch;
mod ways;

pub(crate) use ends::{Bell, ChannelLook, CqSink, InlineArena, Notify, QpEnds, SrqEnds, Waiters};
pub use multicast::MulticastError;
pub(crate) use places::Places;
pub(crate) use sleep::Sleeper;
pub(crate) use tagged::OWN_SENDS;
pub(crate) use turn::{By, Pumped};
pub(crate) use ways::{Disturbed, Groups, Neighbours, Shm, Udp, Ways};

use crate::clock::Clock;
use crate::counters::DriverCounters;
use crate::memory::HostMemory;
use crate::recording::Recorded;
use crate::stray::Stray;
use crate::waker::Waker;
use crossbeam_queue::ArrayQueue;
use deferral::Deferral;
use held::Held;
use highwire_link::RxBatch;
use highwire_record::Tap;
use highwire_rnic::Rnic;
use highwire_shmem::DoorbellBoard;
use highwire_stdx::{IdMap, Instant, Slab};
use highwire_verbs::{CqId, Gid, QpAttr, Recovery};
use highwire_wake::duty::Misses;
use highwire_wire::{Psn, Qpn};
use sinks::Sinks;
use sleep::Sleep;
use std::sync::Arc;
use turn::{Time, Turn};
use watch::Watch;

/// The parts of an engine.
pub(crate) struct Parts {
    pub(crate) rnic: Rnic,
    pub(crate) lane: u32,
    pub(crate) gid: Gid,
    pub(crate) clock: Clock,
    pub(crate) memory: HostMemory,
    pub(crate) ways: Ways,
    /// Set if a background thread will run the engine when no application thread does, so that acknowledgements may wait.
    pub(crate) may_defer: bool,
    pub(crate) board: DoorbellBoard,
    pub(crate) mailboxes: Arc<[ArrayQueue<Stray>]>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) leader_waker: Arc<Waker>,
    pub(crate) record: Option<Tap>,
}

pub(crate) struct Engine {
    pub(crate) rnic: Rnic,
    pub(crate) counters: DriverCounters,
    lane: u32,
    gid: Gid,
    time: Time,
    memory: HostMemory,
    ways: Ways,
    pub(crate) arrivals: Arrivals,
    deferral: Deferral,
    gsi_psn: Psn,
    board: DoorbellBoard,
    pub(crate) objects: Objects,
    wakers: Wakers,
    turn: Turn,
    sleep: Sleep,
    witnesses: Witnesses,
}

/// Packets on their way in.
pub(crate) struct Arrivals {
    /// `None` while a batch is handled.
    rx: Option<RxBatch>,
    pub(crate) held: Held,
    /// For packets of other lanes, one for each.
    mailboxes: Arc<[ArrayQueue<Stray>]>,
}

/// The queues of applications, as far as the engine has an end of them.
pub(crate) struct Objects {
    bells: Slab<Bell>,
    cqs: Sinks,
    /// Queues whose threads are to be woken once the lane's token is free.
    pub(crate) due: Vec<(Arc<dyn Notify>, bool)>,
    qps: Slab<QpEnds>,
    /// The indices of queue pairs that keep the places of their requests.
    placed: IdMap<u32>,
    /// The indices of queue pairs whose receives wait in their ring until they are needed.
    on_demand: IdMap<u32>,
    srqs: Slab<SrqEnds>,
    /// Queues whose next WQE found the RNIC's queue full.
    stalled: Vec<u32>,
    /// Completion queues that have just lost a completion.
    overrun: Vec<CqId>,
}

impl Default for Objects {
    fn default() -> Objects {
        Objects {
            bells: Slab::default(),
            cqs: Sinks::default(),
            due: Vec::new(),
            qps: Slab::default(),
            placed: IdMap::new(0),
            on_demand: IdMap::new(0),
            srqs: Slab::default(),
            stalled: Vec::new(),
            overrun: Vec::new(),
        }
    }
}

/// The threads that look after the lane, and how they are woken.
struct Wakers {
    background: Arc<Waker>,
    leader: Arc<Waker>,
    /// How often the leader went without the background thread.
    misses: Misses,
}

/// What remembers the lane's doings, to explain them.
struct Witnesses {
    watch: Watch,
    record: Option<Recorded>,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Engine {
        let Parts { rnic, lane, gid, clock, memory, ways, may_defer, .. } = parts;
        let Parts { board, mailboxes, waker, leader_waker, record, .. } = parts;
        Engine {
            rnic,
            counters: DriverCounters::default(),
            lane,
            gid,
            time: Time::new(clock),
            memory,
            ways,
            arrivals: Arrivals { rx: Some(RxBatch::new()), held: Held::default(), mailboxes },
            deferral: Deferral::new(may_defer),
            gsi_psn: Psn::default(),
            board,
            objects: Objects::default(),
            wakers: Wakers { background: waker, leader: leader_waker, misses: Misses::default() },
            turn: Turn::default(),
            sleep: Sleep::default(),
            witnesses: Witnesses { watch: Watch::default(), record: record.map(Recorded::new) },
        }
    }

    /// The time. Every step reads the clock once at most.
    #[inline]
    pub(crate) fn now(&mut self) -> Instant {
        self.time.now()
    }

    /// Keeps the state of a queue pair in the record, if it has changed.
    #[inline]
    pub(crate) fn record_state(&mut self, qpn: Qpn) {
        if self.witnesses.record.is_none() {
            return;
        }
        let now = self.now();
        if let (Some(record), Some(qp)) = (&mut self.witnesses.record, self.rnic.query_qp(qpn)) {
            record.look(now, qpn, &qp);
        }
    }

    /// Lets a queue pair's requests go, once it is known which formats its peer understands.
    pub(crate) fn release(&mut self, qpn: Qpn, recovery: Recovery) {
        self.begin_post();
        let now = self.now();
        let attr = QpAttr { recovery: Some(recovery), ..QpAttr::default() };
        // Refused where the queue pair has gone into error meanwhile, and then it sends nothing anyway.
        let _ = self.rnic.modify_qp(now, qpn, &attr);
        self.rnic.hold_transmit(now, qpn, false);
        self.finish_control();
    }

    /// Sets the peer that a queue pair may reach directly. A neighbour gets a channel at once: from then on both sides take
    /// packets of this connection from shared memory only.
    pub(crate) fn set_peer(&mut self, index: u32, peer: Option<(Gid, Qpn)>) {
        let now = self.now();
        if let (Some(shm), Some((gid, qpn))) = (&mut self.ways.shm, peer) {
            let _ = shm.rings.sender_to(now, gid, qpn);
        }
        if let Some(qp) = self.objects.qps.get_mut(index) {
            qp.peer = peer;
        }
    }

    /// Housekeeping: forgets peers that are gone.
    pub(crate) fn reap(&mut self) {
        if let Some(shm) = &mut self.ways.shm {
            shm.rings.reap();
        }
    }

    /// How many peers on this host it has met.
    pub(crate) fn neighbours(&self) -> usize {
        self.ways.shm.as_ref().map_or(0, |shm| shm.rings.count())
    }

    /// Reports every counter of the lane by name.
    pub(crate) fn each_counter(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.rnic.counters().iter().for_each(|(name, value)| each(name, value));
        self.counters.each(each);
        self.ways.counters(each);
    }
}
