//! The responder's half: every batch is executed at most once, and its response is kept until the slot's next batch.

use super::greet::Reason;
use super::outbox::Tx;
use super::{Core, Step, is_later};
use crate::config::Node;
use crate::handler::Request;
use crate::parts::{PartsIn, PartsOut};
use crate::peer::{ResponderSlot, Served};
use crate::wire::{
    HEADER_LEN, Header, Immediate, MESSAGE_HEADER_LEN, Message, Messages, PART_HEADER_LEN, ParseError, Part,
    Progress, emit_message_header,
};

/// The origin of a batch that is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A life of a peer.
    Remote { node: u16, life: u32, slot: u8, sequence: u32 },
    /// A worker of this node.
    Local { flight: u32, sequence: u32 },
}

/// A batch to execute.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) origin: Origin,
    /// The requester.
    pub(crate) node: u16,
    pub(crate) count: u8,
    /// The requester's configuration id.
    pub(crate) fence: u16,
    /// The batch, if it came in parts; otherwise it lies in the received datagram, behind the header.
    pub(crate) assembled: Option<Vec<u8>>,
    /// The buffer for its response: room for the header, then messages.
    pub(crate) response: Vec<u8>,
}

/// How a datagram's sequence relates to its slot's last batch.
enum Order {
    New,
    Again,
    Old,
}

impl Core {
    fn order(served: &ResponderSlot, sequence: u32) -> Order {
        if served.served == Served::Nothing || is_later(sequence, served.sequence) {
            Order::New
        } else if sequence == served.sequence {
            Order::Again
        } else {
            Order::Old
        }
    }

    #[inline]
    fn slot_mut(&mut self, node: u16, slot: u8) -> Option<&mut ResponderSlot> {
        self.peer_mut(node)?.responder.get_mut(usize::from(slot))
    }

    /// A whole batch of requests.
    #[inline]
    pub(super) fn on_request(&mut self, immediate: &Immediate, header: &Header, body: &[u8]) -> Step {
        let (node, slot, sequence) = (header.node, immediate.slot, header.sequence);
        let Some(served) = self.slot_mut(node, slot) else {
            self.counters.malformed += 1;
            return Step::Done;
        };
        match Core::order(served, sequence) {
            Order::Old => {
                self.counters.duplicates += 1;
                return Step::Done;
            }
            Order::Again => {
                self.counters.duplicates += 1;
                self.repeat(node, slot);
                return Step::Done;
            }
            Order::New => {}
        }
        if Messages::parse(body, immediate.count).is_err() {
            self.counters.malformed += 1;
            return Step::Done;
        }
        let response = Core::begin(served, sequence, immediate.count);
        Step::Execute(Execution {
            origin: Origin::Remote { node, life: header.from, slot, sequence },
            node,
            count: immediate.count,
            fence: immediate.fence,
            assembled: None,
            response,
        })
    }

    /// Takes a slot for a new batch; returns the buffer for its response.
    #[inline]
    fn begin(served: &mut ResponderSlot, sequence: u32, count: u8) -> Vec<u8> {
        (served.sequence, served.count) = (sequence, count);
        served.served = Served::Working;
        (served.parts_in, served.parts_out) = (None, None);
        served.is_queued = false;
        let mut response = std::mem::take(&mut served.response);
        response.clear();
        response.resize(HEADER_LEN, 0);
        response
    }

    /// A part of a batch of requests.
    pub(super) fn on_request_part(&mut self, immediate: &Immediate, header: &Header, body: &[u8]) -> Step {
        let Ok((part, bytes)) = Part::parse(body) else {
            self.counters.malformed += 1;
            return Step::Done;
        };
        let (node, slot, sequence) = (header.node, immediate.slot, header.sequence);
        let bytes_max = self.config.batch_bytes_max;
        let Some(served) = self.slot_mut(node, slot) else {
            self.counters.malformed += 1;
            return Step::Done;
        };
        match Core::order(served, sequence) {
            Order::Old => {
                self.counters.duplicates += 1;
                return Step::Done;
            }
            Order::Again if served.served == Served::Refused || part.total > bytes_max => {
                self.refuse(slot, header, Reason::TooLong);
                return Step::Done;
            }
            Order::Again if served.served != Served::Receiving => {
                self.counters.duplicates += 1;
                self.repeat(node, slot);
                return Step::Done;
            }
            Order::Again => {}
            Order::New if part.total > bytes_max => {
                served.response = Core::begin(served, sequence, immediate.count);
                served.served = Served::Refused;
                self.refuse(slot, header, Reason::TooLong);
                return Step::Done;
            }
            Order::New => {
                served.response = Core::begin(served, sequence, immediate.count);
                served.served = Served::Receiving;
                served.parts_in = Some(Box::new(PartsIn::new(&part)));
            }
        }
        let Some(parts) = &mut served.parts_in else { return Step::Done };
        let is_new = parts.take(&part, bytes);
        let Some(whole) = parts.whole() else {
            self.counters.duplicates += u64::from(!is_new);
            self.report_requests(node, slot);
            return Step::Done;
        };
        if Messages::parse(&whole, immediate.count).is_err() {
            served.served = Served::Refused;
            served.parts_in = None;
            self.counters.malformed += 1;
            return Step::Done;
        }
        let response = Core::begin(served, sequence, immediate.count);
        Step::Execute(Execution {
            origin: Origin::Remote { node, life: header.from, slot, sequence },
            node,
            count: immediate.count,
            fence: immediate.fence,
            assembled: Some(whole),
            response,
        })
    }

