//! Big-endian numbers at fixed places of fixed-length headers.

/// The 24-bit number at `at`.
#[inline]
pub(crate) fn u24<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

/// The 32-bit number at `at`.
#[inline]
pub(crate) fn u32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The 64-bit number at `at`.
#[inline]
pub(crate) fn u64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32(bytes, at)) << 32 | u64::from(u32(bytes, at + 4))
}

/// The 16-bit number at `at`.
#[inline]
pub(crate) fn u16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes `value` at `at`.
#[inline]
pub(crate) fn put<const N: usize, const M: usize>(bytes: &mut [u8; N], at: usize, value: [u8; M]) {
    bytes[at..at + M].copy_from_slice(&value);
}
