//! A plain fuzzer without coverage: seeded mutations of the corpus, on any compiler.
//!
//! The same seed tries the same inputs, so a finding is repeated by its seed alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use highwire_stdx::Rng;

use crate::Target;

/// Inputs never grow beyond this.
const INPUT_BYTES_MAX: usize = 16 * 1024;
/// Numbers at the edges of what fields can hold.
const EDGES: [u8; 8] = [0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF, 0x40, 0xC0];

/// Draws inputs: seeds first, then mutations of them.
#[derive(Debug)]
pub struct Mutator<'a> {
    seeds: &'a [Vec<u8>],
    rng: Rng,
    count: usize,
}

impl<'a> Mutator<'a> {
    /// The inputs that follow from `seeds` and `seed`.
    #[must_use]
    pub fn new(seeds: &'a [Vec<u8>], seed: u64) -> Self {
        Self { seeds, rng: Rng::new(seed), count: 0 }
    }

    /// The next input; there is always one.
    pub fn next_input(&mut self) -> Vec<u8> {
        let index = self.count;
        self.count += 1;
        if let Some(seed) = self.seeds.get(index) {
            return seed.clone();
        }
        let mut input = if self.seeds.is_empty() { Vec::new() } else { self.rng.pick(self.seeds).clone() };
        for _ in 0..1 + self.rng.below(6) {
            self.mutate(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.rng.below(input.len() as u64 + 1) as usize;
        match self.rng.below(8) {
            0 => input.truncate(at),
            1 => input.insert(at, self.rng.next_u32() as u8),
            2 => {
                let len = self.rng.below(32) as usize;
                input.extend((0..len).map(|_| self.rng.next_u32() as u8));
            }
            3 => {
                let other =
                    if self.seeds.is_empty() { Vec::new() } else { self.rng.pick(self.seeds).clone() };
                let from = self.rng.below(other.len() as u64 + 1) as usize;
                input.truncate(at);
                input.extend(&other[from..]);
            }
            4 => {
                let until = (at + self.rng.below(16) as usize).min(input.len());
                input.drain(at..until);
            }
            choice if at < input.len() => match choice {
                5 => input[at] ^= 1 << self.rng.below(8),
                6 => input[at] = *self.rng.pick(&EDGES),
                _ => input[at] = self.rng.next_u32() as u8,
            },
            _ => input.push(*self.rng.pick(&EDGES)),
        }
    }
}

/// An input that broke a promise.
#[derive(Debug)]
pub struct Finding {
    /// Which input it was, counted from 0.
    pub index: u64,
    /// The input itself.
    pub input: Vec<u8>,
}

/// Tries inputs while `go_on`, which gets the number of inputs tried, allows it. The panic message of a
/// finding goes to the standard error as usual.
///
/// # Errors
/// The first input on which the target panicked.
pub fn run(
    target: &Target,
    seeds: &[Vec<u8>],
    seed: u64,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<u64, Finding> {
    let mut mutator = Mutator::new(seeds, seed);
    let mut tried = 0;
    while go_on(tried) {
        let input = mutator.next_input();
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
            return Err(Finding { index: tried, input });
        }
        tried += 1;
    }
    Ok(tried)
}
