//! A host's iWARP card, in place of an RNIC: a TCP connection per flow, or per peer.
//!
//! Acknowledgements leave first, then connections with something to send take turns, a segment each, as queue pairs do.
//! Segments say which flow they belong to, as iWARP's framing does, so data is placed as it comes.

use highwire_fabric::{Priorities, Time};
use highwire_stdx::Instant;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::ledger::Ledger;
use crate::parcel::{Body, Parcel};
use crate::scenario::{AckPriority, QueuePairs};
use crate::tcp::{self, Ack, Receiver, Segment, Sender};
use crate::world::{Share, World};

/// A host's connections.
#[derive(Debug)]
pub(crate) struct Iwarp {
    config: tcp::Config,
    /// The connections on which this host sends, by [`crate::world::Route::requester`], and those on which it
    /// receives.
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    /// Connections that may have a segment to send, in turns.
    ready: VecDeque<u32>,
    /// Acknowledgements that wait for the port.
    acks: VecDeque<(u32, Ack)>,
    /// When to look at a connection: never later than its deadline, and sometimes earlier.
    timers: BinaryHeap<Reverse<(Instant, End)>>,
    pub(crate) data_packets: u64,
    pub(crate) control_packets: u64,
    pub(crate) retransmitted: u64,
    pub(crate) timeouts: u64,
    pub(crate) duplicates: u64,
}

#[derive(Debug)]
struct Outgoing {
    peer: u32,
    remote: u32,
    /// `None` before the first flow and after the last.
    sender: Option<Box<Sender>>,
    is_ready: bool,
    timer: Timer,
}

#[derive(Debug)]
struct Incoming {
    peer: u32,
    remote: u32,
    receiver: Option<Box<Receiver>>,
    timer: Timer,
}

/// One half of a connection of this host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    Sender(u32),
    Receiver(u32),
}

/// The earliest entry that a connection has among the timers.
#[derive(Clone, Copy, Debug)]
struct Timer(Instant);

impl Timer {
    const NONE: Timer = Timer(Instant::FAR_FUTURE);

    /// A deadline that is postponed leaves its entry behind; when the entry comes up, the connection is
    /// looked at in vain.
    fn set(&mut self, timers: &mut BinaryHeap<Reverse<(Instant, End)>>, end: End, deadline: Option<Instant>) {
        if let Some(deadline) = deadline.filter(|&deadline| deadline < self.0) {
            self.0 = deadline;
            timers.push(Reverse((deadline, end)));
        }
    }
}

impl Iwarp {
    pub(crate) fn new(world: &World, share: &Share) -> Iwarp {
        let outgoing = |&(peer, remote): &(u32, u32)| Outgoing {
            peer,
            remote,
            sender: None,
            is_ready: false,
            timer: Timer::NONE,
        };
        let incoming =
            |&(peer, remote): &(u32, u32)| Incoming { peer, remote, receiver: None, timer: Timer::NONE };
        Iwarp {
            config: world.tcp,
            outgoing: share.requesters.iter().map(outgoing).collect(),
            incoming: share.responders.iter().map(incoming).collect(),
            ready: VecDeque::new(),
            acks: VecDeque::new(),
            timers: BinaryHeap::new(),
            data_packets: 0,
            control_packets: 0,
            retransmitted: 0,
            timeouts: 0,
            duplicates: 0,
        }
    }

    /// Starts a flow on a connection of its own, or behind others.
    pub(crate) fn start(&mut self, ledger: &mut Ledger, now: Time, flow: u32) {
        let route = ledger.world.flows[flow as usize];
        let config = self.config;
        let connection = &mut self.outgoing[route.requester as usize];
        let sender = connection.sender.get_or_insert_with(|| Box::new(Sender::new(config)));
        sender.post(now.instant(), flow, u64::from(route.bytes));
        self.wake(route.requester);
    }

    fn wake(&mut self, at: u32) {
        let connection = &mut self.outgoing[at as usize];
        if !std::mem::replace(&mut connection.is_ready, true) {
            self.ready.push_back(at);
        }
    }

    pub(crate) fn handle_segment(&mut self, ledger: &mut Ledger, now: Time, at: u32, segment: Segment) {
        let config = self.config;
        let connection = &mut self.incoming[at as usize];
        let receiver = connection.receiver.get_or_insert_with(|| Box::new(Receiver::new(&config)));
        let received = receiver.handle_segment(now.instant(), segment.offset, segment.length);
        connection.timer.set(&mut self.timers, End::Receiver(at), receiver.poll_timeout());
        self.acks.extend(received.ack.map(|ack| (at, ack)));
        if received.fresh > 0 {
            ledger.on_placed(now, segment.message, received.fresh);
        } else {
            self.duplicates += 1;
        }
    }

