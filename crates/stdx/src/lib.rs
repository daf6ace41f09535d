//! What std lacks: integer time, a seeded generator, slabs, maps of random numbers, counts in sentences.
//!
//! Nothing here knows about RDMA, and nothing here touches the outside world: time and seeds are arguments
//! everywhere above this crate, and these are their types.
#![forbid(unsafe_code)]

mod id_map;
mod rng;
mod slab;
mod time;
pub mod words;

pub use id_map::IdMap;
pub use rng::Rng;
pub use slab::Slab;
pub use time::{Duration, Instant};
