//! Commands on data: their names, how many words they have, and which function carries them out.

use super::reply::Reply;
use super::{Words, bits, commands, expiry, fields, keys, keyspace, lcs, upper};
use crate::door::Room;
use crate::session::Stop;
use crate::transaction::Transaction;

/// Every command on data: the fewest and the most words, its name included. 0: no bound.
pub(super) const NAMES: &[(&str, usize, usize)] = &[
    ("APPEND", 3, 3),
    ("BITCOUNT", 2, 0),
    ("BITPOS", 3, 0),
    ("COPY", 3, 0),
    ("DBSIZE", 1, 1),
    ("DECR", 2, 2),
    ("DECRBY", 3, 3),
    ("DEL", 2, 0),
    ("EXISTS", 2, 0),
    ("EXPIRE", 3, 0),
    ("EXPIREAT", 3, 0),
    ("EXPIRETIME", 2, 2),
    ("FLUSHALL", 1, 0),
    ("FLUSHDB", 1, 0),
    ("GET", 2, 2),
    ("GETBIT", 3, 3),
    ("GETDEL", 2, 2),
    ("GETEX", 2, 0),
    ("GETRANGE", 4, 4),
    ("GETSET", 3, 3),
    ("HDEL", 3, 0),
    ("HEXISTS", 3, 3),
    ("HGET", 3, 3),
    ("HGETALL", 2, 2),
    ("HINCRBY", 4, 4),
    ("HINCRBYFLOAT", 4, 4),
    ("HKEYS", 2, 2),
    ("HLEN", 2, 2),
    ("HMGET", 3, 0),
    ("HMSET", 4, 0),
    ("HRANDFIELD", 2, 0),
    ("HSCAN", 3, 0),
    ("HSET", 4, 0),
    ("HSETNX", 4, 4),
    ("HSTRLEN", 3, 3),
    ("HVALS", 2, 2),
    ("INCR", 2, 2),
    ("INCRBY", 3, 3),
    ("INCRBYFLOAT", 3, 3),
    ("KEYS", 2, 2),
    ("LCS", 3, 0),
    ("MGET", 2, 0),
    ("MSET", 3, 0),
    ("MSETNX", 3, 0),
    ("OBJECT", 2, 0),
    ("PERSIST", 2, 2),
    ("PEXPIRE", 3, 0),
    ("PEXPIREAT", 3, 0),
    ("PEXPIRETIME", 2, 2),
    ("PSETEX", 4, 4),
    ("PTTL", 2, 2),
    ("RANDOMKEY", 1, 1),
    ("RENAME", 3, 3),
    ("RENAMENX", 3, 3),
    ("SCAN", 2, 0),
    ("SET", 3, 0),
    ("SETBIT", 4, 4),
    ("SETEX", 4, 4),
    ("SETNX", 3, 3),
    ("SETRANGE", 4, 4),
    ("STRLEN", 2, 2),
    ("SUBSTR", 4, 4),
    ("TOUCH", 2, 0),
    ("TTL", 2, 2),
    ("TYPE", 2, 2),
    ("UNLINK", 2, 0),
];

/// Whether a command is on one key, its first word.
pub(super) fn has_one_key(name: &str) -> bool {
    knows(name) && commands::find(name).is_some_and(|command| command.has_one_key())
}

/// Whether a command changes nothing.
pub(super) fn only_reads(name: &str) -> bool {
    // OBJECT is the name of several commands, each of which reads.
    name == "OBJECT" || knows(name) && commands::find(name).is_some_and(|command| command.only_reads())
}

/// Whether it is a command on data.
pub(super) fn knows(name: &str) -> bool {
    NAMES.iter().any(|known| known.0 == name)
}

/// Whether a command on data has as many words as it must.
pub(super) fn check(words: &Words) -> Result<(), Reply> {
    let name = upper(&words[0]);
    let Some(&(_, least, most)) = NAMES.iter().find(|known| known.0 == name) else { return Ok(()) };
    let is_right = words.len() >= least && (most == 0 || words.len() <= most);
    if is_right { Ok(()) } else { Err(Reply::wrong_arity(&name.to_lowercase())) }
}

/// Carries out a command within a transaction. A command that fails has changed nothing. Replies that may be long take their bytes
/// from `room`.
pub(super) async fn apply(
    transaction: &mut Transaction,
    words: &Words,
    room: &mut Room,
) -> Result<Reply, Stop> {
    let name = upper(&words[0]);
    match &*name {
        name if name.starts_with('H') => fields::apply(transaction, name, words, room).await,
        name if expiry::NAMES.contains(&name) => expiry::apply(transaction, name, words).await,
        name if bits::NAMES.contains(&name) => bits::apply(transaction, name, words).await,
        name if keyspace::NAMES.contains(&name) => keyspace::apply(transaction, name, words).await,
        "LCS" => lcs::apply(transaction, words, room).await,
        name => keys::apply(transaction, name, words, room).await,
    }
}
