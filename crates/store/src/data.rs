//! A node's folder: its journal as files, and a file that names their owner.
//!
//! One thread writes, so that the node never waits for the disk: it carries out the node's operations one
//! after the other, and reports the end of each sync. The first operation that fails is the last one: after a
//! failed write or sync, only reading a file anew tells its content.

use highwire_txn::{DiskOperation, FileName, LoadError, Loaded, NodeId, Settings, load};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The version of everything in a folder. Since 2 a journal may say that rows of deleted keys were reclaimed: a program
/// that knows 1 only would take such an entry for the journal's end.
const FORMAT: u32 = 2;
/// The oldest version that this program reads.
const OLDEST_FORMAT: u32 = 1;
const ABOUT: &str = "node.toml";
const LOCK: &str = "lock";

/// The folder, which no other process can open while this exists.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    /// The life that began with the folder.
    boot: u64,
    /// Locked.
    _lock: File,
}

/// The owner of the files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    format: u32,
    node: u16,
    /// In hexadecimal digits.
    first_life: String,
}

/// Why a folder cannot be used.
#[derive(Debug)]
pub(crate) enum DataError {
    Io(PathBuf, io::Error),
    /// Another process uses the folder.
    InUse(PathBuf),
    /// There are files, but none that names their owner.
    Foreign(PathBuf),
    /// The file that names the owner cannot be read.
    Unreadable(PathBuf, String),
    Format(PathBuf, u32),
    OtherNode(PathBuf, u16, u16),
    Damaged(PathBuf, LoadError),
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            DataError::InUse(path) => write!(f, "{} is in use by another process", path.display()),
            DataError::Foreign(path) => {
                write!(f, "{} has files in it and no {ABOUT}: it is no node's folder", path.display())
            }
            DataError::Unreadable(path, what) => write!(f, "{}: {what}", path.display()),
            DataError::Format(path, format) => {
                write!(f, "{} has format {format}; this program knows format {FORMAT}", path.display())
            }
            DataError::OtherNode(path, theirs, ours) => {
                write!(f, "{} is the folder of node {theirs}, not of node {ours}", path.display())
            }
            DataError::Damaged(path, error) => write!(
                f,
                "{}: {error}. If the other nodes have all copies, give this node an empty folder",
                path.display()
            ),
        }
    }
}

impl std::error::Error for DataError {}

impl DataFolder {
    /// Opens the folder of a node, or makes it one.
    pub(crate) fn open(path: &Path, node: u16, fresh_boot: u64) -> Result<DataFolder, DataError> {
        let io = |path: &Path| {
            let path = path.to_path_buf();
            move |error| DataError::Io(path, error)
        };
        fs::create_dir_all(path).map_err(io(path))?;
        let lock_path = path.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(DataError::InUse(path.to_path_buf())),
            Err(fs::TryLockError::Error(error)) => return Err(DataError::Io(lock_path, error)),
        }
        let about_path = path.join(ABOUT);
        let text = match fs::read_to_string(&about_path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                begin(path, node, fresh_boot)?;
                fs::read_to_string(&about_path).map_err(io(&about_path))?
            }
            Err(error) => return Err(DataError::Io(about_path, error)),
        };
        let unreadable = |what: String| DataError::Unreadable(about_path.clone(), what);
        // The format is checked first: files of another format may have other fields.
        let table: toml::Table = text.parse().map_err(|error| unreadable(format!("{error}")))?;
        let format = table.get("format").and_then(toml::Value::as_integer).unwrap_or_default();
        if !(i64::from(OLDEST_FORMAT)..=i64::from(FORMAT)).contains(&format) {
            return Err(DataError::Format(path.to_path_buf(), format as u32));
        }
        let about: About = toml::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        if about.node != node {
            return Err(DataError::OtherNode(path.to_path_buf(), about.node, node));
        }
        let boot = u64::from_str_radix(&about.first_life, 16)
            .map_err(|_| unreadable(format!("`first_life` is `{}`, no number", about.first_life)))?;
        if about.format != FORMAT {
            // Before anything is written that an older program does not know.
            write_about(path, node, boot).map_err(io(&about_path))?;
        }
        Ok(DataFolder { path: path.to_path_buf(), boot, _lock: lock })
    }

    /// The life that began with the folder.
    pub(crate) fn first_boot(&self) -> u64 {
        self.boot
    }

    /// Reads the journal. It is durable when this returns: a killed process may have written more than it had
    /// synced.
    pub(crate) fn load(&self, node: NodeId, settings: &Settings) -> Result<Loaded, DataError> {
        let io = |error| DataError::Io(self.path.clone(), error);
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&self.path).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let Some(file) = name.to_str().and_then(|name| name.parse::<FileName>().ok()) else { continue };
            let path = self.path.join(&name);
            let fail = |error| DataError::Io(path.clone(), error);
            File::open(&path).and_then(|file| file.sync_all()).map_err(fail)?;
            files.insert(file, fs::read(&path).map_err(fail)?);
        }
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(io)?;
        load(node, &files, settings).map_err(|error| DataError::Damaged(self.path.clone(), error))
    }

    /// The thread's writer, which alone writes from now on.
    pub(crate) fn writer(self) -> JournalWriter {
        JournalWriter { folder: self, open: BTreeMap::new(), has_new_names: false }
    }
}

