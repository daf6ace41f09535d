//! Commands that wait for an element: `BLPOP` and its kind.
//!
//! A client that waits is a task of the I/O loop, and has a place in the queue of each of its keys ([`Hub`]). The first of a queue tries: each
//! try is a transaction. It tries when an element has been added, here or at another node.
//! It also tries once in a while, because a hint from another node may be lost. Inside MULTI these commands do not wait.

use super::hub::{Hub, Place};
use super::outcome::{Done, Halt, at_least, refuse};
use super::reply::Reply;
use super::{TABLE, Words, data, lists, sorted, upper};
use crate::door::Room;
use crate::engine::{PATIENCE_NS, Store};
use crate::error::StoreError;
use crate::rows::{self, Kind};
use crate::session::Stop;
use crate::transaction::Transaction;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The most keys for which one client waits.
const KEYS_MAX: usize = 1024;
/// The first of a queue tries so often without a hint.
pub(super) const PAUSE: Duration = Duration::from_secs(3);

/// Whether a command waits.
pub(super) fn waits(name: &str) -> bool {
    matches!(
        name,
        "BLMOVE" | "BLMPOP" | "BLPOP" | "BRPOP" | "BRPOPLPUSH" | "BZMPOP" | "BZPOPMAX" | "BZPOPMIN"
    )
}

/// How long a client wants to wait; `None`: for ever.
pub(super) fn timeout(word: &[u8]) -> Done<Option<Duration>> {
    let Some(seconds) = super::scores::parse(word) else {
        return refuse("timeout is not a float or out of range");
    };
    if seconds * 1000.0 > i64::MAX as f64 {
        return refuse("timeout is out of range");
    }
    // Less than a millisecond is one, and not for ever.
    let milliseconds = (seconds * 1000.0).ceil();
    if milliseconds < 0.0 {
        return refuse("timeout is negative");
    }
    Ok((milliseconds > 0.0).then(|| Duration::from_millis(milliseconds as u64)))
}

/// A key to which a command may add elements, if it is one of those.
pub(super) fn filled(words: &Words) -> Option<&Vec<u8>> {
    // Most commands are none of these, which their first letter shows.
    if !matches!(words[0].first()?.to_ascii_uppercase(), b'B' | b'C' | b'L' | b'R' | b'Z') {
        return None;
    }
    match &*upper(&words[0]) {
        "LPUSH" | "LPUSHX" | "RPUSH" | "RPUSHX" | "ZADD" | "ZDIFFSTORE" | "ZINCRBY" | "ZINTERSTORE"
        | "ZRANGESTORE" | "ZUNIONSTORE" => words.get(1),
        "BLMOVE" | "BRPOPLPUSH" | "COPY" | "LMOVE" | "RENAME" | "RENAMENX" | "RPOPLPUSH" => words.get(2),
        _ => None,
    }
}

/// A command that waits, as its words say it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    words: Arc<Words>,
    /// Where its keys stand.
    keys: Range<usize>,
    kind: Kind,
    pub(super) timeout: Option<Duration>,
}

impl Asked {
    /// What is wrong with the command comes in the order in which Redis finds it.
    pub(super) fn parse(words: &Words) -> Result<Asked, Reply> {
        let result = Asked::read(words);
        result.map_err(|halt| match halt {
            Halt::Reply(reply) => reply,
            Halt::Stop(_) => Reply::error("ERR syntax error"),
        })
    }

    fn read(words: &Words) -> Done<Asked> {
        let name = upper(&words[0]);
        let kind = if name.starts_with("BZ") { Kind::Sorted } else { Kind::List };
        let last = words.len() - 1;
        let (keys, timeout) = match &*name {
            "BLMOVE" => {
                lists::check_ends(&words[3..5])?;
                (1..2, timeout(&words[last])?)
            }
            "BRPOPLPUSH" => (1..2, timeout(&words[last])?),
            "BLMPOP" | "BZMPOP" => {
                match kind {
                    Kind::List => lists::check_several(&words[2..])?,
                    _ => sorted::check_several(&words[2..])?,
                }
                let numkeys = at_least(1, &words[2], "numkeys should be greater than 0")?;
                (3..3 + numkeys, timeout(&words[1])?)
            }
            _ => (1..last, timeout(&words[last])?),
        };
        if keys.len() > KEYS_MAX {
            return refuse(format!("a client waits for at most {KEYS_MAX} keys"));
        }
        for key in &words[keys.clone()] {
            if let Err(error) = rows::check_key(TABLE, key) {
                return Err(Halt::Reply(Reply::failed(&error)));
            }
        }
        Ok(Asked { words: Arc::new(words.clone()), keys, kind, timeout })
    }

    pub(super) fn keys(&self) -> &[Vec<u8>] {
        &self.words[self.keys.clone()]
    }

    /// The key to which it moves an element.
    pub(super) fn fills(&self) -> Option<&Vec<u8>> {
        filled(&self.words)
    }

    /// The same command for one of its keys.
    fn of_key(&self, at: usize) -> Words {
        let key = self.words[self.keys.start + at].clone();
        let mut words = Words::clone(&self.words);
        words.splice(self.keys.clone(), [key]);
        if matches!(&*upper(&words[0]), "BLMPOP" | "BZMPOP") {
            words[2] = b"1".to_vec();
        }
        words
    }

