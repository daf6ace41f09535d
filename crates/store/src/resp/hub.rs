//! Where the clients of a node meet: those who wait for an element of a key, and the subscribers of channels. Nodes tell one another about
//! both, by requests of their own between their RPC endpoints.
//!
//! **Waiting**: the clients of a node that wait for one key are a queue. Only the first of it tries, so they are served in the order in which they came.
//! Before it sleeps, it tells the other nodes its keys. A node that adds an element tells each node that waits for it. Such a hint may be
//! lost, or a node may not know yet who waits: then the next try without a hint finds the element.
//!
//! **Channels**: see `channels`.

mod channels;

pub(super) use channels::{Inbox, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, name_too_long};

use super::cluster::Cluster;
use super::turns::Turns;
use crate::door::Room;
use crate::engine::Store;
use crate::session::Local;
use channels::Channels;
use highwire_host::rpc::{Node, RequestType, Rpc, time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

/// The type of these requests; those of transactions have another one.
const TELL: RequestType = RequestType(2);
/// How long a node waits for the others: one that does not answer hears of it in another way, or not at all.
const PATIENCE: time::Duration = time::Duration::from_secs(1);
/// How long a node believes that another one waits for a key. Who still waits says it again before.
const BELIEF: Duration = Duration::from_secs(10);
/// Keys for which other nodes wait. Those for which there is no place are found without a hint.
const ELSEWHERE_MAX: usize = 1 << 16;
/// Keys with one request.
const KEYS_MAX: usize = 1024;
/// Messages of other nodes that the I/O loop has not taken yet, and what each counts besides its bytes: it keeps a task of the node's.
const ARRIVING_BYTES_MAX: usize = 64 << 20;
const ARRIVING_BYTES: usize = 64 << 10;

/// What nodes tell each other here.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Tell {
    /// Clients of the sender wait for elements of these keys.
    Waiting(Vec<Vec<u8>>),
    /// These keys may have got elements.
    Filled(Vec<Vec<u8>>),
    /// A message for the subscribers of a channel.
    Published { channel: Vec<u8>, payload: Vec<u8> },
}

/// Where the clients of a node meet.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    waiting: Mutex<Waiting>,
    channels: Mutex<Channels>,
    turns: Arc<Turns>,
    pub(super) cluster: Cluster,
    next: AtomicU64,
    arriving_bytes: AtomicUsize,
    /// Hints that came from other nodes.
    hints: AtomicU64,
    /// Waiting clients that were served.
    pub(super) served: AtomicU64,
    /// Tries without a hint that found an element.
    pub(super) rescued: AtomicU64,
}

/// What the page of metrics shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// Places in queues.
    pub(crate) waiting: usize,
    pub(crate) waits: [(&'static str, u64); 3],
    pub(crate) subscriptions: usize,
    pub(crate) dropped: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Clients with places in queues.
    clients: usize,
    /// By key, and by the order in which they came.
    queues: HashMap<Vec<u8>, BTreeMap<u64, Arc<Notify>>>,
    /// Nodes whose clients wait for a key, and until when that is believed.
    elsewhere: HashMap<Vec<u8>, BTreeMap<u16, Instant>>,
    /// Keys of which nodes are still to be told. One task for each node that is here tells it.
    untold: BTreeMap<u16, BTreeSet<Vec<u8>>>,
}

impl Waiting {
    /// Wakes the first of a key's queue; returns whether there is one.
    fn wake(&self, key: &[u8]) -> bool {
        let first = self.queues.get(key).and_then(|queue| queue.values().next());
        if let Some(bell) = first {
            bell.notify_one();
        }
        first.is_some()
    }

    fn note(&mut self, node: u16, key: Vec<u8>, now: Instant) {
        if self.elsewhere.len() >= ELSEWHERE_MAX && !self.elsewhere.contains_key(&key) {
            self.elsewhere.retain(|_, nodes| {
                nodes.retain(|_, until| *until > now);
                !nodes.is_empty()
            });
            if self.elsewhere.len() >= ELSEWHERE_MAX {
                return;
            }
        }
        self.elsewhere.entry(key).or_default().insert(node, now + BELIEF);
    }

    /// Nobody waited there at this time. Somebody may since then.
    fn forget(&mut self, node: u16, key: &[u8], at: Instant) {
        if let Some(nodes) = self.elsewhere.get_mut(key) {
            nodes.retain(|of, until| *of != node || *until > at + BELIEF);
            if nodes.is_empty() {
                self.elsewhere.remove(key);
            }
        }
    }
}

/// A client's place in the queues of its keys, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    hub: Arc<Hub>,
    id: u64,
    keys: Vec<Vec<u8>>,
    pub(super) bell: Arc<Notify>,
}

