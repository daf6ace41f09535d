//! Carries a node's requests over RPCs, and other nodes' requests to the node.
//!
//! `txn` demands of a carrier: a receiver executes a request at most once in one of its lives, and the
//! carrier repeats it until it is answered or no transaction waits for it. One RPC call gives that for as
//! long as it lasts, so a call lasts until it is answered, the peer has become another incarnation, or the
//! node says that no transaction waits; it is never given up because the peer is silent. A receiver that has
//! no answer *yet* has not executed the request and says so; the sender asks again, as a new call.
//!
//! Calls are parcels: no task waits for them, and the node takes their responses in its turn.
//!
//! The RPC layer's own fence has 16 bits and is not used: each message carries the whole configuration id.

use crate::session::Shared;
use highwire_host::rpc::{Node, Parcel, ParcelId, RequestType, Rpc, time};
use highwire_txn::{Addressed, NodeId, Reply};
use std::mem::take;
use std::rc::Rc;

/// The only type: the message itself names its kind.
const DELIVER: RequestType = RequestType(1);

/// First byte of a response: the receiver executed nothing, ask again.
const NOT_NOW: u8 = 0;
/// First byte of a response: the answer follows.
const ANSWER: u8 = 1;

/// The shortest pause before a node is asked again.
const PAUSE_MIN_NS: u64 = 100_000;
const PAUSE_MAX_NS: u64 = 4_000_000;
/// How often the carrier looks whether a transaction still waits for the calls under way.
const LOOK_NS: u64 = 20_000_000;

/// Lets a node with a disk answer other nodes' requests; it sends an answer that is a promise only when the
/// disk has it.
pub(crate) fn serve_durably(rpc: &mut Rpc, shared: &Rc<Shared>) {
    let shared = Rc::clone(shared);
    rpc.register_nested(DELIVER, move |_, request| {
        let shared = Rc::clone(&shared);
        async move {
            let now = shared.clock.now_ns();
            let reply = shared.node.borrow_mut().handle_request(now, NodeId(request.node.0), &request.bytes);
            match reply {
                Some(Reply { after, bytes }) if shared.durable(after).await => {
                    [&[ANSWER], bytes.as_slice()].concat()
                }
                // A node whose disk failed executes nothing more: asking it again does no harm.
                _ => vec![NOT_NOW],
            }
        }
    });
}

/// Lets the node answer other nodes' requests.
pub(crate) fn serve(rpc: &mut Rpc, shared: &Rc<Shared>) {
    let expecting = Rc::clone(shared);
    let shared = Rc::clone(shared);
    let mut answer = Vec::new();
    rpc.register(DELIVER, move |request, response| {
        let now = shared.arrival_ns();
        answer.clear();
        answer.push(ANSWER);
        let mut node = shared.node.borrow_mut();
        match node.handle_request_into(now, NodeId(request.node.0), request.bytes, &mut answer) {
            Some(_) => response.write(&answer),
            None => response.write(&[NOT_NOW]),
        }
    });
    rpc.look_ahead(DELIVER, move |request| expecting.node.borrow().expect_request(request));
}

/// Requests on their way.
#[derive(Default)]
pub(crate) struct Backlog {
    /// Parcels that are being filled.
    loads: Vec<Load>,
    /// By the parcel's number.
    under_way: Vec<Option<UnderWay>>,
    /// Requests that are to be made again.
    again: Vec<Again>,
    /// When calls are looked at next.
    look_ns: u64,
    /// The bytes of the request at hand.
    bytes: Vec<u8>,
    /// Lists of tickets that can be used again.
    spare: Vec<Vec<u64>>,
}

/// Requests that go to one node together.
struct Load {
    to: NodeId,
    is_reliable: bool,
    pause_ns: u64,
    parcel: Parcel,
    tickets: Vec<u64>,
}

/// A parcel that was sent.
struct UnderWay {
    to: NodeId,
    tickets: Vec<u64>,
    is_reliable: bool,
    /// The pause before an unanswered request is sent again.
    pause_ns: u64,
}

/// A request without an answer.
struct Again {
    at_ns: u64,
    pause_ns: u64,
    addressed: Addressed,
    bytes: Vec<u8>,
}

