//! A node's door: TCP, for clients anywhere and for other nodes. Each conversation is a task of the node's I/O loop, and asks the node's own thread.

use crate::access::Standing;
use crate::engine::{PATIENCE_NS, Store};
use crate::error::StoreError;
use crate::message::{
    Answer, Footprint, GREETING, HEADER_BYTES, REQUEST_BYTES_MAX, Request, STRANGERS_BYTES_MAX,
    check_greeting, decode, encode, length_within,
};
use crate::scan;
use crate::session::Local;
use std::future::Future;
use std::io;
use std::net::TcpListener;

pub(crate) mod direct;
mod identity;
mod io_loop;
mod keeper;
mod pace;
mod requests;
mod room;

use direct::Reached;
use identity::Node;
pub(crate) use io_loop::start as io_loop;
pub(crate) use keeper::{Ended, Guest, Keeper, PROTECTED, Refused, Visit, counted, serve};
pub(crate) use pace::PacedStream;
pub(crate) use requests::status;
use requests::{commit, get, leave, locate, meet, range, restore, scan, starting, sweep};
pub(crate) use room::{ANSWER_BYTES_MAX, Room};

/// Lets clients in from now on.
pub(crate) fn open(listener: TcpListener, store: &Store) -> io::Result<()> {
    let of = store.clone();
    serve(listener, "door", &store.keeper, &store.io, move |guest| {
        let (store, node) = (of.clone(), Node::Unknown);
        Conversation { store, guest, bytes: Vec::new(), node, reached: None }.run()
    })
}

/// A conversation with a client or another node.
struct Conversation {
    store: Store,
    guest: Guest,
    /// What was received of the next messages.
    bytes: Vec<u8>,
    node: Node,
    /// Its way by RPCs.
    reached: Option<Reached>,
}

impl Conversation {
    async fn run(mut self) {
        // A broken conversation concerns only the client, which notices it.
        let result = self.converse().await;
        let keeper = &self.store.keeper;
        match &result {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => drop(keeper.count(Ended::Protocol)),
            _ if self.guest.refused.is_none() => keeper.count_too_long(self.guest.stream.ended),
            _ => {}
        }
        if self.guest.refused.is_some() {
            self.guest.part().await;
        }
    }

    /// Takes the first bytes, which have come.
    fn take<const LENGTH: usize>(&mut self) -> [u8; LENGTH] {
        let taken = self.bytes[..LENGTH].try_into().expect("they have come");
        self.bytes.drain(..LENGTH);
        taken
    }

    /// The next request; or, as the result, why it was not read to its end.
    async fn receive(&mut self, room: &mut Room) -> io::Result<Result<Request, StoreError>> {
        // The first bytes of a length need no room.
        let _ = fill(&mut self.guest.stream, &mut self.bytes, HEADER_BYTES, |_| Ok(())).await?;
        let is_stranger = self.node != Node::Proved && self.guest.visitor.standing() == Standing::Stranger;
        let most = if is_stranger { STRANGERS_BYTES_MAX } else { REQUEST_BYTES_MAX };
        let length = match length_within(self.take(), most) {
            Ok(length) => length,
            Err(error) => return Ok(Err(error)),
        };
        let has_come = fill(&mut self.guest.stream, &mut self.bytes, length, |more| room.take(more));
        if let Err(error) = has_come.await? {
            return Ok(Err(error));
        }
        let request = decode(&self.bytes[..length]);
        match self.bytes.len() {
            all if all == length => self.bytes = Vec::new(),
            _ => drop(self.bytes.drain(..length)),
        }
        Ok(Ok(request?))
    }

    async fn send(&mut self, answer: Answer) -> io::Result<()> {
        let bytes = encode(&answer)?;
        // It is there once, however long the client takes to read it.
        drop(answer);
        self.guest.stream.write(&bytes).await
    }

