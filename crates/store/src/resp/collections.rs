//! What lists, sets and sorted sets of the Redis endpoint share: all elements of one lie in the value of one key. So together they are
//! no longer than a value may be, and each command is one transaction on few rows.
//!
//! Elements are read in place: they borrow from the value, or from the words of a command, until the new value is written.

use super::TABLE;
use super::fields::{put_length, take_length};
use super::outcome::{Done, Halt, at_least, refuse};
use super::reply::Reply;
use crate::door::Room;
use crate::rows::{self, Kind};
use crate::transaction::Transaction;

/// The positions from `start` to `stop`, both included, of `length` elements; negative numbers count from the end.
pub(super) fn span(start: i64, stop: i64, length: usize) -> std::ops::Range<usize> {
    let length = length as i64;
    let from_end = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
    let (start, stop) = (from_end(start).max(0), from_end(stop));
    if start > stop || start >= length {
        return 0..0;
    }
    start as usize..(stop.min(length - 1) + 1) as usize
}

/// The value of a key that holds this kind.
pub(super) async fn value(transaction: &mut Transaction, key: &[u8], kind: Kind) -> Done<Option<Vec<u8>>> {
    match transaction.get(TABLE, key).await? {
        None => Ok(None),
        Some((found, value)) if found == kind => {
            transaction.breathe(value.len()).await;
            Ok(Some(value))
        }
        Some(_) => Err(Halt::Reply(Reply::error(Reply::WRONG_TYPE))),
    }
}

/// Whether a key exists, and holds this kind.
pub(super) async fn holds(transaction: &mut Transaction, key: &[u8], kind: Kind) -> Done<bool> {
    match transaction.measure(TABLE, key).await? {
        None => Ok(false),
        Some((found, _)) if found == kind => Ok(true),
        Some(_) => Err(Halt::Reply(Reply::error(Reply::WRONG_TYPE))),
    }
}

/// Whether a value has a length that can be stored. A command asks before it changes anything.
pub(super) fn check_length(value: &[u8], kind: Kind) -> Done<()> {
    let what = match kind {
        Kind::List => "list has at most {} bytes, the lengths of its elements included",
        Kind::Set => "set has at most {} bytes, the lengths of its members included",
        _ => "sorted set has at most {} bytes, its scores and the lengths of its members included",
    };
    match value.len() <= rows::VALUE_BYTES_MAX {
        true => Ok(()),
        false => refuse(format!("a {}", what.replace("{}", &rows::VALUE_BYTES_MAX.to_string()))),
    }
}

/// Gives a key a value of this kind; a key without elements does not exist.
pub(super) async fn put(transaction: &mut Transaction, key: &[u8], kind: Kind, value: &[u8]) -> Done<()> {
    check_length(value, kind)?;
    match value.is_empty() {
        true => drop(transaction.delete(TABLE, key).await?),
        false => transaction.put(TABLE, key, kind, value).await?,
    }
    transaction.breathe(value.len()).await;
    Ok(())
}

/// Gives a key a value of this kind in the place of whatever it was: it does not expire as that would have.
pub(super) async fn put_anew(
    transaction: &mut Transaction,
    key: &[u8],
    kind: Kind,
    value: &[u8],
) -> Done<()> {
    check_length(value, kind)?;
    match value.is_empty() {
        true => drop(transaction.delete(TABLE, key).await?),
        false => transaction.put_until(TABLE, key, kind, value, None).await?,
    }
    transaction.breathe(value.len()).await;
    Ok(())
}

/// Elements one behind the other.
pub(super) fn parse(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut elements = Vec::new();
    while !bytes.is_empty() {
        elements.push(take_element(&mut bytes)?);
    }
    Some(elements)
}

pub(super) fn take_element<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_length(bytes)?;
    rows::take(bytes, length)
}

pub(super) fn put_element(element: &[u8], to: &mut Vec<u8>) {
    put_length(element.len(), to);
    to.extend_from_slice(element);
}

pub(super) fn to_bytes<'a>(elements: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    elements.for_each(|element| put_element(element, &mut bytes));
    bytes
}

/// What is said of a value that cannot be read.
pub(super) fn damaged<T>() -> Done<T> {
    refuse("the value is damaged, or of another version of this program")
}

