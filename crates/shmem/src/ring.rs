//! The two ends of a single-producer, single-consumer ring of fixed slots.
//!
//! Cursors count slots ever published (`tail`) and ever consumed (`head`); they never wrap in practice. Each
//! side owns one cursor, keeps it privately, and publishes it; of the other's it keeps a cached copy and
//! reads the shared one only when the cache shows no free or filled slot. A cursor that the other side could
//! not have reached is a [`CursorError`].

use std::fmt;
use std::sync::atomic::Ordering;

use crate::layout::{LayoutError, RING_HEADER_BYTES, RingHeader, RingKind, RingLayout, offset};
use crate::window::Window;

/// The other side published an impossible cursor: its memory is corrupt, and the ring is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorError {
    /// This side's cursor, in slots.
    pub own: u64,
    /// The cursor that the other side published.
    pub found: u64,
}

/// The part of a ring's state that both ends have.
#[derive(Debug)]
struct Shape {
    window: Window,
    layout: RingLayout,
    mask: u64,
    slot_bytes: usize,
}

impl Shape {
    fn attach(window: &Window, kind: RingKind) -> Result<Shape, LayoutError> {
        let header = RingHeader::read(window)?;
        let layout = RingLayout::validate(&header, kind, window.len())?;
        let window = window.part(0, layout.bytes())?;
        Ok(Shape { window, mask: layout.slot_count() as u64 - 1, slot_bytes: layout.slot_bytes(), layout })
    }

    #[inline]
    fn slot_offset(&self, cursor: u64) -> usize {
        RING_HEADER_BYTES + (cursor & self.mask) as usize * self.slot_bytes
    }

    #[inline]
    fn slot_count(&self) -> u64 {
        self.mask + 1
    }

    fn cursors(&self) -> Result<(u64, u64), LayoutError> {
        let tail = self.window.u64_at(offset::TAIL).load(Ordering::Acquire);
        let head = self.window.u64_at(offset::HEAD).load(Ordering::Acquire);
        if tail.wrapping_sub(head) > self.slot_count() {
            return Err(LayoutError::Cursors { tail, head });
        }
        Ok((tail, head))
    }
}

/// The end that fills slots.
#[derive(Debug)]
pub struct Producer {
    shape: Shape,
    /// Slots written; those from `published` on are not visible yet.
    tail: u64,
    published: u64,
    head_cached: u64,
}

impl Producer {
    /// Takes the producing end of a ring of this kind that [`RingLayout::create`] has made.
    ///
    /// # Errors
    /// The error in the header or its cursors.
    pub fn attach(window: &Window, kind: RingKind) -> Result<Producer, LayoutError> {
        let shape = Shape::attach(window, kind)?;
        let (tail, head_cached) = shape.cursors()?;
        Ok(Producer { shape, tail, published: tail, head_cached })
    }

    /// The ring's memory; offsets in it count from its header.
    #[inline]
    pub fn window(&self) -> &Window {
        &self.shape.window
    }

    /// The ring's shape.
    #[inline]
    pub fn layout(&self) -> &RingLayout {
        &self.shape.layout
    }

    /// Free slots; at least one if any is free, though the consumer may have freed more meanwhile.
    ///
    /// # Errors
    /// [`CursorError`] if the consumer's cursor is impossible.
    #[inline]
    pub fn free(&mut self) -> Result<u64, CursorError> {
        let used = self.tail.wrapping_sub(self.head_cached);
        if used < self.shape.slot_count() {
            return Ok(self.shape.slot_count() - used);
        }
        self.observe_head_acquire()
    }

    /// Reads the consumer's cursor; returns the free slots.
    ///
    /// # Errors
    /// As for [`free`](Self::free).
    #[cold]
    pub fn observe_head_acquire(&mut self) -> Result<u64, CursorError> {
        // Acquire: the consumer's reads of a slot happen before the producer overwrites it.
        let head = self.shape.window.u64_at(offset::HEAD).load(Ordering::Acquire);
        let used = self.tail.wrapping_sub(head);
        if used > self.tail.wrapping_sub(self.head_cached) {
            return Err(CursorError { own: self.tail, found: head });
        }
        self.head_cached = head;
        Ok(self.shape.slot_count() - used)
    }

    /// The number of slots filled since the ring was made.
    #[inline]
    pub fn filled(&self) -> u64 {
        self.tail
    }

    /// The number of slots that the consumer had given back at the last look.
    #[inline]
    pub fn given_back(&self) -> u64 {
        self.head_cached
    }

    /// The offset of the next slot to fill. The caller has seen `free() > 0`.
    #[inline]
    pub fn slot(&self) -> usize {
        self.shape.slot_offset(self.tail)
    }

