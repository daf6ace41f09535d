//! What nodes say to each other about commands that one carries to the other: the commands, and what became of them.

use super::super::Words;
use super::super::reply::Reply;
use crate::message::decode;
use serde::{Deserialize, Serialize};

/// What became of commands that were carried to this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    decode(bytes).ok()
}

impl Carried {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // Memory takes every byte; and an answer of none tells that the outcome is not known.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// `None`: these bytes are no answer.
    pub(super) fn parse(bytes: &[u8]) -> Option<Carried> {
        decode(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::reply;
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
        assert_eq!(Carried::parse(&[1, 255, 255, 255, 255, 15, 0]), None, "four thousand million replies");
        let array = postcard::to_allocvec(&Reply::Array(vec![Reply::Ok])).expect("memory");
        let within = |levels: usize| [&[1, 1], &array[..2].repeat(levels)[..], &[0]].concat();
        let levels = usize::from(reply::LEVELS_MAX);
        assert!(Carried::parse(&within(levels)).is_some());
        assert_eq!(Carried::parse(&within(levels + 1)), None);
        // A reply within a reply, a million times; and one that is too deep costs the next nothing.
        assert_eq!(Carried::parse(&within(1 << 20)), None);
        assert!(Carried::parse(&within(levels)).is_some());
        assert_eq!(commands(&[255; 16]), None);
        let words: Words = vec![b"GET".to_vec(), b"a".to_vec()];
        let bytes = commands_to_bytes(&[&words, &words]).expect("memory");
        assert_eq!(commands(&bytes), Some(vec![words.clone(), words]));
        assert_eq!(commands(&bytes[..bytes.len() - 1]), None);
    }
}
