//! Messages, words and packets (nanoPU §3.4).
//!
//! ```text
//! Ethernet 14 · IPv4 20, protocol 0x99 · LNIC 30:
//!   0 flags · 1 source context 16 · 3 destination context 16 · 5 message bytes 16 · 7 packet offset · 8 pull offset 16
//!   10 sender's message 16 · 12 buffer 16 · 14 buffer class · 15 granted priority · 16 padding, to 30
//! ```
//!
//! The packet's own priority is the precedence in IPv4's type of service, its three highest bits. The two lowest are ECN's.
//!
//! A word is eight bytes, most significant first. The first word of a message, in either direction, is its application header.

use std::fmt;

/// Bytes of the three headers.
pub const HEADER_BYTES: usize = 64;
/// The most payload of a packet, in bytes.
pub const SEGMENT_BYTES: usize = 1024;
/// The longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 2048;
/// A packet whose payload a switch has cut off, in bytes on the wire.
pub const TRIMMED_BYTES: usize = 72;

const ETHERTYPE_IPV4: u16 = 0x0800;
const PROTOCOL: u8 = 0x99;
const LNIC: usize = 34;
/// Where the precedence is, and its lowest bit.
const TYPE_OF_SERVICE: usize = 15;
const PRECEDENCE_SHIFT: u32 = 5;
/// ECN's bits there, and what they say.
const ECN_BITS: u8 = 3;
const ECT: u8 = 2;
const CE: u8 = 3;

/// What a packet is, as bits.
pub mod flag {
    /// It carries payload.
    pub const DATA: u8 = 1;
    /// It says that a packet has arrived.
    pub const ACK: u8 = 2;
    /// It asks for a packet again.
    pub const NACK: u8 = 4;
    /// It lets the sender go on.
    pub const PULL: u8 = 8;
    /// Its payload has been cut off.
    pub const CHOP: u8 = 16;
    /// Of control packets: a switch had marked the packet that this one answers.
    pub const ECHO: u8 = 32;
    /// No packet has these.
    pub(super) const UNKNOWN: u8 = 0xc0;
}

/// The first word of a message: the peer, its context, and how many bytes follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AppHeader {
    /// The peer's IPv4 address.
    pub peer: u32,
    /// The peer's context.
    pub context: u16,
    /// Bytes of payload.
    pub bytes: u16,
}

impl AppHeader {
    /// As the word that a program sees.
    pub fn word(self) -> u64 {
        u64::from(self.peer) << 32 | u64::from(self.context) << 16 | u64::from(self.bytes)
    }

    /// From the word that a program writes.
    pub fn from_word(word: u64) -> AppHeader {
        AppHeader { peer: (word >> 32) as u32, context: (word >> 16) as u16, bytes: word as u16 }
    }
}

/// What ECN says of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// Switches leave it alone.
    #[default]
    NotCapable,
    /// A congested switch may mark it.
    Capable,
    /// A switch has marked it.
    Marked,
}

impl Ecn {
    fn bits(self) -> u8 {
        match self {
            Ecn::NotCapable => 0,
            Ecn::Capable => ECT,
            Ecn::Marked => CE,
        }
    }

    fn of_bits(bits: u8) -> Ecn {
        match bits & ECN_BITS {
            0 => Ecn::NotCapable,
            CE => Ecn::Marked,
            _ => Ecn::Capable,
        }
    }
}

/// A packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    /// The sender's IPv4 address.
    pub source: u32,
    /// The receiver's.
    pub destination: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// The sender's context.
    pub source_context: u16,
    /// The receiver's.
    pub destination_context: u16,
    /// Bytes of the whole message.
    pub message_bytes: u16,
    /// Which packet of the message, from zero.
    pub packet_offset: u8,
    /// Up to which packet the sender may send; in PULLs.
    pub pull_offset: u16,
    /// The sender's number for the message.
    pub message: u16,
    /// The sender's buffer, which control packets bring back.
    pub buffer: u16,
    /// The size class of that buffer.
    pub buffer_class: u8,
    /// Its priority in switches, from 0 to 7, the most urgent. NDP only uses 0: there the packet's kind
    /// decides.
    pub priority: u8,
    /// In PULLs: the priority of the packets that they allow.
    pub grant_priority: u8,
    /// Whether switches may mark it, and whether one has.
    pub ecn: Ecn,
    /// The payload; a DATA packet's, unless it has been cut off.
    pub payload: Vec<u8>,
}

/// Why bytes are no packet of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketError {
    /// Shorter than its headers.
    Short {
        /// Its bytes.
        bytes: usize,
    },
    /// Not IPv4, or another protocol in it.
    Foreign,
    /// The lengths in its headers contradict each other.
    Length,
    /// It is neither data nor control, or both.
    Flags(u8),
}

