//! The first-level data cache: two stages, two pending stores, and one miss at a time.
//!
//! A request enters from the execute stage. If it cannot be served, because its line is missing or because it overlaps a store
//! that has not reached the array, the pipeline replays it from write-back.

use highwire_riscv::Class;

use crate::cache::share_bus;
use crate::config::{DATA_MISS_CYCLES, WRITE_BACK_CYCLES};
use crate::core::{Ask, LOADS, STORE, STORES, World};
use crate::port::Port;

/// From a miss of the instruction cache to the probe of this one.
const PROBE_CYCLES: u64 = 3;

/// An access on its way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Access {
    /// Loads are counted modulo [`LOADS`], and what writes modulo [`STORES`], with [`STORE`].
    number: u8,
    pub(crate) bytes: u8,
    pub(crate) class: Class,
}

impl Access {
    /// One that the cache has not taken.
    pub(crate) fn new(bytes: u8, class: Class) -> Access {
        Access { number: 0, bytes, class }
    }

    fn writes(&self) -> bool {
        matches!(self.class, Class::Store | Class::Atomic)
    }

    fn reads(&self) -> bool {
        matches!(self.class, Class::Load | Class::Atomic)
    }
}

/// The instruction cache's misses are asked for here first: memory might not have the newest bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Probe {
    None,
    /// It has not arrived before this cycle, and waits until both stages are empty.
    Asked(u64),
    /// It came in this cycle: it takes the tags then, the second stage two cycles later, and the answer three.
    Came(u64),
}

/// A line on its way in, or out to make room for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Transfer {
    /// The cycle of its last word, in which decode lets the next access go.
    last: u64,
    /// Whether the line comes in.
    fills: bool,
    /// A line that is fetched to be written arrives ready for it.
    writes: bool,
}

