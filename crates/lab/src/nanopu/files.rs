//! Programs and recordings, from folders.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use highwire_nanopu::experiments::{ExperimentError, Files};
use highwire_riscv::Program;

/// Programs are built when a command first needs one.
pub(super) struct Folders {
    programs: PathBuf,
    recordings: Option<PathBuf>,
    built: OnceLock<Result<(), String>>,
}

impl Folders {
    pub(super) fn new(programs: &Path, recordings: Option<&Path>) -> Folders {
        Folders {
            programs: programs.to_path_buf(),
            recordings: recordings.map(Path::to_path_buf),
            built: OnceLock::new(),
        }
    }

    fn build(&self) -> Result<(), String> {
        let folder = self.programs.display();
        if !self.programs.join("Makefile").exists() {
            return Err(format!(
                "{folder} has no Makefile: --programs names the folder riscv of the repository"
            ));
        }
        let output = Command::new("make").arg("-s").arg("-C").arg(&self.programs).output();
        let output = output.map_err(|error| format!("cannot run make: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let is_missing = text.contains("riscv64-unknown-elf-gcc")
            && (text.contains("not found") || text.contains("No such file"));
        Err(match is_missing {
            true => format!(
                "make -C {folder} needs riscv64-unknown-elf-gcc; on Debian: apt-get install gcc-riscv64-unknown-elf"
            ),
            false => format!("make -C {folder} failed:\n{}", text.trim_end()),
        })
    }
}

impl Files for Folders {
    fn program(&self, name: &str) -> Result<Program, ExperimentError> {
        let fail = |reason: String| ExperimentError::NoProgram(name.to_string(), reason);
        self.built.get_or_init(|| self.build()).clone().map_err(fail)?;
        let path = self.programs.join("build").join(format!("{name}.elf"));
        let bytes = std::fs::read(&path).map_err(|error| fail(format!("{}: {error}", path.display())))?;
        Program::parse(&bytes).map_err(|error| fail(error.to_string()))
    }

    fn recording(&self, path: &str) -> Option<String> {
        let path = self.recordings.as_ref()?.join(path);
        let mut text = String::new();
        match std::fs::read_to_string(&path) {
            Ok(text) => return Some(text),
            Err(_) => {
                let packed = std::fs::File::open(format!("{}.gz", path.display())).ok()?;
                flate2::read::GzDecoder::new(packed).read_to_string(&mut text).ok()?;
            }
        }
        Some(text)
    }
}
