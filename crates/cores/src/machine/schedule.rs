//! The scheduler: which thread is charged, makes way or runs next, and where a thread wakes.

use super::{Ended, Event, State, Thread, ThreadId, Want};
use crate::costs::Costs;
use crate::queue::{Mean, Pick, Share, pick};
use std::cmp::Reverse;

impl State {
    pub(super) fn me(&self) -> ThreadId {
        self.current.expect("asked by a thread of this machine")
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.made += 1;
        self.events.push(Reverse((time.max(self.now), self.made, event)));
    }

    /// Handles an event. Returns the thread whose code goes on because of it.
    pub(super) fn handle(&mut self, event: Event) -> Option<ThreadId> {
        match event {
            Event::Spent { core, turn } if self.cores[core].turn == turn => {
                self.charge(core);
                let thread = self.cores[core].current?;
                self.threads[thread.0].left = 0;
                return Some(thread);
            }
            Event::Call { core } => {
                if self.cores[core].current.is_none() {
                    self.dispatch(core);
                } else {
                    self.choose(core);
                }
            }
            Event::Begin { thread } => {
                let core = self.place(thread);
                self.charge(core);
                self.threads[thread.0].share = Share::new(&self.mean_of(core), self.costs.slice_ns);
                self.enqueue(thread, core, 0);
            }
            Event::Tick { core } => {
                self.cores[core].ticks = false;
                if self.cores[core].current.is_some() {
                    self.look(core);
                    self.tick(core);
                }
            }
            Event::Timeout { thread, sleep } if self.threads[thread.0].sleep == sleep => {
                let word = self.threads[thread.0].sleeps_on.take()?;
                if let Some(sleepers) = self.sleepers.get_mut(&word) {
                    sleepers.retain(|other| *other != thread);
                }
                self.threads[thread.0].ended = Ended::TimedOut;
                let core = self.place(thread);
                let is_idle = self.cores[core].current.is_none();
                self.wake_on(thread, core, if is_idle { self.costs.idle_exit_ns } else { 0 });
            }
            _ => {}
        }
        None
    }

    /// Serves the wish with which a thread has suspended itself.
    pub(super) fn serve(&mut self, thread: ThreadId) {
        let core = self.threads[thread.0].core;
        if self.cores[core].current != Some(thread) {
            // The thread has moved, and waits at its new core.
            return;
        }
        match self.threads[thread.0].wants {
            Want::Spend => self.go_on(core),
            Want::Look => {
                self.threads[thread.0].left = 0;
                self.go_on(core);
                self.look(core);
            }
            Want::Yield => {
                self.go_on(core);
                if !self.cores[core].queue.is_empty() {
                    let (mean, slice) = (self.mean_of(core), self.costs.slice_ns);
                    self.threads[thread.0].share.on_yield(&mean, slice);
                    self.choose(core);
                }
            }
            Want::Sleep => {
                let (mean, costs) = (self.mean_of(core), self.costs);
                self.threads[thread.0].share.on_sleep(&mean, &costs);
                self.leave_core(core);
                self.dispatch(core);
            }
        }
    }

    pub(super) fn end(&mut self, thread: ThreadId) {
        let core = self.threads[thread.0].core;
        self.alive -= 1;
        self.ended_ns = self.now;
        self.leave_core(core);
        self.dispatch(core);
    }

    /// Charges the core's thread for the time since it was last charged.
    pub(super) fn charge(&mut self, core: usize) {
        let now = self.now;
        let at = &mut self.cores[core];
        let (Some(thread), true) = (at.current, now > at.charged) else { return };
        let ran = now - at.charged;
        at.charged = now;
        let thread = &mut self.threads[thread.0];
        thread.cpu += ran;
        thread.left = thread.left.saturating_sub(ran);
        thread.share.on_run(ran, self.costs.slice_ns);
        at.vtime = at.vtime.max(thread.share.vtime);
    }

