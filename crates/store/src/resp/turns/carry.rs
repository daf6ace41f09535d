//! Commands on keys for which nodes compete are carried to the key's primary, where they share the turns of its own clients.
//!
//! Two nodes that write one row at the same time conflict, and one of them must try again. A node that has met this carries its
//! commands on that row to the primary for a while. There the commands of all nodes wait in the order of arrival, and become
//! one transaction. One shipment to each node is under way at a time, and what arrives meanwhile is the next.
//!
//! A shipment is one request, so it is carried out at most once. If it has no answer, whether it was carried out is not known.

use super::super::{BATCH_BYTES, TABLE, data, upper};
use super::wire::{self, Carried};
use super::{Ask, Turns, finish_written};
use crate::door::Room;
use crate::engine::{PATIENCE_NS, Store};
use crate::error::StoreError;
use crate::resp::Hub;
use crate::resp::reply::Reply;
use crate::rows;
use crate::session::{Local, ROWS, Shared};
use highwire_host::rpc::{Node, RequestType, Rpc, time};
use highwire_txn::{Key, NodeId};
use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;

/// The type of these requests.
const CARRY: RequestType = RequestType(3);
/// How long a row counts as one for which nodes compete.
const CONTESTED_NS: u64 = 5_000_000_000;
/// Rows that are remembered. Those for which there is no place conflict once more.
const CONTESTED_MAX: usize = 4096;
/// How often a node that waits for an answer looks whether the other one is still a member.
const LOOK_NS: u64 = 20_000_000;

/// What is to be carried to other nodes.
#[derive(Debug, Default)]
pub(super) struct Shipping {
    /// Rows for which nodes have competed, and until when that counts.
    contested: HashMap<Key, u64>,
    /// By the node to which they go. A task carries those of each node that is here.
    waiting: BTreeMap<u16, Vec<Ask>>,
}

impl Shipping {
    fn note(&mut self, place: Key, now_ns: u64) {
        if self.contested.len() >= CONTESTED_MAX && !self.contested.contains_key(&place) {
            self.contested.retain(|_, until_ns| *until_ns > now_ns);
            if self.contested.len() >= CONTESTED_MAX {
                return;
            }
        }
        self.contested.insert(place, now_ns + CONTESTED_NS);
    }

    fn is_contested(&self, place: Key, now_ns: u64) -> bool {
        self.contested.get(&place).is_some_and(|until_ns| *until_ns > now_ns)
    }
}

/// How many commands were carried.
#[derive(Debug, Default)]
pub(super) struct Counts {
    to_primary: AtomicU64,
    from_others: AtomicU64,
    not_taken: AtomicU64,
    unknown: AtomicU64,
}

