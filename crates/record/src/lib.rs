//! What a device did, in a file that is there after any end of its process: requests, completions, packets, faults, states.
//!
//! `highwire run --record` makes the file ([`create`]), each process that opens a device takes a part of it ([`Recorder`]) and writes
//! into its mapping, and a reader makes sense of whatever is there ([`Reader`]). Bytes of messages are never kept.
//!
//! ```text
//! file    header (4,096 bytes) | part | part | …                                one part per process
//! part    header (4,096 bytes) | kept entries | ring of entries                 64 bytes per entry
//! ```
//!
//! Invariants:
//!
//! - The kept entries are the first that tell of trouble: no later traffic overwrites the first cause. The ring has the last of all others.
//! - A writer is a store into mapped memory: no system call, no lock, and nothing to be flushed when the process is killed.
//! - An entry counts only if its stamp, which is written last, names its place. So a torn entry is recognised and left out.
//! - A reader trusts no byte: any file gives entries or an error.
#![forbid(unsafe_code)]

mod entry;
mod file;
mod packing;
mod reader;
mod recorder;

pub use entry::{About, Entry, Event, Packet, PacketFate, Request};
pub use file::{CreateError, HEADER_BYTES, PARTS_MAX, Shape, create};
pub use reader::{Part, ReadError, Reader, read_part};
pub use recorder::{OpenError, Recorder, Tap};

/// The version of the format. A reader reads its own version only.
pub const VERSION: u32 = 2;
