//! Receive queues, private or shared: the application posts buffers, the engine takes them.
//!
//! ```text
//!   0 ┌──────────────────────────────┬─────────┬────────────────────────────────┐
//!     │ wr_id u64                    │ num_sge │ zero                           │
//!  16 ├──────────────────────────────┼─────────┴────────┬───────────────────────┤
//!     │ addr u64                     │ length u32       │ lkey u32              │  × num_sge
//!     └──────────────────────────────┴──────────────────┴───────────────────────┘
//! ```
//!
//! A slot of 64 bytes holds 3 SGEs, one of 128 bytes 7, one of 320 bytes 16.

use crate::layout::{LayoutError, RingKind, RingLayout};
use crate::ring::{Consumer, CursorError, PostError, Producer};
use crate::send::{BadWqe, BadWqeKind, MAX_SGES, Sge};
use crate::window::Window;

/// Bytes of a receive WQE before its SGEs.
const CONTROL_BYTES: usize = 16;

/// A receive WQE without its SGEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveWqe {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// SGEs in the slot.
    pub num_sge: u8,
}

/// The application's end of a receive queue.
#[derive(Debug)]
pub struct ReceiveQueueProducer(Producer);

/// The engine's end of a receive queue.
#[derive(Debug)]
pub struct ReceiveQueueConsumer(Consumer);

/// A receive WQE that the engine has found.
#[derive(Debug)]
pub struct ReceiveSlot<'a> {
    window: &'a Window,
    sges: usize,
    sges_max: usize,
    control: [u64; 2],
}

impl ReceiveQueueProducer {
    /// Takes the producing end of a receive ring.
    ///
    /// # Errors
    /// What is wrong with the header or its cursors.
    pub fn attach(window: &Window) -> Result<ReceiveQueueProducer, LayoutError> {
        Producer::attach(window, RingKind::Receive).map(ReceiveQueueProducer)
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        &self.0.shape.layout
    }

    /// Writes a WQE into the next slot. The engine sees it after [`publish_release`](Self::publish_release).
    ///
    /// # Errors
    /// [`PostError`]; the queue is as before.
    #[inline]
    pub fn post(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let max = sges_max(self.0.shape.slot_bytes());
        if sges.len() > max {
            return Err(PostError::TooManySges { max });
        }
        if self.0.free()? == 0 {
            return Err(PostError::Full);
        }
        let slot = self.0.slot();
        let window = &self.0.shape.window;
        window.store_words_relaxed(slot, &[wr_id, sges.len() as u64]);
        for (i, sge) in sges.iter().enumerate() {
            window.store_words_relaxed(slot + CONTROL_BYTES + 16 * i, &sge.encode());
        }
        self.0.advance();
        Ok(())
    }

    /// Makes every posted WQE visible to the engine; true if there was any.
    #[inline]
    pub fn publish_release(&mut self) -> bool {
        self.0.publish_release()
    }

    /// Slots that are free, as far as the engine has told.
    ///
    /// # Errors
    /// [`CursorError`] if the engine's cursor is impossible.
    pub fn free_slots(&mut self) -> Result<u64, CursorError> {
        self.0.observe_head_acquire()
    }
}

impl ReceiveQueueConsumer {
    /// Takes the consuming end of a receive ring.
    ///
    /// # Errors
    /// What is wrong with the header or its cursors.
    pub fn attach(window: &Window) -> Result<ReceiveQueueConsumer, LayoutError> {
        Consumer::attach(window, RingKind::Receive).map(ReceiveQueueConsumer)
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        &self.0.shape.layout
    }

    /// Receives that wait.
    ///
    /// # Errors
    /// [`CursorError`] if the application's cursor is impossible.
    #[inline]
    pub fn available(&mut self) -> Result<u64, CursorError> {
        self.0.available()
    }

    /// Receives that wait, freshly counted: the SRQ's limit event needs the exact number.
    ///
    /// # Errors
    /// As for [`available`](Self::available).
    pub fn observe_available_acquire(&mut self) -> Result<u64, CursorError> {
        self.0.observe_tail_acquire()
    }

    /// Copies the oldest waiting WQE's control part out, if there is one. [`advance`](Self::advance) passes it.
    ///
    /// # Errors
    /// As for [`available`](Self::available).
    #[inline]
    pub fn peek(&mut self) -> Result<Option<ReceiveSlot<'_>>, CursorError> {
        if self.0.available()? == 0 {
            return Ok(None);
        }
        let slot = self.0.slot();
        let shape = &self.0.shape;
        Ok(Some(ReceiveSlot {
            control: shape.window.load_words_relaxed(slot),
            window: &shape.window,
            sges: slot + CONTROL_BYTES,
            sges_max: sges_max(shape.slot_bytes()),
        }))
    }

    /// Passes the WQE that `peek` showed.
    #[inline]
    pub fn advance(&mut self) {
        self.0.advance();
    }

    /// Gives the slots of all passed WQEs back to the application.
    #[inline]
    pub fn release(&mut self) {
        self.0.release();
    }
}

impl ReceiveSlot<'_> {
    /// The control part with its meaning.
    ///
    /// # Errors
    /// [`BadWqe`] if it claims more SGEs than the slot holds.
    #[inline]
    pub fn wqe(&self) -> Result<ReceiveWqe, BadWqe> {
        let [wr_id, counts] = self.control;
        let num_sge = counts as u8;
        if usize::from(num_sge) > self.sges_max {
            return Err(BadWqe { wr_id, kind: BadWqeKind::SgeCount(num_sge) });
        }
        Ok(ReceiveWqe { wr_id, num_sge })
    }

    /// Copies the SGEs into `buffer` and returns them; nothing beyond the slot, whatever `num_sge` says.
    #[inline]
    pub fn sges<'b>(&self, buffer: &'b mut [Sge; MAX_SGES]) -> &'b [Sge] {
        let count = usize::from(self.control[1] as u8).min(self.sges_max);
        for (i, sge) in buffer[..count].iter_mut().enumerate() {
            *sge = Sge::decode(self.window.load_words_relaxed(self.sges + 16 * i));
        }
        &buffer[..count]
    }
}

fn sges_max(slot_bytes: usize) -> usize {
    ((slot_bytes - CONTROL_BYTES) / 16).min(MAX_SGES)
}
