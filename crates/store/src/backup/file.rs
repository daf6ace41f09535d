//! The file of a backup, format 2. Format 1 is the same without keys that expire, and is read. Numbers are little-endian; a check is the CRC-32 of what precedes it in its part, and of the file's
//! identity, so that no part passes for one of another file or another place.
//!
//! ```text
//! header   "HWSTOREB" · format u32 · identity u64 · seconds since 1970 u64 · configuration u32 · check u32
//! block    length u32, not 0 · check u32, of identity, block's number and body · body: entries
//! …
//! end      0 u32 · entries u64 · blocks u64 · check u32, of identity, all blocks' checks and both numbers
//! entry    table's length u8 · key's length u16 · kind u8 · value's length u32 · table · key · time u64 · value
//! ```
//!
//! An entry has a time, in milliseconds since 1970, if its kind has the bit 0x80.

use crate::fresh::fresh_name;
use crate::order::is_ordered;
use crate::rows::{self, BackupEntry};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"HWSTOREB";
const FORMAT: u32 = 2;
/// The earliest that is read.
const FORMAT_LEAST: u32 = 1;
const HEADER_BYTES: usize = 8 + 4 + 8 + 8 + 4;
/// A block is what one transaction of a restore writes: at most so many entries, and about so many bytes.
pub(super) const BLOCK_ENTRIES_MAX: usize = 64;
const BLOCK_BYTES_ABOUT: usize = 32 << 10;
/// More than any block has, its last entry included.
const BLOCK_BYTES_MAX: usize = 2 << 20;

/// Why a file is no backup that can be read.
#[derive(Debug)]
pub enum BackupFileError {
    /// A file operation failed.
    Io(PathBuf, io::Error),
    /// It is another kind of file.
    Foreign(PathBuf),
    /// It has a later format.
    Newer(PathBuf, u32),
    /// It ends too early, after this many bytes.
    Truncated(PathBuf, u64),
    /// What lies behind this many bytes was changed since it was written.
    Damaged(PathBuf, u64),
}

impl fmt::Display for BackupFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupFileError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            BackupFileError::Foreign(path) => write!(f, "{} is no backup of a store", path.display()),
            BackupFileError::Newer(path, format) => {
                write!(f, "{} has format {format}; this program knows format {FORMAT}", path.display())
            }
            BackupFileError::Truncated(path, at) => {
                write!(f, "{} ends after {at} bytes, in the middle; its end is missing", path.display())
            }
            BackupFileError::Damaged(path, at) => {
                write!(f, "{} is damaged: bytes behind {at} are not those that were written", path.display())
            }
        }
    }
}

impl std::error::Error for BackupFileError {}

/// What a backup holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupContents {
    /// The file's own number.
    pub identity: u64,
    /// When it was taken: seconds since 1970.
    pub taken_s: u64,
    /// The cluster's configuration at that moment.
    pub configuration: u32,
    /// The number of entries in each table.
    pub tables: BTreeMap<Vec<u8>, u64>,
    /// Blocks of the file: a restore writes each in one transaction.
    pub blocks: u64,
    /// The file's length.
    pub bytes: u64,
}

impl BackupContents {
    /// All tables' entries.
    pub fn entries(&self) -> u64 {
        self.tables.values().sum()
    }
}