    async fn converse(&mut self) -> io::Result<()> {
        self.guest.stream.begin();
        let _ = fill(&mut self.guest.stream, &mut self.bytes, GREETING.len(), |_| Ok(())).await?;
        if let Err(why) = check_greeting(self.take()) {
            if let Some(why) = why {
                self.send(Answer::Failed(why)).await?;
                self.guest.part().await;
            }
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut backup = Backup { store: self.store.clone(), token: None };
        let mut refused = self.guest.refused.clone();
        loop {
            match self.bytes.is_empty() {
                true => self.guest.stream.rest(),
                false => self.guest.stream.begin(),
            }
            let mut room = Room::new(&self.store.keeper.total, REQUEST_BYTES_MAX);
            let request = match self.receive(&mut room).await? {
                Ok(request) => request,
                Err(error) => {
                    self.send(Answer::Failed(error)).await?;
                    // The request was not read to its end.
                    self.guest.part().await;
                    return Ok(());
                }
            };
            let may_be_a_node = |request: &Request| {
                matches!(request, Request::Challenge { .. } | Request::Prove { .. } | Request::Meet(_))
            };
            if let Some(why) = refused.take_if(|_| !may_be_a_node(&request)) {
                return self.send(Answer::Refused { why: why.to_string() }).await;
            }
            let is_node = self.node == Node::Proved;
            if let Err(error) = identity::check(&request, &mut self.guest.visitor, is_node) {
                self.send(Answer::Failed(error)).await?;
                continue;
            }
            let request = match self.introduce(request).await {
                Ok(request) => request,
                Err(answer) => {
                    if self.node == Node::Proved && refused.take().is_some() {
                        self.guest.stream.set_patience(self.store.keeper.patience());
                    }
                    self.send(answer).await?;
                    continue;
                }
            };
            self.guest.visitor.pace(1).await;
            if request == Request::Reach {
                let answer = self.reach().await.unwrap_or_else(Answer::Failed);
                self.send(answer).await?;
                continue;
            }
            if let Request::Backup { token, .. } = request
                && backup.token != Some(token)
            {
                // The one before ends.
                backup = Backup { store: self.store.clone(), token: Some(token) };
            }
            let (answer, held) = answer(request, &self.store).await;
            drop(room);
            if matches!(answer, Answer::Met { .. }) {
                // Nodes say nothing more to each other here, and the end of the conversation tells that one has ended. So nodes
                // come in even when clients are too many.
                refused = None;
                self.guest.stream.may_be_idle();
            }
            let is_over = answer == Answer::Stopping;
            self.send(answer).await?;
            drop(held);
            if is_over {
                self.store.stop();
            }
        }
    }
}

/// How a request gets to the node's thread, and what it finds beside it.
trait Way {
    fn store(&self) -> &Store;

    /// Runs a job on the node's thread, and waits for its result.
    ///
    /// # Errors
    /// The node is still starting, or ends before the job does.
    async fn ask<T, F, W>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(Local) -> W + Send + 'static,
        W: Future<Output = T> + 'static;
}

/// From the I/O loop.
impl Way for Store {
    fn store(&self) -> &Store {
        self
    }

