//! Replies of Redis's protocol, in its second and third version.

use crate::error::StoreError;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Ok,
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    /// EXEC's reply when a watched key has changed.
    NilArray,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

impl Reply {
    pub(super) const OK: Reply = Reply::Ok;

    pub(super) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

    pub(super) fn error(what: impl Into<String>) -> Reply {
        Reply::Error(what.into())
    }

    pub(super) fn bulk(text: impl Into<String>) -> Reply {
        Reply::Bulk(text.into().into_bytes())
    }

    pub(super) fn wrong_arity(name: &str) -> Reply {
        Reply::Error(format!("ERR wrong number of arguments for '{name}' command"))
    }

    pub(super) fn failed(error: &StoreError) -> Reply {
        let code = match error {
            StoreError::Unavailable(_) => "CLUSTERDOWN",
            StoreError::Full => "OOM",
            StoreError::Conflict => "TRYAGAIN",
            _ => "ERR",
        };
        Reply::Error(format!("{code} {error}"))
    }

    pub(super) fn put(&self, is_resp3: bool, out: &mut Vec<u8>) {
        let mut line = |kind: char, text: &str| {
            out.extend_from_slice(format!("{kind}{text}\r\n").as_bytes());
        };
        // A line must not contain a line end.
        let plain = |text: &str| text.replace(['\r', '\n'], " ");
        match self {
            Reply::Ok => line('+', "OK"),
            Reply::Simple(text) => line('+', &plain(text)),
            Reply::Error(text) => line('-', &plain(text)),
            Reply::Integer(number) => line(':', &number.to_string()),
            Reply::Bulk(bytes) => {
                line('$', &bytes.len().to_string());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Reply::Nil | Reply::NilArray if is_resp3 => line('_', ""),
            Reply::Nil => line('$', "-1"),
            Reply::NilArray => line('*', "-1"),
            Reply::Array(replies) => {
                line('*', &replies.len().to_string());
                replies.iter().for_each(|reply| reply.put(is_resp3, out));
            }
            Reply::Map(pairs) => {
                match is_resp3 {
                    true => line('%', &pairs.len().to_string()),
                    false => line('*', &(2 * pairs.len()).to_string()),
                }
                for (name, value) in pairs {
                    name.put(is_resp3, out);
                    value.put(is_resp3, out);
                }
            }
        }
    }
}
