//! The second fetch stage looks for jumps and branches that the target buffer did not know.

use highwire_riscv::{Class, Instruction, is_compressed};

use super::{Frontend, Packet};
use crate::core::{Ask, World};
use crate::port::Port;
use crate::predict::{Flow, Prediction};

/// What the second stage finds in its packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan {
    /// The half-word in which a jump, or a branch that is predicted taken, ends.
    pub(super) half: u8,
    pub(super) taken: bool,
    pub(super) target: Option<u64>,
    pub(super) uses_stack: bool,
    pub(super) is_known: bool,
    pub(super) stack: Option<(Flow, u64)>,
    pub(super) has_branch: bool,
    pub(super) flow: Flow,
    pub(super) partial: Option<u16>,
}

/// What a packet shows without decoding; that is enough unless it may hold a jump or branch.
pub(super) struct Glance {
    pub(super) may_turn: bool,
    pub(super) partial: Option<u16>,
}

impl Frontend {
    /// Looks at the second stage's packet, most of which hold neither jump nor branch.
    #[inline(always)]
    pub(super) fn glance(&self) -> Glance {
        let mut glance = Glance { may_turn: false, partial: None };
        let Packet { pc, word, .. } = self.arriving;
        let (low, high) = (word as u16, (word >> 16) as u16);
        if pc & 2 == 0 {
            if let Some(before) = self.s2_partial {
                glance.may_turn = may_turn(u32::from(low) << 16 | u32::from(before));
            } else if is_compressed(low) {
                glance.may_turn = may_turn(u32::from(low));
            } else {
                glance.may_turn = may_turn(word);
                return glance;
            }
        }
        if is_compressed(high) {
            glance.may_turn |= may_turn(u32::from(high));
        } else {
            glance.partial = Some(high);
        }
        glance
    }

    /// Looks through the second stage's packet for jumps and branches.
    #[inline(never)]
    pub(super) fn scan<B: Port>(&mut self, world: &mut World<'_, B>) -> Scan {
        let mut scan = Scan {
            half: 1,
            taken: false,
            target: None,
            uses_stack: false,
            is_known: self.s2_prediction.is_hit(),
            stack: None,
            has_branch: false,
            flow: Flow::Jump,
            partial: None,
        };
        let word = self.arriving.word;
        let halves = [word as u16, (word >> 16) as u16];
        let base = self.s2_pc & !3;
        let mut before = self.s2_partial.filter(|_| self.s2_pc & 2 == 0);
        for (index, half) in halves.into_iter().enumerate().skip(usize::from(self.s2_pc & 2 != 0)) {
            let (word, pc) = match before.take() {
                Some(low) => {
                    (u32::from(half) << 16 | u32::from(low), (base | (2 * index as u64)).wrapping_sub(2))
                }
                None if is_compressed(half) => (u32::from(half), base | (2 * index as u64)),
                None => {
                    before = Some(half);
                    continue;
                }
            };
            if !may_turn(word) {
                continue;
            }
            let known = match word {
                SHORT_BREAK => None,
                _ => world.side.decoder.decode(pc, word, false).map(|known| known.instruction),
            };
            let Some(instruction) = known.or_else(|| like(word)) else { continue };
            if scan.visit(&instruction, pc, index as u8, base, &self.s2_prediction, world) {
                return scan;
            }
        }
        scan.partial = before;
        scan
    }
}

impl Scan {
    /// Takes note of one instruction; true if fetch goes elsewhere after it.
    fn visit<B: Port>(
        &mut self,
        instruction: &Instruction,
        pc: u64,
        half: u8,
        base: u64,
        seen: &Prediction,
        world: &mut World<'_, B>,
    ) -> bool {
        let links = instruction.rd & 1 != 0;
        let target = pc.wrapping_add_signed(instruction.immediate.into());
        let is_short = instruction.length == 2;
        let (is_return, is_call) = match instruction.class() {
            // Rocket's scan looks at few bits: x1 and x5 as sources mean a return, odd destinations mean a
            // call.
            Class::JumpRegister if is_short => {
                (instruction.rd == 0 && instruction.rs1 & 0x1b == 1, instruction.rd == 1)
            }
            Class::JumpRegister => (!links && instruction.rs1 & 0x1b == 1, links),
            Class::Jump => (false, links && !is_short),
            _ => (false, false),
        };
        if is_return || is_call {
            let after = base.wrapping_add(2 * (u64::from(half) + 1));
            self.stack = Some((if is_return { Flow::Return } else { Flow::Call }, after));
        }
        match instruction.class() {
            Class::Branch => {
                self.has_branch = true;
                if !seen.bias() {
                    return false;
                }
                (self.target, self.flow) = (Some(target), Flow::Branch);
            }
            Class::Jump => {
                self.target = Some(target);
                self.flow = if is_call { Flow::Call } else { Flow::Jump };
            }
            Class::JumpRegister => {
                self.uses_stack = is_return && world.ask(Ask::Return, [0; 3], [0; 2])[0] != 0;
                self.flow = if is_return {
                    Flow::Return
                } else if is_call {
                    Flow::Call
                } else {
                    Flow::Jump
                };
                // The scan does not know this jump's target, so it makes no entry.
                self.is_known |= !self.uses_stack;
            }
            _ => return false,
        }
        (self.taken, self.half) = (true, half);
        true
    }
}

/// Whether the opcode is that of a branch or jump, or of a compressed instruction that shares one with them.
#[inline(always)]
fn may_turn(word: u32) -> bool {
    match word & 3 {
        3 => word & 0x70 == 0x60,
        1 => word & 0x8000 != 0 && word & 0x6000 != 0,
        2 => word & 0xe07c == 0x8000,
        _ => false,
    }
}

/// `c.ebreak`.
const SHORT_BREAK: u32 = 0x9002;

/// The jump or branch for which Rocket, which looks at few bits, takes a word that is none: branches and
/// indirect jumps with other functions, the short jump through x0, and the short breakpoint, which would be
/// the short call through x0.
#[cold]
fn like(word: u32) -> Option<Instruction> {
    let meant = match word & 3 {
        3 => word & !0x7000,
        2 if word & 0xffff == 0x8002 => 0x8102,
        2 if word == SHORT_BREAK => 0x9102,
        _ => return None,
    };
    Instruction::decode(meant).ok()
}
