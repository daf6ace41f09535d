//! One client of the Redis door.

use super::hub::Inbox;
use super::parse::{Parser, REQUEST_BYTES_MAX, Request};
use super::reply::Reply;
use super::turns::Turns;
use super::{Words, acl, cluster, data, each, http, look, pubsub, scans, server, together, upper, waiting};
use crate::access::{Standing, Visitor};
use crate::door::{ANSWER_BYTES_MAX, Ended, Guest, PROTECTED, PacedStream, Refused, Room, Visit};
use crate::engine::{Store, say};
use crate::error::StoreError;
use crate::message::Footprint;
use highwire_txn::{Key, Version};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

mod pause;

/// What is gathered before it is written, and how much of it keeps its memory.
const PORTION_BYTES: usize = 64 << 10;
/// Commands that go to the node together.
const TOGETHER_MAX: usize = 64;
/// Rows of watched keys. There is one for each key, nearly always.
const WATCHED_MAX: usize = 1 << 14;
/// Commands between MULTI and EXEC, and all their words together.
const QUEUED_MAX: usize = 1 << 14;
const QUEUED_BYTES_MAX: usize = REQUEST_BYTES_MAX;
/// What a word takes besides its bytes, about.
const WORD_BYTES: usize = size_of::<Vec<u8>>();

/// Converses with a client until one of the two ends that.
pub(super) async fn run(store: Store, turns: Arc<Turns>, mut guest: Guest) {
    if let Some(why) = &guest.refused {
        let words = match why {
            Refused::TooMany(_) => "-ERR max number of clients reached\r\n".to_string(),
            Refused::Protected => format!("-DENIED {PROTECTED}\r\n"),
        };
        let _ = guest.stream.write(words.as_bytes()).await;
        guest.part().await;
        return;
    }
    let visitor = Visitor::new(&store.keeper.gate, guest.visit.address);
    let mut session = Session::new(store, turns, Arc::clone(&guest.visit), visitor);
    // A broken conversation concerns only the client.
    let result = session.converse(&mut guest.stream).await;
    let keeper = &session.store.keeper;
    if result.is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
        // It spoke something else than TLS.
        keeper.count(Ended::Protocol);
    }
    keeper.count_too_long(guest.stream.ended);
    match session.end {
        Some(End::Http) => {
            let count = keeper.count(Ended::Http);
            // As often as it gets twice as many: a page that tries again and again must not fill the log.
            if count.is_power_of_two() {
                say(format_args!(
                    "node {}: a client at {} sent HTTP to the Redis door, perhaps a web page in somebody's browser; the connection \
                     was ended, and nothing behind that was executed ({count} so far)",
                    session.store.introduction.node, guest.visit.address
                ));
            }
        }
        Some(End::Subscriber) => drop(keeper.count(Ended::Subscriber)),
        Some(End::Malformed) => {
            keeper.count(Ended::Protocol);
            guest.part().await;
        }
        _ => {}
    }
}

/// Why the door ends a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Quit,
    /// At once, without a word.
    Http,
    Malformed,
    /// It did not read the messages of its channels.
    Subscriber,
}

/// One client.
pub(super) struct Session {
    pub(super) store: Store,
    turns: Arc<Turns>,
    pub(super) visit: Arc<Visit>,
    pub(super) visitor: Visitor,
    /// Commands since MULTI, and their bytes.
    pub(super) queued: Option<Vec<Words>>,
    queued_bytes: usize,
    /// One of the commands is invalid: EXEC will refuse all.
    is_spoilt: bool,
    /// The rows of watched keys, as they were when each was watched first.
    watched: BTreeMap<Key, Version>,
    pub(super) is_resp3: bool,
    /// It is sent to the nodes where its keys lie.
    pub(super) is_led: bool,
    /// Messages of the channels to which it has subscribed.
    pub(super) inbox: Option<Inbox>,
    end: Option<End>,
}

/// Where replies go.
struct Out<'a> {
    stream: &'a mut PacedStream,
    bytes: Vec<u8>,
    is_resp3: bool,
}

impl Out<'_> {
    fn put(&mut self, reply: &Reply) {
        // Memory takes every byte.
        let _ = reply.put(self.is_resp3, &mut self.bytes);
    }

    /// Writes what has been gathered. What was long is not kept.
    async fn flush(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        self.stream.write(&bytes).await?;
        if bytes.capacity() <= PORTION_BYTES {
            self.bytes = bytes;
            self.bytes.clear();
        }
        Ok(())
    }

    async fn flush_if_long(&mut self) -> io::Result<()> {
        if self.bytes.len() < PORTION_BYTES { Ok(()) } else { self.flush().await }
    }
}

