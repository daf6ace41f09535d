//! A connection whose other end must not keep this one waiting for ever: silent between messages for as long as it may be idle, and
//! within one no slower than a slow network.
//!
//! All connections are served by one thread, so nothing here blocks: what cannot go on gives the thread to the others.

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// Within a message, besides a grace at its begin.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;
/// What is written with one call: less than takes longer than the grace.
const PIECE_BYTES: usize = 64 << 10;
/// What is read with one call.
const PORTION_BYTES: usize = 64 << 10;

thread_local! {
    /// One buffer for all connections of the thread: none of them holds one while it waits.
    static PORTION: RefCell<Box<[u8]>> = RefCell::new(vec![0; PORTION_BYTES].into());
}

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

/// A connection that reads and writes messages.
#[derive(Debug)]
pub(crate) struct PacedStream {
    stream: TcpStream,
    patience: Patience,
    input: Pace,
    /// It is set anew only when it ends: a busy connection does not move it with every message.
    timer: Option<Pin<Box<Sleep>>>,
    /// Why this node ends the connection.
    pub(crate) ended: Option<TooLong>,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    In,
    Out,
}

impl PacedStream {
    pub(crate) fn new(stream: TcpStream, patience: Patience) -> PacedStream {
        PacedStream { stream, patience, input: Pace::default(), timer: None, ended: None }
    }

    /// The next message has not begun.
    pub(crate) fn rest(&mut self) {
        self.input = Pace::default();
    }

    /// The next message begins now, or has begun with what was read.
    pub(crate) fn begin(&mut self) {
        self.input = Pace { begun: Some(Instant::now()), bytes: 0 };
    }

    pub(crate) fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// From now on the other end may be silent between messages: the socket finds out whether it is there.
    pub(crate) fn may_be_idle(&mut self) {
        self.patience.idle = None;
    }

    /// Reads what there is, and waits if there is nothing; `take` gets the bytes. Returns their number: 0 at the end.
    ///
    /// # Errors
    /// The connection's, or the other end has kept this one waiting for too long.
    pub(crate) async fn read(&mut self, take: impl FnOnce(&[u8])) -> io::Result<usize> {
        let is_within = self.input.begun.is_some();
        let timeout = if is_within { Some(self.patience.slow) } else { self.patience.idle };
        if self.input.is_too_slow(self.patience.slow) {
            return Err(self.end(TooLong::Slow));
        }
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let length = loop {
            if !self.ready(Direction::In, deadline).await? {
                return Err(self.end(if is_within { TooLong::Slow } else { TooLong::Idle }));
            }
            let read = PORTION.with_borrow_mut(|portion| self.stream.try_read(portion));
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => break read?,
            }
        };
        PORTION.with_borrow(|portion| take(&portion[..length]));
        if !is_within {
            self.begin();
        }
        self.input.bytes += length as u64;
        Ok(length)
    }

    /// Writes a message.
    ///
    /// # Errors
    /// As [`PacedStream::read`].
    pub(crate) async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut pace = Pace::default();
        while !bytes.is_empty() {
            match self.stream.try_write(&bytes[..bytes.len().min(PIECE_BYTES)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => {
                    bytes = &bytes[length..];
                    pace.bytes += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let now = Instant::now();
                    pace.begun.get_or_insert(now);
                    if pace.is_too_slow(self.patience.slow)
                        || !self.ready(Direction::Out, Some(now + self.patience.slow)).await?
                    {
                        return Err(self.end(TooLong::Slow));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends a conversation so that the other side can read the last words: what it has sent meanwhile must be taken, or the
    /// connection is reset.
    pub(crate) async fn part(&mut self, patience: Duration, bytes_max: u64) {
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write);
        let deadline = Instant::now() + patience;
        let mut taken = 0;
        while Instant::now() < deadline && taken <= bytes_max {
            if !matches!(self.ready(Direction::In, Some(deadline)).await, Ok(true)) {
                return;
            }
            match PORTION.with_borrow_mut(|portion| self.stream.try_read(portion)) {
                Ok(length @ 1..) => taken += length as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }

    fn end(&mut self, why: TooLong) -> io::Error {
        self.ended = Some(why);
        io::ErrorKind::TimedOut.into()
    }

    /// Waits until the socket can go on; `false`: the deadline has passed before.
    async fn ready(&mut self, direction: Direction, deadline: Option<Instant>) -> io::Result<bool> {
        let PacedStream { stream, timer, .. } = self;
        poll_fn(|cx| {
            let is_ready = match direction {
                Direction::In => stream.poll_read_ready(cx),
                Direction::Out => stream.poll_write_ready(cx),
            };
            match (is_ready, deadline) {
                (Poll::Ready(result), _) => Poll::Ready(result.map(|()| true)),
                (Poll::Pending, Some(deadline)) => poll_deadline(timer, deadline, cx).map(|()| Ok(false)),
                (Poll::Pending, None) => Poll::Pending,
            }
        })
        .await
    }
}

fn poll_deadline(timer: &mut Option<Pin<Box<Sleep>>>, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
    if timer.deadline() > deadline {
        timer.as_mut().reset(deadline);
    }
    loop {
        ready!(timer.as_mut().poll(cx));
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        // It was set for an earlier wait.
        timer.as_mut().reset(deadline);
    }
}
