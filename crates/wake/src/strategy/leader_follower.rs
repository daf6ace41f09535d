//! Leader and followers: the thread that blocks polls itself, for all threads that wait with it.
//!
//! Its own event then costs what polling costs; another thread's event one switch. When the leader has its
//! event, it goes. It calls another thread to the seat only if it is not about to come back, because calling
//! costs more than a round trip.

use super::{Outcome, Station, TURNS_PER_CLOCK, Turn, Wait, WakeStrategy};
use crate::account::Kind;
use crate::seat::Leading;
use crate::sys;
use crate::word::Slept;
use crate::world;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A thread that has its core cannot spend this long on the turns between two looks at the clock. Making way for a thread that it has woken
/// counts: where that takes so long, others want the core as well, and the next thread that waits had better lead.
const GAP_MAX: Duration = Duration::from_micros(200);
/// A leader that waits again within this time counts as not having been away.
const AWAY_MAX_NS: u64 = 50_000;
/// After this many quick returns in a row, a leader may leave the seat empty.
const QUICK_RETURNS: u64 = 4;

/// Polls for as long as `budget` allows without an event, and rests then: the leader sleeps on the source of
/// work, still for all that wait, until events come sooner than that again. Followers sleep at once.
#[derive(Clone, Copy, Debug)]
pub struct LeaderFollower {
    /// How long a leader polls without finding anything.
    pub budget: Duration,
}

/// The record of leaders that come and go.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// The word of the last leader, and when it left.
    last: AtomicU64,
    left_ns: AtomicU64,
    /// Quick returns in a row.
    quick: AtomicU64,
}

/// What a leader does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    /// It polls until it has done so in vain for its budget.
    Poll(Duration),
    /// It polls, for this long at most, for one event, and plans anew.
    Trial(Duration),
    /// It sleeps at once.
    Rest,
}

/// How a leader's polling ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It found its own event.
    Own,
    /// It found one for another thread, in a trial.
    Found,
    /// It polled in vain.
    Spent,
    /// Another thread had its core for a while: there are more threads than cores.
    Crowded,
    /// More threads want to run than there are cores.
    Full,
    /// The deadline passed.
    Late,
}

/// How a leader chooses, and what it learns. A leader serves all that wait, so what counts is how soon events come for any of them, and
/// not how long its own wait lasts: with hundreds of threads a wait is as long as hundreds of events.
pub(super) trait Habit {
    /// What to do now.
    fn plan(&self, now: Instant) -> Plan;

    /// The leader has no work, and no thread that it has woken wants its core: a moment to look around. True if it should not poll.
    fn is_full(&self, now: Instant) -> bool {
        let _ = now;
        false
    }

    /// From when on the leader's time on its core counts, if it began to wait at `begin` and has the seat since `now`.
    fn leads_since(&self, begin: Instant, now: Instant) -> Instant {
        let _ = begin;
        now
    }

    /// What came of a plan to poll, after so long.
    fn learn(&self, plan: Plan, end: End, took: Duration, now: Instant);

    /// A rest ended because there was an event, after so long.
    fn learn_from_rest(&self, took: Duration);
}

/// Polls for the budget, rests, and polls again once an event came within the budget.
struct Steady {
    budget: Duration,
    polls: Cell<bool>,
}

impl Habit for Steady {
    fn plan(&self, _now: Instant) -> Plan {
        if self.polls.get() { Plan::Poll(self.budget) } else { Plan::Rest }
    }

    /// A thread that is called to the seat after a long wait makes a few turns and leaves it: the next one that waits is awake, and may be the
    /// only one that has events.
    fn leads_since(&self, begin: Instant, _now: Instant) -> Instant {
        begin
    }

    fn learn(&self, _plan: Plan, end: End, _took: Duration, _now: Instant) {
        self.polls.set(!matches!(end, End::Spent | End::Crowded));
    }

    fn learn_from_rest(&self, took: Duration) {
        self.polls.set(took < self.budget);
    }
}

impl WakeStrategy for LeaderFollower {
    fn wait(&self, station: &Station, wait: &Wait<'_>) -> Outcome {
        lead_or_follow(station, wait, &Steady { budget: self.budget, polls: Cell::new(true) })
    }
}

/// A leader's turns so far, and the time that it has polled.
#[derive(Default)]
struct Polled {
    turns: u64,
    time: Duration,
}

