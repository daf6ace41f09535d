//! The first-level data cache: two stages, two pending stores, and one miss at a time.
//!
//! A request enters from the execute stage. If it cannot be served, because its line is missing or because it overlaps a store
//! that has not reached the array, the pipeline replays it from write-back.

mod device;
mod probe;

use highwire_riscv::Class;

use crate::cache::{UNKNOWN, behind_line, share_bus};
use crate::config::{DATA_MISS_CYCLES, WRITE_BACK_CYCLES};
use crate::core::{Ask, LOADS, STORE, STORES, Slot, Stall, World};
use crate::frontend::CodeLine;
use crate::port::Port;
use device::DeviceRequest;
use probe::Probe;

/// An access on its way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Access {
    /// Loads are counted modulo [`LOADS`]; accesses that write are counted modulo [`STORES`] and carry the
    /// bit [`STORE`].
    number: u8,
    pub(crate) bytes: u8,
    reads: bool,
    writes: bool,
    /// A conditional store without a reservation: it goes the way of a store, and stores nothing.
    fails: bool,
    reserves: bool,
    /// No cache holds the address.
    is_device: bool,
    /// It traps, once the first stage has let it through, and asks for nothing.
    traps: bool,
    /// It only passes through the first stage, and has no number.
    passes: bool,
}

impl Access {
    /// The access of the instruction in a slot, if it has one, before the cache takes it.
    pub(crate) fn of(slot: &Slot) -> Option<Access> {
        let (reads, writes) = match slot.needs.class {
            Class::Load => (true, false),
            Class::Store => (false, true),
            // A conditional store returns a value, and so counts as a read.
            Class::Atomic => (true, !slot.reserves),
            _ => return None,
        };
        let Slot { fails, reserves, is_device, .. } = *slot;
        let (bytes, traps) = (slot.needs.access_bytes, slot.traps());
        Some(Access { number: 0, bytes, reads, writes, fails, reserves, is_device, traps, passes: false })
    }

    /// Whether it needs the array's contents.
    pub(crate) fn reads(&self) -> bool {
        self.reads
    }
}

/// A request of the execute stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) access: Access,
    /// The number of its instruction, counted from the first that has not committed.
    pub(crate) instruction: u8,
    /// The first stage takes it.
    pub(crate) is_accepted: bool,
    /// It only passes through, because it is on a wrong path or comes again.
    pub(crate) is_killed: bool,
}

/// A line on its way in, or out to make room for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Transfer {
    /// The cycle of its last word, or how long that comes behind the line of instructions that is on its way,
    /// counted from [`UNKNOWN`].
    last: u64,
    /// The cycle in which it was asked for.
    began: u64,
    /// Whether the line comes in.
    fills: bool,
    /// The line is fetched to be written, and arrives with the right to do so.
    writes: bool,
}

/// The cache.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct DataCache {
    /// Counts of the loads and stores so far.
    loads: u8,
    stores: u8,
    s1: Option<Access>,
    /// The second access, and whether the first stage already refused it.
    s2: Option<(Access, bool)>,
    /// Whether the line of the access in the second stage is there.
    s2_hit: bool,
    /// Nothing is under way, and nothing changes by itself.
    is_quiet: bool,
    /// A store that waits for the array because the one before it does.
    held: Option<Access>,
    pending: Option<Access>,
    /// The last access to leave the first stage without a replay writes. If the next is replayed, the second
    /// stage takes it for the same kind.
    last_writes: bool,
    /// The last access that writes also reads, so its store goes into the array no earlier than it must.
    reads_first: bool,
    transfer: Option<Transfer>,
    /// The cycle in which memory has taken the last line that was written back.
    written_back: Option<u64>,
    probe: Probe,
    /// Probes wait until this cycle.
    guard_end: Option<u64>,
    /// How long the last reservation still lasts.
    reservation: u8,
    device: Option<DeviceRequest>,
    /// A device's answer was taken in the cycle before, and its word is written in this one.
    has_word: bool,
    /// The bus took this cache's request last, and so prefers the instruction cache's next time.
    asked_last: bool,
    /// In this cycle the bus takes the instruction cache's request.
    yields: bool,
    /// A line is struck off in this cycle to make room, although the bus did not take the request for the other.
    strikes: bool,
    /// The array's port was taken in the cycle before, so that a device's answer has to wait.
    port_taken: bool,
}

