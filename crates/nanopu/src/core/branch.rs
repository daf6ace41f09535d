//! The memory stage compares the instruction that follows it with the one that should, and teaches the
//! predictor.

use highwire_riscv::Class;

use super::outcome::TrapStage;
use super::pipeline::{Pipeline, Slot, WRONG_PATH};
use crate::predict::{Flow, Resolution, Update};

impl Slot {
    /// The address behind the instruction.
    pub(super) fn sequential(&self) -> u64 {
        self.pc.wrapping_add(if self.is_short { 2 } else { 4 })
    }
}

impl Pipeline {
    #[inline(always)]
    /// Whether the instruction behind the one in the memory stage is not at `next`.
    pub(super) fn is_followed_wrongly(&self, next: u64) -> bool {
        let execute = &self.stages[self.execute];
        if execute.is_live {
            return execute.pc != next;
        }
        // When the thread is leaving the core, nothing follows: fetch is in the other thread.
        !self.is_leaving() && self.frontend.head_pc().is_none_or(|pc| pc != next)
    }

    /// The address that should follow the instruction in the memory stage, if there is one. This stage only
    /// knows jumps and branches: write-back handles traps and returns from them.
    pub(super) fn expected_behind_memory(&self) -> Option<u64> {
        let slot = self.memory();
        if !slot.works() || slot.serial == WRONG_PATH || slot.trap == Some(TrapStage::Interrupt) {
            return None;
        }
        Some(match slot.needs.class {
            _ if slot.trap.is_some() => slot.expected,
            Class::System => slot.sequential(),
            _ => slot.next,
        })
    }

    /// Whether fetch is redirected if something else follows. An instruction whose trap decode found teaches
    /// the predictor, but redirects nothing.
    pub(super) fn may_correct(&self) -> bool {
        self.memory().trap != Some(TrapStage::Decode)
    }

    /// What the predictor learns from the instruction in the memory stage, which write-back does not overrule.
    pub(super) fn train(&self, is_wrong: bool) -> (Option<Update>, Option<(Resolution, u8)>) {
        let slot = self.memory();
        let class = slot.needs.class;
        let matters = is_wrong || class == Class::Branch;
        if !matters || !slot.works() || slot.serial == WRONG_PATH {
            return (None, None);
        }
        let sequential = slot.sequential();
        let is_branch = class == Class::Branch;
        let taken = is_branch && (slot.next != sequential || slot.goes_to_next);
        // The predictor knows an instruction by the packet and the half-word in which it ends.
        let last_half = sequential.wrapping_sub(2);
        let packet = last_half & !3;
        let turns = taken || matches!(class, Class::Jump | Class::JumpRegister);
        let is_flow = is_branch || turns;
        let flow = match class {
            Class::Jump | Class::JumpRegister if slot.needs.links() => Flow::Call,
            Class::JumpRegister if slot.needs.returns() => Flow::Return,
            Class::Branch => Flow::Branch,
            _ => Flow::Jump,
        };
        let half = (last_half >> 1 & 1) as u8;
        let update = (is_wrong && (!is_flow || turns)).then_some(Update {
            entry: slot.entry,
            packet,
            half,
            flow,
            is_valid: is_flow,
        });
        let resolution = Resolution { packet, is_branch, taken, is_wrong, learns: true };
        (update, Some((resolution, slot.number)))
    }
}
