//! A transaction over keys that are strings, on the node's own thread: it reads as it goes, keeps its writes, and locks only when it commits.
//!
//! So no client holds a lock while it thinks, and a client that disappears leaves nothing locked. A
//! transaction can demand that rows read earlier, by this node or another, are unchanged
//! ([`Transaction::demand`]): clients' transactions and Redis's WATCH commit that way.
//!
//! **A key expires by a transaction.** A transaction has one time, that of its node when the attempt began. An entry whose time has come
//! is absent for it, and it deletes the entry with its commit. So expiry is as serialisable as a deletion, whatever nodes' clocks say, and a
//! clock that goes back brings nothing back.

use crate::error::StoreError;
use crate::order::is_ordered;
use crate::rows::{self, Cell, Expiry, Kind, Row, SHORT_VALUE_BYTES_MAX, Value, WRITE_BYTES_MAX};
use crate::session::{LONG_VALUES, ORDER, ROWS, Session, Stop, USUAL_RECORD_BYTES_MAX};
use highwire_txn::{Key, Mode, Version};
use std::cell::Cell as Flag;
use std::collections::BTreeMap;

mod attempt;
mod expiry;
mod long;
mod order;
mod shown;

pub(crate) use attempt::Attempt;
use long::LongRow;
use order::CachedNode;
pub(crate) use order::{RANGE_KEYS_MAX, Range};

/// Longer chains are refused. Each place needs as many keys of one hash as fill a row.
const CHAIN_MAX: u64 = 64;
/// The most rows that a transaction reads, those of ranges not counted.
const ROWS_MAX: usize = 1 << 16;
/// Rows that are read at once: a longer list is read in pieces, between which the node does its other work.
const ROWS_AT_ONCE: usize = 1 << 10;
/// A task goes on for so many bytes that it copies, or steps that cost as much, before the node's other work has its turn.
const BREATH: usize = 256 << 10;
/// A table is read in at most this many ranges.
const PIECES_MAX: u64 = 1 << 14;

/// Entries that a scan deletes because their time has come; it reports more of them as they are.
pub(crate) const EXPIRED_MAX: usize = 4096;

/// A transaction. Its writes take effect when its closure returns.
pub struct Transaction {
    session: Session,
    /// Its time: milliseconds since 1970.
    now_ms: u64,
    /// It has taken entries away whose time had come.
    has_expired: bool,
    /// Versions of rows were asked for.
    has_shown_versions: bool,
    /// It was told to write.
    has_written: bool,
    rows: BTreeMap<Key, Cached>,
    long: BTreeMap<Key, LongRow>,
    /// Nodes of ordered tables' trees.
    nodes: BTreeMap<Key, CachedNode>,
    /// Bytes of long values that were read, and of those that were put.
    long_bytes: usize,
    long_bytes_put: usize,
    /// The number of ranges in which a table is read.
    pieces: u64,
    /// What this transaction has done since the node's other work had its turn.
    breath: Flag<usize>,
}

struct Cached {
    version: Version,
    is_present: bool,
    row: Row,
    is_changed: bool,
    /// An entry was taken away because its time had come.
    has_expired: bool,
}

/// An entry that a scan has found. Its value may be elsewhere: see [`Transaction::entries`].
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) key: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) value: Value,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("rows", &self.rows.len()).finish()
    }
}

