//! The Redis door: strings, hashes and transactions of Redis's protocol, over this store, for every Redis client.
//!
//! Each command is a transaction. `WATCH` reads, and its reads are the read set that `EXEC` demands; `EXEC`
//! is the commit. An unsupported command gets an error that says so, and never a result that is merely close.
//! All keys lie in the table `redis`.

mod data;
mod fields;
mod glob;
mod keys;
mod parse;
mod reply;

use crate::door;
use crate::engine::{PATIENCE_NS, Store};
use crate::error::StoreError;
use crate::message::Footprint;
use crate::session::{Local, Stop, USUAL_RECORD_BYTES_MAX};
use crate::transaction::Transaction;
use parse::Parser;
use reply::Reply;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// Where the keys are.
const TABLE: &[u8] = b"redis";

/// The version of Redis whose commands these are.
const REDIS_VERSION: &str = "7.0.0";

/// A command's words.
type Words = Vec<Vec<u8>>;

impl Store {
    /// Lets Redis clients in at `address`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn open_resp(&self, address: &str) -> io::Result<()> {
        let listener = TcpListener::bind(address)?;
        let store = self.clone();
        door::serve(listener, "resp", move |stream| {
            // A broken conversation concerns only the client.
            let _ = Session::new(store.clone()).converse(stream);
        })
    }
}

/// One client.
struct Session {
    store: Store,
    /// Commands since MULTI.
    queued: Option<Vec<Words>>,
    /// One of the commands is invalid: EXEC will refuse all.
    is_spoilt: bool,
    watched: Footprint,
    is_resp3: bool,
    is_over: bool,
}

impl Session {
    fn new(store: Store) -> Session {
        Session {
            store,
            queued: None,
            is_spoilt: false,
            watched: Footprint::default(),
            is_resp3: false,
            is_over: false,
        }
    }

    fn converse(&mut self, mut stream: TcpStream) -> io::Result<()> {
        let mut parser = Parser::default();
        let mut bytes = vec![0; 64 << 10];
        let mut out = Vec::new();
        while !self.is_over {
            let length = stream.read(&mut bytes)?;
            if length == 0 {
                return Ok(());
            }
            parser.feed(&bytes[..length]);
            let mut commands = Vec::new();
            let end = loop {
                match parser.next() {
                    Ok(Some(words)) => commands.push(words),
                    Ok(None) => break None,
                    Err(what) => break Some(Reply::error(format!("ERR Protocol error: {what}"))),
                }
            };
            self.answer(commands, &mut out);
            if let Some(reply) = end {
                reply.put(self.is_resp3, &mut out);
                self.is_over = true;
            }
            stream.write_all(&out)?;
            out.clear();
        }
        Ok(())
    }

    /// Answers commands that came together. Consecutive commands on data go to the node together.
    fn answer(&mut self, commands: Vec<Words>, out: &mut Vec<u8>) {
        let mut data: Vec<Words> = Vec::new();
        for words in commands.into_iter().filter(|words| !words.is_empty()) {
            if self.is_over {
                return;
            }
            let name = upper(&words[0]);
            if self.queued.is_none() && data::knows(&name) && data::check(&words).is_ok() {
                data.push(words);
                continue;
            }
            self.flush(&mut data, out);
            self.answer_one(&name, words).put(self.is_resp3, out);
        }
        self.flush(&mut data, out);
    }

    fn flush(&self, data: &mut Vec<Words>, out: &mut Vec<u8>) {
        if data.is_empty() {
            return;
        }
        let commands = std::mem::take(data);
        let count = commands.len();
        let replies = self.store.run(move |local| each(local, commands));
        let replies = replies.unwrap_or_else(|error| (0..count).map(|_| Reply::failed(&error)).collect());
        replies.iter().for_each(|reply| reply.put(self.is_resp3, out));
    }

