//! Packets in, packets out: dispatch by queue pair number, and round robin among queue pairs that have
//! packets to send.

use crate::config::RnicConfig;
use crate::segment::{Segment, SpreadOver};
use crate::tags::{Tags, Transfers};
use crate::timers::Timers;
use crate::xrc;
use highwire_stdx::{IdMap, Instant, Rng, Slab};
use highwire_transport::congestion::Hop;
use highwire_transport::{Arrival, Context, Counter, Counters, DirectOp, Outgoing, QueuePair, ReceiveQueue};
use highwire_verbs::{
    AsyncEvent, Completion, CompletionStatus, CqId, Denial, Gid, Memory, Payload, Pd, PostError, RecvWr,
    Regions, SendWr, Service, SrqId, XrcDomain,
};
use highwire_wire::{Headers, Qpn};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A software RNIC.
#[derive(Clone, Debug)]
pub struct Rnic {
    pub(crate) config: RnicConfig,
    pub(crate) rng: Rng,
    pub(crate) regions: Regions,
    pub(crate) pds: BTreeSet<Pd>,
    /// Completion queues, each with the number of queue pairs that use it.
    pub(crate) cqs: BTreeMap<CqId, u32>,
    pub(crate) shared: Slab<ReceiveQueue>,
    /// The tags of queues that match them.
    pub(crate) tags: BTreeMap<SrqId, Tags>,
    pub(crate) transfers: Transfers,
    /// Shared receive queues of XRC by their numbers.
    pub(crate) by_srqn: IdMap<SrqId>,
    pub(crate) qps: Slab<Entry>,
    pub(crate) by_qpn: IdMap<u32>,
    /// Multicast groups with the queue pairs that are attached.
    pub(crate) groups: BTreeMap<Gid, Vec<Qpn>>,
    /// Steering rules of raw packet queue pairs.
    pub(crate) segment: Segment,
    /// Queue pairs that may have packets to send, each at most once.
    ready: VecDeque<u32>,
    /// Packets that the first of them has sent in this turn.
    turn: u32,
    timers: Timers,
    pub(crate) completions: VecDeque<(CqId, Completion)>,
    pub(crate) events: VecDeque<AsyncEvent>,
    pub(crate) denials: VecDeque<Denial>,
    pub(crate) counters: Counters,
}

/// A queue pair and its state in the scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) qp: QueuePair,
    is_ready: bool,
    /// The soonest timer entry of this queue pair.
    armed: Instant,
    /// The XRC domain of a target.
    pub(crate) domain: Option<XrcDomain>,
    /// The queues over which a raw packet queue pair without a receive queue spreads its frames.
    pub(crate) spread: Option<Box<SpreadOver>>,
}

impl Entry {
    pub(crate) fn new(qp: QueuePair) -> Entry {
        Entry { qp, is_ready: false, armed: Instant::FAR_FUTURE, domain: None, spread: None }
    }
}

/// Runs `$body` with `$qp` and a context that lends the queue pair the rest of the RNIC.
macro_rules! with_qp {
    ($rnic:ident, $now:expr, $slot:expr, |$entry:ident, $ctx:ident| $body:expr) => {{
        let Rnic { qps, regions, shared, completions, events, denials, counters, .. } = $rnic;
        let $ctx = &mut Context { now: $now, regions, shared, completions, events, denials, counters };
        qps.get_mut($slot).map(|$entry| $body)
    }};
}
pub(crate) use with_qp;

