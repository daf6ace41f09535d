//! Names of a journal's files.

use std::fmt;
use std::str::FromStr;

/// A file of a journal. The number is that of the first entry that is in it or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// Entries from this one on.
    Log(u64),
    /// The memory that the entries before this one have built.
    Checkpoint(u64),
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Log(first) => write!(f, "log-{first:020}"),
            FileName::Checkpoint(first) => write!(f, "checkpoint-{first:020}"),
        }
    }
}

/// The name is not that of a journal's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFileName;

impl FromStr for FileName {
    type Err = NoFileName;

    fn from_str(name: &str) -> Result<FileName, NoFileName> {
        let (kind, number) = name.split_once('-').ok_or(NoFileName)?;
        let is_number = number.len() == 20 && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|_| is_number).ok_or(NoFileName)?;
        match kind {
            "log" => Ok(FileName::Log(number)),
            "checkpoint" => Ok(FileName::Checkpoint(number)),
            _ => Err(NoFileName),
        }
    }
}
