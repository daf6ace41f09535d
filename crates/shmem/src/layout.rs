//! The header that every ring begins with, and its validation.
//!
//! ```text
//!   0 ┌──────────────┬─────────┬──────────┬──────────────┬──────────────┐
//!     │ magic u32    │ version │ kind u16 │ slot_bytes   │ slot_count   │  constant after creation
//!     │ "HWRG"       │ u16     │          │ u32          │ u32 (2^n)    │
//!  16 ├──────────────┼─────────┴──────────┼──────────────┴──────────────┤
//!     │ slots_offset │ ring_id u32        │ total_bytes u64             │
//!  32 ├──────────────┼────────────────────┴─────────────────────────────┤
//!     │ doorbell u32 │ reserved, zero                                   │
//! 128 ├──────────────┴─────────────────┬────────────────────────────────┤
//!     │ tail u64: slots ever published │ overrun u64 (CQ)               │  written by the producer
//! 144 │ in_use u64 (SQ)                │ reserved                       │
//! 256 ├────────────────────────────────┼────────────────────────────────┤
//!     │ head u64: slots ever consumed  │ reserved                       │  written by the consumer
//! 384 ├────────────────────────────────┼────────────────────────────────┤
//!     │ arm u64 (CQ)                   │ reserved                       │  set by consumer, cleared by producer
//! 512 ├────────────────────────────────┴────────────────────────────────┤
//!     │ slot 0, slot 1, … slot_count − 1                                │
//!     └─────────────────────────────────────────────────────────────────┘
//! ```

use std::fmt;
use std::sync::atomic::Ordering;

use crate::window::Window;

/// The version of every layout in this crate; readers refuse any other.
pub const VERSION: u16 = 1;

/// Bytes before the first slot.
pub const RING_HEADER_BYTES: usize = 512;

/// "HWRG" as a little-endian word.
const RING_MAGIC: u32 = u32::from_le_bytes(*b"HWRG");

/// More slots than this would only hide an overflow.
const SLOT_COUNT_MAX: u32 = 1 << 22;

/// Offsets in a ring's header, in bytes. `docs/uapi.md` repeats them for other languages.
pub mod offset {
    /// `u32`, "HWRG".
    pub const MAGIC: usize = 0;
    /// `u16`, [`VERSION`](super::VERSION).
    pub const VERSION: usize = 4;
    /// `u16`, the number of a [`RingKind`](super::RingKind).
    pub const KIND: usize = 6;
    /// `u32`, bytes per slot.
    pub const SLOT_BYTES: usize = 8;
    /// `u32`, a power of two.
    pub const SLOT_COUNT: usize = 12;
    /// `u32`, the offset of slot 0.
    pub const SLOTS_OFFSET: usize = 16;
    /// `u32`, the QPN, SRQN or CQN.
    pub const RING_ID: usize = 20;
    /// `u64`, header and slots.
    pub const TOTAL_BYTES: usize = 24;
    /// `u32`, the bit of this ring on its lane's doorbell board; `u32::MAX` if it has none.
    pub const DOORBELL: usize = 32;
    /// `u64`, slots ever published: the producer's cursor, and the ring's doorbell.
    pub const TAIL: usize = 128;
    /// `u64`, CQEs lost because the ring was full.
    pub const OVERRUN: usize = 136;
    /// `u64`, what the application of a send ring works on without the engine: as `in_use` of a channel, or
    /// 0.
    pub const IN_USE: usize = 144;
    /// `u64`, receives that peers have completed themselves in rings of queue pairs that complete here (CQ).
    pub const COMPLETED: usize = 144;
    /// `u64`, slots ever consumed.
    pub const HEAD: usize = 256;
    /// `u64`, 1 while the engine holds receives of this ring that it has yet to use (RQ on demand).
    pub const HELD: usize = 264;
    /// `u64`, 0 not armed, 1 the next solicited completion, 2 the next completion.
    pub const ARM: usize = 384;
    /// `u64`, the number of the wake-up socket to which a peer writes that finds the queue armed; 0 if
    /// there is none (CQ).
    pub const BELL: usize = 392;
    /// `u64`, 1 if the engine wants a bell for receives nevertheless (RQ on demand).
    pub const WANTED: usize = 392;
}

