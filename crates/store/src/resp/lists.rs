//! Lists of the Redis endpoint.

use super::collections::{bulk, bulks, check_length, damaged, holds, parse, put, span, to_bytes, value};
use super::outcome::{Done, at_least, refuse, syntax, whole};
use super::reply::Reply;
use super::{Words, upper};
use crate::door::Room;
use crate::rows::Kind;
use crate::transaction::Transaction;
use std::collections::VecDeque;

/// Whether these words are ends of lists.
pub(super) fn check_ends(words: &[Vec<u8>]) -> Done<()> {
    words.iter().try_for_each(|word| End::parse(word).map(drop))
}

/// Whether these words are keys, an end and a count.
pub(super) fn check_several(words: &[Vec<u8>]) -> Done<()> {
    several(words, End::parse).map(drop)
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

impl End {
    fn parse(word: &[u8]) -> Done<End> {
        match &*upper(word) {
            "LEFT" => Ok(End::Left),
            "RIGHT" => Ok(End::Right),
            _ => syntax(),
        }
    }

    fn push<'a>(self, list: &mut VecDeque<&'a [u8]>, element: &'a [u8]) {
        match self {
            End::Left => list.push_front(element),
            End::Right => list.push_back(element),
        }
    }

    fn pop<'a>(self, list: &mut VecDeque<&'a [u8]>) -> Option<&'a [u8]> {
        match self {
            End::Left => list.pop_front(),
            End::Right => list.pop_back(),
        }
    }
}

fn elements(value: Option<&[u8]>) -> Done<VecDeque<&[u8]>> {
    match parse(value.unwrap_or_default()) {
        Some(elements) => Ok(elements.into()),
        None => damaged(),
    }
}

async fn store(transaction: &mut Transaction, key: &[u8], list: &VecDeque<&[u8]>) -> Done<()> {
    put(transaction, key, Kind::List, &to_bytes(list.iter().copied())).await
}

/// Carries out a command on lists. One that may wait for an element does not wait here.
pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    match name {
        "LPUSH" | "RPUSH" | "LPUSHX" | "RPUSHX" => push(transaction, name, words).await,
        "LPOP" => pop(transaction, words, End::Left, room).await,
        "RPOP" => pop(transaction, words, End::Right, room).await,
        "LLEN" | "LRANGE" | "LINDEX" | "LPOS" => look(transaction, name, words, room).await,
        "LSET" | "LINSERT" | "LREM" | "LTRIM" => change(transaction, name, words).await,
        "RPOPLPUSH" => shift(transaction, [&words[1], &words[2]], [End::Right, End::Left]).await,
        "BRPOPLPUSH" => {
            super::waiting::timeout(&words[3])?;
            shift(transaction, [&words[1], &words[2]], [End::Right, End::Left]).await
        }
        "LMOVE" | "BLMOVE" => move_element(transaction, name, words).await,
        "BLPOP" | "BRPOP" => first_of(transaction, name, words).await,
        _ => pop_of_several(transaction, name, words, room).await,
    }
}

async fn push(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
    let end = if name.starts_with('L') { End::Left } else { End::Right };
    let stored = value(transaction, &words[1], Kind::List).await?;
    if stored.is_none() && name.ends_with('X') {
        return Ok(Reply::Integer(0));
    }
    let mut list = elements(stored.as_deref())?;
    words[2..].iter().for_each(|word| end.push(&mut list, word));
    store(transaction, &words[1], &list).await?;
    Ok(Reply::Integer(list.len() as i64))
}

async fn pop(transaction: &mut Transaction, words: &Words, end: End, room: &mut Room) -> Done {
    let most = match words.get(2) {
        // Redis finds that only when it carries the command out.
        _ if words.len() > 3 => return Ok(Reply::wrong_arity(&upper(&words[0]).to_lowercase())),
        None => None,
        Some(word) => Some(at_least(0, word, "value is out of range, must be positive")?),
    };
    let Some(stored) = value(transaction, &words[1], Kind::List).await? else {
        return Ok(if most.is_some() { Reply::NilArray } else { Reply::Nil });
    };
    let mut list = elements(Some(&stored))?;
    let popped = take(&mut list, end, most.unwrap_or(1));
    let replies = bulks(transaction, popped.into_iter(), room).await?;
    store(transaction, &words[1], &list).await?;
    Ok(match most {
        Some(_) => Reply::Array(replies),
        None => replies.into_iter().next().unwrap_or(Reply::Nil),
    })
}

