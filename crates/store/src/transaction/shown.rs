//! Versions that a transaction shows to a client, and versions that one demands: see [`Footprint`].

use super::{CHAIN_MAX, Transaction};
use crate::error::StoreError;
use crate::message::Footprint;
use crate::rows;
use crate::session::Stop;
use highwire_txn::{Key, Version};

impl Transaction {
    /// Notes that versions of rows are handed out. A transaction that deletes entries at the same time must run again: their rows' versions have
    /// changed with its commit. Such a transaction writes nothing else, because it would write it twice.
    pub(crate) fn show_versions(&mut self) {
        self.has_shown_versions = true;
    }

    pub(super) fn is_outdated(&self) -> bool {
        let is_outdated = self.has_expired && self.has_shown_versions;
        assert!(!(is_outdated && self.has_written), "who shows versions only reads");
        is_outdated
    }

    /// Every row that a search for this key has looked at, with its version.
    pub(crate) async fn footprint(&mut self, table: &[u8], key: &[u8]) -> Result<Vec<(Key, Version)>, Stop> {
        self.show_versions();
        self.find(table, key).await?;
        let mut seen = Vec::new();
        for step in 0..CHAIN_MAX {
            let place = rows::place(table, key, step);
            let Some(cached) = self.rows.get(&place) else { break };
            seen.push((place, cached.version));
            if cached.row.find(table, key).is_some() || !cached.row.overflows {
                break;
            }
        }
        Ok(seen)
    }

    /// Lets the transaction conflict unless every row of `footprint` is unchanged.
    pub(crate) async fn demand(&mut self, footprint: &Footprint) -> Result<(), Stop> {
        let keys: Vec<Key> = footprint.rows.iter().map(|row| row.0).collect();
        self.load(&keys).await?;
        // What has expired since was deleted, though not by a commit yet.
        let is_same = |&(key, version): &(Key, Version)| {
            self.rows[&key].version == version && !self.rows[&key].has_expired
        };
        if !footprint.rows.iter().all(is_same) {
            return Err(StoreError::Conflict.into());
        }
        if !self.has_nodes(&footprint.nodes).await? {
            return Err(StoreError::Conflict.into());
        }
        for range in &footprint.ranges {
            let now = self.read_range(range.low, range.high).await?;
            if now.into_iter().map(|row| (row.key, row.version)).ne(range.rows.iter().copied()) {
                return Err(StoreError::Conflict.into());
            }
        }
        Ok(())
    }
}