impl DataCache {
    pub(crate) fn new() -> DataCache {
        DataCache {
            loads: 0,
            stores: 0,
            s1: None,
            s2: None,
            s2_hit: false,
            is_quiet: true,
            held: None,
            pending: None,
            last_writes: false,
            reads_first: false,
            transfer: None,
            written_back: None,
            probe: Probe::None,
            guard_end: None,
            reservation: 0,
            device: None,
            has_word: false,
            asked_last: true,
            yields: false,
            strikes: false,
            port_taken: false,
        }
    }

    /// At the beginning of a cycle in which the instruction cache asks the bus for a line: whether the
    /// instruction cache has to try again, because this cache asks too and the bus took the other's request
    /// last.
    pub(crate) fn share_requests<B: Port>(&mut self, world: &mut World<'_, B>) -> bool {
        let asks = match self.s2 {
            Some((access, false)) if access.is_device => self.asks_device(),
            Some((access, false)) => {
                self.misses_line() && !world.is(Ask::WouldReplace, self.number(&access), 0)
            }
            _ => false,
        };
        let wins = asks && !self.asked_last;
        self.yields = asks && !wins;
        self.asked_last = wins;
        wins
    }

    /// Whether the second stage needs a line that may be asked for now.
    fn misses_line(&self) -> bool {
        // A line is not asked for while a device's answer is outstanding.
        matches!(self.s2, Some((access, false)) if !self.s2_hit && !access.is_device && !access.traps)
            && self.transfer.is_none()
            && self.device.is_none()
    }

    /// Whether the access at write-back must be replayed.
    pub(crate) fn refuses(&self) -> bool {
        self.s2
            .is_some_and(|(access, refused)| refused || !(self.s2_hit || access.traps || self.asks_device()))
    }

    /// Why the access at write-back is replayed, if it is.
    pub(crate) fn why_refused(&self) -> Stall {
        match self.s2 {
            Some((access, _)) if access.is_device => Stall::Device,
            Some((_, false)) => Stall::DataLine,
            _ => self.why_busy(),
        }
    }

    /// Why an access cannot enter.
    pub(crate) fn why_busy(&self) -> Stall {
        if self.transfer.is_some() || self.written_back.is_some() || self.probe != Probe::None {
            Stall::DataLine
        } else if self.device.is_some() {
            Stall::Device
        } else if self.misses_line() {
            Stall::DataLine
        } else {
            Stall::Store
        }
    }

    /// Whether something ends on the bus in this cycle: a line, its way to memory, or an access to a device. Decode then lets
    /// the next access try, no matter which access was refused.
    pub(crate) fn is_granted(&self, cycle: u64) -> bool {
        !self.is_quiet
            && (self.transfer.is_some_and(|transfer| transfer.fills && transfer.last == cycle)
                || self.written_back == Some(cycle)
                || self.device.is_some_and(|device| device.answer <= cycle))
    }

    /// Whether an access is on its way. A line that is written back to make room does not count.
    pub(crate) fn is_busy(&self) -> bool {
        let fills = self.transfer.is_some_and(|transfer| transfer.fills);
        self.is_entered() || fills || self.device.is_some()
    }

    /// Whether something is in one of the stages.
    pub(crate) fn is_entered(&self) -> bool {
        self.s1.is_some() || self.s2.is_some()
    }

