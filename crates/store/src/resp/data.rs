//! Commands on data: their names, how many words they have, and which function carries them out.

use super::reply::Reply;
use super::{Words, bits, commands, expiry, fields, keys, keyspace, lcs, lists, sets, sorted, upper};
use crate::door::Room;
use crate::session::Stop;
use crate::transaction::Transaction;

/// Every command on data: the fewest and the most words, its name included. 0: no bound.
pub(super) const NAMES: &[(&str, usize, usize)] = &[
    ("APPEND", 3, 3),
    ("BITCOUNT", 2, 0),
    ("BITPOS", 3, 0),
    ("BLMOVE", 6, 6),
    ("BLMPOP", 5, 0),
    ("BLPOP", 3, 0),
    ("BRPOP", 3, 0),
    ("BRPOPLPUSH", 4, 4),
    ("BZMPOP", 5, 0),
    ("BZPOPMAX", 3, 0),
    ("BZPOPMIN", 3, 0),
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
    ("LINDEX", 3, 3),
    ("LINSERT", 5, 5),
    ("LLEN", 2, 2),
    ("LMOVE", 5, 5),
    ("LMPOP", 4, 0),
    ("LPOP", 2, 0),
    ("LPOS", 3, 0),
    ("LPUSH", 3, 0),
    ("LPUSHX", 3, 0),
    ("LRANGE", 4, 4),
    ("LREM", 4, 4),
    ("LSET", 4, 4),
    ("LTRIM", 4, 4),
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
    ("RPOP", 2, 0),
    ("RPOPLPUSH", 3, 3),
    ("RPUSH", 3, 0),
    ("RPUSHX", 3, 0),
    ("SADD", 3, 0),
    ("SCAN", 2, 0),
    ("SCARD", 2, 2),
    ("SDIFF", 2, 0),
    ("SDIFFSTORE", 3, 0),
    ("SET", 3, 0),
    ("SETBIT", 4, 4),
    ("SETEX", 4, 4),
    ("SETNX", 3, 3),
    ("SETRANGE", 4, 4),
    ("SINTER", 2, 0),
    ("SINTERCARD", 3, 0),
    ("SINTERSTORE", 3, 0),
    ("SISMEMBER", 3, 3),
    ("SMEMBERS", 2, 2),
    ("SMISMEMBER", 3, 0),
    ("SMOVE", 4, 4),
    ("SPOP", 2, 0),
    ("SRANDMEMBER", 2, 0),
    ("SREM", 3, 0),
    ("SSCAN", 3, 0),
    ("STRLEN", 2, 2),
    ("SUBSTR", 4, 4),
    ("SUNION", 2, 0),
    ("SUNIONSTORE", 3, 0),
    ("TOUCH", 2, 0),
    ("TTL", 2, 2),
    ("TYPE", 2, 2),
    ("UNLINK", 2, 0),
    ("ZADD", 4, 0),
    ("ZCARD", 2, 2),
    ("ZCOUNT", 4, 4),
    ("ZDIFF", 3, 0),
    ("ZDIFFSTORE", 4, 0),
    ("ZINCRBY", 4, 4),
    ("ZINTER", 3, 0),
    ("ZINTERCARD", 3, 0),
    ("ZINTERSTORE", 4, 0),
    ("ZLEXCOUNT", 4, 4),
    ("ZMPOP", 4, 0),
    ("ZMSCORE", 3, 0),
    ("ZPOPMAX", 2, 0),
    ("ZPOPMIN", 2, 0),
    ("ZRANDMEMBER", 2, 0),
    ("ZRANGE", 4, 0),
    ("ZRANGEBYLEX", 4, 0),
    ("ZRANGEBYSCORE", 4, 0),
    ("ZRANGESTORE", 5, 0),
    ("ZRANK", 3, 4),
    ("ZREM", 3, 0),
    ("ZREMRANGEBYLEX", 4, 4),
    ("ZREMRANGEBYRANK", 4, 4),
    ("ZREMRANGEBYSCORE", 4, 4),
    ("ZREVRANGE", 4, 0),
    ("ZREVRANGEBYLEX", 4, 0),
    ("ZREVRANGEBYSCORE", 4, 0),
    ("ZREVRANK", 3, 4),
    ("ZSCAN", 3, 0),
    ("ZSCORE", 3, 3),
    ("ZUNION", 3, 0),
    ("ZUNIONSTORE", 4, 0),
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
    arity(name).is_some()
}

