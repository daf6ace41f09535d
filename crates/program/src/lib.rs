//! What the programs of Highwire have in common: output, values as people write them, progress, failures,
//! the allocator, and the broker that a device may start from either of them.
//!
//! Every command of both programs keeps one contract: status 0 after success, 1 after failure, 2 after a
//! wrong command line; `--json` prints documents; a reader that goes away is no error.

/// The version, with the commit where the sources are a checkout.
pub const VERSION: &str = env!("HIGHWIRE_VERSION");

pub mod broker;
pub mod console;
pub mod failure;
pub mod laboratory;
pub mod manual;
pub mod pages;
pub mod progress;
pub mod values;
