//! Completion queues: the engine writes CQEs, the application reads them.
//!
//! ```text
//!   0 ┌──────────────────────────────┬────────┬────────┬──────────────┬──────────────────┐
//!     │ wr_id u64                    │ status │ opcode │ wc_flags u16 │ zero             │
//!  16 ├──────────────┬───────────────┼────────┴────────┴──────────────┼──────────────────┤
//!     │ byte_len u32 │ imm u32       │ qpn u32                        │ src_qpn u32      │
//!  32 ├──────────────┴───────────────┴────────────────────────────────┴──────────────────┤
//!     │ reserved, zero                                                                   │
//!  48 ├──────────────────────────────┬─────────────────┬─────────────────────────────────┤
//!     │ tag u64                      │ tag_context u32 │ reserved, zero                  │
//!     └──────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Arming: the application stores `arm`, then looks at the ring once more; the engine publishes, then looks at `arm`.
//! A full fence between the two steps on both sides makes a lost wake-up impossible.

use std::sync::atomic::{Ordering, fence};

use highwire_shmem::{Consumer, CursorError, LayoutError, Producer, RingKind, RingLayout, Window, offset};
use highwire_verbs::{Completion, CompletionFlags, CompletionOp, CompletionStatus, TagFlags};
use highwire_wire::Qpn;
use std::fmt;

/// Rings of CQEs; the engine produces.
pub const COMPLETION_RING: RingKind = RingKind::new(3, CQE_BYTES, CQE_BYTES);

/// Bytes of a CQE.
pub const CQE_BYTES: u32 = 64;

/// Bits of a CQE's `wc_flags`, those of `ibv_wc_flags`; the bits of tag matching lie between them.
mod flag {
    pub(super) const GRH: u16 = 1;
    pub(super) const WITH_IMM: u16 = 2;
    pub(super) const WITH_INVALIDATE: u16 = 8;
}

/// An entry of the ring: a completion, and the fields that tag matching adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// The completion. Whether it was solicited is an argument of the push; the ring does not keep it.
    pub completion: Completion,
    /// The tag of a message that a tagged buffer was waiting for.
    pub tag: u64,
    /// The sender's 32 bits beside the tag.
    pub tag_context: u32,
}

/// Why a CQE was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// The queue overran.
    Overrun,
    /// The application's cursor has an impossible value.
    Corrupt(CursorError),
}

/// The completions for which the application wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Arm {
    /// The next completion of a solicited message, or the next failed one.
    Solicited = 1,
    /// The next completion.
    Next = 2,
}

/// The engine's end of a completion queue.
#[derive(Debug)]
pub struct CompletionQueueProducer {
    ring: Producer,
    /// The strongest reason to wake the application among the CQEs since the last look at `arm`.
    pending: u64,
    /// The number of CQEs written when the last one for a solicited message, or for a failure, was.
    urgent: u64,
}

/// The application's end of a completion queue.
#[derive(Debug)]
pub struct CompletionQueueConsumer(Consumer);

impl CompletionQueueProducer {
    /// Takes the producing end of a completion ring.
    ///
    /// # Errors
    /// The error in the header or its cursors.
    pub fn attach(window: &Window) -> Result<CompletionQueueProducer, LayoutError> {
        let ring = Producer::attach(window, COMPLETION_RING)?;
        Ok(CompletionQueueProducer { ring, pending: 0, urgent: 0 })
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        self.ring.layout()
    }

    /// Writes a CQE.
    ///
    /// # Errors
    /// [`PushError::Overrun`]: the loss is counted in the header; the CQ and its QPs must go to the error
    /// state (IBTA §10.8.1).
    #[inline]
    pub fn push(&mut self, cqe: &Cqe) -> Result<(), PushError> {
        if self.ring.free().map_err(PushError::Corrupt)? == 0 {
            return self.overrun();
        }
        let window = self.ring.window();
        window.store_words_relaxed(self.ring.slot(), &cqe.encode());
        self.ring.advance();
        let completion = &cqe.completion;
        let wakes_all = completion.flags.solicited || completion.status != CompletionStatus::Success;
        self.pending |= if wakes_all { 3 } else { 2 };
        if wakes_all {
            self.urgent = self.ring.filled();
        }
        Ok(())
    }

    /// The number of CQEs written since the ring was made.
    #[inline]
    pub fn pushed(&self) -> u64 {
        self.ring.filled()
    }

    /// The number of CQEs written when the last one for a solicited message or for a failure was; 0 if there
    /// was none.
    #[inline]
    pub fn urgent(&self) -> u64 {
        self.urgent
    }

    /// Says that the last CQE written is one of a solicited message or of a failure: one that was moved from another ring, where only this
    /// count told so.
    pub fn note_urgent(&mut self) {
        self.urgent = self.ring.filled();
    }

    /// How many of them the application has taken, freshly looked at; none are counted if its cursor is impossible.
    pub fn observe_taken_acquire(&mut self) -> u64 {
        self.ring.observe_head_acquire().map_or(0, |_| self.ring.given_back())
    }

    /// Makes every pushed CQE visible; true if there was any.
    #[inline]
    pub fn publish_release(&mut self) -> bool {
        self.ring.publish_release()
    }

    /// Whether the CQEs published since the last call should wake the application; disarms the queue if so.
    ///
    /// Call it after [`publish_release`](Self::publish_release), once per batch, for queues that have a channel.
    /// It contains a full fence.
    pub fn take_notification(&mut self) -> bool {
        let pending = std::mem::take(&mut self.pending);
        if pending == 0 {
            return false;
        }
        // Store of tail, then load of arm: only a full fence keeps this order.
        fence(Ordering::SeqCst);
        let arm = self.ring.window().u64_at(offset::ARM);
        let wanted = arm.load(Ordering::Relaxed);
        let wakes = match wanted {
            0 => false,
            1 => pending & 1 != 0,
            _ => true,
        };
        wakes && arm.swap(0, Ordering::AcqRel) != 0
    }

