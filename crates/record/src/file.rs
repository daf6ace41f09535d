//! The file: its header, and how it is made.

use crate::VERSION;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Bytes of the header of a file and of a part.
pub const HEADER_BYTES: u64 = 4096;
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: u64 = 64;
/// So many processes have a part at most; others are counted.
pub const PARTS_MAX: u64 = 64;
/// The entries of a part that no later one overwrites.
pub(crate) const KEPT_ENTRIES: u64 = 4096;
/// Bounds of a ring.
const RING_ENTRIES_MIN: u64 = 1 << 10;
const RING_ENTRIES_MAX: u64 = 1 << 22;

pub(crate) const FILE_MAGIC: [u8; 8] = *b"HWRECORD";
pub(crate) const PART_MAGIC: u64 = u64::from_le_bytes(*b"HWRECPRT");

/// Offsets of words in the header of a file.
pub(crate) mod file_word {
    pub(crate) const VERSION: usize = 8;
    pub(crate) const RING_ENTRIES: usize = 16;
    pub(crate) const PARTS: usize = 24;
}

/// Offsets of words in the header of a part. The counts of entries, which threads write all the time, have lines of their own.
pub(crate) mod part_word {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const PROCESS: usize = 8;
    pub(crate) const ORIGIN: usize = 16;
    pub(crate) const HAS_ENDED: usize = 24;
    pub(crate) const NAME: usize = 64;
    pub(crate) const NAME_BYTES: usize = 32;
    pub(crate) const KEPT: usize = 128;
    pub(crate) const RING: usize = 256;
}

/// How large the parts of a file are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    ring_entries: u64,
}

impl Shape {
    /// A ring of at least so many bytes per process, within bounds.
    pub fn of_bytes(bytes: u64) -> Shape {
        let entries = bytes.div_ceil(ENTRY_BYTES).clamp(RING_ENTRIES_MIN, RING_ENTRIES_MAX);
        Shape { ring_entries: entries.next_power_of_two() }
    }

    /// The shape with such a ring, if there can be one.
    pub(crate) fn of_entries(entries: u64) -> Option<Shape> {
        let is_one = entries.is_power_of_two() && (RING_ENTRIES_MIN..=RING_ENTRIES_MAX).contains(&entries);
        is_one.then_some(Shape { ring_entries: entries })
    }

    /// Entries of the ring: a power of two.
    pub fn ring_entries(&self) -> u64 {
        self.ring_entries
    }

    /// Bytes of a part.
    pub fn part_bytes(&self) -> u64 {
        HEADER_BYTES + (KEPT_ENTRIES + self.ring_entries) * ENTRY_BYTES
    }
}

/// Why a file for records is not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// It is there, and is no record: it is not overwritten.
    #[error("{0} is there and is no record: it is not overwritten")]
    NotARecord(String),
    /// The system says so.
    #[error("the record {0} cannot be made: {1}")]
    System(String, #[source] io::Error),
}

/// Makes an empty file for the parts of processes. An earlier record of that name is replaced; a process that still writes to it goes
/// on with the file that has lost its name.
///
/// # Errors
/// [`CreateError`]; a file that is no record stays as it is.
pub fn create(path: &Path, shape: Shape) -> Result<(), CreateError> {
    let name = || path.display().to_string();
    let failed = |error| CreateError::System(name(), error);
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return Err(CreateError::NotARecord(name())),
        Ok(found) => {
            let mut magic = [0; 8];
            let is_record = found.len() == 0
                || fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
                    && magic == FILE_MAGIC;
            if !is_record {
                return Err(CreateError::NotARecord(name()));
            }
            fs::remove_file(path).map_err(failed)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let mut header = vec![0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(&FILE_MAGIC);
    header[file_word::VERSION..][..4].copy_from_slice(&VERSION.to_le_bytes());
    header[file_word::RING_ENTRIES..][..8].copy_from_slice(&shape.ring_entries.to_le_bytes());
    // What a program does is its user's own affair.
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.and_then(|mut file| file.write_all(&header)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_record_is_not_overwritten() {
        let folder = std::env::temp_dir().join(format!("highwire-record-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (record, other) = (folder.join("r.hwr"), folder.join("program"));
        let shape = Shape::of_bytes(1 << 20);
        for _ in 0..2 {
            create(&record, shape).expect("it is new, or a record");
        }
        fs::write(&other, "#!/bin/sh").expect("a file");
        for path in [&other, &folder] {
            assert!(matches!(create(path, shape), Err(CreateError::NotARecord(_))), "{}", path.display());
        }
        assert_eq!(fs::read(&other).expect("it is there"), b"#!/bin/sh");
        assert!(matches!(create(&folder.join("no/such"), shape), Err(CreateError::System(..))));
        fs::remove_dir_all(folder).expect("it is there");
    }

    #[test]
    fn a_ring_has_bounds() {
        assert_eq!(Shape::of_bytes(0).ring_entries(), RING_ENTRIES_MIN);
        assert_eq!(Shape::of_bytes(u64::MAX).ring_entries(), RING_ENTRIES_MAX);
        assert_eq!(Shape::of_bytes(8 << 20).ring_entries(), 1 << 17);
        assert!(Shape::of_entries(3 << 10).is_none() && Shape::of_entries(1 << 40).is_none());
    }
}
