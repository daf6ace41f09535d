//! One bit per queue: which of a lane's send queues have new work.
//!
//! ```text
//!   0 ┌───────────┬─────────┬──────┬───────────┬──────────────────┐
//!     │ "HWDB"    │ version │ zero │ bits u32  │ reserved         │  constant
//! 128 ├───────────┴─────────┴──────┴───────────┴──────────────────┤
//!     │ summary u64: bit w set ⇐ word w is not zero               │  set by applications, taken by the engine
//! 256 ├───────────────────────────────────────────────────────────┤
//!     │ sleeping u64: the engine wants to be woken                │  set by the engine, taken by applications
//! 384 ├───────────────────────────────────────────────────────────┤
//!     │ word 0, word 1, … : bit b of word w is queue 64·w + b     │  as summary
//!     └───────────────────────────────────────────────────────────┘
//! ```
//!
//! Why no bell is lost: a ringing thread sets its bit before it looks at the summary; the engine takes the
//! summary before it takes the words. If the thread finds its summary bit set, the engine has yet to take the
//! word.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{LayoutError, VERSION};
use crate::window::Window;

const MAGIC: u32 = u32::from_le_bytes(*b"HWDB");
const BITS_OFFSET: usize = 8;
const SUMMARY_OFFSET: usize = 128;
const SLEEPING_OFFSET: usize = 256;
const WORDS_OFFSET: usize = 384;
const BITS_MAX: u32 = 64 * 64;

/// The doorbell board of one lane. Any number of threads ring, one engine takes.
#[derive(Clone, Debug)]
pub struct DoorbellBoard {
    window: Window,
    bits: u32,
}

/// The queues whose bells were taken, lowest first.
#[derive(Debug)]
pub struct DoorbellIter<'a> {
    board: &'a DoorbellBoard,
    summary: u64,
    word: u64,
    base: u32,
}

impl DoorbellBoard {
    /// Bytes that a board for `bits` queues takes.
    ///
    /// # Errors
    /// [`LayoutError::SlotCount`] if there are none or more than 4096.
    pub fn bytes(bits: u32) -> Result<usize, LayoutError> {
        if bits == 0 || bits > BITS_MAX {
            return Err(LayoutError::SlotCount { found: bits });
        }
        Ok((WORDS_OFFSET + bits.div_ceil(64) as usize * 8).next_multiple_of(128))
    }

    /// Makes a silent board at the start of a window.
    ///
    /// # Errors
    /// [`LayoutError`] if `bits` is out of range or the window too short.
    pub fn create(window: &Window, bits: u32) -> Result<DoorbellBoard, LayoutError> {
        let bytes = DoorbellBoard::bytes(bits)?;
        let window = window.part(0, bytes)?;
        for word in (0..bytes).step_by(8) {
            window.u64_at(word).store(0, Ordering::Relaxed);
        }
        window.u64_at(BITS_OFFSET).store(u64::from(bits), Ordering::Relaxed);
        window.u64_at(0).store(u64::from(MAGIC) | u64::from(VERSION) << 32, Ordering::Release);
        Ok(DoorbellBoard { window, bits })
    }

    /// Attaches to a board that another process has made.
    ///
    /// # Errors
    /// The error in its header.
    pub fn attach(window: &Window) -> Result<DoorbellBoard, LayoutError> {
        let head = window.part(0, DoorbellBoard::bytes(1)?)?;
        let first = head.u64_at(0).load(Ordering::Acquire);
        if first as u32 != MAGIC {
            return Err(LayoutError::Magic { found: first as u32 });
        }
        if (first >> 32) as u16 != VERSION {
            return Err(LayoutError::Version { found: (first >> 32) as u16 });
        }
        let bits = head.u64_at(BITS_OFFSET).load(Ordering::Relaxed) as u32;
        Ok(DoorbellBoard { window: window.part(0, DoorbellBoard::bytes(bits)?)?, bits })
    }

    /// Queues on the board.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Announces work of queue `bit`; true if the engine sleeps and the caller must wake it (only one caller
    /// gets true).
    ///
    /// Ring after publishing the queue's cursor. A bit beyond the board rings nothing.
    #[inline]
    pub fn ring_seqcst(&self, bit: u32) -> bool {
        if bit >= self.bits {
            return false;
        }
        let word = bit / 64;
        self.word(word).fetch_or(1 << (bit % 64), Ordering::SeqCst);
        // SeqCst: this load must not move before the bit above is visible.
        if self.summary().load(Ordering::SeqCst) & (1 << word) == 0 {
            self.summary().fetch_or(1 << word, Ordering::SeqCst);
        }
        let sleeping = self.window.u64_at(SLEEPING_OFFSET);
        sleeping.load(Ordering::SeqCst) != 0 && sleeping.swap(0, Ordering::SeqCst) != 0
    }

    /// Takes all bells that have rung. Costs one load if none has.
    #[inline]
    pub fn take_acquire(&self) -> DoorbellIter<'_> {
        let mut summary = self.summary().load(Ordering::Relaxed);
        if summary != 0 {
            summary = self.summary().swap(0, Ordering::SeqCst);
        }
        DoorbellIter { board: self, summary, word: 0, base: 0 }
    }

    /// Says that a thread of the engine is about to sleep; false if a bell has rung meanwhile and it must not. The board goes on saying
    /// so even then, for another thread may sleep: call [`awake`](Self::awake) if none does.
    #[must_use = "a bell may have rung"]
    pub fn prepare_sleep_seqcst(&self) -> bool {
        self.announce_sleep_seqcst();
        self.summary().load(Ordering::SeqCst) == 0
    }

    /// Says that threads of the engine sleep. Bells that rang before are to be taken afterwards; those that ring later wake the engine.
    pub fn announce_sleep_seqcst(&self) {
        self.window.u64_at(SLEEPING_OFFSET).store(1, Ordering::SeqCst);
    }

    /// Says that the engine is awake again, so that threads that ring do not wake it.
    pub fn awake(&self) {
        self.window.u64_at(SLEEPING_OFFSET).store(0, Ordering::Release);
    }

    #[inline]
    fn summary(&self) -> &AtomicU64 {
        self.window.u64_at(SUMMARY_OFFSET)
    }

    #[inline]
    fn word(&self, word: u32) -> &AtomicU64 {
        self.window.u64_at(WORDS_OFFSET + 8 * word as usize)
    }
}

impl Drop for DoorbellIter<'_> {
    /// Puts back the bells that the engine had no time for.
    fn drop(&mut self) {
        if self.word != 0 {
            self.board.word(self.base / 64).fetch_or(self.word, Ordering::SeqCst);
            self.summary |= 1 << (self.base / 64);
        }
        if self.summary != 0 {
            self.board.summary().fetch_or(self.summary, Ordering::SeqCst);
        }
    }
}

impl Iterator for DoorbellIter<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        while self.word == 0 {
            if self.summary == 0 {
                return None;
            }
            self.base = self.summary.trailing_zeros() * 64;
            self.summary &= self.summary - 1;
            // An application may have set bits for queues that do not exist.
            let bits = self.board.bits.saturating_sub(self.base);
            if bits > 0 {
                self.word = self.board.word(self.base / 64).swap(0, Ordering::SeqCst);
                self.word &= u64::MAX >> 64u32.saturating_sub(bits);
            }
        }
        let bit = self.base + self.word.trailing_zeros();
        self.word &= self.word - 1;
        Some(bit)
    }
}
