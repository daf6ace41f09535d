//! Introductions: each end learns the other's incarnation before the first batch, so that nothing is executed twice by two
//! lives of one node.

use super::Core;
use super::outbox::Tx;
use crate::GRH_BYTES;
use crate::config::Node;
use crate::endpoint::Received;
use crate::error::{AddPeerError, CallError};
use crate::peer::{Greeted, Peer};
use crate::wire::{GREETING_LEN, Greeting, HEADER_LEN, Header, Immediate, Kind, ParseError};
use highwire_stdx::Instant;
use highwire_verbs::{Address, Datagram};
use std::hash::Hasher as _;

/// Why a batch is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Reason {
    /// The batch is for another incarnation of this node, or from a requester that has not introduced itself.
    OtherIncarnation = 0,
    /// The batch is longer than this node takes.
    TooLong = 1,
    /// No refusal yet: a greeting must be sent again with this sequence, to show that its sender receives what is sent to its source.
    Challenge = 2,
}

impl Core {
    /// Adds a peer, or gives it another address.
    pub(crate) fn add_peer(&mut self, node: Node, to: Datagram) -> Result<(), AddPeerError> {
        if node == self.config.node {
            return Err(AddPeerError::IsSelf);
        }
        let to = Datagram { qkey: self.config.qkey, ..to };
        self.place_for(node.0).to = Some(to);
        Ok(())
    }

    fn place_for(&mut self, node: u16) -> &mut Peer {
        let index = usize::from(node);
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        let bytes = self.config.datagram_bytes;
        self.peers[index].get_or_insert_with(|| Box::new(Peer::new(None, bytes)))
    }

    /// Forgets a peer. Its unfinished flights fail; datagrams that it sends later are a stranger's. Only
    /// sequences stay: if the peer is added again, it must not take new batches for old ones.
    pub(crate) fn remove_peer(&mut self, node: Node) {
        self.fail_flights(node.0, CallError::PeerRemoved(node), true);
        self.asking.remove(&node.0);
        if let Some(peer) = self.peer_mut(node.0) {
            (peer.to, peer.greeted, peer.tag, peer.granted) = (None, Greeted::No, 0, 0);
            peer.free.clear();
        }
    }

    /// Forgets everything of a peer, its sequences as well: nothing that was for it may be heard again.
    pub(crate) fn forget_peer(&mut self, node: Node) {
        self.remove_peer(node);
        if let Some(place) = self.peers.get_mut(usize::from(node.0)) {
            *place = None;
        }
    }

    /// Greets a peer, to learn its incarnation, unless it was greeted before.
    pub(super) fn greet(&mut self, node: u16) {
        let (now, again_at) = (self.now, self.now + self.config.resend_after);
        let Some(peer) = self.peer_mut(node) else { return };
        if peer.greeted == Greeted::No {
            peer.greeted = Greeted::Asking { since: now, again_at, times: 0 };
            self.asking.insert(node);
            self.wake_at(again_at);
            self.say_hello(node);
        }
    }

    fn say_hello(&mut self, node: u16) {
        self.say(node, Kind::Hello, self.config.slots, 0);
    }

    fn say(&mut self, node: u16, kind: Kind, slots: u16, to: u32) {
        let sequence = match kind {
            Kind::Hello => self.peer(node).map_or(0, |peer| peer.challenge),
            _ => 0,
        };
        let header = Header { node: self.config.node.0, from: self.tag, to, sequence };
        let greeting = Greeting {
            incarnation: self.config.incarnation,
            slots,
            datagram_bytes: self.config.datagram_bytes,
        };
        let mut body = [0; GREETING_LEN];
        greeting.emit(&mut body);
        let immediate = Immediate { kind, count: 0, slot: 0, fence: self.fence };
        self.send_control(node, None, immediate, &header, &body);
    }

    /// Sends a few bytes to a node, or to the queue pair `to` instead.
    fn send_control(
        &mut self,
        node: u16,
        to: Option<Datagram>,
        immediate: Immediate,
        header: &Header,
        body: &[u8],
    ) {
        let mut head = [0; HEADER_LEN];
        header.emit(&mut head);
        let mut bytes = [0; HEADER_LEN + GREETING_LEN];
        bytes[..HEADER_LEN].copy_from_slice(&head);
        bytes[HEADER_LEN..HEADER_LEN + body.len()].copy_from_slice(body);
        let length = (HEADER_LEN + body.len()) as u8;
        self.outbox.push(Tx::Control { node, to, immediate: immediate.to_bits(), bytes, length });
    }

