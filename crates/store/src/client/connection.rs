//! The connection to a node, and how a question finds one that answers.

use super::backoff::Backoff;
use super::line::{self, Line};
use super::stream::Stream;
use super::{AsyncClient, Counts, Transport, unexpected};
use crate::access::{Access, End, NodeKey, random};
use crate::error::StoreError;
use crate::message::{Answer, GREETING, Request, receive, send};
use std::fmt;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// How long a node may take to let a client in.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// How long a node may take to answer unless set: longer than the node's own patience with a transaction.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(8);
/// After this many refusals by all nodes, a client believes that there is no store.
const NOBODY: usize = 12;
/// After so long without a question, the node may have ended the connection.
const IDLE: Duration = Duration::from_secs(1);
const PORTION_BYTES: usize = 64 << 10;

/// The node to which a client talks now, and how it got there.
#[derive(Debug)]
pub(super) struct State {
    pub(super) next: usize,
    stream: Option<BufReader<Stream>>,
    /// The way by RPCs to the same node. It ends with the connection.
    pub(super) line: Option<Line>,
    pub(super) backoff: Backoff,
    /// When the connection was used last.
    used: Instant,
    pub(super) counts: Counts,
}

impl AsyncClient {
    /// Asks a question that changes nothing, so that it can be asked again elsewhere.
    pub(super) async fn ask(&self, request: &Request) -> Result<Answer, StoreError> {
        let deadline = Instant::now() + self.patience;
        loop {
            self.connect(deadline)?;
            match self.exchange(request).await {
                // The node ends. Nothing was changed by this question, so nothing about it is unknown.
                Ok(Answer::Failed(StoreError::Unknown(why))) => {
                    return Ok(Answer::Failed(StoreError::Unavailable(why)));
                }
                Ok(Answer::Refused { why }) => self.state.borrow_mut().refused(&why, deadline)?,
                Ok(answer) => return Ok(answer),
                Err(error) if Instant::now() >= deadline => {
                    return Err(StoreError::Unavailable(format!("the connection was lost: {error}")));
                }
                Err(_) => {}
            }
        }
    }

    /// Asks one node for what it must not do twice, and what no other node may do in its place.
    pub(super) async fn tell(&self, request: &Request) -> Result<Answer, StoreError> {
        let deadline = Instant::now() + self.patience;
        loop {
            self.state.borrow_mut().leave_what_has_ended();
            self.connect(deadline)?;
            // It may have arrived before the connection was lost.
            match self.exchange(request).await.map_err(lost)? {
                // The node has not read the request.
                Answer::Refused { why } => self.state.borrow_mut().refused(&why, deadline)?,
                answer => return Ok(answer),
            }
        }
    }

    pub(super) async fn commit(&self, request: &Request) -> Result<(), StoreError> {
        match self.tell(request).await? {
            Answer::Committed => Ok(()),
            answer => Err(unexpected(answer)),
        }
    }

    /// Asks a node once. If that node cannot serve, the next question goes to another one.
    pub(super) async fn ask_once(&self, request: &Request) -> Result<Answer, StoreError> {
        self.connect(Instant::now() + self.patience)?;
        let answer = self.exchange(request).await;
        match answer {
            Ok(Answer::Failed(StoreError::Unavailable(_))) => self.state.borrow_mut().go_elsewhere(),
            Ok(Answer::Refused { why }) => {
                self.state.borrow_mut().go_elsewhere();
                return Err(StoreError::Unavailable(why));
            }
            _ => {}
        }
        answer.map_err(lost)
    }

    async fn exchange(&self, request: &Request) -> io::Result<Answer> {
        let line = self.state.borrow().line.clone();
        let (result, is_current) = match line.as_ref().zip(line::to_bytes(request)) {
            Some((line, bytes)) => {
                let answer = line.ask(bytes, self.answer_patience).await;
                let is_current = self.state.borrow().line.as_ref() == Some(line);
                match answer {
                    Ok(Answer::TooLong) if is_current => (self.state.borrow_mut().ask(request), true),
                    answer => (answer, is_current),
                }
            }
            None => (self.state.borrow_mut().ask(request), true),
        };
        let mut state = self.state.borrow_mut();
        match &result {
            Ok(Answer::Refused { .. }) => {}
            Ok(_) => state.backoff.has_worked(),
            // Another question has noticed the same.
            Err(_) if !is_current => {}
            Err(_) => {
                // The next question goes elsewhere: a stopped process still accepts connections.
                state.go_elsewhere();
                state.counts.reconnects += 1;
                state.backoff.has_failed();
            }
        }
        state.used = Instant::now();
        result
    }