    /// The core's thread spends the time that it has left.
    pub(super) fn go_on(&mut self, core: usize) {
        self.charge(core);
        let at = &mut self.cores[core];
        at.turn += 1;
        let (turn, begin) = (at.turn, at.charged.max(self.now));
        let left = at.current.map_or(0, |thread| self.threads[thread.0].left);
        self.at(begin + left, Event::Spent { core, turn });
    }

    /// The core has no current thread any more.
    pub(super) fn leave_core(&mut self, core: usize) {
        self.charge(core);
        let at = &mut self.cores[core];
        at.turn += 1;
        at.current = None;
    }

    /// Another occasion for the scheduler to look at the core: its thread makes way if its time is up.
    pub(super) fn look(&mut self, core: usize) {
        self.charge(core);
        let Some(current) = self.cores[core].current else { return };
        if !self.cores[core].queue.is_empty() && !self.threads[current.0].share.is_guarded() {
            self.choose(core);
        }
    }

    /// Whether the core's thread is to make way for one that has just come to its queue.
    fn is_to_make_way(&mut self, core: usize, thread: ThreadId) -> bool {
        self.charge(core);
        let Some(current) = self.cores[core].current else { return true };
        let is_idle_class = |thread: ThreadId| self.threads[thread.0].share.is_idle_class;
        match (is_idle_class(thread), is_idle_class(current)) {
            (true, false) => false,
            (false, true) => {
                self.threads[current.0].share.drop_guard();
                true
            }
            _ => match self.pick(core) {
                Pick::Same => false,
                Pick::Queued(place) => {
                    self.cores[core].queue[place] == thread || !self.threads[current.0].share.is_guarded()
                }
            },
        }
    }

    fn pick(&self, core: usize) -> Pick {
        let at = &self.cores[core];
        let current = at.current.map(|current| &self.threads[current.0].share);
        pick(&at.queue, current, &self.mean_of(core), |thread| self.threads[thread.0].share)
    }

    /// The core's thread goes back to the queue, if another one is to run.
    fn choose(&mut self, core: usize) {
        self.charge(core);
        let Pick::Queued(place) = self.pick(core) else { return };
        let thread = self.cores[core].queue.swap_remove(place);
        let before = self.cores[core].current;
        self.leave_core(core);
        self.cores[core].queue.extend(before);
        self.switch_to(core, thread);
    }

    /// The core takes the thread that is to run next: from its own queue, or a thread of another queue that
    /// may move here.
    pub(super) fn dispatch(&mut self, core: usize) {
        if self.cores[core].current.is_some() {
            return;
        }
        let thread = match self.pick(core) {
            Pick::Queued(place) => self.cores[core].queue.swap_remove(place),
            Pick::Same => match self.take_from_others(core) {
                Some(thread) => thread,
                None => return,
            },
        };
        self.switch_to(core, thread);
    }

    /// The core, which has no current thread, takes `thread`.
    fn switch_to(&mut self, core: usize, thread: ThreadId) {
        let is_other = self.cores[core].last.is_some_and(|last| last != thread);
        let switch = if is_other { self.costs.switch_ns } else { 0 };
        self.threads[thread.0].cpu += switch;
        self.threads[thread.0].core = core;
        self.threads[thread.0].share.on_pick();
        let at = &mut self.cores[core];
        (at.current, at.last) = (Some(thread), Some(thread));
        at.charged = self.now + switch;
        self.go_on(core);
        self.tick(core);
    }

    /// The scheduler looks at a busy core with every tick.
    fn tick(&mut self, core: usize) {
        if !std::mem::replace(&mut self.cores[core].ticks, true) {
            let tick = self.costs.tick_ns;
            self.at((self.now / tick + 1) * tick, Event::Tick { core });
        }
    }

