//! The state that workers and the driver share: peers, flights, and the queue of datagrams to send.

mod greet;
mod outbox;
mod requester;
mod responder;

pub use outbox::Outgoing;
pub(crate) use responder::{Execution, Origin, push_message};

use crate::config::Config;
use crate::counters::Counters;
use crate::endpoint::Received;
use crate::flight::{Answer, Flight};
use crate::peer::Peer;
use crate::wire::{Header, Immediate, Kind, ParseError};
use highwire_stdx::{Instant, Slab};
use outbox::Outbox;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;

/// A worker's wait for the flights of a batch.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// Flights that are not done.
    pub(crate) remaining: u32,
    pub(crate) waker: Option<Waker>,
}

/// Instead of a call: a flight that no worker waits for.
pub(crate) const PARCEL: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    /// The low half of this node's incarnation.
    tag: u32,
    pub(crate) now: Instant,
    pub(crate) fence: u16,
    pub(crate) counters: Counters,
    /// By node.
    peers: Vec<Option<Box<Peer>>>,
    pub(crate) flights: Vec<Flight>,
    free_flights: Vec<u32>,
    pub(crate) calls: Slab<Call>,
    /// Parcels that are done, in that order.
    pub(crate) returned: VecDeque<u32>,
    outbox: Outbox,
    /// Flights to this very node.
    pub(crate) local: VecDeque<u32>,
    local_batches: u32,
    /// Peers that have been greeted and have not answered.
    asking: BTreeSet<u16>,
    /// Answers that can be used again.
    pub(crate) spare: Vec<Answer>,
    pub(crate) sleepers: BTreeMap<(Instant, u64), Waker>,
    pub(crate) sleeps: u64,
    /// No timer of a flight or a greeting is due before this.
    next_check: Instant,
}

/// The work that a received datagram leaves to the caller of the core.
pub(crate) enum Step {
    /// Nothing.
    Done,
    /// Requests are to be executed.
    Execute(Execution),
}

impl Core {
    pub(crate) fn new(config: Config) -> Core {
        Core {
            tag: config.incarnation as u32,
            config,
            now: Instant::ZERO,
            fence: 0,
            counters: Counters::default(),
            peers: Vec::new(),
            flights: Vec::new(),
            free_flights: Vec::new(),
            calls: Slab::default(),
            returned: VecDeque::new(),
            outbox: Outbox::default(),
            local: VecDeque::new(),
            local_batches: 0,
            asking: BTreeSet::new(),
            spare: Vec::new(),
            sleepers: BTreeMap::new(),
            sleeps: 0,
            next_check: Instant::FAR_FUTURE,
        }
    }

    #[inline]
    pub(crate) fn peer_mut(&mut self, node: u16) -> Option<&mut Peer> {
        self.peers.get_mut(usize::from(node))?.as_deref_mut()
    }

    #[inline]
    pub(crate) fn peer(&self, node: u16) -> Option<&Peer> {
        self.peers.get(usize::from(node))?.as_deref()
    }

    /// Takes a datagram from the network. Its bytes have not been checked yet.
    #[inline]
    pub(crate) fn receive(&mut self, received: &Received<'_>) -> Step {
        self.counters.received += 1;
        let parsed = Immediate::from_bits(received.immediate).and_then(|immediate| {
            Header::parse(received.bytes).map(|(header, body)| (immediate, header, body))
        });
        let Ok((immediate, header, body)) = parsed else {
            self.counters.malformed += 1;
            return Step::Done;
        };
        let done = match immediate.kind {
            Kind::Hello => self.on_hello(received, &header, body),
            Kind::Welcome => self.on_welcome(received, &header, body),
            Kind::Request if self.may_request(received, &immediate, &header) => {
                return self.on_request(&immediate, &header, body);
            }
            Kind::RequestPart if self.may_request(received, &immediate, &header) => {
                return self.on_request_part(&immediate, &header, body);
            }
            Kind::Response if self.may_respond(received, &header) => {
                self.on_response(&immediate, &header, body)
            }
            Kind::ResponsePart if self.may_respond(received, &header) => {
                self.on_response_part(&immediate, &header, body)
            }
            Kind::Progress => self.on_progress(received, &immediate, &header, body),
            Kind::Refusal if greet::is_challenge(body) => self.on_challenge(received, &header),
            Kind::Refusal if self.may_respond(received, &header) => {
                self.on_refusal(&immediate, &header, body)
            }
            _ => Ok(()),
        };
        self.counters.malformed += u64::from(done.is_err());
        Step::Done
    }

