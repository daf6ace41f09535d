//! Entries that expire: how a transaction takes them away, and gives them their times.

use super::{EXPIRED_MAX, Transaction};
use crate::rows::{self, Cell, Expiry, Row, Value};
use crate::session::{ROWS, Stop};
use highwire_txn::{Key, RangeRow};

impl Transaction {
    /// The time of this transaction: milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// When a key expires; the outer `None`: there is no such key.
    pub(crate) async fn expiry(&mut self, table: &[u8], key: &[u8]) -> Result<Option<Expiry>, Stop> {
        Ok(self.cell(table, key).await?.map(|cell| cell.expires))
    }

    /// Changes when a key expires, if it is there. A time that has come deletes it. A long value is neither read nor written.
    pub(crate) async fn set_expiry(&mut self, table: &[u8], key: &[u8], expires: Expiry) -> Result<(), Stop> {
        if expires.is_some_and(|time| time <= self.now_ms) {
            return self.delete(table, key).await.map(drop);
        }
        let Some(cell) = self.cell(table, key).await?.cloned() else { return Ok(()) };
        match &cell.value {
            Value::Short(value) if !rows::is_short(value.len(), expires) => {
                self.put_until(table, key, cell.kind, value, expires).await
            }
            _ => {
                self.take(table, key).await?;
                self.settle(Cell { expires, ..cell }).await
            }
        }
    }

    /// Takes the entries out of a row that was read whose time has come. Says whether there were any.
    pub(super) fn take_expired(&mut self, row: &mut Row) -> bool {
        let taken = row.take_expired(self.now_ms);
        for cell in &taken {
            if let Value::Long { step, .. } = cell.value {
                self.delete_long(&cell.table, &cell.key, step);
            }
        }
        self.has_expired |= !taken.is_empty();
        !taken.is_empty()
    }

    /// Deletes entries of a range whose time has come, as many as one transaction should.
    pub(super) async fn expire(&mut self, found: &[RangeRow]) -> Result<(), Stop> {
        let has_expired = |row: &&RangeRow| {
            let row = row.value.as_deref().map(Row::parse);
            matches!(row, Some(Ok(row)) if row.has_expired(self.now_ms))
        };
        let places: Vec<Key> =
            found.iter().filter(has_expired).map(|row| row.key).take(EXPIRED_MAX).collect();
        self.load(&places).await
    }

    /// Deletes what has expired in some rows, which may have changed since somebody saw it there.
    pub(crate) async fn purge(&mut self, places: &[Key]) -> Result<(), Stop> {
        debug_assert!(places.len() <= EXPIRED_MAX, "{} rows of table {ROWS:?}", places.len());
        self.load(places).await
    }
}
