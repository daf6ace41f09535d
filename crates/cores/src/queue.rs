//! Which thread runs next on a core: earliest eligible virtual deadline first, as in Linux since 6.6.
//!
//! Each thread has a virtual time, which passes while it runs, more slowly the greater its weight. A thread
//! that is not ahead of the weighted mean of all threads that want the core is eligible. The eligible thread
//! with the first virtual deadline runs; the deadline is a slice after it began. A picked thread keeps its
//! core until that deadline (its guard) against all threads that wake meanwhile, unless it gets ahead of the
//! mean. A sleeping thread keeps the time that it is owed; a debt is paid once the others have caught up.

use crate::costs::Costs;

/// A thread of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ThreadId(pub(crate) usize);

/// Weight of an ordinary thread, and of one that runs only when no other thread wants to (`SCHED_IDLE`).
const WEIGHT: i64 = 1024;
const WEIGHT_IDLE: i64 = 3;

/// The scheduler's account of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Share {
    /// Virtual time.
    pub(crate) vtime: i64,
    deadline: i64,
    /// The virtual time until which it keeps its core.
    guard: i64,
    /// The time that it was owed when it fell asleep; negative if it owed time.
    lag: i64,
    /// It runs only when nothing else wants to.
    pub(crate) is_idle_class: bool,
}

/// Where virtual time stands among threads that want the same core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mean {
    sum: i128,
    weight: i64,
    /// The virtual time if there are no such threads.
    otherwise: i64,
}

impl Mean {
    pub(crate) fn new<'a>(shares: impl Iterator<Item = &'a Share>, otherwise: i64) -> Mean {
        shares.fold(Mean { sum: 0, weight: 0, otherwise }, |mean, share| Mean {
            sum: mean.sum + i128::from(share.vtime) * i128::from(share.weight()),
            weight: mean.weight + share.weight(),
            otherwise,
        })
    }

    pub(crate) fn vtime(&self) -> i64 {
        if self.weight == 0 { self.otherwise } else { self.sum.div_euclid(self.weight.into()) as i64 }
    }

    /// Whether the share is not ahead of the mean. The comparison is exact, so that at least one thread is
    /// always admitted.
    fn admits(&self, share: &Share) -> bool {
        i128::from(share.vtime) * i128::from(self.weight) <= self.sum
    }
}

impl Share {
    /// The share of a new thread among others. It begins with half a slice, so that its first turn comes
    /// soon.
    pub(crate) fn new(mean: &Mean, slice_ns: u64) -> Share {
        let vtime = mean.vtime();
        Share { vtime, deadline: vtime + slice_ns as i64 / 2, guard: vtime, ..Share::default() }
    }

    fn weight(&self) -> i64 {
        if self.is_idle_class { WEIGHT_IDLE } else { WEIGHT }
    }

    /// A time on a core, in virtual time.
    fn virtual_ns(&self, ns: u64) -> i64 {
        ns as i64 * WEIGHT / self.weight()
    }

    /// It has run for so long.
    pub(crate) fn on_run(&mut self, ns: u64, slice_ns: u64) {
        self.vtime += self.virtual_ns(ns);
        if self.vtime >= self.deadline {
            self.deadline = self.vtime + self.virtual_ns(slice_ns);
        }
    }

    /// It has been picked to run.
    pub(crate) fn on_pick(&mut self) {
        self.guard = self.deadline;
    }

    /// It keeps its core against others of its class.
    pub(crate) fn is_guarded(&self) -> bool {
        self.vtime < self.guard
    }

    /// A thread of a class that goes first wants its core.
    pub(crate) fn drop_guard(&mut self) {
        self.guard = self.vtime;
    }

    /// It falls asleep among threads of this mean, itself among them.
    pub(crate) fn on_sleep(&mut self, mean: &Mean, costs: &Costs) {
        let max = self.virtual_ns((2 * costs.slice_ns).max(costs.tick_ns));
        self.lag = (mean.vtime() - self.vtime).clamp(-max, max);
    }

