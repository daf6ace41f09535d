//! A connection whose other end must not keep this one waiting for ever: silent between messages for as long as it may be idle, and
//! within one no slower than a slow network.
//!
//! All connections are served by one thread, so nothing here blocks: what cannot go on gives the thread to the others.

use rustls::ServerConnection;
use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::io::{self, Read as _, Write as _};
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
    tls: Option<Box<Sealed>>,
}

/// What TLS adds to a connection.
#[derive(Debug)]
struct Sealed {
    connection: ServerConnection,
    /// Bytes that have come and were not asked for yet.
    plain: Vec<u8>,
    /// The grace of a message is the handshake's, because nothing else has begun.
    is_pace_of_handshake: bool,
}

impl Sealed {
    /// Takes bytes from the network.
    fn feed(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.connection.read_tls(&mut bytes)? == 0 {
                break;
            }
            let state = self.connection.process_new_packets();
            let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let start = self.plain.len();
            self.plain.resize(start + state.plaintext_bytes_to_read(), 0);
            self.connection.reader().read_exact(&mut self.plain[start..])?;
            if state.peer_has_closed() {
                break;
            }
        }
        Ok(())
    }

    /// Bytes for the network.
    fn drain(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut bytes)?;
        }
        Ok(bytes)
    }
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    In,
    Out,
}

impl PacedStream {
    pub(crate) fn new(stream: TcpStream, patience: Patience) -> PacedStream {
        PacedStream { stream, patience, input: Pace::default(), timer: None, ended: None, tls: None }
    }

    /// Speaks TLS from now on, which is from the begin. The handshake takes no longer than a message may.
    pub(crate) fn seal(&mut self, mut connection: ServerConnection) {
        // What is written is taken out at once.
        connection.set_buffer_limit(None);
        let sealed = Sealed { connection, plain: Vec::new(), is_pace_of_handshake: false };
        self.tls = Some(Box::new(sealed));
    }

    /// Waits for the end of the handshake of TLS, if there is one.
    ///
    /// # Errors
    /// As [`PacedStream::read`].
    pub(crate) async fn handshake(&mut self) -> io::Result<()> {
        while self.tls.as_ref().is_some_and(|tls| tls.connection.is_handshaking()) {
            if self.read_sealed().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Reads what there is of TLS; 0: the end.
    async fn read_sealed(&mut self) -> io::Result<usize> {
        let Some(mut tls) = self.tls.take() else { return Ok(0) };
        if tls.connection.is_handshaking() && self.input.begun.is_none() {
            self.begin();
            tls.is_pace_of_handshake = true;
        }
        let mut fed = Ok(());
        let length = self.read_plain(|bytes| fed = tls.feed(bytes)).await;
        // Also after an error: it may have words for the other end.
        let answer = tls.drain();
        if !tls.connection.is_handshaking()
            && std::mem::take(&mut tls.is_pace_of_handshake)
            && tls.plain.is_empty()
        {
            self.rest();
        }
        self.tls = Some(tls);
        let length = length?;
        let written = self.write_plain(&answer?, &mut Pace::default()).await;
        fed?;
        written?;
        Ok(length)
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
        if self.tls.is_none() {
            return self.read_plain(take).await;
        }
        loop {
            if let Some(tls) = self.tls.as_mut().filter(|tls| !tls.plain.is_empty()) {
                let plain = std::mem::take(&mut tls.plain);
                take(&plain);
                return Ok(plain.len());
            }
            if self.read_sealed().await? == 0 {
                return Ok(0);
            }
        }
    }

    /// Waits until something may have come. It can be given up at any moment.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        if self.tls.as_ref().is_some_and(|tls| !tls.plain.is_empty()) {
            return Ok(());
        }
        poll_fn(|cx| self.stream.poll_read_ready(cx)).await
    }

    /// Reads what has come, and does not wait for more; `None`: nothing has. Between requests, the other end may be silent for ever.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) async fn read_come(&mut self, take: impl FnOnce(&[u8])) -> io::Result<Option<usize>> {
        let Some(mut tls) = self.tls.take() else {
            return PORTION.with_borrow_mut(|portion| come(&self.stream, portion, take));
        };
        let mut result = Ok(None);
        if tls.plain.is_empty() {
            let mut fed = Ok(());
            result =
                PORTION.with_borrow_mut(|portion| come(&self.stream, portion, |bytes| fed = tls.feed(bytes)));
            result = fed.and(result);
        }
        let answer = tls.drain();
        let plain = std::mem::take(&mut tls.plain);
        self.tls = Some(tls);
        let result = result?;
        self.write_plain(&answer?, &mut Pace::default()).await?;
        if plain.is_empty() {
            return Ok(result.filter(|&length| length == 0));
        }
        take(&plain);
        Ok(Some(plain.len()))
    }

    async fn read_plain(&mut self, take: impl FnOnce(&[u8])) -> io::Result<usize> {
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
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.tls.is_none() {
            return self.write_plain(bytes, &mut Pace::default()).await;
        }
        self.handshake().await?;
        let mut pace = Pace::default();
        for piece in bytes.chunks(PIECE_BYTES) {
            let Some(tls) = &mut self.tls else { break };
            tls.connection.writer().write_all(piece)?;
            let sealed = tls.drain()?;
            self.write_plain(&sealed, &mut pace).await?;
        }
        Ok(())
    }

    async fn write_plain(&mut self, mut bytes: &[u8], pace: &mut Pace) -> io::Result<()> {
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
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
            if let Ok(words) = tls.drain() {
                let _ = self.write_plain(&words, &mut Pace::default()).await;
            }
        }
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

/// Reads what a socket has; `None`: nothing.
fn come(stream: &TcpStream, portion: &mut [u8], take: impl FnOnce(&[u8])) -> io::Result<Option<usize>> {
    match stream.try_read(portion) {
        Ok(length) => {
            take(&portion[..length]);
            Ok(Some(length))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
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
