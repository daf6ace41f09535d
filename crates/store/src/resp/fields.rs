//! Hashes of the Redis door: all fields and values lie in the value of one key, so together they are no
//! longer than a value may be.

use super::reply::Reply;
use super::{TABLE, Words};
use crate::rows::Kind;
use crate::session::Stop;
use crate::transaction::Transaction;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn parse(mut bytes: &[u8]) -> Option<Fields> {
    let mut fields = Fields::new();
    while !bytes.is_empty() {
        let (lengths, rest) = bytes.split_first_chunk::<4>()?;
        let length = |at: usize| usize::from(u16::from_le_bytes([lengths[at], lengths[at + 1]]));
        let (field, rest) = rest.split_at_checked(length(0))?;
        let (value, rest) = rest.split_at_checked(length(2))?;
        fields.push((field.to_vec(), value.to_vec()));
        bytes = rest;
    }
    Some(fields)
}

/// `None`: longer than a value can be.
fn to_bytes(fields: &Fields) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for (field, value) in fields {
        bytes.extend_from_slice(&u16::try_from(field.len()).ok()?.to_le_bytes());
        bytes.extend_from_slice(&u16::try_from(value.len()).ok()?.to_le_bytes());
        bytes.extend_from_slice(field);
        bytes.extend_from_slice(value);
    }
    (bytes.len() <= crate::rows::VALUE_BYTES_MAX).then_some(bytes)
}

/// Carries out the command on the hash at its key.
pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words) -> Result<Reply, Stop> {
    let key = &words[1];
    let mut fields = match transaction.get(TABLE, key).await? {
        None => Fields::new(),
        Some((Kind::Fields, bytes)) => match parse(&bytes) {
            Some(fields) => fields,
            None => return Ok(Reply::error("ERR the hash is damaged")),
        },
        Some((Kind::Bytes, _)) => return Ok(Reply::error(Reply::WRONG_TYPE)),
    };
    let value_of = |fields: &Fields, field: &[u8]| {
        fields.iter().find(|(name, _)| name == field).map(|(_, value)| value.clone())
    };
    let or_nil = |value: Option<Vec<u8>>| value.map_or(Reply::Nil, Reply::Bulk);
    Ok(match name {
        "HGET" => or_nil(value_of(&fields, &words[2])),
        "HMGET" => Reply::Array(words[2..].iter().map(|field| or_nil(value_of(&fields, field))).collect()),
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
            fields.retain(|(field, _)| !words[2..].contains(field));
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
            let there = there.map_or(Some(0), |value| super::keys::integer(&value));
            let Some(there) = there else { return Ok(Reply::error("ERR hash value is not an integer")) };
            let Some(by) = super::keys::integer(&words[3]) else { return Ok(super::keys::not_an_integer()) };
            let Some(sum) = there.checked_add(by) else {
                return Ok(Reply::error("ERR increment or decrement would overflow"));
            };
            set(&mut fields, &words[2], sum.to_string().as_bytes());
            return store(transaction, key, &fields, Reply::Integer(sum)).await;
        }
        // HSET, HMSET, HSETNX
        _ => {
            if !words.len().is_multiple_of(2) {
                return Ok(Reply::wrong_arity(&name.to_lowercase()));
            }
            let new = words[2..].chunks(2).filter(|pair| set(&mut fields, &pair[0], &pair[1])).count();
            let reply = if name == "HMSET" { Reply::OK } else { Reply::Integer(new as i64) };
            return store(transaction, key, &fields, reply).await;
        }
    })
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

async fn store(
    transaction: &mut Transaction,
    key: &[u8],
    fields: &Fields,
    reply: Reply,
) -> Result<Reply, Stop> {
    let Some(bytes) = to_bytes(fields) else {
        let most = crate::rows::VALUE_BYTES_MAX;
        return Ok(Reply::error(format!("ERR a hash has at most {most} bytes, 4 for each field included")));
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
        let bytes = to_bytes(&fields).expect("short");
        assert_eq!(parse(&bytes), Some(fields));
        assert_eq!(parse(&bytes[..bytes.len() - 1]), None);
        assert_eq!(to_bytes(&vec![(vec![0; 10], vec![0; 4000])]), None);
    }
}
