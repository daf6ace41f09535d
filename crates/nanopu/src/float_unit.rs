//! The floating-point unit's bookkeeping: one write port, results that come late, one division at a time.

use crate::interface::CONTEXTS_MAX;
use crate::latency::FloatLatency;

/// Results on their way into the register file.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct FloatUnit {
    /// The cycles in which the write port is taken: bit 0 is this cycle.
    writes: u32,
    /// The registers that wait for those writes, as sets, by cycle modulo four. No pipeline is longer.
    waiting: [u32; 4],
    /// The last cycle of the division under way, and its register.
    division: Option<(u64, u8)>,
    /// The bank that the division is for, if its thread has left the core, and the registers that threads which have left wait for.
    divides_for: Option<u8>,
    parked: [u32; CONTEXTS_MAX + 1],
    /// Registers that must not be read or written yet.
    busy: u32,
}

impl FloatUnit {
    /// Whether none of `registers` waits for a result.
    pub(crate) fn is_free(&self, registers: u32) -> bool {
        self.busy & registers == 0
    }

    /// Whether the divider works in this cycle. In its last cycle it only hands its result over.
    fn divides(&self, cycle: u64) -> bool {
        self.division.is_some_and(|(last, _)| last > cycle)
    }

    /// Whether the instruction in the memory stage must be replayed.
    pub(crate) fn refuses(&self, cycle: u64, latency: FloatLatency) -> bool {
        match latency {
            _ if self.divides(cycle) => true,
            FloatLatency::Pipe(cycles) => self.writes >> (cycles - 1) & 1 != 0,
            FloatLatency::Unit(_) => self.writes != 0,
            FloatLatency::None => false,
        }
    }

    /// Whether all flags have been written.
    pub(crate) fn is_settled(&self, cycle: u64) -> bool {
        !self.divides(cycle) && self.writes == 0
    }

    /// Whether the pipelines have written all results.
    pub(crate) fn has_written(&self) -> bool {
        self.writes == 0
    }

    /// The thread of bank `from` leaves the core to that of bank `to`. The pipelines have written.
    pub(crate) fn change_banks(&mut self, from: u8, to: u8) {
        self.parked[usize::from(from)] = self.busy;
        self.busy = std::mem::take(&mut self.parked[usize::from(to)]);
        if self.division.is_some() {
            self.divides_for = Some(self.divides_for.unwrap_or(from)).filter(|&bank| bank != to);
        }
    }

    /// Whether no result is on its way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.division.is_none() && self.writes == 0 && self.busy == 0
    }

    /// The instruction in the memory stage goes on.
    pub(crate) fn accept(&mut self, cycle: u64, latency: FloatLatency, register: Option<u8>) {
        match (latency, register) {
            (FloatLatency::Pipe(cycles), register) => {
                self.writes |= 1 << (cycles - 1);
                let waits = register.filter(|_| cycles > 3).map_or(0, |register| 1 << register);
                self.waiting[(cycle + cycles - 1) as usize % 4] = waits;
            }
            // Counted from decode, two cycles ago, to the cycle before a waiting instruction leaves decode.
            (FloatLatency::Unit(cycles), Some(register)) if cycles > 0 => {
                // The division before is in its last cycle.
                self.end_division();
                self.division = Some((cycle + cycles - 3, register));
            }
            _ => {}
        }
    }

    /// The instruction at write-back is final: from the next cycle on, no instruction may read its late result before it is
    /// there.
    pub(crate) fn commit(&mut self, latency: FloatLatency, register: Option<u8>) {
        let late = matches!(latency, FloatLatency::Unit(1..)) || latency == FloatLatency::Pipe(4);
        if late && let Some(register) = register {
            self.busy |= 1 << register;
        }
    }

    /// Brings the state into its normal form, as in cycle 0.
    pub(crate) fn settle(&mut self, cycle: u64) {
        self.waiting.rotate_left(cycle as usize % 4);
        for (ahead, waiting) in self.waiting.iter_mut().enumerate() {
            *waiting = if self.writes >> ahead & 1 != 0 { *waiting } else { 0 };
        }
        if let Some((last, _)) = &mut self.division {
            *last = last.wrapping_sub(cycle);
        }
    }

    /// The opposite of [`FloatUnit::settle`].
    pub(crate) fn resume(&mut self, cycle: u64) {
        self.waiting.rotate_right(cycle as usize % 4);
        if let Some((last, _)) = &mut self.division {
            *last = last.wrapping_add(cycle);
        }
    }

    /// The end of a cycle.
    #[inline]
    pub(crate) fn tick(&mut self, cycle: u64) {
        if self.writes & 1 != 0 {
            self.busy &= !self.waiting[cycle as usize % 4];
        }
        self.writes >>= 1;
        if self.division.is_some_and(|(last, _)| last <= cycle) {
            self.end_division();
        }
    }

    /// Ends the division: its register may be read again.
    fn end_division(&mut self) {
        let Some((_, register)) = self.division.take() else { return };
        match self.divides_for.take() {
            Some(bank) => self.parked[usize::from(bank)] &= !(1 << register),
            None => self.busy &= !(1 << register),
        }
    }
}
