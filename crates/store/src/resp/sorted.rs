//! Sorted sets of the Redis endpoint. Members lie in the order of their scores, members with equal scores in the order of their bytes.

mod pops;
mod ranges;
mod unions;

use super::collections::{bulk, bulks, damaged, put, put_anew, put_element, take_element, value};
use super::outcome::{Done, refuse, syntax};
use super::reply::Reply;
use super::sets::{is_cursor, is_wanted, page, page_pattern};
use super::{Words, scores, upper};
use crate::door::Room;
use crate::rows::Kind;
use crate::transaction::Transaction;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

pub(super) use pops::check_several;

/// A member and its score, which is no NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scored<'a> {
    score: f64,
    member: &'a [u8],
}

impl Scored<'_> {
    fn order(&self, other: &Scored<'_>) -> Ordering {
        // Both zeros are equal.
        let by_score = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        by_score.then_with(|| self.member.cmp(other.member))
    }

    fn pair(&self) -> (Reply, Reply) {
        (bulk(self.member), Reply::Double(self.score))
    }
}

/// What a member costs in a reply besides itself.
const PER_SCORE: usize = 2 * size_of::<Reply>();

fn parse(mut bytes: &[u8]) -> Option<Vec<Scored<'_>>> {
    let mut all: Vec<Scored<'_>> = Vec::new();
    while let Some((score, rest)) = bytes.split_first_chunk() {
        bytes = rest;
        let one = Scored { score: f64::from_le_bytes(*score), member: take_element(&mut bytes)? };
        let is_behind = all.last().is_none_or(|last| last.order(&one) == Ordering::Less);
        if one.score.is_nan() || !is_behind {
            return None;
        }
        all.push(one);
    }
    bytes.is_empty().then_some(all)
}

fn to_bytes(all: &[Scored<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for one in all {
        // As in Redis, a zero that is stored has no sign.
        bytes.extend_from_slice(&(one.score + 0.0).to_le_bytes());
        put_element(one.member, &mut bytes);
    }
    bytes
}

/// What `fuzz/` tries: what comes back is the same again.
pub(super) fn try_parse(bytes: &[u8]) {
    if let Some(all) = parse(bytes) {
        assert_eq!(parse(&to_bytes(&all)), Some(all));
    }
}

/// The members of a value, in their order.
fn scored(value: Option<&[u8]>) -> Done<Vec<Scored<'_>>> {
    match parse(value.unwrap_or_default()) {
        Some(all) => Ok(all),
        None => damaged(),
    }
}

async fn read(transaction: &mut Transaction, key: &[u8]) -> Done<Option<Vec<u8>>> {
    value(transaction, key, Kind::Sorted).await
}

async fn store(transaction: &mut Transaction, key: &[u8], all: &[Scored<'_>]) -> Done<()> {
    put(transaction, key, Kind::Sorted, &to_bytes(all)).await
}

async fn store_anew(transaction: &mut Transaction, key: &[u8], all: &[Scored<'_>]) -> Done<()> {
    put_anew(transaction, key, Kind::Sorted, &to_bytes(all)).await
}

/// Members as pairs, each of which has room.
async fn pairs<'a>(
    transaction: &Transaction,
    all: impl Iterator<Item = Scored<'a>>,
    room: &mut Room,
) -> Done<Vec<(Reply, Reply)>> {
    let mut replies = Vec::new();
    for one in all {
        let bytes = one.member.len() + PER_SCORE;
        room.take(bytes)?;
        transaction.breathe(bytes).await;
        replies.push(one.pair());
    }
    Ok(replies)
}

/// Members alone, or with their scores.
async fn members<'a>(
    transaction: &Transaction,
    all: impl Iterator<Item = Scored<'a>>,
    has_scores: bool,
    room: &mut Room,
) -> Done {
    Ok(match has_scores {
        true => Reply::Pairs(pairs(transaction, all, room).await?),
        false => Reply::Array(bulks(transaction, all.map(|one| one.member), room).await?),
    })
}

/// Carries out a command on sorted sets. One that may wait for a member does not wait here.
pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    match name {
        "ZADD" | "ZINCRBY" => add(transaction, name, words).await,
        "ZREM" => remove(transaction, words).await,
        "ZSCORE" | "ZMSCORE" | "ZCARD" | "ZRANK" | "ZREVRANK" => look(transaction, name, words).await,
        "ZSCAN" => scan(transaction, words, room).await,
        "ZPOPMIN" | "ZPOPMAX" | "ZMPOP" | "BZPOPMIN" | "BZPOPMAX" | "BZMPOP" | "ZRANDMEMBER" => {
            pops::apply(transaction, name, words, room).await
        }
        "ZUNION" | "ZINTER" | "ZDIFF" | "ZUNIONSTORE" | "ZINTERSTORE" | "ZDIFFSTORE" | "ZINTERCARD" => {
            unions::apply(transaction, name, words, room).await
        }
        _ => ranges::apply(transaction, name, words, room).await,
    }
}

