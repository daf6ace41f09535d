//! What nodes say to each other about commands that one carries to the other: the commands, and what became of them.

use super::super::Words;
use super::super::reply::Reply;

/// Replies within replies. None of a command on one key has more levels.
const LEVELS_MAX: u8 = 8;

/// What became of commands that were carried to this node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Carried {
    /// Nothing was done.
    NotTaken,
    /// The reply to each, in their order. A reply may say that an outcome is not known.
    Done(Vec<Reply>),
}

pub(super) fn commands_to_bytes(commands: &[&Words]) -> Option<Vec<u8>> {
    postcard::to_allocvec(commands).ok()
}

/// `None`: these bytes are no commands.
pub(super) fn commands(bytes: &[u8]) -> Option<Vec<Words>> {
    match postcard::take_from_bytes(bytes) {
        Ok((commands, [])) => Some(commands),
        _ => None,
    }
}

impl Carried {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Carried::Done(replies) = self else { return vec![0] };
        let mut out = vec![1];
        put_all(replies, &mut out);
        out
    }

    /// `None`: these bytes are no answer.
    pub(super) fn parse(bytes: &[u8]) -> Option<Carried> {
        match bytes.split_first()? {
            (0, []) => Some(Carried::NotTaken),
            (1, mut rest) => {
                let replies = take_all(&mut rest, LEVELS_MAX)?;
                rest.is_empty().then_some(Carried::Done(replies))
            }
            _ => None,
        }
    }
}

fn put_all(replies: &[Reply], out: &mut Vec<u8>) {
    out.extend((replies.len() as u32).to_be_bytes());
    replies.iter().for_each(|reply| put(reply, out));
}

fn put_pairs(pairs: &[(Reply, Reply)], out: &mut Vec<u8>) {
    out.extend((pairs.len() as u32).to_be_bytes());
    for (first, second) in pairs {
        put(first, out);
        put(second, out);
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

fn put(reply: &Reply, out: &mut Vec<u8>) {
    let kind = out.len();
    out.push(0);
    out[kind] = match reply {
        Reply::Ok => b'+',
        Reply::Nil => b'_',
        Reply::NilArray => b'0',
        Reply::Simple(text) => {
            put_bytes(text.as_bytes(), out);
            b's'
        }
        Reply::Error(text) => {
            put_bytes(text, out);
            b'-'
        }
        Reply::Bulk(bytes) => {
            put_bytes(bytes, out);
            b'$'
        }
        Reply::Raw(bytes) => {
            put_bytes(bytes, out);
            b'r'
        }
        Reply::Integer(number) => {
            out.extend(number.to_be_bytes());
            b':'
        }
        Reply::Double(number) => {
            out.extend(number.to_be_bytes());
            b','
        }
        Reply::Array(replies) => {
            put_all(replies, out);
            b'*'
        }
        Reply::Set(replies) => {
            put_all(replies, out);
            b'~'
        }
        Reply::Push(replies) => {
            put_all(replies, out);
            b'>'
        }
        Reply::Several(replies) => {
            put_all(replies, out);
            b'+' + b'*'
        }
        Reply::Map(pairs) => {
            put_pairs(pairs, out);
            b'%'
        }
        Reply::Pairs(pairs) => {
            put_pairs(pairs, out);
            b'2'
        }
    };
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

fn take_bytes(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(*take(bytes)?) as usize;
    let (first, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(first.to_vec())
}

fn take_all(bytes: &mut &[u8], levels: u8) -> Option<Vec<Reply>> {
    let count = u32::from_be_bytes(*take(bytes)?);
    // Each takes at least a byte, so no number makes this node hold more than has come.
    (count as usize <= bytes.len()).then_some(())?;
    (0..count).map(|_| take_reply(bytes, levels.checked_sub(1)?)).collect()
}

fn take_pairs(bytes: &mut &[u8], levels: u8) -> Option<Vec<(Reply, Reply)>> {
    let count = u32::from_be_bytes(*take(bytes)?);
    (count as usize <= bytes.len()).then_some(())?;
    let levels = levels.checked_sub(1)?;
    (0..count).map(|_| Some((take_reply(bytes, levels)?, take_reply(bytes, levels)?))).collect()
}

fn take_reply(bytes: &mut &[u8], levels: u8) -> Option<Reply> {
    const SEVERAL: u8 = b'+' + b'*';
    Some(match take::<1>(bytes)?[0] {
        b'+' => Reply::Ok,
        b'_' => Reply::Nil,
        b'0' => Reply::NilArray,
        b's' => Reply::Simple(String::from_utf8(take_bytes(bytes)?).ok()?),
        b'-' => Reply::Error(take_bytes(bytes)?),
        b'$' => Reply::Bulk(take_bytes(bytes)?),
        b'r' => Reply::Raw(take_bytes(bytes)?),
        b':' => Reply::Integer(i64::from_be_bytes(*take(bytes)?)),
        b',' => Reply::Double(f64::from_be_bytes(*take(bytes)?)),
        b'*' => Reply::Array(take_all(bytes, levels)?),
        b'~' => Reply::Set(take_all(bytes, levels)?),
        b'>' => Reply::Push(take_all(bytes, levels)?),
        SEVERAL => Reply::Several(take_all(bytes, levels)?),
        b'%' => Reply::Map(take_pairs(bytes, levels)?),
        b'2' => Reply::Pairs(take_pairs(bytes, levels)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_kinds() -> Vec<Reply> {
        let leaf = || vec![Reply::Integer(-7), Reply::Double(0.5)];
        let pair = || vec![(Reply::bulk("m"), Reply::Nil)];
        vec![
            Reply::Ok,
            Reply::Simple("text".into()),
            Reply::error("ERR what"),
            Reply::Integer(i64::MIN),
            Reply::Bulk(vec![0, 255, 13, 10]),
            Reply::Nil,
            Reply::NilArray,
            Reply::Array(vec![Reply::Array(leaf()), Reply::Set(leaf())]),
            Reply::Map(pair()),
            Reply::Pairs(pair()),
            Reply::Set(Vec::new()),
            Reply::Push(leaf()),
            Reply::Several(leaf()),
            Reply::Double(f64::INFINITY),
            Reply::Raw(b"+x\r\n".to_vec()),
        ]
    }

    #[test]
    fn replies_are_read_as_they_were_and_no_part_of_them_is() {
        for carried in [Carried::NotTaken, Carried::Done(Vec::new()), Carried::Done(all_kinds())] {
            let bytes = carried.to_bytes();
            assert_eq!(Carried::parse(&bytes), Some(carried));
            (0..bytes.len()).for_each(|cut| assert_eq!(Carried::parse(&bytes[..cut]), None, "{cut}"));
            assert_eq!(Carried::parse(&[&bytes[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn bytes_of_a_member_that_is_wrong_cost_no_more_than_they_are() {
        assert_eq!(Carried::parse(&[1, 255, 255, 255, 255, b'+']), None, "four thousand million replies");
        // A reply within a reply, a million times.
        let deep = [&[1][..], &[0, 0, 0, 1, b'*'].repeat(1 << 20)].concat();
        assert_eq!(Carried::parse(&deep), None);
        assert_eq!(commands(&[255; 16]), None);
        let words: Words = vec![b"GET".to_vec(), b"a".to_vec()];
        let bytes = commands_to_bytes(&[&words, &words]).expect("memory");
        assert_eq!(commands(&bytes), Some(vec![words.clone(), words]));
        assert_eq!(commands(&bytes[..bytes.len() - 1]), None);
    }
}