impl Rnic {
    /// An RNIC that draws keys, queue pair numbers and all other random values from `rng`.
    pub fn new(config: RnicConfig, mut rng: Rng) -> Rnic {
        let regions = Regions::new(rng.fork(1));
        Rnic {
            rng,
            regions,
            pds: BTreeSet::new(),
            cqs: BTreeMap::new(),
            shared: Slab::default(),
            tags: BTreeMap::new(),
            transfers: Transfers::default(),
            by_srqn: IdMap::new(0),
            qps: Slab::default(),
            by_qpn: IdMap::new(config.lanes.next_power_of_two().trailing_zeros()),
            config,
            groups: BTreeMap::new(),
            segment: Segment::default(),
            ready: VecDeque::new(),
            turn: 0,
            timers: Timers::default(),
            completions: VecDeque::new(),
            events: VecDeque::new(),
            denials: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Whether an attacker who knows earlier keys and queue pair numbers cannot guess the next one.
    pub fn draws_secretly(&self) -> bool {
        self.rng.is_secret() && self.regions.draws_secretly()
    }

    /// Its configuration.
    pub fn config(&self) -> &RnicConfig {
        &self.config
    }

    /// Registered memory.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Registered memory, mutably.
    pub fn regions_mut(&mut self) -> &mut Regions {
        &mut self.regions
    }

    /// Counts of events so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A queue pair.
    pub fn qp(&self, qpn: Qpn) -> Option<&QueuePair> {
        self.by_qpn.get(qpn.value()).and_then(|slot| self.qps.get(*slot)).map(|entry| &entry.qp)
    }

    /// The queue pair that [`Rnic::poll_transmit`] asks first.
    #[inline]
    pub fn next_to_send(&self) -> Option<&QueuePair> {
        self.qps.get(*self.ready.front()?).map(|entry| &entry.qp)
    }

    pub(crate) fn slot(&self, qpn: Qpn) -> Option<u32> {
        self.by_qpn.get(qpn.value()).copied()
    }

    /// Puts a queue pair into the scheduler and the timers, as its new state demands.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant, slot: u32) {
        let Some(entry) = self.qps.get_mut(slot) else { return };
        if !entry.is_ready && entry.qp.wants_transmit(now) {
            entry.is_ready = true;
            self.ready.push_back(slot);
        }
        self.arm(slot);
    }

    #[inline]
    fn arm(&mut self, slot: u32) {
        let Some(entry) = self.qps.get_mut(slot) else { return };
        let deadline = entry.qp.next_deadline();
        if deadline < entry.armed {
            entry.armed = deadline;
            self.timers.arm(deadline, slot);
        }
    }

    /// Takes a request for a send queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was queued.
    #[inline]
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        let slot = self.slot(qpn).ok_or(PostError::NoSuchQueue)?;
        let result = with_qp!(self, now, slot, |entry, ctx| entry.qp.post_send(ctx, wr));
        self.settle(now, slot);
        result.unwrap_or(Err(PostError::NoSuchQueue))
    }

    /// Whether [`post_send`](Self::post_send) would take a request behind `ahead` others that are about to be posted.
    ///
    /// # Errors
    /// Why not.
    pub fn check_send(&self, qpn: Qpn, wr: &SendWr<'_>, ahead: usize) -> Result<(), PostError> {
        self.qp(qpn).ok_or(PostError::NoSuchQueue)?.check_send(wr, ahead)
    }

    /// Takes a request for a receive queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was queued.
    #[inline]
    pub fn post_recv(&mut self, now: Instant, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let slot = self.slot(qpn).ok_or(PostError::NoSuchQueue)?;
        let result = with_qp!(self, now, slot, |entry, ctx| entry.qp.post_recv(ctx, wr));
        result.unwrap_or(Err(PostError::NoSuchQueue))
    }

    /// Takes a request for a shared receive queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was queued.
    #[inline]
    pub fn post_srq_recv(&mut self, srq: SrqId, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.has_tags() {
            return self.post_tagged_recv(srq, wr);
        }
        self.shared.get_mut(srq.0).ok_or(PostError::NoSuchQueue)?.post(wr)
    }