impl Place {
    /// For each key, whether the client is the first.
    pub(super) fn is_turn(&self) -> Vec<bool> {
        let waiting = self.hub.waiting();
        let is_first = |key: &Vec<u8>| {
            let first = waiting.queues.get(key).and_then(|queue| queue.keys().next());
            first == Some(&self.id)
        };
        self.keys.iter().map(is_first).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.hub.waiting();
        waiting.clients -= 1;
        for key in &self.keys {
            let Some(queue) = waiting.queues.get_mut(key) else { continue };
            queue.remove(&self.id);
            match queue.values().next() {
                // There may be more than this client has taken.
                Some(next) => next.notify_one(),
                None => drop(waiting.queues.remove(key)),
            }
        }
    }
}

impl Hub {
    /// The turns in which the node's clients share transactions.
    pub(crate) fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place behind all that wait for these keys.
    pub(super) fn enter(self: &Arc<Hub>, keys: &[Vec<u8>]) -> Place {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let bell = Arc::new(Notify::new());
        let mut waiting = self.waiting();
        waiting.clients += 1;
        for key in keys {
            waiting.queues.entry(key.clone()).or_default().insert(id, Arc::clone(&bell));
        }
        drop(waiting);
        Place { hub: Arc::clone(self), id, keys: keys.to_vec(), bell }
    }

    /// Keys may have got elements: wakes who waits for them here, and notes which other nodes are to be told. Returns those for which
    /// [`Hub::hint`] is not running.
    pub(super) fn filled(&self, keys: &[Vec<u8>]) -> Vec<u16> {
        let (mut waiting, now) = (self.waiting(), Instant::now());
        let mut idle = Vec::new();
        for key in keys {
            waiting.wake(key);
            let Some(nodes) = waiting.elsewhere.get(key) else { continue };
            let told: Vec<u16> =
                nodes.iter().filter(|(_, until)| **until > now).map(|(node, _)| *node).collect();
            if told.is_empty() {
                waiting.elsewhere.remove(key);
            }
            for node in told {
                let untold = waiting.untold.entry(node).or_insert_with(|| {
                    idle.push(node);
                    BTreeSet::new()
                });
                untold.insert(key.clone());
            }
        }
        idle
    }

    /// Tells a node of keys that may have got elements, until it knows of all. What is added while it is being told waits, so that many elements need
    /// few requests. If nobody waits there any more, it is told no more.
    pub(super) async fn hint(&self, store: &Store, node: u16) {
        loop {
            let mut keys = Vec::new();
            {
                let mut waiting = self.waiting();
                let Some(untold) = waiting.untold.get_mut(&node) else { return };
                while let Some(key) = (keys.len() < KEYS_MAX).then(|| untold.pop_first()).flatten() {
                    keys.push(key);
                }
                if keys.is_empty() {
                    waiting.untold.remove(&node);
                    return;
                }
            }
            let (tell, sent) = (Tell::Filled(keys), Instant::now());
            let answers = tell_nodes(store, &tell, Some(node)).await;
            if let (Tell::Filled(keys), Some(&0)) = (tell, answers.first()) {
                let mut waiting = self.waiting();
                keys.iter().for_each(|key| waiting.forget(node, key, sent));
            }
        }
    }