    fn answer_one(&mut self, name: &str, words: Words) -> Reply {
        match name {
            "MULTI" if self.queued.is_some() => Reply::error("ERR MULTI calls can not be nested"),
            "MULTI" => {
                (self.queued, self.is_spoilt) = (Some(Vec::new()), false);
                Reply::OK
            }
            "EXEC" => self.exec(),
            "DISCARD" if self.queued.is_none() => Reply::error("ERR DISCARD without MULTI"),
            "DISCARD" => {
                (self.queued, self.watched) = (None, Footprint::default());
                Reply::OK
            }
            "WATCH" if self.queued.is_some() => Reply::error("ERR WATCH inside MULTI is not allowed"),
            "WATCH" => self.watch(&words[1..]),
            "UNWATCH" if self.queued.is_none() => {
                self.watched = Footprint::default();
                Reply::OK
            }
            "QUIT" => {
                self.is_over = true;
                Reply::OK
            }
            "RESET" => {
                *self = Session::new(self.store.clone());
                Reply::Simple("RESET".into())
            }
            _ if self.queued.is_some() => self.queue(name, words),
            _ => match data::check(&words) {
                Err(reply) => reply,
                Ok(()) => self.about_the_server(name, &words),
            },
        }
    }

    fn queue(&mut self, name: &str, words: Words) -> Reply {
        if !data::knows(name) {
            self.is_spoilt = true;
            return Reply::error(format!(
                "ERR '{name}' is not promised by this store inside MULTI; see docs/store.md"
            ));
        }
        if let Err(reply) = data::check(&words) {
            self.is_spoilt = true;
            return reply;
        }
        self.queued.get_or_insert_default().push(words);
        Reply::Simple("QUEUED".into())
    }

    fn exec(&mut self) -> Reply {
        let Some(commands) = self.queued.take() else { return Reply::error("ERR EXEC without MULTI") };
        let watched = std::mem::take(&mut self.watched);
        if self.is_spoilt {
            return Reply::error("EXECABORT Transaction discarded because of previous errors.");
        }
        let has_watched = !watched.rows.is_empty();
        let result =
            self.store.run(move |local| together(local, commands, watched)).and_then(|result| result);
        match result {
            Ok(replies) => Reply::Array(replies),
            Err(StoreError::Conflict) if has_watched => Reply::NilArray,
            Err(error) => Reply::failed(&error),
        }
    }

    fn watch(&mut self, keys: &[Vec<u8>]) -> Reply {
        if keys.is_empty() {
            return Reply::wrong_arity("watch");
        }
        let keys = keys.to_vec();
        match self.store.run(move |local| look(local, keys)).and_then(|result| result) {
            Ok(seen) => {
                self.watched.rows.extend(seen.rows);
                Reply::OK
            }
            Err(error) => Reply::failed(&error),
        }
    }

    /// Answers the questions about the server that clients ask first.
    fn about_the_server(&mut self, name: &str, words: &Words) -> Reply {
        let argument = |at: usize| words.get(at).map(|word| upper(word)).unwrap_or_default();
        match (name, words.len()) {
            ("PING", 1) => Reply::Simple("PONG".into()),
            ("PING", 2) | ("ECHO", 2) => Reply::Bulk(words[1].clone()),
            ("SELECT", 2) if words[1] == b"0" => Reply::OK,
            ("SELECT", 2) => Reply::error("ERR this store has one database, 0"),
            ("HELLO", _) => self.hello(words),
            ("UNWATCH", _) => Reply::OK,
            ("COMMAND", 1) => {
                Reply::Array(data::NAMES.iter().map(|name| Reply::bulk(name.0.to_lowercase())).collect())
            }
            ("COMMAND", _) if argument(1) == "COUNT" => Reply::Integer(data::NAMES.len() as i64),
            ("COMMAND", _) if argument(1) == "DOCS" => Reply::Map(Vec::new()),
            ("CONFIG", _) if argument(1) == "GET" => {
                let known = ["save", "appendonly", "databases", "maxmemory"];
                let values = ["", "no", "1", "0"];
                let asked = |name: &&str| words[2..].iter().any(|word| glob::matches(word, name.as_bytes()));
                let found = known.iter().zip(values).filter(|(name, _)| asked(name));
                Reply::Map(found.map(|(name, value)| (Reply::bulk(*name), Reply::bulk(value))).collect())
            }
            ("CLIENT", _) if ["SETNAME", "SETINFO", "NO-EVICT", "NO-TOUCH"].contains(&&*argument(1)) => {
                Reply::OK
            }
            ("CLIENT", _) if argument(1) == "GETNAME" => Reply::bulk(""),
            ("CLIENT", _) if argument(1) == "ID" => Reply::Integer(1),
            ("INFO", _) => self.info(),
            _ => Reply::error(format!(
                "ERR unknown command '{}': it is not promised by this store; see docs/store.md",
                String::from_utf8_lossy(&words[0])
            )),
        }
    }

