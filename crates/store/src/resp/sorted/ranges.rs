//! Ranges of sorted sets by rank, by score and by the bytes of members.

use super::{Scored, members, read, scored, store, store_anew};
use crate::door::Room;
use crate::resp::collections::span;
use crate::resp::outcome::{Done, refuse, syntax, whole};
use crate::resp::reply::Reply;
use crate::resp::scores::ScoreRange;
use crate::resp::{Words, upper};
use crate::transaction::Transaction;
use std::cmp::Ordering;
use std::ops::Range;

/// An end of a range of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lex<'a> {
    Lowest,
    Highest,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

impl<'a> Lex<'a> {
    fn parse(word: &'a [u8]) -> Option<Lex<'a>> {
        match word {
            b"-" => Some(Lex::Lowest),
            b"+" => Some(Lex::Highest),
            [b'[', rest @ ..] => Some(Lex::Included(rest)),
            [b'(', rest @ ..] => Some(Lex::Excluded(rest)),
            _ => None,
        }
    }

    /// Where a member lies, and whether the end itself counts.
    fn order(self, member: &[u8]) -> (Ordering, bool) {
        match self {
            Lex::Lowest => (Ordering::Greater, false),
            Lex::Highest => (Ordering::Less, false),
            Lex::Included(end) => (member.cmp(end), true),
            Lex::Excluded(end) => (member.cmp(end), false),
        }
    }

    fn is_not_above(self, member: &[u8]) -> bool {
        let (order, is_included) = self.order(member);
        order == Ordering::Greater || is_included && order == Ordering::Equal
    }

    fn is_not_below(self, member: &[u8]) -> bool {
        let (order, is_included) = self.order(member);
        order == Ordering::Less || is_included && order == Ordering::Equal
    }

    /// Whether no member can lie between two ends.
    fn is_nothing_between(self, most: Lex<'_>) -> bool {
        let bytes = |end: Lex<'a>| match end {
            Lex::Included(bytes) | Lex::Excluded(bytes) => bytes,
            Lex::Lowest | Lex::Highest => &[],
        };
        match (self, most) {
            (Lex::Lowest, Lex::Lowest) | (Lex::Highest, _) | (_, Lex::Lowest) => true,
            (Lex::Lowest, _) | (_, Lex::Highest) => false,
            (Lex::Included(least), Lex::Included(most)) => least > most,
            (least, Lex::Included(most) | Lex::Excluded(most)) => bytes(least) >= most,
        }
    }
}

/// Which members are meant.
#[derive(Clone, Copy, Debug)]
enum Wanted<'a> {
    Ranks(i64, i64),
    Scores(ScoreRange),
    Members(Lex<'a>, Lex<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

impl<'a> Wanted<'a> {
    fn parse(by: By, least: &'a [u8], most: &'a [u8]) -> Done<Wanted<'a>> {
        Ok(match by {
            By::Rank => Wanted::Ranks(whole(least)?, whole(most)?),
            By::Score => Wanted::Scores(ScoreRange::parse(least, most)?),
            By::Member => match (Lex::parse(least), Lex::parse(most)) {
                (Some(least), Some(most)) => Wanted::Members(least, most),
                _ => return refuse("min or max not valid string range item"),
            },
        })
    }

    /// Where they lie. Ranks count from the other end if the order is reversed.
    fn range(self, all: &[Scored<'_>], is_reversed: bool) -> Range<usize> {
        match self {
            Wanted::Ranks(start, stop) => {
                let found = span(start, stop, all.len());
                if is_reversed && !found.is_empty() {
                    all.len() - found.end..all.len() - found.start
                } else {
                    found
                }
            }
            Wanted::Scores(range) => {
                let start = all.partition_point(|one| range.is_below(one.score));
                let end = all.partition_point(|one| !range.is_above(one.score));
                start..end.max(start)
            }
            Wanted::Members(least, most) => {
                // This is meant for members of one score, and Redis looks at both ends first.
                let can_be = !least.is_nothing_between(most)
                    && all.last().is_some_and(|last| least.is_not_above(last.member))
                    && all.first().is_some_and(|first| most.is_not_below(first.member));
                if !can_be {
                    return 0..0;
                }
                if is_reversed {
                    let end =
                        all.iter().rposition(|one| most.is_not_below(one.member)).map_or(0, |at| at + 1);
                    let length =
                        all[..end].iter().rev().take_while(|one| least.is_not_above(one.member)).count();
                    return end - length..end;
                }
                let start = all.iter().position(|one| least.is_not_above(one.member)).unwrap_or(all.len());
                let length = all[start..].iter().take_while(|one| most.is_not_below(one.member)).count();
                start..start + length
            }
        }
    }
}

/// Carries out a command on a range.
pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    let by = match name {
        "ZCOUNT" | "ZREMRANGEBYSCORE" => By::Score,
        "ZLEXCOUNT" | "ZREMRANGEBYLEX" => By::Member,
        "ZREMRANGEBYRANK" => By::Rank,
        _ => return range(transaction, name, words, room).await,
    };
    let wanted = Wanted::parse(by, &words[2], &words[3])?;
    let stored = read(transaction, &words[1]).await?;
    let mut all = scored(stored.as_deref())?;
    let found = wanted.range(&all, false);
    let count = found.len() as i64;
    if name.starts_with("ZREM") && !found.is_empty() {
        all.drain(found);
        store(transaction, &words[1], &all).await?;
    }
    Ok(Reply::Integer(count))
}

