//! Sets of the Redis endpoint. Members lie in the order of their bytes, so one is found by halving.

use super::collections::{
    add_together, bulk, bulks, check_length, damaged, draw, numbered, parse, put, put_anew, to_bytes, value,
};
use super::outcome::{Done, Halt, at_least, refuse, syntax, whole};
use super::reply::Reply;
use super::{TABLE, Words, scans, upper};
use crate::door::Room;
use crate::rows::Kind;
use crate::transaction::Transaction;
use std::collections::BTreeSet;

/// What a look for one member costs, in bytes that might have been copied instead.
pub(super) const PER_MEMBER: usize = 128;

/// The members of a value, in the order of their bytes.
pub(super) fn members(value: Option<&[u8]>) -> Done<Vec<&[u8]>> {
    match parse(value.unwrap_or_default()).filter(|members| members.is_sorted_by(|one, next| one < next)) {
        Some(members) => Ok(members),
        None => damaged(),
    }
}

async fn store<'a>(
    transaction: &mut Transaction,
    key: &[u8],
    members: impl Iterator<Item = &'a [u8]>,
) -> Done<()> {
    put(transaction, key, Kind::Set, &to_bytes(members)).await
}

/// Carries out a command on sets.
pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    match name {
        "SADD" => add(transaction, words).await,
        "SREM" => remove(transaction, words).await,
        "SPOP" => pop(transaction, words, room).await,
        "SRANDMEMBER" => random(transaction, words, room).await,
        "SMOVE" => move_member(transaction, words).await,
        "SINTERCARD" => intersection_size(transaction, words).await,
        "SINTER" | "SUNION" | "SDIFF" => show_combined(transaction, name, words, room).await,
        "SINTERSTORE" | "SUNIONSTORE" | "SDIFFSTORE" => store_combined(transaction, name, words).await,
        _ => look(transaction, name, words, room).await,
    }
}

async fn look(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    if name == "SSCAN" && !is_cursor(&words[2]) {
        return refuse("invalid cursor");
    }
    let stored = value(transaction, &words[1], Kind::Set).await?;
    let members = members(stored.as_deref())?;
    let has = |member: &Vec<u8>| i64::from(members.binary_search(&&member[..]).is_ok());
    Ok(match name {
        "SISMEMBER" => Reply::Integer(has(&words[2])),
        "SMISMEMBER" => Reply::Array(words[2..].iter().map(|word| Reply::Integer(has(word))).collect()),
        "SCARD" => Reply::Integer(members.len() as i64),
        "SSCAN" => {
            let pattern = if stored.is_some() { page_pattern(&words[3..])? } else { None };
            let wanted = members.into_iter().filter(|member| is_wanted(pattern, member));
            page(bulks(transaction, wanted, room).await?)
        }
        _ => Reply::Set(bulks(transaction, members.into_iter(), room).await?),
    })
}

/// Whether a word is a cursor. A collection is short enough for one page, so each cursor means the same.
pub(super) fn is_cursor(word: &[u8]) -> bool {
    std::str::from_utf8(word).is_ok_and(|text| text.parse::<u64>().is_ok())
}

/// What a scan of a collection asks for.
pub(super) fn page_pattern(options: &[Vec<u8>]) -> Done<Option<&[u8]>> {
    let mut pattern = None;
    for pair in options.chunks(2) {
        let [option, given] = pair else { return syntax() };
        match &*upper(option) {
            "MATCH" if given.len() > super::glob::PATTERN_BYTES_MAX => {
                return Err(Halt::Reply(scans::pattern_too_long()));
            }
            "MATCH" => pattern = Some(&given[..]),
            // A hint, for pages.
            "COUNT" if whole(given)? >= 1 => {}
            _ => return syntax(),
        }
    }
    Ok(pattern)
}

pub(super) fn is_wanted(pattern: Option<&[u8]>, member: &[u8]) -> bool {
    pattern.is_none_or(|pattern| super::glob::matches(pattern, member))
}

/// The only page of a collection.
pub(super) fn page(found: Vec<Reply>) -> Reply {
    Reply::Array(vec![Reply::bulk("0"), Reply::Array(found)])
}

async fn add(transaction: &mut Transaction, words: &Words) -> Done {
    let stored = value(transaction, &words[1], Kind::Set).await?;
    let there = members(stored.as_deref())?;
    let mut new: Vec<&[u8]> = words[2..].iter().map(|word| &word[..]).collect();
    new.retain(|member| there.binary_search(member).is_err());
    new.sort_unstable();
    new.dedup();
    if new.is_empty() {
        return Ok(Reply::Integer(0));
    }
    let mut all = [there, new.clone()].concat();
    all.sort_unstable();
    store(transaction, &words[1], all.into_iter()).await?;
    Ok(Reply::Integer(new.len() as i64))
}

