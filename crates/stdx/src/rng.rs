//! Random numbers, of two kinds behind one type.
//!
//! For runs that must repeat: xoshiro256** seeded by SplitMix64 (Blackman and Vigna). One seed gives one
//! sequence on every machine. A few of its numbers reveal all others, so keys that a peer sees must not come
//! from it.
//!
//! For numbers that an attacker must not guess (keys, queue pair numbers, PSNs of a device that serves
//! strangers): ChaCha20, whose 256 bits of seed the caller takes from its system. A fork of such a generator
//! is as secret.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A generator of pseudo-random numbers that follow from its seed.
#[derive(Clone, Debug)]
pub struct Rng {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Repeatable([u64; 4]),
    /// Boxed: rare, and twenty times as large.
    Secret(Box<ChaCha20Rng>),
}

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Rng {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        Rng { source: Source::Repeatable([next(), next(), next(), next()]) }
    }

    /// A generator whose numbers cannot be guessed without `seed`, even from many earlier numbers.
    pub fn secret(seed: [u8; 32]) -> Rng {
        Rng { source: Source::Secret(Box::new(ChaCha20Rng::from_seed(seed))) }
    }

    /// Whether it was made by [`secret`](Self::secret), or forked from one that was.
    pub fn is_secret(&self) -> bool {
        matches!(self.source, Source::Secret(_))
    }

    /// An independent generator for a part of the program, named by `stream`.
    pub fn fork(&mut self, stream: u64) -> Rng {
        if let Source::Secret(generator) = &mut self.source {
            let mut seed = [0; 32];
            generator.fill_bytes(&mut seed);
            return Rng::secret(seed);
        }
        Rng::new(self.next_u64() ^ stream.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = match &mut self.source {
            Source::Repeatable(state) => state,
            Source::Secret(generator) => return generator.next_u64(),
        };
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number in `0..bound`, without bias.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no numbers");
        // Lemire's method: the high half of a product, rejecting the short first interval.
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "the range {low}..={high} is empty");
        match (high - low).checked_add(1) {
            Some(span) => low + self.below(span),
            None => self.next_u64(),
        }
    }

    /// A fraction in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Fills a buffer with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// One element of a non-empty slice.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let mut a = Rng::new(42);
        let mut b = Rng::new(42);
        assert!((0..1000).all(|_| a.next_u64() == b.next_u64()));
        assert_ne!(Rng::new(1).next_u64(), Rng::new(2).next_u64());
    }

    /// RFC 8439 §2.4 with key, nonce and counter zero: the first bytes of the key stream.
    #[test]
    fn a_secret_generator_is_chacha20_and_so_is_what_it_forks() {
        let mut rng = Rng::secret([0; 32]);
        assert_eq!(rng.next_u64(), u64::from_le_bytes([0x76, 0xB8, 0xE0, 0xAD, 0xA0, 0xF1, 0x3D, 0x90]));
        let (mut a, mut b) = (rng.fork(1), rng.fork(1));
        assert!(a.is_secret() && b.is_secret() && !Rng::new(1).fork(1).is_secret());
        assert_ne!(a.next_u64(), b.next_u64());
    }

    #[test]
    fn ranges_are_respected_and_covered() {
        let mut rng = Rng::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[rng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        assert!((0..1000).all(|_| (5..=9).contains(&rng.between(5, 9))));
        assert!((0..1000).all(|_| (0.0..1.0).contains(&rng.unit())));
    }

    #[test]
    fn certain_and_impossible_events() {
        let mut rng = Rng::new(3);
        assert!((0..100).all(|_| rng.chance(1.0) && !rng.chance(0.0)));
    }
}
