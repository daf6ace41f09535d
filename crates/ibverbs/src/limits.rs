//! The limits of the device.

/// Requests of one queue.
pub(crate) const MAX_WR: u32 = 16 * 1024;
/// SGEs of one request.
pub(crate) const MAX_SGE: u32 = 16;
/// Inline bytes of one request.
pub(crate) const MAX_INLINE: u32 = 256;
/// Inline bytes are granted in multiples of this, which is also the least: the smallest slot of a ring holds
/// as many.
pub(crate) const INLINE_STEP: u32 = 64;
/// Completions of one queue.
pub(crate) const MAX_CQE: u32 = 1 << 20;
/// Queue pairs: each needs one of the lane's 4096 doorbells, and so does each shared receive queue.
pub(crate) const MAX_QP: u32 = 4096 - MAX_SRQ;
/// Shared receive queues.
pub(crate) const MAX_SRQ: u32 = 256;
/// Entries of a table of work queues, as a power of two.
pub(crate) const MAX_SPREAD_LOG: u32 = 10;
/// Buffers in a list of tags.
pub(crate) const MAX_TAGS: u32 = 1024;
/// Bytes of a rendezvous' header that are looked at or skipped.
pub(crate) const MAX_RENDEZVOUS: u32 = 64;
/// READs and atomics at once.
pub(crate) const MAX_RD_ATOMIC: u8 = 16;
/// Multicast groups: as many as Linux lets a socket join.
pub(crate) const MAX_GROUPS: u32 = 20;
/// Bytes of device memory.
pub(crate) const MAX_DM: u64 = 1 << 20;
/// The number of objects that only memory limits.
pub(crate) const MANY: u32 = 64 * 1024;
/// Memory regions.
pub(crate) const MAX_MR: u32 = 8 * MANY;
/// The only port.
pub(crate) const PORT: u8 = 1;
/// GIDs: the address, twice, because scripts written for the kernel's software RNIC use the second.
pub(crate) const GIDS: u32 = 2;
/// Places of the GID table.
pub(crate) const GID_TABLE: u32 = 16;
/// The default P_Key, the only one.
pub(crate) const PKEY: u16 = 0xFFFF;
/// Nanoseconds: the unit of completion timestamps, as kHz.
pub(crate) const CLOCK_KHZ: u64 = 1_000_000;
