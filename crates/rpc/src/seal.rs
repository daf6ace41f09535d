//! A cluster's key, and what it makes of datagrams: a tag that only members can make, and a number that counts once.
//!
//! ```text
//!   datagram │ number (8) │ tag (8)        tag = SipHash-2-4(key, immediate, number, datagram)
//! ```
//!
//! | kind | key | number |
//! |---|---|---|
//! | requests, responses, progress | of both nodes and both lives, for one direction | grows with each; taken once, by a window |
//! | greeting | of both nodes, for one direction | new for each greeting |
//! | answer to a greeting, challenge | of both nodes, for one direction | the greeting's, given back |
//! | refusal | of both nodes, for one direction | 0: what it says of a life stays true |
//!
//! Lives are incarnations, which grow. A node learns another one's from greetings, and a greeting of an earlier life changes nothing.
//! Whether datagrams have a tag is for the configuration to say, and not for the datagrams: so none can be sent without one.

mod window;

use crate::config::Config;
use crate::core::Outgoing;
use crate::endpoint::Received;
use crate::wire::{Greeting, Header, Immediate, Kind, Progress, Stage};
use siphasher::sip::SipHasher24;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher as _;
use window::Window;

/// Bytes behind each datagram of a cluster with a key.
pub const SEAL_LEN: usize = 16;
/// Greetings whose answers may still be under way.
const GREETINGS: usize = 8;
const CONTEXT: &str = "highwire rpc 2026: tags of datagrams between two nodes";

/// The secret that all nodes of a cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey(pub [u8; 32]);

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

/// One end of a conversation: a node, and its life or 0.
type End = (u16, u64);

/// The key of one direction.
#[derive(Clone, Copy)]
struct TagKey(u64, u64);

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(…)")
    }
}

impl ClusterKey {
    fn key(&self, from: End, to: End) -> TagKey {
        let mut material = [0; 52];
        material[..32].copy_from_slice(&self.0);
        material[32..34].copy_from_slice(&from.0.to_be_bytes());
        material[34..42].copy_from_slice(&from.1.to_be_bytes());
        material[42..44].copy_from_slice(&to.0.to_be_bytes());
        material[44..52].copy_from_slice(&to.1.to_be_bytes());
        let key = blake3::derive_key(CONTEXT, &material);
        TagKey(word(&key, 0), word(&key, 8))
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

impl TagKey {
    fn tag(self, immediate: u32, number: u64, parts: [&[u8]; 2]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0, self.1);
        hasher.write(&immediate.to_be_bytes());
        hasher.write(&number.to_be_bytes());
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish()
    }
}

/// The keys of this life and a life of another node.
#[derive(Debug)]
struct Session {
    incarnation: u64,
    to: TagKey,
    next: u64,
    from: TagKey,
    window: Window,
}

/// Another node.
#[derive(Debug)]
struct Peer {
    to: TagKey,
    from: TagKey,
    /// The numbers of the greetings that were sent to it last.
    greetings: [u64; GREETINGS],
    greeted: usize,
    /// The number of its last greeting, for the answer.
    heard: u64,
    session: Option<Session>,
}

/// What to do with a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    /// It is a member's, and new: its bytes without the seal.
    Open(&'a [u8]),
    /// A request for another life of this node, which cannot be checked any more. Its sender may be told that this life is over.
    OtherLife(Immediate, Header),
    /// No member has made it, or not for this node.
    Forged,
    /// It was here before, or answers a greeting of long ago.
    Replayed,
}

/// The seals of an endpoint.
#[derive(Debug)]
pub(crate) struct Seals {
    key: ClusterKey,
    own: End,
    greetings: u64,
    /// Keys of this endpoint and one peer alone.
    keys: BTreeMap<u16, ClusterKey>,
    peers: BTreeMap<u16, Peer>,
}

impl Seals {
    pub(crate) fn new(config: &Config) -> Option<Seals> {
        let own = (config.node.0, config.incarnation);
        let key = config.key.clone()?;
        Some(Seals { key, own, greetings: 0, keys: BTreeMap::new(), peers: BTreeMap::new() })
    }

    /// Gives a peer a key of its own, or takes it away. Nothing that was sent before counts any more.
    pub(crate) fn set_key(&mut self, node: u16, key: Option<ClusterKey>) {
        self.peers.remove(&node);
        match key {
            Some(key) => self.keys.insert(node, key),
            None => self.keys.remove(&node),
        };
    }

    fn key_of(&self, node: u16) -> &ClusterKey {
        self.keys.get(&node).unwrap_or(&self.key)
    }

    fn peer(&mut self, node: u16) -> &mut Peer {
        let (key, own) = (self.keys.get(&node).unwrap_or(&self.key), self.own);
        self.peers.entry(node).or_insert_with(|| Peer {
            to: key.key((own.0, 0), (node, 0)),
            from: key.key((node, 0), (own.0, 0)),
            greetings: [0; GREETINGS],
            greeted: 0,
            heard: 0,
            session: None,
        })
    }