impl Session {
    fn new(store: Store, turns: Arc<Turns>, visit: Arc<Visit>, visitor: Visitor) -> Session {
        Session {
            is_led: store.keeper.limits.moved,
            store,
            turns,
            visit,
            visitor,
            queued: None,
            queued_bytes: 0,
            is_spoilt: false,
            watched: BTreeMap::new(),
            is_resp3: false,
            inbox: None,
            end: None,
        }
    }

    async fn converse(&mut self, stream: &mut PacedStream) -> io::Result<()> {
        let mut parser = Parser::default();
        let mut room = Room::new(&self.store.keeper.total, REQUEST_BYTES_MAX * 3);
        let mut out = Out { stream, bytes: Vec::new(), is_resp3: self.is_resp3 };
        loop {
            if self.inbox.is_some() {
                if !self.hear(&mut parser, &mut out).await? {
                    return Ok(());
                }
            } else if out.stream.read(|bytes| parser.feed(bytes)).await? == 0 {
                return Ok(());
            }
            parser.set_stranger(self.is_stranger());
            let has_answered = self.take_up(&mut parser, &mut out).await?;
            out.flush().await?;
            if self.end.is_some() {
                return Ok(());
            }
            parser.forget();
            let subscriptions = self.inbox.as_ref().map_or(0, Inbox::held);
            if let Err(error) = room.resize(parser.held() + self.queued_bytes + subscriptions) {
                out.put(&Reply::failed(&error));
                self.end = Some(End::Malformed);
                return out.flush().await;
            }
            match (parser.is_within(), has_answered) {
                (false, _) => out.stream.rest(),
                (true, true) => out.stream.begin(),
                (true, false) => {}
            }
        }
    }

    /// Answers the complete requests; returns whether there was any.
    async fn take_up(&mut self, parser: &mut Parser, out: &mut Out<'_>) -> io::Result<bool> {
        let mut data: Vec<Words> = Vec::new();
        let mut any = false;
        while self.end.is_none() {
            let words = match parser.next() {
                Ok(Some(Request::Words(words))) if words.is_empty() => continue,
                Ok(Some(Request::Words(words))) => words,
                Ok(Some(Request::TooLong(why))) => {
                    any = true;
                    self.flush(&mut data, out).await?;
                    self.is_spoilt = true;
                    out.put(&Reply::error(why));
                    continue;
                }
                Ok(None) => break,
                Err(what) => {
                    self.flush(&mut data, out).await?;
                    out.put(&Reply::error(format!("ERR Protocol error: {what}")));
                    self.end = Some(End::Malformed);
                    break;
                }
            };
            any = true;
            let name = upper(&words[0]);
            if http::is_http(&words) {
                self.flush(&mut data, out).await?;
                self.end = Some(End::Http);
            } else if self.queued.is_none()
                && data::knows(&name)
                && !waiting::waits(&name)
                && !self.is_only_subscriber()
                && server::check(&name, &words).is_ok()
                && acl::may(&mut self.visitor, &words)
            {
                if let Some(elsewhere) = self.moved(&words).await {
                    self.flush(&mut data, out).await?;
                    out.put(&elsewhere);
                    continue;
                }
                data.push(words);
                if data.len() >= TOGETHER_MAX {
                    self.flush(&mut data, out).await?;
                }
            } else if self.queued.is_none()
                && waiting::waits(&name)
                && !self.is_only_subscriber()
                && data::check(&words).is_ok()
                && acl::may(&mut self.visitor, &words)
            {
                self.flush(&mut data, out).await?;
                self.note(&name);
                self.wait(&words, parser, out).await?;
            } else {
                self.flush(&mut data, out).await?;
                let (reply, room) = self.answer(&name, words).await;
                parser.set_stranger(self.is_stranger());
                out.is_resp3 = self.is_resp3;
                out.put(&reply);
                drop(reply);
                out.flush_if_long().await?;
                drop(room);
                self.note(&name);
            }
        }
        self.flush(&mut data, out).await?;
        Ok(any)
    }

    /// Where a command of a client that knows the cluster's map goes, if not to this node.
    async fn moved(&self, words: &Words) -> Option<Reply> {
        if self.is_led { cluster::moved(&self.store, words).await } else { None }
    }

    fn is_stranger(&mut self) -> bool {
        self.visitor.standing() == Standing::Stranger
    }

    fn note(&self, name: &str) {
        let mut about = self.visit.about();
        about.last = Instant::now();
        about.queued = self.queued.as_ref().map(Vec::len);
        name.to_ascii_lowercase().clone_into(&mut about.command);
    }