pub(super) fn bulk(bytes: &[u8]) -> Reply {
    Reply::Bulk(bytes.to_vec())
}

/// Elements as replies, each of which has room.
pub(super) async fn bulks<'a>(
    transaction: &Transaction,
    elements: impl Iterator<Item = &'a [u8]>,
    room: &mut Room,
) -> Done<Vec<Reply>> {
    let mut replies = Vec::new();
    for element in elements {
        let reply = bulk(element);
        room.take(reply.held())?;
        transaction.breathe(reply.held()).await;
        replies.push(reply);
    }
    Ok(replies)
}

/// Different numbers below `below`, drawn at random, in the order of their size; all of them if there are no more.
pub(super) fn draw(transaction: &Transaction, most: usize, below: usize) -> Vec<usize> {
    if most >= below {
        return (0..below).collect();
    }
    // Floyd's: each subset is as likely as any other.
    let mut drawn = std::collections::BTreeSet::new();
    for last in below - most..below {
        let one = transaction.random_below(last + 1);
        if !drawn.insert(one) {
            drawn.insert(last);
        }
    }
    drawn.into_iter().collect()
}

/// What all collections that one command puts together may have: memory, and the time for which the node does nothing else, stay small.
const TOGETHER_BYTES_MAX: usize = 4 << 20;

/// Notes that one command reads so many bytes more.
pub(super) fn add_together(sum: &mut usize, bytes: usize) -> Done<()> {
    *sum += bytes;
    match *sum <= TOGETHER_BYTES_MAX {
        true => Ok(()),
        false => refuse(format!("one command puts sets of at most {TOGETHER_BYTES_MAX} bytes together")),
    }
}

/// Keys, and the words behind them.
type Numbered<'a> = (&'a [Vec<u8>], &'a [Vec<u8>]);

/// The keys of a command that says first how many there are, and the words behind them.
pub(super) fn numbered(words: &[Vec<u8>]) -> Done<Numbered<'_>> {
    let numkeys = at_least(1, &words[0], "numkeys should be greater than 0")?;
    match words[1..].split_at_checked(numkeys) {
        Some(split) => Ok(split),
        None => refuse("Number of keys can't be greater than number of args"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    #[test]
    fn elements_come_back_and_damage_is_noticed() {
        for length in [0, 1, 65_534, 65_535, 65_536, 70_000] {
            let long = vec![7; length];
            let elements = [&b""[..], &long, b"x"];
            let bytes = to_bytes(elements.into_iter());
            assert_eq!(parse(&bytes).as_deref(), Some(&elements[..]));
            assert_eq!(parse(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(parse(b""), Some(vec![]));
        // Short elements cost two bytes each besides their own.
        assert_eq!(to_bytes([&b"ab"[..]].into_iter()), b"\x02\0ab");
    }

    #[test]
    fn no_bytes_panic() {
        let mut rng = Rng::new(21);
        let bytes = to_bytes([&b"abc"[..], b"", b"defgh"].into_iter());
        for _ in 0..20_000 {
            let mut bent = bytes.clone();
            let at = rng.below(bent.len() as u64) as usize;
            bent[at] = rng.next_u32() as u8;
            bent.truncate(rng.below(bent.len() as u64 + 1) as usize);
            let random: Vec<u8> = (0..rng.below(40)).map(|_| rng.next_u32() as u8).collect();
            for bytes in [bent, random] {
                if let Some(elements) = parse(&bytes) {
                    // A length may be written in a longer way than this program writes it.
                    assert_eq!(parse(&to_bytes(elements.iter().copied())), Some(elements));
                }
            }
        }
    }

    #[test]
    fn a_span_has_the_positions_that_redis_takes() {
        for (start, stop, length, expected) in [
            (0, -1, 3, 0..3),
            (-2, -1, 3, 1..3),
            (-100, 100, 3, 0..3),
            (1, 0, 3, 0..0),
            (3, 5, 3, 0..0),
            (0, -4, 3, 0..0),
            (i64::MIN, i64::MAX, 3, 0..3),
            (i64::MAX, i64::MIN, 3, 0..0),
            (0, 0, 0, 0..0),
        ] {
            assert_eq!(span(start, stop, length), expected, "{start} {stop} {length}");
        }
    }
}
