//! The queue of messages to send, in order, and how they become datagrams.
//!
//! Entries are names; bytes are looked up when the driver asks, so that a report is as new as it can be, and
//! a request that no worker waits for any longer is not sent.

use super::Core;
use crate::config::Node;
use crate::wire::{
    GREETING_LEN, HEADER_LEN, Header, Immediate, Kind, PART_HEADER_LEN, PROGRESS_LEN, Part, Progress, Stage,
};
use highwire_verbs::Datagram;
use std::collections::VecDeque;

/// A datagram for the driver to send: a SEND with immediate, which may be unsignaled.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The destination node.
    pub node: Node,
    /// Its queue pair.
    pub to: Datagram,
    /// The immediate.
    pub immediate: u32,
    /// The first bytes.
    pub head: &'a [u8],
    /// The bytes behind them.
    pub body: &'a [u8],
    /// The last bytes: the seal of a cluster with a key.
    pub tail: &'a [u8],
}

impl<'a> Outgoing<'a> {
    #[inline]
    fn new(node: Node, to: Datagram, immediate: Immediate, head: &'a [u8], body: &'a [u8]) -> Outgoing<'a> {
        Outgoing { node, to, immediate: immediate.to_bits(), head, body, tail: &[] }
    }

    /// Bytes of the datagram.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// Whether it has no bytes; it always has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An entry of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tx {
    /// The requests of a flight: the whole batch, or as many of its parts as the window allows.
    Requests { flight: u32, sequence: u32 },
    /// The responses of a slot, likewise.
    Responses { node: u16, slot: u8, sequence: u32 },
    /// Which parts of a response this node has received.
    RequesterReport { flight: u32, sequence: u32 },
    /// Which parts of the requests this node has received, or that it is executing them.
    ResponderReport { node: u16, slot: u8, sequence: u32 },
    /// A few bytes that are complete already, for a node's queue pair or for another one.
    Control {
        node: u16,
        to: Option<Datagram>,
        immediate: u32,
        bytes: [u8; HEADER_LEN + GREETING_LEN],
        length: u8,
    },
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    entries: VecDeque<Tx>,
}

impl Outbox {
    #[inline]
    pub(super) fn push(&mut self, tx: Tx) {
        self.entries.push_back(tx);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Whether the driver took an offered datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Yes,
    No,
}

impl Core {
    /// Offers every queued datagram, until the driver takes no more.
    pub(crate) fn transmit(&mut self, post: &mut dyn FnMut(&Outgoing<'_>) -> bool) -> u32 {
        let mut count = 0;
        let mut counted = |outgoing: &Outgoing<'_>| {
            let taken = post(outgoing);
            count += u32::from(taken);
            if taken { Taken::Yes } else { Taken::No }
        };
        while let Some(&tx) = self.outbox.entries.front() {
            let taken = match tx {
                Tx::Requests { flight, sequence } => self.transmit_requests(flight, sequence, &mut counted),
                Tx::Responses { node, slot, sequence } => {
                    self.transmit_responses(node, slot, sequence, &mut counted)
                }
                Tx::RequesterReport { flight, sequence } => {
                    self.transmit_requester_report(flight, sequence, &mut counted)
                }
                Tx::ResponderReport { node, slot, sequence } => {
                    self.transmit_responder_report(node, slot, sequence, &mut counted)
                }
                Tx::Control { node, to, immediate, bytes, length } => {
                    match to.or_else(|| self.peer(node).and_then(|peer| peer.to)) {
                        Some(to) => counted(&Outgoing {
                            node: Node(node),
                            to,
                            immediate,
                            head: &bytes[..usize::from(length)],
                            body: &[],
                            tail: &[],
                        }),
                        None => Taken::Yes,
                    }
                }
            };
            if taken == Taken::No {
                break;
            }
            self.outbox.entries.pop_front();
        }
        self.counters.transmitted += u64::from(count);
        self.counters.transmissions += u64::from(count > 0);
        count
    }

