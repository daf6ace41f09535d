//! The configuration service: a key in etcd (`etcd`), or, for nodes that share a folder, a linearizable
//! register with compare-and-swap, made of files.
//!
//! Change number *n* is the file `n`, which is written under another name first and then **linked** there: of
//! two nodes that try, one fails because the name exists. The register's value is the file with the greatest
//! number. No process holds a lock, so a process that is stopped or killed at any point keeps no other
//! waiting, and the register outlives every node.
//!
//! A reader cannot see an old value, because the greatest file at the time when it began to list the folder
//! stays there until [`KEPT`] more have come. A late writer does no harm, because a link below the greatest
//! number changes nothing that any process reads.

use crate::fresh::fresh_name;
use highwire_txn::{Configuration, ConfigurationService};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The least number of changes that stay on disk.
const KEPT: u64 = 64;

mod etcd;

pub use etcd::EtcdRegister;

/// The register of a cluster, wherever it is.
#[derive(Debug)]
pub(crate) enum Register {
    Files(FileRegister),
    Etcd(EtcdRegister),
}

/// The beginning of a register's place in etcd.
pub(crate) const ETCD: &str = "etcd://";

impl Register {
    /// The register at a place: a folder, or `etcd://HOST:PORT,…/NAME`.
    pub(crate) fn open(place: &Path) -> Result<Register, RegisterError> {
        match place.to_str().and_then(|text| text.strip_prefix(ETCD)) {
            Some(address) => EtcdRegister::open(address).map(Register::Etcd),
            None => FileRegister::open(place).map(Register::Files),
        }
    }

    pub(crate) fn begin(&mut self, first: &Configuration) -> Result<Configuration, RegisterError> {
        match self {
            Register::Files(register) => register.begin(first),
            Register::Etcd(register) => register.begin(first),
        }
    }

    /// The number that all nodes of the cluster know, and others do not.
    pub(crate) fn secret(&mut self) -> Result<u64, RegisterError> {
        match self {
            Register::Files(register) => register.secret(),
            Register::Etcd(register) => register.secret(),
        }
    }

    pub(crate) fn holds(&mut self) -> Result<Option<Configuration>, RegisterError> {
        match self {
            Register::Files(register) => register.holds(),
            Register::Etcd(register) => register.holds(),
        }
    }
}

impl ConfigurationService for Register {
    type Error = RegisterError;

    fn read(&mut self) -> Result<Configuration, RegisterError> {
        match self {
            Register::Files(register) => register.read(),
            Register::Etcd(register) => register.read(),
        }
    }

    fn compare_and_swap(
        &mut self,
        id: u32,
        revision: u32,
        new: Configuration,
    ) -> Result<Configuration, RegisterError> {
        match self {
            Register::Files(register) => register.compare_and_swap(id, revision, new),
            Register::Etcd(register) => register.compare_and_swap(id, revision, new),
        }
    }
}

/// The register in a folder.
#[derive(Debug)]
pub struct FileRegister {
    folder: PathBuf,
    /// Change numbers up to this one are durable.
    durable: u64,
}

/// Why the register cannot be read or changed.
#[derive(Debug)]
pub enum RegisterError {
    /// A file operation in the folder failed.
    Io(PathBuf, io::Error),
    /// The file is not a register's, or is damaged.
    Damaged(PathBuf),
    /// Nothing has been written yet.
    Empty(PathBuf),
    /// The text is no address of etcd.
    Address(String),
    /// Etcd's error, or that no member answered.
    Etcd(String),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            RegisterError::Damaged(path) => write!(f, "{} is no configuration, or damaged", path.display()),
            RegisterError::Empty(path) => write!(f, "{} holds no configuration yet", path.display()),
            RegisterError::Address(text) => {
                write!(f, "{text} is no register: write it as etcd://HOST:PORT,HOST:PORT/NAME")
            }
            RegisterError::Etcd(what) => write!(f, "etcd: {what}"),
        }
    }
}

impl std::error::Error for RegisterError {}