/// What `ZADD` is told to do.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    only_new: bool,
    only_old: bool,
    only_greater: bool,
    only_less: bool,
    counts_changes: bool,
    is_increment: bool,
}

impl Conditions {
    /// Those in front of the scores, and how many words they are.
    fn parse(words: &[Vec<u8>]) -> (Conditions, usize) {
        let mut found = Conditions::default();
        for (at, word) in words.iter().enumerate() {
            match &*upper(word) {
                "NX" => found.only_new = true,
                "XX" => found.only_old = true,
                "GT" => found.only_greater = true,
                "LT" => found.only_less = true,
                "CH" => found.counts_changes = true,
                "INCR" => found.is_increment = true,
                _ => return (found, at),
            }
        }
        (found, words.len())
    }

    fn check(&self, pairs: usize) -> Done<()> {
        let (new, old, greater, less) = (self.only_new, self.only_old, self.only_greater, self.only_less);
        if new && old {
            return refuse("XX and NX options at the same time are not compatible");
        }
        if (greater || less) && new || greater && less {
            return refuse("GT, LT, and/or NX options at the same time are not compatible");
        }
        if self.is_increment && pairs > 1 {
            return refuse("INCR option supports a single increment-element pair");
        }
        Ok(())
    }
}

/// What became of one member.
enum Change {
    Nothing,
    /// Its new score, and whether there was another one.
    Added(f64),
    Updated(f64),
    Same(f64),
}

impl Conditions {
    fn apply(&self, there: Option<f64>, given: f64) -> Done<Change> {
        let Some(there) = there else {
            return Ok(if self.only_old { Change::Nothing } else { Change::Added(given) });
        };
        if self.only_new {
            return Ok(Change::Nothing);
        }
        let score = if self.is_increment { there + given } else { given };
        if score.is_nan() {
            return refuse("resulting score is not a number (NaN)");
        }
        if self.only_less && score >= there || self.only_greater && score <= there {
            return Ok(Change::Nothing);
        }
        Ok(if score == there { Change::Same(score) } else { Change::Updated(score) })
    }
}

async fn add(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
    let (mut conditions, options) = Conditions::parse(&words[2..]);
    conditions.is_increment |= name == "ZINCRBY";
    let given = &words[2 + options..];
    if given.is_empty() || !given.len().is_multiple_of(2) {
        return syntax();
    }
    conditions.check(given.len() / 2)?;
    let mut changes = Vec::with_capacity(given.len() / 2);
    for pair in given.chunks_exact(2) {
        changes.push(Scored {
            score: scores::parse_or(&pair[0], "value is not a valid float")?,
            member: &pair[1],
        });
    }
    let stored = read(transaction, &words[1]).await?;
    let mut all = scored(stored.as_deref())?;
    // A command with many members must not search a long set for each.
    let mut places: HashMap<&[u8], usize> =
        all.iter().enumerate().map(|(place, one)| (one.member, place)).collect();
    let (mut added, mut updated, mut last) = (0, 0, None);
    for change in changes {
        let place = places.get(change.member).copied();
        let there = place.map(|place| all[place].score);
        last = match conditions.apply(there, change.score)? {
            Change::Nothing => None,
            Change::Same(score) => Some(score),
            Change::Added(score) => {
                added += 1;
                places.insert(change.member, all.len());
                all.push(change);
                Some(score)
            }
            Change::Updated(score) => {
                updated += 1;
                if let Some(place) = place {
                    all[place].score = score;
                }
                Some(score)
            }
        };
    }
    if added + updated > 0 {
        all.sort_unstable_by(Scored::order);
        store(transaction, &words[1], &all).await?;
    }
    Ok(match (conditions.is_increment, conditions.counts_changes) {
        (true, _) => last.map_or(Reply::Nil, Reply::Double),
        (false, true) => Reply::Integer(added + updated),
        (false, false) => Reply::Integer(added),
    })
}

async fn remove(transaction: &mut Transaction, words: &Words) -> Done {
    let stored = read(transaction, &words[1]).await?;
    let mut all = scored(stored.as_deref())?;
    let (before, unwanted) = (all.len(), words[2..].iter().map(|word| &word[..]).collect::<HashSet<_>>());
    all.retain(|one| !unwanted.contains(one.member));
    let gone = before - all.len();
    if gone > 0 {
        store(transaction, &words[1], &all).await?;
    }
    Ok(Reply::Integer(gone as i64))
}

