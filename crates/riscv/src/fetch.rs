//! Decoded instructions by address: a direct-mapped cache.

use crate::instruction::Instruction;
use crate::op::Op;

/// Enough for the loops of a program; 128 KiB, so that it stays in a host's second-level cache.
const ENTRIES: usize = 4096;

/// No instruction lies at an odd address.
const NOWHERE: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Entry {
    pc: u64,
    instruction: Instruction,
    /// The mark of [`crate::Hart::mark`].
    mark: u32,
}

const EMPTY: Entry = Entry {
    pc: NOWHERE,
    instruction: Instruction {
        op: Op::Addi,
        rd: 0,
        rs1: 0,
        rs2: 0,
        rs3: 0,
        mode: 0,
        length: 4,
        immediate: 0,
        bits: 0,
    },
    mark: 0,
};

/// The cache.
#[derive(Clone)]
pub(crate) struct FetchCache {
    entries: Box<[Entry; ENTRIES]>,
}

impl Default for FetchCache {
    fn default() -> FetchCache {
        FetchCache { entries: Box::new([EMPTY; ENTRIES]) }
    }
}

impl FetchCache {
    #[inline(always)]
    pub(crate) fn lookup(&self, pc: u64) -> Option<Instruction> {
        self.find(pc).map(|(instruction, _)| *instruction)
    }

    #[inline(always)]
    pub(crate) fn find(&self, pc: u64) -> Option<(&Instruction, u32)> {
        let entry = &self.entries[index(pc)];
        (entry.pc == pc).then_some((&entry.instruction, entry.mark))
    }

    pub(crate) fn mark(&mut self, pc: u64, mark: u32) {
        let entry = &mut self.entries[index(pc)];
        if entry.pc == pc {
            entry.mark = mark;
        }
    }

    pub(crate) fn insert(&mut self, pc: u64, instruction: Instruction) {
        self.entries[index(pc)] = Entry { pc, instruction, mark: 0 };
    }

    pub(crate) fn flush(&mut self) {
        self.entries.fill(EMPTY);
    }
}

#[inline(always)]
fn index(pc: u64) -> usize {
    (pc >> 1) as usize % ENTRIES
}
