//! How many of everything a device has, and how large.

use crate::device::Device;
use highwire_rings::{MAX_INLINE_BYTES, MAX_SGES};
use highwire_rnic::Rnic;
use highwire_verbs::MESSAGE_LENGTH_MAX;

/// The doorbells of a lane: one for each queue pair and each shared receive queue.
pub(crate) const BELLS: u32 = 4096;

/// The limits of a device. A request within them is refused only if memory runs out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Queue pairs of one lane, if there is no shared receive queue.
    pub max_qp: u32,
    /// Requests of one queue.
    pub max_wr: u32,
    /// SGEs of one request.
    pub max_sge: u32,
    /// Bytes of inline data of one request.
    pub max_inline: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Completions of one queue.
    pub max_cqe: u32,
    /// Shared receive queues of one lane, if there is no queue pair.
    pub max_srq: u32,
    /// Regions and windows together.
    pub max_mr: u32,
    /// Bytes of one region.
    pub max_mr_bytes: u64,
    /// Bytes of one message.
    pub max_message_bytes: u32,
    /// READs and atomics at once on one queue pair, in either direction.
    pub max_rd_atomic: u32,
}

impl Device {
    /// The device's limits.
    pub fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            max_qp: BELLS,
            max_wr: Rnic::QUEUE_MAX,
            max_sge: MAX_SGES as u32,
            max_inline: MAX_INLINE_BYTES as u32,
            max_cq: 1 << 16,
            max_cqe: 1 << 20,
            max_srq: BELLS,
            max_mr: 1 << 20,
            max_mr_bytes: 1 << 47,
            max_message_bytes: MESSAGE_LENGTH_MAX,
            max_rd_atomic: 128,
        }
    }
}
