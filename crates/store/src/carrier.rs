//! Carries a node's requests over RPCs, and others' requests to the node.
//!
//! `txn` asks of whoever carries: a request is executed at most once by a receiver in one of its lives, and repeated until it is answered or
//! nobody waits for it. One RPC call gives that for as long as it lasts, so a call lasts until it is answered, the peer has become another
//! incarnation, or the node says that nobody waits; it is never given up because the peer is silent. A receiver that has no answer *yet*
//! has not executed the request and says so; the sender asks again, as a new call.
//!
//! The RPC layer's own fence has 16 bits and is not used: each message carries the whole configuration id.

use crate::session::Shared;
use highwire_host::rpc::{Batch, Node, Replies, RequestType, Rpc, Worker, time};
use highwire_txn::{NodeId, Outgoing, Reply};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

/// The only type: the message says the rest.
const DELIVER: RequestType = RequestType(1);

/// First byte of a response: nothing was executed, ask again.
const NOT_NOW: u8 = 0;
/// The same: the answer follows.
const ANSWER: u8 = 1;

/// Between two times that a node is asked again.
const PAUSE_MIN_NS: u64 = 100_000;
const PAUSE_MAX_NS: u64 = 4_000_000;
/// How often a call that is under way looks whether anybody still waits.
const LOOK_NS: u64 = 20_000_000;
/// Calls under way; more wait for their turn.
const CALLS_MAX: usize = 2048;

/// A request to one node, and the ticket under which its response is expected.
type Item = (u64, Vec<u8>);

/// Lets a node with a disk answer others' requests: what is a promise, when the disk has it.
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
                // A node whose disk failed does nothing more: asking it again does no harm.
                _ => vec![NOT_NOW],
            }
        }
    });
}

/// Lets the node answer others' requests.
pub(crate) fn serve(rpc: &mut Rpc, shared: &Rc<Shared>) {
    let shared = Rc::clone(shared);
    rpc.register(DELIVER, move |request, response| {
        // After the request has come, or a lease that ended while this thread was stopped would still seem to hold.
        let now = shared.clock.now_ns();
        let answer = shared.node.borrow_mut().handle_request(now, NodeId(request.node.0), request.bytes);
        match answer {
            Some(Reply { bytes, .. }) => {
                response.write(&[ANSWER]);
                response.write(&bytes);
            }
            None => response.write(&[NOT_NOW]),
        }
    });
}

/// Requests that wait to be sent.
#[derive(Default)]
pub(crate) struct Backlog {
    loads: VecDeque<Load>,
}

/// What goes to one node.
struct Load {
    to: NodeId,
    is_reliable: bool,
    items: Vec<Item>,
}

impl Backlog {
    /// Sends whatever the node has to say: what goes to one node goes together. Whether there was anything.
    pub(crate) fn send(&mut self, rpc: &mut Rpc, shared: &Rc<Shared>, lease_ns: u64) -> bool {
        loop {
            let outgoing = shared.node.borrow_mut().poll_request();
            let Some(Outgoing { ticket, to, bytes, is_reliable }) = outgoing else { break };
            // A handful of nodes: looking through them is quicker than any order.
            let load = self.loads.iter_mut().find(|load| load.to == to && load.is_reliable == is_reliable);
            match load {
                Some(load) => load.items.push((ticket, bytes)),
                None => self.loads.push_back(Load { to, is_reliable, items: vec![(ticket, bytes)] }),
            }
        }
        let mut any = false;
        while rpc.running() < CALLS_MAX
            && let Some(Load { to, is_reliable, items }) = self.loads.pop_front()
        {
            any = true;
            let shared = Rc::clone(shared);
            let spawned = rpc.spawn(move |worker| async move {
                let to = Node(to.0);
                if is_reliable {
                    carry(worker, &shared, to, items).await;
                } else {
                    carry_once(worker, &shared, to, items, lease_ns).await;
                }
            });
            debug_assert!(spawned.is_ok(), "there is room for more workers than {CALLS_MAX}");
        }
        any
    }
}

/// Heartbeats: of no use when they are old.
async fn carry_once(worker: Worker, shared: &Shared, to: Node, items: Vec<Item>, lease_ns: u64) {
    let mut batch = batch(&worker, to, &items);
    batch.timeout(time::Duration::from_nanos(lease_ns));
    let replies = batch.send().await;
    take_answers(shared, &replies, items);
}

async fn carry(worker: Worker, shared: &Shared, to: Node, mut items: Vec<Item>) {
    let mut pause = PAUSE_MIN_NS;
    loop {
        items.retain(|item| shared.node.borrow().is_waiting(item.0));
        if items.is_empty() {
            return;
        }
        let batch = batch(&worker, to, &items);
        let Some(replies) = while_awaited(&worker, shared, &items, batch.send()).await else { return };
        items = take_answers(shared, &replies, items);
        drop(replies);
        if !items.is_empty() {
            worker.sleep(time::Duration::from_nanos(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX_NS);
        }
    }
}

fn batch(worker: &Worker, to: Node, items: &[Item]) -> Batch {
    let mut batch = worker.batch();
    for (_, bytes) in items {
        batch.add(to, DELIVER, bytes);
    }
    batch
}

/// Hands the node its answers; returns the requests that have none.
fn take_answers(shared: &Shared, replies: &Replies, items: Vec<Item>) -> Vec<Item> {
    let mut unanswered = Vec::new();
    for (item, reply) in items.into_iter().zip(replies.iter()) {
        match reply {
            Ok([ANSWER, answer @ ..]) => {
                let now = shared.clock.now_ns();
                shared.node.borrow_mut().handle_response(now, item.0, answer);
            }
            _ => unanswered.push(item),
        }
    }
    unanswered
}

/// The call's result; `None` when nobody waits for any of its answers any more, and then it is cancelled.
async fn while_awaited(
    worker: &Worker,
    shared: &Shared,
    items: &[Item],
    call: impl Future<Output = Replies>,
) -> Option<Replies> {
    let mut call = pin!(call);
    loop {
        let mut look = pin!(worker.sleep(time::Duration::from_nanos(LOOK_NS)));
        let result = std::future::poll_fn(|cx| match call.as_mut().poll(cx) {
            Poll::Ready(replies) => Poll::Ready(Some(replies)),
            Poll::Pending => Pin::as_mut(&mut look).poll(cx).map(|()| None),
        })
        .await;
        if result.is_some() {
            return result;
        }
        let node = shared.node.borrow();
        if !items.iter().any(|item| node.is_waiting(item.0)) {
            return None;
        }
    }
}