impl FileRegister {
    /// The register in `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(folder: &Path) -> Result<FileRegister, RegisterError> {
        fs::create_dir_all(folder).map_err(|error| RegisterError::Io(folder.to_path_buf(), error))?;
        Ok(FileRegister { folder: folder.to_path_buf(), durable: 0 })
    }

    /// Writes the first configuration, unless there is one; returns the one in force.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn begin(&mut self, first: &Configuration) -> Result<Configuration, RegisterError> {
        if self.latest()?.is_none() {
            self.link(1, first)?;
        }
        self.read()
    }

    /// The configuration in force, if there is one.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn holds(&mut self) -> Result<Option<Configuration>, RegisterError> {
        Ok(self.latest()?.map(|(_, configuration)| configuration))
    }

    fn latest(&mut self) -> Result<Option<(u64, Configuration)>, RegisterError> {
        let fail = |error| RegisterError::Io(self.folder.clone(), error);
        let mut greatest = None;
        for entry in fs::read_dir(&self.folder).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            greatest = greatest.max(name.to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        let Some(number) = greatest else { return Ok(None) };
        // What a node has read and acts upon must outlive a loss of power, even if its writer did not live to sync it.
        if self.durable < number {
            self.sync_folder().map_err(fail)?;
            self.durable = number;
        }
        let path = self.folder.join(number.to_string());
        let bytes = fs::read(&path).map_err(|error| RegisterError::Io(path.clone(), error))?;
        let (sum, body) = bytes.split_first_chunk().ok_or_else(|| RegisterError::Damaged(path.clone()))?;
        let configuration = Configuration::from_bytes(body)
            .filter(|_| crc32fast::hash(body) == u32::from_le_bytes(*sum))
            .ok_or(RegisterError::Damaged(path))?;
        Ok(Some((number, configuration)))
    }

    /// Makes change `number`, unless another node has made one of that number.
    fn link(&self, number: u64, configuration: &Configuration) -> Result<(), RegisterError> {
        let body = configuration.to_bytes();
        let written = self.publish(&number.to_string(), &[&crc32fast::hash(&body).to_le_bytes(), &body]);
        if let Some(old) = number.checked_sub(KEPT) {
            let _ = fs::remove_file(self.folder.join(old.to_string()));
        }
        written.map_err(|error| RegisterError::Io(self.folder.clone(), error))
    }

    /// Makes a file of this name with these bytes, unless there is one. Its bytes are durable before anybody can see them.
    fn publish(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        // A draft that another process opened too would change after it has got its name.
        let draft = self.folder.join(format!("draft-{}", fresh_name()?));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let published = (|| {
            parts.iter().try_for_each(|part| file.write_all(part))?;
            file.sync_all()?;
            self.sync_folder()?;
            match fs::hard_link(&draft, self.folder.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                result => result.and_then(|()| self.sync_folder()),
            }
        })();
        let _ = fs::remove_file(&draft);
        published
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    /// The number that all nodes of the cluster know, and others do not. The first node that asks draws it.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn secret(&mut self) -> Result<u64, RegisterError> {
        let path = self.folder.join(SECRET);
        let fail = |error| RegisterError::Io(path.clone(), error);
        if !path.exists() {
            let name = fresh_name().map_err(fail)?;
            self.publish(SECRET, &[&name.as_bytes()[..16]]).map_err(fail)?;
        }
        let text = fs::read_to_string(&path).map_err(fail)?;
        u64::from_str_radix(&text, 16).map_err(|_| RegisterError::Damaged(path.clone()))
    }
}

/// The name of the secret's file.
const SECRET: &str = "secret";

impl ConfigurationService for FileRegister {
    type Error = RegisterError;

    fn read(&mut self) -> Result<Configuration, RegisterError> {
        self.holds()?.ok_or_else(|| RegisterError::Empty(self.folder.clone()))
    }

