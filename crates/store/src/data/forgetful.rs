//! A disk for tests that has forgotten, at every moment, what was not synced: the file in the folder is what a loss of power would leave.
//!
//! Killing a process loses nothing, because the kernel keeps what was written. Here bytes reach the file with its sync, and the file gets its
//! name with the folder's. A test can hold syncs back, and copy the folder meanwhile.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

/// The part of a file's name that goes when the folder is synced.
const NAMELESS: &str = ".nameless";

/// Folders whose syncs do not end.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
static CHANGED: Condvar = Condvar::new();

/// Lets no sync in this folder end from now on, or lets them end.
pub(super) fn hold_syncs(folder: &Path, holds: bool) {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    match holds {
        true => held.insert(folder.to_path_buf()),
        false => held.remove(folder),
    };
    CHANGED.notify_all();
}

fn wait_until_syncs_end(folder: &Path) {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    drop(CHANGED.wait_while(held, |held| held.contains(folder)).unwrap_or_else(PoisonError::into_inner));
}

#[derive(Debug)]
pub(super) struct JournalFile {
    file: File,
    folder: PathBuf,
    unsynced: std::cell::RefCell<Vec<u8>>,
}

impl JournalFile {
    pub(super) fn create(path: &Path) -> io::Result<JournalFile> {
        let mut name = path.as_os_str().to_os_string();
        name.push(NAMELESS);
        // A file that had this name before has lost it.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
        Ok(JournalFile { file: File::create(name)?, folder, unsynced: Default::default() })
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.unsynced.get_mut().extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        wait_until_syncs_end(&self.folder);
        (&self.file).write_all(&self.unsynced.take())
    }
}

/// Gives new files of a folder their names.
pub(super) fn sync_names(folder: &Path) -> io::Result<()> {
    wait_until_syncs_end(folder);
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some(name) = path.to_str().and_then(|name| name.strip_suffix(NAMELESS)) {
            fs::rename(&path, name)?;
        }
    }
    Ok(())
}

mod tests {
    use super::*;
    use crate::{Client, ClusterConfig, Engine};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).expect("a folder");
        for entry in fs::read_dir(from).expect("a folder").flatten() {
            let target = to.join(entry.file_name());
            match entry.file_type().expect("a type").is_dir() {
                true => copy(&entry.path(), &target),
                // A file may get its name meanwhile; what has none yet is not there after a loss of power either.
                false => drop(fs::copy(entry.path(), target)),
            }
        }
    }

    /// A cluster of one node in a folder that holds its register and its journal.
    fn start(folder: &Path) -> (Engine, Client, PathBuf, String) {
        let door = TcpListener::bind("127.0.0.1:0").and_then(|holder| holder.local_addr()).expect("a port");
        let data = folder.join("data");
        let text = format!(
            "f = 0\nlease_ms = 5000\nregister = \"{}\"\n[[node]]\nid = 0\ndoor = \"{door}\"\ndata = \"{}\"\n",
            folder.join("register").display(),
            data.display()
        );
        let engine = Engine::start(&ClusterConfig::parse(&text).expect("a cluster"), 0).expect("a node");
        let mut client = Client::new([door.to_string()]);
        client.set_patience(Duration::from_secs(90));
        (engine, client, data, door.to_string())
    }

    fn end(engine: Engine) {
        engine.store().stop();
        engine.join().expect("no panic");
    }

    /// What a store finds that comes back after the power was lost now.
    fn found_after_power_loss(folder: &Path, name: &str) -> Vec<String> {
        let copied = Scratch(folder.with_extension(name));
        copy(folder, &copied.0);
        let (engine, mut client, ..) = start(&copied.0);
        let entries = client.scan("t", "").expect("it serves");
        end(engine);
        entries.into_iter().map(|entry| String::from_utf8(entry.key).expect("text")).collect()
    }

    #[test]
    fn a_commit_is_told_only_when_a_loss_of_power_cannot_take_it_back() {
        let path = std::env::temp_dir().join(format!("highwire-power-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let folder = Scratch(path);
        let (engine, mut client, data, door) = start(&folder.0);
        client.put("t", "first", "v").expect("stored");
        assert_eq!(found_after_power_loss(&folder.0, "first"), ["first"]);
        let mut observer = Client::new([door]);
        for turn in 0..3 {
            let key = format!("later {turn}");
            hold_syncs(&data, true);
            let is_told = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    client.put("t", &key, "v").expect("stored");
                    is_told.store(true, Ordering::SeqCst);
                });
                // The node goes on meanwhile, and answers the questions of others; only the promise waits.
                for _ in 0..300 {
                    observer.status().expect("it answers");
                }
                let was_told = is_told.load(Ordering::SeqCst);
                hold_syncs(&data, false);
                assert!(!was_told, "{key} was told before it was durable");
            });
            let found = found_after_power_loss(&folder.0, "later");
            assert!(found.contains(&key), "{key} was told, and the power loss took it: {found:?}");
        }
        end(engine);
    }
}
