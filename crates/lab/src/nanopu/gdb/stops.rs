//! Breakpoints and watchpoints: a core stops before an instruction because of its address, or because of the
//! memory that it is about to touch. Debuggers expect both kinds of stop before the instruction on this
//! architecture: they step over the access, and look for changes.
//!
//! The cores share a clock. So several may reach a stop in one cycle, and while a debugger steps one of them
//! over a breakpoint, which it removes for that, the others run as well and may reach one. Each stop is kept
//! until the debugger has heard of it; those of a step are reported after it.

use std::collections::{BTreeMap, VecDeque};

use gdbstub::common::{Signal, Tid};
use gdbstub::target::ext::breakpoints::WatchKind;
use highwire_riscv::{AccessKind, MemoryAccess};

use super::{StopReason, thread};

/// Memory that is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Watch {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) kind: WatchKind,
}

impl Watch {
    /// The first watched byte that an access touches, if the access is of the watched kind.
    fn sees(&self, access: &MemoryAccess) -> Option<u64> {
        let is_meant = match (self.kind, access.kind) {
            (WatchKind::Write, AccessKind::Load) | (WatchKind::Read, AccessKind::Store) => false,
            (WatchKind::Write | WatchKind::Read | WatchKind::ReadWrite, _) => true,
        };
        let first = self.address.max(access.address);
        let reaches = |start: u64, bytes: u64| first.wrapping_sub(start) < bytes;
        (is_meant && reaches(self.address, self.bytes) && reaches(access.address, access.bytes.into()))
            .then_some(first)
    }
}

/// The instruction before which a core stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    pub(super) pc: u64,
    /// The instruction's access to memory.
    pub(super) access: Option<MemoryAccess>,
    /// The number of instructions that the core executed before.
    pub(super) executed: u64,
}

/// The breakpoints and watchpoints that a debugger has set.
#[derive(Clone, Debug, Default)]
struct Places {
    breakpoints: Vec<u64>,
    watches: Vec<Watch>,
}

/// All state of stops.
#[derive(Debug, Default)]
pub(super) struct Stops {
    places: Places,
    /// The places when all cores ran last. A debugger that runs one core alone has lifted some, and set
    /// others for that core.
    common: Places,
    /// The core that executes one instruction and stops.
    steps: Option<usize>,
    /// A core that must run, and whether no other may.
    runs: Option<usize>,
    is_locked: bool,
    /// Stops that have not been reported.
    untold: VecDeque<StopReason>,
    /// The access before which each core was reported to stand, by its number of executed instructions.
    seen: BTreeMap<usize, u64>,
}

impl Stops {
    /// Another run is about to begin; its mode is not known yet.
    pub(super) fn prepare(&mut self) {
        (self.steps, self.runs, self.is_locked) = (None, None, false);
    }

    pub(super) fn step(&mut self, core: usize) {
        (self.steps, self.runs) = (Some(core), Some(core));
    }

    pub(super) fn go_on(&mut self, core: usize) {
        self.runs = self.runs.or(Some(core));
    }

    pub(super) fn lock(&mut self) {
        self.is_locked = true;
    }

    /// The run begins, with each core at its place.
    pub(super) fn begin(&mut self, stands: impl Iterator<Item = (usize, Stand)>) {
        if self.alone().is_some() {
            return;
        }
        self.common.clone_from(&self.places);
        if !self.places.watches.is_empty() && self.untold.is_empty() {
            stands.for_each(|(core, stand)| {
                let seen = self.watch(core, &stand);
                self.untold.extend(seen);
            });
        }
    }

    /// The core that runs alone, for a debugger that does not want to hear of others.
    pub(super) fn alone(&self) -> Option<usize> {
        self.runs.filter(|_| self.is_locked)
    }

    /// Whether instructions' accesses to memory matter.
    pub(super) fn watch_memory(&self) -> bool {
        !(self.places.watches.is_empty() && self.common.watches.is_empty())
    }

    /// The next stop to report. No core runs before all are reported.
    pub(super) fn poll(&mut self) -> Option<StopReason> {
        self.untold.pop_front()
    }

    pub(super) fn note(&mut self, reason: StopReason) {
        self.untold.push_back(reason);
    }

    /// Takes the unreported stops, which are then no longer reported.
    pub(super) fn take(&mut self) -> VecDeque<StopReason> {
        self.seen.clear();
        std::mem::take(&mut self.untold)
    }

    /// Takes the unreported stops of cores other than `core`, which are then no longer reported.
    pub(super) fn take_others(&mut self, core: usize) -> VecDeque<StopReason> {
        let own = Some(thread(core));
        let untold = std::mem::take(&mut self.untold);
        let (own, others) = untold.into_iter().partition(|reason| thread_of(reason) == own);
        self.untold = own;
        others
    }

    /// Puts stops back, to be reported after all.
    pub(super) fn put_back(&mut self, untold: VecDeque<StopReason>) {
        self.untold = untold;
    }

    /// A core has executed an instruction, and stands before another.
    pub(super) fn on_arrival(&mut self, core: usize, stand: &Stand) {
        let is_stepped = self.steps == Some(core);
        let reason = if let Some(reason) = self.watch(core, stand) {
            reason
        } else if self.places_of(core).breakpoints.contains(&stand.pc) {
            StopReason::SwBreak(thread(core))
        } else if is_stepped {
            StopReason::SignalWithThread { tid: thread(core), signal: Signal::SIGTRAP }
        } else {
            return;
        };
        match is_stepped {
            true => self.untold.push_front(reason),
            false => self.untold.push_back(reason),
        }
    }

    fn places_of(&self, core: usize) -> &Places {
        match self.alone() {
            Some(alone) if alone != core => &self.common,
            _ => &self.places,
        }
    }

    /// The watched access before which a core stands, unless it has been reported.
    fn watch(&mut self, core: usize, stand: &Stand) -> Option<StopReason> {
        let access = stand.access?;
        let mut seen = self.places_of(core).watches.iter();
        let (kind, addr) = seen.find_map(|watch| Some((watch.kind, watch.sees(&access)?)))?;
        let is_new = self.seen.insert(core, stand.executed) != Some(stand.executed);
        is_new.then_some(StopReason::Watch { tid: thread(core), kind, addr })
    }

    pub(super) fn add_breakpoint(&mut self, address: u64) {
        self.places.breakpoints.push(address);
    }

    pub(super) fn remove_breakpoint(&mut self, address: u64) -> bool {
        let breakpoints = &mut self.places.breakpoints;
        let place = breakpoints.iter().position(|&known| known == address);
        place.map(|place| breakpoints.swap_remove(place)).is_some()
    }

    pub(super) fn add_watch(&mut self, watch: Watch) {
        self.places.watches.push(watch);
    }

    pub(super) fn remove_watch(&mut self, watch: Watch) -> bool {
        let watches = &mut self.places.watches;
        let place = watches.iter().position(|&known| known == watch);
        place.map(|place| watches.swap_remove(place)).is_some()
    }
}

/// The thread of a stop.
fn thread_of(reason: &StopReason) -> Option<Tid> {
    match *reason {
        StopReason::SwBreak(tid)
        | StopReason::Watch { tid, .. }
        | StopReason::SignalWithThread { tid, .. } => Some(tid),
        _ => None,
    }
}
