//! One client of the Redis door.

use super::parse::{Parser, REQUEST_BYTES_MAX, Request};
use super::reply::Reply;
use super::{Words, data, each, http, look, scans, server, together, upper};
use crate::door::{ANSWER_BYTES_MAX, Ended, Guest, Inlet, Outlet, Room, Visit, part};
use crate::engine::{Store, say};
use crate::error::StoreError;
use crate::message::Footprint;
use highwire_txn::{Key, Version};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::sync::Arc;
use std::time::Instant;

/// What is read at once, and what is gathered before it is written.
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
pub(super) fn run(store: &Store, guest: Guest) {
    let keeper = &store.keeper;
    if guest.refused.is_some() {
        let mut stream = &guest.stream;
        let _ = stream.write_all(b"-ERR max number of clients reached\r\n");
        if let Ok(stream) = guest.stream.try_clone() {
            part(stream);
        }
        return;
    }
    let patience = guest.patience();
    let streams = guest.stream.try_clone().and_then(|stream| Ok((stream, guest.stream.try_clone()?)));
    let Ok((input, output)) = streams else { return };
    let Ok(outlet) = Outlet::new(output, patience) else { return };
    let mut inlet = Inlet::new(input, patience);
    let mut out = BufWriter::with_capacity(PORTION_BYTES, outlet);
    let mut session = Session::new(store.clone(), Arc::clone(&guest.visit));
    // A broken conversation concerns only the client.
    let _ = session.converse(&mut inlet, &mut out);
    keeper.count_too_long(inlet.ended.or(out.get_ref().ended));
    match session.end {
        Some(End::Http) => {
            let count = keeper.count(Ended::Http);
            // As often as it gets twice as many: a page that tries again and again must not fill the log.
            if count.is_power_of_two() {
                say(format_args!(
                    "node {}: a client at {} sent HTTP to the Redis door, perhaps a web page in somebody's browser; the connection \
                     was ended, and nothing behind that was executed ({count} so far)",
                    store.introduction.node, guest.visit.address
                ));
            }
        }
        Some(End::Malformed) => {
            keeper.count(Ended::Protocol);
            if let Ok(stream) = guest.stream.try_clone() {
                part(stream);
            }
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
}

/// One client.
pub(super) struct Session {
    pub(super) store: Store,
    pub(super) visit: Arc<Visit>,
    /// Commands since MULTI, and their bytes.
    queued: Option<Vec<Words>>,
    queued_bytes: usize,
    /// One of the commands is invalid: EXEC will refuse all.
    is_spoilt: bool,
    /// The rows of watched keys, as they were when each was watched first.
    watched: BTreeMap<Key, Version>,
    pub(super) is_resp3: bool,
    end: Option<End>,
}

type Out = BufWriter<Outlet>;

impl Session {
    fn new(store: Store, visit: Arc<Visit>) -> Session {
        Session {
            store,
            visit,
            queued: None,
            queued_bytes: 0,
            is_spoilt: false,
            watched: BTreeMap::new(),
            is_resp3: false,
            end: None,
        }
    }

    fn converse(&mut self, inlet: &mut Inlet, out: &mut Out) -> io::Result<()> {
        let mut parser = Parser::default();
        let mut bytes = vec![0; PORTION_BYTES];
        let mut room = Room::new(&self.store.keeper.total, REQUEST_BYTES_MAX * 3);
        loop {
            let length = inlet.read(&mut bytes)?;
            if length == 0 {
                return Ok(());
            }
            parser.feed(&bytes[..length]);
            let has_answered = self.take_up(&mut parser, out)?;
            out.flush()?;
            if self.end.is_some() {
                return Ok(());
            }
            parser.forget();
            if let Err(error) = room.resize(parser.held() + self.queued_bytes) {
                Reply::failed(&error).put(self.is_resp3, out)?;
                self.end = Some(End::Malformed);
                return out.flush();
            }
            match (parser.is_within(), has_answered) {
                (false, _) => inlet.rest(),
                (true, true) => inlet.begin(),
                (true, false) => {}
            }
        }
    }

    /// Answers the complete requests; returns whether there was any.
    fn take_up(&mut self, parser: &mut Parser, out: &mut Out) -> io::Result<bool> {
        let mut data: Vec<Words> = Vec::new();
        let mut any = false;
        while self.end.is_none() {
            let words = match parser.next() {
                Ok(Some(Request::Words(words))) if words.is_empty() => continue,
                Ok(Some(Request::Words(words))) => words,
                Ok(Some(Request::TooLong(why))) => {
                    any = true;
                    self.flush(&mut data, out)?;
                    self.is_spoilt = true;
                    Reply::error(why).put(self.is_resp3, out)?;
                    continue;
                }
                Ok(None) => break,
                Err(what) => {
                    self.flush(&mut data, out)?;
                    Reply::error(format!("ERR Protocol error: {what}")).put(self.is_resp3, out)?;
                    self.end = Some(End::Malformed);
                    break;
                }
            };
            any = true;
            let name = upper(&words[0]);
            if http::is_http(&words) {
                self.flush(&mut data, out)?;
                self.end = Some(End::Http);
            } else if self.queued.is_none() && data::knows(&name) && data::check(&words).is_ok() {
                data.push(words);
                if data.len() >= TOGETHER_MAX {
                    self.flush(&mut data, out)?;
                }
                self.note(&name);
            } else {
                self.flush(&mut data, out)?;
                let (reply, room) = self.answer(&name, words);
                reply.put(self.is_resp3, out)?;
                drop(room);
                self.note(&name);
            }
        }
        self.flush(&mut data, out)?;
        Ok(any)
    }

    fn note(&self, name: &str) {
        let mut about = self.visit.about();
        about.last = Instant::now();
        about.queued = self.queued.as_ref().map(Vec::len);
        name.to_ascii_lowercase().clone_into(&mut about.command);
    }

    /// Has the node carry out commands, and writes their replies. The node gives only so many replies at a time: those that a client
    /// does not read keep the others from being made.
    fn flush(&self, data: &mut Vec<Words>, out: &mut Out) -> io::Result<()> {
        let mut commands = std::mem::take(data);
        while !commands.is_empty() {
            let count = commands.len();
            let room = Room::new(&self.store.keeper.total, ANSWER_BYTES_MAX);
            let run = self.store.run(move |local| each(local, commands, room));
            let _held;
            let replies;
            (replies, commands, _held) = match run {
                Ok((replies, rest, room)) => (replies, rest, Some(room)),
                Err(error) => ((0..count).map(|_| Reply::failed(&error)).collect(), Vec::new(), None),
            };
            let is_stuck = replies.is_empty() && commands.first().is_some_and(scans::is_scan);
            replies.iter().try_for_each(|reply| reply.put(self.is_resp3, out))?;
            if is_stuck {
                drop(_held);
                let mut room = Room::new(&self.store.keeper.total, ANSWER_BYTES_MAX);
                let reply = scans::from_snapshot(&self.store, &commands.remove(0), &mut room);
                reply.put(self.is_resp3, out)?;
            }
        }
        Ok(())
    }

    /// The answer, and the room that it takes until it is written.
    fn answer(&mut self, name: &str, words: Words) -> (Reply, Option<Room>) {
        if let Err(reply) = server::check(name, &words) {
            if name == "EXEC" {
                (self.queued, self.watched) = (None, BTreeMap::new());
                let why = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
                return (Reply::error(why), None);
            }
            self.is_spoilt = true;
            return (reply, None);
        }
        let reply = match name {
            "MULTI" if self.queued.is_some() => Reply::error("ERR MULTI calls can not be nested"),
            "MULTI" => {
                (self.queued, self.queued_bytes, self.is_spoilt) = (Some(Vec::new()), 0, false);
                Reply::OK
            }
            "EXEC" => return self.exec(),
            "DISCARD" if self.queued.is_none() => Reply::error("ERR DISCARD without MULTI"),
            "DISCARD" => {
                (self.queued, self.queued_bytes) = (None, 0);
                self.watched.clear();
                Reply::OK
            }
            "WATCH" if self.queued.is_some() => Reply::error("ERR WATCH inside MULTI is not allowed"),
            "WATCH" => self.watch(&words[1..]),
            "UNWATCH" if self.queued.is_none() => {
                self.watched.clear();
                Reply::OK
            }
            "QUIT" => {
                self.end = Some(End::Quit);
                Reply::OK
            }
            "RESET" => {
                *self = Session::new(self.store.clone(), Arc::clone(&self.visit));
                let mut about = self.visit.about();
                about.name.clear();
                about.protocol = 2;
                Reply::Simple("RESET".into())
            }
            _ if self.queued.is_some() => self.queue(words),
            _ => server::answer(self, name, &words),
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

    fn exec(&mut self) -> (Reply, Option<Room>) {
        let Some(commands) = self.queued.take() else {
            return (Reply::error("ERR EXEC without MULTI"), None);
        };
        self.queued_bytes = 0;
        let rows: Vec<(Key, Version)> = std::mem::take(&mut self.watched).into_iter().collect();
        if self.is_spoilt {
            let why = "EXECABORT Transaction discarded because of previous errors.";
            return (Reply::error(why), None);
        }
        let (has_watched, watched) = (!rows.is_empty(), Footprint { rows, ..Footprint::default() });
        let is_data = |words: &Words| data::knows(&upper(&words[0]));
        let on_data: Vec<Words> = commands.iter().filter(|words| is_data(words)).cloned().collect();
        let mut room = Room::new(&self.store.keeper.total, ANSWER_BYTES_MAX);
        let result = match on_data.is_empty() && !has_watched {
            true => Ok((Ok(Vec::new()), room)),
            false => self
                .store
                .run(move |local| async move { (together(local, on_data, watched, &mut room).await, room) }),
        };
        match result {
            Ok((Ok(replies), room)) => self.merge(&commands, replies, room),
            Ok((Err(StoreError::Conflict), _)) if has_watched => (Reply::NilArray, None),
            Ok((Err(error), _)) | Err(error) => (Reply::failed(&error), None),
        }
    }

    /// The replies of the node, and those of commands that are not on data, in the order of the commands.
    fn merge(&mut self, commands: &[Words], replies: Vec<Reply>, mut room: Room) -> (Reply, Option<Room>) {
        let mut replies = replies.into_iter();
        let changes_protocol = commands.iter().any(|words| upper(&words[0]) == "HELLO");
        let mut all = Vec::with_capacity(commands.len());
        for words in commands {
            let name = upper(&words[0]);
            let mut reply = match data::knows(&name) {
                true => replies.next().unwrap_or(Reply::Nil),
                false => {
                    let reply = server::answer(self, &name, words);
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

    fn watch(&mut self, keys: &[Vec<u8>]) -> Reply {
        let keys = keys.to_vec();
        let seen = match self.store.run(move |local| look(local, keys)).and_then(|result| result) {
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