    /// The requester asks again for a batch that has arrived already.
    fn repeat(&mut self, node: u16, slot: u8) {
        let Some(served) = self.slot_mut(node, slot) else { return };
        match served.served {
            Served::Done => {
                if let Some(parts) = &mut served.parts_out {
                    parts.on_timeout();
                }
                self.queue_responses(node, slot);
                self.counters.repeated_responses += 1;
            }
            Served::Working | Served::Receiving => self.report_requests(node, slot),
            Served::Nothing | Served::Refused => {}
        }
    }

    /// Tells the requester which parts have arrived, or that the batch is being executed.
    fn report_requests(&mut self, node: u16, slot: u8) {
        let Some(served) = self.slot_mut(node, slot) else { return };
        let sequence = served.sequence;
        if !std::mem::replace(&mut served.reports, true) {
            self.outbox.push(Tx::ResponderReport { node, slot, sequence });
        }
    }

    fn queue_responses(&mut self, node: u16, slot: u8) {
        let Some(served) = self.slot_mut(node, slot) else { return };
        let sequence = served.sequence;
        if !std::mem::replace(&mut served.is_queued, true) {
            self.outbox.push(Tx::Responses { node, slot, sequence });
        }
    }

    /// The requester reports which parts of the response it has.
    pub(super) fn on_response_progress(&mut self, slot: u8, header: &Header, progress: &Progress) {
        let node = header.node;
        let Some(served) = self.slot_mut(node, slot) else { return };
        if served.served == Served::Nothing || served.sequence != header.sequence {
            self.counters.duplicates += 1;
            return;
        }
        match (&mut served.parts_out, served.served) {
            (Some(parts), Served::Done) => {
                // A report without news means that the requester's timer ran out.
                if !parts.on_report(progress.base, progress.bitmap) {
                    parts.on_timeout();
                }
                self.queue_responses(node, slot);
            }
            _ => self.repeat(node, slot),
        }
    }

    /// The next batch of a worker to this very node, with its requests.
    pub(crate) fn take_local(&mut self) -> Option<(Execution, Vec<u8>)> {
        let id = self.local.pop_front()?;
        self.local_batches = self.local_batches.wrapping_add(1);
        let (node, fence, sequence) = (self.config.node.0, self.fence, self.local_batches);
        let flight = &mut self.flights[id as usize];
        flight.sequence = sequence;
        let execution = Execution {
            origin: Origin::Local { flight: id, sequence },
            node,
            count: flight.count,
            fence,
            assembled: None,
            response: vec![0; HEADER_LEN],
        };
        Some((execution, std::mem::take(&mut flight.request)))
    }

    /// Gives back the buffer that `take_local` took.
    pub(crate) fn keep_request(&mut self, origin: Origin, request: Vec<u8>) {
        if let Origin::Local { flight, .. } = origin
            && self.flights[flight as usize].request.is_empty()
        {
            self.flights[flight as usize].request = request;
        }
    }

    /// The handlers have executed a batch.
    #[inline]
    pub(crate) fn executed(&mut self, origin: Origin, count: u8, response: Vec<u8>) {
        match origin {
            Origin::Remote { node, life, slot, sequence } => {
                // The peer may have begun another life meanwhile, whose sequences begin anew: this is no answer to it.
                let is_awaited = self.peer_mut(node).is_some_and(|peer| {
                    let served = peer.responder.get(usize::from(slot));
                    peer.introduced_tag() == Some(life)
                        && served.is_some_and(|s| s.sequence == sequence && s.served == Served::Working)
                });
                if is_awaited {
                    self.respond(node, slot, response);
                }
            }
            Origin::Local { flight, sequence } => self.respond_local(flight, sequence, count, &response),
        }
    }

    #[inline]
    fn respond(&mut self, node: u16, slot: u8, response: Vec<u8>) {
        let Some(peer) = self.peer_mut(node) else { return };
        let datagram_bytes = peer.datagram_bytes;
        let Some(served) = peer.responder.get_mut(usize::from(slot)) else { return };
        (served.response, served.served) = (response, Served::Done);
        if served.response.len() > usize::from(datagram_bytes) {
            let total = (served.response.len() - HEADER_LEN) as u32;
            let part_bytes = datagram_bytes - (HEADER_LEN + PART_HEADER_LEN) as u16;
            served.parts_out = Some(Box::new(PartsOut::new(total, part_bytes)));
        }
        self.queue_responses(node, slot);
    }
}

/// Adds a message to a batch of responses.
pub(crate) fn push_message(batch: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    let at = batch.len();
    batch.extend_from_slice(&[0; MESSAGE_HEADER_LEN]);
    emit_message_header(batch, at, tag, bytes.len());
    batch.extend_from_slice(bytes);
}

impl Execution {
    /// The requests, as they lie in the received datagram or in the assembled parts.
    ///
    /// # Errors
    /// None but those for which [`Core::on_request`] has looked.
    #[inline]
    pub(crate) fn messages<'a>(&'a self, body: &'a [u8]) -> Result<Messages<'a>, ParseError> {
        Messages::parse(self.assembled.as_deref().unwrap_or(body), self.count)
    }

    /// One of the requests, as its handler sees it.
    #[inline]
    pub(crate) fn request<'a>(&self, message: &Message<'a>) -> Request<'a> {
        Request { node: Node(self.node), fence: self.fence, bytes: message.bytes }
    }
}