/// The kind of a ring, defined by the crate above that fills its slots: a number, and the sizes of slots that
/// suit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingKind {
    number: u16,
    slot_bytes_min: u32,
    slot_bytes_max: u32,
}

/// A ring's header as found in memory, not yet validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are those of the picture above.
pub struct RingHeader {
    pub magic: u32,
    pub version: u16,
    pub kind: u16,
    pub slot_bytes: u32,
    pub slot_count: u32,
    pub slots_offset: u32,
    pub ring_id: u32,
    pub total_bytes: u64,
    pub doorbell: u32,
}

/// The shape of a ring: a validated header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    kind: RingKind,
    slot_bytes: u32,
    slot_count: u32,
    ring_id: u32,
    doorbell: Option<u32>,
}

/// Why memory is not a valid layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Display says what each field is.
pub enum LayoutError {
    OutOfBounds { offset: usize, len: usize, mapped: usize },
    Misaligned { offset: usize },
    Magic { found: u32 },
    Version { found: u16 },
    Kind { found: u16 },
    SlotBytes { found: u32 },
    SlotCount { found: u32 },
    SlotsOffset { found: u32 },
    TotalBytes { found: u64, mapped: usize },
    Cursors { tail: u64, head: u64 },
}

impl RingHeader {
    /// Copies the header out of the start of a window.
    ///
    /// # Errors
    /// [`LayoutError::OutOfBounds`] if the window is shorter than a header.
    pub fn read(window: &Window) -> Result<RingHeader, LayoutError> {
        if window.len() < RING_HEADER_BYTES {
            return Err(LayoutError::OutOfBounds { offset: 0, len: RING_HEADER_BYTES, mapped: window.len() });
        }
        // The magic is stored last with Release, so a header that shows it is complete.
        let magic = window.u32_at(offset::MAGIC).load(Ordering::Acquire);
        let words = window.load_words_relaxed::<5>(0);
        Ok(RingHeader {
            magic,
            version: (words[0] >> 32) as u16,
            kind: (words[0] >> 48) as u16,
            slot_bytes: words[1] as u32,
            slot_count: (words[1] >> 32) as u32,
            slots_offset: words[2] as u32,
            ring_id: (words[2] >> 32) as u32,
            total_bytes: words[3],
            doorbell: words[4] as u32,
        })
    }
}

impl RingLayout {
    /// A ring of `slot_count` slots (rounded up to a power of two) of `slot_bytes` (a multiple of 64).
    ///
    /// # Errors
    /// [`LayoutError::SlotBytes`] or [`LayoutError::SlotCount`].
    pub fn new(kind: RingKind, slot_count: u32, slot_bytes: u32) -> Result<RingLayout, LayoutError> {
        let rounded =
            slot_count.checked_next_power_of_two().filter(|&n| slot_count > 0 && n <= SLOT_COUNT_MAX);
        let slot_count = rounded.ok_or(LayoutError::SlotCount { found: slot_count })?;
        if !kind.allows_slot_bytes(slot_bytes) {
            return Err(LayoutError::SlotBytes { found: slot_bytes });
        }
        Ok(RingLayout { kind, slot_bytes, slot_count, ring_id: 0, doorbell: None })
    }

    /// The same shape with the QPN, SRQN or CQN in its header.
    pub fn with_ring_id(self, ring_id: u32) -> RingLayout {
        RingLayout { ring_id, ..self }
    }

    /// The same shape, naming the bit of the lane's doorbell board that announces work.
    pub fn with_doorbell(self, bit: u32) -> RingLayout {
        RingLayout { doorbell: Some(bit), ..self }
    }

