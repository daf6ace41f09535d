//! The stages behind decode move, and hand their work to the cache and the units.

use super::outcome::TrapStage;
use super::pipeline::{Long, Pipeline, WRONG_PATH};
use super::stalls::Stall;
use super::world::{Ask, World};
use crate::dcache::{Access, Request};
use crate::port::Port;

impl Pipeline {
    /// Everything moves one stage on. `overruled` says that write-back redirects, `killed` that any stage does. The instruction
    /// that was issued stands in the stage behind execute.
    #[inline(always)]
    pub(super) fn move_stages<B: Port>(&mut self, overruled: bool, killed: bool, world: &mut World<'_, B>) {
        let cycle = world.cycle;
        let [execute, memory] = [self.execute, self.execute + 3].map(|stage| stage % 4);
        let memory_serial = self.stages[memory].serial;
        if overruled
            && self.stages[memory].is_live
            && let Some(long) = self.long
            && long.serial == memory_serial
        {
            self.long = None;
        }
        let replayed = self.stages[memory].replays;
        let refused = self.leave_memory(cycle, memory, overruled);
        if refused
            && !replayed
            && let Some(stalls) = &mut world.side.stalls
        {
            let is_float = self.stages[memory].needs.is_float();
            stalls.tell(memory, if is_float { Stall::FloatUnit } else { Stall::Device });
        }
        if refused
            && let Some(long) = self.long
            && long.serial == memory_serial
        {
            self.long = None;
        }
        let asks_device = self.data_cache.asks_device();

        let slot = &self.stages[execute];
        let works = slot.works() && slot.serial != WRONG_PATH;
        let serial = slot.serial;
        // An access on a wrong path, or whose trap decode has found, only passes through the cache.
        let traps_before = slot.trap == Some(TrapStage::Decode);
        let passes = (!works || traps_before) && slot.needs.is_access();
        let enters = slot.works() && (slot.is_access || passes);
        let access = if enters { Access::of(slot) } else { None };
        let refuses_s1 = self.data_cache.refuses_s1(world);
        if slot.works() {
            self.reads_stale = slot.needs.reads_stale();
        }
        let reads = access.as_ref().map_or(self.reads_stale, Access::reads);
        let cache_ready = self.data_cache.is_ready(cycle, access.as_ref(), reads, refuses_s1);
        let is_long = slot.works() && slot.needs.is_long();
        if killed {
            self.stages[execute].is_live = false;
        } else {
            let unit_ready = self.long.is_none();
            // An instruction that needs a load's word was issued in the hope of a hit; the load goes to a
            // device, so the instruction is replayed.
            let hoped = asks_device && slot.works() && slot.needs.uses & self.loading != 0;
            let refused = hoped || (access.is_some() && !cache_ready) || (is_long && !unit_ready);
            if is_long && unit_ready && works && !hoped {
                let (ready, register) = (cycle + u64::from(slot.unit_cycles), slot.needs.writes_x());
                world.tell(Ask::KeepLong, self.behind(serial), 0);
                self.long = Some(Long { ready, register, serial, bank: self.bank() });
            }
            if refused
                && !self.stages[execute].replays
                && let Some(stalls) = &mut world.side.stalls
            {
                let is_unit = !hoped && is_long;
                let other = if hoped { Stall::Device } else { self.data_cache.why_busy() };
                stalls.tell(execute, if is_unit { Stall::Unit } else { other });
            }
            self.stages[execute].replays |= refused;
        }
        self.blocked = !cache_ready
            && !self.data_cache.is_granted(cycle)
            && (self.blocked || access.is_some() || self.data_cache.refuses());
        let is_killed = killed || !works || traps_before || self.stages[execute].replays;
        let instruction = self.behind(serial);
        let request =
            access.map(|access| Request { access, instruction, is_accepted: cache_ready, is_killed });
        let code_line = self.frontend.incoming_line();
        self.data_cache.tick(request, refuses_s1, overruled || refused, code_line, world);

        if killed && !overruled && self.stages[memory].is_live {
            self.next_serial = memory_serial + 1;
        }
        self.execute = (self.execute + 1) % 4;
    }

    /// Moves the instruction in the memory stage on if it is one of the program's. Returns whether it will be
    /// replayed, because the floating-point unit has no room for it or a device's word takes its port.
    fn leave_memory(&mut self, cycle: u64, memory: usize, overruled: bool) -> bool {
        let slot = &mut self.stages[memory];
        slot.is_live &= !overruled && slot.serial != WRONG_PATH;
        if !slot.is_live {
            return false;
        }
        // A device's word takes the register file's port in this instruction's cycle. An instruction that
        // trapped in decode needs no port.
        let takes_port = slot.needs.takes_port() && slot.trap != Some(TrapStage::Decode);
        slot.replays |= takes_port && self.data_cache.takes_word(cycle);
        if !slot.replays && slot.needs.is_float() {
            let needs = slot.needs;
            let float = slot.float;
            slot.replays = self.floats.refuses(cycle, float);
            if !slot.replays {
                self.floats.accept(cycle, float, needs.float_register());
            }
        }
        slot.replays
    }
}