    /// Handles a packet from the network: `headers` as parsed, its ICRC verified, `payload` without padding.
    #[inline]
    pub fn handle_packet<P: Payload>(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        self.counters.count(Counter::PacketsReceived);
        self.counters.add(Counter::BytesReceived, u64::from(payload.len()));
        let Some(slot) = self.slot(headers.bth.dest_qpn) else {
            if headers.bth.dest_qpn == Qpn::MULTICAST {
                return self.handle_multicast(now, arrival, headers, payload, memory);
            }
            return self.counters.count(Counter::DroppedUnknownQp);
        };
        let opcode = headers.bth.opcode.info();
        let service = opcode.service.map(|service| match service {
            highwire_wire::Service::Rc => Service::Rc,
            highwire_wire::Service::Uc => Service::Uc,
            highwire_wire::Service::Ud => Service::Ud,
            highwire_wire::Service::Xrc if xrc::is_answer(opcode.operation) => Service::XrcInitiator,
            highwire_wire::Service::Xrc => Service::XrcTarget,
        });
        // Headers whose opcode promises other extensions than they carry were not parsed from a packet.
        let is_whole = opcode.layout == headers.ext.layout();
        // Full and limited members of the default partition (IBTA §10.9.1.2).
        let is_ours = headers.bth.pkey & 0x7FFF == highwire_wire::DEFAULT_PKEY & 0x7FFF;
        let is_served = self
            .qps
            .get(slot)
            .is_some_and(|entry| service.is_none_or(|service| entry.qp.config().service == service));
        if !is_whole || !is_ours {
            return self.counters.count(Counter::DroppedMalformed);
        }
        if !is_served {
            return self.counters.count(Counter::DroppedWrongService);
        }
        if opcode.service == Some(highwire_wire::Service::Xrc) {
            return self.handle_xrc(now, slot, arrival, headers, payload, memory);
        }
        with_qp!(self, now, slot, |entry, ctx| entry
            .qp
            .handle_packet(ctx, arrival, headers, payload, memory));
        // A datagram asks for no answer and needs no timer.
        if service != Some(Service::Ud) {
            self.settle(now, slot);
        }
    }

    /// Handles a packet of which the headers alone have arrived, because a switch had no room for the rest.
    pub fn handle_trimmed(&mut self, now: Instant, arrival: &Arrival, headers: &Headers) {
        self.counters.count(Counter::PacketsReceived);
        let Some(slot) = self.slot(headers.bth.dest_qpn) else {
            return self.counters.count(Counter::DroppedUnknownQp);
        };
        if headers.bth.opcode.info().service != Some(highwire_wire::Service::Rc) {
            return self.counters.count(Counter::DroppedWrongService);
        }
        with_qp!(self, now, slot, |entry, ctx| entry.qp.handle_trimmed(ctx, arrival, headers));
        self.settle(now, slot);
    }

    /// Tells a queue pair what the switches on the way of one of its packets wrote into it. Comes just before the packet's
    /// acknowledgement.
    pub fn note_telemetry(&mut self, now: Instant, qpn: Qpn, hops: &[Hop]) {
        if let Some(slot) = self.slot(qpn)
            && let Some(entry) = self.qps.get_mut(slot)
        {
            entry.qp.note_telemetry(now, hops);
        }
    }

    /// Whether a packet of UC or UD would be dropped because there is no receive, and for no other reason in
    /// its headers.
    pub fn lacks_receive(&self, arrival: &Arrival, headers: &Headers) -> bool {
        self.qp(headers.bth.dest_qpn).is_some_and(|qp| qp.lacks_receive(&self.shared, arrival, headers))
    }