    /// Finds a node that lets this client in: tries each in turn, the last one used first. Once every door has failed, each further attempt
    /// waits first.
    fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        let mut errors = Vec::new();
        let state = &mut *self.state.borrow_mut();
        if state.line.as_ref().is_some_and(|line| !line.is_of_this_thread()) {
            state.leave();
        }
        while state.stream.is_none() {
            if self.doors.is_empty() {
                return Err(StoreError::Unavailable("the client knows no node".into()));
            }
            if let Some(pause) = state.backoff.pause(self.doors.len()) {
                state.counts.pauses += 1;
                std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
            }
            let door = &self.doors[state.next % self.doors.len()];
            match self.enter(door) {
                Ok((stream, line)) => (state.stream, state.line) = (Some(stream), line),
                // Another node has the same users.
                Err(EntryError::Failed(error @ (StoreError::Denied(_) | StoreError::Invalid(_)))) => {
                    return Err(error);
                }
                Err(error) => {
                    errors.push(format!("{door}: {error}"));
                    state.next += 1;
                    state.backoff.has_failed();
                    let is_over = Instant::now() >= deadline || errors.len() >= NOBODY.max(self.doors.len());
                    if errors.len() >= self.doors.len() && is_over {
                        errors.truncate(self.doors.len());
                        let what = format!("no node lets a client in ({})", errors.join("; "));
                        return Err(StoreError::Unavailable(what));
                    }
                }
            }
        }
        Ok(())
    }

    /// Connects to a node, and by RPCs as well if this client's questions travel so.
    fn enter(&self, door: &str) -> Result<(BufReader<Stream>, Option<Line>), EntryError> {
        let mut stream = enter(door, &self.access, self.answer_patience)?;
        if self.transport == Transport::Tcp {
            return Ok((stream, None));
        }
        match ask_at(&mut stream, &Request::Reach)? {
            Answer::Reached(ticket) => {
                let line = Line::open(&ticket, stream.get_ref().socket())?;
                Ok((stream, Some(line)))
            }
            answer => Err(EntryError::of(answer)),
        }
    }
}

impl State {
    pub(super) fn new(backoff: Backoff) -> State {
        State { next: 0, stream: None, line: None, backoff, used: Instant::now(), counts: Counts::default() }
    }

