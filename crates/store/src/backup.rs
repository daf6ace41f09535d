//! Backups: all tables as they were at one instant, in a file; and back.
//!
//! The client that takes a backup leads it: it freezes all members for a moment, lets each mark it, thaws them (`freeze` says why
//! that is one instant), and then reads each member's part page by page while transactions go on. If the members
//! change meanwhile, it begins anew.

mod file;
mod restore;

pub use file::{BackupContents, BackupFileError};
pub use restore::{RestoreError, RestoreOptions, restore};

use crate::client::{Client, Conversation};
use crate::error::StoreError;
use crate::message::{Answer, BackupAnswer, BackupStep, Request};
use file::{Reader, Writer};
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    let deadline = Instant::now() + client.patience();
    for attempts_lost in 0.. {
        match attempt(client, path, progress) {
            Ok((contents, held)) => return Ok(Backup { contents, held, attempts_lost }),
            Err(BackupError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_)))
                if Instant::now() < deadline => {}
            Err(error) => return Err(error),
        }
        std::thread::sleep(PAUSE);
    }
    unreachable!("attempts end with the patience")
}

/// A member's part of a backup.
struct Part {
    node: u16,
    door: String,
    conversation: Conversation,
}

impl Part {
    fn lost(&self, error: impl fmt::Display) -> StoreError {
        StoreError::Unavailable(format!("node {} at {}: {error}", self.node, self.door))
    }

    fn tell(&mut self, token: u64, step: BackupStep) -> Result<(), StoreError> {
        self.conversation.tell(&Request::Backup { token, step }).map_err(|error| self.lost(error))
    }

    fn hear(&mut self) -> Result<BackupAnswer, StoreError> {
        match self.conversation.hear() {
            Ok(Answer::Backup(answer)) => Ok(answer),
            Ok(Answer::Failed(StoreError::Unavailable(why))) => Err(self.lost(why)),
            Ok(Answer::Failed(error)) => Err(error),
            Ok(_) => Err(self.lost("it answered something else than was asked")),
            Err(error) => Err(self.lost(error)),
        }
    }
}

/// One step at all members at once.
fn all(parts: &mut [Part], token: u64, step: BackupStep) -> Result<Vec<BackupAnswer>, StoreError> {
    parts.iter_mut().try_for_each(|part| part.tell(token, step))?;
    parts.iter_mut().map(Part::hear).collect()
}

fn changed() -> StoreError {
    StoreError::Unavailable("the members change".into())
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
    let mut parts = Vec::new();
    for &node in &status.members {
        let door = doors.iter().find(|door| door.0 == node).map(|door| door.1.clone());
        let door =
            door.ok_or_else(|| StoreError::Unavailable(format!("no node knows the door of node {node}")))?;
        let conversation = Conversation::enter(&door)
            .map_err(|error| StoreError::Unavailable(format!("node {node} at {door}: {error}")))?;
        parts.push(Part { node, door, conversation });
    }
    // The file's identity, and the backup's at the nodes. 0 is none.
    let token = random() | 1;
    let began = Instant::now();
    let mut expected = None;
    for answer in all(&mut parts, token, BackupStep::Freeze)? {
        let BackupAnswer::Frozen { configuration, members, regions } = answer else {
            return Err(changed().into());
        };
        if members != status.members
            || *expected.get_or_insert((configuration, regions)) != (configuration, regions)
        {
            return Err(changed().into());
        }
    }
    let Some((configuration, regions)) = expected else { return Err(changed().into()) };
    let (mut regions_marked, mut rows_all) = (0, 0);
    for answer in all(&mut parts, token, BackupStep::Mark)? {
        let BackupAnswer::Marked { regions, rows } = answer else { return Err(changed().into()) };
        regions_marked += u32::from(regions);
        rows_all += rows;
    }
    for answer in all(&mut parts, token, BackupStep::Thaw)? {
        if answer != (BackupAnswer::Thawed { was_frozen: true }) {
            return Err(
                StoreError::Unavailable("the nodes were too slow to stand still together".into()).into()
            );
        }
    }
    let held = began.elapsed();
    if regions_marked != u32::from(regions) {
        return Err(changed().into());
    }
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut writer = Writer::create(path, token, now_s, configuration)?;
    for part in &mut parts {
        loop {
            part.tell(token, BackupStep::Page)?;
            let BackupAnswer::Page { cells, is_last } = part.hear()? else { return Err(changed().into()) };
            for cell in &cells {
                if cell.table == NOTES {
                    return Err(StoreError::Aborted(
                        "a restore was broken off, so the store is no whole: finish it first".into(),
                    )
                    .into());
                }
                writer.add(cell)?;
            }
            progress(writer.entries(), rows_all);
            if is_last {
                break;
            }
        }
    }
    Ok((writer.finish()?, held))
}

/// The seeds of std's hash maps are the system's random numbers.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