    pub(crate) fn handle_ack(&mut self, ledger: &mut Ledger, now: Time, at: u32, ack: &Ack) {
        let connection = &mut self.outgoing[at as usize];
        let Some(sender) = &mut connection.sender else { return };
        sender.handle_ack(now.instant(), ack);
        connection.timer.set(&mut self.timers, End::Sender(at), sender.poll_timeout());
        while let Some(flow) = sender.poll_complete() {
            ledger.on_acknowledged(now, flow);
        }
        if sender.is_idle() && ledger.world.scheme.queue_pairs == QueuePairs::PerFlow {
            connection.sender = None;
        } else {
            self.wake(at);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let instant = now.instant();
        while let Some(&Reverse((due, end))) = self.timers.peek()
            && due <= instant
        {
            self.timers.pop();
            match end {
                End::Sender(at) => self.sender_timeout(instant, due, at),
                End::Receiver(at) => self.receiver_timeout(instant, due, at),
            }
        }
    }

    fn sender_timeout(&mut self, now: Instant, due: Instant, at: u32) {
        let connection = &mut self.outgoing[at as usize];
        if connection.timer.0 != due {
            return;
        }
        connection.timer = Timer::NONE;
        let Some(sender) = &mut connection.sender else { return };
        let before = sender.counters().timeouts;
        sender.handle_timeout(now);
        self.timeouts += sender.counters().timeouts - before;
        connection.timer.set(&mut self.timers, End::Sender(at), sender.poll_timeout());
        self.wake(at);
    }

    fn receiver_timeout(&mut self, now: Instant, due: Instant, at: u32) {
        let connection = &mut self.incoming[at as usize];
        if connection.timer.0 != due {
            return;
        }
        connection.timer = Timer::NONE;
        let Some(receiver) = &mut connection.receiver else { return };
        self.acks.extend(receiver.handle_timeout(now).map(|ack| (at, ack)));
        connection.timer.set(&mut self.timers, End::Receiver(at), receiver.poll_timeout());
    }

    #[inline]
    pub(crate) fn poll_timeout(&self) -> Time {
        self.timers.peek().map_or(Time::NEVER, |Reverse((due, _))| Time::from_instant(*due))
    }

    pub(crate) fn poll_transmit(
        &mut self,
        ledger: &mut Ledger,
        now: Time,
        open: Priorities,
    ) -> Option<Parcel> {
        if !open.contains(0) {
            return None;
        }
        if let Some((at, ack)) = self.acks.pop_front() {
            return Some(self.ack_parcel(ledger, at, ack));
        }
        while let Some(at) = self.ready.pop_front() {
            let connection = &mut self.outgoing[at as usize];
            connection.is_ready = false;
            let Some(sender) = &mut connection.sender else { continue };
            let Some(segment) = sender.poll_transmit(now.instant()) else { continue };
            connection.timer.set(&mut self.timers, End::Sender(at), sender.poll_timeout());
            let (peer, remote) = (connection.peer, connection.remote);
            self.wake(at);
            self.data_packets += 1;
            self.retransmitted += u64::from(segment.is_resent);
            let world = &ledger.world;
            let parcel = Parcel {
                source: ledger.host,
                destination: peer,
                bytes: world.scheme.headers.segment_bytes(segment.length),
                payload: segment.length as u16,
                priority: 0,
                is_ecn_capable: false,
                is_marked: false,
                is_trimmed: false,
                entropy: 0,
                body: Body::Segment { connection: remote, segment },
            };
            ledger.sends[world.flows[segment.message as usize].outgoing as usize].sent += 1;
            return Some(parcel);
        }
        None
    }

    fn ack_parcel(&mut self, ledger: &Ledger, at: u32, ack: Ack) -> Parcel {
        self.control_packets += 1;
        let scheme = &ledger.world.scheme;
        let Incoming { peer, remote, .. } = self.incoming[at as usize];
        Parcel {
            source: ledger.host,
            destination: peer,
            bytes: scheme.headers.tcp_ack_bytes(&ack),
            payload: 0,
            priority: match scheme.ack_priority {
                AckPriority::AsData => 0,
                AckPriority::Above => 1,
            },
            is_ecn_capable: false,
            is_marked: false,
            is_trimmed: false,
            entropy: 0,
            body: Body::Ack { connection: remote, ack },
        }
    }
}
