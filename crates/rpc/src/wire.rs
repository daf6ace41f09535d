//! The bytes of a datagram: an immediate that names its kind, a header that names its sender, and messages.
//!
//! `docs/rpc.md` draws the layout. Every number is big-endian. Parsing checks everything that can be checked without knowing
//! the conversation, so later code never looks at a length again.
//!
//! Invariant: what `emit` writes, `parse` reads back as the same value, and nothing else parses to it.

use std::fmt;

/// Bytes of the header in front of every datagram's body.
pub const HEADER_LEN: usize = 16;
/// Bytes in front of every message: its tag and its length.
pub const MESSAGE_HEADER_LEN: usize = 4;
/// Bytes in front of a part of a batch that is too long for one datagram.
pub const PART_HEADER_LEN: usize = 8;
/// Bytes of the body of a greeting.
pub const GREETING_LEN: usize = 12;
/// Bytes of the body of a report of progress.
pub const PROGRESS_LEN: usize = 12;
/// Most messages in one batch: what five bits count.
pub const MESSAGES_MAX: usize = 31;
/// The longest message: what 24 bits count.
pub const MESSAGE_BYTES_MAX: usize = (1 << 24) - 1;
/// The version of the format.
pub const VERSION: u8 = 2;

/// The kind of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A requester introduces itself and asks for slots.
    Hello = 0,
    /// The answer: the responder's incarnation, and the slots that it grants.
    Welcome = 1,
    /// A whole batch of requests.
    Request = 2,
    /// A whole batch of responses.
    Response = 3,
    /// A part of a batch of requests.
    RequestPart = 4,
    /// A part of a batch of responses.
    ResponsePart = 5,
    /// Which parts have arrived; or only that the responder is executing the requests.
    Progress = 6,
    /// The batch is not for this incarnation of the node.
    Refusal = 7,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Hello,
        Kind::Welcome,
        Kind::Request,
        Kind::Response,
        Kind::RequestPart,
        Kind::ResponsePart,
        Kind::Progress,
        Kind::Refusal,
    ];

    /// Whether the datagram carries the number of its batch's messages.
    const fn has_count(self) -> bool {
        matches!(self, Kind::Request | Kind::Response | Kind::RequestPart | Kind::ResponsePart)
    }
}

/// The 32 bits that come with a datagram's completion: enough to know what to do with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Immediate {
    /// The datagram's kind.
    pub kind: Kind,
    /// Messages in the batch, 1 to [`MESSAGES_MAX`]; 0 where there is no batch.
    pub count: u8,
    /// The slot of the pair of endpoints that the batch occupies.
    pub slot: u8,
    /// The sender's configuration id, by which receivers recognise datagrams of an old configuration.
    pub fence: u16,
}

impl Immediate {
    /// The 32 bits that the verb carries.
    #[inline]
    pub const fn to_bits(self) -> u32 {
        (self.kind as u32) << 29 | (self.count as u32) << 24 | (self.slot as u32) << 16 | self.fence as u32
    }

    /// Reads the 32 bits of a completion.
    ///
    /// # Errors
    /// [`ParseError::Count`]: a batch without messages, or messages without a batch.
    #[inline]
    pub const fn from_bits(bits: u32) -> Result<Immediate, ParseError> {
        let kind = Kind::ALL[(bits >> 29) as usize];
        let count = (bits >> 24) as u8 & 0x1F;
        if kind.has_count() != (count > 0) {
            return Err(ParseError::Count { kind, count });
        }
        Ok(Immediate { kind, count, slot: (bits >> 16) as u8, fence: bits as u16 })
    }
}

/// A datagram's sender, receiver and batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The node that sent it.
    pub node: u16,
    /// The low half of the sender's incarnation.
    pub from: u32,
    /// The low half of the receiver's incarnation, as the sender knows it; zero if it does not.
    pub to: u32,
    /// The batch's number in its slot.
    pub sequence: u32,
}

impl Header {
    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        out[0..2].copy_from_slice(&self.node.to_be_bytes());
        out[2] = VERSION;
        out[3] = 0;
        out[4..8].copy_from_slice(&self.from.to_be_bytes());
        out[8..12].copy_from_slice(&self.to.to_be_bytes());
        out[12..16].copy_from_slice(&self.sequence.to_be_bytes());
    }

    /// Reads the header and gives the body behind it.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::Version`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
        let Some((head, body)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(ParseError::TooShort { what: "header", have: bytes.len(), need: HEADER_LEN });
        };
        if head[2] != VERSION || head[3] != 0 {
            return Err(ParseError::Version(head[2], head[3]));
        }
        let header = Header {
            node: u16::from_be_bytes([head[0], head[1]]),
            from: word(head, 4),
            to: word(head, 8),
            sequence: word(head, 12),
        };
        Ok((header, body))
    }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A message in a batch: a request with its type, or a response with its status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The type of a request, the status of a response.
    pub tag: u8,
    /// The message's bytes.
    pub bytes: &'a [u8],
}

