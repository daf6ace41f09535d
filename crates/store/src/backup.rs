//! Backups: all tables as they were at one instant, in a file; and back.
//!
//! The client that takes a backup leads it (`instant`), and reads each member's part page by page while transactions go on. If the members
//! change meanwhile, it begins anew.

mod file;
mod restore;

pub use file::{BackupContents, BackupFileError};
pub use restore::{RestoreError, RestoreOptions, restore};

use crate::client::Client;
use crate::error::StoreError;
use crate::instant::{self, Instant};
use crate::message::BackupOf;
use file::{Reader, Writer};
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant as Moment, SystemTime, UNIX_EPOCH};

/// The table in which a restore notes how far it is.
const NOTES: &[u8] = b"highwire.restore";
/// The pause before a backup begins anew.
const PAUSE: Duration = Duration::from_millis(200);

/// A backup that was taken.
#[derive(Clone, Debug)]
pub struct Backup {
    /// What is in it.
    pub contents: BackupContents,
    /// How long commits were held back.
    pub held: Duration,
    /// Attempts that a change of members ended.
    pub attempts_lost: u32,
}

/// Why there is no backup.
#[derive(Debug)]
pub enum BackupError {
    /// The file cannot be written.
    File(BackupFileError),
    /// The store did not give it.
    Store(StoreError),
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::File(error) => error.fmt(f),
            BackupError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BackupError {}

impl From<BackupFileError> for BackupError {
    fn from(error: BackupFileError) -> BackupError {
        BackupError::File(error)
    }
}

impl From<StoreError> for BackupError {
    fn from(error: StoreError) -> BackupError {
        BackupError::Store(error)
    }
}

/// Reads all of a backup's file, checks it, and says what is in it.
///
/// # Errors
/// [`BackupFileError`].
pub fn check_backup(path: &Path) -> Result<BackupContents, BackupFileError> {
    Reader::open(path)?.survey()
}

/// Takes a backup of all tables, as they were at one instant between the call and its end. The file appears under its name when it is whole
/// and durable, and takes the place of one that there may be. `progress` hears how many rows have been read, of how many.
///
/// It tries for as long as the client's patience lasts to find the members and to begin; an attempt that has begun may take any time.
///
/// # Errors
/// [`BackupError`].
pub fn back_up(
    client: &mut Client,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Backup, BackupError> {
    let deadline = Moment::now() + client.patience();
    for attempts_lost in 0.. {
        match attempt(client, path, progress) {
            Ok((contents, held)) => return Ok(Backup { contents, held, attempts_lost }),
            Err(BackupError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_)))
                if Moment::now() < deadline => {}
            Err(error) => return Err(error),
        }
        std::thread::sleep(PAUSE);
    }
    unreachable!("attempts end with the patience")
}

fn attempt(
    client: &mut Client,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(BackupContents, Duration), BackupError> {
    let status = client.status()?;
    if !status.is_open {
        return Err(StoreError::Unavailable(status.standing).into());
    }
    let doors = client.doors()?;
    // The file's identity, and the backup's at the nodes.
    let token = instant::token();
    let instant = Instant::mark(&status.members, &doors, client.access(), token, BackupOf::All)?;
    let (held, rows) = (instant.held, instant.rows);
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut writer = Writer::create(path, token, now_s, instant.configuration)?;
    instant.read(|cells| -> Result<(), BackupError> {
        for cell in &cells {
            if cell.table == NOTES {
                return Err(StoreError::Aborted(
                    "a restore was broken off, so the store is no whole: finish it first".into(),
                )
                .into());
            }
            writer.add(cell)?;
        }
        progress(writer.entries(), rows);
        Ok(())
    })?;
    Ok((writer.finish()?, held))
}
