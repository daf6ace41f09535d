//! Commands on strings, and on keys of any type.

use super::reply::Reply;
use super::{TABLE, Words, glob, upper};
use crate::door::Room;
use crate::rows::{self, Kind};
use crate::session::Stop;
use crate::transaction::{Found, Transaction};
use highwire_txn::Key;

/// A number as this program writes it: neither a sign nor zeros nor blanks that it could do without.
pub(super) fn integer(bytes: &[u8]) -> Option<i64> {
    let is_plain = match bytes {
        [b'0'] => true,
        [b'-', first, ..] | [first, ..] => (b'1'..=b'9').contains(first),
        [] => false,
    };
    std::str::from_utf8(bytes).ok().filter(|_| is_plain)?.parse().ok()
}

pub(super) fn not_an_integer() -> Reply {
    Reply::error("ERR value is not an integer or out of range")
}

/// A string; an error if the key holds something else.
async fn string(transaction: &mut Transaction, key: &[u8]) -> Result<Result<Option<Vec<u8>>, Reply>, Stop> {
    Ok(match transaction.get(TABLE, key).await? {
        Some((Kind::Fields, _)) => Err(Reply::error(Reply::WRONG_TYPE)),
        found => Ok(found.map(|(_, value)| value)),
    })
}

async fn put(transaction: &mut Transaction, key: &[u8], value: &[u8]) -> Result<(), Stop> {
    transaction.put(TABLE, key, Kind::Bytes, value).await
}

pub(super) fn or_nil(value: Option<Vec<u8>>) -> Reply {
    value.map_or(Reply::Nil, Reply::Bulk)
}

pub(super) fn sum(there: i64, by: i64) -> Result<i64, Reply> {
    there.checked_add(by).ok_or_else(|| Reply::error("ERR increment or decrement would overflow"))
}

/// Goes on with the string at a key, or returns the error.
macro_rules! string {
    ($transaction:expr, $key:expr) => {
        match string($transaction, $key).await? {
            Ok(value) => value,
            Err(reply) => return Ok(reply),
        }
    };
}

pub(super) async fn apply(
    transaction: &mut Transaction,
    name: &str,
    words: &Words,
    room: &mut Room,
) -> Result<Reply, Stop> {
    let key = words.get(1).map(|key| &key[..]).unwrap_or_default();
    // Values that are too long are refused before anything is changed.
    let is_long = |value: &Vec<u8>| value.len() > rows::VALUE_BYTES_MAX;
    if let Some(long) = words.iter().find(|word| is_long(word)) {
        let most = rows::VALUE_BYTES_MAX;
        return Ok(Reply::error(format!(
            "ERR {} bytes are too many for a value, which has at most {most}",
            long.len()
        )));
    }
    Ok(match name {
        "GET" => or_nil(string!(transaction, key)),
        "STRLEN" => match transaction.measure(TABLE, key).await? {
            Some((Kind::Fields, _)) => Reply::error(Reply::WRONG_TYPE),
            found => Reply::Integer(found.map_or(0, |(_, length)| length as i64)),
        },
        "GETDEL" => {
            let value = string!(transaction, key);
            transaction.delete(TABLE, key).await?;
            or_nil(value)
        }
        "GETSET" => {
            let value = string!(transaction, key);
            put(transaction, key, &words[2]).await?;
            or_nil(value)
        }
        "SET" => return set(transaction, words).await,
        "SETNX" => {
            let is_new = transaction.measure(TABLE, key).await?.is_none();
            if is_new {
                put(transaction, key, &words[2]).await?;
            }
            Reply::Integer(i64::from(is_new))
        }
        "APPEND" => {
            let mut value = string!(transaction, key).unwrap_or_default();
            value.extend_from_slice(&words[2]);
            if is_long(&value) {
                return Ok(Reply::error(format!("ERR a value has at most {} bytes", rows::VALUE_BYTES_MAX)));
            }
            put(transaction, key, &value).await?;
            Reply::Integer(value.len() as i64)
        }
        "INCR" => return add(transaction, key, Some(1)).await,
        "DECR" => return add(transaction, key, Some(-1)).await,
        "INCRBY" => return add(transaction, key, integer(&words[2])).await,
        "DECRBY" => match integer(&words[2]) {
            Some(i64::MIN) => Reply::error("ERR decrement would overflow"),
            by => return add(transaction, key, by.map(|by| -by)).await,
        },
        "MGET" => {
            transaction.prefetch_values(words[1..].iter().map(|key| (TABLE, &key[..]))).await?;
            let mut replies = Vec::new();
            for key in &words[1..] {
                // As in Redis: a value that is no string counts as absent here.
                let reply = string(transaction, key).await?.map_or(Reply::Nil, or_nil);
                take(room, &reply)?;
                transaction.breathe(reply.held()).await;
                replies.push(reply);
            }
            Reply::Array(replies)
        }
        "MSET" | "MSETNX" => return set_many(transaction, name, words).await,
        "DEL" | "UNLINK" => {
            transaction.prefetch(words[1..].iter().map(|key| (TABLE, &key[..]))).await?;
            let mut gone = 0;
            for key in &words[1..] {
                gone += i64::from(transaction.delete(TABLE, key).await?);
                transaction.breathe(PER_KEY).await;
            }
            Reply::Integer(gone)
        }
        "EXISTS" => {
            transaction.prefetch(words[1..].iter().map(|key| (TABLE, &key[..]))).await?;
            let mut there = 0;
            for key in &words[1..] {
                there += i64::from(transaction.measure(TABLE, key).await?.is_some());
                transaction.breathe(PER_KEY).await;
            }
            Reply::Integer(there)
        }
        "TYPE" => Reply::Simple(match transaction.measure(TABLE, key).await? {
            None => "none".into(),
            Some((Kind::Bytes, _)) => "string".into(),
            Some((Kind::Fields, _)) => "hash".into(),
        }),
        // No key ever expires.
        "TTL" | "PTTL" => {
            Reply::Integer(if transaction.measure(TABLE, key).await?.is_some() { -1 } else { -2 })
        }
        "PERSIST" => Reply::Integer(0),
        "DBSIZE" => Reply::Integer(everything(transaction).await?.len() as i64),
        "KEYS" if key.len() > glob::PATTERN_BYTES_MAX => pattern_too_long(),
        "KEYS" => {
            let all = everything(transaction).await?;
            Reply::Array(matching(transaction, all, Some(key), room).await?)
        }
        "SCAN" => return scan(transaction, words, room).await,
        _ => Reply::error(format!("ERR '{name}' is not promised by this store; see docs/store.md")),
    })
}

