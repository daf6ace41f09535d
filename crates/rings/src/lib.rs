//! Send, receive and completion queues in shared memory: the verbs' requests and completions as slots of a ring.
//!
//! This is Highwire's "mapped hardware queues": fixed offsets, little-endian, versioned, so that Rust, C and Java
//! programs can map one file and post work without calling anything. `docs/uapi.md` draws every byte.
//!
//! Invariant: a slot is copied out before it is checked, so that the engine uses exactly what it has checked.
#![forbid(unsafe_code)]

mod completion;
mod receive;
mod send;

pub use completion::{
    Arm, COMPLETION_RING, CQE_BYTES, CompletionQueueConsumer, CompletionQueueProducer, Cqe, PushError,
};
pub use receive::{RECEIVE_RING, ReceiveQueueConsumer, ReceiveQueueProducer, ReceiveSlot};
pub use send::{
    BadWqe, BadWqeKind, MAX_INLINE_BYTES, MAX_SGES, SEND_RING, SendQueueConsumer, SendQueueProducer, SendSlot,
};