async fn remove(transaction: &mut Transaction, words: &Words) -> Done {
    let Some(stored) = value(transaction, &words[1], Kind::Set).await? else { return Ok(Reply::Integer(0)) };
    let members = members(Some(&stored))?;
    let unwanted: BTreeSet<&[u8]> = words[2..].iter().map(|word| &word[..]).collect();
    let kept: Vec<&[u8]> = members.iter().copied().filter(|member| !unwanted.contains(member)).collect();
    let gone = members.len() - kept.len();
    if gone > 0 {
        store(transaction, &words[1], kept.into_iter()).await?;
    }
    Ok(Reply::Integer(gone as i64))
}

async fn pop(transaction: &mut Transaction, words: &Words, room: &mut Room) -> Done {
    let most = match &words[2..] {
        [] => None,
        [word] => Some(super::outcome::count(word)?),
        _ => return syntax(),
    };
    let Some(stored) = value(transaction, &words[1], Kind::Set).await? else {
        return Ok(most.map_or(Reply::Nil, |_| Reply::Set(Vec::new())));
    };
    let members = members(Some(&stored))?;
    let drawn: BTreeSet<usize> = draw(transaction, most.unwrap_or(1), members.len()).into_iter().collect();
    let popped = drawn.iter().map(|&at| members[at]);
    let mut replies = bulks(transaction, popped, room).await?;
    if !drawn.is_empty() {
        let kept = members.iter().enumerate().filter(|(at, _)| !drawn.contains(at));
        store(transaction, &words[1], kept.map(|(_, member)| *member)).await?;
    }
    Ok(match most {
        None => replies.pop().unwrap_or(Reply::Nil),
        Some(_) => Reply::Set(replies),
    })
}

async fn random(transaction: &mut Transaction, words: &Words, room: &mut Room) -> Done {
    let most = match &words[2..] {
        [] => None,
        [word] => Some(signed_count(word, i64::MAX)?),
        _ => return syntax(),
    };
    let stored = value(transaction, &words[1], Kind::Set).await?;
    let members = members(stored.as_deref())?;
    let Some(most) = most else {
        return Ok(match members.len() {
            0 => Reply::Nil,
            count => bulk(members[transaction.random_below(count)]),
        });
    };
    let drawn = draw_signed(transaction, most, members.len(), room).await?;
    Ok(Reply::Array(bulks(transaction, drawn.into_iter().map(|at| members[at]), room).await?))
}

/// How many are drawn, with repetitions if it is negative.
pub(super) fn signed_count(word: &[u8], most: i64) -> Done<i64> {
    match whole(word)? {
        number if number < -most || number > most => {
            refuse(format!("value is out of range, value must between {} and {}", -i64::MAX, i64::MAX))
        }
        number => Ok(number),
    }
}

/// Numbers below `below`: so many different ones; or, if `most` is negative, so many as they come.
pub(super) async fn draw_signed(
    transaction: &Transaction,
    most: i64,
    below: usize,
    room: &mut Room,
) -> Done<Vec<usize>> {
    if below == 0 {
        return Ok(Vec::new());
    }
    if most >= 0 {
        return Ok(draw(transaction, usize::try_from(most).unwrap_or(usize::MAX), below));
    }
    let count = usize::try_from(most.unsigned_abs()).unwrap_or(usize::MAX);
    // What the numbers themselves take is held until the replies are made; too many of them are refused before they are drawn.
    let bytes = count.saturating_mul(size_of::<usize>());
    room.take(bytes)?;
    let drawn = (0..count).map(|_| transaction.random_below(below)).collect();
    transaction.breathe(bytes).await;
    Ok(drawn)
}

async fn move_member(transaction: &mut Transaction, words: &Words) -> Done {
    let Some(from) = value(transaction, &words[1], Kind::Set).await? else { return Ok(Reply::Integer(0)) };
    let to = value(transaction, &words[2], Kind::Set).await?;
    let (source, target, member) = (members(Some(&from))?, members(to.as_deref())?, &words[3][..]);
    let Ok(at) = source.binary_search(&member) else { return Ok(Reply::Integer(0)) };
    if words[1] == words[2] {
        return Ok(Reply::Integer(1));
    }
    if let Err(place) = target.binary_search(&member) {
        let mut target = target;
        target.insert(place, member);
        let target = to_bytes(target.into_iter());
        check_length(&target, Kind::Set)?;
        put(transaction, &words[2], Kind::Set, &target).await?;
    }
    let kept = source.iter().enumerate().filter(|(place, _)| *place != at);
    store(transaction, &words[1], kept.map(|(_, member)| *member)).await?;
    Ok(Reply::Integer(1))
}

