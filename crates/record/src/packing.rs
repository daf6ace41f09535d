//! An entry as eight words of 64 bits.
//!
//! ```text
//! word 0   stamp: place + 1 (48 bits) | kind (8) | device (8)
//! word 1   time in nanoseconds
//! 2 … 7    by kind; a line goes on in the words 1 … 7 of the entries behind it
//! ```

use crate::entry::{About, Event, Packet, PacketFate, Request};
use highwire_verbs::{CompletionOp, CompletionStatus, Gid, QpState, Service};
use highwire_wire::Syndrome;
use highwire_wire::cm::CmAttribute;

/// Words of an entry behind stamp and time.
pub(crate) const BODY_WORDS: usize = 6;
/// Bytes of a line in its first entry, and in each of the next.
pub(crate) const TEXT_FIRST_BYTES: usize = 8 * (BODY_WORDS - 1);
pub(crate) const TEXT_MORE_BYTES: usize = 8 * (BODY_WORDS + 1);
/// The longest line.
pub(crate) const TEXT_BYTES_MAX: usize = 1000;
/// Bytes of a device's name.
const NAME_BYTES: usize = 32;
/// Bits of a queue pair's number.
const QPN_MASK: u64 = 0xFF_FFFF;

/// The kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Device = 1,
    State = 2,
    Destroyed = 3,
    Posted = 4,
    ReceivePosted = 5,
    Completed = 6,
    Packet = 7,
    Text = 8,
    /// A line goes on.
    More = 9,
}

impl Kind {
    pub(crate) fn from_u8(number: u8) -> Option<Kind> {
        use Kind::*;
        let all = [Device, State, Destroyed, Posted, ReceivePosted, Completed, Packet, Text, More];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

pub(crate) type Body = [u64; BODY_WORDS];

const STAMP_BITS: u32 = 48;

/// The stamp of the entry at a place.
#[inline]
pub(crate) fn stamp(place: u64, kind: Kind, device: u8) -> u64 {
    (place + 1) & ((1 << STAMP_BITS) - 1) | (kind as u64) << STAMP_BITS | u64::from(device) << 56
}

/// The place, the kind's number and the device of a stamp; `None` if nothing was written.
pub(crate) fn read_stamp(stamp: u64) -> Option<(u64, u8, u8)> {
    let place = (stamp & ((1 << STAMP_BITS) - 1)).checked_sub(1)?;
    Some((place, (stamp >> STAMP_BITS) as u8, (stamp >> 56) as u8))
}

#[inline]
fn gid_words(gid: Gid) -> [u64; 2] {
    let (low, high) = gid.0.split_at(8);
    [low, high].map(|half| u64::from_le_bytes(half.try_into().expect("a GID has 16 bytes")))
}

fn gid(words: &[u64]) -> Gid {
    let mut bytes = [0; 16];
    words.iter().zip(bytes.chunks_mut(8)).for_each(|(word, to)| to.copy_from_slice(&word.to_le_bytes()));
    Gid(bytes)
}

/// A line is no entry of one piece, and is written elsewhere.
#[inline]
pub(crate) fn pack(event: &Event) -> (Kind, Body) {
    match event {
        Event::Posted(request) => (Kind::Posted, pack_request(request)),
        Event::Packet(packet) => (Kind::Packet, pack_packet(packet)),
        &Event::ReceivePosted { qpn, wr_id, length } => {
            (Kind::ReceivePosted, [u64::from(qpn), wr_id, length, 0, 0, 0])
        }
        &Event::Completed { qpn, wr_id, status, operation, bytes } => {
            let what = u64::from(qpn) | (status as u64) << 32 | (operation as u64) << 40;
            (Kind::Completed, [what, wr_id, u64::from(bytes), 0, 0, 0])
        }
        &Event::Destroyed { qpn } => (Kind::Destroyed, [u64::from(qpn), 0, 0, 0, 0, 0]),
        &Event::State { qpn, service, from, to, peer_qpn, peer, retry_count, rnr_retry, timeout } => {
            let [low, high] = gid_words(peer);
            let states = number_of_service(service) | number_of_state(from) << 8 | number_of_state(to) << 16;
            let limits = u64::from(retry_count) << 24 | u64::from(rnr_retry) << 32 | u64::from(timeout) << 40;
            (Kind::State, [u64::from(qpn), states | limits, u64::from(peer_qpn), low, high, 0])
        }
        Event::Device { gid, name } => {
            let [low, high] = gid_words(*gid);
            let mut bytes = [0; NAME_BYTES];
            let cut = floor_boundary(name, NAME_BYTES);
            bytes[..cut].copy_from_slice(&name.as_bytes()[..cut]);
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[8 * at + i]));
            (Kind::Device, [low, high, word(0), word(1), word(2), word(3)])
        }
        Event::Text { .. } => (Kind::Text, [0; BODY_WORDS]),
    }
}

