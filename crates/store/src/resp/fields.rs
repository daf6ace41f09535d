//! Hashes of the Redis door: all fields and values lie in the value of one key, so together they are no
//! longer than a value may be.

use super::decimal::Number;
use super::keys::{integer, not_a_float, not_an_integer, or_nil, sum, sum_of_floats, take};
use super::outcome::{Done, refuse};
use super::reply::Reply;
use super::{TABLE, Words, glob, scans, upper};
use crate::door::Room;
use crate::rows::Kind;
use crate::session::Stop;
use crate::transaction::Transaction;
use std::collections::{HashMap, HashSet};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn parse(mut bytes: &[u8]) -> Option<Fields> {
    let mut fields = Fields::new();
    while !bytes.is_empty() {
        let field_bytes = take_length(&mut bytes)?;
        let value_bytes = take_length(&mut bytes)?;
        let (field, rest) = bytes.split_at_checked(field_bytes)?;
        let (value, rest) = rest.split_at_checked(value_bytes)?;
        fields.push((field.to_vec(), value.to_vec()));
        bytes = rest;
    }
    Some(fields)
}

/// Lengths have two bytes, or, behind this mark, four more.
const IS_LONGER: u16 = u16::MAX;

pub(super) fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    let (length, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    match u16::from_le_bytes(*length) {
        IS_LONGER => {
            let (length, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            usize::try_from(u32::from_le_bytes(*length)).ok()
        }
        length => Some(usize::from(length)),
    }
}

pub(super) fn put_length(length: usize, to: &mut Vec<u8>) {
    match u16::try_from(length) {
        Ok(short) if short != IS_LONGER => to.extend_from_slice(&short.to_le_bytes()),
        _ => {
            to.extend_from_slice(&IS_LONGER.to_le_bytes());
            to.extend_from_slice(&(length as u32).to_le_bytes());
        }
    }
}

/// `None`: longer than a value can be.
fn to_bytes(fields: &Fields) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for (field, value) in fields {
        put_length(field.len(), &mut bytes);
        put_length(value.len(), &mut bytes);
        bytes.extend_from_slice(field);
        bytes.extend_from_slice(value);
    }
    (bytes.len() <= crate::rows::VALUE_BYTES_MAX).then_some(bytes)
}