/// The messages of a batch that has been checked.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Checks that `body` is exactly `count` messages.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::Behind`].
    #[inline]
    pub fn parse(body: &'a [u8], count: u8) -> Result<Messages<'a>, ParseError> {
        let mut rest = body;
        for _ in 0..count {
            rest = split(rest)?.1;
        }
        if !rest.is_empty() {
            return Err(ParseError::Behind(rest.len()));
        }
        Ok(Messages { rest: body })
    }
}

#[inline]
fn split(bytes: &[u8]) -> Result<(Message<'_>, &[u8]), ParseError> {
    let Some((head, rest)) = bytes.split_first_chunk::<MESSAGE_HEADER_LEN>() else {
        return Err(ParseError::TooShort {
            what: "message header",
            have: bytes.len(),
            need: MESSAGE_HEADER_LEN,
        });
    };
    let length = (word(head, 0) & 0x00FF_FFFF) as usize;
    match rest.split_at_checked(length) {
        Some((bytes, rest)) => Ok((Message { tag: head[0], bytes }, rest)),
        None => Err(ParseError::TooShort { what: "message", have: rest.len(), need: length }),
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        let (message, rest) = split(self.rest).ok()?;
        self.rest = rest;
        Some(message)
    }
}

/// Writes the header of a message of `length` bytes at `at`.
#[inline]
pub fn emit_message_header(out: &mut [u8], at: usize, tag: u8, length: usize) {
    debug_assert!(length <= MESSAGE_BYTES_MAX, "the caller checks the length");
    let bits = u32::from(tag) << 24 | length as u32 & 0x00FF_FFFF;
    out[at..at + MESSAGE_HEADER_LEN].copy_from_slice(&bits.to_be_bytes());
}

/// The part of a batch that a datagram carries. All parts but the last have `part_bytes` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Bytes of the whole batch.
    pub total: u32,
    /// The part's number.
    pub index: u16,
    /// Bytes of every part but the last.
    pub part_bytes: u16,
}

impl Part {
    /// The number of a batch's parts.
    pub const fn parts(total: u32, part_bytes: u16) -> u32 {
        total.div_ceil(part_bytes as u32)
    }

    /// Where the part lies in the batch.
    pub fn range(&self) -> std::ops::Range<usize> {
        let start = usize::from(self.index) * usize::from(self.part_bytes);
        start..(start + usize::from(self.part_bytes)).min(self.total as usize)
    }

    /// Writes the part's header.
    pub fn emit(&self, out: &mut [u8; PART_HEADER_LEN]) {
        out[0..4].copy_from_slice(&self.total.to_be_bytes());
        out[4..6].copy_from_slice(&self.index.to_be_bytes());
        out[6..8].copy_from_slice(&self.part_bytes.to_be_bytes());
    }

    /// Reads a part's header, and checks that the bytes behind it are that part.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::Part`].
    pub fn parse(body: &[u8]) -> Result<(Part, &[u8]), ParseError> {
        let Some((head, bytes)) = body.split_first_chunk::<PART_HEADER_LEN>() else {
            return Err(ParseError::TooShort {
                what: "part header",
                have: body.len(),
                need: PART_HEADER_LEN,
            });
        };
        let part = Part {
            total: word(head, 0),
            index: u16::from_be_bytes([head[4], head[5]]),
            part_bytes: u16::from_be_bytes([head[6], head[7]]),
        };
        let fits = part.part_bytes > 0
            && Part::parts(part.total, part.part_bytes) < 1 << 16
            && u32::from(part.index) < Part::parts(part.total, part.part_bytes)
            && part.range().len() == bytes.len();
        if fits { Ok((part, bytes)) } else { Err(ParseError::Part { part, have: bytes.len() }) }
    }
}

/// The body of [`Kind::Hello`] and [`Kind::Welcome`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// The sender's incarnation: greater each time that the node starts.
    pub incarnation: u64,
    /// Slots that the requester asks for, or the responder grants.
    pub slots: u16,
    /// The longest datagram that the sender can receive, header included.
    pub datagram_bytes: u16,
}

