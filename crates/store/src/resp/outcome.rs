//! How a command ends: with its reply, with an error that has changed nothing, or because its transaction cannot go on.

use super::keys::integer;
use super::reply::Reply;
use crate::error::StoreError;
use crate::session::Stop;

/// Why a command has ended before its usual end.
#[derive(Debug)]
pub(super) enum Halt {
    Stop(Stop),
    /// It has changed nothing, and this is the reply.
    Reply(Reply),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        Halt::Stop(stop)
    }
}

impl From<Reply> for Halt {
    fn from(reply: Reply) -> Halt {
        Halt::Reply(reply)
    }
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Halt {
        Halt::Stop(error.into())
    }
}

/// What a step of a command gives.
pub(super) type Done<T = Reply> = Result<T, Halt>;

/// The reply of a command, however it has ended.
pub(super) fn settle(done: Done) -> Result<Reply, Stop> {
    match done {
        Ok(reply) | Err(Halt::Reply(reply)) => Ok(reply),
        Err(Halt::Stop(stop)) => Err(stop),
    }
}

/// An error of Redis's.
pub(super) fn refuse<T>(why: impl AsRef<str>) -> Done<T> {
    Err(Halt::Reply(Reply::error(format!("ERR {}", why.as_ref()))))
}

pub(super) fn syntax<T>() -> Done<T> {
    refuse("syntax error")
}

/// A whole number.
pub(super) fn whole(word: &[u8]) -> Done<i64> {
    whole_or(word, "value is not an integer or out of range")
}

/// A whole number, or an error of its own.
pub(super) fn whole_or(word: &[u8], why: &str) -> Done<i64> {
    integer(word).map_or_else(|| refuse(why), Ok)
}

/// A number that is not negative.
pub(super) fn count(word: &[u8]) -> Done<usize> {
    at_least(0, word, "value is out of range, must be positive")
}

/// A number that is at least `least`, or an error of its own.
pub(super) fn at_least(least: i64, word: &[u8], why: &str) -> Done<usize> {
    match integer(word) {
        Some(number) if number >= least => Ok(number as usize),
        _ => refuse(why),
    }
}
