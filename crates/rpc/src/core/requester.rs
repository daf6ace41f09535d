//! The requester's half: flights into slots, responses back, and the end of flights that get none.

use super::outbox::Tx;
use super::{Core, PARCEL, greet};
use crate::config::Node;
use crate::error::CallError;
use crate::flight::{Answer, Entry, Flight, Stage};
use crate::parts::{PartsIn, PartsOut};
use crate::peer::Greeted;
use crate::wire::{
    HEADER_LEN, Header, Immediate, MESSAGE_BYTES_MAX, MESSAGE_HEADER_LEN, Messages, PART_HEADER_LEN,
    ParseError, Part, Progress, emit_message_header,
};
use highwire_stdx::Instant;

impl Core {
    /// A flight to `node`, to which requests can be added.
    pub(crate) fn open_flight(&mut self, node: u16, call: u32) -> u32 {
        let id = self.free_flights.pop().unwrap_or_else(|| {
            self.flights.push(Flight::new());
            self.flights.len() as u32 - 1
        });
        let answer = self.spare.pop().unwrap_or_default();
        let flight = &mut self.flights[id as usize];
        flight.open(node, call);
        flight.answer = answer;
        id
    }

    /// Adds a request whose bytes are `pieces`, one behind the other.
    #[inline]
    pub(crate) fn add_request(&mut self, flight: u32, tag: u8, pieces: &[&[u8]]) -> Result<u8, CallError> {
        let flight = &mut self.flights[flight as usize];
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let total = flight.request.len() - HEADER_LEN + MESSAGE_HEADER_LEN + length;
        if length > MESSAGE_BYTES_MAX || total > self.config.batch_bytes_max as usize {
            return Err(CallError::TooLong);
        }
        let at = flight.request.len();
        flight.request.extend_from_slice(&[0; MESSAGE_HEADER_LEN]);
        emit_message_header(&mut flight.request, at, tag, length);
        pieces.iter().for_each(|piece| flight.request.extend_from_slice(piece));
        flight.count += 1;
        Ok(flight.count - 1)
    }

    /// Submits a flight: to this very node, to a slot, or to the peer's queue of waiting flights.
    pub(crate) fn submit(&mut self, id: u32, deadline: Instant) {
        let flight = &mut self.flights[id as usize];
        let (node, count) = (flight.node, u64::from(flight.count));
        (flight.stage, flight.deadline) = (Stage::Waiting, deadline);
        self.counters.requests += count;
        if node == self.config.node.0 {
            self.counters.local += count;
            self.local.push_back(id);
            return;
        }
        let now = self.now;
        if deadline < Instant::FAR_FUTURE {
            self.wake_at(deadline);
        }
        match self.peer_mut(node).filter(|peer| peer.to.is_some()) {
            None => self.finish_flight(id, Err(CallError::NoSuchNode(Node(node)))),
            Some(peer) => match peer.greeted {
                Greeted::Yes { .. } => match peer.free.pop() {
                    Some(slot) => self.launch(id, slot, now),
                    None => {
                        peer.waiting.push_back(id);
                        self.counters.waited_for_slot += 1;
                    }
                },
                _ => {
                    peer.waiting.push_back(id);
                    self.greet(node);
                }
            },
        }
    }