    /// Takes what there is at the first of its keys that has something, of those where it is this client's turn.
    async fn apply(
        &self,
        transaction: &mut Transaction,
        is_turn: &[bool],
        has_waited: bool,
        room: &mut Room,
    ) -> Result<Option<Reply>, Stop> {
        transaction.prefetch(self.keys().iter().map(|key| (TABLE, &key[..]))).await?;
        for (at, key) in self.keys().iter().enumerate() {
            match transaction.measure(TABLE, key).await? {
                Some((kind, _)) if kind == self.kind && is_turn.get(at) == Some(&true) => {
                    return Ok(Some(data::apply(transaction, &self.of_key(at), room).await?));
                }
                // While a client waits, its key may come to hold something else: as in Redis it goes on waiting.
                Some((kind, _)) if kind != self.kind && !has_waited => {
                    return Ok(Some(Reply::error(Reply::WRONG_TYPE)));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// One try, as a transaction: the reply, or `None` if there is nothing.
    pub(super) async fn attempt(
        &self,
        store: &Store,
        place: &Place,
        has_waited: bool,
        mut room: Room,
    ) -> Result<(Option<Reply>, Room), StoreError> {
        if let Some(what) = store.waits_for() {
            return Err(StoreError::Unavailable(what));
        }
        let (asked, is_turn) = (self.clone(), place.is_turn());
        let result = store.ask(move |local| async move {
            let before = room.bytes();
            let result = local.transact(PATIENCE_NS, async |transaction: &mut Transaction| {
                room.shrink(before);
                let reply = asked.apply(transaction, &is_turn, has_waited, &mut room).await?;
                room.resize(before + reply.as_ref().map_or(0, Reply::held))?;
                Ok(reply)
            });
            result.await.map(|reply| (reply, room))
        });
        result.await?
    }
}

/// Tells those who wait that keys may have got elements, here and at other nodes.
pub(super) fn announce(hub: &Arc<Hub>, store: &Store, filled: &[Vec<u8>]) {
    if filled.is_empty() {
        return;
    }
    for node in hub.filled(filled) {
        let (hub, store) = (Arc::clone(hub), store.clone());
        store.io.clone().spawn(async move { hub.hint(&store, node).await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_timeout_is_rounded_up_and_zero_is_for_ever() {
        let check = |text: &str, expected: Result<Option<u64>, &str>| {
            let found = match timeout(text.as_bytes()) {
                Ok(found) => Ok(found.map(|timeout| timeout.as_millis() as u64)),
                Err(Halt::Reply(Reply::Error(why))) => Err(String::from_utf8_lossy(&why).into_owned()),
                Err(halt) => panic!("{halt:?}"),
            };
            assert_eq!(found, expected.map_err(String::from), "{text}");
        };
        check("0", Ok(None));
        check("-0", Ok(None));
        check("1", Ok(Some(1000)));
        check("0.0001", Ok(Some(1)));
        check("1.2345", Ok(Some(1235)));
        check("-1", Err("ERR timeout is negative"));
        check("x", Err("ERR timeout is not a float or out of range"));
        check("inf", Err("ERR timeout is out of range"));
        check("1e30", Err("ERR timeout is out of range"));
    }

    #[test]
    fn a_command_that_waits_is_made_one_for_each_of_its_keys() {
        let check = |line: &str, keys: &str, second: &str| {
            let asked = Asked::parse(&words(line)).expect("a command");
            assert_eq!(asked.keys(), words(keys), "{line}");
            assert_eq!(asked.of_key(asked.keys().len() - 1), words(second), "{line}");
        };
        check("BLPOP a b c 0", "a b c", "BLPOP c 0");
        check("BZPOPMAX a b 1", "a b", "BZPOPMAX b 1");
        check("BLMPOP 0 2 a b LEFT COUNT 3", "a b", "BLMPOP 0 1 b LEFT COUNT 3");
        check("bzmpop 0 1 a MIN", "a", "bzmpop 0 1 a MIN");
        check("BLMOVE a b LEFT RIGHT 0", "a", "BLMOVE a b LEFT RIGHT 0");
        check("BRPOPLPUSH a b 0", "a", "BRPOPLPUSH a b 0");
        for wrong in ["BLPOP a x", "BLMPOP 0 3 a b LEFT", "BLMPOP 0 1 a UP", "BLMOVE a b UP LEFT 0"] {
            assert!(Asked::parse(&words(wrong)).is_err(), "{wrong}");
        }
        let many = format!("BLPOP {}0", "k ".repeat(KEYS_MAX + 1));
        assert!(Asked::parse(&words(&many)).is_err());
    }

    #[test]
    fn commands_that_fill_say_which_key() {
        let check = |line: &str, expected: Option<&str>| {
            let words = words(line);
            assert_eq!(filled(&words).map(|key| &key[..]), expected.map(str::as_bytes), "{line}");
        };
        check("LPUSH a x", Some("a"));
        check("zadd a 1 x", Some("a"));
        check("LMOVE a b LEFT LEFT", Some("b"));
        check("ZUNIONSTORE d 1 a", Some("d"));
        check("LPOP a", None);
        check("SADD a x", None);
    }
}
