//! The pipeline: decode, execute, memory, write-back, and what moves between them in one cycle.
//!
//! Decode is the only stage that stalls. Instructions execute architecturally when they leave it on the right path; the records
//! of those that have not committed are kept, so that a replay finds them again instead of executing twice.

use highwire_riscv::Class;

use super::banks::Boards;
use super::outcome::TrapStage;
use super::stalls::{Decoded, Stall};
use super::world::{Ask, Since, World};
use crate::dcache::DataCache;
use crate::decode::{NO_NEEDS, Needs};
use crate::float_unit::FloatUnit;
use crate::frontend::{Frontend, Request};
use crate::latency::FloatLatency;
use crate::port::{Port, TX_REGISTER};

/// The serial number of an instruction on a wrong path.
pub(super) const WRONG_PATH: u64 = u64::MAX;

/// Stands for the serial number of any instruction that has committed, in state that outlives the
/// instruction.
const COMMITTED: u64 = WRONG_PATH - 1;

fn earlier(serial: u64, since: &Since) -> u64 {
    if serial >= COMMITTED { serial } else { serial - since.serial }
}

fn later(serial: u64, since: &Since) -> u64 {
    if serial >= COMMITTED { serial } else { serial + since.serial }
}

/// An instruction in a stage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Slot {
    /// The stage holds an instruction.
    pub(super) is_live: bool,
    /// It must be fetched again, and only passes through.
    pub(super) replays: bool,
    /// The instructions behind it are to be fetched again.
    pub(super) turns: bool,
    /// It has trapped.
    pub(super) trap: Option<TrapStage>,
    /// It is two bytes long.
    pub(super) is_short: bool,
    /// What the memory stage expects behind it, if it traps.
    pub(super) expected: u64,
    /// It is a taken branch to the next instruction.
    pub(super) goes_to_next: bool,
    /// It touches memory.
    pub(super) is_access: bool,
    /// It touches a device.
    pub(crate) is_device: bool,
    /// A load that reserves.
    pub(crate) reserves: bool,
    /// A conditional store without a reservation.
    pub(crate) fails: bool,
    pub(super) entry: u8,
    /// The number of its fetch packet.
    pub(super) number: u8,
    pub(super) unit_cycles: u8,
    pub(super) pc: u64,
    /// Where the program goes on.
    pub(super) next: u64,
    /// The number of its record, counted from reset, or [`WRONG_PATH`].
    pub(super) serial: u64,
    pub(super) float: FloatLatency,
    pub(crate) needs: Needs,
}

pub(super) const BUBBLE: Slot = Slot {
    is_live: false,
    replays: false,
    turns: false,
    trap: None,
    is_short: false,
    expected: 0,
    goes_to_next: false,
    is_access: false,
    is_device: false,
    reserves: false,
    fails: false,
    entry: 0,
    number: 0,
    unit_cycles: 0,
    pc: 0,
    next: 0,
    serial: WRONG_PATH,
    float: FloatLatency::None,
    needs: NO_NEEDS,
};

impl Slot {
    /// Whether the stage holds an instruction that does not only pass through.
    #[inline(always)]
    pub(super) fn works(&self) -> bool {
        self.is_live && !self.replays
    }

    /// Whether it traps.
    pub(crate) fn traps(&self) -> bool {
        self.trap.is_some()
    }
}

/// A multiplication or division under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Long {
    /// The first cycle in which the result can be written.
    pub(super) ready: u64,
    /// The register that it writes, as a set.
    pub(super) register: u64,
    /// The serial number of its instruction.
    pub(super) serial: u64,
    /// The bank of registers that it writes to.
    pub(super) bank: u8,
}

/// What happened at write-back.
///
/// Stored as the number that [`Memo`](super::memo::Memo) keeps, because the memo reads it in every cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn(u8);

impl Turn {
    pub(crate) const BUBBLE: Turn = Turn(0);
    pub(crate) const COMMIT: Turn = Turn(1);
    pub(crate) const TRAP: Turn = Turn(2);

