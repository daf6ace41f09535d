//! The headers of tag matching, at the beginning of messages to a queue with tags (`infiniband/tm_types.h`).

use crate::bytes;

/// The kind of a message with a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TagOperation {
    /// The message takes no part in matching.
    NoTag = 0,
    /// Asks the receiver to read the message from the sender's memory: a [`Rendezvous`] follows.
    Rendezvous = 1,
    /// The receiver has read the message.
    Finished = 2,
    /// The message follows.
    Eager = 3,
}

/// A tag, and the kind of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagHeader {
    /// The message's kind.
    pub operation: TagOperation,
    /// Without meaning here.
    pub context: u32,
    /// The tag.
    pub tag: u64,
}

/// A message in its sender's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rendezvous {
    /// Its address there.
    pub va: u64,
    /// The key to it.
    pub rkey: u32,
    /// Its length in bytes.
    pub length: u32,
}

impl TagHeader {
    /// Length in a message.
    pub const LEN: usize = 16;

    /// Reads the header; `None` for an operation that does not exist. Reserved bytes are ignored.
    pub fn parse(b: &[u8; TagHeader::LEN]) -> Option<TagHeader> {
        let operation = match b[0] {
            0 => TagOperation::NoTag,
            1 => TagOperation::Rendezvous,
            2 => TagOperation::Finished,
            3 => TagOperation::Eager,
            _ => return None,
        };
        Some(TagHeader { operation, context: bytes::u32(b, 4), tag: bytes::u64(b, 8) })
    }

    /// Writes the header.
    pub fn emit(&self, b: &mut [u8; TagHeader::LEN]) {
        bytes::put(b, 0, [self.operation as u8, 0, 0, 0]);
        bytes::put(b, 4, self.context.to_be_bytes());
        bytes::put(b, 8, self.tag.to_be_bytes());
    }
}

impl Rendezvous {
    /// Length in a message.
    pub const LEN: usize = 16;

    /// Reads the header.
    pub fn parse(b: &[u8; Rendezvous::LEN]) -> Rendezvous {
        Rendezvous { va: bytes::u64(b, 0), rkey: bytes::u32(b, 8), length: bytes::u32(b, 12) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_and_unknown_operations_are_none() {
        let header =
            TagHeader { operation: TagOperation::Eager, context: 0x1234_5678, tag: 0x1122_3344_5566_7788 };
        let mut bytes = [0xFF; TagHeader::LEN];
        header.emit(&mut bytes);
        assert_eq!(
            bytes,
            [3, 0, 0, 0, 0x12, 0x34, 0x56, 0x78, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]
        );
        assert_eq!(TagHeader::parse(&bytes), Some(header));
        bytes[0] = 4;
        assert_eq!(TagHeader::parse(&bytes), None);
        let rendezvous = Rendezvous::parse(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
        assert_eq!(rendezvous, Rendezvous { va: 1, rkey: 2, length: 3 });
    }
}
