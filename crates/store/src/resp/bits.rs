//! Commands on parts of strings: their bytes and their bits.

use super::keys::{integer, string};
use super::outcome::{Done, refuse, syntax, whole};
use super::reply::Reply;
use super::{TABLE, Words, upper};
use crate::rows::{Kind, VALUE_BYTES_MAX};
use crate::transaction::Transaction;

/// The part from one place to another, both in it; places below 0 count from the end. `None`: it is empty.
fn part(length: usize, from: i64, to: i64) -> Option<(usize, usize)> {
    if from < 0 && to < 0 && from > to {
        return None;
    }
    let length = length as i64;
    let at = |place: i64| if place < 0 { place.saturating_add(length).max(0) } else { place };
    let (from, to) = (at(from), at(to).min(length - 1));
    (from <= to).then_some((from as usize, to as usize))
}

pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words) -> Done {
    let key = &words[1];
    Ok(match name {
        "GETRANGE" | "SUBSTR" => {
            let (from, to) = (whole(&words[2])?, whole(&words[3])?);
            let value = string(transaction, key).await?.unwrap_or_default();
            Reply::Bulk(
                part(value.len(), from, to).map_or(Vec::new(), |(from, to)| value[from..=to].to_vec()),
            )
        }
        "SETRANGE" => return set_range(transaction, words).await,
        "SETBIT" => return set_bit(transaction, words).await,
        "GETBIT" => {
            let Some(at) = bit_offset(&words[2]) else { return Ok(no_offset()) };
            let value = string(transaction, key).await?.unwrap_or_default();
            Reply::Integer(i64::from(value.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0)))
        }
        "BITCOUNT" => {
            let Some(value) = string(transaction, key).await? else { return Ok(Reply::Integer(0)) };
            let bits = match words.len() {
                2 => Some((0, value.len() * 8)),
                4 | 5 => {
                    let (from, to) = (whole(&words[2])?, whole(&words[3])?);
                    if from < 0 && to < 0 && from > to {
                        return Ok(Reply::Integer(0));
                    }
                    let Some(unit) = unit(words.get(4)) else { return syntax() };
                    part(value.len() * 8 / unit, from, to).map(|(from, to)| (from * unit, (to + 1) * unit))
                }
                _ => return syntax(),
            };
            Reply::Integer(bits.map_or(0, |(from, to)| ones(&value, from, to)))
        }
        _ => return find_bit(transaction, words).await,
    })
}

/// The bits of what a range counts.
fn unit(word: Option<&Vec<u8>>) -> Option<usize> {
    match word.map(|word| upper(word)).as_deref() {
        None | Some("BYTE") => Some(8),
        Some("BIT") => Some(1),
        Some(_) => None,
    }
}

/// How many bits are set, from one on and before another.
fn ones(bytes: &[u8], from: usize, to: usize) -> i64 {
    let (first, last) = (from / 8, to.div_ceil(8));
    let masked = |at: usize| {
        let start = if at == first { 0xFF >> (from % 8) } else { 0xFF };
        let end = if at + 1 == last && !to.is_multiple_of(8) { 0xFF << (8 - to % 8) } else { 0xFF };
        bytes[at] & start & end as u8
    };
    (first..last).map(|at| i64::from(masked(at).count_ones())).sum()
}

async fn find_bit(transaction: &mut Transaction, words: &Words) -> Done {
    let bit = whole(&words[2])?;
    if !(0..=1).contains(&bit) {
        return refuse("The bit argument must be 1 or 0.");
    }
    let Some(value) = string(transaction, &words[1]).await? else {
        return Ok(Reply::Integer(if bit == 1 { -1 } else { 0 }));
    };
    if words.len() > 6 {
        return syntax();
    }
    let from = match words.get(3) {
        Some(word) => whole(word)?,
        None => 0,
    };
    let Some(unit) = unit(words.get(5)) else { return syntax() };
    let to = match words.get(4) {
        Some(word) => whole(word)?,
        None => -1,
    };
    // Unlike other ranges this one is not empty only because its ends are in the wrong order before the first byte.
    let length = (value.len() * 8 / unit) as i64;
    let at = |place: i64| if place < 0 { place.saturating_add(length).max(0) } else { place };
    let (from, to) = (at(from), at(to).min(length - 1));
    if from > to {
        return Ok(Reply::Integer(-1));
    }
    let (first, end) = (from as usize * unit, (to as usize + 1) * unit);
    let is_it = |at: &usize| i64::from(value[at / 8] >> (7 - at % 8) & 1) == bit;
    let found = find_in(&value, first, end, bit == 1).filter(is_it);
    Ok(Reply::Integer(match found {
        Some(at) => at as i64,
        // Behind a string whose end was not given there are zeros without end.
        None if bit == 0 && words.len() < 5 => end as i64,
        None => -1,
    }))
}

