//! The part of a hart that belongs to the thread it runs: a core with several banks of registers has one for
//! each.

use crate::csr::Privilege;
use crate::csr::ThreadCsrs;
use crate::hart::Hart;
use crate::trap::Interrupt;

/// The state of a thread that does not run: its registers, its `pc`, and the control registers that traps
/// change.
#[derive(Clone, Debug)]
pub struct Thread {
    /// The address of its next instruction.
    pub pc: u64,
    x: [u64; 32],
    f: [u64; 32],
    csrs: ThreadCsrs,
    privilege: Privilege,
}

impl Hart {
    /// A thread that begins at `pc` with this hart's status and mode, and zero in all registers.
    pub fn fork(&self, pc: u64) -> Thread {
        let (csrs, privilege) = (self.csrs.of_thread(), self.privilege);
        Thread { pc, x: [0; 32], f: [0; 32], csrs, privilege }
    }

    /// Runs `thread` from now on, and stores the one that ran there. Reservations and the wait of `wfi` end,
    /// as they do at a trap.
    pub fn exchange(&mut self, thread: &mut Thread) {
        std::mem::swap(&mut self.pc, &mut thread.pc);
        std::mem::swap(&mut self.x, &mut thread.x);
        std::mem::swap(&mut self.f, &mut thread.f);
        std::mem::swap(&mut self.privilege, &mut thread.privilege);
        self.csrs.exchange(&mut thread.csrs);
        self.reservation = None;
        self.waiting = false;
    }

    /// Whether `interrupt` would be taken before the next instruction if it were pending and alone.
    pub fn would_take(&self, interrupt: Interrupt) -> bool {
        self.csrs.is_enabled(interrupt) && self.csrs.lets_interrupt(self.privilege)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::number::{MEPC, MIE, MSCRATCH, MSTATUS, MTVEC};

    #[test]
    fn threads_share_nothing_but_the_machine() {
        let mut hart = Hart::new(0, 0x100);
        (hart.x[5], hart.f[5]) = (5, 50);
        for (number, value) in [(MSTATUS, 8), (MSCRATCH, 1), (MEPC, 0x10), (MTVEC, 0x40), (MIE, 1 << 16)] {
            assert!(hart.csrs.write(number, value));
        }
        assert!(hart.would_take(Interrupt(16)));
        let mut other = hart.fork(0x200);
        hart.exchange(&mut other);
        assert_eq!((hart.pc, hart.x[5], hart.f[5], other.pc), (0x200, 0, 0, 0x100));
        // The status belongs to the thread, the trap vector to the machine.
        assert!(hart.would_take(Interrupt(16)));
        assert_eq!(hart.csrs.read(MTVEC), Some(0x40));
        hart.csrs.write(MSCRATCH, 2);
        hart.csrs.write(MSTATUS, 0);
        hart.csrs.fflags = 3;
        assert!(!hart.would_take(Interrupt(16)));
        hart.exchange(&mut other);
        assert_eq!((hart.pc, hart.x[5], hart.f[5], hart.csrs.fflags), (0x100, 5, 50, 0));
        assert_eq!((hart.csrs.read(MSCRATCH), hart.csrs.read(MEPC)), (Some(1), Some(0x10)));
        assert!(hart.would_take(Interrupt(16)));
    }
}