    fn transmit_requests(
        &mut self,
        flight: u32,
        sequence: u32,
        post: &mut impl FnMut(&Outgoing<'_>) -> Taken,
    ) -> Taken {
        let (node, tag) = (self.config.node.0, self.tag);
        let flight = &mut self.flights[flight as usize];
        if flight.stage != crate::flight::Stage::Sent || flight.sequence != sequence {
            return Taken::Yes;
        }
        let Some(peer) = self.peers[usize::from(flight.node)].as_deref() else { return Taken::Yes };
        let Some(to) = peer.to else { return Taken::Yes };
        let header = Header { node, from: tag, to: peer.tag, sequence };
        let mut immediate =
            Immediate { kind: Kind::Request, count: flight.count, slot: flight.slot, fence: self.fence };
        let peer_node = Node(flight.node);
        let Some(parts) = &mut flight.parts_out else {
            if let Some(head) = flight.request.first_chunk_mut::<HEADER_LEN>() {
                header.emit(head);
            }
            let taken = post(&Outgoing::new(peer_node, to, immediate, &flight.request, &[]));
            flight.is_queued = taken == Taken::No;
            self.counters.request_datagrams += u64::from(taken == Taken::Yes);
            return taken;
        };
        immediate.kind = Kind::RequestPart;
        while let Some((part, is_again)) = parts.next(self.config.window_parts) {
            let head = part_head(&header, &part);
            if post(&Outgoing::new(
                peer_node,
                to,
                immediate,
                &head,
                &flight.request[HEADER_LEN..][part.range()],
            )) == Taken::No
            {
                return Taken::No;
            }
            parts.mark_sent(&part);
            self.counters.parts += 1;
            self.counters.request_datagrams += 1;
            self.counters.resent += u64::from(is_again);
        }
        flight.is_queued = false;
        Taken::Yes
    }

    fn transmit_responses(
        &mut self,
        node: u16,
        slot: u8,
        sequence: u32,
        post: &mut impl FnMut(&Outgoing<'_>) -> Taken,
    ) -> Taken {
        let (own, tag) = (self.config.node.0, self.tag);
        let Some(peer) = self.peers[usize::from(node)].as_deref_mut() else { return Taken::Yes };
        let (to, from) = (peer.to, peer.introduced_tag());
        let (Some(to), Some(from)) = (to, from) else { return Taken::Yes };
        let Some(served) = peer.responder.get_mut(usize::from(slot)) else { return Taken::Yes };
        if served.sequence != sequence || served.served != crate::peer::Served::Done {
            return Taken::Yes;
        }
        let header = Header { node: own, from: tag, to: from, sequence };
        let mut immediate = Immediate { kind: Kind::Response, count: served.count, slot, fence: self.fence };
        let peer_node = Node(node);
        let Some(parts) = &mut served.parts_out else {
            if let Some(head) = served.response.first_chunk_mut::<HEADER_LEN>() {
                header.emit(head);
            }
            let taken = post(&Outgoing::new(peer_node, to, immediate, &served.response, &[]));
            served.is_queued = taken == Taken::No;
            self.counters.response_datagrams += u64::from(taken == Taken::Yes);
            return taken;
        };
        immediate.kind = Kind::ResponsePart;
        while let Some((part, is_again)) = parts.next(self.config.window_parts) {
            let head = part_head(&header, &part);
            if post(&Outgoing::new(
                peer_node,
                to,
                immediate,
                &head,
                &served.response[HEADER_LEN..][part.range()],
            )) == Taken::No
            {
                return Taken::No;
            }
            parts.mark_sent(&part);
            self.counters.parts += 1;
            self.counters.response_datagrams += 1;
            self.counters.resent += u64::from(is_again);
        }
        served.is_queued = false;
        Taken::Yes
    }

    fn transmit_requester_report(
        &mut self,
        flight: u32,
        sequence: u32,
        post: &mut impl FnMut(&Outgoing<'_>) -> Taken,
    ) -> Taken {
        let flight = &mut self.flights[flight as usize];
        if flight.stage != crate::flight::Stage::Sent || flight.sequence != sequence {
            return Taken::Yes;
        }
        let (base, bitmap) = flight.parts_in.as_ref().map_or((0, 0), |parts| parts.progress());
        let progress = Progress { stage: Stage::Response, base, bitmap };
        let (node, slot) = (flight.node, flight.slot);
        let Some(peer) = self.peers[usize::from(node)].as_deref() else { return Taken::Yes };
        let header = Header { node: self.config.node.0, from: self.tag, to: peer.tag, sequence };
        let taken = report(node, peer.to, slot, self.fence, &header, &progress, post);
        flight.reports = taken == Taken::No;
        taken
    }

    fn transmit_responder_report(
        &mut self,
        node: u16,
        slot: u8,
        sequence: u32,
        post: &mut impl FnMut(&Outgoing<'_>) -> Taken,
    ) -> Taken {
        let (own, tag) = (self.config.node.0, self.tag);
        let Some(peer) = self.peers[usize::from(node)].as_deref_mut() else { return Taken::Yes };
        let (to, Some(from)) = (peer.to, peer.introduced_tag()) else { return Taken::Yes };
        let Some(served) = peer.responder.get_mut(usize::from(slot)) else { return Taken::Yes };
        if served.sequence != sequence {
            return Taken::Yes;
        }
        let progress = match &served.parts_in {
            Some(parts) => {
                let (base, bitmap) = parts.progress();
                Progress { stage: Stage::Request, base, bitmap }
            }
            None => Progress { stage: Stage::Working, base: 0, bitmap: 0 },
        };
        let header = Header { node: own, from: tag, to: from, sequence };
        let taken = report(node, to, slot, self.fence, &header, &progress, post);
        served.reports = taken == Taken::No;
        taken
    }
}

fn part_head(header: &Header, part: &Part) -> [u8; HEADER_LEN + PART_HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN + PART_HEADER_LEN];
    let (mut head, mut tail) = ([0; HEADER_LEN], [0; PART_HEADER_LEN]);
    header.emit(&mut head);
    part.emit(&mut tail);
    bytes[..HEADER_LEN].copy_from_slice(&head);
    bytes[HEADER_LEN..].copy_from_slice(&tail);
    bytes
}

fn report(
    node: u16,
    to: Option<Datagram>,
    slot: u8,
    fence: u16,
    header: &Header,
    progress: &Progress,
    post: &mut impl FnMut(&Outgoing<'_>) -> Taken,
) -> Taken {
    let Some(to) = to else { return Taken::Yes };
    let immediate = Immediate { kind: Kind::Progress, count: 0, slot, fence }.to_bits();
    let (mut head, mut body) = ([0; HEADER_LEN], [0; PROGRESS_LEN]);
    header.emit(&mut head);
    progress.emit(&mut body);
    post(&Outgoing { node: Node(node), to, immediate, head: &head, body: &body, tail: &[] })
}
