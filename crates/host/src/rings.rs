//! Memory for rings: shared, so that another program of this user can map it.

use crate::error::CreateError;
use highwire_shmem::{RingLayout, Segment, SharedPool, WholeSegment, Window};
use std::sync::Arc;

/// Cursors have 128 bytes each to themselves.
const RING_ALIGN: usize = 128;

/// Where the rings of an object lie.
#[derive(Clone, Copy)]
pub(crate) enum Home<'a> {
    /// In memory of this process, whose threads use them: many rings in one file.
    Arena(&'a SharedPool),
    /// In files of the device's directory: another program is the application.
    Files(&'a SharedPool),
}

/// A ring's memory, with the file that it is if another program is to map it.
pub(crate) struct Ring {
    pub(crate) window: Window,
    pub(crate) file: Option<WholeSegment>,
}

/// The place of a ring, for another program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingFile {
    /// The number in `mem-<number>`; 0 if there is no such ring.
    pub(crate) segment: u32,
    /// Its length.
    pub(crate) bytes: usize,
}

impl Home<'_> {
    /// An empty ring.
    pub(crate) fn create(self, layout: &RingLayout) -> Result<Ring, CreateError> {
        match self {
            Home::Arena(pool) => Ok(Ring { window: create(pool, layout)?, file: None }),
            Home::Files(pool) => {
                let file = pool.whole(layout.bytes()).map_err(CreateError::Memory)?;
                layout.create(file.window())?;
                Ok(Ring { window: file.window().clone(), file: Some(file) })
            }
        }
    }
}

impl Ring {
    /// The ring's place, for another program.
    pub(crate) fn place(file: Option<&WholeSegment>) -> RingFile {
        file.map_or_else(RingFile::default, |file| RingFile {
            segment: file.id(),
            bytes: file.window().len(),
        })
    }
}

/// An empty ring in memory of the arena, to which it returns when its last user drops it.
pub(crate) fn create(arena: &SharedPool, layout: &RingLayout) -> Result<Window, CreateError> {
    let buffer = arena.allocate(layout.bytes(), RING_ALIGN).map_err(CreateError::Memory)?;
    let window = Window::whole(&Arc::new(Segment::cut(buffer)));
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