fn check_of(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Writes a backup under a temporary name, which becomes its own when it is whole and durable.
pub(super) struct Writer {
    path: PathBuf,
    draft: PathBuf,
    file: BufWriter<File>,
    contents: BackupContents,
    body: Vec<u8>,
    body_entries: usize,
    checks: crc32fast::Hasher,
    is_finished: bool,
}

impl Writer {
    pub(super) fn create(
        path: &Path,
        identity: u64,
        taken_s: u64,
        configuration: u32,
    ) -> Result<Writer, BackupFileError> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        let fresh = fresh_name().map_err(|error| BackupFileError::Io(path.to_path_buf(), error))?;
        name.push(format!(".draft-{fresh}"));
        let draft = path.with_file_name(name);
        let io = |error| BackupFileError::Io(draft.clone(), error);
        let mut file = BufWriter::new(File::create_new(&draft).map_err(io)?);
        let mut header = MAGIC.to_vec();
        header.extend(FORMAT.to_le_bytes());
        header.extend(identity.to_le_bytes());
        header.extend(taken_s.to_le_bytes());
        header.extend(configuration.to_le_bytes());
        header.extend(check_of(&[&header]).to_le_bytes());
        file.write_all(&header).map_err(io)?;
        let bytes = header.len() as u64;
        let contents =
            BackupContents { identity, taken_s, configuration, bytes, ..BackupContents::default() };
        let (body, checks) = (Vec::new(), crc32fast::Hasher::new());
        let path = path.to_path_buf();
        Ok(Writer { path, draft, file, contents, body, body_entries: 0, checks, is_finished: false })
    }

    pub(super) fn add(&mut self, cell: &BackupEntry) -> Result<(), BackupFileError> {
        cell.put(&mut self.body);
        self.body_entries += 1;
        *self.contents.tables.entry(cell.table.clone()).or_default() += 1;
        match self.body_entries >= BLOCK_ENTRIES_MAX || self.body.len() >= BLOCK_BYTES_ABOUT {
            true => self.end_block(),
            false => Ok(()),
        }
    }

    pub(super) fn entries(&self) -> u64 {
        self.contents.entries()
    }

    fn end_block(&mut self) -> Result<(), BackupFileError> {
        if self.body.is_empty() {
            return Ok(());
        }
        let BackupContents { identity, blocks, .. } = self.contents;
        let check = check_of(&[&identity.to_le_bytes(), &blocks.to_le_bytes(), &self.body]).to_le_bytes();
        let body = std::mem::take(&mut self.body);
        let length = (body.len() as u32).to_le_bytes();
        for part in [&length[..], &check, &body] {
            self.write(part)?;
        }
        self.checks.update(&check);
        self.contents.blocks += 1;
        self.body = body;
        self.body.clear();
        self.body_entries = 0;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), BackupFileError> {
        self.contents.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|error| BackupFileError::Io(self.draft.clone(), error))
    }

    /// Ends the file, makes it durable and gives it its name.
    pub(super) fn finish(mut self) -> Result<BackupContents, BackupFileError> {
        self.end_block()?;
        let (entries, blocks) = (self.contents.entries().to_le_bytes(), self.contents.blocks.to_le_bytes());
        let checks = self.checks.clone().finalize().to_le_bytes();
        let check = check_of(&[&self.contents.identity.to_le_bytes(), &checks, &entries, &blocks]);
        for part in [&0u32.to_le_bytes()[..], &entries, &blocks, &check.to_le_bytes()] {
            self.write(part)?;
        }
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let publish = |file: &mut BufWriter<File>| {
            file.flush()?;
            file.get_ref().sync_all()?;
            std::fs::rename(&self.draft, &self.path)?;
            File::open(folder)?.sync_all()
        };
        let published: io::Result<()> = publish(&mut self.file);
        published.map_err(|error| BackupFileError::Io(self.path.clone(), error))?;
        self.is_finished = true;
        Ok(std::mem::take(&mut self.contents))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = std::fs::remove_file(&self.draft);
        }
    }
}

/// Reads a backup block by block, and checks each.
pub(super) struct Reader {
    path: PathBuf,
    file: BufReader<Box<dyn Read>>,
    at: u64,
    identity: u64,
    contents: BackupContents,
    entries: u64,
    checks: crc32fast::Hasher,
    is_over: bool,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Reader, BackupFileError> {
        let file = File::open(path).map_err(|error| BackupFileError::Io(path.to_path_buf(), error))?;
        Reader::over(path, Box::new(file))
    }