    /// Whether a responder's datagram is from a peer that this node greeted.
    #[inline]
    fn may_respond(&mut self, received: &Received<'_>, header: &Header) -> bool {
        let (tag, now) = (self.tag, self.now);
        let known = self.peer_mut(header.node).filter(|peer| {
            header.to == tag
                && peer.tag == header.from
                && peer.to.is_some_and(|to| greet::is_from(received, &to))
        });
        let is_known = known.map(|peer| peer.heard = now).is_some();
        self.counters.strangers += u64::from(!is_known);
        is_known
    }

    /// Whether a requester's datagram is from a node that introduced itself. A requester that did so to an
    /// earlier incarnation of this node is told.
    #[inline]
    fn may_request(&mut self, received: &Received<'_>, immediate: &Immediate, header: &Header) -> bool {
        let (tag, now) = (self.tag, self.now);
        let Some(peer) = self.peer_mut(header.node) else {
            self.counters.strangers += 1;
            return false;
        };
        if peer.to.is_none_or(|to| !greet::is_from(received, &to)) {
            self.counters.strangers += 1;
            return false;
        }
        peer.heard = now;
        if header.to != tag || peer.introduced_tag() != Some(header.from) {
            self.refuse(immediate.slot, header, greet::Reason::OtherIncarnation);
            return false;
        }
        true
    }

    /// A request is for another life of this node, and nothing else is known of it: if it comes from a peer's own address, the peer is told.
    pub(crate) fn refuse_other_life(
        &mut self,
        received: &Received<'_>,
        immediate: &Immediate,
        header: &Header,
    ) {
        let to = self.peer(header.node).and_then(|peer| peer.to);
        match to.is_some_and(|to| greet::is_from(received, &to)) {
            true => self.refuse(immediate.slot, header, greet::Reason::OtherIncarnation),
            false => self.counters.strangers += 1,
        }
    }

    /// Reports of progress concern requester or responder.
    fn on_progress(
        &mut self,
        received: &Received<'_>,
        immediate: &Immediate,
        header: &Header,
        body: &[u8],
    ) -> Result<(), ParseError> {
        let progress = crate::wire::Progress::parse(body)?;
        if progress.stage == crate::wire::Stage::Response {
            if self.may_request(received, immediate, header) {
                self.on_response_progress(immediate.slot, header, &progress);
            }
        } else if self.may_respond(received, header) {
            self.on_request_progress(immediate.slot, header, &progress);
        }
        Ok(())
    }

    /// Runs the timers that are due.
    pub(crate) fn handle_timeout(&mut self) {
        while let Some(entry) = self.sleepers.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            entry.remove().wake();
        }
        if self.next_check <= self.now {
            self.next_check = Instant::FAR_FUTURE;
            self.check_greetings();
            self.check_flights();
        }
    }

    /// When the next timer is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let slept = self.sleepers.first_key_value().map(|((at, _), _)| *at);
        let check = (self.next_check < Instant::FAR_FUTURE).then_some(self.next_check);
        [slept, check].into_iter().flatten().min()
    }

    /// Notes that a timer is due at `at`.
    #[inline]
    fn wake_at(&mut self, at: Instant) {
        self.next_check = self.next_check.min(at);
    }

    /// Whether there is something to send.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.outbox.is_empty()
    }
}

/// Whether sequence `a` is later than `b`; they wrap.
#[inline]
fn is_later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}