/// Takes up to `most` elements from an end.
fn take<'a>(list: &mut VecDeque<&'a [u8]>, end: End, most: usize) -> Vec<&'a [u8]> {
    (0..most.min(list.len())).map_while(|_| end.pop(list)).collect()
}

async fn look(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    let range = match name {
        "LRANGE" => Some((whole(&words[2])?, whole(&words[3])?)),
        _ => None,
    };
    let asked = if name == "LPOS" { Some(Position::parse(&words[3..])?) } else { None };
    let stored = value(transaction, &words[1], Kind::List).await?;
    let list = elements(stored.as_deref())?;
    Ok(match (name, range, asked) {
        ("LRANGE", Some((start, stop)), _) => {
            let range = list.range(span(start, stop, list.len())).copied();
            Reply::Array(bulks(transaction, range, room).await?)
        }
        ("LINDEX", ..) if stored.is_none() => Reply::Nil,
        ("LINDEX", ..) => at(whole(&words[2])?, list.len()).map_or(Reply::Nil, |at| bulk(list[at])),
        (_, _, Some(asked)) => asked.find(&list, &words[2]),
        _ => Reply::Integer(list.len() as i64),
    })
}

/// The place of an index, which counts from the end if it is negative.
fn at(index: i64, length: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(length as i64)? } else { index };
    usize::try_from(index).ok().filter(|&index| index < length)
}

async fn change(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
    let is_before = match name {
        "LINSERT" => match &*upper(&words[2]) {
            "BEFORE" => true,
            "AFTER" => false,
            _ => return syntax(),
        },
        _ => false,
    };
    let numbers = match name {
        "LREM" => [whole(&words[2])?, 0],
        "LTRIM" => [whole(&words[2])?, whole(&words[3])?],
        _ => [0, 0],
    };
    let Some(stored) = value(transaction, &words[1], Kind::List).await? else {
        return match name {
            "LSET" => refuse("no such key"),
            "LTRIM" => Ok(Reply::OK),
            _ => Ok(Reply::Integer(0)),
        };
    };
    let mut list = elements(Some(&stored))?;
    let reply = match name {
        "LSET" => {
            let index = whole(&words[2])?;
            let Some(at) = at(index, list.len()) else { return refuse("index out of range") };
            list[at] = &words[3];
            Reply::OK
        }
        "LINSERT" => {
            let Some(at) = list.iter().position(|element| *element == words[3]) else {
                return Ok(Reply::Integer(-1));
            };
            list.insert(if is_before { at } else { at + 1 }, &words[4]);
            Reply::Integer(list.len() as i64)
        }
        "LREM" => {
            let gone = remove(&mut list, numbers[0], &words[3]);
            if gone == 0 {
                return Ok(Reply::Integer(0));
            }
            Reply::Integer(gone as i64)
        }
        _ => {
            let kept = span(numbers[0], numbers[1], list.len());
            list.truncate(kept.end);
            list.drain(..kept.start);
            Reply::OK
        }
    };
    store(transaction, &words[1], &list).await?;
    Ok(reply)
}

/// Removes the first elements that are equal, or the last ones if `most` is negative, or all if it is zero.
fn remove(list: &mut VecDeque<&[u8]>, most: i64, unwanted: &[u8]) -> usize {
    let mut left = if most == 0 { u64::MAX } else { most.unsigned_abs() };
    let before = list.len();
    let mut is_kept = |element: &&[u8]| {
        let goes = left > 0 && *element == unwanted;
        left -= u64::from(goes);
        !goes
    };
    if most < 0 {
        let kept: Vec<&[u8]> = list.iter().rev().copied().filter(&mut is_kept).collect();
        *list = kept.into_iter().rev().collect();
    } else {
        list.retain(is_kept);
    }
    before - list.len()
}

/// What LPOS asks for.
struct Position {
    /// The first match that counts; negative: from the end.
    rank: i64,
    /// How many are wanted; 0: all. `None`: one, which is no array.
    count: Option<usize>,
    /// How many elements are compared; 0: all.
    compared_max: usize,
}

impl Position {
    fn parse(options: &[Vec<u8>]) -> Done<Position> {
        let mut asked = Position { rank: 1, count: None, compared_max: 0 };
        for pair in options.chunks(2) {
            let [option, given] = pair else { return syntax() };
            match &*upper(option) {
                "RANK" => {
                    asked.rank = match whole(given)? {
                        0 => {
                            return refuse(
                                "RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                                 or use negative to start from the end of the list",
                            );
                        }
                        i64::MIN => {
                            return refuse(format!(
                                "value is out of range, value must between {} and {}",
                                -i64::MAX,
                                i64::MAX
                            ));
                        }
                        rank => rank,
                    }
                }
                "COUNT" => asked.count = Some(at_least(0, given, "COUNT can't be negative")?),
                "MAXLEN" => asked.compared_max = at_least(0, given, "MAXLEN can't be negative")?,
                _ => return syntax(),
            }
        }
        Ok(asked)
    }

