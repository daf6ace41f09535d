//! Banks of registers: the scheduler's switch without a handler, beyond the prototype.
//!
//! ```text
//! cycle 0   decode sees the scheduler's wish, holds its instruction back, and turns fetch to where the other thread stands
//!     1, 2  what is behind decode commits, traps, or is sent back; of that only the thread's own pc hears, fetch does not
//!     3     the banks change, and the other thread's first instruction can leave decode; a cycle or two earlier if less was there
//! ```
//!
//! Nothing waits for memory: an access that missed is sent back like any other, and comes again when its thread runs again. The
//! multiplier, the divider and the division of the floating-point unit go on, and write into the bank that they began for: each
//! bank has its scoreboard. The switch does wait for a late word for x31, which must not go out in the other
//! thread's name, for a device's word, and for the floating-point pipelines, which know one bank. The threads
//! share the cache, whose one miss holds back the other thread's accesses too, the predictor, the return
//! stack and the branch history.
//!
//! The switch comes where the scheduler's interrupt would: a thread that masks the interrupt (`mie`,
//! `mstatus`) holds off the switch too.

use highwire_riscv::{Hart, Thread};

use super::pipeline::{Long, Pipeline};
use super::record::{Record, Records};
use super::world::{Answer, Ask, World};
use crate::interface::CONTEXTS_MAX;
use crate::port::{Port, SWITCH_THREAD, TX_REGISTER};

/// The program's start runs in no bank; this place stands for it, and its registers are not kept.
const NO_BANK: u8 = CONTEXTS_MAX as u8;

/// What the pipeline knows of the banks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Boards {
    /// The bank of the thread that runs.
    running: u8,
    /// The bank that fetch was turned to while the pipeline drains.
    next: Option<u8>,
    /// For each other bank, the integer registers that the multiplier and divider will write.
    busy: [u64; CONTEXTS_MAX + 1],
}

impl Default for Boards {
    fn default() -> Boards {
        Boards { running: NO_BANK, next: None, busy: [0; CONTEXTS_MAX + 1] }
    }
}

impl Pipeline {
    /// The bank of the thread that runs.
    #[inline(always)]
    pub(super) fn bank(&self) -> u8 {
        self.boards.as_ref().map_or(0, |boards| boards.running)
    }

    /// Whether the thread that runs is about to leave the core.
    #[inline(always)]
    pub(super) fn is_leaving(&self) -> bool {
        self.boards.as_ref().is_some_and(|boards| boards.next.is_some())
    }

    /// Forgets a switch that has begun.
    pub(super) fn stay(&mut self) {
        if let Some(boards) = &mut self.boards {
            boards.next = None;
        }
    }

    /// At the beginning of a cycle: finishes a switch, or begins one if the scheduler asks for it. Returns
    /// where fetch goes on if a switch begins.
    pub(super) fn heed_scheduler<B: Port>(&mut self, world: &mut World<'_, B>) -> Option<u64> {
        self.change_banks(world);
        let boards = self.boards.as_mut().filter(|boards| boards.next.is_none())?;
        let [pc, bank] = world.ask(Ask::Turns, [0; 3], [0; 2]);
        boards.next = Some(bank.checked_sub(1)? as u8);
        Some(pc)
    }

    /// Changes banks if a switch has begun and no instruction of the old thread is left behind decode.
    fn change_banks<B: Port>(&mut self, world: &mut World<'_, B>) {
        let has_late_word = self.busy >> TX_REGISTER & 1 != 0 || self.loading != 0;
        if !self.is_leaving() || !self.is_drained() || has_late_word || !self.floats.has_written() {
            return;
        }
        debug_assert_eq!(self.first_serial, self.next_serial, "what has not committed comes again");
        let Some(boards) = &mut self.boards else { return };
        let Some(next) = boards.next.take() else { return };
        let from = std::mem::replace(&mut boards.running, next);
        boards.busy[usize::from(from)] = self.busy;
        self.busy = std::mem::take(&mut boards.busy[usize::from(next)]);
        self.floats.change_banks(from, next);
        let [returned, _] = world.ask(Ask::ChangeBanks, [from, next, 0], [0; 2]);
        (self.first_serial, self.next_serial) = (self.end_serial, self.end_serial);
        self.end_serial += returned;
    }

    /// The multiplier or divider has written its result.
    #[inline(always)]
    pub(super) fn release(&mut self, result: Long) {
        match &mut self.boards {
            Some(boards) if boards.running != result.bank => {
                boards.busy[usize::from(result.bank)] &= !result.register;
            }
            _ => self.busy &= !result.register,
        }
    }
}

/// The threads that do not run. The running thread's state is in the hart.
#[derive(Clone, Default)]
pub(super) struct Banks {
    parked: [Parked; CONTEXTS_MAX + 1],
}

/// A thread that does not run.
#[derive(Clone, Default)]
struct Parked {
    thread: Option<Thread>,
    /// The instructions that it has executed and not committed.
    records: Vec<Record>,
}

impl Banks {
    /// The pc of the thread whose bank the scheduler asks for, and the bank, counted from one. Zeroes if the
    /// scheduler asks for none, or the running thread masks the switch.
    pub(super) fn turns<B: Port>(&mut self, hart: &Hart, bus: &B) -> Answer {
        let Some((bank, begins)) = bus.wanted_bank().filter(|_| hart.would_take(SWITCH_THREAD)) else {
            return [0; 2];
        };
        let parked = &mut self.parked[bank];
        if let Some(pc) = begins {
            *parked = Parked { thread: Some(hart.fork(pc)), records: Vec::new() };
        }
        match (parked.records.first(), &parked.thread) {
            (Some(record), _) => [record.pc, bank as u64 + 1],
            (None, Some(thread)) => [thread.pc, bank as u64 + 1],
            (None, None) => [0; 2],
        }
    }

    /// The thread of bank `from` leaves the hart to that of bank `to`. Returns how many records come back
    /// with the new thread, and how many leave with the old one.
    pub(super) fn change(&mut self, from: u8, to: u8, hart: &mut Hart, records: &mut Records) -> Answer {
        let Parked { thread, records: returned } = std::mem::take(&mut self.parked[usize::from(to)]);
        let mut thread = thread.expect("fetch turned to it");
        hart.exchange(&mut thread);
        let left = records.exchange(&returned);
        let counts = [returned.len() as u64, left.len() as u64];
        self.parked[usize::from(from)] = Parked { thread: Some(thread), records: left };
        counts
    }
}