    fn compare_and_swap(
        &mut self,
        id: u32,
        revision: u32,
        new: Configuration,
    ) -> Result<Configuration, RegisterError> {
        let (number, now) = self.latest()?.ok_or_else(|| RegisterError::Empty(self.folder.clone()))?;
        if (now.id, now.revision) != (id, revision) {
            return Ok(now);
        }
        self.link(number + 1, &new)?;
        self.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_txn::NodeId;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("highwire-register-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn first() -> Configuration {
        Configuration::first(&[NodeId(0), NodeId(1)], &[7, 8], 4, 1)
    }

    #[test]
    fn of_many_that_change_it_at_once_one_wins_each_time() {
        const THREADS: usize = 4;
        const CHANGES: u32 = 50;
        let folder = folder("race");
        FileRegister::open(&folder).and_then(|mut register| register.begin(&first())).expect("a register");
        let wins: Vec<u32> = std::thread::scope(|scope| {
            let change = |own: usize| {
                let mut register = FileRegister::open(&folder).expect("a register");
                let mut wins = 0;
                loop {
                    let now = register.read().expect("it holds one");
                    if now.revision == CHANGES {
                        return wins;
                    }
                    // The manager's name tells which node made the change.
                    let manager = NodeId((own % 2) as u16);
                    let new = Configuration {
                        revision: now.revision + 1,
                        manager,
                        leaving: vec![NodeId(own as u16)],
                        ..now.clone()
                    };
                    let after =
                        register.compare_and_swap(now.id, now.revision, new.clone()).expect("it holds one");
                    assert!(after.revision > now.revision, "a change was lost");
                    wins += u32::from(after == new);
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|own| scope.spawn(move || change(own))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        // No node wins twice with one change, and each change is some node's, though another change may have
        // followed before the node read it back.
        assert!(wins.iter().sum::<u32>() <= CHANGES, "{wins:?}");
        assert!(wins.iter().sum::<u32>() > 0, "{wins:?}");
        let _ = fs::remove_dir_all(&folder);
    }

    #[test]
    fn a_change_from_what_no_longer_holds_is_refused() {
        let folder = folder("stale");
        let mut register = FileRegister::open(&folder).expect("a register");
        assert!(matches!(register.read(), Err(RegisterError::Empty(_))));
        let first = register.begin(&first()).expect("the first");
        let second = Configuration { id: 2, ..first.clone() };
        assert_eq!(register.compare_and_swap(1, 0, second.clone()).expect("it holds one"), second);
        let stale = Configuration { id: 2, revision: 9, ..first.clone() };
        assert_eq!(register.compare_and_swap(1, 0, stale).expect("it holds one"), second);
        assert_eq!(register.begin(&first).expect("it holds one"), second, "a cluster begins once");
        let _ = fs::remove_dir_all(&folder);
    }

    #[test]
    fn a_change_from_another_revision_is_refused_even_if_the_configuration_is_the_same() {
        let folder = folder("revision");
        let mut register = FileRegister::open(&folder).expect("a register");
        let first = register.begin(&first()).expect("the first");
        let complete = Configuration { revision: 1, manager: NodeId(1), ..first.clone() };
        assert_eq!(register.compare_and_swap(1, 0, complete.clone()).expect("it holds one"), complete);
        let other = Configuration { revision: 1, leaving: vec![NodeId(1)], ..first.clone() };
        for (id, revision) in [(1, 0), (1, 2), (0, 1), (2, 1)] {
            assert_eq!(
                register.compare_and_swap(id, revision, other.clone()).expect("it holds one"),
                complete
            );
        }
        let _ = fs::remove_dir_all(&folder);
    }

    /// Two nodes have read the same one and try at the same time: whoever comes second must not replace what the first has made.
    #[test]
    fn of_two_changes_of_one_number_the_first_stays() {
        let folder = folder("number");
        let mut register = FileRegister::open(&folder).expect("a register");
        let first = register.begin(&first()).expect("the first");
        let change = |manager| Configuration { id: 2, manager: NodeId(manager), ..first.clone() };
        register.link(2, &change(0)).expect("made");
        register.link(2, &change(1)).expect("not made, and no error");
        assert_eq!(register.read().expect("it holds one"), change(0));
        let _ = fs::remove_dir_all(&folder);
    }

    /// A reader never sees a file that still changes, whatever drafts others leave there.
    #[test]
    fn nothing_that_was_published_is_ever_open_for_writing() {
        let folder = folder("drafts");
        let mut register = FileRegister::open(&folder).expect("a register");
        register.begin(&first()).expect("the first");
        let secret = register.secret().expect("drawn");
        // What another process of the same number, in another container, may leave behind.
        for name in [format!("draft-{}-0", std::process::id()), "draft-1-0".into(), "draft".into()] {
            fs::write(folder.join(name), b"torn").expect("written");
        }
        let names = || {
            let entries = fs::read_dir(&folder).expect("a folder").flatten();
            entries.map(|entry| entry.file_name().into_string().expect("a name")).collect::<Vec<_>>()
        };
        let before = names().len();
        let mut last = first();
        for id in 2..20 {
            let next = Configuration { id, ..last.clone() };
            let inode = |name: &str| {
                std::os::unix::fs::MetadataExt::ino(&fs::metadata(folder.join(name)).expect("there"))
            };
            assert_eq!(register.compare_and_swap(id - 1, 0, next.clone()).expect("made"), next);
            let made = inode(&id.to_string());
            assert!(names().iter().filter(|name| name.starts_with("draft")).all(|name| inode(name) != made));
            last = next;
        }
        assert_eq!(names().len(), before + 18, "drafts stay behind: {:?}", names());
        assert_eq!(FileRegister::open(&folder).expect("it is there").secret().expect("known"), secret);
        let _ = fs::remove_dir_all(&folder);
    }

    /// Processes of one number share the folder, as in containers: each writes, and each reads what the others have published.
    #[test]
    fn no_reader_sees_a_torn_change_however_many_write() {
        let folder = folder("torn");
        FileRegister::open(&folder).and_then(|mut register| register.begin(&first())).expect("a register");
        std::thread::scope(|scope| {
            for own in 0..4u16 {
                let folder = &folder;
                scope.spawn(move || {
                    let mut register = FileRegister::open(folder).expect("a register");
                    for _ in 0..100 {
                        let now = register.read().expect("whole");
                        let members = (0..64).map(|node| (NodeId(node), u64::from(own))).collect();
                        let new = Configuration { revision: now.revision + 1, members, ..now.clone() };
                        register.compare_and_swap(now.id, now.revision, new).expect("whole");
                    }
                });
            }
        });
        let _ = fs::remove_dir_all(&folder);
    }

    #[test]
    fn a_damaged_file_is_an_error_and_no_configuration() {
        let folder = folder("damaged");
        let mut register = FileRegister::open(&folder).expect("a register");
        register.begin(&first()).expect("the first");
        let path = folder.join("1");
        let mut bytes = fs::read(&path).expect("a file");
        bytes[9] ^= 1;
        fs::write(&path, bytes).expect("written");
        assert!(matches!(register.read(), Err(RegisterError::Damaged(_))));
        let _ = fs::remove_dir_all(&folder);
    }
}
