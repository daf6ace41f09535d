//! RNICs in memory, on one virtual timeline, with a network between them that misbehaves on request.
//!
//! [`Net`] is the driver, in a world's place: it delivers, drains and keeps the time. [`Bytes`] and
//! [`Lengths`] are two kinds of memory under it; [`Faults`] and single rules decide each packet's fate.
//! Everything follows from seeds.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test binary uses a part of this")]

mod faults;
mod memory;
mod net;
mod node;
mod pair;

pub use faults::{Faults, Rule, Seen, Verdict};
pub use memory::{BASE, Bytes, Lengths, Store};
pub use net::{Link, Net};
pub use node::{Buffer, End, Node, connect, gid};
pub use pair::{A, B, BUFFER, Pair, QKEY, Setup};
