//! A node's door: TCP, for clients anywhere and for other nodes. Each conversation is a task of the node's I/O loop, and asks the node's own thread.

use crate::access::Standing;
use crate::engine::{PATIENCE_NS, Store};
use crate::error::StoreError;
use crate::message::{
    Answer, Entry, Footprint, GREETING, HEADER_BYTES, Holding, Introduction, NodeStatus, REQUEST_BYTES_MAX,
    RangeFootprint, Request, STRANGERS_BYTES_MAX, WriteRequest, check_greeting, decode, encode,
    length_within,
};
use crate::order;
use crate::peers;
use crate::rows::{self, BackupEntry, Kind, WRITE_BYTES_MAX};
use crate::scan;
use crate::session::{Local, ROWS, Stop, USUAL_RECORD_BYTES_MAX};
use crate::transaction::{Found, RANGE_KEYS_MAX, Range, Transaction};
use highwire_txn::{Configuration, NodeId, Replica};
use std::cell::Cell as Flag;
use std::io;
use std::net::TcpListener;

mod identity;
mod io_loop;
mod keeper;
mod pace;
mod room;

use identity::Node;
pub(crate) use io_loop::start as io_loop;
pub(crate) use keeper::{Ended, Guest, Keeper, PROTECTED, Refused, Visit, counted, serve};
pub(crate) use pace::PacedStream;
pub(crate) use room::{ANSWER_BYTES_MAX, Room};

/// Lets clients in from now on.
pub(crate) fn open(listener: TcpListener, store: &Store) -> io::Result<()> {
    let of = store.clone();
    serve(listener, "door", &store.keeper, &store.io, move |guest| {
        let conversation = Conversation { store: of.clone(), guest, bytes: Vec::new(), node: Node::Unknown };
        conversation.run()
    })
}

/// A conversation with a client or another node.
struct Conversation {
    store: Store,
    guest: Guest,
    /// What was received of the next messages.
    bytes: Vec<u8>,
    node: Node,
}

impl Conversation {
    async fn run(mut self) {
        // A broken conversation concerns only the client, which notices it.
        let result = self.converse().await;
        let keeper = &self.store.keeper;
        match &result {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => drop(keeper.count(Ended::Protocol)),
            _ if self.guest.refused.is_none() => keeper.count_too_long(self.guest.stream.ended),
            _ => {}
        }
        if self.guest.refused.is_some() {
            self.guest.part().await;
        }
    }

    /// Takes the first bytes, which have come.
    fn take<const LENGTH: usize>(&mut self) -> [u8; LENGTH] {
        let taken = self.bytes[..LENGTH].try_into().expect("they have come");
        self.bytes.drain(..LENGTH);
        taken
    }

    /// The next request; or, as the result, why it was not read to its end.
    async fn receive(&mut self, room: &mut Room) -> io::Result<Result<Request, StoreError>> {
        // The first bytes of a length need no room.
        let _ = fill(&mut self.guest.stream, &mut self.bytes, HEADER_BYTES, |_| Ok(())).await?;
        let is_stranger = self.node != Node::Proved && self.guest.visitor.standing() == Standing::Stranger;
        let most = if is_stranger { STRANGERS_BYTES_MAX } else { REQUEST_BYTES_MAX };
        let length = match length_within(self.take(), most) {
            Ok(length) => length,
            Err(error) => return Ok(Err(error)),
        };
        let has_come = fill(&mut self.guest.stream, &mut self.bytes, length, |more| room.take(more));
        if let Err(error) = has_come.await? {
            return Ok(Err(error));
        }
        let request = decode(&self.bytes[..length]);
        match self.bytes.len() {
            all if all == length => self.bytes = Vec::new(),
            _ => drop(self.bytes.drain(..length)),
        }
        Ok(Ok(request?))
    }

    async fn send(&mut self, answer: Answer) -> io::Result<()> {
        let bytes = encode(&answer)?;
        // It is there once, however long the client takes to read it.
        drop(answer);
        self.guest.stream.write(&bytes).await
    }