    /// Gives a flight its slot and puts it into the outbox.
    #[inline]
    fn launch(&mut self, id: u32, slot: u8, now: Instant) {
        let resend_at = greet::resend_at(now, &self.config, 0);
        let flight = &mut self.flights[id as usize];
        let Some(peer) = self.peers[usize::from(flight.node)].as_deref_mut() else { return };
        let place = &mut peer.requester[usize::from(slot)];
        place.sequence = place.sequence.wrapping_add(1);
        place.flight = Some(id);
        (flight.stage, flight.slot, flight.sequence) = (Stage::Sent, slot, place.sequence);
        (flight.sent_at, flight.resend_at, flight.is_queued) = (now, resend_at, true);
        if flight.request.len() > usize::from(peer.datagram_bytes) {
            let total = (flight.request.len() - HEADER_LEN) as u32;
            let part_bytes = peer.datagram_bytes - (HEADER_LEN + PART_HEADER_LEN) as u16;
            if Part::parts(total, part_bytes) >= 1 << 16 {
                self.finish_flight(id, Err(CallError::TooLong));
                return;
            }
            flight.parts_out = Some(Box::new(PartsOut::new(total, part_bytes)));
        }
        self.outbox.push(Tx::Requests { flight: id, sequence: flight.sequence });
        self.wake_at(resend_at);
    }

    /// Slots have become free: waiting flights take them.
    pub(super) fn start_waiting(&mut self, node: u16) {
        let now = self.now;
        while let Some(peer) = self.peer_mut(node)
            && !peer.free.is_empty()
            && let Some(id) = peer.waiting.pop_front()
        {
            let slot = peer.free.pop().expect("one is free");
            self.launch(id, slot, now);
        }
    }

    /// The flight to which a responder's datagram belongs, if the flight still waits for one.
    #[inline]
    pub(super) fn flight_in(&self, node: u16, slot: u8, sequence: u32) -> Option<u32> {
        let place = self.peer(node)?.requester.get(usize::from(slot))?;
        place.flight.filter(|_| place.sequence == sequence)
    }

    #[inline]
    pub(super) fn on_response(
        &mut self,
        immediate: &Immediate,
        header: &Header,
        body: &[u8],
    ) -> Result<(), ParseError> {
        let Some(id) = self.flight_in(header.node, immediate.slot, header.sequence) else {
            self.counters.stale_responses += 1;
            return Ok(());
        };
        let flight = &mut self.flights[id as usize];
        check_count(flight, immediate)?;
        fill(&mut flight.answer, body, immediate)?;
        flight.answer.bytes.extend_from_slice(body);
        self.finish_flight(id, Ok(()));
        Ok(())
    }

    /// The response to a batch to this very node.
    pub(super) fn respond_local(&mut self, id: u32, sequence: u32, count: u8, response: &[u8]) {
        let fence = self.fence;
        let flight = &mut self.flights[id as usize];
        if flight.stage != Stage::Waiting || flight.sequence != sequence || flight.node != self.config.node.0
        {
            return;
        }
        let body = response.get(HEADER_LEN..).unwrap_or_default();
        let immediate = Immediate { kind: crate::wire::Kind::Response, count, slot: 0, fence };
        let filled = fill(&mut flight.answer, body, &immediate).map_err(|_| CallError::HandlerFailed);
        flight.answer.bytes.extend_from_slice(body);
        self.finish_flight(id, filled);
    }

    pub(super) fn on_response_part(
        &mut self,
        immediate: &Immediate,
        header: &Header,
        body: &[u8],
    ) -> Result<(), ParseError> {
        let (part, bytes) = Part::parse(body)?;
        let Some(id) = self.flight_in(header.node, immediate.slot, header.sequence) else {
            self.counters.stale_responses += 1;
            return Ok(());
        };
        let resend_at = greet::resend_at(self.now, &self.config, 0);
        let flight = &mut self.flights[id as usize];
        check_count(flight, immediate)?;
        if part.total > self.config.batch_bytes_max {
            self.finish_flight(id, Err(CallError::TooLong));
            return Ok(());
        }
        let parts = flight.parts_in.get_or_insert_with(|| Box::new(PartsIn::new(&part)));
        if parts.take(&part, bytes) {
            (flight.resends, flight.resend_at) = (0, resend_at);
            self.next_check = self.next_check.min(resend_at);
        } else {
            self.counters.stale_responses += 1;
        }
        if let Some(whole) = parts.whole() {
            flight.parts_in = None;
            fill(&mut flight.answer, &whole, immediate)?;
            flight.answer.bytes = whole;
            self.finish_flight(id, Ok(()));
        } else {
            self.report_response(id);
        }
        Ok(())
    }

