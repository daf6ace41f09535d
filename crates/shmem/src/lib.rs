//! Memory that processes share: segments and pools of it, rings of slots, doorbells, and copies of bytes that may change.
//!
//! It knows nothing of verbs: a ring is a header, two cursors and slots of equal size. The crates above
//! define the contents of slots (`rings`, `link`). Everything is little-endian and versioned, so that
//! programs in other languages can map the same file; `docs/uapi.md` draws every byte.
//!
//! Invariants: neither side trusts the other's cursors (an impossible one is an error, never undefined
//! behaviour); every shared word is accessed atomically; `unsafe` lives in `segment`, `window`, `copy` and
//! `guard` and nowhere else.
#![deny(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the shared layout is little-endian and is accessed with native atomics");

#[allow(unsafe_code)]
mod copy;
mod doorbell;
#[allow(unsafe_code)]
pub mod guard;
mod layout;
mod pool;
mod ring;
#[allow(unsafe_code)]
mod segment;
#[allow(unsafe_code)]
mod window;

pub use copy::{copy_racy, copy_racy_last_release};
pub use doorbell::{DoorbellBoard, DoorbellIter};
pub use guard::{Lost, compare_swap_guarded, copy_guarded, copy_guarded_last_release, fetch_add_guarded};
pub use layout::{LayoutError, RING_HEADER_BYTES, RingHeader, RingKind, RingLayout, VERSION, offset};
pub use pool::{DedicatedSegment, PoolError, SharedBuffer, SharedPool, WholeSegment};
pub use ring::{Consumer, CursorError, Producer};
pub use segment::Segment;
pub use window::Window;
