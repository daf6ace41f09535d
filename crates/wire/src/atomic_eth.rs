//! Atomic extended transport header (IBTA §9.3.5), and the original value that its answer carries (IBTA §9.5.3).

use crate::bytes;

/// Operands of a compare-and-swap or fetch-and-add.
///
/// Packed to four bytes so that a set of parsed headers fits one cache line. Its fields are read by value;
/// a reference to one (as `assert_eq!` takes) needs braces: `{ atomic.va }`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, packed(4))]
pub struct AtomicEth {
    /// Virtual address of the 8-byte word at the responder, 8-byte aligned.
    pub va: u64,
    /// The key that grants access to it.
    pub rkey: u32,
    /// The value to store, or to add.
    pub swap_or_add: u64,
    /// The value to compare with; unused by fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    /// Length on the wire.
    pub const LEN: usize = 28;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; AtomicEth::LEN]) -> AtomicEth {
        AtomicEth {
            va: bytes::u64(b, 0),
            rkey: bytes::u32(b, 8),
            swap_or_add: bytes::u64(b, 12),
            compare: bytes::u64(b, 20),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; AtomicEth::LEN]) {
        bytes::put(b, 0, { self.va }.to_be_bytes());
        bytes::put(b, 8, { self.rkey }.to_be_bytes());
        bytes::put(b, 12, { self.swap_or_add }.to_be_bytes());
        bytes::put(b, 20, { self.compare }.to_be_bytes());
    }
}

/// AtomicAckETH: the word's value before the operation.
pub(crate) mod ack {
    use crate::bytes;

    /// Length on the wire.
    pub(crate) const LEN: usize = 8;

    /// Reads the header.
    #[inline]
    pub(crate) fn parse(b: &[u8; LEN]) -> u64 {
        bytes::u64(b, 0)
    }

    /// Writes the header.
    #[inline]
    pub(crate) fn emit(original: u64, b: &mut [u8; LEN]) {
        *b = original.to_be_bytes();
    }
}
