//! The program to become: its file, and whether the dynamic loader will preload the libraries for it.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The result of looking for a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Program(PathBuf),
    /// A file of that name that may not be executed.
    NotExecutable(PathBuf),
    Nothing,
}

/// Looks as a shell does: a name with a slash is a path, any other is looked up in `PATH`.
pub(super) fn find(name: &str) -> Found {
    if name.contains('/') {
        return judge(PathBuf::from(name));
    }
    let mut best = Found::Nothing;
    for folder in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        match judge(folder.join(name)) {
            found @ Found::Program(_) => return found,
            found @ Found::NotExecutable(_) if best == Found::Nothing => best = found,
            _ => {}
        }
    }
    best
}

fn judge(file: PathBuf) -> Found {
    match fs::metadata(&file) {
        Ok(meta) if meta.is_file() && meta.permissions().mode() & 0o111 != 0 => Found::Program(file),
        Ok(_) => Found::NotExecutable(file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Found::Nothing,
        Err(_) => Found::NotExecutable(file),
    }
}

/// Why the program would not load the libraries although they are offered, if so.
pub(super) fn warnings(file: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    let shown = file.display();
    if is_privileged(file) {
        warnings.push(format!(
            "{shown} is setuid or setgid: the dynamic loader takes no libraries from us, and it will see no device"
        ));
    }
    match read_kind(file) {
        Kind::Static => warnings.push(format!(
            "{shown} is linked statically: it brings its own libraries, and will see no device"
        )),
        Kind::OtherMachine => {
            warnings.push(format!(
                "{shown} is of another architecture than our libraries: it will see no device"
            ));
        }
        Kind::Script(interpreter) => {
            let of_interpreter = [Kind::Static, Kind::OtherMachine].contains(&read_kind(&interpreter));
            if of_interpreter || is_privileged(&interpreter) {
                warnings.push(format!(
                    "{shown} runs in {}, which cannot take our libraries; what it starts may",
                    interpreter.display()
                ));
            }
        }
        Kind::Dynamic | Kind::Unknown => {}
    }
    warnings
}

/// Set-user-ID and set-group-ID matter if they change something, and if the file system heeds them.
fn is_privileged(file: &Path) -> bool {
    const SET_UID: u32 = 0o4000;
    const SET_GID_OF_EXECUTABLE: u32 = 0o2010;
    let Ok(meta) = fs::metadata(file) else { return false };
    let Ok(me) = fs::metadata("/proc/self") else { return false };
    let changes_user = meta.mode() & SET_UID != 0 && meta.uid() != me.uid();
    let changes_group =
        meta.mode() & SET_GID_OF_EXECUTABLE == SET_GID_OF_EXECUTABLE && meta.gid() != me.gid();
    changes_user || changes_group
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Dynamic,
    Static,
    OtherMachine,
    Script(PathBuf),
    Unknown,
}

/// Enough bytes of a file to see its headers: linkers put them first.
const HEAD_BYTES: u64 = 4096;

fn read_kind(file: &Path) -> Kind {
    let mut head = Vec::new();
    match File::open(file).map(|file| file.take(HEAD_BYTES).read_to_end(&mut head)) {
        Ok(Ok(_)) => kind(&head),
        _ => Kind::Unknown,
    }
}

/// Reads a script's first line or an ELF file's program headers.
fn kind(head: &[u8]) -> Kind {
    const PT_INTERP: u32 = 3;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(line.split(|byte| *byte == b'\n').next().unwrap_or_default());
        return line.split_whitespace().next().map_or(Kind::Unknown, |word| Kind::Script(word.into()));
    }
    if !head.starts_with(b"\x7fELF") || head.len() < 64 {
        return Kind::Unknown;
    }
    let ours = (cfg!(target_pointer_width = "64"), cfg!(target_endian = "little"));
    let machine: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    if (head[4] == 2, head[5] == 1) != ours || half(head, 18) != Some(machine) {
        return Kind::OtherMachine;
    }
    let (Some(size), Some(count)) = (half(head, 54), half(head, 56)) else { return Kind::Unknown };
    let Some(start) = head[32..40].first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) else {
        return Kind::Unknown;
    };
    for index in 0..u64::from(count) {
        let at = start.saturating_add(index * u64::from(size));
        let Some(kind) = usize::try_from(at).ok().and_then(|at| head.get(at..)?.first_chunk::<4>()) else {
            return Kind::Unknown;
        };
        // A dynamic section alone proves nothing: static position-independent executables have one.
        if u32::from_le_bytes(*kind) == PT_INTERP {
            return Kind::Dynamic;
        }
    }
    Kind::Static
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk::<2>().map(|pair| u16::from_le_bytes(*pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_where_a_shell_looks() {
        assert!(matches!(find("sh"), Found::Program(_)));
        assert_eq!(find("no-such-program-anywhere"), Found::Nothing);
        assert_eq!(find("/etc/passwd"), Found::NotExecutable("/etc/passwd".into()));
        assert_eq!(find("/etc"), Found::NotExecutable("/etc".into()));
    }

    #[test]
    fn tells_scripts_from_programs() {
        assert_eq!(kind(b"#! /bin/sh -e\necho"), Kind::Script("/bin/sh".into()));
        assert_eq!(kind(b"#!\n"), Kind::Unknown);
        assert_eq!(kind(b"\x7fELF"), Kind::Unknown);
        assert_eq!(kind(b""), Kind::Unknown);
    }

    #[test]
    fn sees_whether_a_program_asks_for_the_loader() {
        assert_eq!(read_kind(Path::new("/bin/sh")), Kind::Dynamic);
        let mut head = vec![0_u8; 64 + 56];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
        head[32] = 64;
        head[54] = 56;
        head[56] = 1;
        head[64] = 1;
        assert_eq!(kind(&head), Kind::Static);
        head[64] = 3;
        assert_eq!(kind(&head), Kind::Dynamic);
        head[18] = 40;
        assert_eq!(kind(&head), Kind::OtherMachine);
        head.truncate(65);
        head[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
        assert_eq!(kind(&head), Kind::Unknown);
    }
}