impl Counts {
    pub(super) fn list(&self) -> [(&'static str, u64); 4] {
        [
            ("to_primary", &self.to_primary),
            ("from_others", &self.from_others),
            ("not_taken", &self.not_taken),
            ("unknown", &self.unknown),
        ]
        .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

fn add(count: &AtomicU64, commands: usize) {
    count.fetch_add(commands as u64, Ordering::Relaxed);
}

impl Ask {
    fn places(&self) -> impl Iterator<Item = Key> {
        self.commands.iter().map(|words| rows::place(TABLE, &words[1], 0))
    }

    /// The one other node that is primary of all that the commands name.
    fn primary(&self, shared: &Shared) -> Option<NodeId> {
        let node = shared.node.borrow();
        let mut primaries = self.places().map(|place| node.primary(ROWS, place));
        let first = primaries.next()?;
        (first != node.id() && node.is_open() && primaries.all(|primary| primary == first)).then_some(first)
    }
}

impl Turns {
    /// Whether commands go to another node, because nodes compete for a row of theirs.
    pub(super) fn carries(&self, shared: &Shared, ask: &Ask, now_ns: u64) -> Option<NodeId> {
        if ask.is_carried || self.shipping().contested.is_empty() {
            return None;
        }
        let to = ask.primary(shared)?;
        let shipping = self.shipping();
        ask.places().any(|place| shipping.is_contested(place, now_ns)).then_some(to)
    }

    /// Commands that others were in the way of: where they go from now on, if that is to another node.
    pub(super) fn learn(&self, shared: &Shared, ask: &Ask, now_ns: u64) -> Option<NodeId> {
        let to = ask.primary(shared).filter(|_| !ask.is_carried)?;
        let mut shipping = self.shipping();
        ask.places().for_each(|place| shipping.note(place, now_ns));
        Some(to)
    }

    /// Has commands carried to another node.
    pub(super) fn ship(self: &Arc<Turns>, store: &Store, to: NodeId, ask: Ask) {
        let mut shipping = self.shipping();
        let is_idle = !shipping.waiting.contains_key(&to.0);
        shipping.waiting.entry(to.0).or_default().push(ask);
        drop(shipping);
        if is_idle {
            let (turns, store) = (Arc::clone(self), store.clone());
            store.io.clone().spawn(async move {
                let of = Arc::clone(&turns);
                if store.ask(move |local| carry(local, of, to)).await.is_err() {
                    let rest = turns.shipping().waiting.remove(&to.0).unwrap_or_default();
                    rest.into_iter().for_each(Ask::give_back);
                }
            });
        }
    }

    /// What goes with the next shipment. When there is nothing, the task ends.
    fn next_shipment(&self, to: NodeId) -> Vec<Ask> {
        let mut shipping = self.shipping();
        let Some(waiting) = shipping.waiting.get_mut(&to.0) else { return Vec::new() };
        let taken = super::take_turn(waiting);
        if taken.is_empty() {
            shipping.waiting.remove(&to.0);
        }
        taken
    }

    /// Carries out commands of another node's clients, if this node is primary of all that they name.
    async fn carry_out(&self, shared: &Shared, bytes: &[u8]) -> Carried {
        let Some(commands) = wire::commands(bytes) else { return Carried::NotTaken };
        let is_sound = commands.iter().all(|words| words.len() > 1 && data::check(words).is_ok());
        if !is_sound || !Turns::takes(&commands) {
            return Carried::NotTaken;
        }
        let (answer, outcome) = oneshot::channel();
        // Its replies go to the other node at once, so they take no room of this node's clients.
        let room = Room::new(&Arc::default(), 2 * BATCH_BYTES);
        let ask = Ask { commands, room, answer, is_carried: true, retries: 0 };
        let is_home = |place| shared.node.borrow().primary(ROWS, place) == shared.node.borrow().id();
        if !shared.node.borrow().is_open() || !ask.places().all(is_home) {
            return Carried::NotTaken;
        }
        let count = ask.commands.len();
        self.others.push(ask);
        match outcome.await {
            Ok((replies, _, _)) if replies.len() == count => {
                add(&self.counts.from_others, count);
                #[cfg(test)]
                if self.keeps_silent.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                Carried::Done(replies)
            }
            Ok(_) => Carried::NotTaken,
            Err(_) => {
                let error = StoreError::Unknown("the key's primary has ended".into());
                Carried::Done((0..count).map(|_| Reply::failed(&error)).collect())
            }
        }
    }
}

/// Lets a node carry out what others bring.
pub(crate) fn serve(rpc: &mut Rpc, hub: &Arc<Hub>, shared: &Rc<Shared>) {
    let (hub, shared) = (Arc::clone(hub), Rc::clone(shared));
    rpc.register_nested(CARRY, move |_, request| {
        let (hub, shared) = (Arc::clone(&hub), Rc::clone(&shared));
        async move { hub.turns().carry_out(&shared, &request.bytes).await.to_bytes() }
    });
}

/// Carries what waits for a node there, until nothing waits.
async fn carry(local: Local, turns: Arc<Turns>, to: NodeId) {
    loop {
        let asks = turns.next_shipment(to);
        if asks.is_empty() {
            return;
        }
        let began_ns = local.shared.clock.now_ns();
        let count = asks.iter().map(|ask| ask.commands.len()).sum();
        match send(&local, to, &asks).await {
            Some(Carried::Done(replies)) if replies.len() == count => {
                add(&turns.counts.to_primary, count);
                let mut replies = replies.into_iter();
                for ask in asks {
                    let own = replies.by_ref().take(ask.commands.len()).collect();
                    finish_written(&local, ask, own, began_ns);
                }
            }
            Some(_) => {
                add(&turns.counts.not_taken, count);
                asks.into_iter().for_each(Ask::give_back);
            }
            None => {
                add(&turns.counts.unknown, count);
                let error = StoreError::Unknown(format!("the key's primary, {to}, has not answered"));
                asks.into_iter().for_each(|ask| ask.answer_unknown(&error));
            }
        }
    }
}

/// Sends a shipment. `None`: whether it was carried out is not known.
async fn send(local: &Local, to: NodeId, asks: &[Ask]) -> Option<Carried> {
    let commands: Vec<_> = asks.iter().flat_map(|ask| &ask.commands).collect();
    let Some(bytes) = wire::commands_to_bytes(&commands) else { return Some(Carried::NotTaken) };
    let mut batch = local.rpc.batch();
    batch.timeout(time::Duration::from_nanos(PATIENCE_NS));
    batch.add(Node(to.0), CARRY, &bytes);
    let mut answer = pin!(batch.send());
    let replies = loop {
        let look_ns = local.shared.clock.now_ns() + LOOK_NS;
        match local.until(look_ns, answer.as_mut()).await {
            Some(replies) => break replies,
            None if local.shared.node.borrow().configuration().boot(to).is_none() => return None,
            None => {}
        }
    };
    match replies.get(0) {
        // An answer that cannot be read tells as much as none.
        Ok(reply) => Carried::parse(reply),
        Err(error) if error.is_outcome_unknown() => None,
        Err(_) => Some(Carried::NotTaken),
    }
}

impl Ask {
    /// What only reads runs again, and the others hear that their outcome is not known.
    pub(super) fn answer_unknown(self, error: &StoreError) {
        if self.commands.iter().all(|words| data::only_reads(&upper(&words[0]))) {
            return self.give_back();
        }
        let replies = self.commands.iter().map(|_| Reply::failed(error)).collect();
        self.answer(replies);
    }
}

#[cfg(test)]
mod tests;
