//! The directory in which the engines of one user find each other.
//!
//! ```text
//! /dev/shm/highwire-<uid>/          0700, or $HIGHWIRE_SHM_DIR
//!   lock                            held while an engine's directory is made or removed
//!   127.83.20.7/                    one per engine, named by its GID, or 127.83.20.7@5 where several share one
//!     engine                        its segment; the living process holds a lock on byte 0
//!     mem-1, mem-2 …                registered memory
//!     chan-1, chan-2 …              rings that this engine sends into
//!     bell-0, bell-1 …              named pipes; a neighbour that writes to one wakes the lane
//!   files-…, draft-…                what preloaded programs see below /sys and /dev; used while a process locks it
//!   broker-127.83.20.7              where the GID's broker listens, if processes share it
//!   roster-1                        the threads that poll, by core
//!   net -> net-4026531840           the network namespace that all of the above belongs to
//!   net-4026532281/                 the same for processes of another network namespace
//! ```
//!
//! Processes that no network connects are no neighbours, even where they share this directory: a container's loopback addresses are its
//! own. The namespace that comes first has the directory itself, and each other one a directory in it.
//!
//! A directory whose `engine` is not locked belonged to a process that has ended, and the next process that opens the registry
//! for an engine removes it. Only names that are addresses, and such folders, are ever removed.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use highwire_shmem::{LayoutError, Segment, Window};
use highwire_stdx::Rng;

use super::engine::{EngineConfig, LocalEngine};
use super::layout::{EngineHeader, STATE};
use super::lock::{self, Byte};
use super::name::EngineName;
use super::peer::PeerEngine;

/// Folders of files, complete ones and those that are being made or removed, begin like this.
const FOLDERS: [&str; 2] = ["files-", DRAFT];
const DRAFT: &str = "draft-";

/// Names the network namespace of the processes that use the directory itself; directories of others begin like this.
const NAMESPACE_MARK: &str = "net";

/// How many addresses to try before giving up; with a hundred engines each try succeeds but for one in 10^5.
const LOOPBACK_ATTEMPTS: u32 = 64;

/// How long a process waits for another one that changes directories or starts a broker, before it gives up
/// with an error.
const PATIENCE: Duration = Duration::from_secs(10);
const BROKER_PATIENCE: Duration = Duration::from_secs(30);
/// The same for work that can be left to the next process.
const HOUSEKEEPING_PATIENCE: Duration = Duration::from_secs(1);

/// The engines of this user on this host.
#[derive(Clone, Debug)]
pub struct Registry {
    root: PathBuf,
}

/// Why there is no registry.
#[derive(Debug)]
pub enum RegistryError {
    /// The directory belongs to another user, is open to others, or is none: using it would be unsafe.
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// The problem, in words.
        reason: &'static str,
    },
    /// The file system said no.
    Io(PathBuf, io::Error),
}

/// Why a GID cannot be had.
#[derive(Debug)]
pub enum ClaimError {
    /// A living engine has it.
    Taken {
        /// The name that was asked for.
        name: EngineName,
        /// The process that has it, if its segment can be read.
        pid: Option<u32>,
    },
    /// Every loopback address that was tried is taken.
    NoneLeft,
    /// The configuration makes no sense.
    Config(LayoutError),
    /// The file system said no.
    Io(PathBuf, io::Error),
}

/// Why a GID does not lead to an engine. In each case the peer is to be reached over the network.
#[derive(Debug)]
pub enum LookupError {
    /// No process of this user on this host has this GID.
    Absent,
    /// The process that had it is gone.
    Gone,
    /// This program does not understand its segment.
    Layout(LayoutError),
    /// The file system said no.
    Io(PathBuf, io::Error),
}

/// The state of an engine's directory.
enum Found {
    Absent,
    Stale,
    Living { pid: Option<u32> },
}

