//! Why a process has no part of an address.

use std::io;
use std::path::PathBuf;

/// Why no shard was had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There is no broker and none could be started; the text says why.
    #[error("{0}")]
    NoBroker(String),
    /// The program that would be the broker did not run.
    #[error("{}: {source}", program.display())]
    Start {
        /// What was to be run.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// As many processes as there are shards have the address.
    #[error("253 processes share it already, and no more can")]
    Full,
    /// It is of another release.
    #[error("processes of another version of Highwire share it: end them, or choose another address")]
    OtherVersion,
    /// The broker does not answer, or the system refused something.
    #[error("its broker does not answer: {0}")]
    Io(#[from] io::Error),
}