/// The cache.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct DataCache {
    /// Accesses that have come so far.
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
    transfer: Option<Transfer>,
    probe: Probe,
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
            transfer: None,
            probe: Probe::None,
        }
    }

    /// The instruction cache misses.
    pub(crate) fn ask(&mut self, cycle: u64) {
        self.probe = Probe::Asked(cycle + PROBE_CYCLES);
        self.is_quiet = false;
    }

    /// The beginning of a cycle: whether the question of [`DataCache::ask`] arrives in it.
    #[inline]
    pub(crate) fn is_probed(&mut self, cycle: u64) -> bool {
        if self.is_quiet {
            return false;
        }
        let arrives = matches!(self.probe, Probe::Asked(earliest) if earliest <= cycle);
        let is_probed = arrives && self.s1.is_none() && self.s2.is_none();
        match self.probe {
            _ if is_probed => self.probe = Probe::Came(cycle),
            Probe::Came(came) if came + 3 < cycle => self.probe = Probe::None,
            _ => {}
        }
        is_probed
    }

    /// Whether the access at write-back must be replayed.
    pub(crate) fn refuses(&self) -> bool {
        self.s2.is_some_and(|(_, refused)| refused || !self.s2_hit)
    }

    /// Whether the last word of a line is transferred in this cycle.
    pub(crate) fn is_granted(&self, cycle: u64) -> bool {
        self.transfer.is_some_and(|transfer| transfer.last == cycle)
    }

    /// Whether anything is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        self.s1.is_some() || self.s2.is_some() || self.transfer.is_some()
    }

    /// Whether nothing is under way, and nothing changes by itself.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_quiet
    }

    /// Whether an access of the execute stage is accepted in this cycle; `refuses_s1` as the cache has said.
    #[inline(always)]
    pub(crate) fn is_ready(&self, cycle: u64, request: Option<&Access>, refuses_s1: bool) -> bool {
        if self.is_quiet {
            return true;
        }
        // A probe takes the tags from the moment it is there, although it waits for both stages.
        let probe_passes = match self.probe {
            Probe::None => false,
            Probe::Asked(earliest) => cycle >= earliest,
            Probe::Came(came) => cycle == came || cycle == came + 3,
        };
        let must_wait = request.is_some_and(Access::reads) && self.must_drain();
        self.transfer.is_none() && !probe_passes && !refuses_s1 && !must_wait
    }

    /// Whether the access in the first stage has to come again: after a refused one, beside the first store to a line,
    /// or because it reads what a pending store has not yet written. The store in the second stage makes its line dirty.
    #[inline(always)]
    pub(crate) fn refuses_s1<B: Port>(&mut self, world: &mut World<'_, B>) -> bool {
        if self.is_quiet {
            return false;
        }
        let store = self.s2_store();
        let touches_tags = store.is_some_and(|store| !world.is(Ask::MarkDirty, self.number(&store), 0));
        let overlaps =
            self.s1.is_some_and(|access| access.reads() && self.is_overlapped(&access, store, world));
        let probed = matches!(self.probe, Probe::Came(came) if world.cycle == came + 2);
        self.refuses() || touches_tags || overlaps || probed
    }

    /// Whether a pending store overlaps the read.
    #[inline(always)]
    fn is_overlapped<B: Port>(&self, read: &Access, store: Option<Access>, world: &mut World<'_, B>) -> bool {
        let number = |access: Access| u64::from(self.number(&access)) | u64::from(access.bytes) << 8;
        let stores = [store, self.held, self.pending].into_iter().flatten();
        let stores = stores.fold(0, |all, store| all << 16 | number(store));
        stores != 0 && world.ask(Ask::Overlaps, [self.number(read), read.bytes, 0], [stores, 0])[0] != 0
    }

    /// The number of an access counted back from the next of its kind.
    #[inline(always)]
    fn number(&self, access: &Access) -> u8 {
        match access.number & STORE {
            0 => self.loads.wrapping_sub(access.number) % LOADS,
            _ => (self.stores.wrapping_sub(access.number) % STORES) | STORE,
        }
    }

    fn s2_store(&self) -> Option<Access> {
        self.s2.and_then(|(access, refused)| (!refused && access.writes() && self.s2_hit).then_some(access))
    }

    fn must_drain(&self) -> bool {
        let first = self.s2_store().or(self.held);
        let rewrites = first.is_some_and(|access| access.class == Class::Atomic);
        first.is_some()
            && self.pending.is_some()
            && (self.s1.is_some_and(|access| access.writes()) || rewrites)
    }

    /// Everything moves. `request` is what the execute stage sends, the number of its instruction counted from the first that
    /// has not committed, and whether it is accepted; `kills_s1` follows a redirect; `code_line` is when a line of the
    /// instruction cache is complete.
    #[inline(always)]
    pub(crate) fn tick<B: Port>(
        &mut self,
        request: Option<(Access, u8, bool)>,
        s1_refused: bool,
        kills_s1: bool,
        code_line: Option<&mut u64>,
        world: &mut World<'_, B>,
    ) {
        if !self.is_quiet || request.is_some() {
            self.tick_busily(request, s1_refused, kills_s1, code_line, world);
        }
    }

    fn tick_busily<B: Port>(
        &mut self,
        request: Option<(Access, u8, bool)>,
        s1_refused: bool,
        kills_s1: bool,
        code_line: Option<&mut u64>,
        world: &mut World<'_, B>,
    ) {
        let wants_read = request.is_some_and(|(access, ..)| access.reads());
        let first = self.s2_store().or(self.held);
        let rewrites = self.s2_store().is_some_and(|access| access.class == Class::Atomic);
        let may_drain = (first.is_some() && !rewrites) || self.pending.is_some();
        let drains = self.must_drain() || (may_drain && !wants_read);
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
        self.move_transfer(code_line, world);
        self.s2 = self.s1.filter(|_| !kills_s1).map(|access| (access, s1_refused));
        self.s2_hit = self.s2.is_some_and(|(access, _)| world.is(Ask::HoldsData, self.number(&access), 0));
        self.s1 = match request {
            Some((access, instruction, true)) => Some(self.enter(access, instruction, world)),
            _ => None,
        };
        self.is_quiet = self.s1.is_none()
            && self.s2.is_none()
            && self.held.is_none()
            && self.pending.is_none()
            && self.transfer.is_none()
            && self.probe == Probe::None;
    }

    /// Takes an access, and its address.
    #[inline(always)]
    fn enter<B: Port>(&mut self, access: Access, instruction: u8, world: &mut World<'_, B>) -> Access {
        let writes = access.writes();
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
    fn move_transfer<B: Port>(&mut self, code_line: Option<&mut u64>, world: &mut World<'_, B>) {
        let cycle = world.cycle;
        match self.transfer {
            Some(Transfer { last, fills, writes }) if last == cycle => {
                if fills {
                    world.tell(Ask::FillData, u8::from(writes), 0);
                }
                self.transfer = None;
            }
            Some(_) => {}
            None => {
                let Some((access, false)) = self.s2 else {
                    return;
                };
                if self.s2_hit {
                    return;
                }
                let number = self.number(&access);
                let fills = !world.is(Ask::Replace, number, 0);
                let last = if fills {
                    let [line_cycles, _] = world.ask(Ask::DataCycles, [number, 0, 0], [0; 2]);
                    share_bus(cycle + DATA_MISS_CYCLES + line_cycles, code_line)
                } else {
                    cycle + WRITE_BACK_CYCLES
                };
                self.transfer = Some(Transfer { last, fills, writes: access.writes() });
            }
        }
    }

    /// As it would stand in cycle 0, with no access before.
    pub(crate) fn settle(&mut self, cycle: u64) {
        let (loads, stores) = (self.loads, self.stores);
        self.count_from(loads.wrapping_neg() % LOADS, stores.wrapping_neg() % STORES, cycle.wrapping_neg());
    }

    /// The opposite: so many loads and stores have been, and so many cycles.
    pub(crate) fn resume(&mut self, loads: u8, stores: u8, cycle: u64) {
        self.count_from(loads, stores, cycle);
    }

    fn count_from(&mut self, loads: u8, stores: u8, cycle: u64) {
        let DataCache { s1, s2, held, pending, transfer, probe, .. } = self;
        let waiting = s1.iter_mut().chain(s2.iter_mut().map(|(access, _)| access));
        for Access { number, .. } in waiting.chain(held).chain(pending) {
            *number = match *number & STORE {
                0 => (*number + loads) % LOADS,
                _ => ((*number + stores) % STORES) | STORE,
            };
        }
        if let Some(transfer) = transfer {
            transfer.last = transfer.last.wrapping_add(cycle);
        }
        if let Probe::Asked(when) | Probe::Came(when) = probe {
            *when = when.wrapping_add(cycle);
        }
        self.loads = (self.loads + loads) % LOADS;
        self.stores = (self.stores + stores) % STORES;
    }

    /// The cycle in which the last word of a line arrives, if one is on its way.
    pub(crate) fn incoming_line(&mut self) -> Option<&mut u64> {
        self.transfer.as_mut().filter(|transfer| transfer.fills).map(|transfer| &mut transfer.last)
    }

    /// Empties the cache.
    pub(crate) fn flush<B: Port>(&mut self, world: &mut World<'_, B>) {
        world.tell(Ask::ClearData, 0, 0);
        self.s2_hit = false;
    }
}