    /// A requester introduces itself. Anybody can send such a datagram, under any name and from any source. So a life of a node counts
    /// only when the greeting repeats a number that was sent to its source, and a known node's source is its own address.
    pub(super) fn on_hello(
        &mut self,
        received: &Received<'_>,
        header: &Header,
        body: &[u8],
    ) -> Result<(), ParseError> {
        let greeting = Greeting::parse(body)?;
        let node = header.node;
        let qkey = self.config.qkey;
        let known = self.peer(node).and_then(|peer| peer.to);
        // A driver that brings no sources has others than this protocol to check them.
        let source = if received.grh.is_some() { source_of(received, qkey) } else { known };
        let may_be = match (known, source) {
            (Some(known), Some(source)) => known.address.gid == source.address.gid,
            (None, Some(_)) => self.config.accepts_strangers,
            (_, None) => false,
        };
        let Some(source) = source.filter(|_| may_be) else {
            self.counters.strangers += 1;
            return Ok(());
        };
        let introduced = self.peer(node).and_then(|peer| peer.introduced);
        if node == self.config.node.0
            || header.from != greeting.incarnation as u32
            // A delayed greeting of an earlier incarnation of the node.
            || introduced.is_some_and(|known| known > greeting.incarnation)
        {
            self.counters.strangers += 1;
            return Ok(());
        }
        // A node that has started again has another queue pair.
        let is_new =
            introduced != Some(greeting.incarnation) || known.is_none_or(|to| !is_from(received, &to));
        if is_new {
            let challenge = self.challenge(node, greeting.incarnation, &source);
            if header.sequence != challenge {
                self.counters.challenged += 1;
                self.send_challenge(source, header, challenge);
                return Ok(());
            }
        }
        let (now, own_bytes) = (self.now, self.config.datagram_bytes);
        let slots = greeting.slots.min(self.config.slots);
        let peer = self.place_for(node);
        if is_new {
            peer.to = Some(source);
        }
        peer.heard = now;
        peer.introduce(greeting.incarnation, slots);
        let had_met =
            matches!(peer.greeted, Greeted::Yes { incarnation } if incarnation < greeting.incarnation);
        if had_met {
            self.forget_incarnation(node);
        } else {
            peer.datagram_bytes = own_bytes.min(greeting.datagram_bytes);
        }
        self.say(node, Kind::Welcome, slots, header.from);
        Ok(())
    }

    /// A responder has answered.
    pub(super) fn on_welcome(
        &mut self,
        received: &Received<'_>,
        header: &Header,
        body: &[u8],
    ) -> Result<(), ParseError> {
        let greeting = Greeting::parse(body)?;
        let now = self.now;
        let (slots, own_bytes) = (self.config.slots, self.config.datagram_bytes);
        let node = header.node;
        let is_asked = self.is_asked(received, header) && header.from == greeting.incarnation as u32;
        let Some(peer) = self.peer_mut(node).filter(|_| is_asked) else {
            // The peer's second answer to a greeting that was sent twice.
            self.counters.stale_responses += 1;
            return Ok(());
        };
        if peer.introduced.is_some_and(|known| known > greeting.incarnation) {
            // The answer of an earlier incarnation of the peer.
            self.counters.stale_responses += 1;
            return Ok(());
        }
        peer.greeted = Greeted::Yes { incarnation: greeting.incarnation };
        (peer.tag, peer.heard) = (header.from, now);
        peer.datagram_bytes = own_bytes.min(greeting.datagram_bytes);
        peer.grant(greeting.slots.min(slots));
        self.asking.remove(&node);
        self.start_waiting(node);
        Ok(())
    }

    /// Whether a datagram comes from a node that this one is greeting.
    fn is_asked(&self, received: &Received<'_>, header: &Header) -> bool {
        let to = self.peer(header.node).and_then(|peer| peer.to);
        self.asking.contains(&header.node)
            && header.to == self.tag
            && to.is_some_and(|to| is_from(received, &to))
    }

    /// The number that a greeting of this life from this source must repeat. It is made anew each time, so that greetings take no memory.
    fn challenge(&self, node: u16, incarnation: u64, source: &Datagram) -> u32 {
        let [key0, key1] = self.config.challenge_key;
        // SipHash, because a stranger that has been told some of these numbers must not be able to work out others. It is
        // deprecated in favour of hashers that choose their own keys, and this crate takes its keys from its driver.
        #[allow(deprecated)]
        let mut hasher = std::hash::SipHasher::new_with_keys(key0, key1);
        hasher.write_u16(node);
        hasher.write_u64(incarnation);
        hasher.write(&source.address.gid.0);
        hasher.write_u32(source.qpn.value());
        // 0 says that nothing was asked yet.
        (hasher.finish() as u32).max(1)
    }

    fn send_challenge(&mut self, to: Datagram, greeting: &Header, sequence: u32) {
        let own = Header { node: self.config.node.0, from: self.tag, to: greeting.from, sequence };
        let immediate = Immediate { kind: Kind::Refusal, count: 0, slot: 0, fence: self.fence };
        self.send_control(greeting.node, Some(to), immediate, &own, &[Reason::Challenge as u8, 0, 0, 0]);
    }