/// Waits as leader or follower.
pub(super) fn lead_or_follow(station: &Station, wait: &Wait<'_>, habit: &dyn Habit) -> Outcome {
    if wait.is_ready() {
        return Outcome::Over;
    }
    let name = std::ptr::from_ref(wait.word).addr() as u64;
    let _present = station.presence.enter();
    let begin = world::now();
    let mut polled = Polled::default();
    station.returns.on_wait(name, station.nanos(begin));
    loop {
        let posts = wait.word.posts();
        if let Some(leading) = station.seat.try_take() {
            let Some((outcome, now)) = lead(&leading, station, wait, habit, &mut polled, begin) else {
                drop(leading);
                let outcome = wait.sleep_until_over(polled.turns, polled.time);
                if outcome == Outcome::Over {
                    habit.learn_from_rest(world::now() - begin);
                }
                return outcome;
            };
            let is_over = outcome == Outcome::Over;
            wait.account.note(if is_over { Kind::Own } else { Kind::InVain }, polled.turns, polled.time);
            if !is_over || station.returns.on_leave(name, station.nanos(now)) {
                leading.pass_on();
            }
            return outcome;
        }
        if (wait.is_over)() {
            wait.account.note(Kind::Woken, polled.turns, Duration::ZERO);
            return Outcome::Over;
        }
        if wait.place.is_some_and(|place| !station.seat.follow(place)) {
            continue;
        }
        wait.work.leave_to_leader();
        wait.account.note_sleep();
        if wait.work.sleeps_elsewhere() {
            return Outcome::Elsewhere;
        }
        if let Some(outcome) = wait.end_of(wait.word.sleep(posts, wait.deadline)) {
            let is_over = outcome == Outcome::Over;
            wait.account.note(if is_over { Kind::Woken } else { Kind::InVain }, polled.turns, Duration::ZERO);
            return outcome;
        }
    }
}

/// Polls and rests in turns until the event is there; also returns when that was. `None`: a thread cannot sleep on this work.
fn lead(
    leading: &Leading<'_>,
    station: &Station,
    wait: &Wait<'_>,
    habit: &dyn Habit,
    polled: &mut Polled,
    since: Instant,
) -> Option<(Outcome, Instant)> {
    let mut now = habit.leads_since(since, world::now());
    let mut is_first = true;
    loop {
        let begin = now;
        let plan = habit.plan(now);
        if plan != Plan::Rest || is_first {
            let end;
            (end, now) = poll(leading, wait, plan, habit, polled, begin);
            polled.time += now - begin;
            if plan != Plan::Rest {
                habit.learn(plan, end, now - begin, now);
            }
            match end {
                End::Own if plan == Plan::Rest => {
                    habit.learn_from_rest(now - begin);
                    return Some((Outcome::Over, now));
                }
                End::Own => return Some((Outcome::Over, now)),
                End::Late => return Some((Outcome::TimedOut, now)),
                End::Found => continue,
                End::Spent | End::Crowded | End::Full => {}
            }
        }
        is_first = false;
        station.note_sleep_here();
        let rested = rest(leading, wait, &mut polled.turns)?;
        let woke = world::now();
        if matches!(rested, Rested::Own | Rested::Found) {
            habit.learn_from_rest(woke - now);
        }
        now = woke;
        match rested {
            Rested::Own => return Some((Outcome::Over, now)),
            Rested::Found => {}
            Rested::InVain => return Some((Outcome::TimedOut, now)),
            Rested::Interrupted => return Some((Outcome::Interrupted, now)),
        }
    }
}

/// How a rest ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rested {
    /// The leader's own event is there.
    Own,
    /// An event for another thread is.
    Found,
    /// The deadline passed.
    InVain,
    Interrupted,
}

/// Sleeps until there is work, does it, and sleeps again, until there is an event for a thread; `None`: a thread cannot
/// sleep on this work.
fn rest(leading: &Leading<'_>, wait: &Wait<'_>, turns: &mut u64) -> Option<Rested> {
    loop {
        let posts = wait.word.posts();
        if (wait.is_over)() {
            return Some(Rested::Own);
        }
        wait.account.note_sleep();
        let slept = wait.work.rest(wait.word, posts, wait.deadline)?;
        let is_heartbeat = slept == Slept::TimedOut && !wait.is_late(world::now());
        match wait.end_of(slept) {
            Some(Outcome::Over) => {
                if is_heartbeat {
                    wait.account.note_rescue();
                }
                return Some(Rested::Own);
            }
            Some(Outcome::TimedOut) if !is_heartbeat => return Some(Rested::InVain),
            Some(Outcome::Interrupted) => return Some(Rested::Interrupted),
            _ => {}
        }
        leading.beat();
        *turns += 1;
        match wait.work.turn() {
            // A thread that this turn has woken runs as soon as this one sleeps.
            Turn::Woke => return Some(if (wait.is_over)() { Rested::Own } else { Rested::Found }),
            // The work that woke this thread is still there, and the thread that runs it may need this core.
            Turn::Taken => sys::yield_core(),
            Turn::Idle | Turn::Worked => {}
        }
    }
}

