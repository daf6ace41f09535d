//! A connection whose other end must not keep this one waiting for ever: silent between messages for as long as it may be idle, and
//! within one no slower than a slow network.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Within a message, besides a grace at its begin.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;
/// What is written with one call: less than takes longer than the grace.
const PIECE_BYTES: usize = 64 << 10;

/// How long a connection may do nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Between messages; `None`: for ever.
    pub(crate) idle: Option<Duration>,
    /// The grace within a message.
    pub(crate) slow: Duration,
}

/// Why a connection has ended, if this node has ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooLong {
    Idle,
    Slow,
}

/// One direction of a message under way.
#[derive(Debug, Default)]
struct Pace {
    begun: Option<Instant>,
    bytes: u64,
}

impl Pace {
    fn is_too_slow(&self, grace: Duration) -> bool {
        let allowed = grace + Duration::from_secs(self.bytes / BYTES_PER_SECOND_MIN);
        self.begun.is_some_and(|begun| begun.elapsed() > allowed)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Reads messages.
#[derive(Debug)]
pub(crate) struct Inlet {
    stream: TcpStream,
    patience: Patience,
    /// What the socket was told last.
    timeout: Option<Option<Duration>>,
    pace: Pace,
    pub(crate) ended: Option<TooLong>,
}

impl Inlet {
    pub(crate) fn new(stream: TcpStream, patience: Patience) -> Inlet {
        Inlet { stream, patience, timeout: None, pace: Pace::default(), ended: None }
    }

    /// The next message has not begun.
    pub(crate) fn rest(&mut self) {
        self.pace = Pace::default();
    }

    /// The next message begins now, or has begun with what was read.
    pub(crate) fn begin(&mut self) {
        self.pace = Pace { begun: Some(Instant::now()), bytes: 0 };
    }

    /// From now on the other end may be silent between messages: the socket finds out whether it is there.
    pub(crate) fn may_be_idle(&mut self) {
        self.patience.idle = None;
    }
}

impl Read for Inlet {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let is_within = self.pace.begun.is_some();
        let timeout = if is_within { Some(self.patience.slow) } else { self.patience.idle };
        if self.timeout != Some(timeout) {
            self.stream.set_read_timeout(timeout)?;
            self.timeout = Some(timeout);
        }
        if self.pace.is_too_slow(self.patience.slow) {
            self.ended = Some(TooLong::Slow);
            return Err(io::ErrorKind::TimedOut.into());
        }
        let length = self.stream.read(buffer).inspect_err(|error| {
            if is_timeout(error) {
                self.ended = Some(if is_within { TooLong::Slow } else { TooLong::Idle });
            }
        })?;
        if !is_within {
            self.begin();
        }
        self.pace.bytes += length as u64;
        Ok(length)
    }
}

/// Writes messages; each ends with a flush.
#[derive(Debug)]
pub(crate) struct Outlet {
    stream: TcpStream,
    slow: Duration,
    pace: Pace,
    pub(crate) ended: Option<TooLong>,
}

impl Outlet {
    pub(crate) fn new(stream: TcpStream, patience: Patience) -> io::Result<Outlet> {
        stream.set_write_timeout(Some(patience.slow))?;
        Ok(Outlet { stream, slow: patience.slow, pace: Pace::default(), ended: None })
    }
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pace.begun.get_or_insert_with(Instant::now);
        if self.pace.is_too_slow(self.slow) {
            self.ended = Some(TooLong::Slow);
            return Err(io::ErrorKind::TimedOut.into());
        }
        let length = self.stream.write(&bytes[..bytes.len().min(PIECE_BYTES)]).inspect_err(|error| {
            if is_timeout(error) {
                self.ended = Some(TooLong::Slow);
            }
        })?;
        self.pace.bytes += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pace = Pace::default();
        Ok(())
    }
}
