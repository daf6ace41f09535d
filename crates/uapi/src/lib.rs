//! The memory that applications and the RNIC share: rings, doorbells and registered memory.
//!
//! This is Highwire's "mapped hardware queues": fixed offsets, little-endian, versioned, so that Rust, C and Java
//! programs can map one file and post work without calling anything. `docs/uapi.md` draws every byte.
//!
//! Invariants: neither side believes the other's cursors (an impossible one is an error, never undefined
//! behaviour); a slot is copied out before it is checked; every shared word is accessed atomically; `unsafe` lives
//! in `segment`, `window` and `copy` and nowhere else.
#![deny(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the shared layout is little-endian and is accessed with native atomics");

mod completion;
#[allow(unsafe_code)]
mod copy;
mod doorbell;
mod layout;
mod pool;
mod receive;
mod ring;
#[allow(unsafe_code)]
mod segment;
mod send;
#[allow(unsafe_code)]
mod window;

pub use completion::{
    Arm, CQE_BYTES, CompletionOpcode, CompletionQueueConsumer, CompletionQueueProducer, Cqe, CqeStatus,
    WcFlags,
};
pub use copy::{copy_racy, copy_racy_last_release};
pub use doorbell::{DoorbellBoard, DoorbellIter};
pub use layout::{LayoutError, RING_HEADER_BYTES, RingHeader, RingKind, RingLayout, VERSION, offset};
pub use pool::{DedicatedSegment, PoolError, SharedBuffer, SharedPool};
pub use receive::{ReceiveQueueConsumer, ReceiveQueueProducer, ReceiveSlot, ReceiveWqe};
pub use ring::{CursorError, PostError};
pub use segment::Segment;
pub use send::{
    AddressHandle, BadWqe, BadWqeKind, BindWindow, MAX_INLINE_BYTES, MAX_SGES, SendFlags, SendOpcode,
    SendQueueConsumer, SendQueueProducer, SendSlot, SendWqe, Sge, Target, WqeData,
};
pub use window::Window;