    /// From the lowest two bits of `number`, the inverse of [`Turn::number`].
    #[inline(always)]
    pub(super) fn of(number: u32) -> Turn {
        Turn(number as u8 & 3)
    }

    pub(super) fn number(self) -> u32 {
        self.0.into()
    }
}

/// The pipeline.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pipeline {
    pub(super) frontend: Frontend,
    /// The stages behind decode, as a ring: to move all instructions on is to count `execute` on.
    pub(super) stages: [Slot; 4],
    /// The index of the execute stage; memory and write-back are at the indices before it.
    pub(super) execute: usize,
    /// The serial number of the instruction that commits next.
    pub(super) first_serial: u64,
    /// The serial number of the next instruction that executes.
    pub(super) end_serial: u64,
    /// The serial number of the next instruction that leaves decode on the right path.
    pub(super) next_serial: u64,
    pub(super) data_cache: DataCache,
    /// The cache refused an access, and decode holds back other accesses until the line is there.
    pub(super) blocked: bool,
    /// The cache takes the last instruction of the execute stage for a read.
    pub(super) reads_stale: bool,
    pub(super) fence: bool,
    /// Decode holds back everything behind a hint to pause.
    pub(super) paused: bool,
    /// The last instruction may have put the hart to sleep.
    pub(super) may_sleep: bool,
    /// Registers that the multiplier and divider will write.
    pub(super) busy: u64,
    /// The multiplication or division under way.
    pub(super) long: Option<Long>,
    /// The register that a device's word is for, as a set, which here may contain x0.
    pub(super) loading: u64,
    pub(super) floats: FloatUnit,
    /// The scoreboards of the other banks, on a core with banks of registers.
    pub(super) boards: Option<Boards>,
}

impl Pipeline {
    pub(super) fn new(pc: u64) -> Pipeline {
        Pipeline {
            frontend: Frontend::new(pc),
            stages: [BUBBLE; 4],
            execute: 0,
            first_serial: 0,
            end_serial: 0,
            next_serial: 0,
            data_cache: DataCache::new(),
            blocked: false,
            reads_stale: false,
            fence: false,
            paused: false,
            may_sleep: true,
            busy: 0,
            long: None,
            loading: 0,
            floats: FloatUnit::default(),
            boards: None,
        }
    }

    /// Begins again at `pc`, with what caches and predictor know.
    pub(super) fn restart_at(&mut self, pc: u64) {
        self.stages = [BUBBLE; 4];
        (self.first_serial, self.next_serial) = (self.end_serial, self.end_serial);
        (self.long, self.busy, self.loading) = (None, 0, 0);
        self.floats = FloatUnit::default();
        self.paused = false;
        self.stay();
        self.frontend.restart_at(pc);
    }

    /// Brings the state into its normal form, for comparison: clears what no longer matters, and counts all
    /// numbers from `since`.
    pub(super) fn settle(&mut self, since: &Since) {
        self.frontend.settle(since);
        self.stages.rotate_left(self.execute);
        self.execute = 0;
        // Clears the instruction that has left write-back.
        self.stages[1].is_live = false;
        for slot in &mut self.stages {
            if !slot.is_live {
                *slot = BUBBLE;
            } else {
                slot.number = slot.number.wrapping_sub(since.packets);
                slot.serial = earlier(slot.serial, since);
            }
        }
        (self.stages[2].unit_cycles, self.stages[3].unit_cycles) = (0, 0);
        self.next_serial -= since.serial;
        self.end_serial -= since.serial;
        self.first_serial = 0;
        self.reads_stale &= self.blocked || self.data_cache.is_entered();
        self.data_cache.settle(since.cycle);
        if let Some(long) = &mut self.long {
            long.ready = long.ready.wrapping_sub(since.cycle);
            // The serial number matters only until its instruction has committed.
            long.serial = if long.serial < since.serial { COMMITTED } else { earlier(long.serial, since) };
        }
        self.floats.settle(since.cycle);
    }