    /// Validates a header of a ring of this kind. `mapped_len` is the number of bytes mapped, from the start
    /// of the header.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn validate(
        header: &RingHeader,
        kind: RingKind,
        mapped_len: usize,
    ) -> Result<RingLayout, LayoutError> {
        if header.magic != RING_MAGIC {
            return Err(LayoutError::Magic { found: header.magic });
        }
        if header.version != VERSION {
            return Err(LayoutError::Version { found: header.version });
        }
        if header.kind != kind.number {
            return Err(LayoutError::Kind { found: header.kind });
        }
        let layout = RingLayout::new(kind, header.slot_count, header.slot_bytes)?;
        if layout.slot_count != header.slot_count {
            return Err(LayoutError::SlotCount { found: header.slot_count });
        }
        if header.slots_offset as usize != RING_HEADER_BYTES {
            return Err(LayoutError::SlotsOffset { found: header.slots_offset });
        }
        if header.total_bytes != layout.bytes() as u64 || layout.bytes() > mapped_len {
            return Err(LayoutError::TotalBytes { found: header.total_bytes, mapped: mapped_len });
        }
        let doorbell = (header.doorbell != u32::MAX).then_some(header.doorbell);
        Ok(RingLayout { ring_id: header.ring_id, doorbell, ..layout })
    }

    /// Makes an empty ring at the start of a window: zero cursors, and the magic after the rest of the
    /// header.
    ///
    /// # Errors
    /// [`LayoutError::OutOfBounds`] if the window is too short.
    pub fn create(&self, window: &Window) -> Result<(), LayoutError> {
        if window.len() < self.bytes() {
            return Err(LayoutError::OutOfBounds { offset: 0, len: self.bytes(), mapped: window.len() });
        }
        window.store_words_relaxed::<64>(0, &[0; 64]);
        let low = u64::from(VERSION) << 32 | u64::from(self.kind.number) << 48;
        let doorbell = self.doorbell.unwrap_or(u32::MAX);
        window.store_words_relaxed::<5>(
            0,
            &[
                low,
                u64::from(self.slot_bytes) | u64::from(self.slot_count) << 32,
                RING_HEADER_BYTES as u64 | u64::from(self.ring_id) << 32,
                self.bytes() as u64,
                u64::from(doorbell),
            ],
        );
        window.u32_at(offset::MAGIC).store(RING_MAGIC, Ordering::Release);
        Ok(())
    }

    /// The ring's kind.
    pub fn kind(&self) -> RingKind {
        self.kind
    }

    /// Bytes per slot.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes as usize
    }

    /// Slots, a power of two.
    pub fn slot_count(&self) -> usize {
        self.slot_count as usize
    }

    /// The QPN, SRQN or CQN that the creator wrote.
    pub fn ring_id(&self) -> u32 {
        self.ring_id
    }

    /// The bit of the lane's doorbell board, if the ring has one.
    pub fn doorbell(&self) -> Option<u32> {
        self.doorbell
    }

    /// Bytes of header and slots.
    pub fn bytes(&self) -> usize {
        RING_HEADER_BYTES + self.slot_bytes() * self.slot_count()
    }
}

impl RingKind {
    /// A kind with this number, whose slots have from `slot_bytes_min` to `slot_bytes_max` bytes.
    pub const fn new(number: u16, slot_bytes_min: u32, slot_bytes_max: u32) -> RingKind {
        RingKind { number, slot_bytes_min, slot_bytes_max }
    }

    /// Slots are whole cache lines, with room for the widest useful entry.
    fn allows_slot_bytes(self, slot_bytes: u32) -> bool {
        slot_bytes.is_multiple_of(64) && (self.slot_bytes_min..=self.slot_bytes_max).contains(&slot_bytes)
    }
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LayoutError::OutOfBounds { offset, len, mapped } => {
                write!(f, "{len} bytes at {offset} do not fit into the {mapped} that are mapped")
            }
            LayoutError::Misaligned { offset } => write!(f, "offset {offset} is not a multiple of 64"),
            LayoutError::Magic { found } => {
                write!(f, "the magic is {found:#010x}, so this is no Highwire memory")
            }
            LayoutError::Version { found } => {
                write!(f, "layout version {found}; this program knows {VERSION}")
            }
            LayoutError::Kind { found } => write!(f, "kind {found} is not the expected one"),
            LayoutError::SlotBytes { found } => write!(f, "slots of {found} bytes are not possible here"),
            LayoutError::SlotCount { found } => write!(f, "{found} slots are not possible here"),
            LayoutError::SlotsOffset { found } => write!(f, "slots cannot start at {found}"),
            LayoutError::TotalBytes { found, mapped } => {
                write!(f, "the header claims {found} bytes, {mapped} are mapped")
            }
            LayoutError::Cursors { tail, head } => {
                write!(f, "tail {tail} and head {head} contradict each other")
            }
        }
    }
}

impl std::error::Error for LayoutError {}
