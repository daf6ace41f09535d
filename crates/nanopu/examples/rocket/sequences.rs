//! Steps counted: of whole programs, and of the sequences that `riscv/benchmarks/measure.inc` puts between two reads of mcycle.

use std::collections::BTreeMap;
use std::fmt;

use highwire_riscv::csr::number::MCYCLE;
use highwire_riscv::{Class, Retired};

/// The registers, s7 and s8, that mcycle is read into before a sequence and after it.
const BEFORE: u8 = 23;
const AFTER: u8 = 24;

/// Commits, and the cycles of the steps from one to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) commits: u64,
    pub(crate) rocket_cycles: u64,
    pub(crate) cycles: u64,
    /// Steps that take another number of cycles on Rocket than here.
    pub(crate) differing: u64,
}

impl Count {
    /// A step of `there` cycles on Rocket and `here` on this core.
    pub(crate) fn step(&mut self, there: u64, here: u64) {
        self.rocket_cycles += there;
        self.cycles += here;
        self.differing += u64::from(here != there);
    }

    pub(crate) fn add(&mut self, other: &Count) {
        self.commits += other.commits;
        self.rocket_cycles += other.rocket_cycles;
        self.cycles += other.cycles;
        self.differing += other.differing;
    }

    /// How many more cycles it takes here, in per cent.
    pub(crate) fn off(&self) -> f64 {
        100.0 * (self.cycles as f64 / self.rocket_cycles.max(1) as f64 - 1.0)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { commits, rocket_cycles, cycles, differing } = self;
        write!(out, "{commits:>9} {rocket_cycles:>11} {cycles:>11} {:>+7.3} % {differing:>9}", self.off())
    }
}

/// What lies between the two reads of mcycle, turn by turn.
#[derive(Debug)]
struct Sequence {
    name: String,
    turns: Vec<Count>,
}

/// The sequences of a program.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    /// Where they begin.
    places: BTreeMap<u64, String>,
    seen: Vec<Sequence>,
    /// The first mcycle was read, and the second was not.
    is_measuring: bool,
}

impl Sequences {
    pub(crate) fn new(places: &BTreeMap<u64, String>) -> Sequences {
        Sequences { places: places.clone(), ..Sequences::default() }
    }

    /// The step to the commit of `retired`.
    pub(crate) fn step(&mut self, retired: &Retired, there: u64, here: u64) {
        if let Some(name) = self.places.get(&retired.pc) {
            self.seen.push(Sequence { name: name.clone(), turns: Vec::new() });
        }
        let Some(sequence) = self.seen.last_mut() else { return };
        if self.is_measuring
            && let Some(turn) = sequence.turns.last_mut()
        {
            turn.commits += 1;
            turn.step(there, here);
        }
        let instruction = &retired.instruction;
        if instruction.class() != Class::Csr || instruction.immediate as u16 != MCYCLE {
            return;
        }
        match instruction.rd {
            BEFORE => {
                sequence.turns.push(Count::default());
                self.is_measuring = true;
            }
            AFTER => self.is_measuring = false,
            _ => {}
        }
    }

    /// A row per sequence: all its turns, and the steps that differ in the last, when caches and predictor are warm.
    pub(crate) fn rows(&self) -> impl Iterator<Item = String> {
        self.seen.iter().map(|Sequence { name, turns }| {
            let mut all = Count::default();
            turns.iter().for_each(|turn| all.add(turn));
            let last = turns.last().map_or(0, |turn| turn.differing);
            format!("  {name:<30} {all} {last:>9}")
        })
    }
}