impl Greeting {
    /// Writes the body.
    pub fn emit(&self, out: &mut [u8; GREETING_LEN]) {
        out[0..8].copy_from_slice(&self.incarnation.to_be_bytes());
        out[8..10].copy_from_slice(&self.slots.to_be_bytes());
        out[10..12].copy_from_slice(&self.datagram_bytes.to_be_bytes());
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::Behind`], [`ParseError::Greeting`].
    pub fn parse(body: &[u8]) -> Result<Greeting, ParseError> {
        let body = exactly::<GREETING_LEN>(body, "greeting")?;
        let greeting = Greeting {
            incarnation: u64::from(word(body, 0)) << 32 | u64::from(word(body, 4)),
            slots: u16::from_be_bytes([body[8], body[9]]),
            datagram_bytes: u16::from_be_bytes([body[10], body[11]]),
        };
        let is_sound = (1..=256).contains(&greeting.slots)
            && usize::from(greeting.datagram_bytes) > HEADER_LEN + PART_HEADER_LEN
            && greeting.incarnation as u32 != 0;
        if is_sound { Ok(greeting) } else { Err(ParseError::Greeting(greeting)) }
    }
}

/// The subject of a report of progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Stage {
    /// Parts of the requests have arrived; the requester sends the others.
    Request = 0,
    /// Parts of the responses have arrived; the responder sends the others.
    Response = 1,
    /// The requests have all arrived and are being executed.
    Working = 2,
}

/// The body of [`Kind::Progress`]: the receiver has every part before `base`, and of the 64 from there on
/// those whose bits are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Whose parts these are.
    pub stage: Stage,
    /// The first part that is missing.
    pub base: u16,
    /// Bit `i` stands for part `base + i`.
    pub bitmap: u64,
}

impl Progress {
    /// Writes the body.
    pub fn emit(&self, out: &mut [u8; PROGRESS_LEN]) {
        out[0] = self.stage as u8;
        out[1] = 0;
        out[2..4].copy_from_slice(&self.base.to_be_bytes());
        out[4..12].copy_from_slice(&self.bitmap.to_be_bytes());
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::Behind`], [`ParseError::Stage`].
    pub fn parse(body: &[u8]) -> Result<Progress, ParseError> {
        let body = exactly::<PROGRESS_LEN>(body, "progress")?;
        let stage = match body[0..2] {
            [0, 0] => Stage::Request,
            [1, 0] => Stage::Response,
            [2, 0] => Stage::Working,
            _ => return Err(ParseError::Stage(body[0])),
        };
        let bitmap = u64::from(word(body, 4)) << 32 | u64::from(word(body, 8));
        Ok(Progress { stage, base: u16::from_be_bytes([body[2], body[3]]), bitmap })
    }
}

fn exactly<'a, const N: usize>(body: &'a [u8], what: &'static str) -> Result<&'a [u8; N], ParseError> {
    match body.split_first_chunk::<N>() {
        None => Err(ParseError::TooShort { what, have: body.len(), need: N }),
        Some((body, [])) => Ok(body),
        Some((_, rest)) => Err(ParseError::Behind(rest.len())),
    }
}

/// Why bytes are no datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// The bytes end too early.
    TooShort {
        /// The item that is cut off.
        what: &'static str,
        /// The bytes that there are.
        have: usize,
        /// The bytes that it takes.
        need: usize,
    },
    /// This many bytes follow the end.
    Behind(usize),
    /// Another version of the format, or flags that this one does not have.
    Version(u8, u8),
    /// A batch of no messages, or messages without a batch.
    Count {
        /// The datagram's kind.
        kind: Kind,
        /// The count that it gives.
        count: u8,
    },
    /// A part that does not belong to its batch.
    Part {
        /// The part's header.
        part: Part,
        /// The bytes that it has.
        have: usize,
    },
    /// Slots, lengths or an incarnation that cannot be.
    Greeting(Greeting),
    /// Progress of something unknown.
    Stage(u8),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::TooShort { what, have, need } => {
                write!(f, "a {what} of {need} bytes in {have}")
            }
            ParseError::Behind(bytes) => write!(f, "{bytes} bytes behind the end"),
            ParseError::Version(version, flags) => {
                write!(f, "version {version}, flags {flags:#x}: this is version {VERSION} without flags")
            }
            ParseError::Count { kind, count } => write!(f, "{count} messages in a {kind:?}"),
            ParseError::Part { part, have } => write!(f, "{have} bytes as {part:?}"),
            ParseError::Greeting(greeting) => write!(f, "{greeting:?} cannot be"),
            ParseError::Stage(stage) => write!(f, "progress of stage {stage}, which there is not"),
        }
    }
}

impl std::error::Error for ParseError {}
