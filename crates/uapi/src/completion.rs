//! Completion queues: the engine writes CQEs, the application reads them.
//!
//! ```text
//!   0 ┌──────────────────────────────┬────────┬────────┬──────────────┬──────────────────┐
//!     │ wr_id u64                    │ status │ opcode │ wc_flags u16 │ vendor_error u32 │
//!  16 ├──────────────┬───────────────┼────────┴────────┴──────────────┼──────────────────┤
//!     │ byte_len u32 │ imm u32       │ qpn u32                        │ src_qpn u32      │
//!  32 ├──────────────┴───────────────┼───────────────┬───────┬────────┴──────────────────┤
//!     │ timestamp_ns u64             │ slid u16      │ sl    │ path bits · pkey_index u16│
//!  48 ├──────────────────────────────┴───────────────┴───────┴───────────────────────────┤
//!     │ tag u64                      │ tag_context u32 │ reserved, zero                  │
//!     └──────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Arming: the application stores `arm`, then looks at the ring once more; the engine publishes, then looks at `arm`.
//! A full fence between the two steps on both sides makes a lost wake-up impossible.

use std::sync::atomic::{Ordering, fence};

use crate::layout::{LayoutError, RingKind, RingLayout, offset};
use crate::ring::{Consumer, CursorError, PostError, Producer};
use crate::window::Window;

/// Bytes of a CQE.
pub const CQE_BYTES: u32 = 64;

/// How work ended. The numbers are those of `ibv_wc_status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // The verbs' own names.
pub enum CqeStatus {
    #[default]
    Success = 0,
    LocalLength = 1,
    LocalQpOperation = 2,
    LocalEecOperation = 3,
    LocalProtection = 4,
    WorkRequestFlushed = 5,
    WindowBind = 6,
    BadResponse = 7,
    LocalAccess = 8,
    RemoteInvalidRequest = 9,
    RemoteAccess = 10,
    RemoteOperation = 11,
    RetryExceeded = 12,
    RnrRetryExceeded = 13,
    LocalRddViolation = 14,
    RemoteInvalidRdRequest = 15,
    RemoteAborted = 16,
    InvalidEecn = 17,
    InvalidEecState = 18,
    Fatal = 19,
    ResponseTimeout = 20,
    General = 21,
    Tag = 22,
}

/// What completed. The numbers are those of `ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // The verbs' own names.
pub enum CompletionOpcode {
    #[default]
    Send = 0,
    Write = 1,
    Read = 2,
    CompareSwap = 3,
    FetchAdd = 4,
    BindWindow = 5,
    LocalInvalidate = 6,
    Receive = 128,
    ReceiveWriteWithImm = 129,
    AddTag = 130,
    RemoveTag = 131,
    SyncTags = 132,
    ReceiveTagged = 133,
    ReceiveNoTag = 134,
}

/// Which optional fields of a CQE hold something; the bits are those of `ibv_wc_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WcFlags(pub u16);

/// A completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// Of the work request.
    pub wr_id: u64,
    /// How it ended; with anything but success only `wr_id`, `qpn` and `vendor_error` mean something.
    pub status: CqeStatus,
    /// What completed.
    pub opcode: CompletionOpcode,
    /// Which of the optional fields hold something.
    pub wc_flags: WcFlags,
    /// A finer reason for a failure.
    pub vendor_error: u32,
    /// Bytes moved.
    pub byte_len: u32,
    /// Immediate data in host order, or the rkey that the peer invalidated.
    pub imm: u32,
    /// The local QP.
    pub qpn: u32,
    /// The sending QP (UD).
    pub src_qpn: u32,
    /// When the engine produced it, in the host's monotonic nanoseconds; zero if not asked for.
    pub timestamp_ns: u64,
    /// Source LID (zero on RoCE).
    pub slid: u16,
    /// Service level (UD).
    pub service_level: u8,
    /// DLID path bits (zero on RoCE).
    pub dlid_path_bits: u8,
    /// Index of the P_Key.
    pub pkey_index: u16,
    /// The tag of a message that a tagged buffer was waiting for.
    pub tag: u64,
    /// What its sender put beside the tag.
    pub tag_context: u32,
}

