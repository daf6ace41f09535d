//! Why a process gets no part of an address.

use std::io;
use std::path::PathBuf;

/// Why a process got no shard.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There is no broker and none could be started; the text says why.
    #[error("{0}")]
    NoBroker(String),
    /// The broker's program did not run.
    #[error("{}: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Every shard of the address has a process.
    #[error("253 processes share it already, and no more can")]
    Full,
    /// The broker is of another release.
    #[error("processes of another version of Highwire share it: end them, or choose another address")]
    OtherVersion,
    /// The broker does not answer, or the system refused something.
    #[error("its broker does not answer: {0}")]
    Io(#[from] io::Error),
}
