//! What a node does when it is asked.

use super::Room;
use crate::engine::{PATIENCE_NS, Store};
use crate::error::StoreError;
use crate::message::{
    Answer, Entry, Footprint, Holding, Introduction, NodeStatus, RangeFootprint, WriteRequest,
};
use crate::order;
use crate::peers;
use crate::rows::{self, BackupEntry, Kind, WRITE_BYTES_MAX};
use crate::session::{Local, ROWS, Stop, USUAL_RECORD_BYTES_MAX};
use crate::transaction::{Found, RANGE_KEYS_MAX, Range, Transaction};
use highwire_txn::{Configuration, NodeId, Replica};
use std::cell::Cell as Flag;

/// Another node introduces itself. It gets this node's own introduction only if both can be nodes of one cluster.
pub(super) async fn meet(other: Introduction, store: &Store) -> Result<Answer, StoreError> {
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

pub(super) fn leave(local: &Local) -> Result<Answer, StoreError> {
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

pub(super) async fn get(
    local: Local,
    keys: Vec<(Vec<u8>, Vec<u8>)>,
    room: &mut Room,
) -> Result<Answer, StoreError> {
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
pub(super) fn locate(local: &Local, keys: &[(Vec<u8>, Vec<u8>)]) -> Answer {
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

pub(super) async fn scan(
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

pub(super) async fn range(
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

pub(super) async fn commit(
    local: Local,
    seen: Footprint,
    writes: Vec<WriteRequest>,
) -> Result<Answer, StoreError> {
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

pub(super) async fn restore(
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

pub(super) async fn sweep(
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

pub(super) fn starting(store: &Store, standing: String) -> NodeStatus {
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