    /// The number and the tag of a datagram that is to be sent.
    pub(crate) fn seal(&mut self, outgoing: &Outgoing<'_>) -> [u8; SEAL_LEN] {
        let mut seal = [0; SEAL_LEN];
        let parsed = Immediate::from_bits(outgoing.immediate).ok().zip(Header::parse(outgoing.head).ok());
        // This endpoint makes no other ones.
        let Some((immediate, (header, body))) = parsed else { return seal };
        let greeting = u64::from(header.from) << 32 | u64::from(self.greetings as u32);
        let peer = self.peer(outgoing.node.0);
        let (key, number) = match (immediate.kind, &mut peer.session) {
            (Kind::Hello, _) => {
                peer.greetings[peer.greeted % GREETINGS] = greeting;
                peer.greeted += 1;
                (peer.to, greeting)
            }
            (Kind::Welcome, _) => (peer.to, peer.heard),
            (Kind::Refusal, _) if is_challenge(body) => (peer.to, peer.heard),
            (Kind::Refusal, _) | (_, None) => (peer.to, 0),
            (_, Some(session)) => {
                session.next += 1;
                (session.to, session.next)
            }
        };
        self.greetings += u64::from(immediate.kind == Kind::Hello);
        let tag = key.tag(outgoing.immediate, number, [outgoing.head, outgoing.body]);
        seal[..8].copy_from_slice(&number.to_be_bytes());
        seal[8..].copy_from_slice(&tag.to_be_bytes());
        seal
    }

    /// Checks a datagram that has arrived.
    pub(crate) fn open<'a>(&mut self, received: &Received<'a>) -> Verdict<'a> {
        let Some((bytes, seal)) = received.bytes.split_last_chunk::<SEAL_LEN>() else {
            return Verdict::Forged;
        };
        let parsed = Immediate::from_bits(received.immediate).ok().zip(Header::parse(bytes).ok());
        let Some((immediate, (header, body))) = parsed else { return Verdict::Forged };
        let (number, tag) = (word(seal, 0), word(seal, 8));
        let is_of = |key: TagKey| key.tag(received.immediate, number, [bytes, &[]]) == tag;
        let node = header.node;
        if node == self.own.0 {
            return Verdict::Forged;
        }
        if !matches!(immediate.kind, Kind::Hello | Kind::Welcome | Kind::Refusal) {
            let session = self.peers.get_mut(&node).and_then(|peer| peer.session.as_mut());
            return match session.filter(|session| is_of(session.from)) {
                Some(session) => match session.window.take(number) {
                    true => Verdict::Open(bytes),
                    false => Verdict::Replayed,
                },
                None if header.to != self.own.1 as u32 && is_requesters(immediate.kind, body) => {
                    Verdict::OtherLife(immediate, header)
                }
                None => Verdict::Forged,
            };
        }
        let from = self
            .peers
            .get(&node)
            .map_or_else(|| self.key_of(node).key((node, 0), (self.own.0, 0)), |peer| peer.from);
        if !is_of(from) {
            return Verdict::Forged;
        }
        let peer = self.peer(node);
        let is_answer =
            immediate.kind == Kind::Welcome || immediate.kind == Kind::Refusal && is_challenge(body);
        if is_answer && (number == 0 || !peer.greetings.contains(&number)) {
            return Verdict::Replayed;
        }
        if immediate.kind == Kind::Refusal {
            return Verdict::Open(bytes);
        }
        let Ok(greeting) = Greeting::parse(body) else { return Verdict::Forged };
        if peer.session.as_ref().is_some_and(|session| session.incarnation > greeting.incarnation) {
            return Verdict::Replayed;
        }
        if immediate.kind == Kind::Hello {
            peer.heard = number;
        }
        self.meet(node, greeting.incarnation);
        Verdict::Open(bytes)
    }

    /// Notes a node's life. Numbers of a life that is known already go on.
    fn meet(&mut self, node: u16, incarnation: u64) {
        let (own, other) = (self.own, (node, incarnation));
        let key = self.key_of(node);
        let (to, from) = (key.key(own, other), key.key(other, own));
        let session = &mut self.peer(node).session;
        if session.as_ref().is_none_or(|session| session.incarnation != incarnation) {
            *session = Some(Session { incarnation, to, next: 0, from, window: Window::default() });
        }
    }
}

fn is_challenge(body: &[u8]) -> bool {
    body == [2, 0, 0, 0]
}

/// Whether a datagram is of a requester, for a responder.
fn is_requesters(kind: Kind, body: &[u8]) -> bool {
    match kind {
        Kind::Request | Kind::RequestPart => true,
        Kind::Progress => Progress::parse(body).is_ok_and(|progress| progress.stage == Stage::Response),
        _ => false,
    }
}
