//! Commands on data: their names, and who carries them out.

use super::outcome::settle;
use super::reply::Reply;
use super::{Words, bits, commands, expiry, fields, keys, keyspace, lcs, lists, sets, sorted, upper};
use crate::door::Room;
use crate::session::Stop;
use crate::transaction::Transaction;

/// What commands are about: the module that carries them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Strings, and keys of any type.
    Keys,
    /// Names of keys, and all keys together.
    Keyspace,
    Expiry,
    /// Bits and ranges of strings.
    Bits,
    /// `LCS`.
    Subsequence,
    /// Hashes.
    Fields,
    Lists,
    Sets,
    Sorted,
}

use Family::{Bits, Expiry, Fields, Keys, Keyspace, Lists, Sets, Sorted, Subsequence};

/// Every command on data, in the order of their names, and who carries it out. `commands` knows the rest of each.
pub(super) const NAMES: &[(&str, Family)] = &[
    ("APPEND", Keys),
    ("BITCOUNT", Bits),
    ("BITPOS", Bits),
    ("BLMOVE", Lists),
    ("BLMPOP", Lists),
    ("BLPOP", Lists),
    ("BRPOP", Lists),
    ("BRPOPLPUSH", Lists),
    ("BZMPOP", Sorted),
    ("BZPOPMAX", Sorted),
    ("BZPOPMIN", Sorted),
    ("COPY", Keyspace),
    ("DBSIZE", Keys),
    ("DECR", Keys),
    ("DECRBY", Keys),
    ("DEL", Keys),
    ("EXISTS", Keys),
    ("EXPIRE", Expiry),
    ("EXPIREAT", Expiry),
    ("EXPIRETIME", Expiry),
    ("FLUSHALL", Keyspace),
    ("FLUSHDB", Keyspace),
    ("GET", Keys),
    ("GETBIT", Bits),
    ("GETDEL", Keys),
    ("GETEX", Expiry),
    ("GETRANGE", Bits),
    ("GETSET", Keys),
    ("HDEL", Fields),
    ("HEXISTS", Fields),
    ("HGET", Fields),
    ("HGETALL", Fields),
    ("HINCRBY", Fields),
    ("HINCRBYFLOAT", Fields),
    ("HKEYS", Fields),
    ("HLEN", Fields),
    ("HMGET", Fields),
    ("HMSET", Fields),
    ("HRANDFIELD", Fields),
    ("HSCAN", Fields),
    ("HSET", Fields),
    ("HSETNX", Fields),
    ("HSTRLEN", Fields),
    ("HVALS", Fields),
    ("INCR", Keys),
    ("INCRBY", Keys),
    ("INCRBYFLOAT", Keys),
    ("KEYS", Keys),
    ("LCS", Subsequence),
    ("LINDEX", Lists),
    ("LINSERT", Lists),
    ("LLEN", Lists),
    ("LMOVE", Lists),
    ("LMPOP", Lists),
    ("LPOP", Lists),
    ("LPOS", Lists),
    ("LPUSH", Lists),
    ("LPUSHX", Lists),
    ("LRANGE", Lists),
    ("LREM", Lists),
    ("LSET", Lists),
    ("LTRIM", Lists),
    ("MGET", Keys),
    ("MSET", Keys),
    ("MSETNX", Keys),
    ("OBJECT", Keyspace),
    ("PERSIST", Expiry),
    ("PEXPIRE", Expiry),
    ("PEXPIREAT", Expiry),
    ("PEXPIRETIME", Expiry),
    ("PSETEX", Expiry),
    ("PTTL", Expiry),
    ("RANDOMKEY", Keyspace),
    ("RENAME", Keyspace),
    ("RENAMENX", Keyspace),
    ("RPOP", Lists),
    ("RPOPLPUSH", Lists),
    ("RPUSH", Lists),
    ("RPUSHX", Lists),
    ("SADD", Sets),
    ("SCAN", Keys),
    ("SCARD", Sets),
    ("SDIFF", Sets),
    ("SDIFFSTORE", Sets),
    ("SET", Expiry),
    ("SETBIT", Bits),
    ("SETEX", Expiry),
    ("SETNX", Keys),
    ("SETRANGE", Bits),
    ("SINTER", Sets),
    ("SINTERCARD", Sets),
    ("SINTERSTORE", Sets),
    ("SISMEMBER", Sets),
    ("SMEMBERS", Sets),
    ("SMISMEMBER", Sets),
    ("SMOVE", Sets),
    ("SPOP", Sets),
    ("SRANDMEMBER", Sets),
    ("SREM", Sets),
    ("SSCAN", Sets),
    ("STRLEN", Keys),
    ("SUBSTR", Bits),
    ("SUNION", Sets),
    ("SUNIONSTORE", Sets),
    ("TOUCH", Keys),
    ("TTL", Expiry),
    ("TYPE", Keys),
    ("UNLINK", Keys),
    ("ZADD", Sorted),
    ("ZCARD", Sorted),
    ("ZCOUNT", Sorted),
    ("ZDIFF", Sorted),
    ("ZDIFFSTORE", Sorted),
    ("ZINCRBY", Sorted),
    ("ZINTER", Sorted),
    ("ZINTERCARD", Sorted),
    ("ZINTERSTORE", Sorted),
    ("ZLEXCOUNT", Sorted),
    ("ZMPOP", Sorted),
    ("ZMSCORE", Sorted),
    ("ZPOPMAX", Sorted),
    ("ZPOPMIN", Sorted),
    ("ZRANDMEMBER", Sorted),
    ("ZRANGE", Sorted),
    ("ZRANGEBYLEX", Sorted),
    ("ZRANGEBYSCORE", Sorted),
    ("ZRANGESTORE", Sorted),
    ("ZRANK", Sorted),
    ("ZREM", Sorted),
    ("ZREMRANGEBYLEX", Sorted),
    ("ZREMRANGEBYRANK", Sorted),
    ("ZREMRANGEBYSCORE", Sorted),
    ("ZREVRANGE", Sorted),
    ("ZREVRANGEBYLEX", Sorted),
    ("ZREVRANGEBYSCORE", Sorted),
    ("ZREVRANK", Sorted),
    ("ZSCAN", Sorted),
    ("ZSCORE", Sorted),
    ("ZUNION", Sorted),
    ("ZUNIONSTORE", Sorted),
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
    family(name).is_some()
}