#[inline]
fn pack_request(request: &Request) -> Body {
    let &Request { qpn, wr_id, operation, length, signaled, direct, va, rkey, to_qpn } = request;
    let what =
        u64::from(qpn) | (operation as u64) << 32 | u64::from(signaled) << 40 | u64::from(direct) << 41;
    [what, wr_id, va, u64::from(rkey) | u64::from(length) << 32, u64::from(to_qpn), 0]
}

#[inline]
fn pack_packet(packet: &Packet) -> Body {
    let &Packet { fate, qpn, to_qpn, opcode, psn, length, syndrome, peer, management } = packet;
    let syndrome = syndrome.map_or(0, |syndrome| 0x100 | u64::from(syndrome.to_u8()));
    let [low, high] = gid_words(peer);
    let ends = u64::from(qpn) & QPN_MASK | u64::from(opcode) << 24 | (u64::from(to_qpn) & QPN_MASK) << 32;
    let what = u64::from(psn) | syndrome << 24 | u64::from(fate as u8) << 40;
    [ends, what, u64::from(length), low, high, management.map_or(0, |attribute| attribute as u64)]
}

fn number_of_state(state: QpState) -> u64 {
    QpState::ALL.iter().position(|known| *known == state).unwrap_or(0) as u64
}

const SERVICES: [Service; 6] =
    [Service::Rc, Service::Uc, Service::Ud, Service::Raw, Service::XrcInitiator, Service::XrcTarget];

fn number_of_service(service: Service) -> u64 {
    SERVICES.iter().position(|known| *known == service).unwrap_or(0) as u64
}

/// The byte of a word.
fn byte(word: u64, shift: u32) -> u8 {
    (word >> shift) as u8
}

/// A queue pair's number; `None` if it has too many bits.
fn number(word: u64) -> Option<u32> {
    u32::try_from(word).ok().filter(|number| u64::from(*number) <= QPN_MASK)
}

/// The event of an entry in one piece; `None` if the words do not make sense.
pub(crate) fn unpack(kind: Kind, body: &Body) -> Option<Event> {
    Some(match kind {
        Kind::Device => {
            let bytes: Vec<u8> = body[2..].iter().flat_map(|word| word.to_le_bytes()).collect();
            let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).replace(char::is_control, " ");
            Event::Device { gid: gid(&body[..2]), name }
        }
        Kind::State => Event::State {
            qpn: number(body[0])?,
            service: *SERVICES.get(usize::from(byte(body[1], 0)))?,
            from: *QpState::ALL.get(usize::from(byte(body[1], 8)))?,
            to: *QpState::ALL.get(usize::from(byte(body[1], 16)))?,
            retry_count: byte(body[1], 24),
            rnr_retry: byte(body[1], 32),
            timeout: byte(body[1], 40),
            peer_qpn: number(body[2])?,
            peer: gid(&body[3..5]),
        },
        Kind::Destroyed => Event::Destroyed { qpn: number(body[0])? },
        Kind::Posted => Event::Posted(Request {
            qpn: number(body[0] & u64::from(u32::MAX))?,
            operation: CompletionOp::from_u8(byte(body[0], 32))?,
            signaled: body[0] >> 40 & 1 == 1,
            direct: body[0] >> 41 & 1 == 1,
            wr_id: body[1],
            va: body[2],
            rkey: body[3] as u32,
            length: (body[3] >> 32) as u32,
            to_qpn: number(body[4])?,
        }),
        Kind::ReceivePosted => {
            Event::ReceivePosted { qpn: number(body[0])?, wr_id: body[1], length: body[2] }
        }
        Kind::Completed => Event::Completed {
            qpn: number(body[0] & u64::from(u32::MAX))?,
            status: CompletionStatus::from_u8(byte(body[0], 32))?,
            operation: CompletionOp::from_u8(byte(body[0], 40))?,
            wr_id: body[1],
            bytes: u32::try_from(body[2]).ok()?,
        },
        Kind::Packet => {
            let syndrome = body[1] >> 24 & 0xFFFF;
            Event::Packet(Packet {
                fate: PacketFate::from_u8(byte(body[1], 40))?,
                qpn: (body[0] & QPN_MASK) as u32,
                opcode: byte(body[0], 24),
                to_qpn: (body[0] >> 32 & QPN_MASK) as u32,
                psn: (body[1] & QPN_MASK) as u32,
                length: u32::try_from(body[2]).ok()?,
                syndrome: if syndrome & 0x100 == 0 { None } else { Some(Syndrome::from_u8(syndrome as u8)?) },
                peer: gid(&body[3..5]),
                management: match body[5] {
                    0 => None,
                    id => Some(CmAttribute::from_id(u16::try_from(id).ok()?)?),
                },
            })
        }
        Kind::Text | Kind::More => return None,
    })
}

