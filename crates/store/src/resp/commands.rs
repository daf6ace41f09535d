//! The commands of Redis 7: how many words each has, what it does to data, where its keys stand, and its categories. So `COMMAND` and `ACL CAT` say what
//! Redis says, and a command that this store does not have is told from one that nobody has.
//!
//! Whether this store has a command is for `data` and `server` to say; `tests/oracle.rs` compares these rows with those of a Redis.

use super::reply::Reply;
use super::{data, server};

/// A command of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) name: &'static str,
    /// How many words it has, its name included; below 0, at least so many.
    pub(super) arity: i64,
    flags: &'static str,
    /// The first word that is a key, the last one, which may be counted from the end, and the step between them.
    keys: [i64; 3],
    categories: &'static str,
}

/// The categories of Redis.
pub(super) const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The command of a name in capitals.
pub(super) fn find(name: &str) -> Option<Command> {
    let at = ALL.binary_search_by(|row| row.0.cmp(name)).ok()?;
    let (name, arity, flags, keys, categories) = ALL[at];
    Some(Command { name, arity, flags, keys, categories })
}

/// The commands of this store.
pub(super) fn promised() -> impl Iterator<Item = Command> {
    ALL.iter().filter(|row| data::knows(row.0) || server::knows(row.0)).filter_map(|row| find(row.0))
}

impl Command {
    pub(super) fn is(&self, category: &str) -> bool {
        self.categories.split(' ').any(|its| its == category)
    }

    /// Whether it changes no data.
    pub(super) fn only_reads(&self) -> bool {
        self.flags.split(' ').any(|flag| flag == "readonly")
    }

    /// Whether its first word is its only key.
    pub(super) fn has_one_key(&self) -> bool {
        self.keys == [1, 1, 1]
    }

    /// Its keys, if they stand where every command of this name has them.
    pub(super) fn keys_in<'a>(&self, words: &'a [Vec<u8>]) -> impl Iterator<Item = &'a Vec<u8>> + use<'a> {
        let [first, last, step] = self.keys;
        let behind = if last < 0 { words.len() as i64 + last } else { last } + 1;
        let end = (behind.max(0) as usize).min(words.len());
        let begin = if first > 0 { (first as usize).min(end) } else { end };
        words[begin..end].iter().step_by(step.max(1) as usize)
    }

    /// Whether it may have so many words.
    pub(super) fn fits(&self, words: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { words >= least } else { words == least }
    }

    /// What `COMMAND INFO` says.
    pub(super) fn info(&self) -> Reply {
        let words = |text: &str, mark: &str| {
            let words = text.split(' ').filter(|word| !word.is_empty());
            Reply::Array(words.map(|word| Reply::Simple(format!("{mark}{word}"))).collect())
        };
        let mut all =
            vec![Reply::bulk(self.name.to_lowercase()), Reply::Integer(self.arity), words(self.flags, "")];
        all.extend(self.keys.map(Reply::Integer));
        all.push(words(self.categories, "@"));
        // Tips, places of keys and subcommands.
        all.extend(std::iter::repeat_n(Reply::Array(Vec::new()), 3));
        Reply::Array(all)
    }
}

