//! Invalidate extended transport header: the remote key that a SEND revokes on arrival (IBTA §9.3.7).

/// Length on the wire.
pub(crate) const LEN: usize = 4;

/// Reads the header.
#[inline]
pub(crate) fn parse(b: &[u8; LEN]) -> u32 {
    u32::from_be_bytes(*b)
}

/// Writes the header.
#[inline]
pub(crate) fn emit(rkey: u32, b: &mut [u8; LEN]) {
    *b = rkey.to_be_bytes();
}
