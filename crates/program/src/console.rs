//! The output for the user: text or JSON on the standard output, colours only on a terminal.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

/// The standard output of one command.
pub struct Console {
    out: io::BufWriter<io::Stdout>,
    colour: bool,
}

/// The available colours, by meaning.
#[derive(Debug, Clone, Copy)]
pub enum Tone {
    /// What is as it should be.
    Good,
    /// What is not.
    Bad,
    /// What stands above other lines.
    Heading,
    /// What matters least.
    Faint,
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

impl Console {
    /// An empty output; coloured on a terminal, unless `NO_COLOR` is set.
    pub fn new() -> Self {
        let out = io::stdout();
        let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { out: io::BufWriter::new(out), colour }
    }

    /// A line of text.
    pub fn line(&mut self, text: impl std::fmt::Display) -> Result<()> {
        written(writeln!(self.out, "{text}"))
    }

    /// Bytes as they are, and the end of the line.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        written(self.out.write_all(bytes))?;
        written(writeln!(self.out))
    }

    /// One JSON document, indented, on the standard output.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        written(serde_json::to_writer_pretty(&mut self.out, value).map_err(io::Error::from))?;
        written(writeln!(self.out))
    }

    /// One JSON document on one line: for commands whose output is a sequence.
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<()> {
        written(serde_json::to_writer(&mut self.out, value).map_err(io::Error::from))?;
        written(writeln!(self.out))
    }

    /// `text` in the colour of `tone`, where there are colours.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "31;1",
            Tone::Heading => "1",
            Tone::Faint => "2",
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Writes the buffered rest; a command calls it last, so that a write error is not lost.
    pub fn finish(mut self) -> Result<()> {
        written(self.out.flush())
    }
}

/// A command's whole output: a JSON document, or what `table` prints.
pub fn show(
    is_json: bool,
    value: &impl Serialize,
    table: impl FnOnce(&mut Console) -> Result<()>,
) -> Result<ExitCode> {
    let mut console = Console::new();
    if is_json {
        console.json(value)?
    } else {
        table(&mut console)?
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The result of writing to the user's output.
pub fn written(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderLeft(error).into()),
        other => Ok(other?),
    }
}

/// The reader of the standard output has gone, which ends a command but is no failure. For other pipes and
/// sockets it is one.
#[derive(Debug)]
pub struct ReaderLeft(io::Error);

impl std::fmt::Display for ReaderLeft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the standard output: {}", self.0)
    }
}

impl std::error::Error for ReaderLeft {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reader_can_leave() {
        let failed = |kind: io::ErrorKind| written(Err(kind.into())).unwrap_err();
        assert!(failed(io::ErrorKind::BrokenPipe).is::<ReaderLeft>());
        assert!(!failed(io::ErrorKind::StorageFull).is::<ReaderLeft>());
        assert!(written(Ok(())).is_ok());
    }
}
