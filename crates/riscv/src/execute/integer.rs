//! Multiplication and division, which never trap (RISC-V Unpriv §12).

/// The high half of a product of at most 64 by 65 bits.
#[inline(always)]
pub(super) fn multiply_high(a: i128, b: i128) -> u64 {
    (a.wrapping_mul(b) >> 64) as u64
}

/// Division by zero gives all ones; the one overflow wraps.
#[inline(always)]
pub(super) fn divide(a: i64, b: i64) -> u64 {
    if b == 0 { u64::MAX } else { a.wrapping_div(b) as u64 }
}

#[inline(always)]
pub(super) fn divide_unsigned(a: u64, b: u64) -> u64 {
    a.checked_div(b).unwrap_or(u64::MAX)
}

/// The remainder of a division by zero is the dividend.
#[inline(always)]
pub(super) fn remainder(a: i64, b: i64) -> u64 {
    if b == 0 { a as u64 } else { a.wrapping_rem(b) as u64 }
}

#[inline(always)]
pub(super) fn remainder_unsigned(a: u64, b: u64) -> u64 {
    a.checked_rem(b).unwrap_or(a)
}
