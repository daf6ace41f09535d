//! Why decode holds an instruction back.

use highwire_riscv::Class;

use super::pipeline::{Long, Pipeline};
use super::stalls::Stall;
use super::world::{Ask, World};
use crate::decode::{NO_NEEDS, Needs};
use crate::port::Port;

impl Pipeline {
    /// Why decode holds its instruction back, if it does.
    #[inline(always)]
    pub(super) fn stall<B: Port>(
        &mut self,
        arriving: Option<Long>,
        world: &mut World<'_, B>,
    ) -> Option<Stall> {
        let fetched = self.frontend.fetched();
        let needs = fetched.needs;
        let live = |slot: usize| match &self.stages[(self.execute + slot) % 4] {
            slot if slot.works() => &slot.needs,
            _ => &NO_NEEDS,
        };
        let [in_execute, in_memory, in_write_back] = [live(0), live(3), live(2)];
        let late =
            [in_execute.late_in_execute(), in_memory.late_in_memory(), in_write_back.late_in_write_back()];
        if (late[0] | late[1] | late[2]) & needs.uses != 0 {
            let slots = [in_execute, in_memory, in_write_back].into_iter().zip(late);
            let awaited =
                |of: fn(&Needs) -> bool| slots.clone().any(|(slot, late)| late & needs.uses != 0 && of(slot));
            return Some(match () {
                () if awaited(Needs::is_long) => Stall::Unit,
                () if awaited(Needs::is_float) => Stall::FloatUnit,
                () => Stall::Operand,
            });
        }
        let busy =
            self.waits_for_units(world.cycle, &needs, [in_execute, in_memory, in_write_back], arriving);
        if busy.is_some() {
            return busy;
        }
        if self.paused {
            return Some(Stall::Pause);
        }
        let is_fence_i = needs.class == Class::Fence && needs.flushes();
        if self.fence || is_fence_i || needs.releases() {
            let busy_memory = self.data_cache.is_busy() || in_execute.is_access();
            self.fence &= busy_memory;
            if busy_memory && (needs.releases() || is_fence_i || needs.is_access()) {
                return Some(Stall::Fence);
            }
        }
        // A sleeping hart issues nothing.
        let sleeps = self.may_sleep && self.next_serial == self.end_serial && world.is(Ask::Asleep, 0, 0);
        sleeps.then_some(Stall::Sleep)
    }

    /// At the end of a cycle: decode pauses if a hint to pause `begins`, until fetch is `turned`, the data
    /// cache has given a line away, or the cycle counter has reached a multiple of 32.
    #[inline(always)]
    pub(super) fn pause<B: Port>(&mut self, begins: bool, turned: bool, world: &mut World<'_, B>) {
        if self.paused || begins {
            self.paused = !turned && !self.data_cache.releases(world.cycle) && !world.is(Ask::Wakes, 0, 0);
        }
    }

    /// Whether decode holds back a read of x30 until there is a word. An interrupt takes the read's place,
    /// and the read is fetched again afterwards.
    ///
    /// A read that is replayed has its word. A read on a wrong path waits too, until an instruction before it
    /// redirects; so the thread counts as idle only when no instruction is left before the read.
    #[inline(always)]
    pub(super) fn waits_for_word<B: Port>(&self, world: &mut World<'_, B>) -> bool {
        let fetched = self.frontend.fetched();
        if !fetched.needs.reads_network() || !fetched.is_known() || self.next_serial != self.end_serial {
            return false;
        }
        world.is(Ask::WordWaits, u8::from(self.is_drained()), fetched.pc)
    }

    #[inline(always)]
    fn waits_for_units(
        &self,
        cycle: u64,
        needs: &Needs,
        ahead: [&Needs; 3],
        arriving: Option<Long>,
    ) -> Option<Stall> {
        // A result that is written in this cycle can be read in it.
        let fresh = arriving.filter(|long| long.bank == self.bank()).map_or(0, |long| long.register);
        let fresh = fresh | if self.data_cache.writes_word() { self.loading & 0xffff_ffff } else { 0 };
        let unit_is_free = self.long.is_none() || self.finished(cycle).is_some();
        if self.busy & !fresh & needs.uses != 0 {
            let is_device = self.loading & needs.uses != 0;
            Some(if is_device { Stall::Device } else { Stall::Unit })
        } else if !self.floats.is_free((needs.uses >> 32) as u32) {
            Some(Stall::FloatUnit)
        } else if needs.is_access() && self.blocked && !self.data_cache.is_granted(cycle) {
            Some(self.data_cache.why_busy())
        } else if needs.is_long() && (!unit_is_free || ahead[0].is_long()) {
            Some(Stall::Unit)
        } else if needs.is_float_csr()
            && (ahead[..2].iter().any(|slot| slot.sets_flags())
                || ahead[2].leaves_floats()
                || !self.floats.is_settled(cycle))
        {
            Some(Stall::FloatUnit)
        } else {
            None
        }
    }
}
