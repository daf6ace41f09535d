//! What `highwire run --record` has kept, as `replay` and `explain` read it.

pub(crate) mod events;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use highwire_host::record::{Part, Reader};

/// Reads the records one process at a time; `each` also gets the nanoseconds from the earliest beginning to the process's. Returns how many
/// processes had no room.
///
/// # Errors
/// A file cannot be read, or is no record; and those of `each`.
pub(crate) fn each_process(files: &[PathBuf], mut each: impl FnMut(Part, u64) -> Result<()>) -> Result<u64> {
    let mut begins = Vec::new();
    for file in files {
        begins.extend(open(file)?.begin_ns().with_context(|| file.display().to_string())?);
    }
    let begin = begins.into_iter().min().unwrap_or(0);
    let mut left_out = 0;
    for file in files {
        let mut reader = open(file)?;
        left_out += reader.left_out();
        while let Some(part) = reader.next_part().with_context(|| file.display().to_string())? {
            let shift = part.origin_ns.saturating_sub(begin);
            each(part, shift)?;
        }
    }
    Ok(left_out)
}

fn open(file: &Path) -> Result<Reader<BufReader<File>>> {
    let name = || file.display().to_string();
    let opened = File::open(file).with_context(|| format!("cannot read {}", name()))?;
    Reader::new(BufReader::new(opened)).with_context(name)
}

/// A time since the beginning, in seconds.
pub(crate) fn show_time(time_ns: u64) -> String {
    format!("{}.{:09} s", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_people_read_them() {
        assert_eq!(show_time(1_203_000_000), "1.203000000 s");
    }
}
