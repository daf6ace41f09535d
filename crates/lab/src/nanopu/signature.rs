//! `--signature`: the words between two symbols of a program, as RISC-V's architectural tests compare them.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use highwire_riscv::{Program, Ram};

/// Bytes of a line.
const WORD: usize = 4;

/// Where the program keeps its signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    start: u64,
    bytes: usize,
}

impl Place {
    /// From `begin_signature` up to `end_signature`.
    pub(super) fn of(program: &Program, memory: &Ram) -> Result<Place> {
        let address = |name: &str| {
            program.address_of(name).with_context(|| format!("--signature: the program has no symbol {name}"))
        };
        let (start, end) = (address("begin_signature")?, address("end_signature")?);
        let bytes = end.checked_sub(start).and_then(|bytes| usize::try_from(bytes).ok());
        match bytes {
            Some(bytes) if bytes.is_multiple_of(WORD) && memory.slice(start, bytes).is_some() => {
                Ok(Place { start, bytes })
            }
            _ => bail!("--signature: {start:#x} to {end:#x} is no whole number of words in memory"),
        }
    }

    /// A line for each word, in hexadecimal, the lowest address first.
    pub(super) fn write(self, memory: &Ram, path: &Path) -> Result<()> {
        let bytes = memory.slice(self.start, self.bytes).context("the signature lies in memory")?;
        fs::write(path, text(bytes)).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for word in bytes.chunks_exact(WORD) {
        let word = word.iter().rev().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{word:08x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_riscv::Symbol;

    const BASE: u64 = 0x8000_0000;

    fn program(symbols: &[(&str, u64)]) -> Program {
        let symbol = |(name, address): &(&str, u64)| Symbol {
            name: (*name).to_string(),
            address: *address,
            size_bytes: 0,
        };
        Program { entry: BASE, segments: Vec::new(), symbols: symbols.iter().map(symbol).collect() }
    }

    #[test]
    fn words_are_in_the_order_of_their_addresses() {
        assert_eq!(text(&[0x78, 0x56, 0x34, 0x12, 0xff, 0, 0, 0]), "12345678\n000000ff\n");
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn a_signature_is_whole_words_in_memory() {
        let memory = Ram::new(BASE, 4096);
        let place = |start, end| {
            let program = program(&[("begin_signature", start), ("end_signature", end)]);
            Place::of(&program, &memory)
                .map(|place| (place.start, place.bytes))
                .map_err(|error| error.to_string())
        };
        assert_eq!(place(BASE + 16, BASE + 24), Ok((BASE + 16, 8)));
        assert_eq!(place(BASE, BASE + 4096), Ok((BASE, 4096)));
        for (start, end) in [(BASE + 8, BASE), (BASE, BASE + 3), (BASE, BASE + 4100), (0, 8)] {
            assert!(
                place(start, end).unwrap_err().contains("no whole number of words"),
                "{start:#x} {end:#x}"
            );
        }
        let lacks = program(&[("begin_signature", BASE)]);
        assert!(Place::of(&lacks, &memory).unwrap_err().to_string().contains("no symbol end_signature"));
    }
}