    /// A responder asks for proof that the greeting was this node's.
    pub(super) fn on_challenge(
        &mut self,
        received: &Received<'_>,
        header: &Header,
    ) -> Result<(), ParseError> {
        let is_asked = self.is_asked(received, header);
        let Some(peer) = self.peer_mut(header.node).filter(|_| is_asked) else {
            self.counters.stale_responses += 1;
            return Ok(());
        };
        // Each number is answered once; if the answer is lost, the greeting's timer repeats it.
        if peer.challenge != header.sequence {
            peer.challenge = header.sequence;
            self.say_hello(header.node);
        }
        Ok(())
    }

    /// The greeted incarnation of the peer has ended: it may have executed the requests sent to it, or not.
    fn forget_incarnation(&mut self, node: u16) {
        self.fail_flights(node, CallError::PeerRestarted(Node(node)), false);
        if let Some(peer) = self.peer_mut(node) {
            (peer.greeted, peer.tag, peer.granted) = (Greeted::No, 0, 0);
            peer.free.clear();
            if !peer.waiting.is_empty() {
                self.greet(node);
            }
        }
    }

    pub(super) fn refuse(&mut self, slot: u8, header: &Header, reason: Reason) {
        self.counters.refused += 1;
        let own = Header {
            node: self.config.node.0,
            // The name under which the requester knows this node; it would not heed another.
            from: header.to,
            to: header.from,
            sequence: header.sequence,
        };
        let immediate = Immediate { kind: Kind::Refusal, count: 0, slot, fence: self.fence };
        self.send_control(header.node, None, immediate, &own, &[reason as u8, 0, 0, 0]);
    }

    /// The peer refuses a batch.
    pub(super) fn on_refusal(
        &mut self,
        immediate: &Immediate,
        header: &Header,
        body: &[u8],
    ) -> Result<(), ParseError> {
        let &[reason, 0, 0, 0] = body else {
            return Err(ParseError::Behind(body.len()));
        };
        let Some(flight) = self.flight_in(header.node, immediate.slot, header.sequence) else {
            self.counters.stale_responses += 1;
            return Ok(());
        };
        if reason == Reason::TooLong as u8 {
            self.finish_flight(flight, Err(CallError::TooLong));
        } else {
            self.forget_incarnation(header.node);
        }
        Ok(())
    }

    /// Repeats unanswered greetings, and gives up those that are too old.
    pub(super) fn check_greetings(&mut self) {
        for node in self.asking.iter().copied().collect::<Vec<_>>() {
            let (now, failure_after) = (self.now, self.config.failure_after);
            let Greeted::Asking { times, .. } = self.peer(node).map_or(Greeted::No, |peer| peer.greeted)
            else {
                self.asking.remove(&node);
                continue;
            };
            let later = resend_at(now, &self.config, times + 1);
            let Some(peer) = self.peer_mut(node) else { continue };
            let Greeted::Asking { since, again_at, .. } = peer.greeted else { continue };
            if now.saturating_since(since) >= failure_after {
                peer.greeted = Greeted::No;
                self.asking.remove(&node);
                self.fail_flights(node, CallError::PeerSilent(Node(node)), true);
                continue;
            }
            let mut next = again_at;
            if again_at <= now {
                next = later;
                peer.greeted = Greeted::Asking { since, again_at: next, times: times + 1 };
                self.say_hello(node);
            }
            self.wake_at(next.min(since + failure_after));
        }
    }
}

/// Whether a refusal is a challenge.
pub(super) fn is_challenge(body: &[u8]) -> bool {
    body == [Reason::Challenge as u8, 0, 0, 0]
}

/// Whether a datagram comes from this queue pair, as far as the driver knows where it comes from.
#[inline]
pub(super) fn is_from(received: &Received<'_>, to: &Datagram) -> bool {
    let is_address = || match received.grh {
        Some(grh) => grh.try_into().ok().and_then(crate::grh::source) == Some(to.address.gid),
        None => true,
    };
    to.qpn == received.source_qpn && is_address()
}

fn source_of(received: &Received<'_>, qkey: u32) -> Option<Datagram> {
    let grh: &[u8; GRH_BYTES] = received.grh?.try_into().ok()?;
    let gid = crate::grh::source(grh)?;
    Some(Datagram { address: Address::new(gid), qpn: received.source_qpn, qkey })
}

/// When a greeting or a batch that was sent again `times` times is sent again.
pub(super) fn resend_at(now: Instant, config: &crate::Config, times: u32) -> Instant {
    now + config.resend_after.saturating_mul(1 << times.min(16)).min(config.resend_after_max)
}
