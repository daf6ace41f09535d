//! Where cores are to stop: in front of an instruction, because of its place, or because of the memory that it is about to touch.
//! Debuggers expect both in front on this architecture: they step over the access, and look at what has changed.
//!
//! The cores share a clock. So several may arrive somewhere in one cycle, and while a debugger steps one of them over a breakpoint,
//! which it takes away for that, the others run as well and may arrive there. Each arrival is kept until it has been told; those of
//! a step are told behind it.

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
    /// The first watched byte that an access touches, if it is of the kind that is watched.
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

/// In front of which instruction a core stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    pub(super) pc: u64,
    /// What the instruction would do to memory.
    pub(super) access: Option<MemoryAccess>,
    /// How many the core has executed before.
    pub(super) executed: u64,
}

/// What a debugger has put somewhere.
#[derive(Clone, Debug, Default)]
struct Places {
    breakpoints: Vec<u64>,
    watches: Vec<Watch>,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Stops {
    places: Places,
    /// Those when all cores ran last. Who runs one core alone has lifted some, and set others for that core.
    common: Places,
    /// The core that executes one instruction and stops.
    steps: Option<usize>,
    /// A core that is meant to run, and whether no other is.
    runs: Option<usize>,
    is_locked: bool,
    /// What has happened and was not told.
    untold: VecDeque<StopReason>,
    /// The access in front of which each core has been said to stand, by what it had executed before.
    seen: BTreeMap<usize, u64>,
}

impl Stops {
    /// Another run is about to begin, about which nothing has been said yet.
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

    /// The run begins, with each core where it stands.
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

    /// The core that is run alone, by a debugger that wants to hear of no other.
    pub(super) fn alone(&self) -> Option<usize> {
        self.runs.filter(|_| self.is_locked)
    }

    /// Whether it matters what instructions do to memory.
    pub(super) fn watch_memory(&self) -> bool {
        !(self.places.watches.is_empty() && self.common.watches.is_empty())
    }

    /// What is to be told next. Nothing runs before all is.
    pub(super) fn poll(&mut self) -> Option<StopReason> {
        self.untold.pop_front()
    }

    pub(super) fn note(&mut self, reason: StopReason) {
        self.untold.push_back(reason);
    }

    /// What has not been told, which is not told any more.
    pub(super) fn take(&mut self) -> VecDeque<StopReason> {
        self.seen.clear();
        std::mem::take(&mut self.untold)
    }

    /// What others than `core` have come to, which is not told any more.
    pub(super) fn take_others(&mut self, core: usize) -> VecDeque<StopReason> {
        let own = Some(thread(core));
        let untold = std::mem::take(&mut self.untold);
        let (own, others) = untold.into_iter().partition(|reason| thread_of(reason) == own);
        self.untold = own;
        others
    }

    /// That is to be told after all.
    pub(super) fn put_back(&mut self, untold: VecDeque<StopReason>) {
        self.untold = untold;
    }

    /// A core has executed an instruction, and stands in front of another.
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

    /// The access that a core stands in front of, if it is watched and has not been told.
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

/// Whom a stop is about.
fn thread_of(reason: &StopReason) -> Option<Tid> {
    match *reason {
        StopReason::SwBreak(tid)
        | StopReason::Watch { tid, .. }
        | StopReason::SignalWithThread { tid, .. } => Some(tid),
        _ => None,
    }
}
