//! A node's part in a backup or a scan: it holds commits back for a moment, and gives its rows as they were then.
//!
//! What is read at one instant **freezes** all members: each lets no commit that writes begin, and answers when those under way have ended. Then
//! nothing that was committed is missing anywhere and nothing is there by half. Now each **marks** this moment by a snapshot of its
//! regions. At last each is **thawed**, and says whether it was frozen all the time. If all were, in one configuration, no
//! transaction committed between the first mark and the last, so all snapshots together are the store at one instant.
//!
//! One at a time freezes a node; snapshots of several may be read meanwhile. After a freeze commits have several times as long as it lasted before
//! the next one begins, so scans that never end do not stop them. A freeze ends by itself after [`FREEZE_NS`], whatever
//! happens to the one that asked for it.

#[cfg(test)]
mod tests;

use crate::error::StoreError;
use crate::message::{BackupAnswer, BackupOf, BackupStep};
use crate::rows::{self, BackupEntry, Cell, Row, Value};
use crate::session::{LONG_VALUES, Local, ROWS};
use highwire_txn::{Key, SnapshotError, SnapshotOf};
use std::collections::BTreeMap;

/// The longest freeze.
const FREEZE_NS: u64 = 2_000_000_000;
/// How long commits under way may take to end.
const DRAIN_NS: u64 = 1_000_000_000;
/// How long others' freezes are waited for.
const WAIT_NS: u64 = 3_000_000_000;
/// Between two looks at commits that are under way, and at a freeze that is not over.
const LOOK_NS: u64 = 200_000;
/// After a freeze commits go on for so many times as long.
const REST_TIMES: u64 = 4;
/// Rows of a page: few enough for a message, even if each has a value of a MiB.
const PAGE_ROWS: usize = 32;
/// Rows of a page without values.
const PAGE_ROWS_OF_KEYS: usize = 512;
/// Old values that a node keeps for a backup, and for one of the scans that read at a time.
const BACKUP_KEPT_BYTES_MAX: usize = 1 << 30;
const SCAN_KEPT_BYTES_MAX: usize = 64 << 20;
const SCANS_MAX: usize = 8;

/// Whether the node is frozen, and who reads its snapshots.
#[derive(Debug, Default)]
pub(crate) struct Freeze {
    /// The one that has frozen this node; 0 is none.
    token: u64,
    began_ns: u64,
    until_ns: u64,
    /// No freeze begins before.
    rest_until_ns: u64,
    /// The configuration at that time.
    configuration: u32,
    /// Those that have begun and not ended.
    readers: BTreeMap<u64, BackupOf>,
}

impl Freeze {
    fn thaw(&mut self, now_ns: u64) {
        let end_ns = now_ns.min(self.until_ns);
        self.rest_until_ns = now_ns + REST_TIMES * end_ns.saturating_sub(self.began_ns);
        (self.token, self.until_ns) = (0, 0);
    }

    /// Whether this one must wait for others before it begins.
    fn must_wait(&self, of: BackupOf, now_ns: u64) -> bool {
        let scans = self.readers.values().filter(|other| **other != BackupOf::All).count();
        now_ns < self.until_ns || now_ns < self.rest_until_ns || of != BackupOf::All && scans >= SCANS_MAX
    }
}

impl Local {
    /// Waits until commits may begin. The caller must begin its commit before it waits for anything else.
    pub(crate) async fn pass_freeze(&self) {
        while self.is_frozen() {
            self.sleep_ns(LOOK_NS).await;
        }
    }

    fn is_frozen(&self) -> bool {
        self.shared.clock.now_ns() < self.shared.freeze.borrow().until_ns
    }

    /// Carries out a step of a backup or a scan.
    pub(crate) async fn back_up(
        self,
        token: u64,
        step: BackupStep,
        of: BackupOf,
    ) -> Result<BackupAnswer, StoreError> {
        let is_known = self.shared.freeze.borrow().readers.contains_key(&token);
        if step != BackupStep::Freeze && !is_known {
            return Err(StoreError::Unavailable("the node has forgotten this backup".into()));
        }
        match step {
            BackupStep::Freeze => self.freeze(token, of).await,
            BackupStep::Mark => self.mark(token),
            BackupStep::Thaw => {
                let was_frozen = self.is_frozen_as_before(token);
                if self.shared.freeze.borrow().token == token {
                    self.shared.freeze.borrow_mut().thaw(self.shared.clock.now_ns());
                }
                Ok(BackupAnswer::Thawed { was_frozen })
            }
            BackupStep::Page => self.page(token),
        }
    }

    /// Forgets a backup or a scan, at whatever stage it is.
    pub(crate) fn end_backup(&self, token: u64) {
        let mut freeze = self.shared.freeze.borrow_mut();
        if freeze.token == token {
            freeze.thaw(self.shared.clock.now_ns());
        }
        if freeze.readers.remove(&token).is_some() {
            self.shared.node.borrow_mut().end_snapshot(token);
        }
    }

