//! Long values of a transaction: rows of their own, each named by the entry of its key.
//!
//! An entry's row is written whenever its value changes. So what was read here belongs to what was read there if, at the
//! commit, both are still as they were; and a client that shows the entries that it read has shown all.

use super::{CHAIN_MAX, Found, Transaction};
use crate::error::StoreError;
use crate::message::Entry;
use crate::rows::{self, READ_BYTES_MAX, Value};
use crate::session::{LONG_VALUES, Stop};
use highwire_txn::{Key, Mode};

/// A row for a long value, as this transaction sees it.
pub(super) enum LongRow {
    /// As it was read.
    Read(Option<Vec<u8>>),
    /// To be written. `is_present`: the store has one there.
    Written { row: Vec<u8>, is_present: bool },
    /// To be deleted.
    Deleted { is_present: bool },
}

impl LongRow {
    fn is_free(&self) -> bool {
        matches!(self, LongRow::Read(None) | LongRow::Deleted { .. })
    }

    fn is_present(&self) -> bool {
        match self {
            LongRow::Read(row) => row.is_some(),
            LongRow::Written { is_present, .. } | LongRow::Deleted { is_present } => *is_present,
        }
    }

    /// How the row is locked, and its new bytes. `None`: it stays as it is.
    pub(super) fn change(&self) -> Option<(Mode, Option<&[u8]>)> {
        match self {
            LongRow::Written { row, is_present: true } => Some((Mode::Update, Some(row))),
            LongRow::Written { row, is_present: false } => Some((Mode::Insert, Some(row))),
            LongRow::Deleted { is_present: true } => Some((Mode::Delete, None)),
            LongRow::Deleted { is_present: false } | LongRow::Read(_) => None,
        }
    }
}

impl Transaction {
    /// Reads the long values of many keys at once, so that later reads of them take no time.
    pub(crate) async fn prefetch_values<'a>(
        &mut self,
        keys: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Result<(), Stop> {
        self.prefetch(keys.clone()).await?;
        let mut places = Vec::new();
        for (table, key) in keys {
            if let Some(Value::Long { step, .. }) = self.cell(table, key).await?.map(|cell| &cell.value) {
                places.push(rows::place(table, key, u64::from(*step)));
            }
        }
        self.load_long(&places).await
    }

    /// The entries with their values.
    pub(crate) async fn entries(&mut self, table: &[u8], found: Vec<Found>) -> Result<Vec<Entry>, Stop> {
        let place = |found: &Found| match found.value {
            Value::Short(_) => None,
            Value::Long { step, .. } => Some(rows::place(table, &found.key, u64::from(step))),
        };
        let places: Vec<Key> = found.iter().filter_map(place).collect();
        self.load_long(&places).await?;
        let mut entries = Vec::with_capacity(found.len());
        for Found { key, value, .. } in found {
            let value = self.value(table, &key, &value).await?;
            entries.push(Entry { key, value });
        }
        Ok(entries)
    }

    pub(super) async fn value(&mut self, table: &[u8], key: &[u8], value: &Value) -> Result<Vec<u8>, Stop> {
        let (bytes, step) = match value {
            Value::Short(value) => return Ok(value.clone()),
            Value::Long { bytes, step } => (*bytes, *step),
        };
        let place = rows::place(table, key, u64::from(step));
        self.load_long(&[place]).await?;
        let row = match self.long.get(&place) {
            Some(LongRow::Read(Some(row)) | LongRow::Written { row, .. }) => {
                rows::long_value(row, table, key)
            }
            _ => None,
        };
        // If they do not fit together, one of the two has changed in between.
        let value = row.filter(|value| value.len() == bytes as usize);
        value.map(<[u8]>::to_vec).ok_or(Stop::Conflict)
    }

    async fn load_long(&mut self, places: &[Key]) -> Result<(), Stop> {
        let mut absent: Vec<Key> =
            places.iter().copied().filter(|place| !self.long.contains_key(place)).collect();
        absent.sort_unstable();
        absent.dedup();
        // An execution brings no more than this transaction may have.
        for some in absent.chunks(READ_BYTES_MAX / rows::VALUE_BYTES_MAX) {
            for &place in some {
                self.session.add_read(LONG_VALUES, place)?;
            }
            self.session.execute().await?;
            for &place in some {
                let (_, row) = self.session.seen(LONG_VALUES, place).ok_or(Stop::Conflict)?;
                self.long_bytes += row.as_ref().map_or(0, Vec::len);
                self.long.insert(place, LongRow::Read(row));
            }
            if self.long_bytes > READ_BYTES_MAX {
                return Err(StoreError::invalid(format!(
                    "the transaction reads more than {READ_BYTES_MAX} bytes of long values, which is not possible"
                ))
                .into());
            }
        }
        Ok(())
    }

    /// Writes a long value, in the place of the old one or in a new one; returns the place's step in the
    /// chain.
    pub(super) async fn put_long(
        &mut self,
        table: &[u8],
        key: &[u8],
        value: &[u8],
        old: Option<u8>,
    ) -> Result<u8, Stop> {
        let step = match old {
            Some(step) => step,
            None => self.free_step(table, key).await?,
        };
        let place = rows::place(table, key, u64::from(step));
        // What was not read is there: the entry says so.
        let is_present = self.long.get(&place).is_none_or(LongRow::is_present);
        let row = rows::long_row(table, key, value);
        self.long.insert(place, LongRow::Written { row, is_present });
        Ok(step)
    }

    pub(super) fn delete_long(&mut self, table: &[u8], key: &[u8], step: u8) {
        let place = rows::place(table, key, u64::from(step));
        let is_present = self.long.get(&place).is_none_or(LongRow::is_present);
        self.long.insert(place, LongRow::Deleted { is_present });
    }

    /// The first place of the chain that no other key has.
    async fn free_step(&mut self, table: &[u8], key: &[u8]) -> Result<u8, Stop> {
        for step in 0..CHAIN_MAX as u8 {
            let place = rows::place(table, key, u64::from(step));
            self.load_long(&[place]).await?;
            if self.long.get(&place).is_some_and(LongRow::is_free) {
                return Ok(step);
            }
        }
        Err(StoreError::Full.into())
    }
}
