//! Immediate data: four bytes that go to the receiver's completion unchanged (IBTA §9.3.6).

/// Length on the wire.
pub(crate) const LEN: usize = 4;

/// Reads the header.
#[inline]
pub(crate) fn parse(b: &[u8; LEN]) -> u32 {
    u32::from_be_bytes(*b)
}

/// Writes the header.
#[inline]
pub(crate) fn emit(immediate: u32, b: &mut [u8; LEN]) {
    *b = immediate.to_be_bytes();
}