type Row = (&'static str, i64, &'static str, [i64; 3], &'static str);

#[rustfmt::skip]
const ALL: &[Row] = &[
    ("ACL", -2, "", [0, 0, 0], "slow"),
    ("APPEND", 3, "write denyoom fast", [1, 1, 1], "write string fast"),
    ("ASKING", 1, "fast", [0, 0, 0], "fast connection"),
    ("AUTH", -2, "noscript loading stale fast no_auth allow_busy", [0, 0, 0], "fast connection"),
    ("BGREWRITEAOF", 1, "admin noscript no_async_loading", [0, 0, 0], "admin slow dangerous"),
    ("BGSAVE", -1, "admin noscript no_async_loading", [0, 0, 0], "admin slow dangerous"),
    ("BITCOUNT", -2, "readonly", [1, 1, 1], "read bitmap slow"),
    ("BITFIELD", -2, "write denyoom", [1, 1, 1], "write bitmap slow"),
    ("BITFIELD_RO", -2, "readonly fast", [1, 1, 1], "read bitmap fast"),
    ("BITOP", -4, "write denyoom", [2, -1, 1], "write bitmap slow"),
    ("BITPOS", -3, "readonly", [1, 1, 1], "read bitmap slow"),
    ("BLMOVE", 6, "write denyoom noscript blocking", [1, 2, 1], "write list slow blocking"),
    ("BLMPOP", -5, "write blocking movablekeys", [0, 0, 0], "write list slow blocking"),
    ("BLPOP", -3, "write noscript blocking", [1, -2, 1], "write list slow blocking"),
    ("BRPOP", -3, "write noscript blocking", [1, -2, 1], "write list slow blocking"),
    ("BRPOPLPUSH", 4, "write denyoom noscript blocking", [1, 2, 1], "write list slow blocking"),
    ("BZMPOP", -5, "write blocking movablekeys", [0, 0, 0], "write sortedset slow blocking"),
    ("BZPOPMAX", -3, "write noscript blocking fast", [1, -2, 1], "write sortedset fast blocking"),
    ("BZPOPMIN", -3, "write noscript blocking fast", [1, -2, 1], "write sortedset fast blocking"),
    ("CLIENT", -2, "", [0, 0, 0], "slow"),
    ("CLUSTER", -2, "", [0, 0, 0], "slow"),
    ("COMMAND", -1, "loading stale", [0, 0, 0], "slow connection"),
    ("CONFIG", -2, "", [0, 0, 0], "slow"),
    ("COPY", -3, "write denyoom", [1, 2, 1], "keyspace write slow"),
    ("DBSIZE", 1, "readonly fast", [0, 0, 0], "keyspace read fast"),
    ("DEBUG", -2, "admin noscript loading stale", [0, 0, 0], "admin slow dangerous"),
    ("DECR", 2, "write denyoom fast", [1, 1, 1], "write string fast"),
    ("DECRBY", 3, "write denyoom fast", [1, 1, 1], "write string fast"),
    ("DEL", -2, "write", [1, -1, 1], "keyspace write slow"),
    ("DISCARD", 1, "noscript loading stale fast allow_busy", [0, 0, 0], "fast transaction"),
    ("DUMP", 2, "readonly", [1, 1, 1], "keyspace read slow"),
    ("ECHO", 2, "loading stale fast", [0, 0, 0], "fast connection"),
    ("EVAL", -3, "noscript stale skip_monitor no_mandatory_keys movablekeys", [0, 0, 0], "slow scripting"),
    ("EVALSHA", -3, "noscript stale skip_monitor no_mandatory_keys movablekeys", [0, 0, 0], "slow scripting"),
    ("EVALSHA_RO", -3, "readonly noscript stale skip_monitor no_mandatory_keys movablekeys", [0, 0, 0], "slow scripting"),
    ("EVAL_RO", -3, "readonly noscript stale skip_monitor no_mandatory_keys movablekeys", [0, 0, 0], "slow scripting"),
    ("EXEC", 1, "noscript loading stale skip_slowlog", [0, 0, 0], "slow transaction"),
    ("EXISTS", -2, "readonly fast", [1, -1, 1], "keyspace read fast"),
    ("EXPIRE", -3, "write fast", [1, 1, 1], "keyspace write fast"),
    ("EXPIREAT", -3, "write fast", [1, 1, 1], "keyspace write fast"),
    ("EXPIRETIME", 2, "readonly fast", [1, 1, 1], "keyspace read fast"),
    ("FAILOVER", -1, "admin noscript stale", [0, 0, 0], "admin slow dangerous"),
    ("FCALL", -3, "noscript stale skip_monitor no_mandatory_keys movablekeys", [0, 0, 0], "slow scripting"),
    ("FCALL_RO", -3, "readonly noscript stale skip_monitor no_mandatory_keys movablekeys", [0, 0, 0], "slow scripting"),
    ("FLUSHALL", -1, "write", [0, 0, 0], "keyspace write slow dangerous"),
    ("FLUSHDB", -1, "write", [0, 0, 0], "keyspace write slow dangerous"),
    ("FUNCTION", -2, "", [0, 0, 0], "slow"),
    ("GEOADD", -5, "write denyoom", [1, 1, 1], "write geo slow"),
    ("GEODIST", -4, "readonly", [1, 1, 1], "read geo slow"),
    ("GEOHASH", -2, "readonly", [1, 1, 1], "read geo slow"),
    ("GEOPOS", -2, "readonly", [1, 1, 1], "read geo slow"),
    ("GEORADIUS", -6, "write denyoom movablekeys", [1, 1, 1], "write geo slow"),
    ("GEORADIUSBYMEMBER", -5, "write denyoom movablekeys", [1, 1, 1], "write geo slow"),
    ("GEORADIUSBYMEMBER_RO", -5, "readonly", [1, 1, 1], "read geo slow"),
    ("GEORADIUS_RO", -6, "readonly", [1, 1, 1], "read geo slow"),
    ("GEOSEARCH", -7, "readonly", [1, 1, 1], "read geo slow"),
    ("GEOSEARCHSTORE", -8, "write denyoom", [1, 2, 1], "write geo slow"),
    ("GET", 2, "readonly fast", [1, 1, 1], "read string fast"),
    ("GETBIT", 3, "readonly fast", [1, 1, 1], "read bitmap fast"),
    ("GETDEL", 2, "write fast", [1, 1, 1], "write string fast"),
    ("GETEX", -2, "write fast", [1, 1, 1], "write string fast"),
    ("GETRANGE", 4, "readonly", [1, 1, 1], "read string slow"),
    ("GETSET", 3, "write denyoom fast", [1, 1, 1], "write string fast"),
    ("HDEL", -3, "write fast", [1, 1, 1], "write hash fast"),
    ("HELLO", -1, "noscript loading stale fast no_auth allow_busy", [0, 0, 0], "fast connection"),
    ("HEXISTS", 3, "readonly fast", [1, 1, 1], "read hash fast"),
    ("HGET", 3, "readonly fast", [1, 1, 1], "read hash fast"),
    ("HGETALL", 2, "readonly", [1, 1, 1], "read hash slow"),
    ("HINCRBY", 4, "write denyoom fast", [1, 1, 1], "write hash fast"),
    ("HINCRBYFLOAT", 4, "write denyoom fast", [1, 1, 1], "write hash fast"),
    ("HKEYS", 2, "readonly", [1, 1, 1], "read hash slow"),
    ("HLEN", 2, "readonly fast", [1, 1, 1], "read hash fast"),
    ("HMGET", -3, "readonly fast", [1, 1, 1], "read hash fast"),
    ("HMSET", -4, "write denyoom fast", [1, 1, 1], "write hash fast"),
    ("HRANDFIELD", -2, "readonly", [1, 1, 1], "read hash slow"),
    ("HSCAN", -3, "readonly", [1, 1, 1], "read hash slow"),
    ("HSET", -4, "write denyoom fast", [1, 1, 1], "write hash fast"),
    ("HSETNX", 4, "write denyoom fast", [1, 1, 1], "write hash fast"),
    ("HSTRLEN", 3, "readonly fast", [1, 1, 1], "read hash fast"),
    ("HVALS", 2, "readonly", [1, 1, 1], "read hash slow"),
    ("INCR", 2, "write denyoom fast", [1, 1, 1], "write string fast"),
    ("INCRBY", 3, "write denyoom fast", [1, 1, 1], "write string fast"),
    ("INCRBYFLOAT", 3, "write denyoom fast", [1, 1, 1], "write string fast"),
    ("INFO", -1, "loading stale", [0, 0, 0], "slow dangerous"),
    ("KEYS", 2, "readonly", [0, 0, 0], "keyspace read slow dangerous"),
    ("LASTSAVE", 1, "loading stale fast", [0, 0, 0], "admin fast dangerous"),
    ("LATENCY", -2, "", [0, 0, 0], "slow"),
    ("LCS", -3, "readonly", [1, 2, 1], "read string slow"),
    ("LINDEX", 3, "readonly", [1, 1, 1], "read list slow"),
    ("LINSERT", 5, "write denyoom", [1, 1, 1], "write list slow"),
    ("LLEN", 2, "readonly fast", [1, 1, 1], "read list fast"),
    ("LMOVE", 5, "write denyoom", [1, 2, 1], "write list slow"),
    ("LMPOP", -4, "write movablekeys", [0, 0, 0], "write list slow"),
    ("LOLWUT", -1, "readonly fast", [0, 0, 0], "read fast"),
    ("LPOP", -2, "write fast", [1, 1, 1], "write list fast"),
    ("LPOS", -3, "readonly", [1, 1, 1], "read list slow"),
    ("LPUSH", -3, "write denyoom fast", [1, 1, 1], "write list fast"),
    ("LPUSHX", -3, "write denyoom fast", [1, 1, 1], "write list fast"),
    ("LRANGE", 4, "readonly", [1, 1, 1], "read list slow"),
    ("LREM", 4, "write", [1, 1, 1], "write list slow"),
    ("LSET", 4, "write denyoom", [1, 1, 1], "write list slow"),
    ("LTRIM", 4, "write", [1, 1, 1], "write list slow"),
    ("MEMORY", -2, "", [0, 0, 0], "slow"),
    ("MGET", -2, "readonly fast", [1, -1, 1], "read string fast"),
    ("MIGRATE", -6, "write movablekeys", [3, 3, 1], "keyspace write slow dangerous"),
    ("MODULE", -2, "", [0, 0, 0], "slow"),
    ("MONITOR", 1, "admin noscript loading stale", [0, 0, 0], "admin slow dangerous"),
    ("MOVE", 3, "write fast", [1, 1, 1], "keyspace write fast"),
    ("MSET", -3, "write denyoom", [1, -1, 2], "write string slow"),
    ("MSETNX", -3, "write denyoom", [1, -1, 2], "write string slow"),
    ("MULTI", 1, "noscript loading stale fast allow_busy", [0, 0, 0], "fast transaction"),
    ("OBJECT", -2, "", [0, 0, 0], "slow"),
    ("PERSIST", 2, "write fast", [1, 1, 1], "keyspace write fast"),
    ("PEXPIRE", -3, "write fast", [1, 1, 1], "keyspace write fast"),
    ("PEXPIREAT", -3, "write fast", [1, 1, 1], "keyspace write fast"),
    ("PEXPIRETIME", 2, "readonly fast", [1, 1, 1], "keyspace read fast"),
    ("PFADD", -2, "write denyoom fast", [1, 1, 1], "write hyperloglog fast"),
    ("PFCOUNT", -2, "readonly", [1, -1, 1], "read hyperloglog slow"),
    ("PFDEBUG", 3, "write denyoom admin", [2, 2, 1], "write hyperloglog admin slow dangerous"),
    ("PFMERGE", -2, "write denyoom", [1, -1, 1], "write hyperloglog slow"),
    ("PFSELFTEST", 1, "admin", [0, 0, 0], "hyperloglog admin slow dangerous"),
    ("PING", -1, "fast", [0, 0, 0], "fast connection"),
    ("PSETEX", 4, "write denyoom", [1, 1, 1], "write string slow"),
    ("PSUBSCRIBE", -2, "pubsub noscript loading stale", [0, 0, 0], "pubsub slow"),
    ("PSYNC", -3, "admin noscript no_async_loading no_multi", [0, 0, 0], "admin slow dangerous"),
    ("PTTL", 2, "readonly fast", [1, 1, 1], "keyspace read fast"),
    ("PUBLISH", 3, "pubsub loading stale fast", [0, 0, 0], "pubsub fast"),
    ("PUBSUB", -2, "", [0, 0, 0], "slow"),
    ("PUNSUBSCRIBE", -1, "pubsub noscript loading stale", [0, 0, 0], "pubsub slow"),
    ("QUIT", -1, "noscript loading stale fast no_auth allow_busy", [0, 0, 0], "fast connection"),
    ("RANDOMKEY", 1, "readonly", [0, 0, 0], "keyspace read slow"),
    ("READONLY", 1, "loading stale fast", [0, 0, 0], "fast connection"),
    ("READWRITE", 1, "loading stale fast", [0, 0, 0], "fast connection"),
    ("RENAME", 3, "write", [1, 2, 1], "keyspace write slow"),
    ("RENAMENX", 3, "write fast", [1, 2, 1], "keyspace write fast"),
    ("REPLCONF", -1, "admin noscript loading stale allow_busy", [0, 0, 0], "admin slow dangerous"),
    ("REPLICAOF", 3, "admin noscript stale no_async_loading", [0, 0, 0], "admin slow dangerous"),
    ("RESET", 1, "noscript loading stale fast no_auth allow_busy", [0, 0, 0], "fast connection"),
    ("RESTORE", -4, "write denyoom", [1, 1, 1], "keyspace write slow dangerous"),
    ("RESTORE-ASKING", -4, "write denyoom asking", [1, 1, 1], "keyspace write slow dangerous"),
    ("ROLE", 1, "noscript loading stale fast", [0, 0, 0], "admin fast dangerous"),
    ("RPOP", -2, "write fast", [1, 1, 1], "write list fast"),
    ("RPOPLPUSH", 3, "write denyoom", [1, 2, 1], "write list slow"),
    ("RPUSH", -3, "write denyoom fast", [1, 1, 1], "write list fast"),
    ("RPUSHX", -3, "write denyoom fast", [1, 1, 1], "write list fast"),
    ("SADD", -3, "write denyoom fast", [1, 1, 1], "write set fast"),
    ("SAVE", 1, "admin noscript no_async_loading no_multi", [0, 0, 0], "admin slow dangerous"),
    ("SCAN", -2, "readonly", [0, 0, 0], "keyspace read slow"),
    ("SCARD", 2, "readonly fast", [1, 1, 1], "read set fast"),
    ("SCRIPT", -2, "", [0, 0, 0], "slow"),
    ("SDIFF", -2, "readonly", [1, -1, 1], "read set slow"),
    ("SDIFFSTORE", -3, "write denyoom", [1, -1, 1], "write set slow"),
    ("SELECT", 2, "loading stale fast", [0, 0, 0], "fast connection"),
    ("SET", -3, "write denyoom", [1, 1, 1], "write string slow"),
    ("SETBIT", 4, "write denyoom", [1, 1, 1], "write bitmap slow"),
    ("SETEX", 4, "write denyoom", [1, 1, 1], "write string slow"),
    ("SETNX", 3, "write denyoom fast", [1, 1, 1], "write string fast"),
    ("SETRANGE", 4, "write denyoom", [1, 1, 1], "write string slow"),
    ("SHUTDOWN", -1, "admin noscript loading stale no_multi allow_busy", [0, 0, 0], "admin slow dangerous"),
    ("SINTER", -2, "readonly", [1, -1, 1], "read set slow"),
    ("SINTERCARD", -3, "readonly movablekeys", [0, 0, 0], "read set slow"),
    ("SINTERSTORE", -3, "write denyoom", [1, -1, 1], "write set slow"),
    ("SISMEMBER", 3, "readonly fast", [1, 1, 1], "read set fast"),
    ("SLAVEOF", 3, "admin noscript stale no_async_loading", [0, 0, 0], "admin slow dangerous"),
    ("SLOWLOG", -2, "", [0, 0, 0], "slow"),
    ("SMEMBERS", 2, "readonly", [1, 1, 1], "read set slow"),
    ("SMISMEMBER", -3, "readonly fast", [1, 1, 1], "read set fast"),
    ("SMOVE", 4, "write fast", [1, 2, 1], "write set fast"),
    ("SORT", -2, "write denyoom movablekeys", [1, 1, 1], "write set sortedset list slow dangerous"),
    ("SORT_RO", -2, "readonly movablekeys", [1, 1, 1], "read set sortedset list slow dangerous"),
    ("SPOP", -2, "write fast", [1, 1, 1], "write set fast"),
    ("SPUBLISH", 3, "pubsub loading stale fast", [1, 1, 1], "pubsub fast"),
    ("SRANDMEMBER", -2, "readonly", [1, 1, 1], "read set slow"),
    ("SREM", -3, "write fast", [1, 1, 1], "write set fast"),
    ("SSCAN", -3, "readonly", [1, 1, 1], "read set slow"),
    ("SSUBSCRIBE", -2, "pubsub noscript loading stale", [1, -1, 1], "pubsub slow"),
    ("STRLEN", 2, "readonly fast", [1, 1, 1], "read string fast"),
    ("SUBSCRIBE", -2, "pubsub noscript loading stale", [0, 0, 0], "pubsub slow"),
    ("SUBSTR", 4, "readonly", [1, 1, 1], "read string slow"),
    ("SUNION", -2, "readonly", [1, -1, 1], "read set slow"),
    ("SUNIONSTORE", -3, "write denyoom", [1, -1, 1], "write set slow"),
    ("SUNSUBSCRIBE", -1, "pubsub noscript loading stale", [1, -1, 1], "pubsub slow"),
    ("SWAPDB", 3, "write fast", [0, 0, 0], "keyspace write fast dangerous"),
    ("SYNC", 1, "admin noscript no_async_loading no_multi", [0, 0, 0], "admin slow dangerous"),
    ("TIME", 1, "loading stale fast", [0, 0, 0], "fast"),
    ("TOUCH", -2, "readonly fast", [1, -1, 1], "keyspace read fast"),
    ("TTL", 2, "readonly fast", [1, 1, 1], "keyspace read fast"),
    ("TYPE", 2, "readonly fast", [1, 1, 1], "keyspace read fast"),
    ("UNLINK", -2, "write fast", [1, -1, 1], "keyspace write fast"),
    ("UNSUBSCRIBE", -1, "pubsub noscript loading stale", [0, 0, 0], "pubsub slow"),
    ("UNWATCH", 1, "noscript loading stale fast allow_busy", [0, 0, 0], "fast transaction"),
    ("WAIT", 3, "noscript", [0, 0, 0], "slow connection"),
    ("WATCH", -2, "noscript loading stale fast allow_busy", [1, -1, 1], "fast transaction"),
    ("XACK", -4, "write fast", [1, 1, 1], "write stream fast"),
    ("XADD", -5, "write denyoom fast", [1, 1, 1], "write stream fast"),
    ("XAUTOCLAIM", -6, "write fast", [1, 1, 1], "write stream fast"),
    ("XCLAIM", -6, "write fast", [1, 1, 1], "write stream fast"),
    ("XDEL", -3, "write fast", [1, 1, 1], "write stream fast"),
    ("XGROUP", -2, "", [0, 0, 0], "slow"),
    ("XINFO", -2, "", [0, 0, 0], "slow"),
    ("XLEN", 2, "readonly fast", [1, 1, 1], "read stream fast"),
    ("XPENDING", -3, "readonly", [1, 1, 1], "read stream slow"),
    ("XRANGE", -4, "readonly", [1, 1, 1], "read stream slow"),
    ("XREAD", -4, "readonly blocking movablekeys", [0, 0, 0], "read stream slow blocking"),
    ("XREADGROUP", -7, "write blocking movablekeys", [0, 0, 0], "write stream slow blocking"),
    ("XREVRANGE", -4, "readonly", [1, 1, 1], "read stream slow"),
    ("XSETID", -3, "write denyoom fast", [1, 1, 1], "write stream fast"),
    ("XTRIM", -4, "write", [1, 1, 1], "write stream slow"),
    ("ZADD", -4, "write denyoom fast", [1, 1, 1], "write sortedset fast"),
    ("ZCARD", 2, "readonly fast", [1, 1, 1], "read sortedset fast"),
    ("ZCOUNT", 4, "readonly fast", [1, 1, 1], "read sortedset fast"),
    ("ZDIFF", -3, "readonly movablekeys", [0, 0, 0], "read sortedset slow"),
    ("ZDIFFSTORE", -4, "write denyoom movablekeys", [1, 1, 1], "write sortedset slow"),
    ("ZINCRBY", 4, "write denyoom fast", [1, 1, 1], "write sortedset fast"),
    ("ZINTER", -3, "readonly movablekeys", [0, 0, 0], "read sortedset slow"),
    ("ZINTERCARD", -3, "readonly movablekeys", [0, 0, 0], "read sortedset slow"),
    ("ZINTERSTORE", -4, "write denyoom movablekeys", [1, 1, 1], "write sortedset slow"),
    ("ZLEXCOUNT", 4, "readonly fast", [1, 1, 1], "read sortedset fast"),
    ("ZMPOP", -4, "write movablekeys", [0, 0, 0], "write sortedset slow"),
    ("ZMSCORE", -3, "readonly fast", [1, 1, 1], "read sortedset fast"),
    ("ZPOPMAX", -2, "write fast", [1, 1, 1], "write sortedset fast"),
    ("ZPOPMIN", -2, "write fast", [1, 1, 1], "write sortedset fast"),
    ("ZRANDMEMBER", -2, "readonly", [1, 1, 1], "read sortedset slow"),
    ("ZRANGE", -4, "readonly", [1, 1, 1], "read sortedset slow"),
    ("ZRANGEBYLEX", -4, "readonly", [1, 1, 1], "read sortedset slow"),
    ("ZRANGEBYSCORE", -4, "readonly", [1, 1, 1], "read sortedset slow"),
    ("ZRANGESTORE", -5, "write denyoom", [1, 2, 1], "write sortedset slow"),
    ("ZRANK", 3, "readonly fast", [1, 1, 1], "read sortedset fast"),
    ("ZREM", -3, "write fast", [1, 1, 1], "write sortedset fast"),
    ("ZREMRANGEBYLEX", 4, "write", [1, 1, 1], "write sortedset slow"),
    ("ZREMRANGEBYRANK", 4, "write", [1, 1, 1], "write sortedset slow"),
    ("ZREMRANGEBYSCORE", 4, "write", [1, 1, 1], "write sortedset slow"),
    ("ZREVRANGE", -4, "readonly", [1, 1, 1], "read sortedset slow"),
    ("ZREVRANGEBYLEX", -4, "readonly", [1, 1, 1], "read sortedset slow"),
    ("ZREVRANGEBYSCORE", -4, "readonly", [1, 1, 1], "read sortedset slow"),
    ("ZREVRANK", 3, "readonly fast", [1, 1, 1], "read sortedset fast"),
    ("ZSCAN", -3, "readonly", [1, 1, 1], "read sortedset slow"),
    ("ZSCORE", 3, "readonly fast", [1, 1, 1], "read sortedset fast"),
    ("ZUNION", -3, "readonly movablekeys", [0, 0, 0], "read sortedset slow"),
    ("ZUNIONSTORE", -4, "write denyoom movablekeys", [1, 1, 1], "write sortedset slow"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::waiting;

    #[test]
    fn commands_are_in_the_order_of_their_names_and_of_known_categories() {
        assert!(ALL.is_sorted_by(|one, other| one.0 < other.0));
        let known = |row: &&Row| row.4.split(' ').all(|category| CATEGORIES.contains(&category));
        assert_eq!(ALL.iter().find(|row| !known(row)), None);
    }

    /// What is only read is for users with the role `read`, so a command that writes must not pass for one that reads.
    #[test]
    fn every_command_has_its_place_and_its_role_as_in_redis() {
        use data::Family;
        assert!(data::NAMES.is_sorted_by(|one, other| one.0 < other.0));
        for &(name, family) in data::NAMES {
            let command = find(name).unwrap_or_else(|| panic!("{name} is no command of Redis"));
            assert_eq!(command.is("write"), !data::only_reads(name), "{name}");
            assert!(!command.has_one_key() || command.arity.abs() >= 2, "{name}");
            assert_eq!(command.is("blocking"), waiting::waits(name), "{name}");
            for (category, of) in [
                ("list", Family::Lists),
                ("set", Family::Sets),
                ("sortedset", Family::Sorted),
                ("hash", Family::Fields),
            ] {
                assert_eq!(command.is(category), family == of, "{name}");
            }
        }
        for name in server::NAMES {
            let command = find(name.0).unwrap_or_else(|| panic!("{} is no command of Redis", name.0));
            assert_eq!(command.arity.unsigned_abs() as usize, name.1, "{}", name.0);
        }
    }
}
