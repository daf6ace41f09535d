//! An instruction leaves decode, and executes if it is the right one.

use highwire_riscv::Class;

use super::outcome::{Outcome, TrapStage};
use super::pipeline::{Pipeline, Slot, WRONG_PATH};
use super::world::{Ask, World};
use crate::decode::{NO_NEEDS, jump_target};
use crate::latency::FloatLatency;
use crate::port::Port;

impl Pipeline {
    /// Moves the instruction at the head of the buffer from decode into the stage behind execute. False if it
    /// stays.
    #[inline(always)]
    pub(super) fn issue<B: Port>(&mut self, world: &mut World<'_, B>) -> bool {
        let fetched = self.frontend.fetched();
        let bits = fetched.bits;
        let mut slot = Slot {
            is_live: true,
            replays: fetched.replays(),
            turns: false,
            trap: None,
            is_short: fetched.is_short(),
            goes_to_next: false,
            expected: 0,
            is_access: false,
            is_device: false,
            reserves: false,
            fails: false,
            entry: fetched.entry,
            number: fetched.number,
            unit_cycles: 0,
            pc: fetched.pc,
            next: 0,
            serial: WRONG_PATH,
            float: FloatLatency::None,
            needs: fetched.needs,
        };
        let (is_known, fences) = (fetched.is_known(), fetched.needs.fences());
        if !self.is_behind_turn() {
            let behind = self.behind(self.next_serial);
            let is_new = self.next_serial == self.end_serial;
            let ask = if is_new { Ask::Execute } else { Ask::Again };
            let outcome = Outcome::of(world.ask(ask, [behind, 0, 0], [slot.pc, 0]));
            if !outcome.is_astray {
                if outcome.waits {
                    return false;
                }
                if is_new {
                    self.end_serial += 1;
                    self.may_sleep = false;
                }
                // Fetch and the hart may see different bits where a program has written its own code and not
                // fenced yet.
                if outcome.trap.is_some() {
                    slot.needs = match outcome.trap {
                        Some(TrapStage::Interrupt) => NO_NEEDS,
                        _ => slot.needs.of_trap(),
                    };
                    slot.expected = match slot.needs.class {
                        Class::Jump => jump_target(slot.pc, bits),
                        _ => slot.sequential(),
                    };
                } else if !is_known || outcome.bits != bits {
                    slot.needs = world.side.decoder.needs_of(slot.pc, outcome.bits);
                }
                self.bind(&mut slot, &outcome);
            }
        }
        // Even a fence on a wrong path holds back the accesses behind it.
        self.fence |= fences && !slot.replays && slot.trap != Some(TrapStage::Interrupt);
        self.stages[(self.execute + 1) % 4] = slot;
        true
    }

    /// Fills `slot` in from the outcome: its instruction is the program's next.
    #[inline(always)]
    fn bind(&mut self, slot: &mut Slot, outcome: &Outcome) {
        slot.next = outcome.next;
        (slot.trap, slot.goes_to_next) = (outcome.trap, outcome.goes_to_next);
        slot.is_access = outcome.is_access;
        (slot.is_device, slot.reserves, slot.fails) = (outcome.is_device, outcome.reserves, outcome.fails);
        slot.unit_cycles = outcome.unit_cycles;
        slot.float = outcome.float;
        slot.turns = slot.needs.flushes() || outcome.trap.is_some();
        slot.serial = self.next_serial;
        self.may_sleep |= slot.needs.class == Class::System;
        if !slot.replays {
            self.next_serial += 1;
        }
    }

    /// Whether an instruction ahead will redirect from write-back, so that everything behind it is fetched
    /// again.
    #[inline(always)]
    fn is_behind_turn(&self) -> bool {
        let turns = |slot: &Slot| slot.works() && (slot.serial == WRONG_PATH || slot.turns);
        turns(&self.stages[self.execute]) || turns(self.memory())
    }
}
