//! Unions, intersections and differences of sorted sets, and of sets, whose members all have the score 1.

use super::{Scored, members, scored, store_anew};
use crate::door::Room;
use crate::resp::collections::add_together;
use crate::resp::outcome::{Done, Halt, at_least, refuse, syntax, whole};
use crate::resp::reply::Reply;
use crate::resp::{TABLE, Words, scores, sets, upper};
use crate::rows::Kind;
use crate::transaction::Transaction;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// How the scores of one member become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Least,
    Most,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => or_zero(one + other),
            Aggregate::Least if other < one => other,
            Aggregate::Most if other > one => other,
            _ => one,
        }
    }
}

/// Infinities that cancel each other leave zero, as in Redis.
fn or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    has_scores: bool,
    /// 0: no limit.
    limit: usize,
}

impl Options {
    fn parse(name: &str, operation: Operation, keys: usize, mut words: &[Vec<u8>]) -> Done<Options> {
        let (is_card, is_stored) = (name == "ZINTERCARD", name.ends_with("STORE"));
        let has_weights = operation != Operation::Difference && !is_card;
        let mut options =
            Options { weights: vec![1.0; keys], aggregate: Aggregate::Sum, has_scores: false, limit: 0 };
        while let [option, rest @ ..] = words {
            words = match (&*upper(option), rest) {
                ("WEIGHTS", rest) if has_weights && rest.len() >= keys => {
                    for (weight, word) in options.weights.iter_mut().zip(rest) {
                        *weight = scores::parse_or(word, "weight value is not a float")?;
                    }
                    &rest[keys..]
                }
                ("AGGREGATE", [how, rest @ ..]) if has_weights => {
                    options.aggregate = match &*upper(how) {
                        "SUM" => Aggregate::Sum,
                        "MIN" => Aggregate::Least,
                        "MAX" => Aggregate::Most,
                        _ => return syntax(),
                    };
                    rest
                }
                ("WITHSCORES", rest) if !is_stored && !is_card => {
                    options.has_scores = true;
                    rest
                }
                ("LIMIT", [most, rest @ ..]) if is_card => {
                    options.limit = at_least(0, most, "LIMIT can't be negative")?;
                    rest
                }
                _ => return syntax(),
            };
        }
        Ok(options)
    }
}

pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    let operation = match name {
        "ZUNION" | "ZUNIONSTORE" => Operation::Union,
        "ZDIFF" | "ZDIFFSTORE" => Operation::Difference,
        _ => Operation::Intersection,
    };
    let is_stored = name.ends_with("STORE");
    let behind = if is_stored { &words[2..] } else { &words[1..] };
    let numkeys = whole(&behind[0])?;
    if numkeys < 1 {
        return refuse(format!("at least 1 input key is needed for '{}' command", name.to_lowercase()));
    }
    let numkeys = usize::try_from(numkeys).unwrap_or(usize::MAX);
    let Some((keys, rest)) = behind[1..].split_at_checked(numkeys) else { return syntax() };
    let values = read_all(transaction, keys).await?;
    let options = Options::parse(name, operation, keys.len(), rest)?;
    let mut inputs = Vec::with_capacity(keys.len());
    for (value, weight) in values.iter().zip(options.weights) {
        inputs.push((of(value)?, weight));
    }
    if operation != Operation::Difference {
        // The shortest first, as in Redis: sums of scores are rounded in this order.
        inputs.sort_by_key(|input| input.0.len());
    }
    let found = combine(transaction, operation, &inputs, options.aggregate).await?;
    if name == "ZINTERCARD" {
        let most = if options.limit == 0 { usize::MAX } else { options.limit };
        return Ok(Reply::Integer(found.len().min(most) as i64));
    }
    if is_stored {
        store_anew(transaction, &words[1], &found).await?;
        return Ok(Reply::Integer(found.len() as i64));
    }
    members(transaction, found.into_iter(), options.has_scores, room).await
}

async fn read_all(transaction: &mut Transaction, keys: &[Vec<u8>]) -> Done<Vec<Option<(Kind, Vec<u8>)>>> {
    transaction.prefetch_values(keys.iter().map(|key| (TABLE, &key[..]))).await?;
    let (mut all, mut bytes) = (Vec::with_capacity(keys.len()), 0);
    for key in keys {
        let found = transaction.get(TABLE, key).await?;
        if !matches!(found, None | Some((Kind::Set | Kind::Sorted, _))) {
            return Err(Halt::Reply(Reply::error(Reply::WRONG_TYPE)));
        }
        add_together(&mut bytes, found.as_ref().map_or(0, |found| found.1.len()))?;
        transaction.breathe(found.as_ref().map_or(0, |found| found.1.len())).await;
        all.push(found);
    }
    Ok(all)
}

fn of(value: &Option<(Kind, Vec<u8>)>) -> Done<Vec<Scored<'_>>> {
    match value {
        Some((Kind::Set, bytes)) => {
            let members = sets::members(Some(bytes))?.into_iter();
            Ok(members.map(|member| Scored { score: 1.0, member }).collect())
        }
        Some((_, bytes)) => scored(Some(bytes)),
        None => Ok(Vec::new()),
    }
}

/// The members of the result, in their order. Each input has a weight.
async fn combine<'a>(
    transaction: &Transaction,
    operation: Operation,
    inputs: &[(Vec<Scored<'a>>, f64)],
    aggregate: Aggregate,
) -> Done<Vec<Scored<'a>>> {
    let mut scores: HashMap<&'a [u8], f64> = HashMap::new();
    for (at, (input, weight)) in inputs.iter().enumerate() {
        let mut common = HashMap::new();
        for one in input {
            let score = or_zero(one.score * weight);
            match (operation, scores.get(one.member).copied()) {
                (Operation::Difference, _) if at > 0 => drop(scores.remove(one.member)),
                (Operation::Difference, _) => drop(scores.insert(one.member, one.score)),
                (Operation::Intersection, _) if at == 0 => drop(common.insert(one.member, score)),
                (Operation::Intersection, Some(there)) => {
                    common.insert(one.member, aggregate.of(there, score));
                }
                (Operation::Intersection, None) => {}
                (Operation::Union, Some(there)) => {
                    scores.insert(one.member, aggregate.of(there, score));
                }
                (Operation::Union, None) => drop(scores.insert(one.member, score)),
            }
            transaction.breathe(sets::PER_MEMBER).await;
        }
        if operation == Operation::Intersection {
            scores = common;
        }
    }
    let mut found: Vec<Scored<'a>> =
        scores.into_iter().map(|(member, score)| Scored { score, member }).collect();
    found.sort_unstable_by(Scored::order);
    Ok(found)
}