    /// The opposite of [`Pipeline::settle`]: counts numbers on from `since`.
    pub(super) fn resume(&mut self, since: &Since) {
        self.frontend.resume(since);
        for slot in self.stages.iter_mut().filter(|slot| slot.is_live) {
            slot.number = slot.number.wrapping_add(since.packets);
            slot.serial = later(slot.serial, since);
        }
        self.next_serial += since.serial;
        self.end_serial += since.serial;
        self.first_serial = since.serial;
        self.data_cache.resume(since.loads, since.stores, since.cycle);
        if let Some(long) = &mut self.long {
            long.ready = long.ready.wrapping_add(since.cycle);
            long.serial = later(long.serial, since);
        }
        self.floats.resume(since.cycle);
    }

    /// One cycle.
    #[inline(always)]
    pub(super) fn advance<B: Port>(&mut self, world: &mut World<'_, B>) -> Turn {
        let cycle = world.cycle;
        let turned = if self.boards.is_some() { self.heed_scheduler(world) } else { None };
        let leaves = self.is_leaving();
        if let Some(waits) = self.data_cache.is_probed(world) {
            self.frontend.expect_line(waits, self.data_cache.incoming_line(), world);
        }
        let waits_for_bus = self.frontend.asks_line() && self.data_cache.share_requests(world);
        let delivered = self.frontend.deliver(world);

        // Write-back comes first: its replay or redirect overrules every younger instruction.
        let (turn, redirect_back) = self.retire(world);
        let has_word = self.data_cache.writes_word();
        let arriving = self.arriving(cycle);
        let expected = if redirect_back.is_none() { self.expected_behind_memory() } else { None };
        let correction = expected.filter(|&next| self.is_followed_wrongly(next));
        let redirect = redirect_back.or(correction.filter(|_| self.may_correct()));
        let (update, resolved) = match redirect_back {
            None => self.train(correction.is_some()),
            Some(_) => (None, None),
        };
        let killed = redirect.is_some();

        let stall = if leaves { Some(Stall::ThreadSwitch) } else { self.stall(arriving, world) };
        let stall = if stall.is_none() && B::IS_NETWORK && self.waits_for_word(world) {
            Some(Stall::Word)
        } else {
            stall
        };
        let stalls = stall.is_some();
        let issues = !stalls && !killed && self.frontend.fetched().is_whole();
        let issues = issues && self.issue(world);
        if !issues {
            self.stages[(self.execute + 1) % 4].is_live = false;
        }
        let pauses = issues && self.frontend.fetched().pauses();

        let flushes_cache = turn == Turn::COMMIT && {
            let needs = &self.write_back().needs;
            needs.class == Class::Fence && needs.flushes()
        };
        if world.side.stalls.is_some() {
            let (overruled, turned) = (redirect_back.is_some(), turned.is_some());
            self.account(Decoded { turn, overruled, killed, turned, stall, issues }, world);
        }
        self.pause(pauses, killed || turned.is_some(), world);
        self.move_stages(redirect_back.is_some(), killed, world);
        // Fetch has turned to another thread for good.
        let redirect = if leaves { turned } else { redirect };
        let is_certain = redirect_back.is_some();
        let request = Request { redirect, is_certain, update, takes: !stalls, flushes_cache, waits_for_bus };
        if self.frontend.tick(delivered, &request, world) {
            self.data_cache.ask(self.frontend.missing_line(), world);
        }
        if let Some((resolution, number)) = resolved {
            self.frontend.resolve(&resolution, number, world);
        }
        self.floats.tick(cycle);
        if has_word {
            if B::IS_NETWORK && self.loading == 1 << TX_REGISTER {
                world.tell(Ask::SendLoad, 0, 0);
            }
            self.busy &= !self.loading;
            self.loading = 0;
        }
        if let Some(result) = arriving
            && self.long == Some(result)
        {
            if B::IS_NETWORK && result.register == 1 << TX_REGISTER {
                world.tell(Ask::SendLong, 0, 0);
            }
            self.long = None;
            self.release(result);
        }
        self.first_serial += u64::from(turn != Turn::BUBBLE);
        turn
    }