/// The first such bit, from one on and before another.
fn find_in(bytes: &[u8], from: usize, to: usize, is_set: bool) -> Option<usize> {
    let none = if is_set { 0 } else { 0xFF };
    let mut at = from;
    while at < to {
        if at.is_multiple_of(8) && bytes[at / 8] == none {
            at += 8;
        } else if (bytes[at / 8] >> (7 - at % 8) & 1 == 1) == is_set {
            return Some(at);
        } else {
            at += 1;
        }
    }
    None
}

fn no_offset() -> Reply {
    Reply::error("ERR bit offset is not an integer or out of range")
}

fn bit_offset(word: &[u8]) -> Option<usize> {
    let at = usize::try_from(integer(word)?).ok()?;
    (at / 8 < VALUE_BYTES_MAX).then_some(at)
}

async fn set_bit(transaction: &mut Transaction, words: &Words) -> Done {
    let Some(at) = bit_offset(&words[2]) else { return Ok(no_offset()) };
    let bit = match integer(&words[3]) {
        Some(bit @ 0..=1) => bit == 1,
        _ => return refuse("bit is not an integer or out of range"),
    };
    let mut value = string(transaction, &words[1]).await?.unwrap_or_default();
    if value.len() <= at / 8 {
        value.resize(at / 8 + 1, 0);
    }
    let mask = 0x80 >> (at % 8);
    let old = value[at / 8] & mask != 0;
    value[at / 8] = if bit { value[at / 8] | mask } else { value[at / 8] & !mask };
    transaction.put(TABLE, &words[1], Kind::Bytes, &value).await?;
    Ok(Reply::Integer(i64::from(old)))
}

async fn set_range(transaction: &mut Transaction, words: &Words) -> Done {
    let at = whole(&words[2])?;
    if at < 0 {
        return refuse("offset is out of range");
    }
    let new = &words[3];
    let mut value = string(transaction, &words[1]).await?.unwrap_or_default();
    if new.is_empty() {
        return Ok(Reply::Integer(value.len() as i64));
    }
    let end = usize::try_from(at).unwrap_or(usize::MAX).saturating_add(new.len());
    if end > VALUE_BYTES_MAX {
        return refuse("string exceeds maximum allowed size (proto-max-bulk-len)");
    }
    if value.len() < end {
        value.resize(end, 0);
    }
    value[end - new.len()..end].copy_from_slice(new);
    transaction.put(TABLE, &words[1], Kind::Bytes, &value).await?;
    Ok(Reply::Integer(value.len() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_and_found_as_one_by_one() {
        let bytes = [0b1010_0110, 0xFF, 0, 0b0000_0001];
        let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1 == 1;
        for from in 0..32 {
            for to in from..=32 {
                assert_eq!(
                    ones(&bytes, from, to),
                    (from..to).filter(|&at| bit(at)).count() as i64,
                    "{from} {to}"
                );
                for is_set in [false, true] {
                    let expected = (from..to).find(|&at| bit(at) == is_set);
                    assert_eq!(find_in(&bytes, from, to, is_set), expected, "{from} {to} {is_set}");
                }
            }
        }
    }

    #[test]
    fn a_part_is_between_its_ends() {
        for (from, to, expected) in [
            (0, -1, Some((0, 4))),
            (1, 2, Some((1, 2))),
            (-2, -1, Some((3, 4))),
            (-1, -2, None),
            (3, 2, None),
            (5, 9, None),
            (-9, 0, Some((0, 0))),
            (i64::MIN, i64::MAX, Some((0, 4))),
        ] {
            assert_eq!(part(5, from, to), expected, "{from} {to}");
        }
        assert_eq!(part(0, 0, -1), None);
    }
}