    /// It wakes among threads of this mean, on the core where it slept or on another.
    pub(crate) fn on_wake(&mut self, mean: &Mean, is_elsewhere: bool, slice_ns: u64) {
        if self.lag < 0 && !is_elsewhere && self.vtime > mean.vtime() {
            // For the other threads it has stayed in the queue meanwhile, and they have not caught up with
            // it.
            return;
        }
        let lag = match self.lag {
            // Alone it is neither ahead nor behind; and it owes nothing once the others have caught up.
            _ if mean.weight == 0 => 0,
            owes if owes < 0 && !is_elsewhere => 0,
            // Its arrival moves the mean towards it, so its lag is scaled up to be the same afterwards.
            lag => {
                (i128::from(lag) * i128::from(mean.weight + self.weight()) / i128::from(mean.weight)) as i64
            }
        };
        self.vtime = mean.vtime() - lag;
        self.deadline = self.vtime + self.virtual_ns(slice_ns);
        self.drop_guard();
    }

    /// It moves to another core, from threads with mean `from` to threads with mean `to`, and keeps its lag.
    pub(crate) fn on_move(&mut self, from: &Mean, to: &Mean) {
        let by = to.vtime() - from.vtime();
        self.vtime += by;
        self.deadline += by;
        self.drop_guard();
    }

    /// It yields its core: it forfeits the rest of its slice, unless it was ahead anyway.
    pub(crate) fn on_yield(&mut self, mean: &Mean, slice_ns: u64) {
        if mean.admits(self) {
            self.vtime = self.deadline;
            self.deadline += self.virtual_ns(slice_ns);
        }
    }

    /// From now on it runs only when no other thread wants to.
    pub(crate) fn on_humble(&mut self, slice_ns: u64) {
        self.is_idle_class = true;
        self.deadline = self.vtime + self.virtual_ns(slice_ns);
        self.drop_guard();
    }
}

/// A core's choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pick {
    /// It goes on with its current thread, or has nothing to do.
    Same,
    /// It takes the thread at this place of its queue.
    Queued(usize),
}

