//! Whether accesses in the data cache touch the same bytes.

use super::{Question, Side};

impl Side {
    /// Whether the read `a` of `b` bytes touches one of the stores in `x`, which holds up to three pairs of
    /// number and bytes.
    #[inline(always)]
    pub(super) fn overlaps(&self, q: &Question) -> bool {
        let reads = self.address(q.a);
        let mut stores = q.x;
        let mut overlaps = false;
        while stores != 0 {
            let (number, bytes) = (stores as u8, (stores >> 8) as u8);
            let writes = self.address(number);
            // The hardware has no time to compare more bits.
            let meets = (reads ^ writes) & 0xff8 == 0;
            overlaps |= meets && byte_mask(reads, q.b) & byte_mask(writes, bytes) != 0;
            stores >>= 16;
        }
        overlaps
    }
}

/// The bytes of the aligned eight that an access of `bytes` at `address` touches, as bits. For a misaligned
/// access, which will trap, the bits are those that Rocket's gates give.
#[inline(always)]
fn byte_mask(address: u64, bytes: u8) -> u8 {
    let mut mask = 1;
    for step in 0..3 {
        let half = 1u8 << step;
        let all = ((1u16 << half) - 1) as u8;
        let is_upper = address >> step & 1 != 0;
        let upper = if is_upper { mask } else { 0 } | if bytes > half { all } else { 0 };
        mask = if is_upper { 0 } else { mask } | upper << half;
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::byte_mask;

    #[test]
    fn aligned_accesses_touch_their_bytes() {
        for bytes in [1u8, 2, 4, 8] {
            for address in (0..8).step_by(bytes.into()) {
                assert_eq!(u16::from(byte_mask(address, bytes)), ((1 << bytes) - 1) << address);
            }
        }
    }

    #[test]
    fn misaligned_accesses_stay_within_eight_bytes() {
        assert_eq!((byte_mask(4, 8), byte_mask(1, 4), byte_mask(3, 4)), (0xf0, 0x0e, 0x0c));
        assert_eq!((byte_mask(7, 2), byte_mask(5, 2)), (0x80, 0x20));
    }
}
