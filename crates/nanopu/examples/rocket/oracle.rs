//! A program on Rocket's RTL, by its commit log.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::here::{BASE, Image};

/// One line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) cycle: u64,
    pub(crate) pc: u64,
    /// The integer register that the commit wrote, unless the result came later.
    pub(crate) write: Option<(u8, u64)>,
    /// The integer registers that it read; register 0 if none.
    pub(crate) reads: [(u8, u64); 2],
}

/// A run of the RTL.
pub(crate) struct Oracle {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    image: PathBuf,
}

impl Oracle {
    /// Starts the simulator at `path` with `image`.
    pub(crate) fn start(path: &str, image: &Image) -> Result<Oracle, String> {
        let name = format!("rocket-{}-{}.bin", std::process::id(), image.name);
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, &image.bytes).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut child = Command::new(path)
            .arg(format!("+image={}", file.display()))
            .args(["+latency=40", "+cycles=1000000000"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{path}: {error}"))?;
        let stderr = child.stderr.take().ok_or("no log")?;
        Ok(Oracle { child, lines: BufReader::new(stderr).lines(), image: file })
    }

    /// The next commit of the program itself; nothing at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Line>, String> {
        for line in self.lines.by_ref() {
            let line = line.map_err(|error| error.to_string())?;
            if let Some(line) = parse(&line).filter(|line| line.pc >= BASE) {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.image);
    }
}

/// `C0:  86 [1] pc=[…] W[r 5=…][1] R[r 0=…] R[r 0=…] inst=[…] …`
fn parse(text: &str) -> Option<Line> {
    let (cycle, rest) = text.strip_prefix("C0:")?.split_once('[')?;
    let rest = rest.strip_prefix("1]")?;
    let (pc, rest) = rest.strip_prefix(" pc=[")?.split_once(']')?;
    let (write, rest) = rest.strip_prefix(" W[r")?.split_once(']')?;
    let (writes, rest) = rest.strip_prefix('[')?.split_once(']')?;
    let (first, rest) = rest.strip_prefix(" R[r")?.split_once(']')?;
    let (second, _) = rest.strip_prefix(" R[r")?.split_once(']')?;
    let register = |text: &str| {
        let (number, value) = text.split_once('=')?;
        Some((number.trim().parse::<u8>().ok()?, u64::from_str_radix(value, 16).ok()?))
    };
    let write = register(write)?;
    Some(Line {
        cycle: cycle.trim().parse().ok()?,
        pc: u64::from_str_radix(pc, 16).ok()?,
        write: (writes == "1" && write.0 != 0).then_some(write),
        reads: [register(first)?, register(second)?],
    })
}
