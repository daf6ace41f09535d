//! A node's disk, as its engine uses it: the journal as read, the check that it belongs to the cluster, and
//! the thread that writes.

use crate::config::ClusterConfig;
use crate::data::{DataFolder, JournalWriter};
use crate::register::Register;
use highwire_txn::{DiskOperation, Loaded, NodeId};
use std::path::Path;
use std::sync::mpsc::Receiver;

/// A node's folder, and the journal that was read from it.
pub(crate) struct Disk {
    pub(crate) folder: DataFolder,
    pub(crate) loaded: Loaded,
}

impl Disk {
    pub(crate) fn open(
        path: &Path,
        config: &ClusterConfig,
        id: u16,
        fresh_boot: u64,
    ) -> Result<Disk, String> {
        let fail = |error| format!("the data folder: {error}");
        let folder = DataFolder::open(path, id, fresh_boot).map_err(fail)?;
        let loaded = folder.load(NodeId(id), &config.settings()).map_err(fail)?;
        Ok(Disk { folder, loaded })
    }

    /// The life of the node, or the one that began with the folder.
    pub(crate) fn boot(&self) -> u64 {
        self.loaded.boot.unwrap_or(self.folder.first_boot())
    }

    /// Whether the register is that of the cluster in which the folder was written.
    pub(crate) fn check(&self, register: &mut Register) -> Result<(), String> {
        let Some(memory) = &self.loaded.memory else { return Ok(()) };
        let known = memory.configuration();
        let refuse = |what: String| Err(format!("the data folder and the register: {what}"));
        match register.holds().map_err(|error| format!("the register: {error}"))? {
            None => refuse(format!(
                "the folder knows configuration {} of a cluster, and the register holds none",
                known.id
            )),
            Some(holds) if holds.cluster != known.cluster => {
                refuse(format!("they are of two clusters, {:016x} and {:016x}", known.cluster, holds.cluster))
            }
            Some(holds) if holds.id < known.id => refuse(format!(
                "the folder knows configuration {}, and the register holds an older one, {}",
                known.id, holds.id
            )),
            Some(holds) if holds.regions.len() != known.regions.len() => refuse("regions differ".into()),
            Some(_) => Ok(()),
        }
    }
}

/// Carries out the node's disk operations, until one fails or the node ends.
pub(crate) fn write_journal(
    mut writer: JournalWriter,
    operations: &Receiver<DiskOperation>,
    report: impl Fn(Result<(), String>) -> bool,
) {
    while let Ok(operation) = operations.recv() {
        let ended = match writer.operate(operation) {
            Ok(true) => Ok(()),
            Ok(false) => continue,
            Err(error) => Err(error.to_string()),
        };
        let has_failed = ended.is_err();
        if !report(ended) || has_failed {
            return;
        }
    }
}