async fn look(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
    let wants_score = match words.get(3) {
        Some(word) if name.ends_with("RANK") => {
            if upper(word) != "WITHSCORE" {
                return syntax();
            }
            true
        }
        _ => false,
    };
    let stored = read(transaction, &words[1]).await?;
    let all = scored(stored.as_deref())?;
    Ok(match name {
        "ZCARD" => Reply::Integer(all.len() as i64),
        "ZSCORE" => {
            let found = all.iter().find(|one| one.member == words[2]);
            found.map_or(Reply::Nil, |one| Reply::Double(one.score))
        }
        "ZMSCORE" => {
            let scores: HashMap<&[u8], f64> = all.iter().map(|one| (one.member, one.score)).collect();
            let score =
                |word: &Vec<u8>| scores.get(&word[..]).map_or(Reply::Nil, |&score| Reply::Double(score));
            Reply::Array(words[2..].iter().map(score).collect())
        }
        _ => {
            let Some(place) = all.iter().position(|one| one.member == words[2]) else {
                return Ok(if wants_score { Reply::NilArray } else { Reply::Nil });
            };
            let rank = if name == "ZREVRANK" { all.len() - 1 - place } else { place };
            let rank = Reply::Integer(rank as i64);
            match wants_score {
                true => Reply::Array(vec![rank, Reply::Double(all[place].score)]),
                false => rank,
            }
        }
    })
}

async fn scan(transaction: &mut Transaction, words: &Words, room: &mut Room) -> Done {
    if !is_cursor(&words[2]) {
        return refuse("invalid cursor");
    }
    let stored = read(transaction, &words[1]).await?;
    let all = scored(stored.as_deref())?;
    let pattern = if stored.is_some() { page_pattern(&words[3..])? } else { None };
    let wanted = all.into_iter().filter(|one| is_wanted(pattern, one.member));
    let mut found = Vec::new();
    for (member, score) in pairs(transaction, wanted, room).await? {
        let Reply::Double(score) = score else { continue };
        // Scans say scores as strings in both versions of the protocol.
        found.extend([member, Reply::bulk(scores::print_in_scan(score))]);
    }
    Ok(page(found))
}

/// How Redis would keep such a sorted set.
pub(super) fn encoding(value: &[u8]) -> &'static str {
    let is_short = |all: Vec<Scored<'_>>| all.len() <= 128 && all.iter().all(|one| one.member.len() <= 64);
    if parse(value).is_some_and(is_short) { "listpack" } else { "skiplist" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    fn of<'a>(all: &[(f64, &'a str)]) -> Vec<Scored<'a>> {
        all.iter().map(|&(score, member)| Scored { score, member: member.as_bytes() }).collect()
    }

    #[test]
    fn members_come_back_in_their_order_and_damage_is_noticed() {
        let all = of(&[(f64::NEG_INFINITY, "z"), (-0.0, "a"), (0.0, "b"), (2.5, ""), (f64::INFINITY, "a")]);
        let bytes = to_bytes(&all);
        assert_eq!(parse(&bytes), Some(all));
        assert_eq!(parse(&[]), Some(vec![]));
        for end in 1..bytes.len() {
            // It is cut within a member, or between two.
            assert!(parse(&bytes[..end]).is_none_or(|all| to_bytes(&all) == bytes[..end]));
        }
        assert_eq!(parse(&bytes[..bytes.len() - 1]), None);
        for wrong in [
            of(&[(1.0, "b"), (1.0, "a")]),
            of(&[(1.0, "a"), (1.0, "a")]),
            of(&[(2.0, "a"), (1.0, "b")]),
            of(&[(0.0, "b"), (-0.0, "a")]),
            of(&[(f64::NAN, "a")]),
        ] {
            assert_eq!(parse(&to_bytes(&wrong)), None, "{wrong:?}");
        }
        // A member costs ten bytes besides its own.
        assert_eq!(to_bytes(&of(&[(1.0, "m")])), b"\0\0\0\0\0\0\xF0\x3F\x01\0m");
    }

    #[test]
    fn no_bytes_panic() {
        let mut rng = Rng::new(31);
        let bytes = to_bytes(&of(&[(1.0, "a"), (2.0, "bcd"), (3.0, "")]));
        for _ in 0..20_000 {
            let mut bent = bytes.clone();
            let at = rng.below(bent.len() as u64) as usize;
            bent[at] = rng.next_u32() as u8;
            bent.truncate(rng.below(bent.len() as u64 + 1) as usize);
            let random: Vec<u8> = (0..rng.below(40)).map(|_| rng.next_u32() as u8).collect();
            for bytes in [bent, random] {
                if let Some(all) = parse(&bytes) {
                    assert_eq!(parse(&to_bytes(&all)), Some(all));
                }
            }
        }
    }
}
