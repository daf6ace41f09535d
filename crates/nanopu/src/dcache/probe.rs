//! Probes: memory may not have the newest bytes of a line, so the instruction cache's misses are asked for here first.

use super::{DataCache, Transfer};
use crate::cache::LINE_WORDS;
use crate::core::{Ask, World};
use crate::port::Port;

/// Cycles from a miss of the instruction cache to the probe of the data cache.
const PROBE_CYCLES: u64 = 3;

/// So long after a line has come in, or while a reservation is fresh, probes wait and let accesses pass, so that the program gets
/// on.
const GUARD_CYCLES: u64 = 7;

/// Cycles from reading a probed line's tags to sending the last of its words to memory, which takes them in
/// two turns.
const PROBED_LINE_CYCLES: u64 = 12;

/// How long a reservation lasts, and below which count it is no longer valid.
const RESERVATION_CYCLES: u8 = 79;
const BACKING_OFF: u8 = 3;

/// A probe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Probe {
    None,
    /// It arrives in this cycle at the earliest, and waits until both stages are empty. It asks for the line
    /// of this address.
    Asked(u64, u64),
    /// It came in this cycle and found this. It occupies the tags in this cycle, the second stage two cycles
    /// later and, if the line is there, the cache after that.
    Came(u64, Found),
}

/// What a probe finds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Found {
    Nothing,
    Clean,
    /// The line goes to memory first.
    Dirty,
}

impl Found {
    /// The last cycle of a probe, counted from its first.
    fn last(self) -> u64 {
        match self {
            Found::Nothing => 2,
            // The tags are written.
            Found::Clean => 3,
            // The line is sent to memory before the tags are written.
            Found::Dirty => 3 + PROBED_LINE_CYCLES,
        }
    }
}

impl DataCache {
    /// The instruction cache misses the line of `address`. The hub takes no request for the line that this cache waits
    /// for, and so sends the probe when that line has come.
    pub(crate) fn ask<B: Port>(&mut self, address: u64, world: &mut World<'_, B>) {
        let filled = self.transfer.filter(|transfer| transfer.fills && world.is(Ask::IsTransfer, 0, address));
        let asked = filled.map_or(world.cycle, |transfer| transfer.last.max(world.cycle));
        self.probe = Probe::Asked(asked + PROBE_CYCLES, address);
        self.is_quiet = false;
    }

    /// At the beginning of a cycle: if the probe of [`DataCache::ask`] arrives in it, how many cycles pass
    /// before memory can answer.
    #[inline(always)]
    pub(crate) fn is_probed<B: Port>(&mut self, world: &mut World<'_, B>) -> Option<u64> {
        if self.is_quiet {
            return None;
        }
        let cycle = world.cycle;
        match self.probe {
            Probe::Asked(earliest, address) if earliest <= cycle && self.takes_probe(cycle) => {
                // The data cache may still read a line of instructions, but no longer write to it.
                let [found, write_cycles] = world.ask(Ask::Probe, [0; 3], [address, 0]);
                let found = match found {
                    0 => Found::Nothing,
                    1 => Found::Clean,
                    _ => Found::Dirty,
                };
                self.probe = Probe::Came(cycle, found);
                return Some(if found == Found::Dirty { PROBED_LINE_CYCLES + write_cycles } else { 0 });
            }
            Probe::Came(came, found) if came + found.last() < cycle => self.probe = Probe::None,
            _ => {}
        }
        None
    }

    /// Whether the instruction cache asked in the cycle before: the probe that asks which cache holds its line takes the bus
    /// for two cycles.
    pub(super) fn is_behind_code(&self, cycle: u64) -> bool {
        matches!(self.probe, Probe::Asked(earliest, _) if earliest == cycle + PROBE_CYCLES - 1)
    }

    fn takes_probe(&self, cycle: u64) -> bool {
        let arriving = |transfer: &Transfer| match transfer.fills {
            // A probe waits from the fill's second word on, and while the line that made room is struck off.
            true => cycle + LINE_WORDS > transfer.last + 1 || cycle == transfer.began + 1,
            false => true,
        };
        !self.is_guarded(cycle)
            && !self.strikes
            && self.s1.is_none()
            && self.s2.is_none()
            && !self.transfer.as_ref().is_some_and(arriving)
    }

    fn is_guarded(&self, cycle: u64) -> bool {
        self.guard_end.is_some_and(|end| cycle < end) || self.reservation > BACKING_OFF
    }

    /// Whether a probe takes the tags in this cycle; it takes them from its arrival on, even while it waits.
    pub(super) fn probe_passes(&self, cycle: u64) -> bool {
        match self.probe {
            Probe::None => false,
            Probe::Asked(earliest, _) => {
                let backs_off = self.reservation > 0 && self.reservation <= BACKING_OFF;
                cycle >= earliest && (!self.is_guarded(cycle) || backs_off)
            }
            Probe::Came(came, found) => cycle == came || (came + 3..=came + found.last()).contains(&cycle),
        }
    }

    /// Whether a probe in the second stage makes the access in the first stage replay.
    pub(super) fn probe_refuses(&self, cycle: u64) -> bool {
        matches!(self.probe, Probe::Came(came, Found::Clean | Found::Dirty) if cycle == came + 2)
    }

    /// Whether a probe is under way behind its first cycle.
    pub(super) fn is_releasing(&self, cycle: u64) -> bool {
        matches!(self.probe, Probe::Came(came, found) if cycle > came && cycle <= came + found.last())
    }

    /// Whether the last word of a line, or of the answer to a probe, leaves the cache in this cycle.
    pub(crate) fn releases(&self, cycle: u64) -> bool {
        let writes_back = |transfer: &Transfer| !transfer.fills && transfer.last == cycle + 1;
        let answers = match self.probe {
            Probe::Came(came, Found::Dirty) => cycle + 1 == came + Found::Dirty.last(),
            Probe::Came(came, _) => cycle == came + 2,
            _ => false,
        };
        answers || self.transfer.as_ref().is_some_and(writes_back)
    }

    /// A line has come in.
    pub(super) fn guard(&mut self, cycle: u64) {
        self.guard_end = Some(cycle + 1 + GUARD_CYCLES);
    }

    /// The reservation ages; the access in the second stage, whose line is there or not, makes one or ends it.
    pub(super) fn move_reservation(&mut self, cycle: u64) {
        self.guard_end = self.guard_end.filter(|&end| end > cycle);
        let accepted = self.s2.filter(|(access, refused)| !refused && !access.traps);
        let accepted = accepted.map(|(access, _)| access);
        let is_valid = self.reservation > BACKING_OFF;
        let reserves =
            accepted.is_some_and(|access| access.reserves) && self.s2_hit && self.transfer.is_none();
        self.reservation = match self.reservation {
            _ if matches!(self.probe, Probe::Came(came, _) if cycle == came + 1) => 0,
            _ if accepted.is_some() && is_valid => BACKING_OFF,
            0 if reserves => RESERVATION_CYCLES,
            count => count.saturating_sub(1),
        };
    }
}
