//! Why decode holds an instruction back.

use highwire_riscv::{Class, Instruction};

use super::{Core, DECODED, Long, Slot};
use crate::decode::Needs;
use crate::frontend::Fetched;

impl Core {
    /// Whether decode holds its instruction back.
    pub(super) fn stalls(&mut self, cycle: u64, fetched: Option<Fetched>, arriving: Option<Long>) -> bool {
        let Some(fetched) = fetched else { return false };
        let Some(needs) = self.needs(&fetched) else {
            return false;
        };
        let in_execute = live(&self.execute);
        let in_memory = live(&self.memory);
        let in_write_back = live(&self.write_back);
        let meets_x = |slot: &Needs| slot.writes_x.is_some_and(|register| needs.x >> register & 1 != 0);
        let meets_f = |slot: &Needs| slot.writes_f.is_some_and(|register| needs.f >> register & 1 != 0);
        let hazard = in_execute.is_some_and(|slot| (meets_x(slot) && slot.late_in_execute) || meets_f(slot))
            || in_memory.is_some_and(|slot| (meets_x(slot) && slot.late_in_memory) || meets_f(slot))
            || in_write_back.is_some_and(|slot| (meets_x(slot) && slot.is_long()) || meets_f(slot));
        if hazard || self.waits_for_units(cycle, &needs, [in_execute, in_memory], arriving) {
            return true;
        }
        let busy_memory = self.data_cache.is_busy() || in_execute.is_some_and(|slot| slot.is_access());
        if !busy_memory {
            self.fence = false;
        }
        let releases = needs.class == Class::Atomic && fetched.bits.is_some_and(|bits| bits >> 25 & 1 != 0);
        let is_fence_i = needs.class == Class::Fence && needs.flushes;
        if busy_memory && (releases || is_fence_i || (self.fence && needs.is_access())) {
            return true;
        }
        // A sleeping hart issues nothing.
        self.next_serial == self.first_serial + self.records.len() as u64 && self.hart.is_waiting()
    }

    pub(super) fn waits_for_units(
        &self,
        cycle: u64,
        needs: &Needs,
        ahead: [Option<&Needs>; 2],
        arriving: Option<Long>,
    ) -> bool {
        // A result that is written in this cycle can be read in it.
        let fresh = arriving.and_then(|long| long.register).map_or(0, |register| 1u32 << register);
        let unit_is_free = self.long.is_none() || arriving.is_some();
        let flags_pending =
            ahead.iter().flatten().any(|slot| slot.sets_flags) || !self.floats.is_settled(cycle);
        let touches_flags = needs.is_float_csr;
        self.busy & !fresh & needs.x != 0
            || !self.floats.is_free(needs.f)
            || (needs.is_access() && self.blocked && !self.data_cache.is_granted(cycle))
            || (needs.is_long() && (!unit_is_free || ahead[0].is_some_and(|slot| slot.is_long())))
            || (touches_flags && flags_pending)
    }

    pub(super) fn needs(&mut self, fetched: &Fetched) -> Option<Needs> {
        let bits = fetched.bits?;
        // Half an instruction is remembered apart from the whole.
        let slot = (fetched.pc >> 1) as usize * 2 + usize::from(fetched.is_half);
        let memo = &mut self.decoded[slot % DECODED];
        if !matches!(memo, Some((pc, known, _)) if *pc == fetched.pc && *known == bits) {
            let needs = Instruction::decode(bits).ok().map(|instruction| Needs::of(&instruction));
            *memo = Some((fetched.pc, bits, needs));
        }
        memo.and_then(|(.., needs)| needs)
    }
}

/// What an instruction in a stage needs, unless it only passes through.
fn live(stage: &Option<Slot>) -> Option<&Needs> {
    stage.as_ref().filter(|slot| !slot.replays).map(|slot| &slot.needs)
}