/// The head of a line: what it is about, its queue pair, and its length in bytes.
pub(crate) fn text_head(about: About, qpn: u32, length: usize) -> u64 {
    about as u64 | u64::from(qpn) << 8 | (length as u64) << 32
}

pub(crate) fn read_text_head(word: u64) -> Option<(About, u32, usize)> {
    let length = usize::try_from(word >> 32).ok().filter(|length| *length <= TEXT_BYTES_MAX)?;
    Some((About::from_u8(word as u8)?, (word >> 8 & QPN_MASK) as u32, length))
}

/// The entries that a line of `length` bytes takes.
pub(crate) fn text_entries(length: usize) -> u64 {
    1 + length.saturating_sub(TEXT_FIRST_BYTES).div_ceil(TEXT_MORE_BYTES) as u64
}

/// The longest beginning of at most `most` bytes that ends with a whole character.
pub(crate) fn floor_boundary(text: &str, most: usize) -> usize {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    #[test]
    fn entries_come_back_as_they_were_packed() {
        let gid = Gid::from_ip([127, 83, 20, 7].into());
        let events = [
            Event::Device { gid, name: "mlx5_0".into() },
            Event::State {
                qpn: 0xFF_FFFF,
                service: Service::XrcTarget,
                from: QpState::Rts,
                to: QpState::Error,
                peer_qpn: 0x12,
                peer: gid,
                retry_count: 7,
                rnr_retry: 6,
                timeout: 14,
            },
            Event::Destroyed { qpn: 3 },
            Event::Posted(Request {
                qpn: 0x12,
                wr_id: u64::MAX,
                operation: CompletionOp::FetchAdd,
                length: u32::MAX,
                signaled: true,
                direct: false,
                va: 1 << 63,
                rkey: u32::MAX,
                to_qpn: 9,
            }),
            Event::ReceivePosted { qpn: 0x12, wr_id: 5, length: 1 << 33 },
            Event::Completed {
                qpn: 0x12,
                wr_id: 77,
                status: CompletionStatus::RnrRetryExceeded,
                operation: CompletionOp::ReceiveWriteImm,
                bytes: u32::MAX,
            },
            Event::Packet(Packet {
                fate: PacketFate::FaultDamaged,
                qpn: 0x12,
                to_qpn: 0xFF_FFFE,
                opcode: 0xD0,
                psn: 0xFF_FFFF,
                length: 4096,
                syndrome: Some(Syndrome::Rnr { timer: 31 }),
                peer: gid,
                management: Some(CmAttribute::Drep),
            }),
        ];
        for event in events {
            let (kind, body) = pack(&event);
            assert_eq!(unpack(kind, &body), Some(event));
        }
    }

    /// Any words are an event or none.
    #[test]
    fn no_words_are_too_strange() {
        let mut rng = Rng::new(7);
        for _ in 0..200_000 {
            let kind = Kind::from_u8(rng.between(0, 10) as u8);
            let body: Body = std::array::from_fn(|_| rng.next_u64() >> rng.between(0, 63));
            if let Some(kind) = kind {
                let _ = unpack(kind, &body);
            }
            let _ = read_text_head(body[0]);
            let _ = read_stamp(body[1]);
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(floor_boundary("abc", 9), 3);
        assert_eq!(floor_boundary("aé", 2), 1);
        assert_eq!((text_entries(0), text_entries(40), text_entries(41), text_entries(97)), (1, 1, 2, 3));
    }
}
