//! When keys expire: `EXPIRE` and its like, and the options of `SET` and `GETEX`.

use super::keys::{integer, not_an_integer, or_nil, string};
use super::outcome::{Done, syntax};
use super::reply::Reply;
use super::{TABLE, Words, upper};
use crate::rows::{Expiry, Kind};
use crate::transaction::Transaction;

/// How a command writes a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    in_seconds: bool,
    /// Since now, and not since 1970.
    is_relative: bool,
}

const EX: Form = Form { in_seconds: true, is_relative: true };
const PX: Form = Form { in_seconds: false, is_relative: true };
const EXAT: Form = Form { in_seconds: true, is_relative: false };
const PXAT: Form = Form { in_seconds: false, is_relative: false };

fn invalid_time(command: &str) -> Reply {
    Reply::error(format!("ERR invalid expire time in '{}' command", command.to_lowercase()))
}

impl Form {
    /// The time in milliseconds since 1970, which may be before that.
    fn parse(self, word: &[u8], now_ms: u64, command: &str) -> Result<i64, Reply> {
        let number = integer(word).ok_or_else(not_an_integer)?;
        let number = if self.in_seconds { number.checked_mul(1000) } else { Some(number) };
        let since = if self.is_relative { now_ms as i64 } else { 0 };
        number.and_then(|number| number.checked_add(since)).ok_or_else(|| invalid_time(command))
    }

    /// The same for the commands that give a value, which refuse times that are not positive.
    fn parse_positive(self, word: &[u8], now_ms: u64, command: &str) -> Result<u64, Reply> {
        if integer(word).is_some_and(|number| number <= 0) {
            return Err(invalid_time(command));
        }
        let time = self.parse(word, now_ms, command)?;
        u64::try_from(time).ok().filter(|&time| time > 0).ok_or_else(|| invalid_time(command))
    }
}

pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
    let key = &words[1];
    Ok(match name {
        "EXPIRE" => return expire(transaction, name, EX, words).await,
        "PEXPIRE" => return expire(transaction, name, PX, words).await,
        "EXPIREAT" => return expire(transaction, name, EXAT, words).await,
        "PEXPIREAT" => return expire(transaction, name, PXAT, words).await,
        "TTL" | "PTTL" | "EXPIRETIME" | "PEXPIRETIME" => {
            let now_ms = transaction.now_ms();
            let time = match transaction.expiry(TABLE, key).await? {
                None => return Ok(Reply::Integer(-2)),
                Some(None) => return Ok(Reply::Integer(-1)),
                Some(Some(time)) if name.ends_with("TTL") => time.saturating_sub(now_ms),
                Some(Some(time)) => time,
            };
            let time = if name.starts_with('P') { time } else { time / 1000 + u64::from(time % 1000 >= 500) };
            Reply::Integer(i64::try_from(time).unwrap_or(i64::MAX))
        }
        "PERSIST" => {
            let expires = transaction.expiry(TABLE, key).await?.flatten().is_some();
            if expires {
                transaction.set_expiry(TABLE, key, None).await?;
            }
            Reply::Integer(i64::from(expires))
        }
        "SETEX" | "PSETEX" => {
            let form = if name == "SETEX" { EX } else { PX };
            let time = form.parse_positive(&words[2], transaction.now_ms(), name)?;
            transaction.put_until(TABLE, key, Kind::Bytes, &words[3], Some(time)).await?;
            Reply::OK
        }
        "GETEX" => return get_and_expire(transaction, words).await,
        _ => return set(transaction, words).await,
    })
}

/// `NX`, `XX`, `GT` and `LT` of EXPIRE and its like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Condition {
    only_without: bool,
    only_with: bool,
    only_later: bool,
    only_sooner: bool,
}