impl Registry {
    /// The registry of the user who runs this process, at `$HIGHWIRE_SHM_DIR` or in `/dev/shm`.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn open() -> Result<Registry, RegistryError> {
        let root = match crate::environment::variable("HIGHWIRE_SHM_DIR") {
            Some(dir) => Registry::open_at(Path::new(&dir)),
            None => Registry::open_at(Path::new(&format!("/dev/shm/highwire-{}", effective_uid()))),
        }?;
        match network_namespace() {
            Some(own) => root.of_namespace(&own),
            // Without `/proc` all are taken for one.
            None => Ok(root),
        }
    }

    /// The registry of one network namespace, within the directory that several share.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn of_namespace(self, own: &str) -> Result<Registry, RegistryError> {
        let mark = self.root.join(NAMESPACE_MARK);
        loop {
            match fs::read_link(&mark) {
                Ok(first) if first == Path::new(own) => return Ok(self),
                Ok(_) => return Registry::open_at(&self.root.join(own)),
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(RegistryError::Io(mark, error));
                }
                Err(_) => {}
            }
            match std::os::unix::fs::symlink(own, &mark) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(RegistryError::Io(mark, error));
                }
                // This one, or another process was first.
                _ => {}
            }
        }
    }

    /// A registry in a directory of its own, which is made if it is missing.
    ///
    /// # Errors
    /// [`RegistryError::Unsafe`] unless the directory belongs to this user and is closed to everybody else.
    pub fn open_at(root: &Path) -> Result<Registry, RegistryError> {
        let failed = |error| RegistryError::Io(root.to_path_buf(), error);
        match DirBuilder::new().mode(0o700).create(root) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        let refuse = |reason| Err(RegistryError::Unsafe { path: root.to_path_buf(), reason });
        // A symbolic link shows as itself here, and is refused: another user may own what it points at.
        let meta = fs::symlink_metadata(root).map_err(failed)?;
        if !meta.is_dir() {
            return refuse("it is not a directory");
        }
        if meta.uid() != effective_uid() {
            return refuse("it belongs to another user");
        }
        if meta.permissions().mode() & 0o077 != 0 {
            return refuse("others can enter it; its mode must be 0700");
        }
        Ok(Registry { root: root.to_path_buf() })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the engine of this name keeps its files.
    pub fn directory(&self, name: impl Into<EngineName>) -> PathBuf {
        self.root.join(name.into().to_string())
    }

    /// Where the broker of a shared GID listens.
    pub fn broker_socket(&self, gid: IpAddr) -> PathBuf {
        self.root.join(format!("broker-{}", gid.to_canonical()))
    }

    /// Whether processes share this GID, as far as a look at the directory tells.
    pub fn is_shared(&self, gid: IpAddr) -> bool {
        self.broker_socket(gid).exists()
    }

    /// GIDs that have a broker, or had one that was killed, in order.
    ///
    /// # Errors
    /// Those of reading the directory.
    pub fn shared_gids(&self) -> io::Result<Vec<IpAddr>> {
        let mut gids = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            gids.extend(name.to_str().and_then(|name| name.strip_prefix("broker-")?.parse::<IpAddr>().ok()));
        }
        gids.sort();
        Ok(gids)
    }

    /// Takes a GID for this process, or a part of a shared one, and removes the files of a dead engine of
    /// that name.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn claim(
        &self,
        name: impl Into<EngineName>,
        config: &EngineConfig,
    ) -> Result<LocalEngine, ClaimError> {
        let name = name.into();
        let directory = self.directory(name);
        let failed = |error| ClaimError::Io(directory.clone(), error);
        let guard = self.lock(PATIENCE).map_err(failed)?;
        match inspect(&directory).map_err(failed)? {
            Found::Living { pid } => return Err(ClaimError::Taken { name, pid }),
            Found::Stale => fs::remove_dir_all(&directory).map_err(failed)?,
            Found::Absent => {}
        }
        DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
        let made = LocalEngine::create(self, name, &directory, config);
        if made.is_err() {
            let _ = fs::remove_dir_all(&directory);
        }
        drop(guard);
        made
    }

    /// Takes an unused address in 127.0.0.0/8, other than 127.0.0.1, as GID. `seed` says where to start looking.
    ///
    /// Other users' engines are invisible here, so the caller tries the next seed if the address's port is taken.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn claim_unused_loopback(&self, seed: u64, config: &EngineConfig) -> Result<LocalEngine, ClaimError> {
        let mut rng = Rng::new(seed);
        for _ in 0..LOOPBACK_ATTEMPTS {
            let [_, b, c, d] = rng.next_u32().to_be_bytes();
            // People choose addresses in 127.0.0.x by hand; x.0 and x.255 look like networks and broadcasts.
            let gid = Ipv4Addr::new(127, b.max(1), c, d.clamp(1, 254));
            match self.claim(IpAddr::from(gid), config) {
                Err(ClaimError::Taken { .. }) => {}
                result => return result,
            }
        }
        Err(ClaimError::NoneLeft)
    }

    /// The living engine of this name.
    ///
    /// # Errors
    /// [`LookupError`].
    pub fn lookup(&self, name: impl Into<EngineName>) -> Result<PeerEngine, LookupError> {
        let name = name.into();
        let path = self.directory(name).join("engine");
        let segment = Segment::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LookupError::Absent,
            _ => LookupError::Io(path.clone(), error),
        })?;
        let file = segment.file().expect("an opened segment has a file");
        if !lock::is_locked(file, Byte::Life).map_err(|error| LookupError::Io(path.clone(), error))? {
            return Err(LookupError::Gone);
        }
        PeerEngine::new(self.clone(), name, Arc::new(segment))
    }

    /// The names of all living engines, in order.
    ///
    /// # Errors
    /// Those of reading the directory.
    pub fn list(&self) -> io::Result<Vec<EngineName>> {
        let mut living = Vec::new();
        for name in self.names()? {
            if let Found::Living { .. } = inspect(&self.directory(name))? {
                living.push(name);
            }
        }
        Ok(living)
    }

    /// Removes the directories of dead engines, and returns their names.
    ///
    /// # Errors
    /// Those of reading and removing.
    pub fn reap_stale(&self) -> io::Result<Vec<EngineName>> {
        let _guard = self.lock(HOUSEKEEPING_PATIENCE)?;
        let mut reaped = Vec::new();
        for name in self.names()? {
            let directory = self.directory(name);
            if let Found::Stale = inspect(&directory)? {
                fs::remove_dir_all(&directory)?;
                reaped.push(name);
            }
        }
        self.sweep_folders();
        Ok(reaped)
    }

    /// Removes the folders of files that stand behind `/sys` and `/dev` for preloaded programs, if none of those uses them any
    /// more: each holds a shared lock on its folder. One that is wanted again is made again.
    fn sweep_folders(&self) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| FOLDERS.iter().any(|kind| name.starts_with(kind)))
            else {
                continue;
            };
            let is_free = File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok());
            // Renamed first, so that no process finds half of it.
            let gone = self.root.join(format!("{DRAFT}{}-{name}", std::process::id()));
            if is_free && fs::rename(entry.path(), &gone).is_ok() {
                let _ = fs::remove_dir_all(gone);
            }
        }
    }

    /// Removes an engine's directory at its orderly end.
    pub(super) fn release(&self, directory: &Path) {
        // Without the lock this might remove a successor's directory, so without it the next reaper removes
        // this one.
        if let Ok(_guard) = self.lock(HOUSEKEEPING_PATIENCE) {
            let _ = fs::remove_dir_all(directory);
        }
    }

    /// Names that have a directory, in order.
    fn names(&self) -> io::Result<Vec<EngineName>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            names.extend(entry?.file_name().to_str().and_then(|name| name.parse::<EngineName>().ok()));
        }
        names.sort();
        Ok(names)
    }

    /// Waits until no other process starts or ends the broker of a GID, and keeps others from doing so until the file is
    /// dropped.
    ///
    /// # Errors
    /// Those of opening and locking the registry's lock file; `TimedOut` if a process has kept it for half a minute.
    pub fn lock_broker(&self, gid: IpAddr) -> io::Result<File> {
        let file = self.open_lock()?;
        lock::lock(file.as_fd(), Byte::Broker(gid.to_canonical()), BROKER_PATIENCE)?;
        Ok(file)
    }

    /// The same without waiting; `None` if another process holds the lock.
    ///
    /// # Errors
    /// Those of opening and locking; `NotFound` if the registry has been removed.
    pub fn try_lock_broker(&self, gid: IpAddr) -> io::Result<Option<File>> {
        let file = self.open_lock()?;
        Ok(lock::try_lock(file.as_fd(), Byte::Broker(gid.to_canonical()))?.then_some(file))
    }

    /// Keeps other processes and threads from making or removing directories until the file is dropped; `TimedOut` if one of them has kept
    /// this one from it for as long as `patience` lasts.
    fn lock(&self, patience: Duration) -> io::Result<File> {
        let file = self.open_lock()?;
        lock::lock(file.as_fd(), Byte::Life, patience)?;
        Ok(file)
    }

    /// The same for work that can be left undone.
    pub(super) fn lock_for_housekeeping(&self) -> io::Result<File> {
        self.lock(HOUSEKEEPING_PATIENCE)
    }

    fn open_lock(&self) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(self.root.join("lock"))
    }
}

