//! The Redis door: strings, hashes, lists, sets, sorted sets, channels and transactions of Redis's protocol, over this store, for every Redis client.
//!
//! Each command is a transaction, or a part of one with those that arrive at the same time (`turns`). `WATCH` reads, and its reads are the read set that `EXEC` demands; `EXEC`
//! is the commit. An unsupported command gets an error that says so, and never a result that is merely close.
//! All keys lie in the table `redis`.
//!
//! What a client makes this door hold is bounded: requests, commands queued since MULTI, watched keys, and answers that it does not
//! read. Commands are carried out some at a time, and their replies are written before the next are taken up.

mod acl;
mod bits;
mod client;
pub(crate) mod cluster;
mod collections;
mod commands;
mod data;
mod decimal;
mod expiry;
mod fields;
mod glob;
mod http;
pub(crate) mod hub;
mod inline;
mod keys;
mod keyspace;
mod lcs;
mod lists;
mod outcome;
mod parse;
mod pubsub;
mod reply;
mod scans;
mod scores;
mod server;
mod session;
mod sets;
mod sorted;
pub(crate) mod turns;
mod waiting;

use crate::door::{self, Room};
use crate::engine::{PATIENCE_NS, Store};
use crate::error::StoreError;
use crate::message::Footprint;
use crate::scan;
use crate::session::{Local, Stop, USUAL_RECORD_BYTES_MAX};
use crate::transaction::Transaction;
pub(crate) use hub::Hub;
use reply::Reply;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

/// Where the keys are.
const TABLE: &[u8] = crate::rows::SLOTTED;

/// A command's words.
type Words = Vec<Vec<u8>>;

/// The commands of a batch end, for now, when their replies have so many bytes.
const BATCH_BYTES: usize = 1 << 20;

impl Store {
    /// Lets Redis clients in at `address`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn open_resp(&self, address: &str) -> io::Result<()> {
        let listener = TcpListener::bind(address)?;
        self.hub.cluster.opened(listener.local_addr()?, &self.introduction.door);
        let (store, turns) = (self.clone(), Arc::clone(self.hub.turns()));
        door::serve(listener, "resp", &self.keeper, &self.io, move |guest| {
            session::run(store.clone(), Arc::clone(&turns), guest)
        })
    }
}

/// What `fuzz/` tries: no bytes of a client, of a value or of another node panic, and the parser holds no more than it may, in however many pieces they come.
#[doc(hidden)]
pub fn try_parser(bytes: &[u8]) {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let (mut parser, mut whole) = (parse::Parser::default(), parse::Parser::default());
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    whole.feed(bytes);
    let end = drain(&mut whole, &mut expected);
    let mut cut = None;
    for piece in bytes.chunks(usize::from(step) + 1) {
        parser.feed(piece);
        cut = drain(&mut parser, &mut found);
        assert!(parser.held() <= parse::REQUEST_BYTES_MAX + parse::WORDS_MAX * 32 + 4 * bytes.len() + 4096);
        if cut.is_some() {
            break;
        }
    }
    // A line that is too long is noticed sooner if it comes in pieces.
    if bytes.len() < 1 << 16 {
        assert_eq!((found, cut), (expected, end), "pieces of {}", usize::from(step) + 1);
    }
    if let Some(words) = inline::words(bytes) {
        assert!(words.iter().map(Vec::len).sum::<usize>() <= bytes.len());
    }
    if let Some(elements) = collections::parse(bytes) {
        assert!(elements.iter().map(|element| element.len()).sum::<usize>() <= bytes.len());
    }
    sorted::try_parse(bytes);
    scores::parse(bytes);
    hub::try_tell(bytes);
    if let Some((pattern, text)) = bytes.split_at_checked(bytes.len().min(64)) {
        glob::matches(pattern, text);
    }
}

fn drain(parser: &mut parse::Parser, found: &mut Vec<parse::Request>) -> Option<String> {
    loop {
        match parser.next() {
            Ok(Some(request)) => found.push(request),
            Ok(None) => return None,
            Err(what) => return Some(what),
        }
    }
}

/// Runs commands, each as a transaction, until their replies are long, or until writers get in the way of one that reads many keys. Returns the replies, and
/// the commands that were not run.
async fn each(local: Local, commands: Vec<Words>, mut room: Room) -> (Vec<Reply>, Vec<Words>, Room) {
    let mut replies = Vec::with_capacity(commands.len());
    let mut commands = commands.into_iter();
    while let Some(words) = commands.next() {
        let is_long = is_long(std::slice::from_ref(&words));
        let before = room.bytes();
        if keyspace::is_flush(&words) {
            let reply = keyspace::flush(&local, &words).await;
            replies.push(reply.unwrap_or_else(|error| Reply::failed(&error)));
            continue;
        }
        let is_scan = scans::is_scan(&words);
        let (attempts, patience_ns) =
            if is_scan { (scan::ATTEMPTS, scan::ATTEMPTS_NS) } else { (u32::MAX, PATIENCE_NS) };
        let result =
            local.transact_at_most(attempts, patience_ns, is_long, async |transaction: &mut Transaction| {
                room.shrink(before);
                let reply = data::apply(transaction, &words, &mut room).await?;
                // What the command has not counted itself.
                room.resize(before + reply.held())?;
                Ok(reply)
            });
        let result = result.await;
        if is_scan && matches!(result, Err(StoreError::Conflict | StoreError::Unavailable(_))) {
            room.shrink(before);
            return (replies, std::iter::once(words).chain(commands).collect(), room);
        }
        replies.push(result.unwrap_or_else(|error| {
            room.shrink(before);
            Reply::failed(&error)
        }));
        if room.bytes() >= BATCH_BYTES {
            break;
        }
        local.rpc.yield_now().await;
    }
    (replies, commands.collect(), room)
}

/// Whether commands write much, as far as their words tell.
fn is_long(commands: &[Words]) -> bool {
    commands.iter().flatten().map(Vec::len).sum::<usize>() > USUAL_RECORD_BYTES_MAX
}

/// Runs commands as one transaction, if the watched keys are unchanged.
async fn together(
    local: Local,
    commands: Vec<Words>,
    watched: Footprint,
    room: &mut Room,
) -> Result<Vec<Reply>, StoreError> {
    let result =
        local.transact_with(PATIENCE_NS, is_long(&commands), async |transaction: &mut Transaction| {
            room.shrink(0);
            transaction.demand(&watched).await?;
            let mut replies = Vec::with_capacity(commands.len());
            for words in &commands {
                let before = room.bytes();
                let reply = data::apply(transaction, words, room).await?;
                room.resize(before + reply.held())?;
                transaction.breathe(reply.held() + keys::PER_KEY).await;
                replies.push(reply);
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
