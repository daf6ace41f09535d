//! The NIC: from words on the wire to words in a core's queue, and back.

mod select;

pub use select::{Selection, Selector};