impl Packet {
    /// Whether it carries, or carried, payload.
    pub fn is_data(&self) -> bool {
        self.flags & flag::DATA != 0
    }

    /// Bytes on the wire, without preamble and gaps.
    pub fn wire_bytes(&self) -> usize {
        match self.flags & flag::CHOP {
            0 => HEADER_BYTES + self.payload.len(),
            _ => TRIMMED_BYTES,
        }
    }

    /// Words on the 64-bit interface of the MAC.
    pub fn wire_words(&self) -> u64 {
        self.wire_bytes().div_ceil(8) as u64
    }

    /// How many packets the whole message has; at least one.
    pub fn message_packets(&self) -> usize {
        packets_of(self.message_bytes)
    }

    /// Cuts the payload off, as a switch without room does.
    pub fn trim(&mut self) {
        self.flags |= flag::CHOP;
        self.payload.clear();
    }

    /// The packets of a data message: each has its part of `payload`, and addresses, contexts and the message's number from `message`.
    pub(crate) fn of_message(message: Packet, payload: &[u8]) -> impl Iterator<Item = Packet> {
        let message_bytes = payload.len() as u16;
        (0..packets_of(message_bytes)).map(move |offset| {
            let start = offset * SEGMENT_BYTES;
            let end = (start + SEGMENT_BYTES).min(payload.len());
            Packet {
                flags: flag::DATA,
                message_bytes,
                packet_offset: offset as u8,
                buffer: message.message,
                payload: payload[start..end].to_vec(),
                ..message.clone()
            }
        })
    }

    /// A control packet about this packet, for its sender.
    pub fn reply(&self, flags: u8) -> Packet {
        Packet {
            source: self.destination,
            destination: self.source,
            flags,
            source_context: self.destination_context,
            destination_context: self.source_context,
            ecn: Ecn::NotCapable,
            payload: Vec::new(),
            ..*self
        }
    }

    /// The bytes of it, headers and payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; LNIC];
        bytes[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
        let ip_bytes = (HEADER_BYTES - 14 + self.payload.len()) as u16;
        bytes[14] = 0x45;
        bytes[TYPE_OF_SERVICE] = self.priority << PRECEDENCE_SHIFT | self.ecn.bits();
        bytes[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
        bytes[22] = 64;
        bytes[23] = PROTOCOL;
        bytes[26..30].copy_from_slice(&self.source.to_be_bytes());
        bytes[30..34].copy_from_slice(&self.destination.to_be_bytes());
        bytes.push(self.flags);
        bytes.extend(self.source_context.to_be_bytes());
        bytes.extend(self.destination_context.to_be_bytes());
        bytes.extend(self.message_bytes.to_be_bytes());
        bytes.push(self.packet_offset);
        bytes.extend(self.pull_offset.to_be_bytes());
        bytes.extend(self.message.to_be_bytes());
        bytes.extend(self.buffer.to_be_bytes());
        bytes.push(self.buffer_class);
        bytes.push(self.grant_priority);
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend(&self.payload);
        bytes
    }

    /// Reads a packet from the wire. Bytes behind the length that its headers name are padding.
    ///
    /// # Errors
    /// [`PacketError`].
    pub fn decode(bytes: &[u8]) -> Result<Packet, PacketError> {
        let (headers, rest) =
            bytes.split_at_checked(HEADER_BYTES).ok_or(PacketError::Short { bytes: bytes.len() })?;
        let u16_at = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) << 16 | u32::from(u16_at(at + 2));
        if u16_at(12) != ETHERTYPE_IPV4 || headers[14] != 0x45 || headers[23] != PROTOCOL {
            return Err(PacketError::Foreign);
        }
        let flags = headers[LNIC];
        let is_data = flags & flag::DATA != 0;
        if is_data == (flags & (flag::ACK | flag::NACK | flag::PULL) != 0)
            || flags & flag::UNKNOWN != 0
            || is_data && flags & flag::ECHO != 0
        {
            return Err(PacketError::Flags(flags));
        }
        let message_bytes = u16_at(LNIC + 5);
        let packet_offset = headers[LNIC + 7];
        let start = usize::from(packet_offset) * SEGMENT_BYTES;
        let carries = is_data && flags & flag::CHOP == 0;
        let expected = match carries {
            true => usize::from(message_bytes).saturating_sub(start).min(SEGMENT_BYTES),
            false => 0,
        };
        let is_whole = usize::from(packet_offset) < packets_of(message_bytes)
            && usize::from(message_bytes) <= MESSAGE_BYTES_MAX;
        if !is_whole && is_data {
            return Err(PacketError::Length);
        }
        Ok(Packet {
            source: u32_at(26),
            destination: u32_at(30),
            flags,
            source_context: u16_at(LNIC + 1),
            destination_context: u16_at(LNIC + 3),
            message_bytes,
            packet_offset,
            pull_offset: u16_at(LNIC + 8),
            message: u16_at(LNIC + 10),
            buffer: u16_at(LNIC + 12),
            buffer_class: headers[LNIC + 14],
            priority: headers[TYPE_OF_SERVICE] >> PRECEDENCE_SHIFT,
            grant_priority: headers[LNIC + 15],
            ecn: Ecn::of_bits(headers[TYPE_OF_SERVICE]),
            payload: rest.get(..expected).ok_or(PacketError::Length)?.to_vec(),
        })
    }
}