    /// Whether nothing is under way, and nothing changes by itself.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_quiet
    }

    /// Whether the cache accepts an access of the execute stage in this cycle; `refuses_s1` is what
    /// [`DataCache::refuses_s1`] returned. Without a `request`, the answer is for an access that `reads` or
    /// not.
    #[inline(always)]
    pub(crate) fn is_ready(
        &self,
        cycle: u64,
        request: Option<&Access>,
        reads: bool,
        refuses_s1: bool,
    ) -> bool {
        if self.is_quiet {
            return true;
        }
        let waits_for_store = reads && self.drains(cycle, request);
        self.transfer.is_none()
            && !self.strikes
            && !self.probe_passes(cycle)
            && !refuses_s1
            && !waits_for_store
            && !self.is_word_waiting(cycle)
    }

    /// Whether a store goes into the array in this cycle and takes its port: because the next store needs
    /// room, because no request reads, or because a probe must find the store's bytes there.
    fn drains(&self, cycle: u64, request: Option<&Access>) -> bool {
        let wants_read = request.is_some_and(|access| access.reads);
        let first = self.s2_store().or(self.held);
        let may_drain = (first.is_some() && !self.reads_first) || self.pending.is_some();
        self.must_drain() || (may_drain && (!wants_read || self.strikes || self.is_releasing(cycle)))
    }

    /// Whether the access in the first stage has to come again: after a refused one, beside the first store to a line,
    /// or because it reads what a pending store has not yet written. The store in the second stage makes its line dirty.
    #[inline(always)]
    pub(crate) fn refuses_s1<B: Port>(&mut self, world: &mut World<'_, B>) -> bool {
        if self.is_quiet {
            return false;
        }
        // The overlap check cannot know yet whether the store's line is there, nor whether a conditional
        // store succeeds.
        let writer = self.s2.filter(|(access, refused)| !refused && access.writes).map(|(access, _)| access);
        let touches_tags =
            self.s2_hit && writer.is_some_and(|store| !world.is(Ask::MarkDirty, self.number(&store), 0));
        let overlaps = self.s1.is_some_and(|access| {
            access.reads && !access.passes && self.is_overlapped(&access, writer, world)
        });
        self.refuses() || touches_tags || overlaps || self.probe_refuses(world.cycle)
    }

    /// Whether a pending store overlaps the read.
    #[inline(always)]
    fn is_overlapped<B: Port>(&self, read: &Access, store: Option<Access>, world: &mut World<'_, B>) -> bool {
        let number = |access: Access| u64::from(self.number(&access)) | u64::from(access.bytes) << 8;
        let stores = [store, self.held, self.pending].into_iter().flatten();
        let stores = stores.fold(0, |all, store| all << 16 | number(store));
        stores != 0 && world.ask(Ask::Overlaps, [self.number(read), read.bytes, 0], [stores, 0])[0] != 0
    }

    /// The number of an access, counted back from the next access of its kind.
    #[inline(always)]
    fn number(&self, access: &Access) -> u8 {
        match access.number & STORE {
            0 => self.loads.wrapping_sub(access.number) % LOADS,
            _ => (self.stores.wrapping_sub(access.number) % STORES) | STORE,
        }
    }

    /// The store in the second stage, if its line is there.
    fn s2_store(&self) -> Option<Access> {
        let stores = |access: &Access| access.writes && !access.fails && self.s2_hit;
        self.s2.and_then(|(access, refused)| (!refused && stores(&access)).then_some(access))
    }

    fn must_drain(&self) -> bool {
        let is_likely = self.held.is_some() || (self.s2.is_some() && self.last_writes);
        let needs_room = self.reads_first || self.s1.is_some_and(|access| access.writes);
        self.pending.is_some() && is_likely && needs_room
    }

    /// Moves everything by one cycle. `request` is what the execute stage sends; `kills_s1` follows a
    /// redirect; `code_line` is what the instruction cache waits for.
    #[inline(always)]
    pub(crate) fn tick<B: Port>(
        &mut self,
        request: Option<Request>,
        s1_refused: bool,
        kills_s1: bool,
        code_line: Option<CodeLine<'_>>,
        world: &mut World<'_, B>,
    ) {
        if !self.is_quiet || request.is_some() {
            self.tick_busily(request, s1_refused, kills_s1, code_line, world);
        }
    }

    fn tick_busily<B: Port>(
        &mut self,
        request: Option<Request>,
        s1_refused: bool,
        kills_s1: bool,
        code_line: Option<CodeLine<'_>>,
        world: &mut World<'_, B>,
    ) {
        let wants_read = request.is_some_and(|request| request.access.reads);
        let first = self.s2_store().or(self.held);
        let drains = self.drains(world.cycle, request.as_ref().map(|request| &request.access));
        let advances = first.is_some() && self.pending.is_some() == drains;
        let drains_first = drains && self.pending.is_none();
        match (drains_first, advances) {
            (true, _) => self.held = None,
            (false, true) => (self.pending, self.held) = (first, None),
            (false, false) => {
                self.held = first;
                if drains {
                    self.pending = None;
                }
            }
        }
        // A line is not asked for in the cycle in which a device's answer is taken.
        let misses = self.misses_line();
        self.move_device(drains, wants_read, code_line.as_ref().map(|line| *line.last), world);
        self.move_reservation(world.cycle);
        self.written_back = self.written_back.filter(|&when| when > world.cycle);
        self.strikes = false;
        self.move_transfer(misses, code_line, world);
        self.yields = false;
        self.follow_s1(s1_refused);
        self.s2 = self.s1.filter(|access| !kills_s1 && !access.passes).map(|access| (access, s1_refused));
        let searches = self.s2.filter(|(access, _)| !access.traps);
        // A reservation asks for the right to write, too.
        self.s2_hit = searches.is_some_and(|(access, _)| {
            let writes = access.writes || access.reserves;
            world.is(Ask::HoldsData, self.number(&access), u64::from(writes))
        });
        self.s1 = match request.filter(|request| request.is_accepted) {
            Some(Request { access, is_killed: true, .. }) => Some(Access { passes: true, ..access }),
            Some(Request { access, instruction, .. }) => Some(self.enter(access, instruction, world)),
            None => None,
        };
        self.is_quiet = self.s1.is_none()
            && self.s2.is_none()
            && self.held.is_none()
            && self.pending.is_none()
            && self.transfer.is_none()
            && self.written_back.is_none()
            && !self.strikes
            && self.device.is_none()
            && !self.has_word
            && !self.port_taken
            && self.probe == Probe::None
            && self.reservation == 0;
        self.last_writes &= !self.is_quiet;
        self.reads_first &= !self.is_quiet;
    }

    /// Updates `last_writes` and `reads_first` from the first stage. Accesses that only pass through count,
    /// and so does a device's word.
    fn follow_s1(&mut self, is_refused: bool) {
        if self.has_word {
            self.last_writes = false;
        } else if let Some(access) = self.s1.filter(|_| !is_refused) {
            self.last_writes = access.writes;
            if access.writes {
                self.reads_first = access.reads;
            }
        }
    }

    /// Gives an access its number, and lets the world note its address.
    #[inline(always)]
    fn enter<B: Port>(&mut self, access: Access, instruction: u8, world: &mut World<'_, B>) -> Access {
        let writes = access.writes;
        world.ask(Ask::Enter, [instruction, u8::from(writes), 0], [0; 2]);
        let number = if writes { self.stores | STORE } else { self.loads };
        if writes {
            self.stores = (self.stores + 1) % STORES;
        } else {
            self.loads = (self.loads + 1) % LOADS;
        }
        Access { number, ..access }
    }

    /// Ends a transfer, or begins the one that the second stage's access needs.
    #[inline(always)]
    fn move_transfer<B: Port>(
        &mut self,
        misses: bool,
        code_line: Option<CodeLine<'_>>,
        world: &mut World<'_, B>,
    ) {
        let cycle = world.cycle;
        match self.transfer {
            Some(Transfer { last, fills, writes, .. }) if last == cycle => {
                if fills {
                    self.guard(cycle);
                    world.tell(Ask::FillData, u8::from(writes), 0);
                }
                self.transfer = None;
            }
            Some(_) => {}
            None => {
                let Some((access, _)) = self.s2.filter(|_| misses) else {
                    return;
                };
                let number = self.number(&access);
                if self.yields {
                    world.tell(Ask::Strike, number, 0);
                    self.strikes = true;
                    return;
                }
                let [is_dirty, write_cycles] = world.ask(Ask::Replace, [number, 0, 0], [0; 2]);
                let fills = is_dirty == 0;
                self.asked_last |= fills;
                let last = if fills {
                    let [line_cycles, _] = world.ask(Ask::DataCycles, [number, 0, 0], [0; 2]);
                    let cycles = DATA_MISS_CYCLES + line_cycles;
                    match code_line {
                        Some(CodeLine { last, address }) if world.is(Ask::IsTransfer, 0, address) => {
                            behind_line(cycle, *last, cycles)
                        }
                        code_line => {
                            let behind = u64::from(self.is_behind_code(cycle));
                            share_bus(cycle + behind + cycles, code_line.map(|line| line.last))
                        }
                    }
                } else {
                    // Stores take the array's port first.
                    let stores = u64::from(self.pending.is_some()) + u64::from(self.held.is_some());
                    let last = cycle + WRITE_BACK_CYCLES + stores;
                    self.written_back = Some(last + 1 + write_cycles);
                    last
                };
                self.transfer = Some(Transfer { last, began: cycle, fills, writes: access.writes });
            }
        }
    }

    /// Brings the state into its normal form: as in cycle 0, with no access before.
    pub(crate) fn settle(&mut self, cycle: u64) {
        self.guard_end = self.guard_end.filter(|&end| end > cycle);
        let (loads, stores) = (self.loads, self.stores);
        self.count_from(loads.wrapping_neg() % LOADS, stores.wrapping_neg() % STORES, cycle.wrapping_neg());
    }

    /// The opposite of [`DataCache::settle`]: after so many loads, stores and cycles.
    pub(crate) fn resume(&mut self, loads: u8, stores: u8, cycle: u64) {
        self.count_from(loads, stores, cycle);
    }

    fn count_from(&mut self, loads: u8, stores: u8, cycle: u64) {
        let DataCache { s1, s2, held, pending, transfer, written_back, probe, device, guard_end, .. } = self;
        let waiting =
            s1.iter_mut().filter(|access| !access.passes).chain(s2.iter_mut().map(|(access, _)| access));
        for Access { number, .. } in waiting.chain(held).chain(pending) {
            *number = match *number & STORE {
                0 => (*number + loads) % LOADS,
                _ => ((*number + stores) % STORES) | STORE,
            };
        }
        if let Some(transfer) = transfer {
            if transfer.last < UNKNOWN {
                transfer.last = transfer.last.wrapping_add(cycle);
            }
            transfer.began = transfer.began.wrapping_add(cycle);
        }
        if let Probe::Asked(when, _) | Probe::Came(when, _) = probe {
            *when = when.wrapping_add(cycle);
        }
        if let Some(device) = device {
            device.answer = device.answer.wrapping_add(cycle);
        }
        for when in written_back.iter_mut().chain(guard_end) {
            *when = when.wrapping_add(cycle);
        }
        self.loads = (self.loads + loads) % LOADS;
        self.stores = (self.stores + stores) % STORES;
    }

    /// The cycle in which the last word of a line arrives, if one is on its way.
    pub(crate) fn incoming_line(&mut self) -> Option<&mut u64> {
        self.transfer.as_mut().filter(|transfer| transfer.fills).map(|transfer| &mut transfer.last)
    }
}