    fn find(&self, list: &VecDeque<&[u8]>, wanted: &[u8]) -> Reply {
        let compared = if self.compared_max == 0 { list.len() } else { self.compared_max.min(list.len()) };
        let place = |step: usize| if self.rank < 0 { list.len() - 1 - step } else { step };
        let matches = (0..compared).map(place).filter(|&at| list[at] == wanted);
        let skip = usize::try_from(self.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
        let mut found = matches.skip(skip).map(|at| Reply::Integer(at as i64));
        match self.count {
            None => found.next().unwrap_or(Reply::Nil),
            Some(0) => Reply::Array(found.collect()),
            Some(most) => Reply::Array(found.take(most).collect()),
        }
    }
}

async fn move_element(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
    let ends = [End::parse(&words[3])?, End::parse(&words[4])?];
    if name == "BLMOVE" {
        super::waiting::timeout(&words[5])?;
    }
    shift(transaction, [&words[1], &words[2]], ends).await
}

/// Moves an element from one end to another, of two lists or of one.
async fn shift(transaction: &mut Transaction, [from, to]: [&[u8]; 2], [first, second]: [End; 2]) -> Done {
    let Some(stored) = value(transaction, from, Kind::List).await? else { return Ok(Reply::Nil) };
    let mut source = elements(Some(&stored))?;
    if from == to {
        let Some(element) = first.pop(&mut source) else { return Ok(Reply::Nil) };
        second.push(&mut source, element);
        store(transaction, from, &source).await?;
        return Ok(bulk(element));
    }
    let there = value(transaction, to, Kind::List).await?;
    let mut target = elements(there.as_deref())?;
    let Some(element) = first.pop(&mut source) else { return Ok(Reply::Nil) };
    second.push(&mut target, element);
    let target = to_bytes(target.iter().copied());
    check_length(&target, Kind::List)?;
    store(transaction, from, &source).await?;
    put(transaction, to, Kind::List, &target).await?;
    Ok(bulk(element))
}

/// `BLPOP` and `BRPOP` where they do not wait: an element of the first list that has one.
async fn first_of(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
    let (keys, timeout) = (&words[1..words.len() - 1], &words[words.len() - 1]);
    super::waiting::timeout(timeout)?;
    let end = if name == "BLPOP" { End::Left } else { End::Right };
    for key in keys {
        if !holds(transaction, key, Kind::List).await? {
            continue;
        }
        let stored = value(transaction, key, Kind::List).await?;
        let mut list = elements(stored.as_deref())?;
        if let Some(element) = end.pop(&mut list) {
            store(transaction, key, &list).await?;
            return Ok(Reply::Array(vec![bulk(key), bulk(element)]));
        }
    }
    Ok(Reply::NilArray)
}

/// `LMPOP`, and `BLMPOP` where it does not wait.
async fn pop_of_several(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    let waits = name == "BLMPOP";
    let (keys, end, most) = several(&words[if waits { 2 } else { 1 }..], End::parse)?;
    if waits {
        super::waiting::timeout(&words[1])?;
    }
    for key in keys {
        let Some(stored) = value(transaction, key, Kind::List).await? else { continue };
        let mut list = elements(Some(&stored))?;
        let popped = take(&mut list, end, most);
        let replies = bulks(transaction, popped.into_iter(), room).await?;
        store(transaction, key, &list).await?;
        return Ok(Reply::Array(vec![bulk(key), Reply::Array(replies)]));
    }
    Ok(Reply::NilArray)
}

/// `numkeys key … WHERE [COUNT count]`: the keys, where, and how many.
pub(super) fn several<T>(
    words: &[Vec<u8>],
    parse: impl Fn(&[u8]) -> Done<T>,
) -> Done<(&[Vec<u8>], T, usize)> {
    let numkeys = at_least(1, &words[0], "numkeys should be greater than 0")?;
    let Some((keys, [side, options @ ..])) = words[1..].split_at_checked(numkeys) else { return syntax() };
    let side = parse(side)?;
    let most = match options {
        [] => 1,
        [option, given, ..] if upper(option) == "COUNT" => {
            let most = at_least(1, given, "count should be greater than 0")?;
            if options.len() > 2 {
                return syntax();
            }
            most
        }
        _ => return syntax(),
    };
    Ok((keys, side, most))
}