/// What a command of the family of `ZRANGE` asks for.
struct Asked<'a> {
    wanted: Wanted<'a>,
    is_reversed: bool,
    has_scores: bool,
    /// How many are skipped, and how many are taken; negative: all of them.
    limit: (i64, i64),
}

impl<'a> Asked<'a> {
    /// `words` begin with the ends of the range.
    fn parse(name: &str, words: &'a [Vec<u8>]) -> Done<Asked<'a>> {
        let is_general = matches!(name, "ZRANGE" | "ZRANGESTORE");
        let mut by = match name {
            "ZRANGEBYSCORE" | "ZREVRANGEBYSCORE" => Some(By::Score),
            "ZRANGEBYLEX" | "ZREVRANGEBYLEX" => Some(By::Member),
            "ZREVRANGE" => Some(By::Rank),
            _ => None,
        };
        let mut is_reversed = name.starts_with("ZREV");
        let (mut has_scores, mut limit) = (false, (0, -1));
        let mut options = &words[2..];
        while let [option, rest @ ..] = options {
            options = rest;
            match (&*upper(option), rest) {
                ("WITHSCORES", _) if name != "ZRANGESTORE" => has_scores = true,
                ("LIMIT", [skip, most, rest @ ..]) => {
                    limit = (whole(skip)?, whole(most)?);
                    options = rest;
                }
                ("REV", _) if is_general && !is_reversed => is_reversed = true,
                ("BYLEX", _) if is_general && by.is_none() => by = Some(By::Member),
                ("BYSCORE", _) if is_general && by.is_none() => by = Some(By::Score),
                _ => return syntax(),
            }
        }
        let by = by.unwrap_or(By::Rank);
        if limit.1 != -1 && by == By::Rank {
            return refuse(
                "syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            );
        }
        if has_scores && by == By::Member {
            return refuse("syntax error, WITHSCORES not supported in combination with BYLEX");
        }
        let (least, most) = match is_reversed && by != By::Rank {
            true => (&words[1], &words[0]),
            false => (&words[0], &words[1]),
        };
        Ok(Asked { wanted: Wanted::parse(by, least, most)?, is_reversed, has_scores, limit })
    }

    /// The members, in the order in which they are asked for.
    fn find<'b>(&self, all: &[Scored<'b>]) -> Vec<Scored<'b>> {
        let mut found = all[self.wanted.range(all, self.is_reversed)].to_vec();
        if self.is_reversed {
            found.reverse();
        }
        if matches!(self.wanted, Wanted::Ranks(..)) {
            return found;
        }
        let (skip, most) = self.limit;
        // A negative number of members is never skipped to the end.
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        found.into_iter().skip(skip).take(most).collect()
    }
}

async fn range(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    let is_stored = name == "ZRANGESTORE";
    let (source, rest) = if is_stored { (&words[2], &words[3..]) } else { (&words[1], &words[2..]) };
    let asked = Asked::parse(name, rest)?;
    let stored = read(transaction, source).await?;
    let all = scored(stored.as_deref())?;
    let mut found = asked.find(&all);
    if is_stored {
        found.sort_unstable_by(Scored::order);
        store_anew(transaction, &words[1], &found).await?;
        return Ok(Reply::Integer(found.len() as i64));
    }
    members(transaction, found.into_iter(), asked.has_scores, room).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_a_range_of_members_begins_with_a_bracket_or_is_infinite() {
        let check = |word: &str, expected: Option<Lex<'_>>| assert_eq!(Lex::parse(word.as_bytes()), expected);
        check("[", Some(Lex::Included(b"")));
        check("(a", Some(Lex::Excluded(b"a")));
        check("-", Some(Lex::Lowest));
        check("+", Some(Lex::Highest));
        ["", "a", "-a", "+a", "5"].iter().for_each(|word| check(word, None));
    }

    #[test]
    fn ranges_of_members_take_their_ends_or_not() {
        let all: Vec<Scored<'_>> = ["", "a", "b", "c"]
            .iter()
            .map(|member| Scored { score: 0.0, member: member.as_bytes() })
            .collect();
        let check = |least: &str, most: &str, expected: Range<usize>| {
            let wanted = Wanted::parse(By::Member, least.as_bytes(), most.as_bytes()).expect("a range");
            for is_reversed in [false, true] {
                let found = wanted.range(&all, is_reversed);
                assert_eq!(all[found], all[expected.clone()], "{least} {most} {is_reversed}");
            }
        };
        check("-", "+", 0..4);
        check("[a", "(c", 1..3);
        check("(a", "[c", 2..4);
        check("(a", "(a", 0..0);
        check("[a", "[a", 1..2);
        check("+", "-", 0..0);
        check("[", "(a", 0..1);
        check("[d", "+", 0..0);
    }
}