/// What the application wants to be woken for.
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
    /// The strongest reason to wake somebody among the CQEs since the last look at `arm`.
    pending: u64,
}

/// The application's end of a completion queue.
#[derive(Debug)]
pub struct CompletionQueueConsumer(Consumer);

impl CompletionQueueProducer {
    /// Takes the producing end of a completion ring.
    ///
    /// # Errors
    /// What is wrong with the header or its cursors.
    pub fn attach(window: &Window) -> Result<CompletionQueueProducer, LayoutError> {
        let ring = Producer::attach(window, RingKind::Completion)?;
        Ok(CompletionQueueProducer { ring, pending: 0 })
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        &self.ring.shape.layout
    }

    /// Writes a CQE. `solicited` tells whether it may wake somebody who armed for solicited ones.
    ///
    /// # Errors
    /// [`PostError::Full`]: the queue overran. The loss is counted in the header; the CQ and its QPs are to go to
    /// the error state (IBTA §10.8.1).
    #[inline]
    pub fn push(&mut self, cqe: &Cqe, solicited: bool) -> Result<(), PostError> {
        if self.ring.free()? == 0 {
            return self.overrun();
        }
        let window = &self.ring.shape.window;
        window.store_words_relaxed(self.ring.slot(), &cqe.encode());
        self.ring.advance();
        self.pending |= if solicited || cqe.status != CqeStatus::Success { 3 } else { 2 };
        Ok(())
    }

    /// Makes every pushed CQE visible; true if there was any.
    #[inline]
    pub fn publish_release(&mut self) -> bool {
        self.ring.publish_release()
    }

    /// Whether the CQEs published since the last call should wake somebody; disarms the queue if so.
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
        let arm = self.ring.shape.window.u64_at(offset::ARM);
        let wanted = arm.load(Ordering::Relaxed);
        let wakes = match wanted {
            0 => false,
            1 => pending & 1 != 0,
            _ => true,
        };
        wakes && arm.swap(0, Ordering::AcqRel) != 0
    }

    #[cold]
    fn overrun(&mut self) -> Result<(), PostError> {
        self.ring.shape.window.u64_at(offset::OVERRUN).fetch_add(1, Ordering::Release);
        Err(PostError::Full)
    }
}

impl CompletionQueueConsumer {
    /// Takes the consuming end of a completion ring.
    ///
    /// # Errors
    /// What is wrong with the header or its cursors.
    pub fn attach(window: &Window) -> Result<CompletionQueueConsumer, LayoutError> {
        Consumer::attach(window, RingKind::Completion).map(CompletionQueueConsumer)
    }

    /// The ring's shape.
    pub fn layout(&self) -> &RingLayout {
        &self.0.shape.layout
    }

    /// Takes the oldest completion. Its slot goes back to the engine at once.
    ///
    /// # Errors
    /// [`CursorError`] if the engine's cursor is impossible.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Cqe>, CursorError> {
        if self.0.available()? == 0 {
            return Ok(None);
        }
        let words = self.0.shape.window.load_words_relaxed(self.0.slot());
        self.0.advance();
        self.0.release();
        Ok(Some(Cqe::decode(&words)))
    }

    /// Completions that wait, freshly counted.
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
        let arm = self.0.shape.window.u64_at(offset::ARM);
        // A weaker request does not replace a stronger one that is still open.
        arm.fetch_max(what as u64, Ordering::AcqRel);
        // Store of arm, then load of tail: only a full fence keeps this order.
        fence(Ordering::SeqCst);
        Ok(self.0.observe_tail_acquire()? > 0)
    }

    /// What it was armed for and has not been woken for yet.
    pub fn armed(&self) -> Option<Arm> {
        match self.0.shape.window.u64_at(offset::ARM).load(Ordering::Acquire) {
            0 => None,
            1 => Some(Arm::Solicited),
            _ => Some(Arm::Next),
        }
    }

    /// CQEs that the engine could not deliver because the ring was full.
    pub fn overruns(&self) -> u64 {
        self.0.shape.window.u64_at(offset::OVERRUN).load(Ordering::Acquire)
    }
}