    fn hello(&mut self, words: &Words) -> Reply {
        match words.get(1).map(|word| &word[..]) {
            None => {}
            Some(b"2") => self.is_resp3 = false,
            Some(b"3") => self.is_resp3 = true,
            Some(_) => return Reply::error("NOPROTO unsupported protocol version"),
        }
        if words[1..].iter().any(|word| upper(word) == "AUTH") {
            return Reply::error("ERR this store has no users and no passwords");
        }
        let pair = |name: &str, value: Reply| (Reply::bulk(name), value);
        Reply::Map(vec![
            pair("server", Reply::bulk("highwire")),
            pair("version", Reply::bulk(REDIS_VERSION)),
            pair("proto", Reply::Integer(if self.is_resp3 { 3 } else { 2 })),
            pair("id", Reply::Integer(1)),
            pair("mode", Reply::bulk("standalone")),
            pair("role", Reply::bulk("master")),
            pair("modules", Reply::Array(Vec::new())),
        ])
    }

    fn info(&self) -> Reply {
        let status = match self.store.run(|local| async move { door::status(&local) }) {
            Ok(status) => status,
            Err(error) => return Reply::failed(&error),
        };
        let members: Vec<String> = status.members.iter().map(u16::to_string).collect();
        Reply::bulk(format!(
            "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:highwire\r\nprocess_id:{}\r\n\
             # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\
             # Highwire\r\nnode:{}\r\nconfiguration:{}\r\nmembers:{}\r\ncopies:{}\r\nserves:{}\r\n\
             committed:{}\r\nconflicts:{}\r\nunknown:{}\r\n",
            status.process,
            status.node,
            status.configuration,
            members.join(" "),
            status.copies,
            u8::from(status.is_open),
            status.committed,
            status.conflicts,
            status.unknown,
        ))
    }
}

/// Runs commands, each as a transaction.
async fn each(local: Local, commands: Vec<Words>) -> Vec<Reply> {
    let mut replies = Vec::with_capacity(commands.len());
    for words in commands {
        let is_long = is_long(std::slice::from_ref(&words));
        let result = local.transact_with(PATIENCE_NS, is_long, async |transaction: &mut Transaction| {
            data::apply(transaction, &words).await
        });
        replies.push(result.await.unwrap_or_else(|error| Reply::failed(&error)));
    }
    replies
}

/// Whether commands write much, as far as their words tell.
fn is_long(commands: &[Words]) -> bool {
    commands.iter().flatten().map(Vec::len).sum::<usize>() > USUAL_RECORD_BYTES_MAX
}

/// Runs commands as one transaction, if the watched keys are unchanged.
async fn together(local: Local, commands: Vec<Words>, watched: Footprint) -> Result<Vec<Reply>, StoreError> {
    let result =
        local.transact_with(PATIENCE_NS, is_long(&commands), async |transaction: &mut Transaction| {
            transaction.demand(&watched).await?;
            let mut replies = Vec::with_capacity(commands.len());
            for words in &commands {
                replies.push(data::apply(transaction, words).await?);
            }
            Ok(replies)
        });
    result.await
}

async fn look(local: Local, keys: Vec<Vec<u8>>) -> Result<Footprint, StoreError> {
    let result =
        local.transact(PATIENCE_NS, async |transaction: &mut Transaction| -> Result<Footprint, Stop> {
            let mut seen = Footprint::default();
            for key in &keys {
                seen.rows.extend(transaction.footprint(TABLE, key).await?);
            }
            Ok(seen)
        });
    result.await
}

fn upper(word: &[u8]) -> String {
    String::from_utf8_lossy(word).to_ascii_uppercase()
}