fn family(name: &str) -> Option<Family> {
    let at = NAMES.binary_search_by_key(&name, |known| known.0).ok()?;
    Some(NAMES[at].1)
}

/// Whether a command on data has as many words as it must.
pub(super) fn check(words: &Words) -> Result<(), Reply> {
    let name = upper(&words[0]);
    let Some(command) = commands::find(&name).filter(|_| knows(&name)) else { return Ok(()) };
    // Redis 7.2 has a word more than the table's 7.0.
    let has_a_score = matches!(&*name, "ZRANK" | "ZREVRANK") && words.len() == 4;
    if has_a_score || command.fits(words.len()) {
        Ok(())
    } else {
        Err(Reply::wrong_arity(&name.to_lowercase()))
    }
}

/// Carries out a command within a transaction. A command that fails has changed nothing. Replies that may be long take their bytes
/// from `room`.
pub(super) async fn apply(
    transaction: &mut Transaction,
    words: &Words,
    room: &mut Room,
) -> Result<Reply, Stop> {
    let name = upper(&words[0]);
    settle(match family(&name).unwrap_or(Keys) {
        Expiry => expiry::apply(transaction, &name, words).await,
        Bits => bits::apply(transaction, &name, words).await,
        Keyspace => keyspace::apply(transaction, &name, words).await,
        Subsequence => lcs::apply(transaction, words, room).await,
        Fields => fields::apply(transaction, &name, words, room).await,
        Lists => lists::apply(transaction, &name, words, room).await,
        Sets => sets::apply(transaction, &name, words, room).await,
        Sorted => sorted::apply(transaction, &name, words, room).await,
        Keys => keys::apply(transaction, &name, words, room).await,
    })
}
