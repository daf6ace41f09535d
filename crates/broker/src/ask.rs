//! One question to a broker, and its answer.

use super::protocol::{RECORD_BYTES_MAX, Reply, Request};
use super::sys;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// How long a broker may take to answer: it never waits itself.
pub(super) const PATIENCE_SECONDS: i64 = 10;

/// Asks a broker, and waits for its answer.
pub(super) fn exchange(connection: BorrowedFd<'_>, request: &Request) -> io::Result<(Reply, Vec<OwnedFd>)> {
    sys::send(connection, &request.encode(), &[])?;
    hear(connection)
}

/// The broker's next answer.
pub(super) fn hear(connection: BorrowedFd<'_>) -> io::Result<(Reply, Vec<OwnedFd>)> {
    let mut record = [0; RECORD_BYTES_MAX];
    let (len, fds) = sys::receive(connection, &mut record)?;
    if len == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    let reply = Reply::decode(&record[..len]).ok_or(io::ErrorKind::InvalidData)?;
    Ok((reply, fds))
}

/// Whether the error means that the other end is gone.
pub(super) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}
