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

use crate::send::{BadWqe, BadWqeKind, MAX_SGES, decode_sge, encode_sge, has_room};
use std::sync::atomic::{Ordering, fence};

use highwire_shmem::{Consumer, CursorError, LayoutError, Producer, RingKind, RingLayout, Window, offset};
use highwire_verbs::{PostError, RecvWr, Sge};

/// Rings of receive WQEs, of a QP or an SRQ; the application produces.
pub const RECEIVE_RING: RingKind = RingKind::new(2, 64, 320);

/// Bytes of a receive WQE before its SGEs.
const CONTROL_BYTES: usize = 16;

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
    /// The error in the header or its cursors.
    pub fn attach(window: &Window) -> Result<ReceiveQueueProducer, LayoutError> {
        Producer::attach(window, RECEIVE_RING).map(ReceiveQueueProducer)
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        self.0.layout()
    }

    /// Writes a request into the next slot. The engine sees it after [`publish_release`](Self::publish_release).
    ///
    /// # Errors
    /// [`QueueFull`](PostError::QueueFull), [`TooManySges`](PostError::TooManySges), or
    /// [`NoSuchQueue`](PostError::NoSuchQueue) if the engine's cursor is impossible; the queue is as before.
    #[inline]
    pub fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if wr.sges.len() > sges_max(self.0.layout().slot_bytes()) {
            return Err(PostError::TooManySges);
        }
        has_room(&mut self.0)?;
        let slot = self.0.slot();
        let window = self.0.window();
        window.store_words_relaxed(slot, &[wr.wr_id, wr.sges.len() as u64]);
        for (i, sge) in wr.sges.iter().enumerate() {
            window.store_words_relaxed(slot + CONTROL_BYTES + 16 * i, &encode_sge(sge));
        }
        self.0.advance();
        Ok(())
    }

    /// Makes every posted WQE visible to the engine; true if there was any.
    #[inline]
    pub fn publish_release(&mut self) -> bool {
        self.0.publish_release()
    }

    /// The number of free slots, as far as the engine has published.
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
    /// The error in the header or its cursors.
    pub fn attach(window: &Window) -> Result<ReceiveQueueConsumer, LayoutError> {
        Consumer::attach(window, RECEIVE_RING).map(ReceiveQueueConsumer)
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        self.0.layout()
    }

    /// The number of receives that wait.
    ///
    /// # Errors
    /// [`CursorError`] if the application's cursor is impossible.
    #[inline]
    pub fn available(&mut self) -> Result<u64, CursorError> {
        self.0.available()
    }

    /// The number of receives that wait, counted anew: the SRQ's limit event needs the exact number.
    ///
    /// # Errors
    /// As for [`available`](Self::available).
    pub fn observe_available_acquire(&mut self) -> Result<u64, CursorError> {
        self.0.observe_tail_acquire()
    }

    /// Copies the oldest waiting WQE's control part out, if there is one. [`advance`](Self::advance) moves
    /// past it.
    ///
    /// # Errors
    /// As for [`available`](Self::available).
    #[inline]
    pub fn peek(&mut self) -> Result<Option<ReceiveSlot<'_>>, CursorError> {
        if self.0.available()? == 0 {
            return Ok(None);
        }
        let slot = self.0.slot();
        Ok(Some(ReceiveSlot {
            control: self.0.window().load_words_relaxed(slot),
            window: self.0.window(),
            sges: slot + CONTROL_BYTES,
            sges_max: sges_max(self.0.layout().slot_bytes()),
        }))
    }

    /// Takes the oldest waiting WQE of a queue from which peers take WQEs as well; `buffer` is for its SGEs.
    ///
    /// # Errors
    /// As for [`available`](Self::available); inside, [`BadWqe`] if the WQE claims more SGEs than the slot
    /// holds.
    pub fn claim<'b>(
        &mut self,
        buffer: &'b mut [Sge; MAX_SGES],
    ) -> Result<Option<Result<RecvWr<'b>, BadWqe>>, CursorError> {
        let sges_max = sges_max(self.layout().slot_bytes());
        let claimed = self.0.claim(|window, at| {
            let mut sges = [Sge::default(); MAX_SGES];
            let slot = ReceiveSlot {
                control: window.load_words_relaxed(at),
                window,
                sges: at + CONTROL_BYTES,
                sges_max,
            };
            let found = slot.request(&mut sges).map(|wr| (wr.wr_id, wr.sges.len()));
            (found, sges)
        })?;
        Ok(claimed.map(|(found, sges)| {
            found.map(|(wr_id, count)| {
                *buffer = sges;
                RecvWr { wr_id, sges: &buffer[..count] }
            })
        }))
    }

    /// Publishes whether the engine holds receives that it has taken and not used: then no peer may take a
    /// later one.
    pub fn hold_release(&self, holds: bool) {
        self.0.window().u64_at(offset::HELD).store(u64::from(holds), Ordering::Release);
    }

    /// Sets whether the application must ring for each receive from now on. The engine looks at the queue
    /// once more afterwards.
    pub fn want_seqcst(&self, wants: bool) {
        self.0.window().u64_at(offset::WANTED).store(u64::from(wants), Ordering::SeqCst);
        // Store of the word, then load of tail: only a full fence keeps this order.
        fence(Ordering::SeqCst);
    }

    /// Moves past the WQE that `peek` returned.
    #[inline]
    pub fn advance(&mut self) {
        self.0.advance();
    }

    /// Gives the slots of all used WQEs back to the application.
    #[inline]
    pub fn release(&mut self) {
        self.0.release();
    }
}

impl ReceiveSlot<'_> {
    /// The application's receive; `buffer` is for its SGEs.
    ///
    /// # Errors
    /// [`BadWqe`] if the WQE claims more SGEs than the slot holds.
    #[inline]
    pub fn request<'b>(&self, buffer: &'b mut [Sge; MAX_SGES]) -> Result<RecvWr<'b>, BadWqe> {
        let [wr_id, counts] = self.control;
        let num_sge = counts as u8;
        if usize::from(num_sge) > self.sges_max {
            return Err(BadWqe { wr_id, kind: BadWqeKind::SgeCount(num_sge) });
        }
        let buffer = &mut buffer[..usize::from(num_sge)];
        for (i, sge) in buffer.iter_mut().enumerate() {
            *sge = decode_sge(self.window.load_words_relaxed(self.sges + 16 * i));
        }
        Ok(RecvWr { wr_id, sges: buffer })
    }
}

fn sges_max(slot_bytes: usize) -> usize {
    ((slot_bytes - CONTROL_BYTES) / 16).min(MAX_SGES)
}