/// What one of many keys costs, in bytes that might have been copied instead.
pub(super) const PER_KEY: usize = 512;

/// Notes what a part of a reply takes; an error if the whole gets too long.
pub(super) fn take(room: &mut Room, reply: &Reply) -> Result<(), Stop> {
    Ok(room.take(reply.held())?)
}

fn pattern_too_long() -> Reply {
    Reply::error(format!("ERR a pattern has at most {} bytes", glob::PATTERN_BYTES_MAX))
}

/// The keys that match a pattern.
async fn matching(
    transaction: &Transaction,
    found: Vec<Found>,
    pattern: Option<&[u8]>,
    room: &mut Room,
) -> Result<Vec<Reply>, Stop> {
    let mut names = Vec::new();
    for Found { key, .. } in found {
        transaction.breathe(PER_KEY + pattern.map_or(0, <[u8]>::len) * key.len()).await;
        if pattern.is_none_or(|pattern| glob::matches(pattern, &key)) {
            let name = Reply::Bulk(key);
            take(room, &name)?;
            names.push(name);
        }
    }
    Ok(names)
}

async fn everything(transaction: &mut Transaction) -> Result<Vec<Found>, Stop> {
    let (low, high) = rows::range(TABLE);
    Ok(transaction.scan(TABLE, low, high).await?.0)
}

async fn set(transaction: &mut Transaction, words: &Words) -> Result<Reply, Stop> {
    let (mut only_new, mut only_old, mut wants_old) = (false, false, false);
    for word in &words[3..] {
        match &*upper(word) {
            "NX" => only_new = true,
            "XX" => only_old = true,
            "GET" => wants_old = true,
            "EX" | "PX" | "EXAT" | "PXAT" | "KEEPTTL" => {
                return Ok(Reply::error(
                    "ERR keys of this store do not expire: EX, PX, EXAT, PXAT and KEEPTTL are not promised",
                ));
            }
            _ => return Ok(Reply::error("ERR syntax error")),
        }
    }
    if only_new && only_old {
        return Ok(Reply::error("ERR syntax error"));
    }
    let found = transaction.measure(TABLE, &words[1]).await?;
    if wants_old && matches!(found, Some((Kind::Fields, _))) {
        return Ok(Reply::error(Reply::WRONG_TYPE));
    }
    // Only a reply with it needs the old value.
    let old = if wants_old { transaction.get(TABLE, &words[1]).await? } else { None };
    let does = !(only_new && found.is_some() || only_old && found.is_none());
    if does {
        put(transaction, &words[1], &words[2]).await?;
    }
    Ok(match (wants_old, does) {
        (true, _) => or_nil(old.map(|(_, value)| value)),
        (false, true) => Reply::OK,
        (false, false) => Reply::Nil,
    })
}

