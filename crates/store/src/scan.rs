//! Scans that writers do not stop.
//!
//! A scan is tried as a transaction first: if no row of its range changes meanwhile, this costs nobody anything. Beside writers that never stop
//! it would be tried again and again. So after [`ATTEMPTS`] the door's thread reads a snapshot of all members instead (`instant`). If
//! the members change while it reads, it begins anew, as long as its patience lasts; if clients change more than a node keeps, it ends
//! with an error that says so.

use crate::door::Room;
use crate::engine::{PATIENCE_NS, Store};
use crate::error::StoreError;
use crate::instant::{self, Instant};
use crate::message::{BackupOf, Entry};
use crate::rows::{self, BackupEntry, Kind};
use crate::transaction::{EXPIRED_MAX, Transaction};
use highwire_txn::Key;
use std::time::{Duration, Instant as Moment};

/// Attempts as a transaction.
pub(crate) const ATTEMPTS: u32 = 2;
/// How long they may take together. With a snapshot's patience this is less than a client's.
pub(crate) const ATTEMPTS_NS: u64 = 1_000_000_000;
const PAUSE: Duration = Duration::from_millis(5);
/// How often keys that have expired are deleted before a scan reports what is left of them.
const PURGES_MAX: u32 = 3;

/// The rows of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) low: Key,
    pub(crate) high: Key,
    pub(crate) has_values: bool,
}

/// Reads a snapshot of these rows. `page` takes the entries of all tables in them, with what it has got so far; each attempt begins with
/// nothing.
///
/// A snapshot may have keys whose time had come before the scan began. They are deleted, and another snapshot is read: what a scan leaves out must be
/// gone for everybody.
pub(crate) fn scan<T: Default>(
    store: &Store,
    rows: Rows,
    room: &mut Room,
    mut page: impl FnMut(&mut T, &mut Room, Vec<BackupEntry>) -> Result<(), StoreError>,
) -> Result<T, StoreError> {
    let Rows { low, high, has_values } = rows;
    let deadline = Moment::now() + Duration::from_nanos(PATIENCE_NS);
    let now_ms = store.wall().now_ms();
    let mut purges = 0;
    loop {
        room.shrink(0);
        let mut found = T::default();
        let mut expired = Vec::new();
        let result = members(store).and_then(|members| {
            let of = BackupOf::Rows { low, high, has_values };
            let instant = Instant::mark(&members, &store.doors(), &store.access, instant::token(), of)?;
            instant.read(|cells| {
                let has_expired = |cell: &&BackupEntry| cell.has_expired(now_ms);
                let names = cells.iter().filter(has_expired).take(EXPIRED_MAX - expired.len());
                expired.extend(names.map(|cell| (cell.table.clone(), cell.key.clone())));
                page(&mut found, room, cells)
            })
        });
        match result {
            Ok(()) if expired.is_empty() || purges == PURGES_MAX => return Ok(found),
            Ok(()) => {
                purges += 1;
                purge(store, expired)?;
            }
            Err(StoreError::Unavailable(_)) if Moment::now() < deadline => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
}

/// Deletes keys if their time has come.
fn purge(store: &Store, names: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), StoreError> {
    store.run(|local| async move {
        let look = async |transaction: &mut Transaction| {
            transaction.prefetch(names.iter().map(|(table, key)| (&table[..], &key[..]))).await?;
            for (table, key) in &names {
                transaction.measure(table, key).await?;
            }
            Ok(())
        };
        local.transact(PATIENCE_NS, look).await
    })?
}

fn members(store: &Store) -> Result<Vec<u16>, StoreError> {
    store.run(|local| async move {
        let node = local.shared.node.borrow();
        if !node.is_open() {
            drop(node);
            return Err(StoreError::Unavailable(local.why_unavailable()));
        }
        Ok(node.configuration().nodes().map(|node| node.0).collect())
    })?
}

/// All entries of a table whose keys begin with `prefix`, in the order of their keys.
pub(crate) fn entries(
    store: &Store,
    table: &[u8],
    prefix: &[u8],
    room: &mut Room,
) -> Result<Vec<Entry>, StoreError> {
    let (low, high) = rows::range(table);
    let rows = Rows { low, high, has_values: true };
    let mut entries = scan(store, rows, room, |entries: &mut Vec<Entry>, room, cells| {
        for BackupEntry { table: of, key, kind, value, .. } in cells {
            if of == table && kind == Kind::Bytes && key.starts_with(prefix) {
                room.take(key.len() + value.len() + size_of::<Entry>())?;
                entries.push(Entry { key, value });
            }
        }
        Ok(())
    })?;
    entries.sort_unstable();
    Ok(entries)
}
