//! The thread scheduler: which context should run, and when its time is over.

use super::{Context, Interface};

/// Cycles from an event to its interrupt.
const DECISION_CYCLES: u64 = 2;
/// The priority of a context that took too long.
const DEMOTED: u8 = 1;

impl Interface {
    pub(super) fn on_idle(&mut self, cycle: u64) {
        let decides_anew = self.decides_anew;
        let Some(entry) = self.running() else { return };
        // The prototype counts from when the thread became idle, or took its last turn.
        if decides_anew && !entry.is_active && self.idle_since.is_some() {
            return;
        }
        let Some(entry) = self.running() else { return };
        if entry.words.is_empty() && entry.arrivals.is_empty() {
            entry.is_active = false;
            self.began = None;
            self.idle_since = self.idle_since.or(Some(cycle));
            self.decide(cycle);
        }
    }

    /// Whether the running thread idles and no other has anything to do.
    pub(super) fn rests(&self) -> bool {
        self.idle_since.is_some() && self.contexts.iter().all(|entry| !entry.is_active)
    }

    /// The context that should run: the most urgent, then the one whose message has waited longest.
    fn top(&self) -> Option<&Context> {
        let active = self.contexts.iter().filter(|entry| entry.is_active);
        active.min_by_key(|entry| (entry.priority, entry.arrivals.front().copied().unwrap_or(u64::MAX)))
    }

    /// An arrival matters only if its context is more urgent than the running one, or no thread runs.
    pub(super) fn decide_after_arrival(&mut self, cycle: u64) {
        if self.decides_anew {
            self.decide(cycle);
            if self.began.is_none() && self.running().is_some_and(|entry| entry.is_active) {
                (self.began, self.idle_since) = (Some(cycle), None);
            }
            return;
        }
        let current = self.contexts.iter().find(|entry| entry.id == self.current);
        let running = current.filter(|entry| entry.is_active).map(|entry| entry.priority);
        if self.top().is_some_and(|top| {
            top.id != self.current && running.is_none_or(|priority| top.priority < priority)
        }) {
            self.decide(cycle);
        }
        if self.began.is_none() && self.running().is_some_and(|entry| entry.is_active) {
            (self.began, self.idle_since) = (Some(cycle), None);
        }
    }

    pub(super) fn decide(&mut self, cycle: u64) {
        if let Some(top) = self.top() {
            let (context, priority) = (top.id, top.priority);
            self.aim(cycle, context, priority);
        }
    }

    /// The target shall be `context`. Of several events in a cycle the last counts; without `decides_anew` it takes the place of what is
    /// on its way, too.
    fn aim(&mut self, cycle: u64, context: u16, priority: u8) {
        let due = cycle + DECISION_CYCLES;
        if !self.decides_anew {
            self.decisions.clear();
        } else if self.decisions.back().is_some_and(|&(other, ..)| other == due) {
            self.decisions.pop_back();
        }
        self.decisions.push_back((due, context, priority));
    }

    /// Nobody has had anything to do for long: the next thread gets its turn, which may be the current one.
    fn take_turns(&mut self, cycle: u64) {
        self.turn = (self.turn + 1) % self.contexts.len().max(1);
        if self.contexts.iter().any(|entry| entry.is_active) {
            return;
        }
        if let Some(entry) = self.contexts.get(self.turn) {
            let (context, priority) = (entry.id, entry.priority);
            self.aim(cycle, context, priority);
        }
    }

    /// Whether another context of the highest priority has something to do.
    fn is_waited_for(&self) -> bool {
        self.contexts.iter().any(|entry| entry.id != self.current && entry.is_active && entry.priority == 0)
    }

    /// Messages that take too long lose their priority, and idle threads their turn.
    pub(super) fn watch_time(&mut self, cycle: u64) {
        let message_cycles = self.message_cycles;
        if let Some(began) = self.began
            && cycle.saturating_sub(began) >= message_cycles
            && (!self.keeps_demotions || self.is_waited_for())
            && let keeps = self.keeps_demotions
            && let Some(entry) = self.running()
            && entry.priority == 0
        {
            entry.priority = DEMOTED;
            if keeps {
                entry.base_priority = DEMOTED;
            }
            self.current_priority = DEMOTED;
            self.decide(cycle);
        }
        if let Some(since) = self.idle_since
            && cycle.saturating_sub(since) >= self.idle_cycles
        {
            self.idle_since = Some(cycle);
            if self.decides_anew {
                return self.take_turns(cycle);
            }
            let here = self.contexts.iter().position(|entry| entry.id == self.current);
            let next = here.map_or(0, |here| here + 1) % self.contexts.len().max(1);
            if let Some(entry) = self.contexts.get(next)
                && entry.id != self.current
            {
                let (context, priority) = (entry.id, entry.priority);
                self.aim(cycle, context, priority);
            }
        }
    }
}