    /// Write-back: an instruction commits, traps, or is sent back; then fetch goes on elsewhere.
    #[inline(always)]
    fn retire<B: Port>(&mut self, world: &mut World<'_, B>) -> (Turn, Option<u64>) {
        let slot = self.write_back();
        if !slot.is_live {
            return (Turn::BUBBLE, None);
        }
        let Slot { serial, needs, pc, next, float, trap, is_access, replays, turns, .. } = *slot;
        debug_assert!(serial != WRONG_PATH, "a wrong path ends in the memory stage");
        if replays || (is_access && self.data_cache.refuses()) {
            self.next_serial = serial;
            return (Turn::BUBBLE, Some(pc));
        }
        debug_assert_eq!(serial, self.first_serial, "instructions commit in order");
        if B::IS_NETWORK && trap.is_none() && (needs.class == Class::Csr || needs.writes == 1 << TX_REGISTER)
        {
            world.tell(Ask::Act, 0, 0);
        }
        if needs.is_long() {
            self.busy |= needs.writes;
        }
        if is_access && self.data_cache.asks_device() && needs.class != Class::Store {
            // A word for x0 takes the register file's port as well.
            let is_dropped = needs.writes == 0 && needs.takes_port();
            self.loading = needs.writes | u64::from(is_dropped);
            self.busy |= needs.writes;
            if B::IS_NETWORK && needs.writes == 1 << TX_REGISTER {
                world.tell(Ask::KeepLoad, 0, 0);
            }
        }
        if needs.is_float() {
            self.floats.commit(float, needs.float_register());
        }
        if turns {
            self.next_serial = serial + 1;
        }
        (if trap.is_some() { Turn::TRAP } else { Turn::COMMIT }, turns.then_some(next))
    }

    /// The result that the multiplier or divider writes in this cycle, unless write-back needs the register file's port.
    #[inline(always)]
    fn arriving(&self, cycle: u64) -> Option<Long> {
        let takes_port = self.data_cache.writes_word() && self.loading as u32 != 0;
        self.finished(cycle).filter(|_| !takes_port)
    }

    /// The multiplication or division that is done, unless an instruction at write-back comes first. Decode takes its unit for
    /// free, although a device's word may yet take the port.
    pub(super) fn finished(&self, cycle: u64) -> Option<Long> {
        let long = self.long.filter(|long| long.ready <= cycle)?;
        let slot = self.write_back();
        let takes_port = slot.works() && slot.needs.takes_port() && slot.trap != Some(TrapStage::Decode);
        (!takes_port).then_some(long)
    }

    /// Whether no instruction is behind decode.
    pub(super) fn is_drained(&self) -> bool {
        ![self.execute, self.execute + 3, self.execute + 2].iter().any(|slot| self.stages[slot % 4].is_live)
    }

    /// Whether nothing is on its way: while decode waits, one cycle is like the next.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_drained()
            && !self.paused
            && self.long.is_none()
            && self.floats.is_at_rest()
            && self.data_cache.is_at_rest()
            && !self.frontend.is_refilling()
    }

    /// How many executed instructions stand before the one with this number, as the world counts them: the
    /// instruction that commits in this cycle is included.
    #[inline(always)]
    pub(super) fn behind(&self, serial: u64) -> u8 {
        serial.wrapping_sub(self.first_serial) as u8
    }

    #[inline(always)]
    pub(super) fn memory(&self) -> &Slot {
        &self.stages[(self.execute + 3) % 4]
    }

    #[inline(always)]
    pub(super) fn write_back(&self) -> &Slot {
        &self.stages[(self.execute + 2) % 4]
    }
}
