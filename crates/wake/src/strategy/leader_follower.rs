//! Leader and followers: the thread that blocks polls itself, for all threads that wait with it.
//!
//! Its own event then costs what polling costs; another thread's event one switch. When the leader has its
//! event, it goes. It calls another thread to the seat only if it is not about to come back, because calling
//! costs more than a round trip.

use super::{Outcome, Station, Wait, WakeStrategy, nanos};
use crate::duty::{Courtesy, Happened, Lesson, Stance, Told, Waiter};
use crate::payoff::{Choice, Polled};
use crate::seat::Leading;
use crate::strategy::Turn;
use crate::sync::fence;
use crate::sys;
use crate::word::Slept;
use highwire_stdx::Instant;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// How a leader chooses, and what it learns. A leader serves all that wait, so what counts is how soon events come for any of them, and
/// not how long its own wait lasts: with hundreds of threads a wait is as long as hundreds of events.
pub(super) trait Habit {
    /// What to do now.
    fn choose(&self, now: Instant) -> Choice;

    /// The leader has no work, and no thread that it has woken wants its core: a moment to look around. True if it should not poll.
    fn is_full(&self, now: Instant) -> bool {
        let _ = now;
        false
    }

    /// Whether the leader's time on its core counts from when it began to wait, and not from when it got the seat.
    fn counts_from_arrival(&self) -> bool {
        false
    }

    /// What came of a poll or a sleep.
    fn learn(&self, lesson: Lesson, now: Instant);
}

/// Polls for the budget, rests, and polls again once an event came within the budget.
struct Steady {
    budget_ns: u64,
    polls: Cell<bool>,
}

impl Habit for Steady {
    fn choose(&self, _now: Instant) -> Choice {
        if self.polls.get() { Choice::Poll(self.budget_ns) } else { Choice::Sleep }
    }

    /// A thread that is called to the seat after a long wait makes a few turns and leaves it: the next one that waits is awake, and may be the
    /// only one that has events.
    fn counts_from_arrival(&self) -> bool {
        true
    }

    fn learn(&self, lesson: Lesson, _now: Instant) {
        self.polls.set(match lesson {
            Lesson::Polled(_, polled, _) => !matches!(polled, Polled::Vain | Polled::Crowded),
            Lesson::Slept(took) => took.as_nanos() < self.budget_ns,
        });
    }
}

impl WakeStrategy for LeaderFollower {
    fn wait(&self, station: &Station, wait: &Wait<'_>) -> Outcome {
        lead_or_follow(station, wait, &Steady { budget_ns: nanos(self.budget), polls: Cell::new(true) })
    }
}

/// Waits as leader or follower.
pub(super) fn lead_or_follow(station: &Station, wait: &Wait<'_>, habit: &dyn Habit) -> Outcome {
    station.absence.come_back(wait.account);
    if wait.is_ready() {
        station.absence.go(wait.account);
        return Outcome::Over;
    }
    let name = std::ptr::from_ref(wait.word).addr() as u64;
    let _present = station.presence.enter();
    let begin = station.now();
    station.returns.on_wait(name, begin.as_nanos());
    let waiter = Waiter::new(begin, wait.deadline.map(|deadline| station.at(deadline)));
    let mut thread = Thread { station, wait, habit, waiter, leading: None, posts: 0, now: begin };
    loop {
        match thread.waiter.stance() {
            Stance::Arriving => thread.arrive(),
            Stance::Choosing if thread.is_relieved(true, thread.now) => {
                thread.on(Happened::Relieved, thread.now)
            }
            Stance::Seated | Stance::Choosing => thread.waiter.choose(habit.choose(thread.now)),
            Stance::Polling | Stance::Trying | Stance::Glancing => thread.poll(),
            Stance::Resting => thread.rest(),
            Stance::Serving => thread.serve(),
            Stance::Deferring => thread.defer(),
            Stance::Following => thread.sleep_on_word(),
            Stance::Sleeping => thread.sleep(),
            Stance::Done => return thread.leave(name),
        }
    }
}