    /// Tells the responder which parts of the response have arrived.
    fn report_response(&mut self, id: u32) {
        let flight = &mut self.flights[id as usize];
        if !std::mem::replace(&mut flight.reports, true) {
            self.outbox.push(Tx::RequesterReport { flight: id, sequence: flight.sequence });
        }
    }

    /// The responder reports which parts of the requests it has, or that it is executing them.
    pub(super) fn on_request_progress(&mut self, slot: u8, header: &Header, progress: &Progress) {
        let Some(id) = self.flight_in(header.node, slot, header.sequence) else {
            self.counters.stale_responses += 1;
            return;
        };
        let resend_at = greet::resend_at(self.now, &self.config, 0);
        let flight = &mut self.flights[id as usize];
        if progress.stage == crate::wire::Stage::Working {
            // The responder has all parts.
            flight.parts_out = flight.parts_out.take().map(|mut parts| {
                parts.finish();
                parts
            });
            return;
        }
        let Some(parts) = &mut flight.parts_out else { return };
        parts.on_progress(progress.base, progress.bitmap);
        (flight.resends, flight.resend_at) = (0, resend_at);
        self.wake_at(resend_at);
        self.queue_requests(id);
    }

    fn queue_requests(&mut self, id: u32) {
        let flight = &mut self.flights[id as usize];
        if !std::mem::replace(&mut flight.is_queued, true) {
            self.outbox.push(Tx::Requests { flight: id, sequence: flight.sequence });
        }
    }

    /// Looks at every flight: sends some again, and gives up those that have waited too long.
    pub(super) fn check_flights(&mut self) {
        for id in 0..self.flights.len() as u32 {
            let (now, failure_after) = (self.now, self.config.failure_after);
            let flight = &self.flights[id as usize];
            if !matches!(flight.stage, Stage::Waiting | Stage::Sent) {
                continue;
            }
            let node = flight.node;
            if flight.deadline <= now {
                self.give_up(id, CallError::DeadlineExceeded);
                continue;
            }
            let mut next = flight.deadline;
            if flight.stage == Stage::Sent {
                let heard = self.peer(node).map_or(Instant::ZERO, |peer| peer.heard);
                let since = flight.sent_at.max(heard);
                if now.saturating_since(since) >= failure_after && flight.resends > 0 {
                    self.counters.silent += 1;
                    self.finish_flight(id, Err(CallError::PeerSilent(Node(node))));
                    continue;
                }
                if flight.resend_at <= now {
                    self.resend(id);
                }
                next = next.min(self.flights[id as usize].resend_at);
            }
            if next < Instant::FAR_FUTURE {
                self.wake_at(next);
            }
        }
    }

    /// No sign of life for a flight for too long.
    fn resend(&mut self, id: u32) {
        self.counters.resent += 1;
        let flight = &mut self.flights[id as usize];
        flight.resends += 1;
        flight.resend_at = greet::resend_at(self.now, &self.config, flight.resends);
        match &mut flight.parts_out {
            // The responder has all requests, or has begun to answer: the requester asks for the missing
            // parts.
            _ if flight.parts_in.is_some() => self.report_response(id),
            Some(parts) if parts.is_done() => self.report_response(id),
            Some(parts) => {
                parts.on_timeout();
                self.queue_requests(id);
            }
            None => self.queue_requests(id),
        }
    }

    /// The caller has given up a flight, or its time is over.
    pub(crate) fn give_up(&mut self, id: u32, error: CallError) {
        self.counters.cancelled += 1;
        let flight = &self.flights[id as usize];
        if flight.stage == Stage::Waiting {
            let node = flight.node;
            if let Some(peer) = self.peer_mut(node) {
                peer.waiting.retain(|&waiting| waiting != id);
            }
            self.local.retain(|&waiting| waiting != id);
        }
        self.finish_flight(id, Err(error));
    }