    fn over(path: &Path, file: Box<dyn Read>) -> Result<Reader, BackupFileError> {
        let mut reader = Reader {
            path: path.to_path_buf(),
            file: BufReader::new(file),
            at: 0,
            identity: 0,
            contents: BackupContents::default(),
            entries: 0,
            checks: crc32fast::Hasher::new(),
            is_over: false,
        };
        let foreign = || BackupFileError::Foreign(path.to_path_buf());
        let magic: [u8; 8] = match reader.take() {
            Err(BackupFileError::Truncated(..)) => return Err(foreign()),
            magic => magic?,
        };
        if magic != MAGIC {
            return Err(foreign());
        }
        let format = reader.take()?;
        // A later format may have anything behind its number.
        if u32::from_le_bytes(format) > FORMAT {
            return Err(BackupFileError::Newer(path.to_path_buf(), u32::from_le_bytes(format)));
        }
        let (identity, taken_s): ([u8; 8], [u8; 8]) = (reader.take()?, reader.take()?);
        let configuration: [u8; 4] = reader.take()?;
        let check: [u8; 4] = reader.take()?;
        let computed = check_of(&[&magic, &format, &identity, &taken_s, &configuration]);
        if u32::from_le_bytes(check) != computed || u32::from_le_bytes(format) < FORMAT_LEAST {
            return Err(reader.damaged(magic.len() as u64));
        }
        debug_assert_eq!(reader.at as usize, HEADER_BYTES + 4);
        reader.identity = u64::from_le_bytes(identity);
        reader.contents.identity = reader.identity;
        reader.contents.taken_s = u64::from_le_bytes(taken_s);
        reader.contents.configuration = u32::from_le_bytes(configuration);
        Ok(reader)
    }

    /// The next block's entries; `None` behind the last, when the file's end is as it should be.
    pub(super) fn next_block(&mut self) -> Result<Option<Vec<BackupEntry>>, BackupFileError> {
        if self.is_over {
            return Ok(None);
        }
        let from = self.at;
        let length = u32::from_le_bytes(self.take()?) as usize;
        if length == 0 {
            self.end(from)?;
            return Ok(None);
        }
        if length > BLOCK_BYTES_MAX {
            return Err(self.damaged(from));
        }
        let check: [u8; 4] = self.take()?;
        let mut body = vec![0; length];
        self.fill(&mut body)?;
        let number = self.contents.blocks.to_le_bytes();
        if u32::from_le_bytes(check) != check_of(&[&self.identity.to_le_bytes(), &number, &body]) {
            return Err(self.damaged(from));
        }
        let cells = BackupEntry::parse_all(&body).filter(|cells| cells.len() <= BLOCK_ENTRIES_MAX);
        let is_sound = |cell: &BackupEntry| {
            rows::check_key(&cell.table, &cell.key).is_ok()
                && rows::check_value(&cell.value).is_ok()
                && !(cell.expires.is_some() && is_ordered(&cell.table))
        };
        let cells = cells.filter(|cells| cells.iter().all(is_sound)).ok_or_else(|| self.damaged(from))?;
        self.checks.update(&check);
        self.contents.blocks += 1;
        self.entries += cells.len() as u64;
        for cell in &cells {
            *self.contents.tables.entry(cell.table.clone()).or_default() += 1;
        }
        Ok(Some(cells))
    }

    /// Reads all of the file and checks it.
    pub(super) fn survey(mut self) -> Result<BackupContents, BackupFileError> {
        while self.next_block()?.is_some() {}
        self.contents.bytes = self.at;
        Ok(self.contents)
    }

    fn end(&mut self, from: u64) -> Result<(), BackupFileError> {
        let (entries, blocks): ([u8; 8], [u8; 8]) = (self.take()?, self.take()?);
        let check: [u8; 4] = self.take()?;
        let checks = self.checks.clone().finalize().to_le_bytes();
        let computed = check_of(&[&self.identity.to_le_bytes(), &checks, &entries, &blocks]);
        let counted = (self.entries.to_le_bytes(), self.contents.blocks.to_le_bytes());
        let mut more = [0];
        let rest =
            self.file.read(&mut more).map_err(|error| BackupFileError::Io(self.path.clone(), error))?;
        if u32::from_le_bytes(check) != computed || (entries, blocks) != counted {
            return Err(self.damaged(from));
        }
        if rest > 0 {
            return Err(self.damaged(self.at));
        }
        self.is_over = true;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BackupFileError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupFileError> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read(&mut bytes[done..]) {
                Ok(0) => {
                    return Err(BackupFileError::Truncated(self.path.clone(), self.at + done as u64));
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BackupFileError::Io(self.path.clone(), error)),
            }
        }
        self.at += done as u64;
        Ok(())
    }

    fn damaged(&self, from: u64) -> BackupFileError {
        BackupFileError::Damaged(self.path.clone(), from)
    }
}

#[cfg(test)]
mod tests;
