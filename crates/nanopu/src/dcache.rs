//! The first-level data cache: two stages, two pending stores, and one miss at a time.
//!
//! A request enters from the execute stage. If it cannot be served, because its line is missing or because it overlaps a store
//! that has not reached the array, the pipeline replays it from write-back.

use highwire_riscv::Class;

use crate::cache::{Tags, share_bus};
use crate::config::{DATA_MISS_CYCLES, WRITE_BACK_CYCLES};

/// From a miss of the instruction cache to the probe of this one.
const PROBE_CYCLES: u64 = 3;

/// An access on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    pub(crate) address: u64,
    pub(crate) bytes: u8,
    pub(crate) class: Class,
}

impl Access {
    fn writes(&self) -> bool {
        matches!(self.class, Class::Store | Class::Atomic)
    }

    fn reads(&self) -> bool {
        matches!(self.class, Class::Load | Class::Atomic)
    }

    fn overlaps(&self, other: &Access) -> bool {
        let reaches = |low: u64, high: u64, bytes: u8| high.wrapping_sub(low) < u64::from(bytes);
        reaches(self.address, other.address, self.bytes) || reaches(other.address, self.address, other.bytes)
    }
}

/// The instruction cache's misses are asked for here first: memory might not have the newest bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    None,
    /// It has not arrived before this cycle, and waits until both stages are empty.
    Asked(u64),
    /// It came in this cycle: it takes the tags then, the second stage two cycles later, and the answer three.
    Came(u64),
}

/// A line on its way in, or out to make room for it.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    /// The cycle of its last word, in which decode lets the next access go.
    last: u64,
    address: u64,
    /// Whether the line at `address` comes in.
    fills: bool,
    /// A line that is fetched to be written arrives ready for it.
    writes: bool,
}

/// The cache.
#[derive(Clone, Debug)]
pub(crate) struct DataCache {
    tags: Tags,
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
            tags: Tags::new(),
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

    /// Whether an access of the execute stage is accepted in this cycle.
    #[inline]
    pub(crate) fn is_ready(&self, cycle: u64, request: Option<&Access>) -> bool {
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
        self.transfer.is_none() && !probe_passes && !self.refuses_s1(cycle) && !must_wait
    }

    /// Whether the access in the first stage has to come again: after a refused one, beside the first store to a line,
    /// or because it reads what a pending store has not yet written.
    fn refuses_s1(&self, cycle: u64) -> bool {
        let touches_tags = self.s2_store().is_some_and(|store| !self.tags.is_dirty(store.address));
        let reader = self.s1.filter(Access::reads);
        let stores = [self.s2_store(), self.held, self.pending];
        let overlaps =
            reader.is_some_and(|access| stores.iter().flatten().any(|store| store.overlaps(&access)));
        let probed = matches!(self.probe, Probe::Came(came) if cycle == came + 2);
        self.refuses() || touches_tags || overlaps || probed
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

    /// Everything moves. `request` is what the execute stage sends, accepted or not; `kills_s1` follows a redirect;
    /// `code_line` is when a line of the instruction cache is complete, `line_cycles` how long the line at an address takes.
    #[inline]
    pub(crate) fn tick(
        &mut self,
        cycle: u64,
        request: Option<(Access, bool)>,
        kills_s1: bool,
        code_line: Option<&mut u64>,
        line_cycles: impl FnOnce(u64) -> u64,
    ) {
        if !self.is_quiet || request.is_some() {
            self.tick_busily(cycle, request, kills_s1, code_line, line_cycles);
        }
    }

    fn tick_busily(
        &mut self,
        cycle: u64,
        request: Option<(Access, bool)>,
        kills_s1: bool,
        code_line: Option<&mut u64>,
        line_cycles: impl FnOnce(u64) -> u64,
    ) {
        let s1_refused = self.refuses_s1(cycle);
        let wants_read = request.is_some_and(|(access, _)| access.reads());
        let first = self.s2_store().or(self.held);
        let rewrites = self.s2_store().is_some_and(|access| access.class == Class::Atomic);
        let may_drain = (first.is_some() && !rewrites) || self.pending.is_some();
        let drains = self.must_drain() || (may_drain && !wants_read);
        if let Some(store) = self.s2_store() {
            self.tags.mark_dirty(store.address);
        }
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
        self.move_transfer(cycle, code_line, line_cycles);
        self.s2 = self.s1.filter(|_| !kills_s1).map(|access| (access, s1_refused));
        self.s1 = request.and_then(|(access, accepted)| accepted.then_some(access));
        self.s2_hit = self.s2.is_some_and(|(access, _)| {
            self.tags.holds(access.address) && !(access.writes() && self.tags.is_shared(access.address))
        });
        self.is_quiet = self.s1.is_none()
            && self.s2.is_none()
            && self.held.is_none()
            && self.pending.is_none()
            && self.transfer.is_none()
            && self.probe == Probe::None;
    }

    /// Ends a transfer, or begins the one that the second stage's access needs.
    fn move_transfer(
        &mut self,
        cycle: u64,
        code_line: Option<&mut u64>,
        line_cycles: impl FnOnce(u64) -> u64,
    ) {
        match self.transfer {
            Some(Transfer { last, address, fills, writes }) if last == cycle => {
                if fills {
                    self.tags.fill(address, writes);
                }
                self.transfer = None;
            }
            Some(_) => {}
            None => {
                let Some((access, false)) = self.s2 else {
                    return;
                };
                let Access { address, .. } = access;
                if self.s2_hit {
                    return;
                }
                let fills = !self.tags.drop_dirty(address);
                let last = if fills {
                    share_bus(cycle + DATA_MISS_CYCLES + line_cycles(address), code_line)
                } else {
                    cycle + WRITE_BACK_CYCLES
                };
                self.transfer = Some(Transfer { last, address, fills, writes: access.writes() });
            }
        }
    }

    /// The cycle in which the last word of a line arrives, if one is on its way.
    pub(crate) fn incoming_line(&mut self) -> Option<&mut u64> {
        self.transfer.as_mut().filter(|transfer| transfer.fills).map(|transfer| &mut transfer.last)
    }

    /// A device writes to the line of `address`, which goes. Whether it was dirty; nothing if it was not there.
    pub(crate) fn take_line(&mut self, address: u64) -> Option<bool> {
        self.tags.take(address)
    }

    /// A device reads the line of `address`, which stays. Whether it was dirty; nothing if it was not there to be written to.
    pub(crate) fn share_line(&mut self, address: u64) -> Option<bool> {
        self.tags.share(address)
    }

    /// Empties the cache.
    pub(crate) fn flush(&mut self) {
        self.tags.clear();
        self.s2_hit = false;
    }
}