    /// Asks on the connection.
    fn ask(&mut self, request: &Request) -> io::Result<Answer> {
        match &mut self.stream {
            Some(stream) => ask_at(stream, request),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Leaves the node; returns whether there was one.
    pub(super) fn leave(&mut self) -> bool {
        self.line = None;
        self.stream.take().is_some()
    }

    fn go_elsewhere(&mut self) {
        self.leave();
        self.next += 1;
    }

    /// A door has too many clients; another may not.
    fn refused(&mut self, why: &str, deadline: Instant) -> Result<(), StoreError> {
        self.go_elsewhere();
        self.counts.reconnects += 1;
        self.backoff.has_failed();
        match Instant::now() < deadline {
            true => Ok(()),
            false => Err(StoreError::Unavailable(why.into())),
        }
    }

    /// A node ends connections that are idle for long. What is said once must not be said to one that has ended, since it would not be
    /// known whether it was heard.
    fn leave_what_has_ended(&mut self) {
        let is_idle = self.used.elapsed() >= IDLE;
        if is_idle && self.stream.as_ref().is_some_and(|stream| has_ended(stream.get_ref().socket())) {
            self.leave();
        }
    }
}

/// Whether the other end of a connection on which nothing is awaited has ended it.
pub(super) fn has_ended(stream: &TcpStream) -> bool {
    let looks = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let is_open = matches!(&looks, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    stream.set_nonblocking(false).is_err() || !is_open
}

/// The answer. A node that does not let a client in says so before it ends the connection, perhaps before it has been asked.
fn ask_at(stream: &mut BufReader<Stream>, request: &Request) -> io::Result<Answer> {
    let mut writer = BufWriter::with_capacity(PORTION_BYTES, stream.get_mut());
    let sent = send(&mut writer, request);
    // What could not be written must not be written when this ends.
    drop(writer.into_parts());
    match sent {
        Ok(()) => receive(stream),
        Err(error) => match receive(stream) {
            Ok(refused @ (Answer::Refused { .. } | Answer::Failed(StoreError::Invalid(_)))) => Ok(refused),
            _ => Err(error),
        },
    }
}

/// A conversation with one node, for questions that only this node can answer.
#[derive(Debug)]
pub(crate) struct Conversation {
    stream: BufReader<Stream>,
}

impl Conversation {
    pub(crate) fn enter(door: &str, access: &Access) -> Result<Conversation, EntryError> {
        Ok(Conversation { stream: enter(door, access, ANSWER_PATIENCE)? })
    }

    /// From now on the other end may be silent.
    pub(crate) fn wait_for_ever(&self) -> io::Result<()> {
        self.stream.get_ref().socket().set_read_timeout(None)
    }

    pub(crate) fn tell(&mut self, request: &Request) -> io::Result<()> {
        send(&mut BufWriter::with_capacity(PORTION_BYTES, self.stream.get_mut()), request)
    }

    pub(crate) fn hear(&mut self) -> io::Result<Answer> {
        receive(&mut self.stream)
    }
}

/// Why a node did not let a client in.
#[derive(Debug)]
pub(crate) enum EntryError {
    Io(io::Error),
    /// It has too many clients, or lets none in from here.
    Refused(String),
    /// It answered with this.
    Failed(StoreError),
}

impl From<io::Error> for EntryError {
    fn from(error: io::Error) -> EntryError {
        EntryError::Io(error)
    }
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryError::Io(error) => error.fmt(f),
            EntryError::Refused(why) => f.write_str(why),
            EntryError::Failed(error) => error.fmt(f),
        }
    }
}

impl EntryError {
    /// Of an answer that lets nobody in.
    fn of(answer: Answer) -> EntryError {
        match answer {
            Answer::Refused { why } => EntryError::Refused(why),
            answer => EntryError::Failed(unexpected(answer)),
        }
    }
}

/// Connects, and shows who the client is.
fn enter(door: &str, access: &Access, patience: Duration) -> Result<BufReader<Stream>, EntryError> {
    let mut stream = connect(door, access, patience)?;
    if let Some(key) = &access.node {
        prove(&mut stream, key)?;
    }
    if let Some((user, password)) = &access.user {
        let request = Request::Authenticate { user: user.clone(), password: password.clone() };
        match ask_at(&mut stream, &request)? {
            Answer::Welcome => {}
            answer => return Err(EntryError::of(answer)),
        }
    }
    Ok(stream)
}

/// Shows that this is a node of the cluster, once the other end has shown the same.
fn prove(stream: &mut BufReader<Stream>, key: &NodeKey) -> Result<(), EntryError> {
    let nonce = random()?;
    let theirs = match ask_at(stream, &Request::Challenge { nonce })? {
        Answer::Challenged { nonce: theirs, proof }
            if key.is_proved(End::Answers, &nonce, &theirs, proof) =>
        {
            theirs
        }
        Answer::Challenged { .. } => {
            let why = "the other end does not know the secret of this cluster";
            return Err(EntryError::Failed(StoreError::Denied(why.into())));
        }
        answer => return Err(EntryError::of(answer)),
    };
    match ask_at(stream, &Request::Prove { proof: key.prove(End::Asks, &nonce, &theirs) })? {
        Answer::Welcome => Ok(()),
        answer => Err(EntryError::of(answer)),
    }
}

fn connect(door: &str, access: &Access, patience: Duration) -> io::Result<BufReader<Stream>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for address in door.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(patience))?;
                let mut stream = Stream::new(socket, door, access)?;
                stream.write_all(&GREETING)?;
                return Ok(BufReader::new(stream));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn lost(error: io::Error) -> StoreError {
    StoreError::Unknown(format!("the connection was lost: {error}"))
}
