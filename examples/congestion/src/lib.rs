//! Congestion controls and loss recoveries of one's own, beside those that come with Highwire.
//!
//! Each is one file: a state machine, and an [`Algorithm`](highwire_transport::congestion::Algorithm) that names it. After
//! [`register`] plans know their names, and so do devices. `docs/own-algorithms.md` walks through [`swift`].

pub mod duplicates;
pub mod hpcc;
pub mod sparing;
pub mod swift;

use highwire_transport::congestion::{self, RegisterError};

/// Makes all names known.
///
/// # Errors
/// [`RegisterError`]: another algorithm has one of the names.
pub fn register() -> Result<(), RegisterError> {
    congestion::register(&swift::SWIFT)?;
    congestion::register(&hpcc::HPCC)?;
    duplicates::register();
    sparing::register();
    Ok(())
}
