//! The stages behind decode move, and hand their work to the cache and the units.

use super::{BUBBLE, Core, Long, WRONG_PATH};
use crate::port::Port;

impl Core {
    /// Everything moves one stage on. `overruled` says that write-back redirects, `killed` that anybody does. What was issued
    /// stands in the stage behind execute.
    pub(super) fn move_stages<B: Port>(&mut self, cycle: u64, overruled: bool, killed: bool, bus: &mut B) {
        let [execute, memory] = [self.execute, self.execute + 3].map(|stage| stage % 4);
        let memory_serial = self.stages[memory].serial;
        if overruled
            && self.stages[memory].is_live
            && let Some(long) = self.long
            && long.serial == memory_serial
        {
            self.long = None;
        }
        let refused_float = self.leave_memory(cycle, memory, overruled);

        let slot = self.stages[execute];
        let works = slot.works() && slot.serial != WRONG_PATH;
        let access = if works && slot.needs.is_access() { self.record(slot.serial).access() } else { None };
        let cache_ready = self.data_cache.is_ready(cycle, access.as_ref());
        let is_long = slot.works() && slot.needs.is_long();
        if killed {
            self.stages[execute] = BUBBLE;
        } else {
            let unit_ready = self.long.is_none();
            let refused = (access.is_some() && !cache_ready) || (is_long && !unit_ready);
            self.stages[execute].replays |= refused;
            if is_long && unit_ready && works {
                let record = self.record(slot.serial);
                let value = if record.trap.is_some() { 0 } else { record.value };
                let ready = cycle + record.unit_cycles;
                let register = slot.needs.writes_x();
                self.long = Some(Long { ready, register, value, serial: slot.serial, pc: slot.pc });
            }
        }
        self.blocked = !cache_ready
            && !self.data_cache.is_granted(cycle)
            && (self.blocked || access.is_some() || self.data_cache.refuses());
        let request = access.map(|access| (access, cache_ready && !killed));
        let code_line = self.frontend.incoming_line();
        let memory_cycles = self.memory_cycles;
        let line_cycles = |address| bus.line_cycles(address, memory_cycles);
        self.data_cache.tick(cycle, request, overruled || refused_float, code_line, line_cycles);

        if killed && !overruled && self.stages[memory].is_live {
            self.next_serial = memory_serial + 1;
        }
        self.execute = (self.execute + 1) % 4;
    }

    /// The instruction in the memory stage moves on if it is one of the program's; says whether it will be replayed, as it
    /// is when the floating-point unit has no room for it.
    fn leave_memory(&mut self, cycle: u64, memory: usize, overruled: bool) -> bool {
        let slot = &mut self.stages[memory];
        slot.is_live &= !overruled && slot.serial != WRONG_PATH;
        if !slot.is_live {
            return false;
        }
        if !slot.replays && slot.needs.is_float() {
            let needs = slot.needs;
            let float = self.records[slot.serial as usize % super::RECORDS].float;
            slot.replays = self.floats.refuses(float);
            if !slot.replays {
                self.floats.accept(cycle, float, needs.float_register());
            }
        }
        slot.replays
    }
}
