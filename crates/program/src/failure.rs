//! The exit of the program after an error.

use std::fmt;
use std::process::ExitCode;

use crate::console::ReaderLeft;

/// A mistake of the user's; the message says what would be right.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.trim_end().trim_start_matches("error: "))
    }
}

impl std::error::Error for Usage {}

/// An error that ends the program with status 2.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

/// Prints `error`, unless only the reader went away, and returns the exit status.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if has_no_reader(error) {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {}", whole(error));
    if error.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Reads a command line as the program would, and does nothing with it.
///
/// # Errors
/// The program would not take it.
pub fn parse_only<Program: clap::Parser>(words: &[String]) -> anyhow::Result<ExitCode> {
    let program = std::iter::once("highwire".to_string());
    match Program::try_parse_from(program.chain(words.iter().cloned())) {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) if error.use_stderr() => Err(usage(error.to_string())),
        Err(_) => Ok(ExitCode::SUCCESS),
    }
}

/// The error and its causes, each once: many texts already end with the cause that is kept beside them.
fn whole(error: &anyhow::Error) -> String {
    let mut texts = error.chain().map(ToString::to_string);
    let first = texts.next().unwrap_or_default();
    texts.fold(first, |all, cause| if all.ends_with(&cause) { all } else { format!("{all}: {cause}") })
}

fn has_no_reader(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<ReaderLeft>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_cause_is_told_once() {
        let refused = || anyhow::Error::new(io::Error::from_raw_os_error(13));
        let cause = refused().to_string();
        assert_eq!(whole(&refused().context("cannot open it")), format!("cannot open it: {cause}"));
        let complete = refused().context(format!("cannot open it: {cause}")).context("no device");
        assert_eq!(whole(&complete), format!("no device: cannot open it: {cause}"));
    }

    #[test]
    fn a_reader_that_left_is_no_error() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let gone = crate::console::written(Err(broken())).unwrap_err();
        assert!(has_no_reader(&gone.context("writing the table")));
        assert!(!has_no_reader(&usage("no such thing")));
        assert!(!has_no_reader(&anyhow::Error::new(broken()).context("a peer does not listen")));
    }
}