fn arity(name: &str) -> Option<(usize, usize)> {
    let at = NAMES.binary_search_by_key(&name, |known| known.0).ok()?;
    Some((NAMES[at].1, NAMES[at].2))
}

/// Whether a command on data has as many words as it must.
pub(super) fn check(words: &Words) -> Result<(), Reply> {
    let name = upper(&words[0]);
    let Some((least, most)) = arity(&name) else { return Ok(()) };
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
    match Family::of(&name) {
        Family::Expiry => expiry::apply(transaction, &name, words).await,
        Family::Bits => bits::apply(transaction, &name, words).await,
        Family::Keyspace => keyspace::apply(transaction, &name, words).await,
        Family::Subsequence => lcs::apply(transaction, words, room).await,
        Family::Fields => fields::apply(transaction, &name, words, room).await,
        Family::Lists => lists::apply(transaction, &name, words, room).await,
        Family::Sets => sets::apply(transaction, &name, words, room).await,
        Family::Sorted => sorted::apply(transaction, &name, words, room).await,
        Family::Keys => keys::apply(transaction, &name, words, room).await,
    }
}

/// What commands are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// Strings, and keys of any type.
    Keys,
    Keyspace,
    Expiry,
    Bits,
    Subsequence,
    Fields,
    Lists,
    Sets,
    Sorted,
}

impl Family {
    fn of(name: &str) -> Family {
        match name {
            "BLMOVE" | "BLMPOP" | "BLPOP" | "BRPOP" | "BRPOPLPUSH" | "LINDEX" | "LINSERT" | "LLEN"
            | "LMOVE" | "LMPOP" | "LPOP" | "LPOS" | "LPUSH" | "LPUSHX" | "LRANGE" | "LREM" | "LSET"
            | "LTRIM" | "RPOP" | "RPOPLPUSH" | "RPUSH" | "RPUSHX" => Family::Lists,
            "SADD" | "SCARD" | "SDIFF" | "SDIFFSTORE" | "SINTER" | "SINTERCARD" | "SINTERSTORE"
            | "SISMEMBER" | "SMEMBERS" | "SMISMEMBER" | "SMOVE" | "SPOP" | "SRANDMEMBER" | "SREM"
            | "SSCAN" | "SUNION" | "SUNIONSTORE" => Family::Sets,
            "LCS" => Family::Subsequence,
            _ if expiry::NAMES.contains(&name) => Family::Expiry,
            _ if bits::NAMES.contains(&name) => Family::Bits,
            _ if keyspace::NAMES.contains(&name) => Family::Keyspace,
            _ if name.starts_with('Z') || name.starts_with("BZ") => Family::Sorted,
            _ if name.starts_with('H') => Family::Fields,
            _ => Family::Keys,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_so_that_they_are_found_by_halving() {
        assert!(NAMES.is_sorted_by(|one, next| one.0 < next.0));
    }

    #[test]
    fn each_command_is_of_the_family_that_carries_it_out() {
        let check = |line: &str, family: Family| {
            line.split(' ').for_each(|name| assert_eq!(Family::of(name), family, "{name}"));
        };
        check("LPUSH RPOP BLPOP BRPOPLPUSH LMPOP", Family::Lists);
        check("SADD SPOP SUNIONSTORE SSCAN", Family::Sets);
        check("ZADD ZUNION BZPOPMIN BZMPOP", Family::Sorted);
        check("HSET HLEN", Family::Fields);
        check("GET SETNX STRLEN SCAN DEL TYPE KEYS", Family::Keys);
        check("EXPIRE TTL GETEX SET", Family::Expiry);
        check("GETBIT BITPOS", Family::Bits);
        check("COPY RENAME FLUSHALL", Family::Keyspace);
    }
}
