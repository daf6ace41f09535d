//! `CLUSTER`: the map that leads clients of clusters to each key's primary, and MOVED, which corrects theirs.
//!
//! Keys of this door lie by Redis's slots (`rows::place`), so all keys of a slot have one primary, and the map is the store's own
//! placement. Every node serves every key, so a map that is old costs time and nothing else. Who has not asked for a map is never sent
//! elsewhere, unless the configuration says so.

use super::reply::Reply;
use super::session::Session;
use super::{Words, commands, upper};
use crate::engine::Store;
use crate::error::StoreError;
use crate::resp::Hub;
use crate::rows::{self, slot};
use crate::session::{Local, ROWS};
use highwire_host::rpc::{Node, RequestType, Rpc, time};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Asks a node for the address of its Redis endpoint.
const WHERE: RequestType = RequestType(4);
/// How long nodes may take to say it. Those that do not are left out.
const PATIENCE: time::Duration = time::Duration::from_secs(1);
/// How long a map is good for MOVED.
const GOOD_FOR: Duration = Duration::from_millis(500);

/// A host and a port.
type Address = (String, u16);

/// What a node knows of the Redis endpoints of its cluster.
#[derive(Debug, Default)]
pub(crate) struct Cluster(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    own: Option<Address>,
    map: Option<(Instant, Arc<Map>)>,
}

/// The nodes, and which slots each is primary of.
#[derive(Debug)]
struct Map {
    configuration: u32,
    own: u16,
    is_open: bool,
    /// Those that have a Redis endpoint.
    nodes: BTreeMap<u16, Address>,
    /// The first slot, the last one, and their node, which is one of these.
    slots: Vec<(u16, u16, u16)>,
}

impl Cluster {
    fn locked(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes where this node's endpoint listens. If that is everywhere, others reach it at the host of the node's own door.
    pub(super) fn opened(&self, listens: SocketAddr, door: &str) {
        let host = match listens.ip().is_unspecified() {
            true => door.rsplit_once(':').map_or(door, |parts| parts.0).trim_matches(['[', ']']).to_string(),
            false => listens.ip().to_string(),
        };
        *self.locked() = Known { own: Some((host, listens.port())), map: None };
    }

    /// The map, which may be a little old.
    async fn map(&self, store: &Store) -> Result<Arc<Map>, StoreError> {
        let known = self.locked().map.clone();
        match known.filter(|known| known.0.elapsed() < GOOD_FOR) {
            Some((_, map)) => Ok(map),
            None => self.look(store).await,
        }
    }

    /// The map as it is now.
    async fn look(&self, store: &Store) -> Result<Arc<Map>, StoreError> {
        let own = self.locked().own.clone();
        let map = Arc::new(store.ask(move |local| look(local, own)).await?);
        self.locked().map = Some((Instant::now(), Arc::clone(&map)));
        Ok(map)
    }
}

/// Lets a node say where its Redis endpoint is.
pub(crate) fn serve(rpc: &mut Rpc, hub: &Arc<Hub>) {
    let hub = Arc::clone(hub);
    rpc.register(WHERE, move |_, response| {
        let own = hub.cluster.locked().own.clone();
        response.write(&postcard::to_allocvec(&own).unwrap_or_default());
    });
}

async fn look(local: Local, own_address: Option<Address>) -> Map {
    let (mut map, others, primaries) = {
        let node = local.shared.node.borrow();
        let configuration = node.configuration();
        let own = node.id();
        let map = Map {
            configuration: configuration.id,
            own: own.0,
            is_open: node.is_open(),
            nodes: own_address.map(|address| (own.0, address)).into_iter().collect(),
            slots: Vec::new(),
        };
        let others: Vec<u16> =
            configuration.nodes().filter(|other| *other != own).map(|other| other.0).collect();
        let primaries: Vec<_> =
            rows::slots().map(|(low, high, row)| (low, high, node.primary(ROWS, row).0)).collect();
        (map, others, primaries)
    };
    map.nodes.extend(ask_where(&local, &others).await);
    for (low, high, primary) in primaries {
        // A primary without such an endpoint is reached through this node.
        let node = if map.nodes.contains_key(&primary) { primary } else { map.own };
        match map.slots.last_mut() {
            Some(last) if last.2 == node => last.1 = high,
            _ => map.slots.push((low, high, node)),
        }
    }
    map
}

async fn ask_where(local: &Local, others: &[u16]) -> Vec<(u16, Address)> {
    if others.is_empty() {
        return Vec::new();
    }
    let mut batch = local.rpc.batch();
    batch.timeout(PATIENCE);
    for &other in others {
        batch.add(Node(other), WHERE, &[]);
    }
    let replies = batch.send().await;
    let address = |(at, &other): (usize, &u16)| {
        let reply = replies.get(at).ok()?;
        let address: Option<Address> = postcard::from_bytes(reply).ok()?;
        Some((other, address?))
    };
    others.iter().enumerate().filter_map(address).collect()
}

impl Map {
    fn node_of(&self, slot: u16) -> u16 {
        let holds = |range: &&(u16, u16, u16)| (range.0..=range.1).contains(&slot);
        self.slots.iter().find(holds).map_or(self.own, |range| range.2)
    }