/// Makes an empty folder a node's.
fn begin(path: &Path, node: u16, boot: u64) -> Result<(), DataError> {
    let io = |error| DataError::Io(path.to_path_buf(), error);
    let draft = path.join(format!("{ABOUT}.draft"));
    for entry in fs::read_dir(path).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_name() != LOCK && entry.path() != draft {
            return Err(DataError::Foreign(path.to_path_buf()));
        }
    }
    write_about(path, node, boot).map_err(io)
}

/// Names the owner of a folder, durably, and whole or not at all.
fn write_about(path: &Path, node: u16, boot: u64) -> io::Result<()> {
    let draft = path.join(format!("{ABOUT}.draft"));
    let mut file = File::create(&draft)?;
    write!(file, "format = {FORMAT}\nnode = {node}\nfirst_life = \"{boot:016x}\"\n")?;
    file.sync_all()?;
    fs::rename(&draft, path.join(ABOUT))?;
    File::open(path)?.sync_all()
}

/// Carries out a node's disk operations.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    folder: DataFolder,
    open: BTreeMap<FileName, JournalFile>,
    /// A new file's name must be made durable too, not only its content.
    has_new_names: bool,
}

impl JournalWriter {
    /// Carries out an operation; returns whether it was a sync.
    pub(crate) fn operate(&mut self, operation: DiskOperation) -> Result<bool, DataError> {
        let is_sync = matches!(operation, DiskOperation::Sync { .. });
        let file = match &operation {
            DiskOperation::Append { file, .. }
            | DiskOperation::Sync { file }
            | DiskOperation::Remove { file } => *file,
        };
        let path = self.folder.path.join(file.to_string());
        self.attempt(&path, file, operation).map_err(|error| DataError::Io(path, error))?;
        Ok(is_sync)
    }

    fn attempt(&mut self, path: &Path, name: FileName, operation: DiskOperation) -> io::Result<()> {
        match operation {
            DiskOperation::Append { bytes, .. } => {
                let file = match self.open.entry(name) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => {
                        self.has_new_names = true;
                        entry.insert(JournalFile::create(path)?)
                    }
                };
                file.write_all(&bytes)
            }
            DiskOperation::Sync { .. } => {
                if let Some(file) = self.open.get(&name) {
                    file.sync_data()?;
                }
                if self.has_new_names {
                    sync_names(&self.folder.path)?;
                    self.has_new_names = false;
                }
                Ok(())
            }
            DiskOperation::Remove { .. } => {
                self.open.remove(&name);
                match fs::remove_file(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    result => result,
                }
            }
        }
    }
}

#[cfg(not(test))]
use file::{JournalFile, sync_names};
#[cfg(test)]
use forgetful::{JournalFile, sync_names};

/// Files of the journal.
#[cfg(not(test))]
mod file {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(super) type JournalFile = File;

