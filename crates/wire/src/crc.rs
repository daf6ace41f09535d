//! CRC-32 as zlib computes it, running; and the algebra of moving it over bytes that follow.
//!
//! A CRC register is a polynomial over GF(2) modulo the generator, in reflected order: bit 31 is the coefficient of
//! x^0. A byte that follows multiplies it by x^8. Multiplying by a power of x^-1 takes such bytes back.

/// The CRC-32 of some bytes; more can be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Crc(u32);

impl Crc {
    /// The CRC of no bytes.
    pub(crate) const EMPTY: Crc = Crc(0);

    /// The CRC with `bytes` added.
    #[inline]
    #[must_use]
    pub(crate) fn update(self, bytes: &[u8]) -> Crc {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0);
        hasher.update(bytes);
        Crc(hasher.finalize())
    }

    /// The CRC with a difference added, which some other bytes would have made.
    #[inline]
    #[must_use]
    pub(crate) fn xor(self, difference: u32) -> Crc {
        Crc(self.0 ^ difference)
    }

    /// The number.
    #[inline]
    pub(crate) fn value(self) -> u32 {
        self.0
    }
}

/// The generator without its leading term, reflected.
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// The product of two registers.
#[inline]
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        // All ones where the coefficient is set: no branch to mispredict on random bits.
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = b >> 1 ^ POLYNOMIAL & (b & 1).wrapping_neg();
    }
    product
}

/// The register divided by x^32: four bytes taken back.
pub(crate) const fn unwind_word(mut register: u32) -> u32 {
    let mut bit = 0;
    while bit < 32 {
        register = if register >> 31 == 1 { (register ^ POLYNOMIAL) << 1 | 1 } else { register << 1 };
        bit += 1;
    }
    register
}

/// Distances that one table spans; two tables span its square, in words.
const RADIX: usize = 128;

/// x^-32 to the powers `0..RADIX`.
const STEPS: [u32; RADIX] = powers(unwind_word(1 << 31));
/// x^-(32 × RADIX) to the powers `0..RADIX`.
const LEAPS: [u32; RADIX] = powers(unwind_word(STEPS[RADIX - 1]));

const fn powers(base: u32) -> [u32; RADIX] {
    let mut table = [1 << 31; RADIX];
    let mut i = 1;
    while i < RADIX {
        table[i] = multiply(table[i - 1], base);
        i += 1;
    }
    table
}

/// Takes back `len` further bytes, which spread a difference between two CRC registers that both took them
/// in.
///
/// `None` if `len` is no multiple of four or exceeds every IP packet.
#[inline]
pub(crate) fn unwind(difference: u32, len: usize) -> Option<u32> {
    let words = len / 4;
    if !len.is_multiple_of(4) || words >= RADIX * RADIX {
        return None;
    }
    Some(multiply(multiply(difference, STEPS[words % RADIX]), LEAPS[words / RADIX]))
}

/// What a 16-bit field in network order adds to the register some bytes later, by nibble.
pub(crate) struct Spread([[u32; 16]; 4]);

impl Spread {
    /// The table of a field with `behind` bytes between its end and the register.
    pub(crate) const fn new(behind: usize) -> Spread {
        let mut table = [[0; 16]; 4];
        let mut nibble = 0;
        while nibble < 4 {
            let mut value = 0;
            while value < 16 {
                // The register takes in the first byte of the field lowest.
                let mut register = ((value as u16) << (4 * nibble)).swap_bytes() as u32;
                let mut bits = 8 * (2 + behind);
                while bits > 0 {
                    register = register >> 1 ^ POLYNOMIAL & (register & 1).wrapping_neg();
                    bits -= 1;
                }
                table[nibble][value] = register;
                value += 1;
            }
            nibble += 1;
        }
        Spread(table)
    }

    /// What `value` adds.
    #[inline]
    pub(crate) fn of(&self, value: u16) -> u32 {
        let [a, b, c, d] = &self.0;
        let nibble = |shift: u16| usize::from(value >> shift & 15);
        a[nibble(0)] ^ b[nibble(4)] ^ c[nibble(8)] ^ d[nibble(12)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    #[test]
    fn the_check_value_of_crc_32() {
        assert_eq!(Crc::EMPTY.update(b"123456789").value(), 0xCBF4_3926);
        assert_eq!(Crc::EMPTY.update(b"1234").update(b"56789").value(), 0xCBF4_3926);
    }

    #[test]
    fn unwinding_finds_the_difference_that_was_made() {
        let mut rng = Rng::new(9);
        for _ in 0..200 {
            let len = 4 * rng.below(16_384) as usize;
            let mut bytes = vec![0; len];
            rng.fill(&mut bytes);
            let (a, b) = (rng.next_u32(), rng.next_u32());
            let difference = Crc(a).update(&bytes).value() ^ Crc(b).update(&bytes).value();
            assert_eq!(unwind(difference, len), Some(a ^ b));
        }
        assert_eq!(unwind(1, 2), None);
        assert_eq!(unwind(1, 65_536), None);
    }
}