    fn slots_of(&self, node: u16) -> impl Iterator<Item = (u16, u16)> {
        self.slots.iter().filter(move |range| range.2 == node).map(|range| (range.0, range.1))
    }

    /// For `CLUSTER SLOTS`.
    fn slots(&self) -> Reply {
        let range = |&(low, high, node): &(u16, u16, u16)| {
            let (host, port) = self.nodes.get(&node)?;
            let node = Reply::Array(vec![
                Reply::bulk(host),
                Reply::Integer(i64::from(*port)),
                Reply::bulk(name(node)),
                Reply::Array(Vec::new()),
            ]);
            Some(Reply::Array(vec![Reply::Integer(low.into()), Reply::Integer(high.into()), node]))
        };
        Reply::Array(self.slots.iter().filter_map(range).collect())
    }

    /// For `CLUSTER SHARDS`: each node is one, since a node keeps copies for many shards.
    fn shards(&self) -> Reply {
        let pair = |name: &str, value: Reply| (Reply::bulk(name), value);
        let shard = |(&node, (host, port)): (&u16, &Address)| {
            let slots = self.slots_of(node).flat_map(|(low, high)| [low, high]);
            let slots = slots.map(|slot| Reply::Integer(slot.into())).collect();
            let about = Reply::Map(vec![
                pair("id", Reply::bulk(name(node))),
                pair("port", Reply::Integer(i64::from(*port))),
                pair("ip", Reply::bulk(host)),
                pair("endpoint", Reply::bulk(host)),
                pair("role", Reply::bulk("master")),
                pair("replication-offset", Reply::Integer(0)),
                pair("health", Reply::bulk("online")),
            ]);
            Reply::Map(vec![pair("slots", Reply::Array(slots)), pair("nodes", Reply::Array(vec![about]))])
        };
        Reply::Array(self.nodes.iter().map(shard).collect())
    }

    /// For `CLUSTER NODES`. There is no bus, so its port is 0.
    fn lines(&self) -> Reply {
        let line = |(&node, (host, port)): (&u16, &Address)| {
            let flags = if node == self.own { "myself,master" } else { "master" };
            let slots: String = self.slots_of(node).map(|(low, high)| format!(" {low}-{high}")).collect();
            format!("{} {host}:{port}@0 {flags} - 0 0 {} connected{slots}\n", name(node), self.configuration)
        };
        Reply::bulk(self.nodes.iter().map(line).collect::<String>())
    }

    fn info(&self) -> Reply {
        let primaries = self.nodes.keys().filter(|node| self.slots_of(**node).next().is_some()).count();
        let (state, count) = (if self.is_open { "ok" } else { "fail" }, slot::COUNT);
        Reply::bulk(format!(
            "cluster_enabled:1\r\ncluster_state:{state}\r\ncluster_slots_assigned:{count}\r\ncluster_slots_ok:{count}\r\n\
             cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{}\r\ncluster_size:{primaries}\r\n\
             cluster_current_epoch:{}\r\ncluster_my_epoch:{}\r\n",
            self.nodes.len(),
            self.configuration,
            self.configuration,
        ))
    }
}

/// A node's name as clusters have them: 40 hexadecimal digits.
fn name(node: u16) -> String {
    format!("{node:040x}")
}

/// Answers a subcommand, which exists and has as many words as it must.
pub(super) async fn answer(session: &mut Session, sub: &str, words: &Words) -> Reply {
    match sub {
        "KEYSLOT" => return Reply::Integer(slot::of(&words[2]).into()),
        "MYID" => return Reply::bulk(name(session.store.introduction.node)),
        "HELP" => {
            let lines = [
                "CLUSTER <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "INFO, KEYSLOT <key>, MYID, NODES, SHARDS, SLOTS",
                "HELP",
                "    Prints this help.",
            ];
            return Reply::Array(lines.map(|line| Reply::Simple(line.into())).to_vec());
        }
        "INFO" | "NODES" | "SHARDS" | "SLOTS" => {}
        _ => {
            let why = format!("ERR 'CLUSTER {sub}' is not promised by this store; see docs/store-redis.md");
            return Reply::error(why);
        }
    }
    let map = match session.store.hub.cluster.look(&session.store).await {
        Ok(map) => map,
        Err(error) => return Reply::failed(&error),
    };
    // Who has the map understands a correction of it.
    session.is_led |= sub != "INFO";
    match sub {
        "INFO" => map.info(),
        "NODES" => map.lines(),
        "SHARDS" => map.shards(),
        _ => map.slots(),
    }
}

/// Where a command goes whose keys have one primary, if that is another node with a Redis endpoint.
pub(super) async fn moved(store: &Store, words: &Words) -> Option<Reply> {
    let command = commands::find(&upper(words.first()?))?;
    let mut slots = command.keys_in(words).map(|key| slot::of(key));
    let first = slots.next()?;
    let map = store.hub.cluster.map(store).await.ok()?;
    let node = map.node_of(first);
    if node == map.own || !slots.all(|slot| map.node_of(slot) == node) {
        return None;
    }
    let (host, port) = map.nodes.get(&node)?;
    Some(Reply::error(format!("MOVED {first} {host}:{port}")))
}