    /// Has the node carry out commands, and writes their replies. The node gives only so many replies at a time: those that a client
    /// does not read keep the others from being made.
    async fn flush(&self, data: &mut Vec<Words>, out: &mut Out<'_>) -> io::Result<()> {
        let mut commands = std::mem::take(data);
        let Some(last) = commands.last() else { return Ok(()) };
        self.note(&upper(&last[0]));
        self.visitor.pace(commands.len()).await;
        let filled: Vec<Vec<u8>> = commands.iter().filter_map(waiting::filled).cloned().collect();
        let mut may_share = Turns::takes(&commands);
        while !commands.is_empty() {
            let (count, is_shared) = (commands.len(), std::mem::take(&mut may_share));
            let room = Room::new(&self.store.keeper.total, ANSWER_BYTES_MAX);
            let run = match self.store.waits_for() {
                Some(what) => Err(StoreError::Unavailable(what)),
                None if is_shared => self.turns.run(commands, room).await,
                None => self.store.ask(move |local| each(local, commands, room)).await,
            };
            let (replies, rest, held) = match run {
                Ok((replies, rest, room)) => (replies, rest, Some(room)),
                Err(error) => ((0..count).map(|_| Reply::failed(&error)).collect(), Vec::new(), None),
            };
            commands = rest;
            waiting::announce(&self.store.hub, &self.store, &filled);
            let is_stuck = !is_shared && replies.is_empty() && commands.first().is_some_and(scans::is_scan);
            replies.iter().for_each(|reply| out.put(reply));
            drop(replies);
            out.flush_if_long().await?;
            drop(held);
            if is_stuck {
                let (scan, mut room) =
                    (commands.remove(0), Room::new(&self.store.keeper.total, ANSWER_BYTES_MAX));
                let scan = move |store: &Store| (scans::from_snapshot(store, &scan, &mut room), room);
                let (reply, _held) = match self.store.block(scan).await {
                    Ok((reply, room)) => (reply, Some(room)),
                    Err(error) => (Reply::failed(&error), None),
                };
                out.put(&reply);
                out.flush_if_long().await?;
            }
        }
        Ok(())
    }

    /// The answer, and the room that it takes until it is written.
    async fn answer(&mut self, name: &str, words: Words) -> (Reply, Option<Room>) {
        if let Err(reply) = server::check(name, &words) {
            if name == "EXEC" {
                (self.queued, self.watched) = (None, BTreeMap::new());
                let why = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
                return (Reply::error(why), None);
            }
            self.is_spoilt = true;
            return (reply, None);
        }
        if let Err(reply) = acl::check(&mut self.visitor, &words) {
            self.is_spoilt = true;
            let Reply::Error(why) = &reply else { return (reply, None) };
            if name == "EXEC" {
                (self.queued, self.watched) = (None, BTreeMap::new());
                let start = b"EXECABORT Transaction discarded because of: ";
                return (Reply::error([&start[..], why].concat()), None);
            }
            return (reply, None);
        }
        let reply = match name {
            _ if self.is_only_subscriber() && !pubsub::may_subscriber(name) => pubsub::not_now(name),
            "PING" if self.is_only_subscriber() && words.len() < 3 => {
                let given = words.get(1).cloned().unwrap_or_default();
                Reply::Array(vec![Reply::bulk("pong"), Reply::Bulk(given)])
            }
            _ if self.queued.is_some() && pubsub::subscribes(name) => {
                self.is_spoilt = true;
                Reply::error(format!("ERR {name} is not allowed in transactions"))
            }
            "MULTI" if self.queued.is_some() => Reply::error("ERR MULTI calls can not be nested"),
            "MULTI" => {
                (self.queued, self.queued_bytes, self.is_spoilt) = (Some(Vec::new()), 0, false);
                Reply::OK
            }
            "EXEC" => return self.exec().await,
            "DISCARD" if self.queued.is_none() => Reply::error("ERR DISCARD without MULTI"),
            "DISCARD" => {
                (self.queued, self.queued_bytes) = (None, 0);
                self.watched.clear();
                Reply::OK
            }
            "WATCH" if self.queued.is_some() => Reply::error("ERR WATCH inside MULTI is not allowed"),
            "WATCH" => self.watch(&words[1..]).await,
            "UNWATCH" if self.queued.is_none() => {
                self.watched.clear();
                Reply::OK
            }
            "QUIT" => {
                self.end = Some(End::Quit);
                Reply::OK
            }
            "RESET" => {
                let stranger = Visitor::new(&self.store.keeper.gate, self.visit.address);
                *self = Session::new(
                    self.store.clone(),
                    Arc::clone(&self.turns),
                    Arc::clone(&self.visit),
                    stranger,
                );
                let mut about = self.visit.about();
                about.name.clear();
                about.protocol = 2;
                about.user = "default".into();
                Reply::Simple("RESET".into())
            }
            _ if self.queued.is_some() && acl::is_about_users(name, &words) => {
                self.is_spoilt = true;
                Reply::error("ERR Command not allowed inside a transaction")
            }
            _ if self.queued.is_some() => self.queue(words),
            _ if pubsub::subscribes(name) => pubsub::change(self, name, &words),
            _ => server::answer(self, name, &words).await,
        };
        (reply, None)
    }

