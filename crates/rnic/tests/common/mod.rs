//! RNICs in memory, on one virtual timeline, with a network between them that misbehaves on request.
//!
//! [`Net`] is the driver that a world would be: it delivers, drains and keeps the time. [`Bytes`] and [`Lengths`] are two
//! kinds of memory under it; [`Faults`] and single rules decide what becomes of each packet. Everything follows from seeds.
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