impl Cqe {
    #[inline]
    fn encode(&self) -> [u64; 8] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let kind = u32::from(self.status as u8)
            | u32::from(self.opcode as u8) << 8
            | u32::from(self.wc_flags.0) << 16;
        let path = u64::from(self.slid)
            | u64::from(self.service_level) << 16
            | u64::from(self.dlid_path_bits) << 24
            | u64::from(self.pkey_index) << 32;
        [
            self.wr_id,
            pair(kind, self.vendor_error),
            pair(self.byte_len, self.imm),
            pair(self.qpn, self.src_qpn),
            self.timestamp_ns,
            path,
            self.tag,
            u64::from(self.tag_context),
        ]
    }

    /// Unknown numbers, which only a corrupt ring can hold, decode to a general error and to SEND.
    #[inline]
    fn decode(words: &[u64; 8]) -> Cqe {
        Cqe {
            wr_id: words[0],
            status: CqeStatus::from_u8(words[1] as u8).unwrap_or(CqeStatus::General),
            opcode: CompletionOpcode::from_u8((words[1] >> 8) as u8).unwrap_or_default(),
            wc_flags: WcFlags((words[1] >> 16) as u16),
            vendor_error: (words[1] >> 32) as u32,
            byte_len: words[2] as u32,
            imm: (words[2] >> 32) as u32,
            qpn: words[3] as u32,
            src_qpn: (words[3] >> 32) as u32,
            timestamp_ns: words[4],
            slid: words[5] as u16,
            service_level: (words[5] >> 16) as u8,
            dlid_path_bits: (words[5] >> 24) as u8,
            pkey_index: (words[5] >> 32) as u16,
            tag: words[6],
            tag_context: words[7] as u32,
        }
    }
}

impl CqeStatus {
    /// The status with this number.
    #[inline]
    pub fn from_u8(value: u8) -> Option<CqeStatus> {
        use CqeStatus::*;
        const ALL: [CqeStatus; 23] = [
            Success,
            LocalLength,
            LocalQpOperation,
            LocalEecOperation,
            LocalProtection,
            WorkRequestFlushed,
            WindowBind,
            BadResponse,
            LocalAccess,
            RemoteInvalidRequest,
            RemoteAccess,
            RemoteOperation,
            RetryExceeded,
            RnrRetryExceeded,
            LocalRddViolation,
            RemoteInvalidRdRequest,
            RemoteAborted,
            InvalidEecn,
            InvalidEecState,
            Fatal,
            ResponseTimeout,
            General,
            Tag,
        ];
        ALL.get(usize::from(value)).copied()
    }
}

impl CompletionOpcode {
    /// The opcode with this number.
    #[inline]
    pub fn from_u8(value: u8) -> Option<CompletionOpcode> {
        use CompletionOpcode::*;
        Some(match value {
            0 => Send,
            1 => Write,
            2 => Read,
            3 => CompareSwap,
            4 => FetchAdd,
            5 => BindWindow,
            6 => LocalInvalidate,
            128 => Receive,
            129 => ReceiveWriteWithImm,
            130 => AddTag,
            131 => RemoveTag,
            132 => SyncTags,
            133 => ReceiveTagged,
            134 => ReceiveNoTag,
            _ => return None,
        })
    }
}

impl WcFlags {
    /// The first 40 bytes of the buffer hold a GRH (UD).
    pub const GRH: WcFlags = WcFlags(1);
    /// `imm` holds immediate data.
    pub const WITH_IMM: WcFlags = WcFlags(2);
    /// `imm` holds the rkey that the peer invalidated.
    pub const WITH_INVALIDATE: WcFlags = WcFlags(8);

    /// What tag matching says.
    pub const TAGS: WcFlags = WcFlags(0b111 << 4);

    /// Whether every bit of `other` is set.
    #[inline]
    pub fn contains(self, other: WcFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for WcFlags {
    type Output = WcFlags;

    fn bitor(self, other: WcFlags) -> WcFlags {
        WcFlags(self.0 | other.0)
    }
}
