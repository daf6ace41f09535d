//! The stages behind decode move, and hand their work to the cache and the units.

use super::{Core, Long, Outcome, Slot};

impl Core {
    /// Everything moves one stage on. `overruled` says that write-back redirects, `killed` that anybody does.
    pub(super) fn move_stages(&mut self, cycle: u64, overruled: bool, killed: bool, issued: Option<Slot>) {
        let to_write_back = self.leave_memory(cycle, overruled);
        let refused_float = to_write_back.as_ref().is_some_and(|slot| slot.replays);
        let cancels = |long: &Long| {
            overruled && self.memory.as_ref().is_some_and(|slot| slot.serial == Some(long.serial))
        };
        self.long = self.long.filter(|long| !cancels(long));

        let executing = self.execute.as_ref().filter(|slot| !slot.replays);
        let access = executing.and_then(|slot| self.record(slot.serial?).access);
        let cache_ready = self.data_cache.is_ready(cycle, access.as_ref());
        let is_long = executing.is_some_and(|slot| slot.needs.is_long());
        let unit_ready = self.long.is_none();
        let mut to_memory = self.execute.filter(|_| !killed);
        if let Some(slot) = &mut to_memory {
            slot.replays |= (access.is_some() && !cache_ready) || (is_long && !unit_ready);
            if is_long
                && unit_ready
                && let Some(serial) = slot.serial
            {
                let record = self.record(serial);
                let value = match record.outcome {
                    Outcome::Retired(retired) => retired.write.map_or(0, |write| write.value),
                    Outcome::Trapped(_) => 0,
                };
                let ready = cycle + record.unit_cycles;
                self.long = Some(Long { ready, register: slot.needs.writes_x, value, serial });
            }
        }
        self.blocked = !cache_ready
            && !self.data_cache.is_granted(cycle)
            && (self.blocked || access.is_some() || self.data_cache.refuses());
        let request = access.map(|access| (access, cache_ready && !killed));
        let code_line = self.frontend.incoming_line();
        self.data_cache.tick(cycle, request, overruled || refused_float, code_line);

        if killed
            && !overruled
            && let Some(serial) = to_write_back.and_then(|slot| slot.serial)
        {
            self.next_serial = serial + 1;
        }
        self.write_back = to_write_back;
        self.memory = to_memory;
        self.execute = issued;
    }

    /// The instruction in the memory stage moves on, unless the floating-point unit has no room for it.
    pub(super) fn leave_memory(&mut self, cycle: u64, overruled: bool) -> Option<Slot> {
        let mut slot = self.memory.filter(|slot| !overruled && slot.serial.is_some())?;
        if !slot.replays && slot.needs.is_float {
            let float = self.record(slot.serial?).float;
            slot.replays = self.floats.refuses(cycle, float);
            if !slot.replays {
                self.floats.accept(cycle, float, slot.needs.writes_f);
            }
        }
        Some(slot)
    }
}