impl Transaction {
    fn new(session: Session, pieces: u64) -> Transaction {
        let (rows, long, nodes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let now_ms = session.now_ms();
        Transaction {
            session,
            now_ms,
            has_expired: false,
            has_shown_versions: false,
            has_written: false,
            rows,
            long,
            nodes,
            long_bytes: 0,
            long_bytes_put: 0,
            pieces,
            breath: Flag::new(0),
        }
    }

    /// Lets the node do its other work, if this transaction has kept it from that for long: other clients wait, and heartbeats.
    /// `bytes` is what was done since the last call, as bytes that might have been copied meanwhile.
    pub(crate) async fn breathe(&self, bytes: usize) {
        let done = self.breath.get().saturating_add(bytes);
        if done < BREATH {
            self.breath.set(done);
            return;
        }
        self.breath.set(0);
        self.session.yield_now().await;
    }

    /// A random number, from the node's seeded generator.
    pub(crate) fn random(&self) -> u64 {
        self.session.random()
    }

    /// A number below `below`, from the node's seeded generator. Another attempt draws another one.
    pub(crate) fn random_below(&self, below: usize) -> usize {
        (self.session.random() % below.max(1) as u64) as usize
    }

    /// A key's value, as this transaction sees it.
    pub(crate) async fn get(&mut self, table: &[u8], key: &[u8]) -> Result<Option<(Kind, Vec<u8>)>, Stop> {
        let Some(cell) = self.cell(table, key).await? else { return Ok(None) };
        let (kind, value) = (cell.kind, cell.value.clone());
        Ok(Some((kind, self.value(table, key, &value).await?)))
    }

    /// A value's kind and length, without reading it if it is long.
    pub(crate) async fn measure(&mut self, table: &[u8], key: &[u8]) -> Result<Option<(Kind, usize)>, Stop> {
        let cell = self.cell(table, key).await?;
        Ok(cell.map(|cell| match &cell.value {
            Value::Short(value) => (cell.kind, value.len()),
            Value::Long { bytes, .. } => (cell.kind, *bytes as usize),
        }))
    }

    /// A key's entry.
    async fn cell(&mut self, table: &[u8], key: &[u8]) -> Result<Option<&Cell>, Stop> {
        let found = self.find(table, key).await?;
        Ok(found.and_then(|at| self.rows[&at].row.find(table, key)))
    }

    /// Gives a key a value. It keeps the time at which it expires, if it has one.
    pub(crate) async fn put(
        &mut self,
        table: &[u8],
        key: &[u8],
        kind: Kind,
        value: &[u8],
    ) -> Result<(), Stop> {
        let expires = self.cell(table, key).await?.and_then(|cell| cell.expires);
        self.put_until(table, key, kind, value, expires).await
    }

    /// Gives a key a value, and the time at which it expires. A time that has come deletes it.
    pub(crate) async fn put_until(
        &mut self,
        table: &[u8],
        key: &[u8],
        kind: Kind,
        value: &[u8],
        expires: Expiry,
    ) -> Result<(), Stop> {
        rows::check_value(value)?;
        // Entries of ordered tables do not expire.
        let expires = expires.filter(|_| !is_ordered(table));
        if expires.is_some_and(|time| time <= self.now_ms) {
            return self.delete(table, key).await.map(drop);
        }
        let old = self.take(table, key).await?;
        if old.is_none() && is_ordered(table) {
            self.add_to_order(table, key).await?;
        }
        let old = match old.map(|cell| cell.value) {
            Some(Value::Long { step, .. }) => Some(step),
            _ => None,
        };
        let value = if rows::is_short(value.len(), expires) {
            if let Some(step) = old {
                self.delete_long(table, key, step);
            }
            Value::Short(value.to_vec())
        } else {
            self.long_bytes_put += value.len();
            if self.long_bytes_put > USUAL_RECORD_BYTES_MAX && !self.session.is_long() {
                return Err(Stop::NeedsLongWorker);
            }
            let step = self.put_long(table, key, value, old).await?;
            Value::Long { bytes: value.len() as u32, step }
        };
        self.settle(Cell { table: table.to_vec(), key: key.to_vec(), kind, expires, value }).await
    }

    /// Gives an entry that is in no row a place.
    async fn settle(&mut self, cell: Cell) -> Result<(), Stop> {
        for step in 0..CHAIN_MAX {
            let cached = self.row(rows::place(&cell.table, &cell.key, step)).await?;
            if cached.row.has_room_for(&cell) {
                cached.row.cells.push(cell);
                cached.is_changed = true;
                return Ok(());
            }
            cached.is_changed |= !cached.row.overflows;
            cached.row.overflows = true;
        }
        Err(Stop::Error(StoreError::Full))
    }

    /// Takes a key away; returns whether it was there.
    pub(crate) async fn delete(&mut self, table: &[u8], key: &[u8]) -> Result<bool, Stop> {
        let old = self.take(table, key).await?;
        if let Some(Cell { value: Value::Long { step, .. }, .. }) = old {
            self.delete_long(table, key, step);
        }
        if old.is_some() && is_ordered(table) {
            self.take_from_order(table, key).await?;
        }
        Ok(old.is_some())
    }

    /// Takes an entry out of its row.
    async fn take(&mut self, table: &[u8], key: &[u8]) -> Result<Option<Cell>, Stop> {
        self.has_written = true;
        let Some(at) = self.find(table, key).await? else { return Ok(None) };
        let cached = self.row(at).await?;
        let old = cached.row.remove(table, key);
        cached.is_changed |= old.is_some();
        Ok(old)
    }

    /// Reads the first places of many keys at once, so that later reads of them take no time.
    pub(crate) async fn prefetch<'a>(
        &mut self,
        keys: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), Stop> {
        let places: Vec<Key> = keys.map(|(table, key)| rows::place(table, key, 0)).collect();
        self.load(&places).await
    }

