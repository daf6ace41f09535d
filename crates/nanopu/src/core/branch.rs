//! The memory stage compares what follows it with what should, and teaches the predictor.

use highwire_riscv::Class;

use super::pipeline::{Pipeline, WRONG_PATH};
use crate::predict::{Flow, Resolution, Update};

impl Pipeline {
    #[inline(always)]
    /// Whether what comes after the instruction in the memory stage is not at `next`.
    pub(super) fn is_followed_wrongly(&self, next: u64) -> bool {
        let execute = &self.stages[self.execute];
        if execute.is_live {
            return execute.pc != next;
        }
        // Of a thread that leaves the core, nothing follows: fetch is elsewhere.
        !self.is_leaving() && self.frontend.head_pc().is_none_or(|pc| pc != next)
    }

    /// Where the program goes on after the instruction in the memory stage, if that is an ordinary one.
    pub(super) fn redirect_of_memory(&self) -> Option<u64> {
        let slot = self.memory();
        if !slot.works() || slot.serial == WRONG_PATH {
            return None;
        }
        if slot.is_trap {
            return None;
        }
        Some(match slot.needs.class {
            // Returns from traps go through write-back.
            Class::System => slot.pc + slot.needs.length(),
            _ => slot.next,
        })
    }

    /// What the predictor learns from the instruction in the memory stage, which write-back does not overrule.
    pub(super) fn train(&self, is_wrong: bool) -> (Option<Update>, Option<(Resolution, u8)>) {
        let slot = self.memory();
        let class = slot.needs.class;
        let matters = is_wrong || class == Class::Branch;
        if !matters || !slot.works() || slot.serial == WRONG_PATH {
            return (None, None);
        }
        let sequential = slot.pc.wrapping_add(slot.needs.length());
        let is_branch = class == Class::Branch;
        let taken = is_branch && slot.next != sequential;
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
