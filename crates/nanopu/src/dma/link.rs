//! The other end of the node's link: sends frames when they are due, and notes the answers.

use crate::client::Request;
use crate::core::Event;
use crate::packet::{Packet, SEGMENT_BYTES, flag};

use super::node::{DmaEvent, DmaNode};

/// The answer to a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DmaAnswer {
    /// The cycles of the request's first word on the node's interface, and of the answer's first and last.
    pub asked: u64,
    /// See [`DmaAnswer::asked`].
    pub first: u64,
    /// See [`DmaAnswer::asked`].
    pub last: u64,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Requests being played. There is no transport: every request is one frame, which is neither acknowledged nor sent again.
#[derive(Debug)]
pub struct DmaLink<'a> {
    client: u32,
    node: u32,
    requests: &'a [Request],
    next: usize,
    wire_free: u64,
    answers: Vec<Option<DmaAnswer>>,
    asked: Vec<u64>,
    answered: usize,
    /// Frames that answered no request.
    pub strays: u64,
    /// Requests that the NIC refused.
    pub refused: Vec<DmaEvent>,
}

/// So many requests have numbers of their own.
const REQUESTS_MAX: usize = 1 << 16;

impl<'a> DmaLink<'a> {
    /// The host `client` is about to send `requests` to `node`, in order of `sent`, the cycle in which one is due on the node's
    /// interface.
    ///
    /// # Panics
    /// There are more than 65,536, or a payload is longer than [`SEGMENT_BYTES`].
    pub fn new(client: u32, node: u32, requests: &'a [Request]) -> DmaLink<'a> {
        let is_short = |request: &Request| request.payload.len() <= SEGMENT_BYTES;
        assert!(requests.len() <= REQUESTS_MAX && requests.iter().all(is_short), "messages of one frame");
        let count = requests.len();
        let (answers, asked) = (vec![None; count], vec![0; count]);
        let (wire_free, next, answered, strays, refused) = (0, 0, 0, 0, Vec::new());
        DmaLink { client, node, requests, next, wire_free, answers, asked, answered, strays, refused }
    }

    /// Plays the requests until all are answered or `patience_cycles` have passed since the last was due.
    /// Returns each request's answer, or `None`. `on_event` sees what the core does.
    ///
    /// # Errors
    /// The core took a trap.
    pub fn play(
        &mut self,
        node: &mut DmaNode,
        patience_cycles: u64,
        mut on_event: impl FnMut(Event),
    ) -> Result<Vec<Option<DmaAnswer>>, DmaEvent> {
        let end =
            self.requests.last().map_or(node.cycle(), |request| request.sent).saturating_add(patience_cycles);
        while self.answered < self.requests.len() && node.cycle() < end {
            self.tick(node, &mut on_event)?;
        }
        Ok(std::mem::take(&mut self.answers))
    }

    fn tick(&mut self, node: &mut DmaNode, on_event: impl FnMut(Event)) -> Result<(), DmaEvent> {
        while let Some(request) = self.requests.get(self.next).filter(|request| request.sent <= node.cycle())
        {
            let number = self.next as u16;
            let frame = Packet {
                source: self.client,
                destination: self.node,
                flags: flag::DATA,
                source_context: number,
                destination_context: request.context,
                message_bytes: request.payload.len() as u16,
                message: number,
                payload: request.payload.clone(),
                ..Packet::default()
            };
            let first = node.cycle().max(self.wire_free);
            self.wire_free = first + frame.wire_words();
            self.asked[self.next] = first;
            node.receive(first, frame.encode());
            self.next += 1;
        }
        node.tick(on_event);
        for event in node.take_events() {
            match event {
                DmaEvent::Sent(departure) => {
                    self.take(departure.first, departure.last, &departure.frame);
                }
                refused @ DmaEvent::Refused { .. } => self.refused.push(refused),
                trapped @ DmaEvent::Trapped { .. } => return Err(trapped),
            }
        }
        Ok(())
    }

    /// A frame belongs to the request whose number its destination context is.
    fn take(&mut self, first: u64, last: u64, frame: &[u8]) {
        let packet = Packet::decode(frame).ok().filter(|packet| packet.destination == self.client);
        let number = packet.as_ref().map(|packet| usize::from(packet.destination_context));
        let slot = number.and_then(|number| self.answers.get_mut(number)).filter(|slot| slot.is_none());
        let (Some(packet), Some(slot), Some(number)) = (packet, slot, number) else {
            self.strays += 1;
            return;
        };
        *slot = Some(DmaAnswer { asked: self.asked[number], first, last, payload: packet.payload });
        self.answered += 1;
    }
}
