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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fresh_name;
    use highwire_txn::FileName;
    use std::cell::RefCell;
    use std::fs;
    use std::path::PathBuf;
    use std::sync::mpsc::{Receiver, channel};

    const FILE: FileName = FileName::Log(0);

    /// A folder that is removed with the test.
    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn scratch() -> (Scratch, JournalWriter) {
        let name = format!("highwire-disk-{}", fresh_name().expect("random numbers"));
        let path = std::env::temp_dir().join(name);
        let writer = DataFolder::open(&path, 0, 1).expect("an empty folder").writer();
        (Scratch(path), writer)
    }

    /// Each text is appended, and made durable before the next comes.
    fn synced_each(texts: &[&str]) -> Receiver<DiskOperation> {
        let (sender, operations) = channel();
        for text in texts {
            sender.send(DiskOperation::Append { file: FILE, bytes: (*text).into() }).expect("taken");
            sender.send(DiskOperation::Sync { file: FILE }).expect("taken");
        }
        operations
    }

    /// The node makes promises as soon as it hears of a sync. The disk of these tests has nothing that was not synced.
    #[test]
    fn a_sync_is_reported_when_the_disk_has_everything_before_it() {
        let (folder, writer) = scratch();
        let found = RefCell::new(Vec::new());
        write_journal(writer, &synced_each(&["one", " two", " three"]), |report| {
            report.expect("synced");
            found.borrow_mut().push(fs::read_to_string(folder.0.join(FILE.to_string())).unwrap_or_default());
            true
        });
        assert_eq!(found.take(), ["one", "one two", "one two three"]);
    }

    #[test]
    fn the_first_operation_that_fails_is_reported_and_is_the_last() {
        let (folder, writer) = scratch();
        fs::remove_dir_all(&folder.0).expect("removed");
        let heard = RefCell::new(Vec::new());
        write_journal(writer, &synced_each(&["one", "two"]), |report| {
            heard.borrow_mut().push(report.is_ok());
            // The second append would succeed.
            fs::create_dir_all(&folder.0).expect("made");
            true
        });
        assert_eq!(heard.take(), [false]);
        assert_eq!(fs::read_dir(&folder.0).expect("there").count(), 0, "nothing is written after a failure");
    }

    #[test]
    fn nothing_is_done_for_a_node_that_has_ended() {
        let (folder, writer) = scratch();
        write_journal(writer, &synced_each(&["one", " two"]), |report| {
            report.expect("synced");
            false
        });
        assert_eq!(fs::read_to_string(folder.0.join(FILE.to_string())).expect("there"), "one");
    }
}
