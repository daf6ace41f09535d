//! Putting a backup's entries back into a store.
//!
//! A restore checks the whole file first, and that its tables are empty. Then it writes block after block, each in one transaction that also
//! notes the number of the next block in a table of its own. So a restore that is broken off at any point goes on where it was
//! when the same command runs again, and no block is written twice, even if it was not told how a transaction
//! ended.

use super::file::{BackupContents, BackupFileError, Reader};
use super::{NOTES, check_backup};
use crate::client::Client;
use crate::error::StoreError;
use crate::message::{Answer, Request};
use crate::rows::BackupEntry;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The key of the note.
const NOTE: &str = "progress";
/// A transaction takes at most so many entries away.
const SWEEP_MAX: u32 = 256;
/// Offsets of rows within a table.
const OFFSET_MAX: u64 = (1 << 48) - 1;
const PAUSE: Duration = Duration::from_millis(50);

/// What a restore may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestoreOptions {
    /// Empty the tables of the backup first, if they are not empty.
    pub replace: bool,
}

/// Why a backup was not put back.
#[derive(Debug)]
pub enum RestoreError {
    /// The file is none that can be put back. Nothing was changed.
    File(BackupFileError),
    /// These tables are not empty. Nothing was changed.
    NotEmpty(Vec<String>),
    /// A restore of another file was broken off. Nothing was changed.
    Another {
        /// The other file's identity.
        identity: String,
    },
    /// The store did not take it. What is there already stays, and the same restore goes on from there.
    Store(StoreError),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::File(error) => write!(f, "{error}; nothing was changed"),
            RestoreError::NotEmpty(tables) => {
                write!(f, "tables of the backup are not empty: {}; nothing was changed", tables.join(", "))
            }
            RestoreError::Another { identity } => write!(
                f,
                "the restore of another backup ({identity}) was broken off: finish that one first, or take the key `{NOTE}` of the table `{}` away to forget it; nothing was changed",
                String::from_utf8_lossy(NOTES)
            ),
            RestoreError::Store(error) => write!(f, "{error}; the same restore goes on where this one ended"),
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<BackupFileError> for RestoreError {
    fn from(error: BackupFileError) -> RestoreError {
        RestoreError::File(error)
    }
}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> RestoreError {
        RestoreError::Store(error)
    }
}

/// Puts a backup's entries back. Returns what was in the file, and how many of its blocks were there already because a restore of the same
/// file had been broken off. `progress` hears how many blocks are done, of how many.
///
/// # Errors
/// [`RestoreError`].
pub fn restore(
    client: &mut Client,
    path: &Path,
    options: RestoreOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(BackupContents, u64), RestoreError> {
    let contents = check_backup(path)?;
    let notes = Notes { identity: contents.identity };
    let mut at = match note(client)? {
        Some(text) => notes.read(&text)?,
        None if options.replace => notes.begin(client, Stage::Sweep)?,
        None => {
            check_empty(client, &contents.tables)?;
            notes.begin(client, Stage::Block(0))?
        }
    };
    if at == Stage::Sweep {
        for table in contents.tables.keys() {
            sweep(client, table)?;
        }
        at = notes.go_on(client, at, Some(Stage::Block(0)), &[])?;
    }
    let Stage::Block(first) = at else { return Err(StoreError::Conflict.into()) };
    let mut reader = Reader::open(path)?;
    let mut number = 0;
    while let Some(cells) = reader.next_block()? {
        if number >= first {
            at = notes.go_on(client, at, Some(Stage::Block(number + 1)), &cells)?;
        }
        number += 1;
        progress(number, contents.blocks);
    }
    notes.go_on(client, at, None, &[])?;
    Ok((contents, first))
}

/// How far a restore is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The tables are being emptied.
    Sweep,
    /// This block comes next.
    Block(u64),
}

/// The notes of the restore of one file.
struct Notes {
    identity: u64,
}

impl Notes {
    fn text(&self, stage: Stage) -> String {
        match stage {
            Stage::Sweep => format!("{:016x} sweep", self.identity),
            Stage::Block(number) => format!("{:016x} {number}", self.identity),
        }
    }

    fn read(&self, text: &str) -> Result<Stage, RestoreError> {
        let (identity, stage) = text.split_once(' ').unwrap_or((text, ""));
        if identity != format!("{:016x}", self.identity) {
            return Err(RestoreError::Another { identity: identity.to_string() });
        }
        let number = || stage.parse().map(Stage::Block);
        if stage == "sweep" {
            Ok(Stage::Sweep)
        } else {
            number().map_err(|_| RestoreError::Another { identity: text.into() })
        }
    }

