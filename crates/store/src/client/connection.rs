//! The connection to a node, and how a question finds one that answers.

use super::{Client, unexpected};
use crate::error::StoreError;
use crate::message::{Answer, GREETING, Request, receive, send};
use std::io::{self, BufReader, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// How long a node may take to let a client in.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// How long a node may take to answer unless set: longer than the node's own patience with a transaction.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(8);
/// After this many refusals by all nodes, a client believes that there is no store.
const NOBODY: usize = 9;

impl Client {
    /// Asks a question that changes nothing, so that it can be asked again elsewhere.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Answer, StoreError> {
        let deadline = Instant::now() + self.patience;
        loop {
            self.connect(deadline)?;
            match self.exchange(request) {
                // The node ends. Nothing was changed by this question, so nothing about it is unknown.
                Ok(Answer::Failed(StoreError::Unknown(why))) => {
                    return Ok(Answer::Failed(StoreError::Unavailable(why)));
                }
                Ok(answer) => return Ok(answer),
                Err(error) if Instant::now() >= deadline => {
                    return Err(StoreError::Unavailable(format!("the connection was lost: {error}")));
                }
                Err(_) => {}
            }
        }
    }

    /// Asks one node for what it must not do twice, and what no other node may do in its place.
    pub(super) fn tell(&mut self, request: &Request) -> Result<Answer, StoreError> {
        self.connect(Instant::now() + self.patience)?;
        // It may have arrived before the connection was lost.
        self.exchange(request).map_err(lost)
    }

    pub(super) fn commit(&mut self, request: &Request) -> Result<(), StoreError> {
        match self.tell(request)? {
            Answer::Committed => Ok(()),
            answer => Err(unexpected(answer)),
        }
    }

    /// Asks a node once. If that node cannot serve, the next question goes to another one.
    pub(crate) fn ask_once(&mut self, request: &Request) -> Result<Answer, StoreError> {
        self.connect(Instant::now() + self.patience)?;
        let answer = self.exchange(request);
        if matches!(answer, Ok(Answer::Failed(StoreError::Unavailable(_)))) {
            self.stream = None;
            self.next += 1;
        }
        answer.map_err(lost)
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Answer> {
        let result = match &mut self.stream {
            Some(stream) => send(stream.get_mut(), request).and_then(|()| receive(stream)),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        if result.is_err() {
            // The next question goes elsewhere: a stopped process still accepts connections.
            self.stream = None;
            self.next += 1;
            self.counts.reconnects += 1;
        }
        result
    }

    /// Finds a node that lets this client in: tries each in turn, the last one used first.
    fn connect(&mut self, deadline: Instant) -> Result<(), StoreError> {
        let mut errors = Vec::new();
        while self.stream.is_none() {
            if self.doors.is_empty() {
                return Err(StoreError::Unavailable("the client knows no node".into()));
            }
            let door = &self.doors[self.next % self.doors.len()];
            match enter(door, self.answer_patience) {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => {
                    errors.push(format!("{door}: {error}"));
                    self.next += 1;
                    if errors.len() >= self.doors.len() {
                        if Instant::now() >= deadline || errors.len() >= NOBODY.max(self.doors.len()) {
                            errors.truncate(self.doors.len());
                            let what = format!("no node lets a client in ({})", errors.join("; "));
                            return Err(StoreError::Unavailable(what));
                        }
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A conversation with one node, for questions that only this node can answer.
#[derive(Debug)]
pub(crate) struct Conversation {
    stream: BufReader<TcpStream>,
}

impl Conversation {
    pub(crate) fn enter(door: &str) -> io::Result<Conversation> {
        Ok(Conversation { stream: enter(door, ANSWER_PATIENCE)? })
    }

    pub(crate) fn tell(&mut self, request: &Request) -> io::Result<()> {
        send(self.stream.get_mut(), request)
    }

    pub(crate) fn hear(&mut self) -> io::Result<Answer> {
        receive(&mut self.stream)
    }
}

fn enter(door: &str, patience: Duration) -> io::Result<BufReader<TcpStream>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for address in door.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
            Ok(mut stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
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
