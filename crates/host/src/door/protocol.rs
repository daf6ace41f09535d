//! The protocol between a program and its engine: one frame per question, one per answer, in turn.
//!
//! A frame is a header of eight bytes, `length u32 · kind u16 · status u16`, and a body of so many bytes: 64-bit words,
//! little-endian, or the text of an error where `status` is not zero. `docs/uapi-server.md` lists the words of every kind.

use std::fmt;
use std::io::{self, Read, Write};

/// The version of everything a program behind the door relies on. The first frame names it, and any other
/// version is refused.
pub const VERSION: u64 = 3;
/// The first word of the first frame.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"HWDOOR\0\0");
/// The longest body.
pub(crate) const BODY_BYTES_MAX: usize = 1024;
const HEADER_BYTES: usize = 8;

/// The kind of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(crate) enum Kind {
    Hello = 1,
    Events = 2,
    CreatePd = 3,
    DestroyPd = 4,
    Allocate = 5,
    Free = 6,
    Register = 7,
    Deregister = 8,
    CreateCq = 9,
    DestroyCq = 10,
    CreateSrq = 11,
    DestroySrq = 12,
    CreateQp = 13,
    DestroyQp = 14,
    ModifyQp = 15,
    QueryQp = 16,
    CreateBell = 17,
    DestroyBell = 18,
}

/// Why something was refused. The numbers are those of the frame's `status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(crate) enum Status {
    Version = 1,
    Malformed = 2,
    NoSuchObject = 3,
    InUse = 4,
    Refused = 5,
    NoMemory = 6,
    WrongState = 7,
}

/// A refusal, with words for the programmer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    pub(crate) text: String,
}

/// A question as it came in.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) kind: u16,
    words: Vec<u64>,
}

impl Kind {
    const ALL: [Kind; 18] = [
        Kind::Hello,
        Kind::Events,
        Kind::CreatePd,
        Kind::DestroyPd,
        Kind::Allocate,
        Kind::Free,
        Kind::Register,
        Kind::Deregister,
        Kind::CreateCq,
        Kind::DestroyCq,
        Kind::CreateSrq,
        Kind::DestroySrq,
        Kind::CreateQp,
        Kind::DestroyQp,
        Kind::ModifyQp,
        Kind::QueryQp,
        Kind::CreateBell,
        Kind::DestroyBell,
    ];

    pub(crate) fn from_u16(value: u16) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u16 == value)
    }
}

impl Refusal {
    pub(crate) fn new(status: Status, text: impl fmt::Display) -> Refusal {
        Refusal { status, text: text.to_string() }
    }

    pub(crate) fn refused(error: impl fmt::Display) -> Refusal {
        Refusal::new(Status::Refused, error)
    }
}

impl Request {
    /// Reads the next frame; `None` where the program has ended or hung up. A frame that is too long is an error, after
    /// which nothing that follows can be understood.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Request>> {
        let mut header = [0; HEADER_BYTES];
        let mut have = 0;
        while have < HEADER_BYTES {
            match from.read(&mut header[have..]) {
                Ok(0) => return Ok(None),
                Ok(more) => have += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let header = u64::from_le_bytes(header);
        let (length, kind) = (header as u32 as usize, (header >> 32) as u16);
        if length > BODY_BYTES_MAX || !length.is_multiple_of(8) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a body of {length} bytes")));
        }
        let mut body = [0; BODY_BYTES_MAX];
        let body = &mut body[..length];
        from.read_exact(body)?;
        let (words, _) = body.as_chunks::<8>();
        Ok(Some(Request { kind, words: words.iter().map(|word| u64::from_le_bytes(*word)).collect() }))
    }

    /// Exactly so many words.
    pub(crate) fn words<const N: usize>(&self) -> Result<[u64; N], Refusal> {
        self.words.as_slice().try_into().map_err(|_| {
            Refusal::new(
                Status::Malformed,
                format!("a request of kind {} has {N} words, not {}", self.kind, self.words.len()),
            )
        })
    }
}

/// Writes the answer to a request of this kind.
pub(crate) fn answer(to: &mut impl Write, kind: u16, answer: &Result<Vec<u64>, Refusal>) -> io::Result<()> {
    let (status, body): (u16, Vec<u8>) = match answer {
        Ok(words) => (0, words.iter().flat_map(|word| word.to_le_bytes()).collect()),
        Err(refusal) => {
            let text = refusal.text.as_bytes();
            (refusal.status as u16, text[..text.len().min(BODY_BYTES_MAX)].to_vec())
        }
    };
    let header = body.len() as u64 | u64::from(kind) << 32 | u64::from(status) << 48;
    let mut frame = header.to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    to.write_all(&frame)
}

/// A word that must fit into fewer bits.
pub(crate) fn narrow<T: TryFrom<u64>>(word: u64, name: &str) -> Result<T, Refusal> {
    T::try_from(word)
        .map_err(|_| Refusal::new(Status::Malformed, format!("`{name}` is {word}, which is too much")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Option<Request>> {
        Request::read(&mut &bytes[..])
    }

    #[test]
    fn a_frame_is_what_was_written() {
        let mut bytes = Vec::new();
        answer(&mut bytes, 9, &Ok(vec![1, u64::MAX])).expect("a vector takes anything");
        assert_eq!(bytes[..8], [16, 0, 0, 0, 9, 0, 0, 0]);
        let request = read(&bytes).expect("whole").expect("a frame");
        assert_eq!((request.kind, request.words::<2>()), (9, Ok([1, u64::MAX])));
        assert_eq!(request.words::<1>().expect_err("two words").status, Status::Malformed);
    }

    #[test]
    fn frames_that_cannot_be_are_refused_and_the_end_is_the_end() {
        assert!(read(&[]).expect("the end").is_none());
        assert!(read(&[8, 0, 0]).expect("the end amid a header").is_none());
        assert!(read(&[8, 0, 0, 0, 1, 0, 0, 0, 1]).is_err(), "the end amid a body");
        assert!(read(&[7, 0, 0, 0, 1, 0, 0, 0, 1]).is_err(), "no whole words");
        assert!(read(&[0, 0, 0, 255, 1, 0, 0, 0]).is_err(), "no memory is taken for a length that is a lie");
    }
}
