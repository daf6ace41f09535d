//! A transaction of a client: it reads through the connection, and keeps its writes to itself until it commits.

use super::{AsyncClient, Name, Value, unexpected};
use crate::error::StoreError;
use crate::message::{Answer, Entry, Footprint, KEYS_MAX, Request, WriteRequest};
use crate::transaction::RANGE_KEYS_MAX;
use crate::{order, rows};
use std::collections::BTreeMap;

/// A transaction of an [`AsyncClient`], as its closure sees it. Its reads are futures.
#[derive(Debug)]
pub struct AsyncTransaction<'a> {
    client: &'a AsyncClient,
    seen: Footprint,
    writes: BTreeMap<Name, Value>,
    /// The values read: a key that is read twice has one value.
    values: BTreeMap<Name, Value>,
    reads: usize,
}

impl<'a> AsyncTransaction<'a> {
    pub(super) fn new(client: &'a AsyncClient) -> AsyncTransaction<'a> {
        AsyncTransaction {
            client,
            seen: Footprint::default(),
            writes: BTreeMap::new(),
            values: BTreeMap::new(),
            reads: 0,
        }
    }

    /// A key's value, as this transaction sees it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn get(&mut self, table: &str, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, StoreError> {
        let mut values = self.get_all(&[(table, key.as_ref())]).await?;
        Ok(values.pop().flatten())
    }

    /// Values of several keys, with one question.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn get_all(&mut self, keys: &[(&str, &[u8])]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names: Vec<Name> =
            keys.iter().map(|(table, key)| (table.as_bytes().to_vec(), key.to_vec())).collect();
        let is_known = |name: &&Name| self.writes.contains_key(*name) || self.values.contains_key(*name);
        let unknown: Vec<_> = names.iter().filter(|name| !is_known(name)).cloned().collect();
        for some in unknown.chunks(KEYS_MAX) {
            let (values, seen) = self.client.read(some).await?;
            self.reads += 1;
            self.seen.rows.extend(seen.rows);
            self.values.extend(some.iter().cloned().zip(values));
        }
        let value = |name| self.writes.get(name).or_else(|| self.values.get(name)).cloned().flatten();
        Ok(names.iter().map(value).collect())
    }

    /// All entries of a table whose keys begin with `prefix`, in the order of their keys. An entry that is
    /// added or removed there before this transaction commits is a conflict.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn scan(&mut self, table: &str, prefix: impl AsRef<[u8]>) -> Result<Vec<Entry>, StoreError> {
        self.scan_as(table, prefix, false).await
    }

    /// The same; `is_alone`: this transaction does nothing else.
    pub(super) async fn scan_as(
        &mut self,
        table: &str,
        prefix: impl AsRef<[u8]>,
        is_alone: bool,
    ) -> Result<Vec<Entry>, StoreError> {
        let (table, prefix) = (table.as_bytes().to_vec(), prefix.as_ref().to_vec());
        let request = Request::Scan { table: table.clone(), prefix: prefix.clone(), is_alone };
        let (entries, seen) = match self.client.ask(&request).await? {
            Answer::Scanned { entries, seen } => (entries, seen),
            answer => return Err(unexpected(answer)),
        };
        self.reads += 1;
        self.seen.extend(seen);
        let mut found: BTreeMap<Vec<u8>, Vec<u8>> =
            entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
        for ((_, key), value) in
            self.writes.iter().filter(|((of, key), _)| *of == table && key.starts_with(&prefix))
        {
            match value {
                Some(value) => found.insert(key.clone(), value.clone()),
                None => found.remove(key),
            };
        }
        Ok(found.into_iter().map(|(key, value)| Entry { key, value }).collect())
    }

    /// The first `limit` entries of an ordered table from the key `from` on and before the key `to`, in the order
    /// of their keys. An entry that is added, changed or removed there before this transaction commits is a conflict.
    ///
    /// # Errors
    /// [`StoreError`]: [`StoreError::Invalid`] if the table has no order.
    pub async fn range(
        &mut self,
        table: &str,
        from: impl AsRef<[u8]>,
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let (table, mut from) = (table.as_bytes().to_vec(), from.as_ref().to_vec());
        order::check(&table)?;
        let own: Vec<(Vec<u8>, Value)> = self
            .writes
            .range((table.clone(), from.clone())..)
            .take_while(|((of, key), _)| *of == table && to.is_none_or(|to| key.as_slice() < to))
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        // So many that enough are left if this transaction has deleted some.
        let enough = limit.saturating_add(own.len());
        let mut found = BTreeMap::new();
        while found.len() < enough {
            let limit = RANGE_KEYS_MAX.min(enough - found.len());
            let (table, to) = (table.clone(), to.map(<[u8]>::to_vec));
            let request = Request::Range { table, from: from.clone(), to, limit: limit as u32 };
            let (entries, seen) = match self.client.ask(&request).await? {
                Answer::Scanned { entries, seen } => (entries, seen),
                answer => return Err(unexpected(answer)),
            };
            self.reads += 1;
            self.seen.extend(seen);
            let count = entries.len();
            // The next key behind the last one.
            if let Some(last) = entries.last() {
                from = [last.key.as_slice(), &[0]].concat();
            }
            found.extend(entries.into_iter().map(|entry| (entry.key, entry.value)));
            if count < limit {
                break;
            }
        }
        for (key, value) in own {
            match value {
                Some(value) => found.insert(key, value),
                None => found.remove(&key),
            };
        }
        Ok(found.into_iter().take(limit).map(|(key, value)| Entry { key, value }).collect())
    }

    /// Gives a key a value, when the transaction commits.
    pub fn put(&mut self, table: &str, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let name = (table.as_bytes().to_vec(), key.as_ref().to_vec());
        self.writes.insert(name, Some(value.as_ref().to_vec()));
    }

    /// Takes a key away, when the transaction commits.
    pub fn delete(&mut self, table: &str, key: impl AsRef<[u8]>) {
        self.writes.insert((table.as_bytes().to_vec(), key.as_ref().to_vec()), None);
    }

    /// Whether all that was read was true at one instant.
    pub(super) async fn check_reads(mut self) -> Result<(), StoreError> {
        self.writes.clear();
        self.commit().await
    }

    pub(super) async fn commit(self) -> Result<(), StoreError> {
        // One question is answered at one instant, which is when the transaction happened.
        if self.writes.is_empty() && self.reads <= 1 {
            return Ok(());
        }
        for ((table, key), value) in &self.writes {
            rows::check_key(table, key)?;
            rows::check_value(value.as_deref().unwrap_or_default())?;
        }
        let write = |((table, key), value)| WriteRequest { table, key, value };
        let is_read_only = self.writes.is_empty();
        let writes: Vec<WriteRequest> = self.writes.into_iter().map(write).collect();
        let bytes: usize = writes.iter().map(WriteRequest::bytes).sum();
        if bytes > rows::WRITE_BYTES_MAX {
            return Err(rows::writes_too_much(bytes));
        }
        let request = Request::Commit { seen: self.seen, writes };
        match self.client.commit(&request).await {
            // The transaction changes nothing: it is as if it had not been tried.
            Err(StoreError::Unknown(_)) if is_read_only => Err(StoreError::Conflict),
            result => result,
        }
    }
}