impl Condition {
    fn parse(words: &[Vec<u8>]) -> Result<Condition, Reply> {
        let mut condition = Condition::default();
        for word in words {
            match &*upper(word) {
                "NX" => condition.only_without = true,
                "XX" => condition.only_with = true,
                "GT" => condition.only_later = true,
                "LT" => condition.only_sooner = true,
                _ => {
                    return Err(Reply::error(
                        [b"ERR Unsupported option ", &word[..word.len().min(128)]].concat(),
                    ));
                }
            }
        }
        let Condition { only_without, only_with, only_later, only_sooner } = condition;
        if only_without && (only_with || only_later || only_sooner) {
            return Err(Reply::error("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if only_later && only_sooner {
            return Err(Reply::error("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(condition)
    }

    /// Whether a key that expires at one time may expire at another. One that does not expire counts as one that expires at the end of time.
    fn allows(self, old: Expiry, new: i64) -> bool {
        let old = old.map(|old| i64::try_from(old).unwrap_or(i64::MAX));
        !(self.only_without && old.is_some()
            || self.only_with && old.is_none()
            || self.only_later && old.is_none_or(|old| new <= old)
            || self.only_sooner && old.is_some_and(|old| new >= old))
    }
}

async fn expire(transaction: &mut Transaction, name: &str, form: Form, words: &Words) -> Done {
    let now_ms = transaction.now_ms();
    let condition = Condition::parse(&words[3..])?;
    let time = form.parse(&words[2], now_ms, name)?;
    let Some(old) = transaction.expiry(TABLE, &words[1]).await? else { return Ok(Reply::Integer(0)) };
    if !condition.allows(old, time) {
        return Ok(Reply::Integer(0));
    }
    // A time before 1970 has come as surely as the first one after it.
    let time = u64::try_from(time).unwrap_or(0).max(1);
    transaction.set_expiry(TABLE, &words[1], Some(time)).await?;
    Ok(Reply::Integer(1))
}

/// What SET and GETEX are told besides their words.
#[derive(Clone, Debug, Default)]
struct Options<'a> {
    only_new: bool,
    only_old: bool,
    wants_old: bool,
    keeps_time: bool,
    drops_time: bool,
    time: Option<(Form, &'a [u8])>,
}

impl Options<'_> {
    fn parse(words: &[Vec<u8>], is_set: bool) -> Option<Options<'_>> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let has_time = |form: Option<Form>| options.time.is_some_and(|(other, _)| Some(other) != form);
            let form = match &*upper(word) {
                "NX" if is_set && !options.only_old => {
                    options.only_new = true;
                    continue;
                }
                "XX" if is_set && !options.only_new => {
                    options.only_old = true;
                    continue;
                }
                "GET" if is_set => {
                    options.wants_old = true;
                    continue;
                }
                "KEEPTTL" if is_set && !has_time(None) => {
                    options.keeps_time = true;
                    continue;
                }
                "PERSIST" if !is_set && !has_time(None) => {
                    options.drops_time = true;
                    continue;
                }
                "EX" => EX,
                "PX" => PX,
                "EXAT" => EXAT,
                "PXAT" => PXAT,
                _ => return None,
            };
            if has_time(Some(form)) || options.keeps_time || options.drops_time {
                return None;
            }
            options.time = Some((form, words.next()?));
        }
        Some(options)
    }

    fn expires(&self, now_ms: u64, command: &str) -> Result<Expiry, Reply> {
        self.time.map(|(form, word)| form.parse_positive(word, now_ms, command)).transpose()
    }
}

async fn set(transaction: &mut Transaction, words: &Words) -> Done {
    let (key, value) = (&words[1], &words[2]);
    let Some(options) = Options::parse(&words[3..], true) else { return syntax() };
    let expires = options.expires(transaction.now_ms(), "set")?;
    let found = transaction.measure(TABLE, key).await?;
    if options.wants_old && found.is_some_and(|(kind, _)| kind != Kind::Bytes) {
        return Ok(Reply::error(Reply::WRONG_TYPE));
    }
    // Only a reply with it needs the old value.
    let old = if options.wants_old { transaction.get(TABLE, key).await? } else { None };
    let does = !(options.only_new && found.is_some() || options.only_old && found.is_none());
    match does {
        true if options.keeps_time => transaction.put(TABLE, key, Kind::Bytes, value).await?,
        true => transaction.put_until(TABLE, key, Kind::Bytes, value, expires).await?,
        false => {}
    }
    Ok(match (options.wants_old, does) {
        (true, _) => or_nil(old.map(|(_, value)| value)),
        (false, true) => Reply::OK,
        (false, false) => Reply::Nil,
    })
}

async fn get_and_expire(transaction: &mut Transaction, words: &Words) -> Done {
    let key = &words[1];
    let Some(options) = Options::parse(&words[2..], false) else { return syntax() };
    let Some(value) = string(transaction, key).await? else { return Ok(Reply::Nil) };
    match options.expires(transaction.now_ms(), "getex")? {
        Some(time) => transaction.set_expiry(TABLE, key, Some(time)).await?,
        None if options.drops_time => transaction.set_expiry(TABLE, key, None).await?,
        None => {}
    }
    Ok(Reply::Bulk(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_condition_allows_what_its_words_say() {
        // For a key that does not expire, and for one that expires at 10: later, at the same time, and sooner.
        let check = |line: &str, expected: [bool; 4]| {
            let condition = Condition::parse(&words(line)).expect("a condition");
            let allows = |old, new| condition.allows(old, new);
            assert_eq!(
                [allows(None, 5), allows(Some(10), 11), allows(Some(10), 10), allows(Some(10), 9)],
                expected
            );
        };
        check("", [true; 4]);
        check("nx", [true, false, false, false]);
        check("XX", [false, true, true, true]);
        check("GT", [false, true, false, false]);
        check("LT", [true, false, false, true]);
        check("XX LT", [false, false, false, true]);
        for wrong in ["NX XX", "NX GT", "LT NX", "GT LT", "EX"] {
            assert!(Condition::parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_is_one_of_the_form_and_never_overflows() {
        let check = |form: Form, text: &str, expected: Option<i64>| {
            assert_eq!(form.parse(text.as_bytes(), 1000, "x").ok(), expected, "{form:?} {text}");
        };
        check(EX, "2", Some(3000));
        check(PX, "-2", Some(998));
        check(EXAT, "2", Some(2000));
        check(PXAT, "-7", Some(-7));
        check(PX, "9223372036854774807", Some(i64::MAX));
        check(PX, "9223372036854774808", None);
        check(EXAT, "9223372036854776", None);
        check(EXAT, "-9223372036854776", None);
        assert!(
            EX.parse_positive(b"0", 1000, "set").is_err() && PX.parse_positive(b"-1", 1000, "set").is_err()
        );
    }

    #[test]
    fn options_that_exclude_each_other_are_an_error() {
        let check = |line: &str, is_set, expected| {
            assert_eq!(Options::parse(&words(line), is_set).is_some(), expected, "{line}");
        };
        for right in ["", "NX", "xx get", "EX 1 NX", "EX 1 EX 2", "KEEPTTL GET", "PXAT 1"] {
            check(right, true, true);
        }
        for wrong in ["NX XX", "EX", "EX 1 PX 1", "KEEPTTL EX 1", "EX 1 KEEPTTL", "PERSIST", "NOPE"] {
            check(wrong, true, false);
        }
        for (line, expected) in
            [("PERSIST", true), ("EX 1", true), ("PERSIST EX 1", false), ("NX", false), ("KEEPTTL", false)]
        {
            check(line, false, expected);
        }
    }
}
