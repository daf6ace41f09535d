//! The engine segment, byte by byte.
//!
//! ```text
//!      0 ┌─────────────────────┬──────────────┬──────────────┐
//!        │ "HWENGINE"          │ version u32  │ lanes u32    │  constant after the magic shows
//!     16 ├─────────────────────┼──────────────┼──────────────┤
//!        │ generation u64      │ pid u32      │ uid u32      │
//!     32 ├─────────────────────┼──────────────┴──────────────┤
//!        │ start_time u64      │ gid, 16 bytes (to 56)       │
//!     64 ├──────────┬──────────┼──────────┬──────────────────┤
//!        │ qp_slots │ mr_slots │ channels │ shard, each u32  │
//!    128 ├──────────┴──────────┴──────────┴──────────────────┤
//!        │ state u64: 1 running, 2 closed                    │  owner writes
//!    136 │ life u32: see `life.rs`                           │  owner writes, the kernel marks its end
//!    256 ├───────────────────────────────────────────────────┤
//!        │ per lane 256 bytes:   0  announced u64            │  peers count up
//!        │                     128  sleeping u64             │  owner sets, peers take
//!        ├───────────────────────────────────────────────────┤
//!        │ per channel 256 bytes: see `channel slot`         │  peers announce, owner accepts and frees
//!        ├───────────────────────────────────────────────────┤
//!        │ QP table: qp_slots × 64 bytes                     │  owner writes
//!        ├───────────────────────────────────────────────────┤
//!        │ MR table: mr_slots × 64 bytes                     │  owner writes
//!        └───────────────────────────────────────────────────┘
//!
//! channel slot
//!      0  generation · state u64 (low 8 bits: 0 free, 1 announced, 2 accepted)
//!      8  the sender's gid, 16 bytes
//!     24  the sender's generation u64
//!     32  from_lane u32, to_lane u32
//!     40  number of the file `chan-<number>` in the sender's directory u32, the sender's shard u32
//!    128  in_use u64: what the sender operates on directly: 1 << 63 | qpn << 32 | rkey, or 0
//! ```

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use highwire_shmem::{LayoutError, Window};

use super::name::EngineName;

/// The version of the engine segment and the channel files; peers refuse any other.
pub(super) const VERSION: u32 = 1;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"HWENGINE");
pub(super) const STATE: usize = 128;
pub(super) const LIFE: usize = 136;
pub(super) const LANES: usize = 256;
pub(super) const LANE_BYTES: usize = 256;
pub(super) const LANE_ANNOUNCED: usize = 0;
pub(super) const LANE_SLEEPING: usize = 128;
pub(super) const CHANNEL_BYTES: usize = 256;
pub(super) const CHANNEL_IN_USE: usize = 128;
pub(super) const ENTRY_BYTES: usize = 64;

/// More lanes than this have no use.
pub(super) const LANES_MAX: u32 = 64;
const SLOTS_MAX: u32 = 1 << 20;

/// Values of `state`.
pub(super) const RUNNING: u64 = 1;
pub(super) const CLOSED: u64 = 2;

/// Low bits of a channel slot's first word.
pub(super) const FREE: u64 = 0;
pub(super) const ANNOUNCED: u64 = 1;
pub(super) const ACCEPTED: u64 = 2;

/// An engine's identity, and how its segment is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EngineHeader {
    pub(super) lanes: u32,
    pub(super) generation: u64,
    pub(super) pid: u32,
    pub(super) uid: u32,
    pub(super) start_time: u64,
    pub(super) gid: [u8; 16],
    pub(super) qp_slots: u32,
    pub(super) mr_slots: u32,
    pub(super) channel_slots: u32,
    /// If processes share the GID: the part of this one.
    pub(super) shard: u32,
}

impl EngineHeader {
    pub(super) fn bytes(&self) -> usize {
        self.mr_table() + self.mr_slots as usize * ENTRY_BYTES
    }

    pub(super) fn lane(&self, lane: u32) -> usize {
        LANES + lane as usize * LANE_BYTES
    }

    pub(super) fn channel(&self, slot: u32) -> usize {
        self.lane(self.lanes) + slot as usize * CHANNEL_BYTES
    }

    pub(super) fn qp_table(&self) -> usize {
        self.channel(self.channel_slots)
    }

    pub(super) fn mr_table(&self) -> usize {
        self.qp_table() + self.qp_slots as usize * ENTRY_BYTES
    }

    pub(super) fn gid(&self) -> IpAddr {
        gid_from_bytes(self.gid)
    }

    pub(super) fn name(&self) -> EngineName {
        EngineName::shared(self.gid(), self.shard as u8)
    }