/// Picks the eligible thread with the first deadline; among equals, the one with the least number.
pub(crate) fn pick(
    queue: &[ThreadId],
    current: Option<&Share>,
    mean: &Mean,
    share: impl Fn(ThreadId) -> Share,
) -> Pick {
    let current = current.filter(|share| mean.admits(share));
    if current.is_some_and(Share::is_guarded) {
        return Pick::Same;
    }
    let eligible = queue.iter().enumerate().filter(|(_, thread)| mean.admits(&share(**thread)));
    let best = eligible.min_by_key(|(_, thread)| (share(**thread).deadline, **thread));
    match (best, current) {
        (Some((_, best)), Some(current)) if current.deadline < share(*best).deadline => Pick::Same,
        (Some((place, _)), _) => Pick::Queued(place),
        (None, _) => Pick::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 1000;

    fn at(vtime: i64) -> Share {
        Share { vtime, deadline: vtime + SLICE as i64, ..Share::default() }
    }

    fn mean(shares: &[Share]) -> Mean {
        Mean::new(shares.iter(), 0)
    }

    fn picked(queue: &[Share], current: Option<&Share>) -> Pick {
        let all = Mean::new(queue.iter().chain(current), 0);
        let threads: Vec<ThreadId> = (0..queue.len()).map(ThreadId).collect();
        pick(&threads, current, &all, |thread| queue[thread.0])
    }

    #[test]
    fn an_idle_thread_gets_its_three_of_1024() {
        let (mut normal, mut idle) = (at(0), Share { is_idle_class: true, ..at(0) });
        normal.on_run(1024, SLICE);
        idle.on_run(3, SLICE);
        assert_eq!(normal.vtime, idle.vtime);
    }

    #[test]
    fn of_those_who_are_not_ahead_the_one_with_the_first_deadline_runs() {
        // The second is the furthest behind, but the first has the earlier deadline; the third is ahead of
        // the mean.
        let first = Share { deadline: 50, ..at(0) };
        assert_eq!(picked(&[first, at(-100), Share { deadline: 1, ..at(200) }], None), Pick::Queued(0));
        assert_eq!(picked(&[at(200), at(-100)], None), Pick::Queued(1));
        assert_eq!(picked(&[at(7), at(7)], None), Pick::Queued(0), "of equals the first");
        assert_eq!(picked(&[], Some(&at(0))), Pick::Same);
    }

    #[test]
    fn a_thread_keeps_its_core_until_its_deadline_unless_it_is_ahead() {
        let mut current = at(0);
        current.on_pick();
        let woken = Share { deadline: 1, ..at(0) };
        assert_eq!(picked(&[woken], Some(&current)), Pick::Same, "guarded");
        current.on_run(10, SLICE);
        assert_eq!(picked(&[woken], Some(&current)), Pick::Queued(0), "ahead");
        let unguarded = at(0);
        assert_eq!(picked(&[woken], Some(&unguarded)), Pick::Queued(0));
        assert_eq!(picked(&[at(0)], Some(&unguarded)), Pick::Queued(0), "of equals the one that comes");
        assert_eq!(picked(&[Share { deadline: 1001, ..at(0) }], Some(&unguarded)), Pick::Same);
    }

    #[test]
    fn a_deadline_that_has_passed_is_followed_by_another_and_leaves_no_guard() {
        let mut share = at(0);
        share.on_pick();
        share.on_run(SLICE - 1, SLICE);
        assert!(share.is_guarded());
        share.on_run(1, SLICE);
        assert!(!share.is_guarded());
        assert_eq!(share.deadline, 2 * SLICE as i64);
    }

    #[test]
    fn who_has_slept_is_owed_what_it_was_and_who_owes_pays_while_it_sleeps() {
        let costs = Costs { slice_ns: SLICE, ..crate::costs::tests::COSTS };
        let others = mean(&[at(5000)]);
        let mut sleeper = at(4900);
        sleeper.on_sleep(&others, &costs);
        sleeper.on_wake(&others, false, SLICE);
        // The mean of both is now as far from it as the others' was.
        let both = mean(&[sleeper, at(5000)]);
        assert_eq!(both.vtime() - sleeper.vtime, 100);

        let mut debtor = at(5700);
        debtor.on_sleep(&others, &costs);
        debtor.on_wake(&mean(&[at(5200)]), false, SLICE);
        assert_eq!(debtor.vtime, 5700, "nobody has caught up yet");
        debtor.on_sleep(&mean(&[at(5200)]), &costs);
        debtor.on_wake(&mean(&[at(9000)]), false, SLICE);
        assert_eq!(debtor.vtime, 9000, "they have");
        debtor.on_sleep(&mean(&[at(8500)]), &costs);
        debtor.on_wake(&mean(&[at(100)]), true, SLICE);
        assert_eq!(debtor.vtime, 1100, "its debt goes with it");

        let mut spoilt = at(0);
        spoilt.on_sleep(&mean(&[at(1_000_000_000)]), &costs);
        assert_eq!(spoilt.lag, costs.tick_ns.max(2 * SLICE) as i64, "there is a limit");
        spoilt.on_wake(&mean(&[]), false, SLICE);
        assert_eq!(spoilt.vtime, 0, "alone nobody owes it anything");
    }

    #[test]
    fn a_yield_costs_the_rest_of_a_slice_unless_it_was_owed_nothing() {
        let mut share = at(0);
        share.on_yield(&mean(&[share, at(0)]), SLICE);
        assert_eq!((share.vtime, share.deadline), (1000, 2000));
        share.on_yield(&mean(&[share, at(0)]), SLICE);
        assert_eq!(share.vtime, 1000);
    }

    #[test]
    fn the_mean_goes_by_weight() {
        let shares = [at(0), Share { is_idle_class: true, ..at(1027) }];
        assert_eq!(mean(&shares).vtime(), 3);
        assert_eq!(Mean::new([].iter(), 7).vtime(), 7);
    }
}