impl Backlog {
    /// Hands the node its answers. Returns whether there were any.
    /// All have come before `now_ns`.
    pub(crate) fn receive(&mut self, rpc: &mut Rpc, shared: &Shared, now_ns: u64) -> bool {
        let mut any = false;
        while let Some(parcel) = rpc.take_parcel() {
            any = true;
            let place = self.under_way.get_mut(parcel.id().0 as usize);
            let Some(call) = place.and_then(Option::take) else { continue };
            let UnderWay { to, mut tickets, is_reliable, pause_ns } = call;
            let mut node = shared.node.borrow_mut();
            parcel.each(|place, request, reply| {
                let Some(&ticket) = tickets.get(place) else { return };
                match reply {
                    Ok([ANSWER, answer @ ..]) => node.handle_response(now_ns, ticket, answer),
                    _ if is_reliable && node.is_waiting(ticket) => self.again.push(Again {
                        at_ns: now_ns + pause_ns,
                        pause_ns: (pause_ns * 2).min(PAUSE_MAX_NS),
                        addressed: Addressed { ticket, to, is_reliable },
                        bytes: request.to_vec(),
                    }),
                    _ => {}
                }
            });
            tickets.clear();
            self.spare.push(tickets);
        }
        any
    }

    /// Sends the node's messages; those to one node go together. Returns whether there were any.
    pub(crate) fn send(&mut self, rpc: &mut Rpc, shared: &Shared, now_ns: u64, lease_ns: u64) -> bool {
        let mut bytes = take(&mut self.bytes);
        loop {
            bytes.clear();
            let Some(request) = shared.node.borrow_mut().poll_request_into(&mut bytes) else { break };
            self.load(rpc, request, PAUSE_MIN_NS, &bytes, now_ns);
        }
        self.bytes = bytes;
        if self.again.iter().any(|again| again.at_ns <= now_ns) {
            let due = self.again.extract_if(.., |again| again.at_ns <= now_ns);
            for Again { pause_ns, addressed, bytes, .. } in due.collect::<Vec<_>>() {
                if shared.node.borrow().is_waiting(addressed.ticket) {
                    self.load(rpc, addressed, pause_ns, &bytes, now_ns);
                }
            }
        }
        let any = !self.loads.is_empty();
        for Load { to, is_reliable, pause_ns, parcel, tickets } in self.loads.drain(..) {
            // Heartbeats: useless when they are old.
            let timeout = (!is_reliable).then_some(time::Duration::from_nanos(lease_ns));
            let ParcelId(id) = parcel.send(timeout);
            let place = id as usize;
            if place >= self.under_way.len() {
                self.under_way.resize_with(place + 1, || None);
            }
            self.under_way[place] = Some(UnderWay { to, tickets, is_reliable, pause_ns });
        }
        if self.look_ns <= now_ns {
            self.look_ns = now_ns + LOOK_NS;
            self.cancel_unawaited(rpc, shared);
        }
        any
    }

    /// Adds a request to the parcel for its node.
    fn load(&mut self, rpc: &mut Rpc, request: Addressed, pause_ns: u64, bytes: &[u8], now_ns: u64) {
        let Addressed { ticket, to, is_reliable } = request;
        // There are few nodes: a linear search is quickest.
        let fitting =
            |load: &&mut Load| (load.to, load.is_reliable, load.pause_ns) == (to, is_reliable, pause_ns);
        if let Some(load) = self.loads.iter_mut().rev().find(fitting)
            && load.parcel.add(DELIVER, bytes).is_ok()
        {
            load.tickets.push(ticket);
            return;
        }
        let mut parcel = rpc.parcel(Node(to.0));
        if parcel.add(DELIVER, bytes).is_ok() {
            let mut tickets = self.spare.pop().unwrap_or_default();
            tickets.push(ticket);
            self.loads.push(Load { to, is_reliable, pause_ns, parcel, tickets });
        } else if is_reliable {
            // Longer than any message: the node may stop waiting for it.
            let (at_ns, bytes) = (now_ns + PAUSE_MAX_NS, bytes.to_vec());
            self.again.push(Again { at_ns, pause_ns, addressed: request, bytes });
        }
    }

    /// Gives up calls when no transaction waits for any of their answers any more.
    fn cancel_unawaited(&self, rpc: &mut Rpc, shared: &Shared) {
        let node = shared.node.borrow();
        for (id, call) in (0..).zip(&self.under_way) {
            if call.as_ref().is_some_and(|call| !call.tickets.iter().any(|&ticket| node.is_waiting(ticket))) {
                rpc.cancel_parcel(ParcelId(id));
            }
        }
    }

    /// When a request is to be made again.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.again.iter().map(|again| again.at_ns).min()
    }
}

#[cfg(test)]
mod tests;