    /// Takes a thread that waits for another, busy core and may run on this one.
    pub(super) fn take_from_others(&mut self, core: usize) -> Option<ThreadId> {
        let from =
            (0..self.cores.len()).filter(|other| *other != core && self.cores[*other].current.is_some());
        let may_come = |thread: &ThreadId| !self.threads[thread.0].is_pinned;
        let from = from
            .filter(|other| self.cores[*other].queue.iter().any(may_come))
            .max_by_key(|other| (self.cores[*other].queue.len(), Reverse(*other)))?;
        let place = self.cores[from].queue.iter().position(may_come)?;
        let thread = self.cores[from].queue[place];
        self.move_share(thread, from, core);
        self.cores[from].queue.swap_remove(place);
        Some(thread)
    }

    /// Moves the time that the thread is owed with it to another core.
    pub(super) fn move_share(&mut self, thread: ThreadId, from: usize, to: usize) {
        let (from, to) = (self.mean_of(from), self.mean_of(to));
        self.threads[thread.0].share.on_move(&from, &to);
    }

    /// Where a thread that wakes is to run: where it slept, if that is idle, else on an idle core, else where it slept.
    pub(super) fn place(&self, thread: ThreadId) -> usize {
        let Thread { core, is_pinned, .. } = self.threads[thread.0];
        if is_pinned {
            return core;
        }
        let is_free = |core: usize| {
            let at = &self.cores[core];
            let is_idle_class = |thread: ThreadId| self.threads[thread.0].share.is_idle_class;
            at.queue.is_empty() && at.current.is_none_or(is_idle_class)
        };
        let count = self.cores.len();
        let free = (0..count).map(|step| (core + step) % count).find(|core| is_free(*core));
        free.unwrap_or(core)
    }

    /// Takes the first sleeper of a word. Returns it, the core where it is to run, and the cost of waking it.
    pub(super) fn choose_sleeper(&mut self, word: usize) -> Option<(ThreadId, usize, u64)> {
        let thread = self.sleepers.get_mut(&word)?.pop_front()?;
        self.threads[thread.0].sleeps_on = None;
        self.threads[thread.0].ended = Ended::Woken;
        let core = self.place(thread);
        let here = self.current.map(|me| self.threads[me.0].core);
        let cost = match self.cores[core].current {
            _ if Some(core) == here => self.costs.wake_here_ns,
            None => self.costs.wake_idle_ns,
            Some(_) => self.costs.wake_busy_ns,
        };
        Some((thread, core, cost))
    }

    /// Puts a woken thread into a core's queue; the core learns of it after `delay`.
    pub(super) fn wake_on(&mut self, thread: ThreadId, core: usize, delay: u64) {
        self.charge(core);
        let mean = self.mean_of(core);
        let is_elsewhere = self.threads[thread.0].core != core;
        self.threads[thread.0].share.on_wake(&mean, is_elsewhere, self.costs.slice_ns);
        // Its call returns only after the thread has spent the cost of sleeping.
        self.threads[thread.0].left = self.costs.sleep_ns;
        let is_here = self.current.is_some_and(|me| self.threads[me.0].core == core);
        if !is_here && self.current.is_some() {
            let Costs { from_idle_ns, from_busy_ns, .. } = self.costs;
            let is_idle = self.cores[core].current.is_none();
            self.threads[thread.0].cpu += if is_idle { from_idle_ns } else { from_busy_ns };
        }
        self.enqueue(thread, core, if is_here { 0 } else { delay });
    }

    pub(super) fn enqueue(&mut self, thread: ThreadId, core: usize, delay: u64) {
        self.threads[thread.0].core = core;
        self.cores[core].queue.push(thread);
        // Decided now, and takes effect when the core learns of it.
        if self.is_to_make_way(core, thread) {
            self.at(self.now + delay, Event::Call { core });
        }
    }

    /// The mean virtual time of the threads that run on a core or wait for it.
    pub(super) fn mean_of(&self, core: usize) -> Mean {
        let at = &self.cores[core];
        let there = at.current.iter().chain(&at.queue).map(|thread| &self.threads[thread.0].share);
        Mean::new(there, at.vtime)
    }
}