/// Polls until the event is there or there is a reason to stop; returns also when that was. With a plan to rest it makes one turn.
fn poll(
    leading: &Leading<'_>,
    wait: &Wait<'_>,
    plan: Plan,
    habit: &dyn Habit,
    polled: &mut Polled,
    begin: Instant,
) -> (End, Instant) {
    let (budget, is_trial) = match plan {
        Plan::Poll(budget) => (budget, false),
        Plan::Trial(budget) => (budget, true),
        Plan::Rest => (Duration::ZERO, false),
    };
    let (mut looked, mut worked) = (begin, begin);
    // Threads of other processes that poll on this core make way after each turn in vain, and so does this one. They are no crowd.
    let shares_core = || !budget.is_zero() && wait.work.shares_core();
    let mut is_shared = shares_core();
    // Read before the look, which then sees the event of a post that came before this thread had the seat.
    let mut posts = wait.word.posts();
    if (wait.is_over)() {
        return (End::Own, looked);
    }
    loop {
        let turn = wait.work.turn();
        polled.turns += 1;
        let now_posts = wait.word.posts();
        if now_posts != posts {
            posts = now_posts;
            if (wait.is_over)() {
                let now = world::now();
                if turn != Turn::Woke && !budget.is_zero() && !is_shared {
                    // Where every poll is short, there is no idle moment. The next plan goes by what this look finds.
                    habit.is_full(now);
                }
                return (End::Own, now);
            }
        }
        let is_look_due = is_shared || polled.turns.is_multiple_of(TURNS_PER_CLOCK);
        if !turn.is_work() && !budget.is_zero() && !is_look_due {
            continue;
        }
        leading.beat();
        let mut now = world::now();
        if !turn.is_work() && now - looked > GAP_MAX {
            return (End::Crowded, now);
        }
        looked = now;
        if turn == Turn::Woke {
            if is_trial {
                return (End::Found, now);
            }
            if !budget.is_zero() {
                // The thread that was woken must have the core now. If it has another, this is a short call.
                sys::yield_core();
                now = world::now();
            }
        }
        if turn.is_work() {
            worked = now;
        } else {
            is_shared = shares_core();
            if is_shared {
                wait.work.make_way();
                // If another kind of thread had the core for long, the next look at the clock finds out.
                now = world::now();
            }
        }
        if wait.is_late(now) {
            return (End::Late, now);
        }
        if now - worked >= budget {
            return (End::Spent, now);
        }
        if turn != Turn::Worked && !is_shared && habit.is_full(now) {
            return (End::Full, now);
        }
    }
}

impl Returns {
    /// A thread begins to wait.
    fn on_wait(&self, name: u64, now: u64) {
        if self.last.load(Ordering::Relaxed) == name {
            let away = now.saturating_sub(self.left_ns.load(Ordering::Relaxed));
            let quick = if away <= AWAY_MAX_NS { self.quick.load(Ordering::Relaxed) + 1 } else { 0 };
            self.quick.store(quick, Ordering::Relaxed);
        }
    }

    /// A leader leaves with its event; returns whether it must call another thread.
    fn on_leave(&self, name: u64, now: u64) -> bool {
        self.left_ns.store(now, Ordering::Relaxed);
        if self.last.swap(name, Ordering::Relaxed) != name {
            self.quick.store(0, Ordering::Relaxed);
        }
        self.quick.load(Ordering::Relaxed) < QUICK_RETURNS
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::strategy::Work;
    use crate::word::WakeWord;

    #[test]
    fn a_leader_that_is_soon_back_calls_nobody() {
        let returns = Returns::default();
        let mut now = 0;
        for round in 0..QUICK_RETURNS {
            assert!(returns.on_leave(1, now), "round {round}");
            now += AWAY_MAX_NS;
            returns.on_wait(1, now);
        }
        assert!(!returns.on_leave(1, now));
        returns.on_wait(1, now + AWAY_MAX_NS + 1);
        assert!(returns.on_leave(1, now), "it stayed away");
        assert!(returns.on_leave(2, now), "another one leads");
    }

    /// Work of which each turn is like every other until `own_after` of them, when this thread's event comes.
    struct Alike<'a> {
        word: &'a WakeWord,
        own_after: u64,
        turn: Turn,
        is_shared: bool,
        turns: Cell<u64>,
        ways: Cell<u64>,
        rests: Cell<u64>,
    }