    #[cold]
    fn overrun(&mut self) -> Result<(), PushError> {
        self.ring.window().u64_at(offset::OVERRUN).fetch_add(1, Ordering::Release);
        Err(PushError::Overrun)
    }
}

impl CompletionQueueConsumer {
    /// Takes the consuming end of a completion ring.
    ///
    /// # Errors
    /// The error in the header or its cursors.
    pub fn attach(window: &Window) -> Result<CompletionQueueConsumer, LayoutError> {
        Consumer::attach(window, COMPLETION_RING).map(CompletionQueueConsumer)
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        self.0.layout()
    }

    /// Takes the oldest completion, and gives its slot back to the engine at once.
    ///
    /// # Errors
    /// [`CursorError`] if the engine's cursor is impossible.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Cqe>, CursorError> {
        if self.0.available()? == 0 {
            return Ok(None);
        }
        let words = self.0.window().load_words_relaxed(self.0.slot());
        self.0.advance();
        self.0.release();
        Ok(Some(Cqe::decode(&words)))
    }

    /// The number of completions that wait, counted anew.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn observe_available_acquire(&mut self) -> Result<u64, CursorError> {
        self.0.observe_tail_acquire()
    }

    /// Asks for one wake-up; then returns whether completions are waiting already, in which case no wake-up for
    /// them may come and the caller should poll before it sleeps (IBTA §11.4.2.2).
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn arm(&mut self, what: Arm) -> Result<bool, CursorError> {
        self.available_after_arm(what).map(|available| available > 0)
    }

    /// As [`arm`](Self::arm), but returns how many completions wait.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn available_after_arm(&mut self, what: Arm) -> Result<u64, CursorError> {
        let arm = self.0.window().u64_at(offset::ARM);
        // A weaker request does not replace a stronger one that is still open.
        arm.fetch_max(what as u64, Ordering::AcqRel);
        // Store of arm, then load of tail: only a full fence keeps this order.
        fence(Ordering::SeqCst);
        self.0.observe_tail_acquire()
    }

    /// Takes the request for a wake-up back; false if the wake-up is on its way.
    pub fn disarm(&mut self) -> bool {
        self.0.window().u64_at(offset::ARM).swap(0, Ordering::AcqRel) != 0
    }

    /// The number of CQEs that the engine had published since the ring was made at the last look.
    pub fn observed(&self) -> u64 {
        self.0.observed()
    }

    /// The armed request, until the engine has woken the application for it.
    pub fn armed(&self) -> Option<Arm> {
        match self.0.window().u64_at(offset::ARM).load(Ordering::Acquire) {
            0 => None,
            1 => Some(Arm::Solicited),
            _ => Some(Arm::Next),
        }
    }

    /// CQEs that the engine could not deliver because the ring was full.
    pub fn overruns(&self) -> u64 {
        self.0.window().u64_at(offset::OVERRUN).load(Ordering::Acquire)
    }
}

impl From<Completion> for Cqe {
    #[inline]
    fn from(completion: Completion) -> Cqe {
        Cqe { completion, tag: 0, tag_context: 0 }
    }
}

impl Cqe {
    #[inline]
    fn encode(&self) -> [u64; 8] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let Completion { wr_id, status, operation, byte_len, immediate, qpn, source_qpn, flags } =
            self.completion;
        let bit = |set: bool, flag: u16| if set { flag } else { 0 };
        let wc_flags = bit(flags.grh, flag::GRH)
            | bit(flags.with_immediate, flag::WITH_IMM)
            | bit(flags.with_invalidate, flag::WITH_INVALIDATE)
            | u16::from(flags.tags.0);
        let kind = u64::from(status as u8) | u64::from(operation as u8) << 8 | u64::from(wc_flags) << 16;
        [
            wr_id,
            kind,
            pair(byte_len, immediate),
            pair(qpn.value(), source_qpn.value()),
            0,
            0,
            self.tag,
            u64::from(self.tag_context),
        ]
    }

    /// Unknown numbers, which only a corrupt ring can hold, decode to an error of the queue pair itself and to SEND.
    #[inline]
    fn decode(words: &[u64; 8]) -> Cqe {
        let wc_flags = (words[1] >> 16) as u16;
        let completion = Completion {
            wr_id: words[0],
            status: CompletionStatus::from_u8(words[1] as u8).unwrap_or(CompletionStatus::LocalQpOperation),
            operation: CompletionOp::from_u8((words[1] >> 8) as u8).unwrap_or(CompletionOp::Send),
            byte_len: words[2] as u32,
            immediate: (words[2] >> 32) as u32,
            qpn: Qpn::new(words[3] as u32),
            source_qpn: Qpn::new((words[3] >> 32) as u32),
            flags: CompletionFlags {
                grh: wc_flags & flag::GRH != 0,
                with_immediate: wc_flags & flag::WITH_IMM != 0,
                with_invalidate: wc_flags & flag::WITH_INVALIDATE != 0,
                solicited: false,
                tags: TagFlags(wc_flags as u8 & TagFlags::ALL.0),
            },
        };
        Cqe { completion, tag: words[6], tag_context: words[7] as u32 }
    }
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PushError::Overrun => write!(f, "the completion queue overran"),
            PushError::Corrupt(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PushError {}