/// How many packets a message of so many bytes has; at least one.
pub fn packets_of(message_bytes: u16) -> usize {
    usize::from(message_bytes).div_ceil(SEGMENT_BYTES).max(1)
}

/// The words of a payload; the last one is filled up with zeroes.
pub fn words_of(payload: &[u8]) -> impl Iterator<Item = u64> + '_ {
    payload.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_be_bytes(word)
    })
}

impl fmt::Display for PacketError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketError::Short { bytes } => {
                write!(out, "{bytes} bytes are less than the headers' {HEADER_BYTES}")
            }
            PacketError::Foreign => write!(out, "not IPv4 with protocol {PROTOCOL:#x}"),
            PacketError::Length => write!(out, "the lengths in the headers contradict each other"),
            PacketError::Flags(flags) => write!(out, "flags {flags:#04x} are no kind of packet"),
        }
    }
}

impl std::error::Error for PacketError {}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    fn data(bytes: usize) -> Packet {
        Packet {
            source: 0x0a00_0001,
            destination: 0x0a00_0002,
            flags: flag::DATA,
            source_context: 3,
            destination_context: 4,
            message_bytes: bytes as u16,
            message: 77,
            buffer: 5,
            buffer_class: 1,
            payload: (0..bytes).map(|byte| byte as u8).collect(),
            ..Packet::default()
        }
    }

    #[test]
    fn packets_survive_the_wire() {
        for bytes in [0, 1, 8, 16, 1024] {
            let packet = data(bytes);
            assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
        }
        let pull = Packet { flags: flag::ACK | flag::PULL, pull_offset: 9, payload: vec![], ..data(16) };
        let pull = Packet { priority: 7, grant_priority: 2, ..pull };
        assert_eq!(Packet::decode(&pull.encode()), Ok(pull.clone()));
        let echo = Packet { flags: flag::ACK | flag::ECHO, ..pull };
        assert_eq!(Packet::decode(&echo.encode()), Ok(echo));
        for ecn in [Ecn::NotCapable, Ecn::Capable, Ecn::Marked] {
            let packet = Packet { ecn, priority: 5, ..data(100) };
            assert_eq!(packet.reply(flag::ACK).ecn, Ecn::NotCapable);
            assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
        }
        let echo_of_data = Packet { flags: flag::DATA | flag::ECHO, ..data(100) };
        assert!(matches!(Packet::decode(&echo_of_data.encode()), Err(PacketError::Flags(_))));
        let mut trimmed = data(1000);
        trimmed.trim();
        assert_eq!(trimmed.wire_bytes(), 72);
        assert_eq!(Packet::decode(&trimmed.encode()), Ok(trimmed));
    }

    #[test]
    fn damage_is_an_error_or_another_packet_but_never_a_panic() {
        let mut rng = Rng::new(1);
        let good = data(100).encode();
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..rng.between(1, 4) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u32() as u8;
            }
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            let _ = Packet::decode(&bytes);
        }
        assert_eq!(Packet::decode(&good[..63]), Err(PacketError::Short { bytes: 63 }));
        assert_eq!(Packet::decode(&good[..163]), Err(PacketError::Length));
    }

    #[test]
    fn a_message_begins_with_its_header() {
        let header = AppHeader { peer: 0x0a00_0001, context: 2, bytes: 16 };
        assert_eq!(header.word(), 0x0a00_0001_0002_0010);
        assert_eq!(AppHeader::from_word(header.word()), header);
        let words: Vec<_> = words_of(&[1, 2, 3, 4, 5, 6, 7, 8, 9]).collect();
        assert_eq!(words, [0x0102_0304_0506_0708, 0x0900_0000_0000_0000]);
    }
}