    fn must_wait(&self, token: u64, of: BackupOf) -> Result<bool, StoreError> {
        let freeze = self.shared.freeze.borrow();
        let is_backup = |other: &BackupOf| *other == BackupOf::All;
        if is_backup(&of) && freeze.readers.values().any(is_backup) || freeze.readers.contains_key(&token) {
            return Err(StoreError::Unavailable("another backup is under way".into()));
        }
        Ok(freeze.must_wait(of, self.shared.clock.now_ns()))
    }

    async fn freeze(&self, token: u64, of: BackupOf) -> Result<BackupAnswer, StoreError> {
        let asked_ns = self.shared.clock.now_ns();
        while self.must_wait(token, of)? {
            if self.shared.clock.now_ns() > asked_ns + WAIT_NS {
                return Err(StoreError::Unavailable("too many scans are under way".into()));
            }
            self.sleep_ns(LOOK_NS).await;
        }
        let (configuration, members, regions) = {
            let node = self.shared.node.borrow();
            if !node.is_open() {
                drop(node);
                return Err(StoreError::Unavailable(self.why_unavailable()));
            }
            let known = node.configuration();
            (known.id, known.nodes().map(|node| node.0).collect(), known.regions.len())
        };
        let began_ns = self.shared.clock.now_ns();
        {
            let mut freeze = self.shared.freeze.borrow_mut();
            (freeze.token, freeze.began_ns, freeze.until_ns) = (token, began_ns, began_ns + FREEZE_NS);
            freeze.configuration = configuration;
            freeze.readers.insert(token, of);
        }
        while self.shared.node.borrow().is_committing() {
            if self.shared.clock.now_ns() > began_ns + DRAIN_NS {
                self.end_backup(token);
                return Err(StoreError::Unavailable("commits under way do not end".into()));
            }
            self.sleep_ns(LOOK_NS).await;
        }
        Ok(BackupAnswer::Frozen { configuration, members, regions: regions as u16 })
    }

    /// Whether the freeze has lasted without a break, in one configuration.
    fn is_frozen_as_before(&self, token: u64) -> bool {
        let (node, freeze) = (self.shared.node.borrow(), self.shared.freeze.borrow());
        freeze.token == token
            && self.shared.clock.now_ns() < freeze.until_ns
            && node.is_open()
            && node.configuration().id == freeze.configuration
    }

    fn mark(&self, token: u64) -> Result<BackupAnswer, StoreError> {
        if !self.is_frozen_as_before(token) {
            return Err(StoreError::Unavailable("the moment of the backup has passed".into()));
        }
        let of = self.shared.freeze.borrow().readers.get(&token).copied().unwrap_or(BackupOf::All);
        let (keys, has_values, kept_bytes_max) = match of {
            BackupOf::All => (0..=Key::MAX, true, BACKUP_KEPT_BYTES_MAX),
            BackupOf::Rows { low, high, has_values } => (low..=high, has_values, SCAN_KEPT_BYTES_MAX),
        };
        let beside = has_values.then_some(LONG_VALUES);
        let snapshot = SnapshotOf { table: ROWS, beside, keys, kept_bytes_max };
        let begun = self.shared.node.borrow_mut().begin_snapshot(token, snapshot);
        let (regions, rows) = begun.ok_or_else(|| StoreError::Unavailable(self.why_unavailable()))?;
        Ok(BackupAnswer::Marked { regions: regions as u16, rows })
    }

    fn page(&self, token: u64) -> Result<BackupAnswer, StoreError> {
        let of = self.shared.freeze.borrow().readers.get(&token).copied().unwrap_or(BackupOf::All);
        let has_values = !matches!(of, BackupOf::Rows { has_values: false, .. });
        let mut node = self.shared.node.borrow_mut();
        let rows = if has_values { PAGE_ROWS } else { PAGE_ROWS_OF_KEYS };
        let page = node.snapshot_page(token, rows).map_err(|error| match (error, of) {
            (SnapshotError::Gone, _) => {
                StoreError::Unavailable("the members have changed while the backup was taken".into())
            }
            (SnapshotError::TooLong, BackupOf::All) => StoreError::Aborted(
                "clients change more than a gibibyte of rows while a node gives its part of the backup; try again when they change less"
                    .into(),
            ),
            (SnapshotError::TooLong, BackupOf::Rows { .. }) => StoreError::Aborted(format!(
                "clients change more than {SCAN_KEPT_BYTES_MAX} bytes of rows while a scan reads them; try again when they change less"
            )),
        })?;
        let mut cells = Vec::new();
        for (_, row) in &page.rows {
            for Cell { table, key, kind, expires, value } in Row::parse(row)?.cells {
                let value = match value {
                    _ if !has_values => Vec::new(),
                    Value::Short(value) => value,
                    Value::Long { step, .. } => {
                        let place = rows::place(&table, &key, u64::from(step));
                        let row = node.snapshot_row(token, LONG_VALUES, place);
                        let value = row.as_deref().and_then(|row| rows::long_value(row, &table, &key));
                        value
                            .ok_or_else(|| {
                                StoreError::invalid("a long value of the store is not in its row")
                            })?
                            .to_vec()
                    }
                };
                cells.push(BackupEntry { table, key, kind, expires, value });
            }
        }
        Ok(BackupAnswer::Page { cells, is_last: page.is_last })
    }
}
