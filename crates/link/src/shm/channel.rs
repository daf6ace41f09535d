//! A ring of packets from one lane of one engine to one lane of another: a file of the sender's.
//!
//! ```text
//!   0 ┌──────────────────────────┬─────────────┬──────────────────┐
//!     │ "HWCHANNL"               │ version u32 │ slot_count u32   │  constant after the magic shows
//!  16 ├──────────────────────────┼─────────────┴──────────────────┤
//!     │ data_bytes u64           │ the sender's generation u64    │
//! 128 ├──────────────────────────┼────────────────────────────────┤
//!     │ sender_closed u64        │                                │  sender writes
//! 256 ├──────────────────────────┼────────────────────────────────┤
//!     │ head u64: slots consumed │ receiver_closed u64            │  receiver writes
//! 512 ├──────────────────────────┴────────────────────────────────┤
//!     │ slot_count × 64 bytes:  header u64 · 56 bytes             │
//!     ├───────────────────────────────────────────────────────────┤
//!     │ data_bytes: packets above 224 bytes, each in one piece    │
//!     └───────────────────────────────────────────────────────────┘
//!
//! header   sequence u32 (slot's number + 1) · length u16 · form u16
//! form     1 here      up to 56 bytes follow the header
//!          2 several   up to 224 bytes, in up to four slots, each with a header and 56 bytes
//!          3 apart     the next word says where in the data the packet lies
//!          + 0x8000    the next packet lies in slot 0; slots in between are left out
//! ```
//!
//! The header word of a slot is its doorbell, so a packet of up to 56 bytes crosses from core to core as one cache
//! line. Only headers ever stand where headers are looked for, and a header of an earlier lap carries another sequence
//! number: it is lower by some multiple of `slot_count`, but by less than 2^32, since every slot is used that often.

use std::sync::atomic::Ordering;

use highwire_shmem::{LayoutError, Window};

use super::layout::VERSION;

/// The longest packet: a payload of 4096 bytes with all headers, and room for jumbo ones.
pub const PACKET_MAX_BYTES: usize = 9216;

/// Bytes of a packet in one slot.
pub(super) const SLOT_PAYLOAD_BYTES: usize = 56;

/// Packets up to this length go into slots.
pub(super) const SLOTS_PACKET_MAX_BYTES: usize = 4 * SLOT_PAYLOAD_BYTES;

pub(super) const HERE: u16 = 1;
pub(super) const SEVERAL: u16 = 2;
pub(super) const APART: u16 = 3;
/// Added to the form of the last packet of a lap that ends early. Slots left out count as used.
pub(super) const LAST: u16 = 0x8000;

const MAGIC: u64 = u64::from_le_bytes(*b"HWCHANNL");
const SENDER_CLOSED: usize = 128;
const HEAD: usize = 256;
const RECEIVER_CLOSED: usize = 264;
const SLOTS: usize = 512;
const SLOT_BYTES: usize = 64;
const SLOT_COUNT_MAX: u32 = 1 << 20;
const DATA_BYTES_MAX: usize = 1 << 30;

/// How large a channel is.
#[derive(Clone, Copy, Debug)]
pub struct ChannelConfig {
    /// Packets of up to 56 bytes in flight; rounded up to a power of two, at least 8.
    pub slots: u32,
    /// Bytes for packets above 224 bytes; rounded up to a power of two, at least twice the longest packet.
    pub data_bytes: usize,
}

impl Default for ChannelConfig {
    fn default() -> ChannelConfig {
        ChannelConfig { slots: 1024, data_bytes: 1 << 20 }
    }
}

/// Memory to send from, by address.
#[derive(Clone, Copy, Debug)]
pub struct RawSlice {
    /// First byte.
    pub address: *const u8,
    /// Bytes.
    pub len: usize,
}

/// Where everything lies in a channel's file.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) window: Window,
    slot_mask: u64,
    pub(super) data_bytes: u64,
    data: usize,
}

impl Channel {
    pub(super) fn bytes(config: &ChannelConfig) -> Result<usize, LayoutError> {
        let (slots, data_bytes) = Channel::sizes(config)?;
        Ok(SLOTS + slots as usize * SLOT_BYTES + data_bytes)
    }

