//! Memory for rings: shared, so that another program of this user can be given it.

use crate::error::CreateError;
use highwire_uapi::{RingLayout, Segment, Window};
use std::sync::Arc;

/// An empty ring in memory of its own.
pub(crate) fn create(layout: &RingLayout) -> Result<Window, CreateError> {
    let segment = Segment::anonymous_shared(layout.bytes()).map_err(CreateError::Memory)?;
    let window = Window::whole(&Arc::new(segment));
    layout.create(&window)?;
    Ok(window)
}

/// The bytes of a send slot that holds so many SGEs and inline bytes.
pub(crate) fn send_slot_bytes(max_sge: u32, max_inline: u32) -> u32 {
    if max_sge <= 4 && max_inline <= 64 { 128 } else { 320 }
}

/// The bytes of a receive slot that holds so many SGEs.
pub(crate) fn receive_slot_bytes(max_sge: u32) -> u32 {
    match max_sge {
        0..=3 => 64,
        4..=7 => 128,
        _ => 320,
    }
}