    async fn converse(&mut self) -> io::Result<()> {
        self.guest.stream.begin();
        let _ = fill(&mut self.guest.stream, &mut self.bytes, GREETING.len(), |_| Ok(())).await?;
        if let Err(why) = check_greeting(self.take()) {
            if let Some(why) = why {
                self.send(Answer::Failed(why)).await?;
                self.guest.part().await;
            }
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut backup = Backup { store: self.store.clone(), token: None };
        let mut refused = self.guest.refused.clone();
        loop {
            match self.bytes.is_empty() {
                true => self.guest.stream.rest(),
                false => self.guest.stream.begin(),
            }
            let mut room = Room::new(&self.store.keeper.total, REQUEST_BYTES_MAX);
            let request = match self.receive(&mut room).await? {
                Ok(request) => request,
                Err(error) => {
                    self.send(Answer::Failed(error)).await?;
                    // The request was not read to its end.
                    self.guest.part().await;
                    return Ok(());
                }
            };
            let may_be_a_node = |request: &Request| {
                matches!(request, Request::Challenge { .. } | Request::Prove { .. } | Request::Meet(_))
            };
            if let Some(why) = refused.take_if(|_| !may_be_a_node(&request)) {
                return self.send(Answer::Refused { why: why.to_string() }).await;
            }
            if let Err(error) = self.check(&request) {
                self.send(Answer::Failed(error)).await?;
                continue;
            }
            let request = match self.introduce(request).await {
                Ok(request) => request,
                Err(answer) => {
                    if self.node == Node::Proved && refused.take().is_some() {
                        self.guest.stream.set_patience(self.store.keeper.patience());
                    }
                    self.send(answer).await?;
                    continue;
                }
            };
            self.guest.visitor.pace(1).await;
            if let Request::Backup { token, .. } = request
                && backup.token != Some(token)
            {
                // The one before ends.
                backup = Backup { store: self.store.clone(), token: Some(token) };
            }
            let (answer, held) = answer(request, &self.store).await;
            drop(room);
            if matches!(answer, Answer::Met { .. }) {
                // Nodes say nothing more to each other here, and the end of the conversation tells that one has ended. So nodes
                // come in even when clients are too many.
                refused = None;
                self.guest.stream.may_be_idle();
            }
            let is_over = answer == Answer::Stopping;
            self.send(answer).await?;
            drop(held);
            if is_over {
                self.store.stop();
            }
        }
    }
}

/// Waits until so many bytes have come, for which `take` finds room.
///
/// # Errors
/// The connection's; or, as the result, that there is no room.
async fn fill(
    stream: &mut PacedStream,
    bytes: &mut Vec<u8>,
    length: usize,
    mut take: impl FnMut(usize) -> Result<(), StoreError>,
) -> io::Result<Result<(), StoreError>> {
    let mut counted = 0;
    loop {
        let there = bytes.len().min(length);
        if let Err(error) = take(there - counted) {
            return Ok(Err(error));
        }
        if there == length {
            return Ok(Ok(()));
        }
        counted = there;
        if stream.read(|more| bytes.extend_from_slice(more)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The backup that a conversation takes, which ends with it.
struct Backup {
    store: Store,
    token: Option<u64>,
}

impl Drop for Backup {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            // A node that does not run any more has forgotten it.
            let _ = self.store.start(move |local| async move { local.end_backup(token) });
        }
    }
}

/// The answer, and the room that it takes until it is sent.
async fn answer(request: Request, store: &Store) -> (Answer, Option<Room>) {
    if let Err(error) = request.check() {
        return (Answer::Failed(error), None);
    }
    let mut room = Room::new(&store.keeper.total, ANSWER_BYTES_MAX);
    let read = match request {
        Request::Get { keys } => {
            store.ask(|local| async move { (get(local, keys, &mut room).await, room) }).await
        }
        Request::Scan { table, prefix, is_alone } => {
            let (of, begin) = (table.clone(), prefix.clone());
            let attempts =
                if is_alone { (scan::ATTEMPTS, scan::ATTEMPTS_NS) } else { (u32::MAX, PATIENCE_NS) };
            let read = store.ask(move |local| async move {
                (scan(local, attempts, table, prefix, &mut room).await, room)
            });
            match read.await {
                Ok((Err(StoreError::Conflict | StoreError::Unavailable(_)), mut room)) if is_alone => {
                    let store = store.clone();
                    store
                        .block(move |store| {
                            let entries = scan::entries(store, &of, &begin, &mut room);
                            let answer = |entries| Answer::Scanned { entries, seen: Footprint::default() };
                            (entries.map(answer), room)
                        })
                        .await
                }
                read => read,
            }
        }
        Request::Range { table, from, to, limit } => {
            let range =
                move |local| async move { (range(local, table, from, to, limit, &mut room).await, room) };
            store.ask(range).await
        }
        request => return (answer_shortly(request, store).await, None),
    };
    match read {
        Ok((result, room)) => (result.unwrap_or_else(Answer::Failed), Some(room)),
        Err(error) => (Answer::Failed(error), None),
    }
}

async fn answer_shortly(request: Request, store: &Store) -> Answer {
    let result = match request {
        Request::Get { .. } | Request::Scan { .. } | Request::Range { .. } => {
            Err(StoreError::invalid("this answer may be long"))
        }
        Request::Authenticate { .. } | Request::Challenge { .. } | Request::Prove { .. } => {
            Err(StoreError::invalid("this is said before"))
        }
        Request::Commit { seen, writes } => {
            store.ask(|local| commit(local, seen, writes)).await.and_then(|result| result)
        }
        Request::Status => Ok(Answer::Status(Box::new(match store.waits_for() {
            Some(what) => starting(store, what),
            None => match store.ask(|local| async move { status(&local) }).await {
                Ok(status) => status,
                Err(error) => starting(store, error.to_string()),
            },
        }))),
        Request::Locate { keys } => store.ask(|local| async move { locate(&local, &keys) }).await,
        Request::Milestones => {
            let list = |local: Local| async move { local.shared.milestones.borrow().list() };
            store.ask(list).await.map(Answer::Milestones)
        }
        Request::Meet(other) => meet(other, store).await,
        Request::Leave => store.ask(|local| async move { leave(&local) }).await.and_then(|result| result),
        Request::Stop => Ok(Answer::Stopping),
        Request::Doors => Ok(Answer::Doors(store.doors())),
        Request::Backup { token, step, of } => store
            .ask(move |local| local.back_up(token, step, of))
            .await
            .and_then(|result| result)
            .map(Answer::Backup),
        Request::Restore { note, from, to, cells } => {
            store.ask(|local| restore(local, note, from, to, cells)).await.and_then(|result| result)
        }
        Request::Sweep { table, low, high, most } => {
            store.ask(move |local| sweep(local, table, (low, high), most)).await.and_then(|result| result)
        }
    };
    result.unwrap_or_else(Answer::Failed)
}

/// Another node introduces itself. It gets this node's own introduction only if both can be nodes of one cluster.
async fn meet(other: Introduction, store: &Store) -> Result<Answer, StoreError> {
    let own = &store.introduction;
    if other.node == own.node {
        return Err(taken(own.node, &own.door));
    }
    peers::check_shape(&other, own, store.waits_for().is_some())?;
    let known = store.doors().into_iter().find(|known| known.0 == other.node);
    if let Some((node, door)) = known.filter(|known| known.1 != other.door)
        && store.ask(move |local| async move { local.shared.node.borrow().hears(NodeId(node)) }).await
            == Ok(true)
    {
        return Err(taken(node, &door));
    }
    let doors = store.doors();
    store.meet(other);
    Ok(Answer::Met { node: own.clone(), doors })
}

fn taken(node: u16, door: &str) -> StoreError {
    StoreError::invalid(format!("the number {node} is taken by the node at {door}"))
}

fn leave(local: &Local) -> Result<Answer, StoreError> {
    let mut node = local.shared.node.borrow_mut();
    if !node.is_open() {
        drop(node);
        return Err(StoreError::Unavailable(local.why_unavailable()));
    }
    let (stay, f) = (node.staying_without_me(), local.shared.f);
    if stay <= f {
        return Err(StoreError::invalid(format!(
            "node {} cannot leave: f = {f} needs {} nodes, and {stay} would stay",
            node.id().0,
            f + 1
        )));
    }
    node.leave();
    Ok(Answer::Leaving)
}

async fn get(local: Local, keys: Vec<(Vec<u8>, Vec<u8>)>, room: &mut Room) -> Result<Answer, StoreError> {
    let result = local.transact(PATIENCE_NS, async |transaction: &mut Transaction| {
        room.shrink(0);
        transaction.prefetch_values(keys.iter().map(|(table, key)| (&table[..], &key[..]))).await?;
        let (mut values, mut seen) = (Vec::new(), Footprint::default());
        for (table, key) in &keys {
            let value = bytes_of(transaction.get(table, key).await?)?;
            let bytes = value.as_ref().map_or(0, Vec::len) + size_of::<Vec<u8>>();
            // A key may be named again and again, so it is the answer that counts and not what was read.
            room.take(bytes)?;
            transaction.breathe(bytes + PER_KEY).await;
            values.push(value);
            seen.rows.extend(transaction.footprint(table, key).await?);
        }
        Ok(Answer::Got { values, seen })
    });
    result.await
}

/// Where the first place of each key's chain is; longer chains are rare.
fn locate(local: &Local, keys: &[(Vec<u8>, Vec<u8>)]) -> Answer {
    let node = local.shared.node.borrow();
    let primary = |(table, key): &(Vec<u8>, Vec<u8>)| node.primary(ROWS, rows::place(table, key, 0)).0;
    Answer::Located { nodes: keys.iter().map(primary).collect() }
}

fn bytes_of(found: Option<(Kind, Vec<u8>)>) -> Result<Option<Vec<u8>>, Stop> {
    match found {
        None => Ok(None),
        Some((Kind::Bytes, value)) => Ok(Some(value)),
        Some((kind, _)) => {
            let what = match kind {
                Kind::Fields => "hash",
                Kind::List => "list",
                Kind::Set => "set",
                _ => "sorted set",
            };
            let why = format!("the key holds a {what} of the Redis door, and no plain value");
            Err(StoreError::invalid(why).into())
        }
    }
}

/// What one of many keys costs, in bytes that might have been copied instead.
const PER_KEY: usize = 512;

/// Takes the room of entries; they may not fit into one answer.
fn take(room: &mut Room, entries: &[Entry]) -> Result<(), Stop> {
    let bytes = entries.iter().map(|Entry { key, value }| key.len() + value.len() + size_of::<Entry>()).sum();
    Ok(room.resize(bytes)?)
}

async fn scan(
    local: Local,
    (attempts_max, patience_ns): (u32, u64),
    table: Vec<u8>,
    prefix: Vec<u8>,
    room: &mut Room,
) -> Result<Answer, StoreError> {
    rows::check_table(&table)?;
    if order::is_ordered(&table) {
        let to = order::behind_prefix(&prefix);
        return entries_between(local, (attempts_max, patience_ns), table, (prefix, to), usize::MAX, room)
            .await;
    }
    let (low, high) = rows::range(&table);
    let result =
        local.transact_at_most(attempts_max, patience_ns, false, async |transaction: &mut Transaction| {
            transaction.show_versions();
            let (entries, rows) = transaction.scan(&table, low, high).await?;
            let is_wanted = |found: &Found| found.kind == Kind::Bytes && found.key.starts_with(&prefix);
            let mut entries =
                transaction.entries(&table, entries.into_iter().filter(is_wanted).collect()).await?;
            entries.sort_unstable();
            take(room, &entries)?;
            let ranges = vec![RangeFootprint { low, high, rows }];
            let seen = Footprint { ranges, ..Footprint::default() };
            Ok(Answer::Scanned { entries, seen })
        });
    result.await
}

async fn range(
    local: Local,
    table: Vec<u8>,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    limit: u32,
    room: &mut Room,
) -> Result<Answer, StoreError> {
    order::check(&table)?;
    entries_between(
        local,
        (u32::MAX, PATIENCE_NS),
        table,
        (from, to),
        RANGE_KEYS_MAX.min(limit as usize),
        room,
    )
    .await
}

/// The first entries of an ordered table in a range.
async fn entries_between(
    local: Local,
    (attempts_max, patience_ns): (u32, u64),
    table: Vec<u8>,
    (from, to): (Vec<u8>, Option<Vec<u8>>),
    limit: usize,
    room: &mut Room,
) -> Result<Answer, StoreError> {
    let result =
        local.transact_at_most(attempts_max, patience_ns, false, async |transaction: &mut Transaction| {
            let Range { found, nodes } = transaction.range(&table, &from, to.as_deref(), limit).await?;
            let mut seen = Footprint { nodes, ..Footprint::default() };
            for Found { key, .. } in &found {
                seen.rows.extend(transaction.footprint(&table, key).await?);
            }
            let entries = transaction.entries(&table, found).await?;
            take(room, &entries)?;
            Ok(Answer::Scanned { entries, seen })
        });
    result.await
}

async fn commit(local: Local, seen: Footprint, writes: Vec<WriteRequest>) -> Result<Answer, StoreError> {
    for write in &writes {
        rows::check_key(&write.table, &write.key)?;
        rows::check_value(write.value.as_deref().unwrap_or_default())?;
    }
    if seen.ranges.iter().any(|range| range.low > range.high) {
        return Err(StoreError::invalid("a range that ends before it begins"));
    }
    let bytes: usize = writes.iter().map(WriteRequest::bytes).sum();
    if bytes > WRITE_BYTES_MAX {
        return Err(rows::writes_too_much(bytes));
    }
    let is_long = bytes > USUAL_RECORD_BYTES_MAX;
    let result = local.transact_with(PATIENCE_NS, is_long, async |transaction: &mut Transaction| {
        transaction.demand(&seen).await?;
        transaction.prefetch(writes.iter().map(|write| (&write.table[..], &write.key[..]))).await?;
        for write in &writes {
            match &write.value {
                // The new value is another one: it does not expire.
                Some(value) => {
                    transaction.put_until(&write.table, &write.key, Kind::Bytes, value, None).await?;
                }
                None => drop(transaction.delete(&write.table, &write.key).await?),
            }
        }
        Ok(Answer::Committed)
    });
    result.await
}

async fn restore(
    local: Local,
    (note_table, note_key): (Vec<u8>, Vec<u8>),
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    cells: Vec<BackupEntry>,
) -> Result<Answer, StoreError> {
    rows::check_key(&note_table, &note_key)?;
    for cell in &cells {
        rows::check_key(&cell.table, &cell.key)?;
    }
    let result = local.transact(PATIENCE_NS, async |transaction: &mut Transaction| {
        if bytes_of(transaction.get(&note_table, &note_key).await?)? != from {
            return Err(StoreError::Conflict.into());
        }
        transaction.prefetch(cells.iter().map(|cell| (&cell.table[..], &cell.key[..]))).await?;
        for cell in &cells {
            let BackupEntry { table, key, kind, expires, value } = cell;
            transaction.put_until(table, key, *kind, value, *expires).await?;
        }
        match &to {
            Some(value) => transaction.put(&note_table, &note_key, Kind::Bytes, value).await?,
            None => drop(transaction.delete(&note_table, &note_key).await?),
        }
        Ok(Answer::Committed)
    });
    result.await
}

async fn sweep(
    local: Local,
    table: Vec<u8>,
    (low, high): (u64, u64),
    most: u32,
) -> Result<Answer, StoreError> {
    rows::check_table(&table)?;
    let (first, last) = rows::range(&table);
    if low > high || high > last - first {
        return Err(StoreError::invalid("a part of a table that is none"));
    }
    let is_long = Flag::new(false);
    let result = local.transact(PATIENCE_NS, async |transaction: &mut Transaction| {
        let entries = match transaction.scan(&table, first + low, first + high).await {
            Err(Stop::TooLong) => {
                is_long.set(true);
                return Err(StoreError::Aborted("more rows than one transaction takes".into()).into());
            }
            found => found?.0,
        };
        if entries.len() <= most as usize {
            let names = entries.iter().map(|found| (&table[..], &found.key[..]));
            transaction.prefetch(names).await?;
            for found in &entries {
                transaction.delete(&table, &found.key).await?;
            }
        }
        Ok(Answer::Swept { entries: Some(entries.len() as u64) })
    });
    match result.await {
        Err(_) if is_long.get() => Ok(Answer::Swept { entries: None }),
        result => result,
    }
}

fn starting(store: &Store, standing: String) -> NodeStatus {
    NodeStatus {
        node: store.introduction.node,
        process: std::process::id(),
        standing,
        ..NodeStatus::default()
    }
}

fn holding(configuration: &Configuration, node: NodeId) -> Holding {
    let copies = configuration.regions.iter().flatten().filter(|replica| replica.node == node);
    let (complete, coming): (Vec<&Replica>, Vec<&Replica>) = copies.partition(|replica| replica.synced);
    Holding { node: node.0, complete: complete.len() as u16, coming: coming.len() as u16 }
}

pub(crate) fn status(local: &Local) -> NodeStatus {
    let node = local.shared.node.borrow();
    let configuration = node.configuration();
    let outcomes = *local.shared.outcomes.borrow();
    let is_mine = |region: &&Vec<highwire_txn::Replica>| region[0].node == node.id();
    let has_copy =
        |region: &&Vec<highwire_txn::Replica>| region.iter().any(|replica| replica.node == node.id());
    let is_member = configuration.boot(node.id()) == Some(node.boot());
    let (usage, fullest_percent) = node.usage();
    NodeStatus {
        node: node.id().0,
        process: std::process::id(),
        configuration: configuration.id,
        members: configuration.nodes().map(|node| node.0).collect(),
        revision: configuration.revision,
        leaving: configuration.leaving.iter().map(|node| node.0).collect(),
        holdings: configuration.nodes().map(|node| holding(configuration, node)).collect(),
        is_member,
        is_open: is_member && node.is_open(),
        is_settled: configuration.is_settled(local.shared.f),
        copies: local.shared.f as u16 + 1,
        primary_of: configuration.regions.iter().filter(is_mine).count() as u16,
        copy_of: configuration.regions.iter().filter(has_copy).count() as u16,
        committed: outcomes.committed,
        conflicts: outcomes.conflicts,
        unknown: outcomes.unknown,
        rows: usage.live,
        tombstones: usage.tombstones,
        rows_max: node.settings().rows_max as u64,
        fullest_percent,
        standing: node.standing(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pace::Patience;
    use std::io::Write as _;
    use std::time::Duration;

    #[test]
    fn a_request_that_finds_no_room_is_not_read() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let found = runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("bound");
            // It may end when this end has read enough.
            let sender = std::thread::spawn(move || {
                std::net::TcpStream::connect(address).expect("connected").write_all(&vec![7; 8 << 20])
            });
            let (stream, _) = listener.accept().await.expect("a connection");
            let patience = Patience { idle: None, slow: Duration::from_secs(60) };
            let (mut stream, mut bytes, mut taken) = (PacedStream::new(stream, patience), Vec::new(), 0);
            let full = |more: usize| {
                taken += more;
                if taken > 200_000 { Err(StoreError::Full) } else { Ok(()) }
            };
            let found = fill(&mut stream, &mut bytes, 8 << 20, full).await.expect("no damage");
            drop(stream);
            let _ = sender.join();
            (found, bytes.len())
        });
        assert_eq!(found.0, Err(StoreError::Full));
        // The last portion that was read had no room any more.
        assert!(found.1 <= 200_000 + (64 << 10), "{}", found.1);
    }
}
