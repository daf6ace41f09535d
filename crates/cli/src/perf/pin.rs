//! A core for each end: two pollers on one core only wait for each other.

use highwire_link::floor;

/// The first two cores that this process may use; `None` if it has only one.
pub(super) fn two_cores() -> Option<[usize; 2]> {
    match floor::allowed_cores().unwrap_or_default().as_slice() {
        [first, second, ..] => Some([*first, *second]),
        _ => None,
    }
}

/// Binds the calling thread. A refusal only makes the figures less steady.
pub(super) fn bind(core: usize) {
    let _ = floor::pin_to_core(core);
}