    /// All entries of a table whose rows lie between two keys, in no order; and the versions of the rows.
    pub(crate) async fn scan(
        &mut self,
        table: &[u8],
        low: Key,
        high: Key,
    ) -> Result<(Vec<Found>, Vec<(Key, Version)>), Stop> {
        let found = self.read_range(low, high).await?;
        self.expire(&found).await?;
        let seen = found.iter().map(|row| (row.key, row.version)).collect();
        let mut entries = Vec::new();
        let mut add = |row: &Row| {
            let ours = row.cells.iter().filter(|cell| cell.table == table);
            entries.extend(ours.map(|cell| Found {
                key: cell.key.clone(),
                kind: cell.kind,
                value: cell.value.clone(),
            }));
        };
        for row in &found {
            // A row that this transaction wrote itself hides the stored one.
            if let Some(bytes) = row.value.as_ref().filter(|_| !self.has_changed(row.key)) {
                add(&Row::parse(bytes)?);
            }
        }
        for (_, cached) in self.rows.range(low..=high).filter(|(_, cached)| cached.is_changed) {
            add(&cached.row);
        }
        Ok((entries, seen))
    }

    fn has_changed(&self, key: Key) -> bool {
        self.rows.get(&key).is_some_and(|cached| cached.is_changed)
    }

    async fn read_range(&mut self, low: Key, high: Key) -> Result<Vec<highwire_txn::RangeRow>, Stop> {
        let (_, before) = self.session.rows(usize::MAX);
        let width = (high - low) / self.pieces + 1;
        let mut from = low;
        loop {
            let to = from.saturating_add(width - 1).min(high);
            self.session.add_range(from, to)?;
            if to == high {
                break;
            }
            from = to + 1;
        }
        self.session.execute().await?;
        let mut rows = self.session.rows(before).0;
        rows.sort_unstable_by_key(|row| row.key);
        Ok(rows)
    }

    /// The row in which a key lies, if it exists.
    async fn find(&mut self, table: &[u8], key: &[u8]) -> Result<Option<Key>, Stop> {
        rows::check_key(table, key)?;
        for step in 0..CHAIN_MAX {
            let place = rows::place(table, key, step);
            let cached = self.row(place).await?;
            if cached.row.find(table, key).is_some() {
                return Ok(Some(place));
            }
            if !cached.row.overflows {
                break;
            }
        }
        Ok(None)
    }

    async fn row(&mut self, place: Key) -> Result<&mut Cached, Stop> {
        self.load(&[place]).await?;
        Ok(self.rows.get_mut(&place).expect("it was just loaded"))
    }

    async fn load(&mut self, places: &[Key]) -> Result<(), Stop> {
        let mut absent: Vec<Key> =
            places.iter().copied().filter(|place| !self.rows.contains_key(place)).collect();
        absent.sort_unstable();
        absent.dedup();
        if absent.is_empty() {
            return Ok(());
        }
        if self.rows.len() + absent.len() > ROWS_MAX {
            return Err(StoreError::invalid(format!("a transaction reads at most {ROWS_MAX} keys")).into());
        }
        for some in absent.chunks(ROWS_AT_ONCE) {
            for &place in some {
                self.session.add_read(ROWS, place)?;
            }
            self.session.execute().await?;
            for &place in some {
                let (version, value) = self.session.seen(ROWS, place).ok_or(Stop::Conflict)?;
                let mut row = value.as_deref().map_or(Ok(Row::default()), Row::parse)?;
                let is_present = value.is_some();
                let has_expired = self.take_expired(&mut row);
                let cached = Cached { version, is_present, row, is_changed: has_expired, has_expired };
                self.rows.insert(place, cached);
            }
            self.breathe(some.len() * SHORT_VALUE_BYTES_MAX / 8).await;
        }
        Ok(())
    }

    /// Locks the rows to be written, and sets their values. Returns whether there are any.
    async fn lock(&mut self) -> Result<bool, Stop> {
        let mut writes = Vec::new();
        for (&place, cached) in self.rows.iter().filter(|(_, cached)| cached.is_changed) {
            let mode = match (cached.is_present, cached.row.is_needless()) {
                (true, true) => Mode::Delete,
                (true, false) => Mode::Update,
                (false, false) => Mode::Insert,
                (false, true) => continue,
            };
            writes.push((ROWS, place, mode, cached.row.to_bytes().into()));
        }
        for (&place, row) in &self.long {
            if let Some((mode, row)) = row.change() {
                writes.push((LONG_VALUES, place, mode, std::borrow::Cow::Borrowed(row.unwrap_or_default())));
            }
        }
        for (&place, node) in &self.nodes {
            if let Some((mode, row)) = node.change() {
                writes.push((ORDER, place, mode, row.into()));
            }
        }
        let bytes: usize = writes.iter().map(|write| write.3.len()).sum();
        if bytes > WRITE_BYTES_MAX {
            return Err(rows::writes_too_much(bytes).into());
        }
        if bytes > USUAL_RECORD_BYTES_MAX && !self.session.is_long() {
            return Err(Stop::NeedsLongWorker);
        }
        if writes.is_empty() {
            return Ok(false);
        }
        for (table, place, mode, _) in &writes {
            self.session.add_write(*table, *place, *mode)?;
        }
        self.session.execute().await?;
        for (table, place, mode, bytes) in &writes {
            if *mode != Mode::Delete {
                self.session.set_value(*table, *place, bytes)?;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