    fn begin(&self, client: &mut Client, stage: Stage) -> Result<Stage, RestoreError> {
        self.step(client, None, Some(stage), &[])?;
        Ok(stage)
    }

    fn go_on(
        &self,
        client: &mut Client,
        from: Stage,
        to: Option<Stage>,
        cells: &[BackupEntry],
    ) -> Result<Stage, RestoreError> {
        self.step(client, Some(from), to, cells)?;
        Ok(to.unwrap_or(from))
    }

    /// One transaction: the entries, and the note from one stage to the next. It happens once, though it may be tried more often.
    fn step(
        &self,
        client: &mut Client,
        from: Option<Stage>,
        to: Option<Stage>,
        cells: &[BackupEntry],
    ) -> Result<(), RestoreError> {
        let text = |stage: Option<Stage>| stage.map(|stage| self.text(stage).into_bytes());
        let name = (NOTES.to_vec(), NOTE.as_bytes().to_vec());
        let request = Request::Restore { note: name, from: text(from), to: text(to), cells: cells.to_vec() };
        let deadline = Instant::now() + client.patience();
        loop {
            let error = match client.ask_once(&request) {
                Ok(Answer::Committed) => return Ok(()),
                Ok(Answer::Failed(error)) => error,
                Ok(_) => StoreError::invalid("the node answered something else than was asked"),
                Err(error) => error,
            };
            if !may_pass(&error) {
                return Err(error.into());
            }
            // The note tells whether the transaction happened after all.
            let there = note(client)?.map(String::into_bytes);
            if there == text(to) {
                return Ok(());
            }
            if there != text(from) {
                return Err(StoreError::Aborted("another restore writes to this store".into()).into());
            }
            if Instant::now() >= deadline {
                return Err(error.into());
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Whether another attempt may succeed.
fn may_pass(error: &StoreError) -> bool {
    matches!(error, StoreError::Conflict | StoreError::Unavailable(_) | StoreError::Unknown(_))
}

/// The note of a restore that was begun and is not over.
fn note(client: &mut Client) -> Result<Option<String>, StoreError> {
    let found = client.get(std::str::from_utf8(NOTES).unwrap_or_default(), NOTE)?;
    Ok(found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn check_empty(client: &mut Client, tables: &BTreeMap<Vec<u8>, u64>) -> Result<(), RestoreError> {
    let mut full = Vec::new();
    for table in tables.keys() {
        if swept(client, table, 0, OFFSET_MAX, 0)?.is_none_or(|entries| entries > 0) {
            full.push(String::from_utf8_lossy(table).into_owned());
        }
    }
    if full.is_empty() { Ok(()) } else { Err(RestoreError::NotEmpty(full)) }
}

/// Empties a table, as many rows at a time as one transaction takes.
fn sweep(client: &mut Client, table: &[u8]) -> Result<(), StoreError> {
    let mut ranges = vec![(0, OFFSET_MAX)];
    while let Some((low, high)) = ranges.pop() {
        let entries = swept(client, table, low, high, SWEEP_MAX)?;
        if entries.is_none_or(|entries| entries > u64::from(SWEEP_MAX)) {
            if low == high {
                return Err(StoreError::Full);
            }
            let middle = low + (high - low) / 2;
            ranges.extend([(middle + 1, high), (low, middle)]);
        }
    }
    Ok(())
}

/// How many entries a part of a table has, `None` if they are too many for one transaction. If they are at most `most`, they are taken away.
fn swept(
    client: &mut Client,
    table: &[u8],
    low: u64,
    high: u64,
    most: u32,
) -> Result<Option<u64>, StoreError> {
    let request = Request::Sweep { table: table.to_vec(), low, high, most };
    let deadline = Instant::now() + client.patience();
    loop {
        let error = match client.ask_once(&request) {
            Ok(Answer::Swept { entries }) => return Ok(entries),
            Ok(Answer::Failed(error)) => error,
            Ok(_) => StoreError::invalid("the node answered something else than was asked"),
            Err(error) => error,
        };
        // Taking entries away twice does no harm.
        if !may_pass(&error) || Instant::now() >= deadline {
            return Err(error);
        }
        std::thread::sleep(PAUSE);
    }
}