/// A thread that waits: it does what its [`Waiter`] says, and reports.
struct Thread<'a> {
    station: &'a Station,
    wait: &'a Wait<'a>,
    habit: &'a dyn Habit,
    waiter: Waiter,
    /// The seat, while it leads.
    leading: Option<Leading<'a>>,
    /// The posts of its word, read before it last looked for its event.
    posts: u32,
    /// The last time that it knows.
    now: Instant,
}

impl Thread<'_> {
    fn on(&mut self, happened: Happened, now: Instant) {
        self.now = now;
        if let Some(lesson) = self.waiter.on(happened, now) {
            self.habit.learn(lesson, now);
        }
        let stance = self.waiter.stance();
        if stance == Stance::Sleeping && self.leading.is_some() {
            self.wait.place.inspect(|&place| self.station.seat.withdraw(place));
            self.leading = None;
        }
    }

    /// Tells the thread that works while this one sleeps.
    fn tell(&self) {
        match self.waiter.stance().manner().tells {
            Some(Told::Leader) => self.wait.work.leave_to_leader(),
            Some(Told::Background) => self.wait.work.hand_over(),
            Some(Told::Relying) => self.wait.work.leave_seat(),
            None => {}
        }
    }

    fn is_over(&self) -> bool {
        (self.wait.is_over)()
    }

    fn beat(&self) {
        if let Some(leading) = &self.leading {
            leading.beat();
        }
    }

    /// The order matters: it reads the posts, tries the seat, looks for its event, enters its name, and looks at the seat again.
    fn arrive(&mut self) {
        self.posts = self.wait.word.posts();
        if let Some(leading) = self.station.seat.try_take() {
            self.leading = Some(leading);
            let now = self.station.now();
            self.now = if self.habit.counts_from_arrival() { self.waiter.begin() } else { now };
            self.station.absence.note_taken(now);
            self.waiter.lead(self.now);
        } else if self.is_over() {
            self.on(Happened::Own, self.now);
        } else if self.wait.place.is_some_and(|place| !self.station.seat.follow(place)) {
            self.on(Happened::SeatLeft, self.now);
        } else {
            self.on(Happened::Led, self.now);
        }
    }

    /// Whether the seat is better left to threads that are away: this thread's turns only keep them from their core.
    fn is_relieved(&self, has_woken: bool, now: Instant) -> bool {
        !self.wait.work.sleeps_elsewhere() && self.station.absence.may_leave_seat(has_woken, now)
    }

    /// Whether it goes with its event and needs to call nobody to the seat.
    fn is_spared(&self) -> bool {
        let is_spared = !self.wait.work.sleeps_elsewhere() && self.station.absence.is_soon_back(self.now);
        if is_spared {
            self.station.absence.note_left(self.now);
        }
        is_spared
    }

    /// The order matters: it leaves the seat, reads the posts, looks for its event, enters its name, and looks whether a thread leads or is still
    /// away.
    fn defer(&mut self) {
        let Station { seat, absence, .. } = self.station;
        if self.leading.take().is_some() {
            absence.note_left(self.station.now());
        }
        self.posts = self.wait.word.posts();
        let is_led = self.wait.place.is_some_and(|place| seat.follow(place));
        fence(Ordering::SeqCst);
        if self.is_over() {
            self.on(Happened::Own, self.now);
        } else if is_led {
            self.on(Happened::Led, self.now);
        } else if absence.is_any_here() {
            self.sleep_on_word();
        } else {
            self.on(Happened::SeatLeft, self.now);
        }
    }

    /// Looks again before each sleep: no leader does it for this thread.
    fn sleep(&mut self) {
        self.posts = self.wait.word.posts();
        if self.is_over() {
            return self.on(Happened::Own, self.station.now());
        }
        self.sleep_on_word();
    }

    fn sleep_on_word(&mut self) {
        self.tell();
        self.wait.account.note_sleep();
        self.wait.account.errand().note_sleep_here();
        let happened = if self.wait.work.sleeps_elsewhere() {
            Happened::Elsewhere
        } else {
            self.after(self.wait.word.sleep(self.posts, self.wait.deadline))
        };
        let is_end = self.waiter.stance() == Stance::Sleeping && happened == Happened::Own;
        let now = if is_end { self.station.now() } else { self.now };
        self.on(happened, now);
    }

    /// Whether it is to look at the seat before its event: the leader that goes may have called it, and then calls no other thread.
    fn is_called(&self) -> bool {
        let is_entered = self.wait.place.is_none_or(|place| self.station.seat.is_entered(place));
        !self.waiter.stance().has_entered() || !is_entered
    }

    /// What a sleep's end means.
    fn after(&self, slept: Slept) -> Happened {
        match slept {
            Slept::Posted if !self.is_called() && self.is_over() => Happened::Own,
            Slept::Posted => Happened::Woken,
            _ if self.is_over() => Happened::Own,
            Slept::TimedOut => Happened::Late,
            Slept::Interrupted => Happened::Signal,
        }
    }

    /// Sleeps on the work, unless its event is there. The order matters: it reads the posts, looks for its event, and sleeps unless there
    /// was a post since.
    fn rest(&mut self) {
        let Wait { word, account, work, deadline, .. } = *self.wait;
        let posts = word.posts();
        if self.is_over() {
            return self.on(Happened::Own, self.station.now());
        }
        self.station.note_sleep_here();
        account.note_sleep();
        let Some(slept) = work.rest(word, posts, deadline) else {
            return self.on(Happened::CannotRest, self.now);
        };
        let is_heartbeat = slept == Slept::TimedOut && !self.waiter.is_late(self.station.now());
        match self.after(slept) {
            Happened::Late if is_heartbeat => self.on(Happened::Woken, self.now),
            Happened::Woken => self.on(Happened::Woken, self.now),
            happened => {
                if happened == Happened::Own && is_heartbeat {
                    account.note_rescue();
                }
                self.on(happened, self.station.now());
            }
        }
    }

    fn serve(&mut self) {
        self.beat();
        // Counted; the clock can wait.
        self.waiter.on_turn(Turn::Idle);
        match self.wait.work.turn() {
            // A thread that this turn has woken runs as soon as this one sleeps.
            Turn::Woke => {
                let happened = if self.is_over() { Happened::Own } else { Happened::Other };
                self.on(happened, self.station.now());
            }
            // The work that woke this thread is still there, and the thread that runs it may need this core.
            Turn::Taken => {
                sys::yield_core();
                self.on(Happened::Nothing, self.now);
            }
            Turn::Idle | Turn::Worked => self.on(Happened::Nothing, self.now),
        }
    }

    /// Polls until the event is there or there is a reason to stop.
    fn poll(&mut self) {
        let (happened, now) = self.poll_on();
        self.on(happened, now);
    }

    fn poll_on(&mut self) -> (Happened, Instant) {
        let Wait { word, work, is_over, .. } = *self.wait;
        if self.waiter.polls_on() {
            self.waiter.share(work.shares_core());
        }
        // Read before the look, which then sees the event of a post that came before this thread had the seat.
        let mut posts = word.posts();
        if is_over() {
            return (Happened::Own, self.waiter.looked());
        }
        let mut is_first = true;
        loop {
            let turn = work.turn();
            let is_look_due = self.waiter.on_turn(turn)
                || std::mem::take(&mut is_first) && self.station.absence.is_any_here();
            let now_posts = word.posts();
            if now_posts != posts {
                posts = now_posts;
                if is_over() {
                    let now = self.station.now();
                    if self.waiter.minds_crowds(turn, true) {
                        // Where every poll is short, there is no idle moment. The next choice goes by what this look finds.
                        self.habit.is_full(now);
                    }
                    return (Happened::Own, now);
                }
            }
            if is_look_due {
                self.beat();
                let now = self.station.now();
                if let Err(end) = self.look(turn, now) {
                    return end;
                }
            }
        }
    }

    /// A look at the clock: it lets others run that want to, and finds out whether to go on.
    fn look(&mut self, turn: Turn, mut now: Instant) -> Result<(), (Happened, Instant)> {
        let courtesy = self.waiter.look(turn, now).map_err(|end| (end, now))?;
        if matches!(turn, Turn::Woke | Turn::Idle)
            && self.waiter.may_be_relieved()
            && self.is_relieved(turn == Turn::Woke, now)
        {
            return Err((Happened::Relieved, now));
        }
        match courtesy {
            Courtesy::None => {}
            Courtesy::Yield => {
                sys::yield_core();
                now = self.station.now();
            }
            Courtesy::LookAround => {
                let is_shared = self.wait.work.shares_core();
                self.waiter.share(is_shared);
                if is_shared {
                    self.wait.work.make_way();
                    // If another kind of thread had the core for long, the next look at the clock finds out.
                    now = self.station.now();
                }
            }
        }
        self.waiter.go_on(turn, now).map_err(|end| (end, now))?;
        if self.waiter.minds_crowds(turn, false) && self.habit.is_full(now) {
            return Err((Happened::Full, now));
        }
        Ok(())
    }

    /// The wait is over. A leader calls a follower, unless it is about to be back.
    fn leave(mut self, name: u64) -> Outcome {
        let (finish, (turns, polled)) = (self.waiter.finish(), self.waiter.polled());
        if let Some(kind) = finish.kind {
            self.wait.account.note(kind, turns, polled.into());
        }
        let is_own = finish.outcome == Outcome::Over;
        if is_own {
            self.station.absence.go(self.wait.account);
        }
        if let Some(leading) = self.leading.take() {
            let calls =
                !is_own || self.station.returns.on_leave(name, self.now.as_nanos()) && !self.is_spared();
            if calls {
                leading.pass_on();
            }
        }
        finish.outcome
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
    use std::time::Instant as SystemInstant;

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
        fn rest(&self, _word: &WakeWord, _seen: u32, _deadline: Option<SystemInstant>) -> Option<Slept> {
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

    /// However slow this machine is, it does not poll for so long.
    const HOUR_NS: u64 = 3_600_000_000_000;

    /// Polls, and always learns that more threads want to run than there are cores.
    struct Crowded(Cell<u64>);

    impl Habit for Crowded {
        fn choose(&self, _now: Instant) -> Choice {
            Choice::Poll(HOUR_NS)
        }
        fn is_full(&self, _now: Instant) -> bool {
            self.0.set(self.0.get() + 1);
            true
        }
        fn learn(&self, lesson: Lesson, _now: Instant) {
            if let Lesson::Polled(_, polled, _) = lesson {
                assert!(matches!(polled, Polled::Cut | Polled::Work), "{polled:?}");
            }
        }
    }

    #[test]
    fn a_leader_that_always_finds_events_for_others_looks_around_as_well() {
        let crowded = Crowded(Cell::new(0));
        // Each poll is one turn, and then a rest with another.
        assert_eq!(lead_through(&crowded, 1000), 500);
        assert_eq!(crowded.0.get(), 500);
    }

    #[test]
    fn a_leader_polls_again_in_the_same_wait_once_events_for_others_come_soon() {
        // However slow this machine is, events come sooner than that.
        let patient = Steady { budget_ns: HOUR_NS, polls: Cell::new(false) };
        assert_eq!(lead_through(&patient, 1000), 1, "one rest, and then it polls");
        let hasty = Steady { budget_ns: 0, polls: Cell::new(false) };
        assert_eq!(lead_through(&hasty, 1000), 999, "no event comes as soon as that");
    }

    /// The same of a leader whose turns are in vain, on a core that others poll on as well while `is_shared` says so.
    fn lead_on_core(habit: &dyn Habit, is_shared: bool) -> (u64, u64) {
        lead(habit, 1000, Turn::Idle, is_shared)
    }

    /// Polls for as long as it takes, whatever happens, and counts its looks at how many threads want to run.
    struct Stubborn(Cell<u64>);

    impl Habit for Stubborn {
        fn choose(&self, _now: Instant) -> Choice {
            Choice::Poll(HOUR_NS)
        }
        fn is_full(&self, _now: Instant) -> bool {
            self.0.set(self.0.get() + 1);
            false
        }
        fn learn(&self, _lesson: Lesson, _now: Instant) {}
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
        let resting = Steady { budget_ns: 0, polls: Cell::new(false) };
        assert_eq!(lead_on_core(&resting, true).0, 0);
    }
}
