//! A node's part in a backup: it holds commits back for a moment, and gives its rows as they were then.
//!
//! A backup **freezes** all members: each lets no commit that writes begin, and answers when those under way have ended. Then nothing that
//! was committed is missing anywhere and nothing is there by half. Now each **marks** this moment by a snapshot of its regions. At
//! last each is **thawed**, and says whether it was frozen all the time. If all were, in one configuration, no transaction
//! committed between the first mark and the last, so all snapshots together are the store at one instant.
//!
//! A freeze ends by itself after [`FREEZE_NS`], whatever happens to the client that asked for it.

#[cfg(test)]
mod tests;

use crate::error::StoreError;
use crate::message::{BackupAnswer, BackupStep};
use crate::rows::{self, BackupEntry, Cell, Row, Value};
use crate::session::{LONG_VALUES, Local, ROWS};
use highwire_txn::SnapshotError;

/// The longest freeze.
const FREEZE_NS: u64 = 2_000_000_000;
/// How long commits under way may take to end.
const DRAIN_NS: u64 = 1_000_000_000;
/// Between two looks at commits that are under way, and at a freeze that is not over.
const LOOK_NS: u64 = 200_000;
/// Rows of a page: few enough for a message, even if each has a value of a MiB.
const PAGE_ROWS: usize = 32;

/// Whether the node is frozen, and which backup reads its snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Freeze {
    /// The backup that has this node; 0 is none.
    token: u64,
    until_ns: u64,
    /// The configuration at that time.
    configuration: u32,
}

impl Local {
    /// Waits until commits may begin. The caller must begin its commit before it waits for anything else.
    pub(crate) async fn pass_freeze(&self) {
        while self.is_frozen() {
            self.sleep_ns(LOOK_NS).await;
        }
    }

    fn is_frozen(&self) -> bool {
        self.shared.clock.now_ns() < self.shared.freeze.get().until_ns
    }

    /// Carries out a step of a backup.
    pub(crate) async fn back_up(self, token: u64, step: BackupStep) -> Result<BackupAnswer, StoreError> {
        let freeze = self.shared.freeze.get();
        if step != BackupStep::Freeze && freeze.token != token {
            return Err(StoreError::Unavailable("the node has forgotten this backup".into()));
        }
        match step {
            BackupStep::Freeze => self.freeze(token).await,
            BackupStep::Mark => self.mark(),
            BackupStep::Thaw => {
                let was_frozen = self.is_frozen_as_before();
                self.shared.freeze.set(Freeze { until_ns: 0, ..freeze });
                Ok(BackupAnswer::Thawed { was_frozen })
            }
            BackupStep::Page => self.page(),
        }
    }

    /// Forgets a backup, at whatever stage it is.
    pub(crate) fn end_backup(&self, token: u64) {
        if self.shared.freeze.get().token == token {
            self.shared.freeze.set(Freeze::default());
            self.shared.node.borrow_mut().end_snapshot();
        }
    }

    async fn freeze(&self, token: u64) -> Result<BackupAnswer, StoreError> {
        if self.shared.freeze.get().token != 0 {
            return Err(StoreError::Unavailable("another backup is under way".into()));
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
        self.shared.freeze.set(Freeze { token, until_ns: began_ns + FREEZE_NS, configuration });
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
    fn is_frozen_as_before(&self) -> bool {
        let node = self.shared.node.borrow();
        self.is_frozen()
            && node.is_open()
            && node.configuration().id == self.shared.freeze.get().configuration
    }

    fn mark(&self) -> Result<BackupAnswer, StoreError> {
        if !self.is_frozen_as_before() {
            return Err(StoreError::Unavailable("the moment of the backup has passed".into()));
        }
        let begun = self.shared.node.borrow_mut().begin_snapshot(ROWS, Some(LONG_VALUES));
        let (regions, rows) = begun.ok_or_else(|| StoreError::Unavailable(self.why_unavailable()))?;
        Ok(BackupAnswer::Marked { regions: regions as u16, rows })
    }

    fn page(&self) -> Result<BackupAnswer, StoreError> {
        let mut node = self.shared.node.borrow_mut();
        let page = node.snapshot_page(PAGE_ROWS).map_err(|error| match error {
            SnapshotError::Gone => {
                StoreError::Unavailable("the members have changed while the backup was taken".into())
            }
            SnapshotError::TooLong => StoreError::Aborted(
                "clients change more than a gibibyte of rows while a node gives its part of the backup; try again when they change less"
                    .into(),
            ),
        })?;
        let mut cells = Vec::new();
        for (_, row) in &page.rows {
            for Cell { table, key, kind, value } in Row::parse(row)?.cells {
                let value = match value {
                    Value::Short(value) => value,
                    Value::Long { step, .. } => {
                        let row = node.snapshot_row(LONG_VALUES, rows::place(&table, &key, u64::from(step)));
                        let value = row.as_deref().and_then(|row| rows::long_value(row, &table, &key));
                        value
                            .ok_or_else(|| {
                                StoreError::invalid("a long value of the store is not in its row")
                            })?
                            .to_vec()
                    }
                };
                cells.push(BackupEntry { table, key, kind, value });
            }
        }
        Ok(BackupAnswer::Page { cells, is_last: page.is_last })
    }
}