/// Carries out the command on the hash at its key.
pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    let key = &words[1];
    // What is wrong with the command comes before what is wrong with the key.
    match name {
        "HSET" | "HMSET" if !words.len().is_multiple_of(2) => {
            return Ok(Reply::wrong_arity(&name.to_lowercase()));
        }
        "HINCRBY" if integer(&words[3]).is_none() => return Ok(not_an_integer()),
        "HINCRBYFLOAT" => match Number::parse(&words[3]) {
            None => return Ok(not_a_float()),
            Some(Number::Infinite) => return refuse("value is NaN or Infinity"),
            Some(Number::Finite(_)) => {}
        },
        "HSCAN" => {
            scans::cursor_number(&words[2])?;
        }
        "HRANDFIELD" if words.len() > 2 => {
            parse_random(words)?;
        }
        _ => {}
    }
    let mut fields = match transaction.get(TABLE, key).await? {
        None => Fields::new(),
        Some((Kind::Fields, bytes)) => match parse(&bytes) {
            Some(fields) => fields,
            None => return refuse("the hash is damaged"),
        },
        Some(_) => return Ok(Reply::error(Reply::WRONG_TYPE)),
    };
    let value_of = |fields: &Fields, field: &[u8]| {
        fields.iter().find(|(name, _)| name == field).map(|(_, value)| value.clone())
    };
    Ok(match name {
        "HGET" => or_nil(value_of(&fields, &words[2])),
        "HMGET" => {
            let places = places(&fields);
            let mut replies = Vec::new();
            for field in &words[2..] {
                let value = places.get(&field[..]).map(|&place| fields[place].1.clone());
                let reply = or_nil(value);
                take(room, &reply)?;
                transaction.breathe(reply.held()).await;
                replies.push(reply);
            }
            Reply::Array(replies)
        }
        "HEXISTS" => Reply::Integer(i64::from(value_of(&fields, &words[2]).is_some())),
        "HLEN" => Reply::Integer(fields.len() as i64),
        "HSTRLEN" => Reply::Integer(value_of(&fields, &words[2]).map_or(0, |value| value.len() as i64)),
        "HKEYS" => Reply::Array(fields.into_iter().map(|(field, _)| Reply::Bulk(field)).collect()),
        "HVALS" => Reply::Array(fields.into_iter().map(|(_, value)| Reply::Bulk(value)).collect()),
        "HGETALL" => Reply::Map(
            fields.into_iter().map(|(field, value)| (Reply::Bulk(field), Reply::Bulk(value))).collect(),
        ),
        "HDEL" => {
            let before = fields.len();
            let unwanted: HashSet<&[u8]> = words[2..].iter().map(|field| &field[..]).collect();
            fields.retain(|(field, _)| !unwanted.contains(&field[..]));
            let gone = before - fields.len();
            match (gone, fields.is_empty()) {
                (0, _) => {}
                (_, true) => drop(transaction.delete(TABLE, key).await?),
                (_, false) => return store(transaction, key, &fields, Reply::Integer(gone as i64)).await,
            }
            Reply::Integer(gone as i64)
        }
        "HSETNX" if value_of(&fields, &words[2]).is_some() => Reply::Integer(0),
        "HINCRBY" => {
            let there = value_of(&fields, &words[2]);
            let there = there.map_or(Some(0), |value| integer(&value));
            let Some(there) = there else { return refuse("hash value is not an integer") };
            let Some(by) = integer(&words[3]) else { return Ok(not_an_integer()) };
            let sum = sum(there, by)?;
            set(&mut fields, &words[2], sum.to_string().as_bytes());
            return store(transaction, key, &fields, Reply::Integer(sum)).await;
        }
        "HINCRBYFLOAT" => {
            let there = value_of(&fields, &words[2]);
            let Some(there) = Number::parse(there.as_deref().unwrap_or(b"0")) else {
                return refuse("hash value is not a float");
            };
            let sum = sum_of_floats(there, &words[3])?;
            set(&mut fields, &words[2], sum.as_bytes());
            return store(transaction, key, &fields, Reply::bulk(sum)).await;
        }
        "HSCAN" => return scan(transaction, fields, words, room).await,
        "HRANDFIELD" => return random(transaction, fields, words, room).await,
        // HSET, HMSET, HSETNX
        _ => {
            let new = set_all(&mut fields, &words[2..]);
            let reply = if name == "HMSET" { Reply::OK } else { Reply::Integer(new as i64) };
            return store(transaction, key, &fields, reply).await;
        }
    })
}

/// All fields with one step: they are one value.
async fn scan(transaction: &Transaction, fields: Fields, words: &Words, room: &mut Room) -> Done {
    let pattern = match scans::parse_options(&words[3..], false) {
        _ if fields.is_empty() => None,
        Ok((pattern, ..)) => pattern,
        Err(reply) => return Ok(reply),
    };
    let mut found = Vec::new();
    for (field, value) in fields {
        transaction.breathe(pattern.map_or(0, <[u8]>::len) * field.len()).await;
        if pattern.is_none_or(|pattern| glob::matches(pattern, &field)) {
            for reply in [Reply::Bulk(field), Reply::Bulk(value)] {
                take(room, &reply)?;
                found.push(reply);
            }
        }
    }
    Ok(Reply::Array(vec![Reply::bulk("0"), Reply::Array(found)]))
}

/// How many random fields are wanted, below 0 with repetitions, and whether with their values.
fn parse_random(words: &Words) -> Result<(i64, bool), Reply> {
    let count = integer(&words[2]).ok_or_else(not_an_integer)?;
    if count == i64::MIN {
        return Err(Reply::error(format!(
            "ERR value is out of range, value must between {} and {}",
            -i64::MAX,
            i64::MAX
        )));
    }
    match &words[3..] {
        [] => Ok((count, false)),
        [with] if upper(with) == "WITHVALUES" && count.unsigned_abs() > i64::MAX as u64 / 2 => {
            Err(Reply::error("ERR value is out of range"))
        }
        [with] if upper(with) == "WITHVALUES" => Ok((count, true)),
        _ => Err(Reply::error("ERR syntax error")),
    }
}

