//! What takes members out of sorted sets, and what draws some at random.

use super::{Scored, members, pairs, read, scored, store};
use crate::door::Room;
use crate::resp::collections::bulk;
use crate::resp::lists::several;
use crate::resp::outcome::{Done, count, refuse, syntax};
use crate::resp::reply::Reply;
use crate::resp::sets::{draw_signed, signed_count};
use crate::resp::{Words, upper, waiting};
use crate::transaction::Transaction;

/// An end of a sorted set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Least,
    Most,
}

fn parse_end(word: &[u8]) -> Done<End> {
    match &*upper(word) {
        "MIN" => Ok(End::Least),
        "MAX" => Ok(End::Most),
        _ => syntax(),
    }
}

/// Whether these words are keys, an end and a count.
pub(in crate::resp) fn check_several(words: &[Vec<u8>]) -> Done<()> {
    several(words, parse_end).map(drop)
}

impl End {
    /// Takes up to `most` members out, the outermost first.
    fn take<'a>(self, all: &mut Vec<Scored<'a>>, most: usize) -> Vec<Scored<'a>> {
        let most = most.min(all.len());
        match self {
            End::Least => all.drain(..most).collect(),
            End::Most => all.drain(all.len() - most..).rev().collect(),
        }
    }
}

pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    let end = if name.ends_with("MAX") { End::Most } else { End::Least };
    match name {
        "ZPOPMIN" | "ZPOPMAX" => pop(transaction, words, end, room).await,
        "BZPOPMIN" | "BZPOPMAX" => {
            let (keys, timeout) = (&words[1..words.len() - 1], &words[words.len() - 1]);
            waiting::timeout(timeout)?;
            Ok(match pop_first(transaction, keys, end, 1, room).await? {
                Some((key, popped)) => {
                    let popped = popped.into_iter().flat_map(|(member, score)| [member, score]);
                    Reply::Array([bulk(key)].into_iter().chain(popped).collect())
                }
                None => Reply::NilArray,
            })
        }
        "ZMPOP" | "BZMPOP" => {
            let waits = name == "BZMPOP";
            let (keys, end, most) = several(&words[if waits { 2 } else { 1 }..], parse_end)?;
            if waits {
                waiting::timeout(&words[1])?;
            }
            Ok(match pop_first(transaction, keys, end, most, room).await? {
                Some((key, popped)) => {
                    let popped = popped.into_iter().map(|(member, score)| Reply::Array(vec![member, score]));
                    Reply::Array(vec![bulk(key), Reply::Array(popped.collect())])
                }
                None => Reply::NilArray,
            })
        }
        _ => random(transaction, words, room).await,
    }
}

async fn pop(transaction: &mut Transaction, words: &Words, end: End, room: &mut Room) -> Done {
    let most = match &words[2..] {
        [] => None,
        [word] => Some(count(word)?),
        _ => return syntax(),
    };
    let popped = match most {
        // The key's type counts all the same.
        Some(0) => read(transaction, &words[1]).await.map(|_| Vec::new())?,
        _ => {
            let popped = pop_first(transaction, &words[1..2], end, most.unwrap_or(1), room).await?;
            popped.map(|popped| popped.1).unwrap_or_default()
        }
    };
    Ok(match most {
        Some(_) => Reply::Pairs(popped),
        // One member stands with its score in one array, in both versions of the protocol.
        None => Reply::Array(popped.into_iter().flat_map(|(member, score)| [member, score]).collect()),
    })
}

/// Takes members out of the first set that has some.
async fn pop_first<'a>(
    transaction: &mut Transaction,
    keys: &'a [Vec<u8>],
    end: End,
    most: usize,
    room: &mut Room,
) -> Done<Option<(&'a [u8], Vec<(Reply, Reply)>)>> {
    for key in keys {
        let Some(stored) = read(transaction, key).await? else { continue };
        let mut all = scored(Some(&stored))?;
        let popped = end.take(&mut all, most);
        let replies = pairs(transaction, popped.into_iter(), room).await?;
        store(transaction, key, &all).await?;
        return Ok(Some((key, replies)));
    }
    Ok(None)
}

async fn random(transaction: &mut Transaction, words: &Words, room: &mut Room) -> Done {
    let (most, has_scores) = match &words[2..] {
        [] => (None, false),
        [word] => (Some(signed_count(word, i64::MAX)?), false),
        [word, option] => {
            let most = signed_count(word, i64::MAX)?;
            if upper(option) != "WITHSCORES" {
                return syntax();
            }
            if !(-i64::MAX / 2..=i64::MAX / 2).contains(&most) {
                return refuse("value is out of range");
            }
            (Some(most), true)
        }
        [word, ..] => {
            signed_count(word, i64::MAX)?;
            return syntax();
        }
    };
    let stored = read(transaction, &words[1]).await?;
    let all = scored(stored.as_deref())?;
    let Some(most) = most else {
        return Ok(match all.len() {
            0 => Reply::Nil,
            count => bulk(all[transaction.random_below(count)].member),
        });
    };
    let drawn = draw_signed(transaction, most, all.len(), room).await?;
    members(transaction, drawn.into_iter().map(|at| all[at]), has_scores, room).await
}
