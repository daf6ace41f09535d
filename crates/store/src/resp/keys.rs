//! Commands on strings, and on keys of any type.

use super::collections::value;
use super::decimal::Number;
use super::outcome::{Done, refuse};
use super::reply::Reply;
use super::{TABLE, Words, scans};
use crate::door::Room;
use crate::rows::{self, Kind};
use crate::session::Stop;
use crate::transaction::Transaction;

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
pub(super) async fn string(transaction: &mut Transaction, key: &[u8]) -> Done<Option<Vec<u8>>> {
    value(transaction, key, Kind::Bytes).await
}

/// Changes a string; its key expires when it did before.
async fn put(transaction: &mut Transaction, key: &[u8], value: &[u8]) -> Result<(), Stop> {
    transaction.put(TABLE, key, Kind::Bytes, value).await
}

/// Gives a key another string, which does not expire.
async fn replace(transaction: &mut Transaction, key: &[u8], value: &[u8]) -> Result<(), Stop> {
    transaction.put_until(TABLE, key, Kind::Bytes, value, None).await
}

pub(super) fn or_nil(value: Option<Vec<u8>>) -> Reply {
    value.map_or(Reply::Nil, Reply::Bulk)
}

pub(super) fn sum(there: i64, by: i64) -> Result<i64, Reply> {
    there.checked_add(by).ok_or_else(|| Reply::error("ERR increment or decrement would overflow"))
}

pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    let key = words.get(1).map(|key| &key[..]).unwrap_or_default();
    // Values that are too long are refused before anything is changed.
    let is_long = |value: &Vec<u8>| value.len() > rows::VALUE_BYTES_MAX;
    if let Some(long) = words.iter().find(|word| is_long(word)) {
        let most = rows::VALUE_BYTES_MAX;
        return refuse(format!("{} bytes are too many for a value, which has at most {most}", long.len()));
    }
    Ok(match name {
        "GET" => or_nil(string(transaction, key).await?),
        "STRLEN" => match transaction.measure(TABLE, key).await? {
            Some((Kind::Bytes, length)) => Reply::Integer(length as i64),
            Some(_) => Reply::error(Reply::WRONG_TYPE),
            None => Reply::Integer(0),
        },
        "GETDEL" => {
            let value = string(transaction, key).await?;
            transaction.delete(TABLE, key).await?;
            or_nil(value)
        }
        "GETSET" => {
            let value = string(transaction, key).await?;
            replace(transaction, key, &words[2]).await?;
            or_nil(value)
        }
        "SETNX" => {
            let is_new = transaction.measure(TABLE, key).await?.is_none();
            if is_new {
                put(transaction, key, &words[2]).await?;
            }
            Reply::Integer(i64::from(is_new))
        }
        "APPEND" => {
            let mut value = string(transaction, key).await?.unwrap_or_default();
            value.extend_from_slice(&words[2]);
            if is_long(&value) {
                return refuse(format!("a value has at most {} bytes", rows::VALUE_BYTES_MAX));
            }
            put(transaction, key, &value).await?;
            Reply::Integer(value.len() as i64)
        }
        "INCRBYFLOAT" => return add_float(transaction, words).await,
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
                let reply = match transaction.get(TABLE, key).await? {
                    Some((Kind::Bytes, value)) => Reply::Bulk(value),
                    _ => Reply::Nil,
                };
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
        // Nothing notes when a key was used.
        "EXISTS" | "TOUCH" => {
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
            Some((kind, _)) => type_name(kind).into(),
        }),
        "DBSIZE" | "KEYS" | "SCAN" => return scans::apply(transaction, name, words, room).await,
        _ => Reply::error(format!("ERR '{name}' is not promised by this store; see docs/store.md")),
    })
}

/// What Redis calls a kind.
pub(super) fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bytes => "string",
        Kind::Fields => "hash",
        Kind::List => "list",
        Kind::Set => "set",
        Kind::Sorted => "zset",
    }
}

/// What one of many keys costs, in bytes that might have been copied instead.
pub(super) const PER_KEY: usize = 512;

/// Notes what a part of a reply takes; an error if the whole gets too long.
pub(super) fn take(room: &mut Room, reply: &Reply) -> Result<(), Stop> {
    Ok(room.take(reply.held())?)
}

async fn add(transaction: &mut Transaction, key: &[u8], by: Option<i64>) -> Done {
    let Some(by) = by else { return Ok(not_an_integer()) };
    let value = string(transaction, key).await?;
    let there = value.map_or(Some(0), |value| integer(&value));
    let Some(there) = there else { return Ok(not_an_integer()) };
    let sum = sum(there, by)?;
    put(transaction, key, sum.to_string().as_bytes()).await?;
    Ok(Reply::Integer(sum))
}

pub(super) fn not_a_float() -> Reply {
    Reply::error("ERR value is not a valid float")
}

/// A number and what is to be added, as the text of the sum.
pub(super) fn sum_of_floats(there: Number, by: &[u8]) -> Result<String, Reply> {
    let by = Number::parse(by).ok_or_else(not_a_float)?;
    let sum = there.plus(by).ok_or_else(|| Reply::error("ERR increment would produce NaN or Infinity"))?;
    Ok(sum.text())
}

async fn add_float(transaction: &mut Transaction, words: &Words) -> Done {
    let value = string(transaction, &words[1]).await?;
    let sum = match Number::parse(value.as_deref().unwrap_or(b"0")) {
        Some(there) => sum_of_floats(there, &words[2]),
        None => Err(not_a_float()),
    };
    match sum {
        Ok(sum) => {
            put(transaction, &words[1], sum.as_bytes()).await?;
            Ok(Reply::bulk(sum))
        }
        Err(reply) => Ok(reply),
    }
}

async fn set_many(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
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
        replace(transaction, &pair[0], &pair[1]).await?;
        transaction.breathe(PER_KEY + pair[1].len()).await;
    }
    Ok(if name == "MSETNX" { Reply::Integer(1) } else { Reply::OK })
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
