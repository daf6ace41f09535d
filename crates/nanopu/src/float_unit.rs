//! The floating-point unit's bookkeeping: one write port, results that come late, one division at a time.

use crate::latency::FloatLatency;

/// Results on their way into the register file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FloatUnit {
    /// The cycles in which the write port is taken, and the register that waits for it, if anybody must.
    writes: Vec<(u64, Option<u8>)>,
    /// The last cycle of the division under way, and its register.
    division: Option<(u64, u8)>,
    /// Registers that must not be read or written yet.
    busy: u32,
}

impl FloatUnit {
    /// Whether `registers` are all there.
    pub(crate) fn is_free(&self, registers: u32) -> bool {
        self.busy & registers == 0
    }

    /// Whether the instruction in the memory stage must be replayed.
    pub(crate) fn refuses(&self, cycle: u64, latency: FloatLatency) -> bool {
        match latency {
            _ if self.division.is_some() => true,
            FloatLatency::Pipe(cycles) => self.writes.iter().any(|&(write, _)| write == cycle + cycles - 1),
            FloatLatency::Unit(_) => self.writes.iter().any(|&(write, _)| write >= cycle),
            FloatLatency::None => false,
        }
    }

    /// Whether all flags have been written.
    pub(crate) fn is_settled(&self, cycle: u64) -> bool {
        self.division.is_none() && self.writes.iter().all(|&(write, _)| write < cycle)
    }

    /// The instruction in the memory stage goes on.
    pub(crate) fn accept(&mut self, cycle: u64, latency: FloatLatency, register: Option<u8>) {
        match (latency, register) {
            (FloatLatency::Pipe(cycles), register) => {
                self.writes.push((cycle + cycles - 1, register.filter(|_| cycles > 3)));
            }
            // Counted from decode, two cycles ago, to the cycle before a waiting instruction leaves decode.
            (FloatLatency::Unit(cycles), Some(register)) => {
                self.division = Some((cycle + cycles - 3, register))
            }
            _ => {}
        }
    }

    /// The instruction at write-back is final: from the next cycle on, nobody may read its late result.
    pub(crate) fn commit(&mut self, latency: FloatLatency, register: Option<u8>) {
        let late = matches!(latency, FloatLatency::Unit(_)) || latency == FloatLatency::Pipe(4);
        if late && let Some(register) = register {
            self.busy |= 1 << register;
        }
    }

    /// The end of a cycle.
    pub(crate) fn tick(&mut self, cycle: u64) {
        for &(write, register) in &self.writes {
            if write == cycle
                && let Some(register) = register
            {
                self.busy &= !(1 << register);
            }
        }
        self.writes.retain(|&(write, _)| write > cycle);
        if let Some((last, register)) = self.division
            && last <= cycle
        {
            self.busy &= !(1 << register);
            self.division = None;
        }
    }
}