    /// A flight has its response, or an error: its slot is free, and its call may go on.
    pub(crate) fn finish_flight(&mut self, id: u32, result: Result<(), CallError>) {
        let flight = &mut self.flights[id as usize];
        let (node, slot, call) = (flight.node, flight.slot, flight.call);
        let was_sent = std::mem::replace(&mut flight.stage, Stage::Done) == Stage::Sent;
        (flight.parts_out, flight.parts_in) = (None, None);
        if let Err(error) = result {
            flight.answer.failure = Some(error);
        }
        if was_sent && let Some(peer) = self.peer_mut(node) {
            peer.requester[usize::from(slot)].flight = None;
            if u16::from(slot) < peer.granted {
                peer.free.push(slot);
            }
            if !peer.waiting.is_empty() {
                self.start_waiting(node);
            }
        }
        if call == PARCEL {
            self.returned.push_back(id);
        } else if let Some(call) = self.calls.get_mut(call) {
            call.remaining -= 1;
            if call.remaining == 0
                && let Some(waker) = &call.waker
            {
                waker.wake_by_ref();
            }
        }
    }

    /// Every flight to a node that has been sent fails; with `waiting`, the others as well.
    pub(super) fn fail_flights(&mut self, node: u16, error: CallError, waiting: bool) {
        // Flights that wait must not take the slots that become free here.
        let parked = self.peer_mut(node).map(|peer| std::mem::take(&mut peer.waiting)).unwrap_or_default();
        for id in 0..self.flights.len() as u32 {
            let flight = &self.flights[id as usize];
            if flight.node == node && flight.stage == Stage::Sent {
                self.finish_flight(id, Err(error));
            }
        }
        if waiting {
            parked.into_iter().for_each(|id| self.finish_flight(id, Err(error)));
        } else if let Some(peer) = self.peer_mut(node) {
            peer.waiting = parked;
        }
    }

    /// Frees a flight, and gives its answer to the caller.
    pub(crate) fn close_flight(&mut self, id: u32) -> Answer {
        let flight = &mut self.flights[id as usize];
        flight.stage = Stage::Free;
        let answer = std::mem::take(&mut flight.answer);
        self.free_flights.push(id);
        answer
    }

    /// Frees a call that is over.
    pub(crate) fn close_call(&mut self, call: u32) {
        self.calls.remove(call);
    }

    /// Takes back the buffers of an answer.
    pub(crate) fn recycle(&mut self, mut answer: Answer) {
        /// Longer buffers are not kept: one long response must not hold its memory for ever.
        const SPARE_BYTES_MAX: usize = 64 << 10;
        const SPARE_MAX: usize = 1024;
        if answer.bytes.capacity() <= SPARE_BYTES_MAX && self.spare.len() < SPARE_MAX {
            answer.bytes.clear();
            answer.entries.clear();
            answer.failure = None;
            self.spare.push(answer);
        }
    }
}

/// A response has as many messages as its requests.
fn check_count(flight: &Flight, immediate: &Immediate) -> Result<(), ParseError> {
    if flight.count == immediate.count {
        return Ok(());
    }
    Err(ParseError::Count { kind: immediate.kind, count: immediate.count })
}

/// Notes where each message of a response lies.
#[inline]
fn fill(answer: &mut Answer, body: &[u8], immediate: &Immediate) -> Result<(), ParseError> {
    let messages = Messages::parse(body, immediate.count)?;
    answer.fence = immediate.fence;
    answer.entries.clear();
    answer.bytes.clear();
    let mut at = 0;
    for message in messages {
        at += MESSAGE_HEADER_LEN as u32;
        let length = message.bytes.len() as u32;
        answer.entries.push(Entry { status: message.tag, start: at, length });
        at += length;
    }
    Ok(())
}