    async fn ask<T, F, W>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(Local) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
    {
        Store::ask(self, job).await
    }
}

/// Waits until so many bytes have come, for which `take` finds room.
///
/// # Errors
/// The connection's; or, as the result, that there is no room.
async fn fill(
    stream: &mut PacedStream,
    bytes: &mut Vec<u8>,
    length: usize,
    mut take: impl FnMut(usize) -> Result<(), StoreError>,
) -> io::Result<Result<(), StoreError>> {
    let mut counted = 0;
    loop {
        let there = bytes.len().min(length);
        if let Err(error) = take(there - counted) {
            return Ok(Err(error));
        }
        if there == length {
            return Ok(Ok(()));
        }
        counted = there;
        if stream.read(|more| bytes.extend_from_slice(more)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The backup that a conversation takes, which ends with it.
struct Backup {
    store: Store,
    token: Option<u64>,
}

impl Drop for Backup {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            // A node that does not run any more has forgotten it.
            let _ = self.store.start(move |local| async move { local.end_backup(token) });
        }
    }
}

/// The answer, and the room that it takes until it is sent.
async fn answer(request: Request, way: &impl Way) -> (Answer, Option<Room>) {
    let store = way.store();
    if let Err(error) = request.check() {
        return (Answer::Failed(error), None);
    }
    let mut room = Room::new(&store.keeper.total, ANSWER_BYTES_MAX);
    let read = match request {
        Request::Get { keys } => {
            way.ask(|local| async move { (get(local, keys, &mut room).await, room) }).await
        }
        Request::Scan { table, prefix, is_alone } => {
            let (of, begin) = (table.clone(), prefix.clone());
            let attempts =
                if is_alone { (scan::ATTEMPTS, scan::ATTEMPTS_NS) } else { (u32::MAX, PATIENCE_NS) };
            let read =
                way.ask(
                    move |local| async move { (scan(local, attempts, table, prefix, &mut room).await, room) },
                );
            match read.await {
                Ok((Err(StoreError::Conflict | StoreError::Unavailable(_)), mut room)) if is_alone => {
                    let store = store.clone();
                    store
                        .block(move |store| {
                            let entries = scan::entries(store, &of, &begin, &mut room);
                            let answer = |entries| Answer::Scanned { entries, seen: Footprint::default() };
                            (entries.map(answer), room)
                        })
                        .await
                }
                read => read,
            }
        }
        Request::Range { table, from, to, limit } => {
            let range =
                move |local| async move { (range(local, table, from, to, limit, &mut room).await, room) };
            way.ask(range).await
        }
        request => return (answer_shortly(request, way).await, None),
    };
    match read {
        Ok((result, room)) => (result.unwrap_or_else(Answer::Failed), Some(room)),
        Err(error) => (Answer::Failed(error), None),
    }
}

async fn answer_shortly(request: Request, way: &impl Way) -> Answer {
    let store = way.store();
    let result = match request {
        Request::Get { .. } | Request::Scan { .. } | Request::Range { .. } => {
            Err(StoreError::invalid("this answer may be long"))
        }
        Request::Authenticate { .. } | Request::Challenge { .. } | Request::Prove { .. } | Request::Reach => {
            Err(StoreError::invalid("this is said before"))
        }
        Request::Commit { seen, writes } => {
            way.ask(|local| commit(local, seen, writes)).await.and_then(|result| result)
        }
        Request::Status => Ok(Answer::Status(Box::new(match store.waits_for() {
            Some(what) => starting(store, what),
            None => match way.ask(|local| async move { status(&local) }).await {
                Ok(status) => status,
                Err(error) => starting(store, error.to_string()),
            },
        }))),
        Request::Locate { keys } => way.ask(|local| async move { locate(&local, &keys) }).await,
        Request::Milestones => {
            let list = |local: Local| async move { local.shared.milestones.borrow().list() };
            way.ask(list).await.map(Answer::Milestones)
        }
        Request::Meet(other) => meet(other, store).await,
        Request::Leave => way.ask(|local| async move { leave(&local) }).await.and_then(|result| result),
        Request::Stop => Ok(Answer::Stopping),
        Request::Doors => Ok(Answer::Doors(store.doors())),
        Request::Backup { token, step, of } => way
            .ask(move |local| local.back_up(token, step, of))
            .await
            .and_then(|result| result)
            .map(Answer::Backup),
        Request::Restore { note, from, to, cells } => {
            way.ask(|local| restore(local, note, from, to, cells)).await.and_then(|result| result)
        }
        Request::Sweep { table, low, high, most } => {
            way.ask(move |local| sweep(local, table, (low, high), most)).await.and_then(|result| result)
        }
    };
    result.unwrap_or_else(Answer::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pace::Patience;
    use std::io::Write as _;
    use std::time::Duration;

    #[test]
    fn a_request_that_finds_no_room_is_not_read() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let found = runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("bound");
            // It may end when this end has read enough.
            let sender = std::thread::spawn(move || {
                std::net::TcpStream::connect(address).expect("connected").write_all(&vec![7; 8 << 20])
            });
            let (stream, _) = listener.accept().await.expect("a connection");
            let patience = Patience { idle: None, slow: Duration::from_secs(60) };
            let (mut stream, mut bytes, mut taken) = (PacedStream::new(stream, patience), Vec::new(), 0);
            let full = |more: usize| {
                taken += more;
                if taken > 200_000 { Err(StoreError::Full) } else { Ok(()) }
            };
            let found = fill(&mut stream, &mut bytes, 8 << 20, full).await.expect("no damage");
            drop(stream);
            let _ = sender.join();
            (found, bytes.len())
        });
        assert_eq!(found.0, Err(StoreError::Full));
        // The last portion that was read had no room any more.
        assert!(found.1 <= 200_000 + (64 << 10), "{}", found.1);
    }
}
