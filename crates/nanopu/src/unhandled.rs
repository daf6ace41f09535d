//! Which exceptions no handler of the program takes.
//!
//! An exception goes on in its handler, as on hardware. It counts as unhandled if the handler's own first
//! instruction traps again and again, or if the program fails before the handler has returned.

use highwire_riscv::{Hart, Trap};

/// So many traps in a row, without an instruction in between, have no handler.
const IN_ROW_MAX: u32 = 3;

/// The exceptions of one core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exceptions {
    /// Instructions that had retired at the last one.
    retired: u64,
    in_row: u32,
    /// The cycle of the first whose handler has not returned.
    cycle: u64,
    is_reported: bool,
}

/// An exception without a handler.
pub(crate) struct Unhandled {
    pub(crate) cycle: u64,
    pub(crate) pc: u64,
    pub(crate) trap: Trap,
}

impl Exceptions {
    /// The core took the exception `trap` at `pc` in `cycle`. Returns the first of a row that will not end, once.
    pub(crate) fn on_exception(
        &mut self,
        cycle: u64,
        (pc, trap): (u64, Trap),
        hart: &Hart,
    ) -> Option<Unhandled> {
        let retired = hart.csrs.minstret;
        self.in_row = if self.in_row > 0 && retired == self.retired { self.in_row + 1 } else { 1 };
        self.retired = retired;
        if self.in_row == 1 && hart.unreturned == Some((pc, trap)) {
            self.cycle = cycle;
        }
        if self.in_row < IN_ROW_MAX { None } else { self.report(hart) }
    }

    /// The program has ended with `code`. Returns the exception whose handler has not returned, once; a program that says
    /// that all is well has handled it.
    pub(crate) fn on_exit(&mut self, code: u64, hart: &Hart) -> Option<Unhandled> {
        if code == 0 { None } else { self.report(hart) }
    }

    /// The first exception whose handler has not returned, unless it was reported.
    pub(crate) fn open(&self, hart: &Hart) -> Option<Unhandled> {
        let (pc, trap) = hart.unreturned.filter(|_| !self.is_reported)?;
        Some(Unhandled { cycle: self.cycle, pc, trap })
    }

    fn report(&mut self, hart: &Hart) -> Option<Unhandled> {
        let open = self.open(hart)?;
        self.is_reported = true;
        Some(open)
    }
}
