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
//! bank has its scoreboard. Waited for are a late word for x31, which must not go out in the other thread's name, the word of a
//! device, and the floating-point pipelines, which know one bank. The cache stays as it is: its one miss holds back the other thread's
//! accesses, too. So do predictor, return addresses and branch history.
//!
//! The switch comes where the scheduler's interrupt would: a thread that holds off that one (`mie`, `mstatus`) holds off this.

use highwire_riscv::{Hart, Thread};

use super::pipeline::{Long, Pipeline};
use super::record::{Record, Records};
use super::world::{Answer, Ask, World};
use crate::interface::CONTEXTS_MAX;
use crate::port::{Port, SWITCH_THREAD, TX_REGISTER};

/// The place of a thread without a bank, which is not kept: the program's start.
const NO_BANK: u8 = CONTEXTS_MAX as u8;

/// What the pipeline knows of the banks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Boards {
    /// The bank of the thread that runs.
    running: u8,
    /// The bank that fetch was turned to while the pipeline drains.
    next: Option<u8>,
    /// Integer registers of the others that the multiplier and divider will write.
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

    /// A switch that has begun is forgotten.
    pub(super) fn stay(&mut self) {
        if let Some(boards) = &mut self.boards {
            boards.next = None;
        }
    }

    /// The beginning of a cycle: banks change, or the scheduler wishes that they do. Returns where fetch goes on if a switch begins.
    pub(super) fn heed_scheduler<B: Port>(&mut self, world: &mut World<'_, B>) -> Option<u64> {
        self.change_banks(world);
        let boards = self.boards.as_mut().filter(|boards| boards.next.is_none())?;
        let [pc, bank] = world.ask(Ask::Turns, [0; 3], [0; 2]);
        boards.next = Some(bank.checked_sub(1)? as u8);
        Some(pc)
    }

    /// Changes banks if a switch has begun and nothing of the old thread's is left behind decode.
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

/// The threads that do not run. The one that does is the hart.
#[derive(Clone, Default)]
pub(super) struct Banks {
    parked: [Parked; CONTEXTS_MAX + 1],
}

/// A thread that does not run.
#[derive(Clone, Default)]
struct Parked {
    thread: Option<Thread>,
    /// What it has executed and not committed.
    records: Vec<Record>,
}

impl Banks {
    /// Where the thread of the bank that the scheduler asks for goes on, and the bank, counted from one; zeroes if it asks for none, or
    /// the thread that runs does not let it.
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

    /// The thread of bank `from` leaves the hart to that of bank `to`: how many records come back with it, and how many have left.
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
