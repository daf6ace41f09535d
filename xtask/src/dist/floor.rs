//! What an ELF file needs of the C library, read from its table of needed versions.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, elf};

/// A version of glibc.
type Version = (u32, u32);

/// The versions of glibc that a file needs.
///
/// # Errors
/// The file is no 64-bit ELF file, or needs a version of glibc that has no number, such as a private one.
fn needs_of(bytes: &[u8]) -> Result<BTreeSet<Version>> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let mut found = BTreeSet::new();
    for section in sections.iter() {
        let Some((mut files, link)) = section.gnu_verneed(endian, bytes)? else { continue };
        let strings = sections.strings(endian, bytes, link)?;
        while let Some((_, mut versions)) = files.next()? {
            while let Some(version) = versions.next()? {
                let name = version.name(endian, strings)?;
                if let Some(number) = std::str::from_utf8(name)?.strip_prefix("GLIBC_") {
                    found.insert(parse(number).with_context(|| format!("it needs GLIBC_{number}"))?);
                }
            }
        }
    }
    if found.is_empty() && header.e_type(endian) != elf::ET_DYN {
        bail!("it is no file that a dynamic linker loads");
    }
    Ok(found)
}

/// Symbols without a version that a file must get from others: no C library of the stubs has them, so a loader would find
/// them in newer ones only.
///
/// # Errors
/// As for `needs`.
fn strangers(bytes: &[u8]) -> Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let symbols = sections.symbols(endian, bytes, elf::SHT_DYNSYM)?;
    let versions = sections.versions(endian, bytes)?;
    let mut found = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        let is_wanted = symbol.is_undefined(endian) && symbol.st_bind() == elf::STB_GLOBAL;
        let has_version = match &versions {
            Some(versions) => versions.version_index(endian, index).index() > elf::VER_NDX_GLOBAL,
            None => false,
        };
        if is_wanted && !has_version {
            found.push(String::from_utf8_lossy(symbols.symbol_name(endian, symbol)?).into_owned());
        }
    }
    Ok(found)
}

/// `2.2.5` is (2, 2): the third number does not matter here.
fn parse(number: &str) -> Option<Version> {
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The faults of a file that would not start on `floor`.
pub(super) fn problems(path: &Path, floor: Version) -> Result<Vec<String>> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let newer = needs_of(&bytes)
        .with_context(|| path.display().to_string())?
        .into_iter()
        .filter(|version| *version > floor)
        .map(|(major, minor)| {
            format!("{name} needs GLIBC_{major}.{minor}; the oldest C library is {}.{}", floor.0, floor.1)
        });
    let strange = strangers(&bytes)?
        .into_iter()
        .map(|symbol| format!("{name} needs {symbol}, which no C library of its kind has"));
    Ok(newer.chain(strange).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_number_of_a_version_does_not_matter() {
        assert_eq!(parse("2.2.5"), Some((2, 2)));
        assert_eq!(parse("2.34"), Some((2, 34)));
        assert_eq!(parse("PRIVATE"), None);
        assert!((2, 3) < (2, 28), "numbers and not text");
    }

    #[test]
    fn a_program_of_this_machine_needs_what_its_c_library_has() {
        let this = std::env::current_exe().unwrap();
        let found = needs_of(&std::fs::read(&this).unwrap()).unwrap();
        assert!(found.contains(&(2, 2)), "{found:?}");
        assert!(problems(&this, (2, 1)).unwrap()[0].contains("needs GLIBC_2.2"));
        assert_eq!(problems(&this, (9, 0)).unwrap(), Vec::<String>::new());
    }

    /// A linker lets a shared object have holes, and the loader of an older system does not.
    #[test]
    fn a_function_that_the_stubs_lack_is_found() {
        let folder = std::env::temp_dir().join(format!("xtask-floor-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, object) = (folder.join("hole.c"), folder.join("hole.so"));
        std::fs::write(&source, "int newer(void);\nextern int maybe(void) __attribute__((weak));\nint f(void) { return newer() + (maybe ? 1 : 0); }\n").unwrap();
        let status = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&object)
            .arg(&source)
            .status();
        if status.is_ok_and(|status| status.success()) {
            let found = problems(&object, (9, 0)).unwrap();
            assert_eq!(found, ["hole.so needs newer, which no C library of its kind has"]);
        } else {
            println!("skipped: no C compiler");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_elf_file_is_said_to_be_none() {
        assert!(needs_of(b"#!/bin/sh\n").is_err());
    }
}