    /// Counts that slot as filled; the consumer does not see it before [`publish_release`](Self::publish_release).
    #[inline]
    pub fn advance(&mut self) {
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes every filled slot visible; true if there was any.
    #[inline]
    pub fn publish_release(&mut self) -> bool {
        let any = self.published != self.tail;
        self.published = self.tail;
        // Release: the slots' contents are visible before the cursor that covers them.
        self.shape.window.u64_at(offset::TAIL).store(self.tail, Ordering::Release);
        any
    }
}

/// How often the consumer retries a slot that another consumer takes first: the other one is soon done, and
/// then the next slot is tried.
const CLAIM_ATTEMPTS: u32 = 64;

/// The end that empties slots.
#[derive(Debug)]
pub struct Consumer {
    shape: Shape,
    head: u64,
    tail_cached: u64,
}

impl Consumer {
    /// Takes the consuming end of a ring of this kind that [`RingLayout::create`] has made.
    ///
    /// # Errors
    /// The error in the header or its cursors.
    pub fn attach(window: &Window, kind: RingKind) -> Result<Consumer, LayoutError> {
        let shape = Shape::attach(window, kind)?;
        let (tail_cached, head) = shape.cursors()?;
        Ok(Consumer { shape, head, tail_cached })
    }

    /// The ring's memory; offsets in it count from its header.
    #[inline]
    pub fn window(&self) -> &Window {
        &self.shape.window
    }

    /// The ring's shape.
    #[inline]
    pub fn layout(&self) -> &RingLayout {
        &self.shape.layout
    }

    /// Filled slots: those in the cache, or, if there are none, those that the producer has published.
    ///
    /// # Errors
    /// [`CursorError`] if the producer's cursor is impossible.
    #[inline]
    pub fn available(&mut self) -> Result<u64, CursorError> {
        if self.tail_cached != self.head {
            return Ok(self.tail_cached.wrapping_sub(self.head));
        }
        self.observe_tail_acquire()
    }

    /// Reads the producer's cursor; returns the filled slots.
    ///
    /// # Errors
    /// As for [`available`](Self::available).
    #[inline]
    pub fn observe_tail_acquire(&mut self) -> Result<u64, CursorError> {
        // Acquire: pairs with the producer's Release, so the slots up to here are complete.
        let tail = self.shape.window.u64_at(offset::TAIL).load(Ordering::Acquire);
        let available = tail.wrapping_sub(self.head);
        if available > self.shape.slot_count() || available < self.tail_cached.wrapping_sub(self.head) {
            return Err(CursorError { own: self.head, found: tail });
        }
        self.tail_cached = tail;
        Ok(available)
    }

    /// The number of slots filled since the ring was made, at the last look.
    #[inline]
    pub fn observed(&self) -> u64 {
        self.tail_cached
    }

    /// Takes the oldest filled slot of a ring from which other consumers take slots as well: it belongs to
    /// the consumer that moves the shared cursor over it. `copy` gets its offset before that is decided, and
    /// the result of `copy` counts only afterwards.
    ///
    /// # Errors
    /// As for [`available`](Self::available); also if the cursor never rests.
    pub fn claim<R>(&mut self, copy: impl Fn(&Window, usize) -> R) -> Result<Option<R>, CursorError> {
        let window = &self.shape.window;
        for _ in 0..CLAIM_ATTEMPTS {
            let head = window.u64_at(offset::HEAD).load(Ordering::Acquire);
            // Acquire: pairs with the producer's Release, so the slots up to here are complete.
            let tail = window.u64_at(offset::TAIL).load(Ordering::Acquire);
            let available = tail.wrapping_sub(head);
            if available == 0 {
                return Ok(None);
            }
            if available > self.shape.slot_count() {
                return Err(CursorError { own: head, found: tail });
            }
            let copied = copy(window, self.shape.slot_offset(head));
            let next = head.wrapping_add(1);
            // Release: this consumer's reads of the slot are done before the producer may overwrite it.
            let moved =
                window.u64_at(offset::HEAD).compare_exchange(head, next, Ordering::AcqRel, Ordering::Relaxed);
            if moved.is_ok() {
                (self.head, self.tail_cached) = (next, next);
                return Ok(Some(copied));
            }
        }
        let tail = window.u64_at(offset::TAIL).load(Ordering::Relaxed);
        Err(CursorError { own: self.head, found: tail })
    }

    /// The offset of the next filled slot. The caller has seen `available() > 0`.
    #[inline]
    pub fn slot(&self) -> usize {
        self.shape.slot_offset(self.head)
    }

    /// Moves on privately; the producer cannot reuse the slot before [`Consumer::release`].
    #[inline]
    pub fn advance(&mut self) {
        debug_assert_ne!(self.head, self.tail_cached, "advanced over a slot that was not there");
        self.head = self.head.wrapping_add(1);
    }

    /// Gives all slots that were read so far back to the producer.
    #[inline]
    pub fn release(&mut self) {
        // Release: this consumer's reads of the slots are done before the producer may overwrite them.
        self.shape.window.u64_at(offset::HEAD).store(self.head, Ordering::Release);
    }
}

impl fmt::Display for CursorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the other side's cursor {} is impossible beside ours, {}", self.found, self.own)
    }
}

impl std::error::Error for CursorError {}