    /// Handles the passing of time; early and late calls are harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout_unless(now, |_, _, _| false);
    }

    /// As [`handle_timeout`](Self::handle_timeout), for a driver that knows more than the time: `is_unheard`
    /// says of a queue pair's peer, by address and number, that it lives and has yet to look at its packets.
    /// While that is so, a missing answer is no reason to give up. The third argument says whether this timer
    /// would make the requester give up: a driver whose answer is costly need not compute it before.
    pub fn handle_timeout_unless(
        &mut self,
        now: Instant,
        mut is_unheard: impl FnMut(Gid, Qpn, bool) -> bool,
    ) {
        while let Some((at, slot)) = self.timers.take_due(now) {
            let Some(entry) = self.qps.get_mut(slot) else { continue };
            if entry.armed != at {
                continue;
            }
            entry.armed = Instant::FAR_FUTURE;
            let (gid, qpn) = entry.qp.peer();
            entry.qp.set_unheard(is_unheard(gid, qpn, entry.qp.gives_up(now)));
            with_qp!(self, now, slot, |entry, ctx| entry.qp.handle_timeout(ctx));
            self.settle(now, slot);
        }
    }

    /// When the driver must call [`Rnic::handle_timeout`]; may be early.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Whether the only packets to send are acknowledgements that may
    /// [ride](highwire_transport::TransportConfig::acks_ride): a driver that expects an answer may leave them
    /// for a moment.
    #[inline]
    pub fn owes_only_acks(&mut self, now: Instant) -> bool {
        // Few: with more queue pairs, looking costs more than it can save.
        const QPS_MAX: usize = 2;
        let (ready, qps) = (&self.ready, &mut self.qps);
        let mut owes = |slot: &u32| qps.get_mut(*slot).is_some_and(|entry| entry.qp.owes_only_an_ack(now));
        (1..=QPS_MAX).contains(&ready.len()) && ready.iter().all(&mut owes)
    }

    /// The next packet to send. Its payload is borrowed memory: the driver copies it before the next call.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing<'_>> {
        let slot = loop {
            let slot = *self.ready.front()?;
            if with_qp!(self, now, slot, |entry, ctx| entry.qp.poll_transmit(ctx)) == Some(true) {
                break slot;
            }
            self.ready.pop_front();
            self.turn = 0;
            if let Some(entry) = self.qps.get_mut(slot) {
                entry.is_ready = false;
            }
            self.arm(slot);
        };
        self.turn += 1;
        if self.turn >= self.config.egress_quantum {
            self.turn = 0;
            self.ready.rotate_left(1);
        }
        self.arm(slot);
        self.qps.get(slot).map(|entry| entry.qp.outgoing())
    }

    /// Tells the RNIC that the payload of the last packet from [`Rnic::poll_transmit`] could not be read: its
    /// memory has gone. The request, or the peer's READ, ends in error.
    #[cold]
    pub fn fail_transmit(&mut self, now: Instant, qpn: Qpn) {
        if let Some(slot) = self.slot(qpn) {
            with_qp!(self, now, slot, |entry, ctx| entry.qp.fail_transmit(ctx));
            self.settle(now, slot);
        }
    }

    /// The next completion, with its queue. If there are queues that [match tags](Rnic::has_tags), the driver
    /// then asks what the application sees of it.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<(CqId, Completion)> {
        self.completions.pop_front()
    }

    /// The next asynchronous event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }

    /// The next access that was refused, for [`Regions::explain`](highwire_verbs::Regions::explain).
    #[inline]
    pub fn poll_denial(&mut self) -> Option<Denial> {
        self.denials.pop_front()
    }

    /// Whether a driver that can reach the peer's memory may carry out this request itself, at once.
    #[inline]
    pub fn begin_direct(&mut self, now: Instant, qpn: Qpn, wr: &SendWr<'_>) -> Option<DirectOp> {
        let slot = self.slot(qpn)?;
        with_qp!(self, now, slot, |entry, ctx| entry.qp.begin_direct(ctx, wr)).flatten()
    }

    /// Reports the result of such a request. Any error breaks the connection, as a refusal by the peer would.
    #[inline]
    pub fn complete_direct(&mut self, now: Instant, qpn: Qpn, op: &DirectOp, status: CompletionStatus) {
        if let Some(slot) = self.slot(qpn) {
            with_qp!(self, now, slot, |entry, ctx| entry.qp.complete_direct(ctx, op, status));
        }
    }

    /// Sends a datagram past the queue, if nothing waits there: `put` hands its packet to the link, or
    /// returns that it did not. False if nothing has happened; then the driver posts the request.
    #[inline]
    pub fn send_datagram(
        &mut self,
        now: Instant,
        qpn: Qpn,
        wr: &SendWr<'_>,
        put: impl FnOnce(&Outgoing<'_>) -> bool,
    ) -> bool {
        let Some(slot) = self.slot(qpn) else { return false };
        with_qp!(self, now, slot, |entry, ctx| entry.qp.send_datagram(ctx, wr, put)).unwrap_or(false)
    }

    pub(crate) fn forget_ready(&mut self, slot: u32) {
        self.ready.retain(|s| *s != slot);
        self.turn = 0;
    }
}
