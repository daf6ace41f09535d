//! ELF64 programs: the segments to load, the entry point, and the names of addresses.

use std::fmt;

use object::elf::{EM_RISCV, ET_EXEC, FileHeader64, PT_LOAD, SHN_UNDEF, SHT_SYMTAB, STT_FILE, STT_SECTION};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::{Endianness, LittleEndian};

/// A program, ready to be copied into memory.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The address of the first instruction.
    pub entry: u64,
    /// The segments to copy, in the order of the file.
    pub segments: Vec<Segment>,
    /// Functions and other names, by address.
    pub symbols: Vec<Symbol>,
}

/// A piece of the memory image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The physical address of the first byte.
    pub address: u64,
    /// The bytes from the file.
    pub bytes: Vec<u8>,
    /// The size in memory; the bytes behind `bytes` are zero.
    pub memory_bytes: u64,
}

/// A name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// As the program spells it.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Its size in bytes, zero if unknown.
    pub size_bytes: u64,
}

/// Why a file is not a program for this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// It is no 64-bit little-endian ELF file, or damaged; with the parser's message.
    Malformed(String),
    /// It is for another processor, by its ELF machine number.
    ForeignMachine(u16),
    /// It is no statically linked executable, by its ELF file type: an object file or a shared library.
    NotExecutable(u16),
    /// It has no segment to load.
    Empty,
    /// A segment lies where there is no memory.
    OutsideMemory {
        /// Its first byte.
        address: u64,
        /// Its size.
        bytes: u64,
        /// The start of memory.
        memory_base: u64,
        /// The size of memory.
        memory_bytes: u64,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Malformed(reason) => write!(out, "not a 64-bit little-endian ELF file: {reason}"),
            LoadError::ForeignMachine(number) => {
                write!(
                    out,
                    "a program for another processor (ELF machine {number}, RISC-V is {})",
                    EM_RISCV.0
                )
            }
            LoadError::NotExecutable(kind) => {
                write!(out, "not a statically linked executable (ELF type {kind}): link with -static -no-pie")
            }
            LoadError::Empty => write!(out, "the program has no loadable segment"),
            LoadError::OutsideMemory { address, bytes, memory_base, memory_bytes } => write!(
                out,
                "a segment of {bytes} bytes at {address:#x} lies outside the memory, {memory_bytes} bytes at \
                 {memory_base:#x}: check the linker script, or ask for more memory"
            ),
        }
    }
}

impl std::error::Error for LoadError {}

impl Program {
    /// Reads an ELF file.
    pub fn parse(file: &[u8]) -> Result<Program, LoadError> {
        let header = FileHeader64::<Endianness>::parse(file).map_err(malformed)?;
        let endian = header.endian().map_err(malformed)?;
        if endian != Endianness::Little {
            return Err(LoadError::Malformed("it is big-endian".to_owned()));
        }
        if header.e_machine(endian) != EM_RISCV {
            return Err(LoadError::ForeignMachine(header.e_machine(endian).0));
        }
        if header.e_type(endian) != ET_EXEC {
            return Err(LoadError::NotExecutable(header.e_type(endian).0));
        }
        let header = FileHeader64::<LittleEndian>::parse(file).map_err(malformed)?;
        let segments = read_segments(header, file)?;
        if segments.is_empty() {
            return Err(LoadError::Empty);
        }
        Ok(Program { entry: header.e_entry(LittleEndian), segments, symbols: read_symbols(header, file)? })
    }

    /// The address of the symbol `name`.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        self.symbols.iter().find(|symbol| symbol.name == name).map(|symbol| symbol.address)
    }

    /// The symbol to which `address` belongs: the last at or before it, in the same segment.
    pub fn symbol_at(&self, address: u64) -> Option<&Symbol> {
        let segment = self.segments.iter().find(|segment| segment.contains(address))?;
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        self.symbols[..after].last().filter(|symbol| segment.contains(symbol.address))
    }
}

impl Segment {
    fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.memory_bytes)
    }
}

fn malformed(error: object::read::Error) -> LoadError {
    LoadError::Malformed(error.to_string())
}

fn read_segments(header: &FileHeader64<LittleEndian>, file: &[u8]) -> Result<Vec<Segment>, LoadError> {
    let endian = LittleEndian;
    let loaded = header.program_headers(endian, file).map_err(malformed)?.iter();
    loaded
        .filter(|segment| segment.p_type(endian) == PT_LOAD && segment.p_memsz(endian) > 0)
        .map(|segment| {
            let address = segment.p_paddr(endian);
            let data = segment.data(endian, file);
            let bytes = data.map_err(|()| {
                LoadError::Malformed(format!(
                    "the segment at {address:#x} reaches beyond the end of the file"
                ))
            })?;
            if segment.p_memsz(endian) < bytes.len() as u64 {
                return Err(LoadError::Malformed(format!(
                    "the segment at {address:#x} is larger than its memory"
                )));
            }
            Ok(Segment { address, bytes: bytes.to_vec(), memory_bytes: segment.p_memsz(endian) })
        })
        .collect()
}

fn read_symbols(header: &FileHeader64<LittleEndian>, file: &[u8]) -> Result<Vec<Symbol>, LoadError> {
    let endian = LittleEndian;
    let sections = header.sections(endian, file).map_err(malformed)?;
    let table = sections.symbols(endian, file, SHT_SYMTAB).map_err(malformed)?;
    let named = table.iter().filter_map(|symbol| {
        let name = std::str::from_utf8(symbol.name(endian, table.strings()).ok()?).ok()?;
        // Sections, files and the assembler's mapping symbols ($x, $d) are no names that a person would look
        // for.
        let is_name = !name.is_empty() && !name.starts_with('$') && symbol.st_shndx(endian) != SHN_UNDEF;
        let is_place = !matches!(symbol.st_type(), STT_SECTION | STT_FILE);
        let size_bytes = symbol.st_size(endian);
        (is_name && is_place).then(|| Symbol {
            name: name.to_owned(),
            address: symbol.st_value(endian),
            size_bytes,
        })
    });
    let mut symbols: Vec<Symbol> = named.collect();
    // Of several names for one address, lookups find the last, which is the one with a size.
    symbols.sort_by_key(|symbol| (symbol.address, symbol.size_bytes));
    Ok(symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_refused_with_a_reason() {
        assert!(matches!(Program::parse(b""), Err(LoadError::Malformed(_))));
        assert!(matches!(
            Program::parse(b"#!/bin/sh\necho not an ELF file at all, but long enough\n"),
            Err(LoadError::Malformed(_))
        ));
        let mut header = [0u8; 64];
        header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        header[18] = 62;
        assert_eq!(Program::parse(&header).unwrap_err(), LoadError::ForeignMachine(62));
        header[18] = 243;
        header[16] = 3;
        assert_eq!(Program::parse(&header).unwrap_err(), LoadError::NotExecutable(3));
        header[16] = 2;
        assert_eq!(Program::parse(&header).unwrap_err(), LoadError::Empty);
        header[5] = 2;
        header.swap(18, 19);
        assert!(matches!(Program::parse(&header), Err(LoadError::Malformed(_))));
    }
}