    /// Writes the header; the magic last, so that a reader who sees it sees the rest.
    pub(super) fn write(&self, window: &Window) {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let (gid_low, gid_high) = gid_words(self.gid);
        window
            .store_words_relaxed(8, &[pair(VERSION, self.lanes), self.generation, pair(self.pid, self.uid)]);
        window.store_words_relaxed(32, &[self.start_time, gid_low, gid_high]);
        window.store_words_relaxed(
            64,
            &[pair(self.qp_slots, self.mr_slots), pair(self.channel_slots, self.shard)],
        );
        window.u64_at(STATE).store(RUNNING, Ordering::Relaxed);
        window.u64_at(0).store(MAGIC, Ordering::Release);
    }

    /// Copies the header out and checks that everything it claims is mapped.
    pub(super) fn read(window: &Window) -> Result<EngineHeader, LayoutError> {
        if window.len() < LANES {
            return Err(LayoutError::OutOfBounds { offset: 0, len: LANES, mapped: window.len() });
        }
        let magic = window.u64_at(0).load(Ordering::Acquire);
        if magic != MAGIC {
            return Err(LayoutError::Magic { found: magic as u32 });
        }
        let words = window.load_words_relaxed::<10>(0);
        let header = EngineHeader {
            lanes: (words[1] >> 32) as u32,
            generation: words[2],
            pid: words[3] as u32,
            uid: (words[3] >> 32) as u32,
            start_time: words[4],
            gid: gid_bytes(words[5], words[6]),
            qp_slots: words[8] as u32,
            mr_slots: (words[8] >> 32) as u32,
            channel_slots: words[9] as u32,
            shard: (words[9] >> 32) as u32,
        };
        if words[1] as u32 != VERSION {
            return Err(LayoutError::Version { found: words[1] as u16 });
        }
        header.check()?;
        if header.bytes() > window.len() {
            return Err(LayoutError::TotalBytes { found: header.bytes() as u64, mapped: window.len() });
        }
        Ok(header)
    }

    /// Whether the numbers make sense, and none is so large that a sum could overflow.
    pub(super) fn check(&self) -> Result<(), LayoutError> {
        if self.lanes == 0 || self.lanes > LANES_MAX {
            return Err(LayoutError::SlotCount { found: self.lanes });
        }
        for table in [self.qp_slots, self.mr_slots] {
            if !table.is_power_of_two() || table > SLOTS_MAX {
                return Err(LayoutError::SlotCount { found: table });
            }
        }
        if self.channel_slots == 0 || self.channel_slots > SLOTS_MAX {
            return Err(LayoutError::SlotCount { found: self.channel_slots });
        }
        Ok(())
    }
}

/// A channel's announcement, copied out of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) gid: [u8; 16],
    pub(super) generation: u64,
    pub(super) from_lane: u32,
    pub(super) to_lane: u32,
    pub(super) file: u32,
    pub(super) shard: u32,
}

impl Announcement {
    /// The sender's name.
    pub(super) fn name(&self) -> EngineName {
        EngineName::shared(gid_from_bytes(self.gid), self.shard as u8)
    }

    pub(super) fn write(&self, window: &Window, slot: usize) {
        let (low, high) = gid_words(self.gid);
        let lanes = u64::from(self.from_lane) | u64::from(self.to_lane) << 32;
        let file = u64::from(self.file) | u64::from(self.shard) << 32;
        window.store_words_relaxed(slot + 8, &[low, high, self.generation, lanes, file]);
    }

    pub(super) fn read(window: &Window, slot: usize) -> Announcement {
        let [low, high, generation, lanes, file] = window.load_words_relaxed(slot + 8);
        Announcement {
            gid: gid_bytes(low, high),
            generation,
            from_lane: lanes as u32,
            to_lane: (lanes >> 32) as u32,
            file: file as u32,
            shard: (file >> 32) as u32,
        }
    }
}

/// The word in which a sender announces the target of a direct operation.
pub(super) fn in_use(window: &Window, slot: usize) -> &AtomicU64 {
    window.u64_at(slot + CHANNEL_IN_USE)
}

/// A GID as the address that it stands for.
pub(super) fn gid_from_bytes(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// An address as a GID: IPv4 is mapped into IPv6 (RoCEv2 A17.4.1.2).
pub(super) fn gid_to_bytes(gid: IpAddr) -> [u8; 16] {
    match gid {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

pub(super) fn gid_words(gid: [u8; 16]) -> (u64, u64) {
    let word =
        |range: std::ops::Range<usize>| u64::from_le_bytes(gid[range].try_into().expect("eight bytes"));
    (word(0..8), word(8..16))
}

pub(super) fn gid_bytes(low: u64, high: u64) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&low.to_le_bytes());
    gid[8..].copy_from_slice(&high.to_le_bytes());
    gid
}