    impl Work for Alike<'_> {
        fn turn(&self) -> Turn {
            self.turns.set(self.turns.get() + 1);
            if self.turns.get() == self.own_after {
                self.word.post();
            }
            self.turn
        }
        fn hand_over(&self) {}
        fn shares_core(&self) -> bool {
            self.is_shared
        }
        fn make_way(&self) {
            self.ways.set(self.ways.get() + 1);
        }
        fn rest(&self, _word: &WakeWord, _seen: u32, _deadline: Option<Instant>) -> Option<Slept> {
            self.rests.set(self.rests.get() + 1);
            Some(Slept::Posted)
        }
    }

    /// How often a leader makes way and rests until its event comes.
    fn lead(habit: &dyn Habit, own_after: u64, turn: Turn, is_shared: bool) -> (u64, u64) {
        let (station, word, account) = (Station::new(), WakeWord::default(), Account::default());
        let [turns, ways, rests] = [const { Cell::new(0) }; 3];
        let work = Alike { word: &word, own_after, turn, is_shared, turns, ways, rests };
        let is_over = || work.turns.get() >= own_after;
        let wait = Wait {
            word: &word,
            place: None,
            account: &account,
            is_over: &is_over,
            work: &work,
            deadline: None,
        };
        assert_eq!(lead_or_follow(&station, &wait, habit), Outcome::Over);
        assert_eq!(account.figures().own(), 1);
        (work.ways.get(), work.rests.get())
    }

    /// The rests of a leader whose every turn has an event for another thread.
    fn lead_through(habit: &dyn Habit, events: u64) -> u64 {
        lead(habit, events, Turn::Woke, false).1
    }

    /// Polls, and always learns that more threads want to run than there are cores.
    struct Crowded(Cell<u64>);

    impl Habit for Crowded {
        fn plan(&self, _now: Instant) -> Plan {
            Plan::Poll(Duration::from_secs(3600))
        }
        fn is_full(&self, _now: Instant) -> bool {
            self.0.set(self.0.get() + 1);
            true
        }
        fn learn(&self, _plan: Plan, end: End, _took: Duration, _now: Instant) {
            assert!(matches!(end, End::Full | End::Own), "{end:?}");
        }
        fn learn_from_rest(&self, _took: Duration) {}
    }

    #[test]
    fn a_leader_that_always_finds_events_for_others_looks_around_as_well() {
        let crowded = Crowded(Cell::new(0));
        // Each plan is one turn, and then a rest with another.
        assert_eq!(lead_through(&crowded, 1000), 500);
        assert_eq!(crowded.0.get(), 500);
    }

    #[test]
    fn a_leader_polls_again_in_the_same_wait_once_events_for_others_come_soon() {
        // However slow this machine is, events come sooner than that.
        let patient = Steady { budget: Duration::from_secs(3600), polls: Cell::new(false) };
        assert_eq!(lead_through(&patient, 1000), 1, "one rest, and then it polls");
        let hasty = Steady { budget: Duration::ZERO, polls: Cell::new(false) };
        assert_eq!(lead_through(&hasty, 1000), 999, "no event comes as soon as that");
    }

    /// The same of a leader whose turns are in vain, on a core that others poll on as well while `is_shared` says so.
    fn lead_on_core(habit: &dyn Habit, is_shared: bool) -> (u64, u64) {
        lead(habit, 1000, Turn::Idle, is_shared)
    }

    /// Polls for as long as it takes, whatever happens, and counts its looks at how many threads want to run.
    struct Stubborn(Cell<u64>);

    impl Habit for Stubborn {
        fn plan(&self, _now: Instant) -> Plan {
            Plan::Poll(Duration::from_secs(3600))
        }
        fn is_full(&self, _now: Instant) -> bool {
            self.0.set(self.0.get() + 1);
            false
        }
        fn learn(&self, _plan: Plan, _end: End, _took: Duration, _now: Instant) {}
        fn learn_from_rest(&self, _took: Duration) {}
    }

    #[test]
    fn a_leader_makes_way_after_each_turn_in_vain_while_others_poll_on_its_core_and_takes_them_for_no_crowd()
    {
        let habit = Stubborn(Cell::new(0));
        let (ways, rests) = lead_on_core(&habit, true);
        // Where this machine itself kept the thread from its core for long, it has rested instead.
        assert_eq!(ways + rests, 999, "{ways} ways, {rests} rests");
        assert!(ways > 500 && habit.0.get() == 0, "{ways} ways, {} looks", habit.0.get());
        let (ways, _) = lead_on_core(&habit, false);
        assert!(ways == 0 && habit.0.get() > 0, "{ways} ways, {} looks", habit.0.get());
    }

    #[test]
    fn a_leader_that_is_to_rest_neither_looks_for_others_on_its_core_nor_makes_way() {
        let resting = Steady { budget: Duration::ZERO, polls: Cell::new(false) };
        assert_eq!(lead_on_core(&resting, true).0, 0);
    }
}