async fn random(transaction: &Transaction, mut fields: Fields, words: &Words, room: &mut Room) -> Done {
    let below = |count| transaction.random_below(count);
    if words.len() == 2 {
        let at = fields.len().checked_sub(1).map(|last| below(last + 1));
        return Ok(at.map_or(Reply::Nil, |at| Reply::Bulk(fields.swap_remove(at).0)));
    }
    let (count, with_values) = parse_random(words)?;
    let mut chosen = Vec::new();
    let mut choose = |(field, value): (Vec<u8>, Vec<u8>)| -> Result<(), Stop> {
        let pair = (Reply::Bulk(field), if with_values { Reply::Bulk(value) } else { Reply::Nil });
        take(room, &pair.0)?;
        take(room, &pair.1)?;
        chosen.push(pair);
        Ok(())
    };
    if count >= 0 {
        for _ in 0..(count as usize).min(fields.len()) {
            let at = below(fields.len());
            choose(fields.swap_remove(at))?;
        }
    } else if !fields.is_empty() {
        for _ in 0..count.unsigned_abs() {
            let (field, value) = &fields[below(fields.len())];
            transaction.breathe(field.len() + value.len() + size_of::<Reply>()).await;
            choose((field.clone(), value.clone()))?;
        }
    }
    Ok(match with_values {
        true => Reply::Pairs(chosen),
        false => Reply::Array(chosen.into_iter().map(|(field, _)| field).collect()),
    })
}

/// How Redis would keep such a hash.
pub(super) fn encoding(value: &[u8]) -> &'static str {
    let is_short = |fields: Fields| {
        fields.len() <= 128 && fields.iter().all(|(field, value)| field.len() <= 64 && value.len() <= 64)
    };
    if parse(value).is_some_and(is_short) { "listpack" } else { "hashtable" }
}

/// Where each field is: a command with many fields must not search a long hash for each.
fn places(fields: &Fields) -> HashMap<&[u8], usize> {
    fields.iter().enumerate().map(|(place, (field, _))| (&field[..], place)).collect()
}

/// Sets fields, which stand before their values; returns how many are new.
fn set_all(fields: &mut Fields, pairs: &[Vec<u8>]) -> usize {
    let mut places: HashMap<Vec<u8>, usize> =
        fields.iter().enumerate().map(|(place, (field, _))| (field.clone(), place)).collect();
    let before = fields.len();
    for pair in pairs.chunks_exact(2) {
        match places.get(&pair[0]) {
            Some(&place) => fields[place].1.clone_from(&pair[1]),
            None => {
                places.insert(pair[0].clone(), fields.len());
                fields.push((pair[0].clone(), pair[1].clone()));
            }
        }
    }
    fields.len() - before
}

/// Sets a field; returns whether it is new.
fn set(fields: &mut Fields, field: &[u8], value: &[u8]) -> bool {
    match fields.iter_mut().find(|(name, _)| name == field) {
        Some((_, old)) => {
            *old = value.to_vec();
            false
        }
        None => {
            fields.push((field.to_vec(), value.to_vec()));
            true
        }
    }
}

async fn store(transaction: &mut Transaction, key: &[u8], fields: &Fields, reply: Reply) -> Done {
    let Some(bytes) = to_bytes(fields) else {
        let most = crate::rows::VALUE_BYTES_MAX;
        return refuse(format!(
            "a hash has at most {most} bytes, the lengths of its fields and values included"
        ));
    };
    transaction.put(TABLE, key, Kind::Fields, &bytes).await?;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_and_damage_is_noticed() {
        let mut fields = Fields::new();
        assert!(set(&mut fields, b"a", b"1"));
        assert!(set(&mut fields, b"", b""));
        assert!(!set(&mut fields, b"a", b"22"));
        let pairs = ["a", "22", "b", "3", "b", "4"].map(|word| word.as_bytes().to_vec());
        assert_eq!(set_all(&mut fields, &pairs), 1);
        assert_eq!(fields[2], (b"b".to_vec(), b"4".to_vec()));
        assert_eq!(places(&fields)[&b"b"[..]], 2);
        let bytes = to_bytes(&fields).expect("short");
        assert_eq!(parse(&bytes), Some(fields));
        assert_eq!(parse(&bytes[..bytes.len() - 1]), None);
        for length in [65_534, 65_535, 65_536, 500_000] {
            let fields = vec![(vec![1; 10], vec![2; length]), (vec![3; length], vec![4; 10])];
            let bytes = to_bytes(&fields).expect("short enough");
            assert_eq!(parse(&bytes), Some(fields));
            assert_eq!(parse(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(to_bytes(&vec![(vec![0; 10], vec![0; crate::rows::VALUE_BYTES_MAX])]), None);
        // Hashes of earlier versions of the program are read.
        assert_eq!(parse(b"\x01\0\x02\0fvv"), Some(vec![(b"f".to_vec(), b"vv".to_vec())]));
    }
}