async fn add(transaction: &mut Transaction, key: &[u8], by: Option<i64>) -> Result<Reply, Stop> {
    let Some(by) = by else { return Ok(not_an_integer()) };
    let value = string!(transaction, key);
    let there = value.map_or(Some(0), |value| integer(&value));
    let Some(there) = there else { return Ok(not_an_integer()) };
    let sum = match sum(there, by) {
        Ok(sum) => sum,
        Err(reply) => return Ok(reply),
    };
    put(transaction, key, sum.to_string().as_bytes()).await?;
    Ok(Reply::Integer(sum))
}

async fn set_many(transaction: &mut Transaction, name: &str, words: &Words) -> Result<Reply, Stop> {
    if words.len().is_multiple_of(2) {
        return Ok(Reply::wrong_arity(&name.to_lowercase()));
    }
    let pairs = || words[1..].chunks(2);
    transaction.prefetch(pairs().map(|pair| (TABLE, &pair[0][..]))).await?;
    if name == "MSETNX" {
        for pair in pairs() {
            if transaction.measure(TABLE, &pair[0]).await?.is_some() {
                return Ok(Reply::Integer(0));
            }
        }
    }
    for pair in pairs() {
        put(transaction, &pair[0], &pair[1]).await?;
        transaction.breathe(PER_KEY + pair[1].len()).await;
    }
    Ok(if name == "MSETNX" { Reply::Integer(1) } else { Reply::OK })
}

/// The number of parts of the table; one SCAN reads one part.
const PARTS: u64 = 16;

/// What a SCAN asks for. A cursor is the next part of the table, so a key that stays is reported once.
pub(super) struct Scan<'a> {
    pub(super) low: Key,
    pub(super) high: Key,
    pub(super) pattern: Option<&'a [u8]>,
    kind: Option<Option<Kind>>,
    next: u64,
}

impl Scan<'_> {
    pub(super) fn wants(&self, kind: Kind) -> bool {
        self.kind.is_none_or(|wanted| wanted == Some(kind))
    }

    pub(super) fn reply(&self, found: Vec<Reply>) -> Reply {
        page(self.next, found)
    }
}

fn page(next: u64, found: Vec<Reply>) -> Reply {
    Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(found)])
}

/// What a SCAN asks for, or the reply that needs no look.
pub(super) fn parse_scan(words: &Words) -> Result<Scan<'_>, Reply> {
    let cursor = std::str::from_utf8(&words[1]).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(cursor) = cursor else {
        return Err(Reply::error("ERR invalid cursor"));
    };
    let (mut pattern, mut kind) = (None, None);
    for pair in words[2..].chunks(2) {
        let [name, value] = pair else { return Err(Reply::error("ERR syntax error")) };
        match &*upper(name) {
            "MATCH" => pattern = Some(&value[..]),
            // The count is a hint, which this server ignores.
            "COUNT" => match integer(value) {
                Some(1..) => {}
                Some(_) => return Err(Reply::error("ERR syntax error")),
                None => return Err(not_an_integer()),
            },
            "TYPE" => {
                kind = Some(match &*upper(value) {
                    "STRING" => Some(Kind::Bytes),
                    "HASH" => Some(Kind::Fields),
                    _ => None,
                });
            }
            _ => return Err(Reply::error("ERR syntax error")),
        }
    }
    if pattern.is_some_and(|pattern| pattern.len() > glob::PATTERN_BYTES_MAX) {
        return Err(pattern_too_long());
    }
    if cursor >= PARTS {
        // No part has this number, so nothing is left of the table.
        return Err(page(0, Vec::new()));
    }
    let (low, high) = rows::range(TABLE);
    let width = (high - low) / PARTS + 1;
    let from = low + cursor * width;
    let next = if cursor + 1 < PARTS { cursor + 1 } else { 0 };
    Ok(Scan { low: from, high: (from + (width - 1)).min(high), pattern, kind, next })
}

async fn scan(transaction: &mut Transaction, words: &Words, room: &mut Room) -> Result<Reply, Stop> {
    let scan = match parse_scan(words) {
        Ok(scan) => scan,
        Err(reply) => return Ok(reply),
    };
    let (entries, _) = transaction.scan(TABLE, scan.low, scan.high).await?;
    let wanted = entries.into_iter().filter(|found| scan.wants(found.kind)).collect();
    Ok(scan.reply(matching(transaction, wanted, scan.pattern, room).await?))
}

#[cfg(test)]
mod tests {
    use super::integer;

    #[test]
    fn a_number_is_one_only_as_it_would_be_written() {
        for (text, number) in
            [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(integer(text.as_bytes()), Some(number), "{text}");
        }
        for text in [
            "",
            "-",
            "+5",
            "007",
            "-0",
            "-07",
            "00",
            " 5",
            "5 ",
            "5\n",
            "0x1",
            "1.0",
            "1e3",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999999",
            "5\0",
            "--1",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