    fn queue(&mut self, words: Words) -> Reply {
        let bytes: usize = words.iter().map(|word| word.len() + WORD_BYTES).sum();
        let queued = self.queued.get_or_insert_default();
        if queued.len() >= QUEUED_MAX || self.queued_bytes + bytes > QUEUED_BYTES_MAX {
            self.is_spoilt = true;
            return Reply::error(format!(
                "ERR at most {QUEUED_MAX} commands and {QUEUED_BYTES_MAX} bytes can be queued between MULTI and EXEC"
            ));
        }
        self.queued_bytes += bytes;
        queued.push(words);
        Reply::Simple("QUEUED".into())
    }

    async fn exec(&mut self) -> (Reply, Option<Room>) {
        let Some(commands) = self.queued.take() else {
            return (Reply::error("ERR EXEC without MULTI"), None);
        };
        self.queued_bytes = 0;
        let rows: Vec<(Key, Version)> = std::mem::take(&mut self.watched).into_iter().collect();
        if self.is_spoilt {
            let why = "EXECABORT Transaction discarded because of previous errors.";
            return (Reply::error(why), None);
        }
        // The user may have another role now than when the commands were queued.
        if !commands.iter().all(|words| acl::may(&mut self.visitor, words)) {
            let why = "EXECABORT Transaction discarded because of: NOPERM this user's permissions have changed since its commands were queued";
            return (Reply::error(why), None);
        }
        self.visitor.pace(commands.len()).await;
        let (has_watched, watched) = (!rows.is_empty(), Footprint { rows, ..Footprint::default() });
        let is_data = |words: &Words| data::knows(&upper(&words[0]));
        let filled: Vec<Vec<u8>> = commands.iter().filter_map(waiting::filled).cloned().collect();
        let on_data: Vec<Words> = commands.iter().filter(|words| is_data(words)).cloned().collect();
        let mut room = Room::new(&self.store.keeper.total, ANSWER_BYTES_MAX);
        let result = match on_data.is_empty() && !has_watched {
            true => Ok((Ok(Vec::new()), room)),
            false => {
                let run =
                    move |local| async move { (together(local, on_data, watched, &mut room).await, room) };
                self.store.ask(run).await
            }
        };
        waiting::announce(&self.store.hub, &self.store, &filled);
        match result {
            Ok((Ok(replies), room)) => self.merge(&commands, replies, room).await,
            Ok((Err(StoreError::Conflict), _)) if has_watched => (Reply::NilArray, None),
            Ok((Err(error), _)) | Err(error) => (Reply::failed(&error), None),
        }
    }

    /// The replies of the node, and those of commands that are not on data, in the order of the commands.
    async fn merge(
        &mut self,
        commands: &[Words],
        replies: Vec<Reply>,
        mut room: Room,
    ) -> (Reply, Option<Room>) {
        let mut replies = replies.into_iter();
        let changes_protocol = commands.iter().any(|words| upper(&words[0]) == "HELLO");
        let mut all = Vec::with_capacity(commands.len());
        for words in commands {
            let name = upper(&words[0]);
            let mut reply = match data::knows(&name) {
                true => replies.next().unwrap_or(Reply::Nil),
                false => {
                    let reply = server::answer(self, &name, words).await;
                    if let Err(error) = room.take(reply.held()) {
                        return (Reply::failed(&error), None);
                    }
                    reply
                }
            };
            if changes_protocol {
                // HELLO changes how what follows is written, and not what stands before it.
                let mut bytes = Vec::new();
                // Memory takes every byte.
                let _ = reply.put(self.is_resp3, &mut bytes);
                reply = Reply::Raw(bytes);
            }
            all.push(reply);
        }
        (Reply::Array(all), Some(room))
    }

    async fn watch(&mut self, keys: &[Vec<u8>]) -> Reply {
        let keys = keys.to_vec();
        let seen = match self.store.ask(move |local| look(local, keys)).await.and_then(|result| result) {
            Ok(seen) => seen,
            Err(error) => return Reply::failed(&error),
        };
        let new = seen.rows.iter().filter(|row| !self.watched.contains_key(&row.0)).count();
        if self.watched.len() + new > WATCHED_MAX {
            return Reply::error(format!("ERR at most {WATCHED_MAX} keys can be watched"));
        }
        for (row, version) in seen.rows {
            // A key that is watched twice is watched since the first time.
            self.watched.entry(row).or_insert(version);
        }
        Reply::OK
    }
}
