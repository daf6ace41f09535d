//! The protocol between the two ends of a stream: rsockets, version 1, compatible with rdma-core's
//! `rsocket(7)`.
//!
//! Each end owns a receive buffer in two halves, a ring of receives, and a table of two entries in which the
//! *other* end writes the address of the next half of its buffer. Data travels as an RDMA WRITE with
//! immediate data into the peer's buffer; the immediate data holds every message: an operation in three bits,
//! a number in 29.

/// Version of everything here.
const VERSION: u8 = 1;
/// In the flags: the host's numbers are big-endian.
const FLAG_BIG_ENDIAN: u8 = 1;
/// In the flags: memory may be mapped.
const FLAG_IOMAP: u8 = 2;

/// Entries of the table of buffers.
pub(super) const TARGETS: usize = 2;

/// Memory of an end that the other may write to.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Target {
    pub(super) addr: u64,
    pub(super) key: u32,
    pub(super) length: u32,
}

/// Memory of an end that the other may write to by an offset of the owner's choice.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct IoMap {
    pub(super) offset: u64,
    pub(super) target: Target,
}

/// The greeting that each end sends when they connect: 40 bytes of private data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    /// Messages that the peer may send before it gets more credits.
    pub(super) credits: u16,
    /// Entries of the table of mapped memory.
    pub(super) iomap_entries: u16,
    /// The table of buffers, followed by that of mapped memory: address, key, number of buffers.
    pub(super) table: Target,
    /// The first half of the receive buffer.
    pub(super) buffer: Target,
    /// Whether the end's byte order in memory is the other one.
    pub(super) is_swapped: bool,
}

impl Hello {
    /// Its length in private data.
    pub(super) const LEN: usize = 40;

    pub(super) fn emit(&self) -> [u8; Hello::LEN] {
        let mut b = [0; Hello::LEN];
        (b[0], b[1]) = (VERSION, if cfg!(target_endian = "big") { FLAG_BIG_ENDIAN } else { 0 });
        if self.iomap_entries > 0 {
            b[1] |= FLAG_IOMAP;
        }
        b[2..4].copy_from_slice(&self.credits.to_be_bytes());
        b[7] = to_scale(self.iomap_entries);
        for (at, target) in [(8, self.table), (24, self.buffer)] {
            b[at..at + 8].copy_from_slice(&target.addr.to_be_bytes());
            b[at + 8..at + 12].copy_from_slice(&target.key.to_be_bytes());
            b[at + 12..at + 16].copy_from_slice(&target.length.to_be_bytes());
        }
        b
    }

    /// Reads a peer's greeting; `None` for another version, or an impossible table.
    pub(super) fn parse(b: &[u8]) -> Option<Hello> {
        let b: &[u8; Hello::LEN] = b.first_chunk()?;
        if b[0] != VERSION {
            return None;
        }
        let word = |at: usize| u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let target = |at: usize| Target {
            addr: u64::from(word(at)) << 32 | u64::from(word(at + 4)),
            key: word(at + 8),
            length: word(at + 12),
        };
        let hello = Hello {
            credits: u16::from_be_bytes([b[2], b[3]]),
            iomap_entries: if b[1] & FLAG_IOMAP != 0 { from_scale(b[7]) } else { 0 },
            table: target(8),
            buffer: target(24),
            is_swapped: (b[1] & FLAG_BIG_ENDIAN != 0) != cfg!(target_endian = "big"),
        };
        (hello.table.length > 0).then_some(hello)
    }
}

/// A number in eight bits: as it is up to 128, in units of 256 above.
fn to_scale(value: u16) -> u8 {
    if value <= 128 { value as u8 } else { 128 | (value >> 8) as u8 }
}

fn from_scale(value: u8) -> u16 {
    if value <= 128 { u16::from(value) } else { u16::from(value & 127) << 8 }
}

/// A message in immediate data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// So many bytes are in the buffer.
    Data(u32),
    /// Messages may be sent up to this number; where a WRITE came with it, the table has a new entry.
    Credits(u16),
    /// An entry of the table of mapped memory was written.
    IoMap,
    /// The connection ends.
    Disconnect,
    /// Keep-alive: the sender is still there.
    KeepAlive,
    /// The sender will send nothing more.
    Shutdown,
    /// Something of a later version.
    Unknown,
}

impl Message {
    pub(super) fn emit(self) -> u32 {
        let (operation, number) = match self {
            Message::Data(bytes) => (0, bytes),
            Message::Credits(number) => (4, u32::from(number)),
            Message::IoMap => (6, 0),
            Message::Disconnect => (7, 0),
            Message::KeepAlive => (7, 1),
            Message::Shutdown => (7, 2),
            Message::Unknown => (5, 0),
        };
        operation << 29 | number & 0x1FFF_FFFF
    }

    pub(super) fn parse(immediate: u32) -> Message {
        match (immediate >> 29, immediate & 0x1FFF_FFFF) {
            (0, bytes) => Message::Data(bytes),
            (4, number) => Message::Credits(number as u16),
            (6, _) => Message::IoMap,
            (7, 0) => Message::Disconnect,
            (7, 1) => Message::KeepAlive,
            (7, 2) => Message::Shutdown,
            _ => Message::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_greetings_survive_a_round_trip() {
        let messages = [Message::Data(131_072), Message::Credits(383), Message::IoMap, Message::Disconnect];
        for message in messages.into_iter().chain([Message::KeepAlive, Message::Shutdown, Message::Unknown]) {
            assert_eq!(Message::parse(message.emit()), message);
        }
        let target = |n: u64| Target { addr: 0x7F00_0000_1000 + n, key: 0xABCD, length: 65_536 };
        let hello = Hello {
            credits: 384,
            iomap_entries: 100,
            table: target(1),
            buffer: target(2),
            is_swapped: false,
        };
        assert_eq!(Hello::parse(&hello.emit()), Some(hello));
    }

    #[test]
    fn another_version_is_none() {
        let hello = Hello {
            credits: 1,
            iomap_entries: 0,
            table: Target { length: 2, ..Target::default() },
            buffer: Target::default(),
            is_swapped: false,
        };
        let mut bytes = hello.emit();
        bytes[0] = 2;
        assert_eq!((Hello::parse(&bytes), Hello::parse(&bytes[..39])), (None, None));
    }
}
