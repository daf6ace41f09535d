//! The instruction cache: missing lines, and packets that memory is not asked for.

use super::{Frontend, Request};
use crate::cache::{LINE_BYTES, LINE_WORDS, UNKNOWN, share_bus};
use crate::config::INSTRUCTION_MISS_CYCLES;
use crate::core::{Ask, World, fetched};
use crate::port::Port;

/// Where a packet lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Place {
    Memory,
    Device,
    Nowhere,
}

impl Place {
    #[inline(always)]
    pub(super) fn of(fetched: u64) -> Place {
        match fetched & (fetched::DEVICE | fetched::NOWHERE) {
            0 => Place::Memory,
            fetched::DEVICE => Place::Device,
            _ => Place::Nowhere,
        }
    }
}

/// A line of instructions on its way.
#[derive(Debug)]
pub(crate) struct CodeLine<'a> {
    /// The cycle of its last word, or [`UNKNOWN`].
    pub(crate) last: &'a mut u64,
    pub(crate) address: u64,
}

impl Frontend {
    #[inline(always)]
    pub(super) fn refill_cache<B: Port>(
        &mut self,
        is_held: bool,
        request: &Request,
        s1_killed: bool,
        world: &mut World<'_, B>,
    ) -> bool {
        let missed = self.misses();
        if missed || self.refill.is_some() || request.flushes_cache {
            return self.refill_slowly(is_held, request, s1_killed, world);
        }
        let is_looking = self.s1_valid;
        if is_looking {
            self.refill_address = self.s1_pc & !(LINE_BYTES - 1);
            self.s2_hit = is_held;
            self.shown = if self.s2_hit { Some(self.s1_pc) } else { None };
        } else {
            self.s2_hit = false;
        }
        self.s2_cache_valid = is_looking && !s1_killed;
        self.s2_may_refill = true;
        false
    }

    #[inline(never)]
    fn refill_slowly<B: Port>(
        &mut self,
        is_held: bool,
        request: &Request,
        s1_killed: bool,
        world: &mut World<'_, B>,
    ) -> bool {
        let cycle = world.cycle;
        let missed = self.misses();
        let can_request = !(missed || self.refill.is_some());
        // A flush in the cycle of a line's request does not invalidate the line.
        self.invalidated = self.refill.is_some() && (self.invalidated || request.flushes_cache);
        let begins = self.asks_line() && !request.waits_for_bus;
        if begins {
            self.refill = Some(UNKNOWN);
            world.tell(Ask::DrawCode, 0, 0);
        }
        // While a line arrives, its words take the array's only port, and nothing can be looked up.
        let is_writing = self.refill.is_some_and(|last| cycle + LINE_WORDS >= last + 2 && cycle <= last + 1);
        let is_looking = self.s1_valid && !is_writing;
        let hit = is_looking && is_held;
        if is_looking {
            self.shown = hit.then_some(self.s1_pc);
        }
        if is_looking && can_request && self.refill.is_none() {
            self.refill_address = self.s1_pc & !(LINE_BYTES - 1);
        }
        if self.refill.is_some_and(|last| last < cycle) {
            self.refill = None;
            if !self.invalidated {
                world.tell(Ask::FillCode, 0, self.refill_address);
            }
        }
        if request.flushes_cache {
            world.tell(Ask::ClearCode, 0, 0);
        }
        self.s2_cache_valid = is_looking && !s1_killed;
        self.s2_hit = hit;
        self.s2_may_refill = can_request;
        begins
    }

    /// Whether a line is asked for in this cycle, if the bus takes the request.
    #[inline(always)]
    pub(crate) fn asks_line(&self) -> bool {
        self.misses() && self.s2_may_refill && self.refill.is_none()
    }

    /// Whether the second stage needs a line.
    #[inline(always)]
    fn misses(&self) -> bool {
        self.s2_cache_valid && !self.s2_hit && !self.is_unwanted()
    }

    /// Whether fetch does not ask for the second stage's packet: its address is empty, or belongs to a device
    /// while the packet may still be on a wrong path. The packet enters the queue without its bytes, and
    /// traps or is fetched again.
    #[inline(always)]
    pub(super) fn is_unwanted(&self) -> bool {
        match self.s2_place {
            Place::Memory => false,
            Place::Device => self.s2_is_guess,
            Place::Nowhere => true,
        }
    }

    /// Whether fetch waits for a line, or is about to ask for one.
    pub(crate) fn lacks_line(&self) -> bool {
        self.refill.is_some() || self.misses()
    }

    /// The line that is missing.
    pub(crate) fn missing_line(&self) -> u64 {
        self.refill_address
    }

    /// The data cache was probed in this cycle, so the missing line comes from memory `waits` cycles later.
    /// `data_line` is when a line of the data cache is complete.
    pub(crate) fn expect_line<B: Port>(
        &mut self,
        waits: u64,
        data_line: Option<&mut u64>,
        world: &mut World<'_, B>,
    ) {
        if self.refill.is_some() {
            let [line_cycles, _] = world.ask(Ask::CodeCycles, [0; 3], [self.refill_address, 0]);
            let last = world.cycle + waits + INSTRUCTION_MISS_CYCLES + line_cycles;
            self.refill = Some(share_bus(last, data_line));
        }
    }

    /// Whether a line is on its way.
    pub(crate) fn is_refilling(&self) -> bool {
        self.refill.is_some()
    }

    /// The line on its way, if there is one.
    pub(crate) fn incoming_line(&mut self) -> Option<CodeLine<'_>> {
        let address = self.refill_address;
        self.refill.as_mut().map(|last| CodeLine { last, address })
    }
}
