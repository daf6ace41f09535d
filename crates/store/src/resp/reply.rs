//! Replies of Redis's protocol, in its second and third version.

use super::scores;
use crate::error::StoreError;
use serde::{Deserialize, Deserializer, Serialize};
use std::cell::Cell;
use std::io::{self, Write};

/// Replies within replies that are read from another node. None of a command on one key has more levels.
pub(super) const LEVELS_MAX: u8 = 8;

thread_local! {
    /// Levels of the reply that this thread reads.
    static LEVELS: Cell<u8> = const { Cell::new(0) };
}

/// Reads what is within a reply, unless it is too deep there: bytes of another node must not use up the stack.
fn within<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    let level = LEVELS.get();
    if level == LEVELS_MAX {
        return Err(serde::de::Error::custom("a reply within too many others"));
    }
    LEVELS.set(level + 1);
    let read = T::deserialize(from);
    LEVELS.set(level);
    read
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Reply {
    Ok,
    Simple(String),
    /// Bytes, because it may repeat those of the client.
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    /// EXEC's reply when a watched key has changed.
    NilArray,
    Array(#[serde(deserialize_with = "within")] Vec<Reply>),
    Map(#[serde(deserialize_with = "within")] Vec<(Reply, Reply)>),
    /// Pairs, which the second version of the protocol says one behind the other.
    Pairs(#[serde(deserialize_with = "within")] Vec<(Reply, Reply)>),
    Set(#[serde(deserialize_with = "within")] Vec<Reply>),
    /// What the client has not asked for at this moment: a message of a channel.
    Push(#[serde(deserialize_with = "within")] Vec<Reply>),
    /// Replies one behind the other, of a command that has several.
    Several(#[serde(deserialize_with = "within")] Vec<Reply>),
    /// A score. It is no NaN.
    Double(f64),
    /// Bytes as they are sent.
    Raw(Vec<u8>),
}

impl Reply {
    pub(super) const OK: Reply = Reply::Ok;

    pub(super) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

    pub(super) fn error(what: impl Into<Vec<u8>>) -> Reply {
        Reply::Error(what.into())
    }

    pub(super) fn bulk(text: impl Into<String>) -> Reply {
        Reply::Bulk(text.into().into_bytes())
    }

    pub(super) fn wrong_arity(name: &str) -> Reply {
        Reply::error(format!("ERR wrong number of arguments for '{name}' command"))
    }

    pub(super) fn failed(error: &StoreError) -> Reply {
        let code = match error {
            StoreError::Unavailable(_) => "CLUSTERDOWN",
            StoreError::Full => "OOM",
            StoreError::Conflict => "TRYAGAIN",
            _ => "ERR",
        };
        Reply::error(format!("{code} {error}"))
    }

    /// The memory that a reply takes, about.
    pub(super) fn held(&self) -> usize {
        let inside = match self {
            Reply::Bulk(bytes) | Reply::Error(bytes) | Reply::Raw(bytes) => bytes.len(),
            Reply::Array(replies) | Reply::Set(replies) | Reply::Push(replies) | Reply::Several(replies) => {
                replies.iter().map(Reply::held).sum()
            }
            Reply::Map(pairs) | Reply::Pairs(pairs) => {
                pairs.iter().map(|(name, value)| name.held() + value.held()).sum()
            }
            _ => 0,
        };
        size_of::<Reply>() + inside
    }

    pub(super) fn put(&self, is_resp3: bool, out: &mut impl Write) -> io::Result<()> {
        match self {
            Reply::Ok => out.write_all(b"+OK\r\n"),
            Reply::Simple(text) => line(out, b'+', text.as_bytes()),
            Reply::Error(text) => line(out, b'-', text),
            Reply::Integer(number) => count(out, ':', *number),
            Reply::Bulk(bytes) => {
                count(out, '$', bytes.len() as i64)?;
                out.write_all(bytes)?;
                out.write_all(b"\r\n")
            }
            Reply::Nil | Reply::NilArray if is_resp3 => out.write_all(b"_\r\n"),
            Reply::Nil => out.write_all(b"$-1\r\n"),
            Reply::NilArray => out.write_all(b"*-1\r\n"),
            Reply::Array(replies) | Reply::Set(replies) | Reply::Push(replies) => {
                let kind = match self {
                    Reply::Set(_) if is_resp3 => '~',
                    Reply::Push(_) if is_resp3 => '>',
                    _ => '*',
                };
                count(out, kind, replies.len() as i64)?;
                replies.iter().try_for_each(|reply| reply.put(is_resp3, out))
            }
            Reply::Several(replies) => replies.iter().try_for_each(|reply| reply.put(is_resp3, out)),
            Reply::Double(score) => {
                let text = scores::print(*score);
                match is_resp3 {
                    true => write!(out, ",{text}\r\n"),
                    false => write!(out, "${}\r\n{text}\r\n", text.len()),
                }
            }
            Reply::Pairs(pairs) => {
                count(out, '*', if is_resp3 { pairs.len() } else { 2 * pairs.len() } as i64)?;
                pairs.iter().try_for_each(|(first, second)| {
                    if is_resp3 {
                        count(out, '*', 2)?;
                    }
                    first.put(is_resp3, out)?;
                    second.put(is_resp3, out)
                })
            }
            Reply::Map(pairs) => {
                match is_resp3 {
                    true => count(out, '%', pairs.len() as i64)?,
                    false => count(out, '*', 2 * pairs.len() as i64)?,
                }
                pairs.iter().try_for_each(|(name, value)| {
                    name.put(is_resp3, out)?;
                    value.put(is_resp3, out)
                })
            }
            Reply::Raw(bytes) => out.write_all(bytes),
        }
    }
}

fn count(out: &mut impl Write, kind: char, number: i64) -> io::Result<()> {
    write!(out, "{kind}{number}\r\n")
}

/// A line must not contain a line end.
fn line(out: &mut impl Write, kind: u8, text: &[u8]) -> io::Result<()> {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let plain = text.iter().map(|byte| if is_end(byte) { b' ' } else { *byte });
    out.write_all(&[&[kind][..], &plain.collect::<Vec<u8>>(), b"\r\n"].concat())
}

#[cfg(test)]
mod tests {
    use super::Reply;

    #[test]
    fn nothing_is_said_as_each_version_of_the_protocol_says_it() {
        let check = |reply: Reply, second: &[u8], third: &[u8]| {
            for (is_resp3, expected) in [(false, second), (true, third)] {
                let mut out = Vec::new();
                reply.put(is_resp3, &mut out).expect("memory");
                assert_eq!(out, expected, "{reply:?}");
            }
        };
        check(Reply::NilArray, b"*-1\r\n", b"_\r\n");
        check(Reply::Nil, b"$-1\r\n", b"_\r\n");
        check(
            Reply::Map(vec![(Reply::Integer(-1), Reply::Ok)]),
            b"*2\r\n:-1\r\n+OK\r\n",
            b"%1\r\n:-1\r\n+OK\r\n",
        );
        let pair = || vec![(Reply::bulk("m"), Reply::Double(0.1))];
        check(
            Reply::Pairs(pair()),
            b"*2\r\n$1\r\nm\r\n$19\r\n0.10000000000000001\r\n",
            b"*1\r\n*2\r\n$1\r\nm\r\n,0.10000000000000001\r\n",
        );
        check(Reply::Set(vec![Reply::Ok]), b"*1\r\n+OK\r\n", b"~1\r\n+OK\r\n");
        check(Reply::Push(vec![Reply::Ok]), b"*1\r\n+OK\r\n", b">1\r\n+OK\r\n");
        check(Reply::Double(f64::NEG_INFINITY), b"$4\r\n-inf\r\n", b",-inf\r\n");
        check(Reply::error("a\r\nb"), b"-a  b\r\n", b"-a  b\r\n");
    }
}