/// Looks at an engine's directory. Only the lock in it is trusted.
fn inspect(directory: &Path) -> io::Result<Found> {
    let path = directory.join("engine");
    let file = match OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A process that died while it made its directory leaves one without an engine.
            return Ok(if directory.exists() { Found::Stale } else { Found::Absent });
        }
        Err(error) => return Err(error),
    };
    if !lock::is_locked(file.as_fd(), Byte::Life)? {
        return Ok(Found::Stale);
    }
    let header = Segment::from_file(file).ok().and_then(|segment| {
        let window = Window::whole(&Arc::new(segment));
        (window.len() > STATE).then(|| EngineHeader::read(&window).ok())?
    });
    Ok(Found::Living { pid: header.map(|header| header.pid) })
}

/// The network namespace of this process, as a name for a directory.
fn network_namespace() -> Option<String> {
    let namespace = fs::metadata("/proc/self/ns/net").ok()?;
    Some(format!("{NAMESPACE_MARK}-{}", namespace.ino()))
}

pub(super) fn effective_uid() -> u32 {
    // SAFETY: reads the process's own identity and cannot fail.
    unsafe { libc::geteuid() }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegistryError::Unsafe { path, reason } => {
                write!(f, "will not keep shared memory in {}: {reason}", path.display())
            }
            RegistryError::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::Taken { name, pid: Some(pid) } => write!(f, "process {pid} is {name} already"),
            ClaimError::Taken { name, pid: None } => write!(f, "another process is {name} already"),
            ClaimError::NoneLeft => write!(f, "found no unused address in 127.0.0.0/8"),
            ClaimError::Config(error) => error.fmt(f),
            ClaimError::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LookupError::Absent => write!(f, "no process of this user on this host has this GID"),
            LookupError::Gone => write!(f, "the process that had this GID is gone"),
            LookupError::Layout(error) => write!(f, "the peer's shared memory is not understood: {error}"),
            LookupError::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for RegistryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RegistryError::Io(_, error) => Some(error),
            RegistryError::Unsafe { .. } => None,
        }
    }
}