    /// Tells the other nodes for which keys a client waits. When they know, the client tries again: what was added before came without a hint.
    pub(super) fn tell_waiting(store: &Store, place: &Place, is_turn: &[bool]) {
        let keys = place.keys.iter().zip(is_turn).filter(|(_, is_turn)| **is_turn);
        let keys: Vec<Vec<u8>> = keys.map(|(key, _)| key.clone()).collect();
        let (of, bell) = (store.clone(), Arc::clone(&place.bell));
        store.io.spawn(async move {
            if !tell_nodes(&of, &Tell::Waiting(keys), None).await.is_empty() {
                bell.notify_one();
            }
        });
    }

    /// Gives a message to the subscribers of all nodes that answer; returns how many there are.
    pub(super) async fn publish(&self, store: &Store, channel: Vec<u8>, payload: Vec<u8>) -> u64 {
        let here = self.channels().deliver(&channel, &payload);
        let answers = tell_nodes(store, &Tell::Published { channel, payload }, None).await;
        here + answers.into_iter().map(u64::from).sum::<u64>()
    }

    /// A new subscriber, whose messages take their room here.
    pub(super) fn subscriber(self: &Arc<Hub>, room: Room) -> Inbox {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        Inbox::new(Arc::clone(self), id, room)
    }

    /// How many clients wait for an element.
    pub(super) fn clients(&self) -> usize {
        self.waiting().clients
    }

    /// What the page of metrics shows of waiting clients and subscribers.
    pub(crate) fn counts(&self) -> Counts {
        let channels = self.channels();
        let places: usize = self.waiting().queues.values().map(BTreeMap::len).sum();
        let waits = [("served", &self.served), ("rescued", &self.rescued), ("hint", &self.hints)];
        Counts {
            waiting: places,
            waits: waits.map(|(name, count)| (name, count.load(Ordering::Relaxed))),
            subscriptions: channels.count(),
            dropped: channels.dropped,
        }
    }

    /// What another node tells; the answer is a number.
    async fn handle(self: Arc<Hub>, io: Handle, from: u16, bytes: Vec<u8>) -> u32 {
        match postcard::take_from_bytes::<Tell>(&bytes) {
            Ok((Tell::Waiting(keys), [])) => {
                let (mut waiting, now) = (self.waiting(), Instant::now());
                keys.into_iter().take(KEYS_MAX).for_each(|key| waiting.note(from, key, now));
                0
            }
            Ok((Tell::Filled(keys), [])) => {
                self.hints.fetch_add(1, Ordering::Relaxed);
                let waiting = self.waiting();
                keys.iter().take(KEYS_MAX).filter(|key| waiting.wake(key)).count() as u32
            }
            Ok((Tell::Published { channel, payload }, [])) => self.arrive(&io, channel, payload).await,
            _ => 0,
        }
    }

    /// Has the I/O loop give a message to its subscribers: patterns are not matched on the node's own thread.
    async fn arrive(self: Arc<Hub>, io: &Handle, channel: Vec<u8>, payload: Vec<u8>) -> u32 {
        let length = ARRIVING_BYTES + channel.len() + payload.len();
        if self.channels().is_empty() || payload.len() > MESSAGE_BYTES_MAX {
            return 0;
        }
        if self.arriving_bytes.fetch_add(length, Ordering::Relaxed) > ARRIVING_BYTES_MAX {
            self.arriving_bytes.fetch_sub(length, Ordering::Relaxed);
            self.channels().dropped += 1;
            return 0;
        }
        let (answer, count) = oneshot::channel();
        io.spawn(async move {
            let count = self.channels().deliver(&channel, &payload);
            self.arriving_bytes.fetch_sub(length, Ordering::Relaxed);
            let _ = answer.send(count);
        });
        count.await.unwrap_or_default() as u32
    }
}

/// Lets a node hear what others tell it.
pub(crate) fn serve(rpc: &mut Rpc, hub: &Arc<Hub>, io: &Handle) {
    let (hub, io) = (Arc::clone(hub), io.clone());
    rpc.register_nested(TELL, move |_, request| {
        let (hub, io) = (Arc::clone(&hub), io.clone());
        async move { hub.handle(io, request.node.0, request.bytes).await.to_le_bytes().to_vec() }
    });
}