/// A transaction of a client, as its closure sees it.
#[derive(Debug)]
pub struct ClientTransaction<'a>(pub(super) AsyncTransaction<'a>);

impl ClientTransaction<'_> {
    /// A key's value, as this transaction sees it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn get(&mut self, table: &str, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.client.block_on(self.0.get(table, key))
    }

    /// Values of several keys, with one question.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn get_all(&mut self, keys: &[(&str, &[u8])]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.0.client.block_on(self.0.get_all(keys))
    }

    /// As [`AsyncTransaction::scan`].
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn scan(&mut self, table: &str, prefix: impl AsRef<[u8]>) -> Result<Vec<Entry>, StoreError> {
        self.0.client.block_on(self.0.scan(table, prefix))
    }

    /// As [`AsyncTransaction::range`].
    ///
    /// # Errors
    /// [`StoreError`]: [`StoreError::Invalid`] if the table has no order.
    pub fn range(
        &mut self,
        table: &str,
        from: impl AsRef<[u8]>,
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        self.0.client.block_on(self.0.range(table, from, to, limit))
    }

    /// Gives a key a value, when the transaction commits.
    pub fn put(&mut self, table: &str, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.0.put(table, key, value);
    }

    /// Takes a key away, when the transaction commits.
    pub fn delete(&mut self, table: &str, key: impl AsRef<[u8]>) {
        self.0.delete(table, key);
    }
}