    /// Makes the names of new files durable.
    pub(super) fn sync_names(folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

#[cfg(test)]
mod forgetful;

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed with the test.
    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn scratch(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("highwire-data-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Scratch(path)
    }

    fn settings() -> Settings {
        let text = "register = \"r\"\nf = 0\n[[node]]\nid = 0\ndoor = \"a:1\"\n";
        crate::config::ClusterConfig::parse(text).expect("a cluster").settings()
    }

    fn refusal(path: &Path, node: u16) -> String {
        DataFolder::open(path, node, 9).expect_err("it cannot be used").to_string()
    }

    #[test]
    fn a_folder_belongs_to_one_node_and_one_process() {
        let folder = scratch("whose");
        let first = DataFolder::open(&folder.0, 3, 7).expect("an empty folder");
        assert!(refusal(&folder.0, 3).contains("in use by another process"));
        drop(first);
        assert!(refusal(&folder.0, 4).contains("the folder of node 3, not of node 4"));
        assert_eq!(DataFolder::open(&folder.0, 3, 8).expect("its own").first_boot(), 7, "its life goes on");
    }

    #[test]
    fn a_folder_of_another_kind_or_version_is_refused() {
        let folder = scratch("kind");
        fs::create_dir_all(&folder.0).expect("a folder");
        fs::write(folder.0.join("letter.txt"), "dear").expect("written");
        assert!(refusal(&folder.0, 0).contains("it is no node's folder"));
        fs::remove_file(folder.0.join("letter.txt")).expect("removed");
        drop(DataFolder::open(&folder.0, 0, 1).expect("an empty folder"));
        fs::write(folder.0.join(ABOUT), "format = 3\nwhatever = \"else\"\n").expect("written");
        assert!(refusal(&folder.0, 0).contains("has format 3; this program knows format 2"));
        fs::write(folder.0.join(ABOUT), "format = 1\nnode = 0\nfirst_life = \"x\"\n").expect("written");
        assert!(refusal(&folder.0, 0).contains("`first_life` is `x`"));
    }

    #[test]
    fn a_folder_of_the_version_before_is_taken_over_and_hidden_from_older_programs() {
        let folder = scratch("older");
        fs::create_dir_all(&folder.0).expect("a folder");
        fs::write(folder.0.join(ABOUT), "format = 1\nnode = 4\nfirst_life = \"00000000000000ab\"\n")
            .expect("written");
        assert!(refusal(&folder.0, 3).contains("the folder of node 4"));
        let about = || fs::read_to_string(folder.0.join(ABOUT)).expect("it is there");
        assert!(about().contains("format = 1"), "a folder that is refused stays as it is");
        assert_eq!(DataFolder::open(&folder.0, 4, 9).expect("its own").first_boot(), 0xab);
        assert_eq!(about(), "format = 2\nnode = 4\nfirst_life = \"00000000000000ab\"\n");
        assert_eq!(DataFolder::open(&folder.0, 4, 9).expect("again").first_boot(), 0xab);
    }

    #[test]
    fn files_hold_what_was_appended_in_this_life_and_go_when_they_are_removed() {
        let folder = scratch("files");
        let file = FileName::Log(0);
        let open = || DataFolder::open(&folder.0, 0, 1).expect("its own");
        let read = || fs::read(folder.0.join(file.to_string())).ok();
        let append = |text: &str| DiskOperation::Append { file, bytes: text.into() };
        let mut writer = open().writer();
        assert!(!writer.operate(append("one")).expect("written"));
        assert!(!writer.operate(append("two")).expect("written"));
        assert!(writer.operate(DiskOperation::Sync { file }).expect("synced"));
        assert_eq!(read(), Some(b"onetwo".to_vec()));
        drop(writer);
        // A new writer to which the name is given again replaces the earlier content.
        let mut writer = open().writer();
        writer.operate(append("new")).expect("written");
        assert!(writer.operate(DiskOperation::Sync { file }).expect("synced"));
        assert_eq!(read(), Some(b"new".to_vec()));
        writer.operate(DiskOperation::Remove { file }).expect("removed");
        writer.operate(DiskOperation::Remove { file }).expect("as good as removed");
        assert_eq!(read(), None);
    }

    #[test]
    fn files_that_make_no_sense_are_an_empty_journal_or_an_error() {
        let folder = scratch("nonsense");
        let open = DataFolder::open(&folder.0, 0, 1).expect("an empty folder");
        assert!(open.load(NodeId(0), &settings()).expect("nothing").memory.is_none());
        fs::write(folder.0.join(FileName::Log(0).to_string()), [7; 5000]).expect("written");
        let loaded = open.load(NodeId(0), &settings()).expect("all of it is torn");
        assert!(loaded.memory.is_none() && loaded.torn_bytes == 5000);
        fs::rename(folder.0.join(FileName::Log(0).to_string()), folder.0.join(FileName::Log(9).to_string()))
            .expect("renamed");
        let error = open.load(NodeId(0), &settings()).err().expect("no beginning").to_string();
        assert!(
            error.contains("log-00000000000000000000, with which the log would begin, is not there"),
            "{error}"
        );
        assert!(error.contains("give this node an empty folder"), "{error}");
    }
}