/// Tells one node, or all other members; the answers of those that answer.
async fn tell_nodes(store: &Store, tell: &Tell, only: Option<u16>) -> Vec<u32> {
    let Ok(bytes) = postcard::to_allocvec(tell) else { return Vec::new() };
    store.ask(move |local| tell_from(local, bytes, only)).await.unwrap_or_default()
}

async fn tell_from(local: Local, bytes: Vec<u8>, only: Option<u16>) -> Vec<u32> {
    let others: Vec<u16> = {
        let node = local.shared.node.borrow();
        let members = node.configuration().nodes().filter(|other| *other != node.id());
        members.map(|other| other.0).filter(|other| only.is_none_or(|only| only == *other)).collect()
    };
    if others.is_empty() {
        return Vec::new();
    }
    let mut batch = local.rpc.batch();
    batch.timeout(PATIENCE);
    for &other in &others {
        batch.add(Node(other), TELL, &bytes);
    }
    let replies = batch.send().await;
    let number = |reply: &[u8]| <[u8; 4]>::try_from(reply).map_or(0, u32::from_le_bytes);
    (0..others.len()).filter_map(|at| replies.get(at).ok().map(number)).collect()
}

/// What `fuzz/` tries: no bytes that another node sends panic.
pub(super) fn try_tell(bytes: &[u8]) {
    let _ = postcard::take_from_bytes::<Tell>(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|key| key.as_bytes().to_vec()).collect()
    }

    #[test]
    fn the_first_of_each_queue_has_its_turn_and_leaves_it_to_the_next() {
        let hub = Arc::<Hub>::default();
        let one = hub.enter(&keys("a b"));
        let two = hub.enter(&keys("b c"));
        let three = hub.enter(&keys("a"));
        assert_eq!(
            [one.is_turn(), two.is_turn(), three.is_turn()],
            [vec![true, true], vec![false, true], vec![false]]
        );
        drop(one);
        assert_eq!([two.is_turn(), three.is_turn()], [vec![true, true], vec![true]]);
        drop((two, three));
        assert!(hub.waiting().queues.is_empty());
    }

    #[test]
    fn nodes_are_told_as_long_as_somebody_waits_there() {
        let hub = Hub::default();
        let now = Instant::now();
        hub.waiting().note(1, b"a".to_vec(), now);
        hub.waiting().note(2, b"a".to_vec(), now);
        assert_eq!(hub.filled(&keys("a b")), [1, 2]);
        // Who is being told already gets no second task.
        hub.waiting().note(1, b"b".to_vec(), now);
        assert!(hub.filled(&keys("a b")).is_empty());
        assert_eq!(hub.waiting().untold[&1].len(), 2);
        // Somebody has come after the node was asked.
        hub.waiting().forget(1, b"a", now.checked_sub(Duration::from_secs(1)).expect("a time"));
        assert_eq!(hub.waiting().elsewhere[&b"a"[..]].len(), 2);
        hub.waiting().forget(1, b"a", now);
        hub.waiting().forget(2, b"a", now);
        assert!(!hub.waiting().elsewhere.contains_key(&b"a"[..]));
    }

    #[test]
    fn what_is_believed_of_other_nodes_is_bounded_and_ends() {
        let hub = Hub::default();
        let long_ago = Instant::now().checked_sub(2 * BELIEF).expect("a time");
        hub.waiting().note(1, b"old".to_vec(), long_ago);
        assert!(hub.filled(&keys("old")).is_empty());
        assert!(hub.waiting().elsewhere.is_empty());
        for key in 0..ELSEWHERE_MAX + 10 {
            hub.waiting().note(1, key.to_le_bytes().to_vec(), Instant::now());
        }
        assert_eq!(hub.waiting().elsewhere.len(), ELSEWHERE_MAX);
    }
}
