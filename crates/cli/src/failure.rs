//! How the program ends when it did not work.

use std::fmt;
use std::process::ExitCode;

use crate::console::ReaderLeft;

/// The user asked for something that makes no sense; the message says what would.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.trim_end().trim_start_matches("error: "))
    }
}

impl std::error::Error for Usage {}

/// An error that ends the program with status 2.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

/// Prints `error`, unless it is only that the reader went away, and returns the exit status.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if has_no_reader(error) {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {error:#}");
    if error.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

fn has_no_reader(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<ReaderLeft>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_reader_that_left_is_no_error() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let gone = crate::console::written(Err(broken())).unwrap_err();
        assert!(has_no_reader(&gone.context("writing the table")));
        assert!(!has_no_reader(&usage("no such thing")));
        assert!(!has_no_reader(&anyhow::Error::new(broken()).context("a peer does not listen")));
    }
}