    fn sizes(config: &ChannelConfig) -> Result<(u32, usize), LayoutError> {
        if config.slots > SLOT_COUNT_MAX {
            return Err(LayoutError::SlotCount { found: config.slots });
        }
        if config.data_bytes > DATA_BYTES_MAX {
            let found = config.data_bytes as u64;
            return Err(LayoutError::TotalBytes { found, mapped: DATA_BYTES_MAX });
        }
        let data_bytes = config.data_bytes.max(2 * PACKET_MAX_BYTES).next_power_of_two();
        Ok((config.slots.max(8).next_power_of_two(), data_bytes))
    }

    /// Makes an empty channel in zeroed memory.
    pub(super) fn create(
        window: &Window,
        config: &ChannelConfig,
        generation: u64,
    ) -> Result<Channel, LayoutError> {
        let (slots, data_bytes) = Channel::sizes(config)?;
        let sizes = u64::from(VERSION) | u64::from(slots) << 32;
        window.store_words_relaxed(8, &[sizes, data_bytes as u64, generation]);
        window.u64_at(0).store(MAGIC, Ordering::Release);
        Channel::open(window, generation)
    }

    /// Checks a channel's header, and returns its layout or the error.
    pub(super) fn open(window: &Window, generation: u64) -> Result<Channel, LayoutError> {
        if window.len() < SLOTS {
            return Err(LayoutError::OutOfBounds { offset: 0, len: SLOTS, mapped: window.len() });
        }
        let magic = window.u64_at(0).load(Ordering::Acquire);
        let [sizes, data_bytes, found] = window.load_words_relaxed(8);
        let slots = (sizes >> 32) as u32;
        if magic != MAGIC || found != generation {
            return Err(LayoutError::Magic { found: magic as u32 });
        }
        if sizes as u32 != VERSION {
            return Err(LayoutError::Version { found: sizes as u16 });
        }
        let config = ChannelConfig { slots, data_bytes: usize::try_from(data_bytes).unwrap_or(usize::MAX) };
        if Channel::sizes(&config)? != (slots, config.data_bytes) {
            return Err(LayoutError::SlotCount { found: slots });
        }
        let data = SLOTS + slots as usize * SLOT_BYTES;
        if window.len() < data + config.data_bytes {
            return Err(LayoutError::TotalBytes { found: data_bytes, mapped: window.len() });
        }
        Ok(Channel { window: window.clone(), slot_mask: u64::from(slots) - 1, data_bytes, data })
    }

    #[inline]
    pub(super) fn slot_count(&self) -> u64 {
        self.slot_mask + 1
    }

    /// The place of a slot among all slots.
    #[inline]
    pub(super) fn index(&self, cursor: u64) -> usize {
        (cursor & self.slot_mask) as usize
    }

    /// Where the next lap begins, if `cursor` does not begin one itself.
    #[inline]
    pub(super) fn lap_end(&self, cursor: u64) -> u64 {
        cursor.wrapping_add(self.slot_mask) & !self.slot_mask
    }

    #[inline]
    pub(super) fn slot(&self, cursor: u64) -> usize {
        SLOTS + self.index(cursor) * SLOT_BYTES
    }

    /// The place in the window of a place in the data.
    #[inline]
    pub(super) fn data(&self, position: u64) -> usize {
        self.data + (position & (self.data_bytes - 1)) as usize
    }

    #[inline]
    pub(super) fn head(&self) -> &std::sync::atomic::AtomicU64 {
        self.window.u64_at(HEAD)
    }

    #[inline]
    pub(super) fn sender_closed(&self) -> &std::sync::atomic::AtomicU64 {
        self.window.u64_at(SENDER_CLOSED)
    }

    #[inline]
    pub(super) fn receiver_closed(&self) -> &std::sync::atomic::AtomicU64 {
        self.window.u64_at(RECEIVER_CLOSED)
    }
}

/// The doorbell of the slot `cursor`.
#[inline]
pub(super) fn header(cursor: u64, length: usize, form: u16) -> u64 {
    u64::from(sequence(cursor)) | (length as u64) << 32 | u64::from(form) << 48
}

/// The low half that a new header in a slot has.
#[inline]
pub(super) fn sequence(cursor: u64) -> u32 {
    (cursor as u32).wrapping_add(1)
}