impl std::error::Error for ClaimError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClaimError::Config(error) => Some(error),
            ClaimError::Io(_, error) => Some(error),
            ClaimError::Taken { .. } | ClaimError::NoneLeft => None,
        }
    }
}

impl std::error::Error for LookupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LookupError::Layout(error) => Some(error),
            LookupError::Io(_, error) => Some(error),
            LookupError::Absent | LookupError::Gone => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state that a process leaves which was stopped in the middle.
    #[test]
    fn a_process_that_keeps_the_registry_locked_holds_nobody_up_for_ever() {
        let root = std::env::temp_dir().join(format!("highwire-kept-{}", std::process::id()));
        let registry = Registry::open_at(&root).expect("a registry");
        let held = registry.lock(PATIENCE).expect("the lock is free");
        let error = registry.reap_stale().expect_err("it is held");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let address = IpAddr::from([127, 9, 8, 7]);
        match registry.claim(address, &EngineConfig::default()) {
            Err(ClaimError::Io(_, error)) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
            other => panic!("{:?}", other.map(|_| ())),
        }
        drop(held);
        registry.claim(address, &EngineConfig::default()).expect("it was given back");
        assert!(registry.reap_stale().expect("it is free").is_empty());
        let _ = fs::remove_dir_all(root);
    }
}