/// The values of sets; `None`: there is no such key.
async fn read_all(transaction: &mut Transaction, keys: &[Vec<u8>]) -> Done<Vec<Option<Vec<u8>>>> {
    transaction.prefetch_values(keys.iter().map(|key| (TABLE, &key[..]))).await?;
    let (mut all, mut bytes) = (Vec::with_capacity(keys.len()), 0);
    for key in keys {
        let found = value(transaction, key, Kind::Set).await?;
        add_together(&mut bytes, found.as_ref().map_or(0, Vec::len))?;
        all.push(found);
    }
    Ok(all)
}

async fn show_combined(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    let sets = read_all(transaction, &words[1..]).await?;
    let found = combine(transaction, name, &sets).await?;
    Ok(Reply::Set(bulks(transaction, found.into_iter(), room).await?))
}

async fn store_combined(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
    let sets = read_all(transaction, &words[2..]).await?;
    let found = combine(transaction, name.trim_end_matches("STORE"), &sets).await?;
    put_anew(transaction, &words[1], Kind::Set, &to_bytes(found.iter().copied())).await?;
    Ok(Reply::Integer(found.len() as i64))
}

async fn combine<'a>(
    transaction: &Transaction,
    name: &str,
    sets: &'a [Option<Vec<u8>>],
) -> Done<Vec<&'a [u8]>> {
    let mut all = Vec::with_capacity(sets.len());
    for set in sets {
        all.push(members(set.as_deref())?);
    }
    let has = |set: &Vec<&[u8]>, member: &[u8]| set.binary_search(&member).is_ok();
    match (name, all.split_first()) {
        (_, None) => Ok(Vec::new()),
        ("SUNION", _) => {
            let mut union = BTreeSet::new();
            for member in all.iter().flatten().copied() {
                union.insert(member);
                transaction.breathe(PER_MEMBER).await;
            }
            Ok(union.into_iter().collect())
        }
        ("SDIFF", Some((first, others))) => {
            let mut left = Vec::new();
            for member in first.iter().copied() {
                if !others.iter().any(|other| has(other, member)) {
                    left.push(member);
                }
                transaction.breathe(PER_MEMBER * sets.len()).await;
            }
            Ok(left)
        }
        _ => {
            let shortest = all.iter().min_by_key(|set| set.len()).map(Vec::as_slice).unwrap_or_default();
            let mut common = Vec::new();
            for member in shortest.iter().copied() {
                if all.iter().all(|set| has(set, member)) {
                    common.push(member);
                }
                transaction.breathe(PER_MEMBER * sets.len()).await;
            }
            Ok(common)
        }
    }
}

async fn intersection_size(transaction: &mut Transaction, words: &Words) -> Done {
    let (keys, options) = numbered(&words[1..])?;
    let most = limit(options)?;
    let sets = read_all(transaction, keys).await?;
    let found = combine(transaction, "SINTER", &sets).await?.len();
    Ok(Reply::Integer(if most == 0 { found } else { found.min(most) } as i64))
}

/// `LIMIT count`; 0: no limit.
pub(super) fn limit(options: &[Vec<u8>]) -> Done<usize> {
    let mut most = 0;
    for pair in options.chunks(2) {
        most = match pair {
            [option, given] if upper(option) == "LIMIT" => at_least(0, given, "LIMIT can't be negative")?,
            _ => return syntax(),
        };
    }
    Ok(most)
}

/// How Redis would keep such a set.
pub(super) fn encoding(value: &[u8]) -> &'static str {
    let are_numbers =
        |all: Vec<&[u8]>| all.len() <= 512 && all.iter().all(|one| super::keys::integer(one).is_some());
    if parse(value).is_some_and(are_numbers) { "intset" } else { "hashtable" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_are_not_in_order_are_damage() {
        let of = |members: &[&str]| to_bytes(members.iter().map(|member| member.as_bytes()));
        assert_eq!(members(Some(&of(&["", "a", "b"]))).expect("a set").len(), 3);
        for wrong in [&["b", "a"][..], &["a", "a"]] {
            assert!(members(Some(&of(wrong))).is_err(), "{wrong:?}");
        }
        assert!(members(Some(b"\x05\0a")).is_err());
    }
}
