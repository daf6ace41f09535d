//! What a thread does that waits for its event: it leads, or follows, or sleeps while no thread leads.
//!
//! The thread asks for its [`Stance`], does what that says, and reports what [`Happened`]. On the way it is told what to
//! [learn](Lesson). Its own order of looks and sleeps (`strategy/leader_follower.rs`) is what loses no wake-up.
//!
//! Invariant: one thread at most has a stance that leads, each stance has a way to [`Stance::Done`], and a thread that sleeps has told the
//! thread that works for it, or leads itself.

use super::{Happened, Stance};
use crate::account::Kind;
use crate::payoff::{Choice, Polled};
use crate::strategy::{Outcome, Turn};
use highwire_stdx::{Duration, Instant};

/// Turns of a polling thread between two looks at the clock.
const TURNS_PER_LOOK: u64 = 16;
/// A thread that has its core cannot spend this long on the turns between two looks at the clock. Making way for a thread that it has woken
/// counts: where that takes so long, others want the core as well, and the next thread that waits had better lead.
const GAP_MAX: Duration = Duration::from_micros(200);

/// What a thread learns from a poll or a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lesson {
    /// Polling as it was chosen ended so, after so long.
    Polled(Choice, Polled, Duration),
    /// A sleep ended with an event after so long, its wake-up included.
    Slept(Duration),
}

/// What a thread that polls does for others at a look at the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Courtesy {
    /// It goes on.
    None,
    /// The thread that it has woken must have the core now. If that has another, this is a short call.
    Yield,
    /// It looks whether others poll on its core, and then makes way.
    LookAround,
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finish {
    /// What the caller is told.
    pub outcome: Outcome,
    /// What is counted; `None`: the wait goes on elsewhere.
    pub kind: Option<Kind>,
}

/// The state of a thread that waits.
#[derive(Debug)]
pub struct Waiter {
    stance: Stance,
    choice: Choice,
    deadline: Option<Instant>,
    /// When it began to wait, and when its poll or its rest began.
    begin: Instant,
    since: Instant,
    /// The last look at the clock, and the last work.
    looked: Instant,
    worked: Instant,
    /// Others poll on its core. Threads of other processes that do make way after each turn in vain, and so does this one. They are no crowd.
    is_shared: bool,
    turns: u64,
    polled_ns: u64,
    finish: Finish,
}

impl Waiter {
    /// A thread that begins to wait.
    pub fn new(begin: Instant, deadline: Option<Instant>) -> Waiter {
        Waiter {
            stance: Stance::Arriving,
            choice: Choice::Sleep,
            deadline,
            begin,
            since: begin,
            looked: begin,
            worked: begin,
            is_shared: false,
            turns: 0,
            polled_ns: 0,
            finish: Finish { outcome: Outcome::Over, kind: None },
        }
    }

    /// What the thread does now.
    #[inline]
    pub fn stance(&self) -> Stance {
        self.stance
    }

    /// Takes note of what has happened; what is to be learnt from it.
    pub fn on(&mut self, happened: Happened, now: Instant) -> Option<Lesson> {
        let before = self.stance;
        let Some(next) = before.next(happened) else {
            debug_assert!(false, "{happened:?} while {before:?}");
            return None;
        };
        self.stance = next;
        if next == Stance::Done {
            self.finish = finish(before, happened);
        }
        let lesson = self.lesson(before, happened, now);
        if before.manner().polls.is_some() {
            self.polled_ns += now.saturating_since(self.since).as_nanos();
        }
        match next {
            // A rest goes on after a turn that had no event for a thread.
            Stance::Resting if before != Stance::Serving => self.since = now,
            Stance::Polling | Stance::Trying | Stance::Glancing => {
                (self.looked, self.worked, self.is_shared) = (self.since, self.since, false);
            }
            Stance::Seated | Stance::Choosing => self.since = now,
            _ => {}
        }
        lesson
    }

    /// It leads, and its time on its core counts from `since`.
    pub fn lead(&mut self, since: Instant) {
        self.on(Happened::SeatTaken, since);
    }

    /// It has chosen what to do.
    pub fn choose(&mut self, choice: Choice) {
        self.choice = choice;
        let pays = match choice {
            Choice::Poll(_) => Happened::PollPays,
            Choice::Trial(_) => Happened::TrialPays,
            Choice::Sleep => Happened::SleepPays,
        };
        self.on(pays, self.since);
    }

    /// When it began to wait.
    pub fn begin(&self) -> Instant {
        self.begin
    }

    /// When it looked at the clock last.
    #[inline]
    pub fn looked(&self) -> Instant {
        self.looked
    }

    /// Whether the wait gives up by this time.
    #[inline]
    pub fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// Whether it polls for a while: then it looks around for others.
    #[inline]
    pub fn polls_on(&self) -> bool {
        matches!(self.stance, Stance::Polling | Stance::Trying)
    }

    /// Whether it may leave the seat after a turn that had no event for it.
    #[inline]
    pub fn may_be_relieved(&self) -> bool {
        matches!(self.stance, Stance::Polling | Stance::Glancing)
    }

    /// Others poll on its core, or not.
    #[inline]
    pub fn share(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
    }

    /// Whether it takes other threads that want to run for a crowd.
    #[inline]
    pub fn minds_crowds(&self, turn: Turn, is_own: bool) -> bool {
        let is_busy = if is_own { turn == Turn::Woke } else { turn == Turn::Worked };
        self.polls_on() && !self.is_shared && !is_busy
    }

    /// It has made a turn. True: it looks at the clock now.
    #[inline]
    pub fn on_turn(&mut self, turn: Turn) -> bool {
        self.turns += 1;
        turn.is_work() || self.is_shared || !self.polls_on() || self.turns.is_multiple_of(TURNS_PER_LOOK)
    }

    /// A look at the clock after a turn: what it does for others.
    ///
    /// # Errors
    /// Why it polls no more.
    #[inline]
    pub fn look(&mut self, turn: Turn, now: Instant) -> Result<Courtesy, Happened> {
        if !turn.is_work() && now.saturating_since(self.looked) > GAP_MAX {
            return Err(Happened::Crowded);
        }
        self.looked = now;
        match turn {
            Turn::Woke if self.stance == Stance::Trying => Err(Happened::Other),
            Turn::Woke if self.polls_on() => Ok(Courtesy::Yield),
            Turn::Idle | Turn::Taken if self.polls_on() => Ok(Courtesy::LookAround),
            _ => Ok(Courtesy::None),
        }
    }

    /// It has done that, and it is now so late.
    ///
    /// # Errors
    /// Why it polls no more.
    #[inline]
    pub fn go_on(&mut self, turn: Turn, now: Instant) -> Result<(), Happened> {
        if turn.is_work() {
            self.worked = now;
        }
        let (Choice::Poll(longest_ns) | Choice::Trial(longest_ns)) = self.choice else {
            return Err(if self.is_late(now) { Happened::Late } else { Happened::Vain });
        };
        if self.is_late(now) {
            Err(Happened::Late)
        } else if now.saturating_since(self.worked).as_nanos() >= longest_ns {
            Err(Happened::Vain)
        } else {
            Ok(())
        }
    }

    /// How the wait has ended.
    pub fn finish(&self) -> Finish {
        self.finish
    }

    /// The turns that it has made, and how long it has polled.
    pub fn polled(&self) -> (u64, Duration) {
        (self.turns, Duration::from_nanos(self.polled_ns))
    }

    fn lesson(&self, before: Stance, happened: Happened, now: Instant) -> Option<Lesson> {
        let took = now.saturating_since(self.since);
        let is_event = matches!(happened, Happened::Own | Happened::Other);
        match before {
            Stance::Polling | Stance::Trying => Some(Lesson::Polled(self.choice, polled(happened), took)),
            Stance::Glancing | Stance::Resting | Stance::Serving if is_event => Some(Lesson::Slept(took)),
            // It has slept for all of its wait but a glance.
            Stance::Sleeping if is_event => Some(Lesson::Slept(now.saturating_since(self.begin))),
            _ => None,
        }
    }
}

/// What a poll that ended so says about polling.
fn polled(happened: Happened) -> Polled {
    match happened {
        Happened::Own | Happened::Other | Happened::Relieved => Polled::Work,
        Happened::Vain => Polled::Vain,
        Happened::Crowded => Polled::Crowded,
        _ => Polled::Cut,
    }
}

/// How a wait ends that ends so.
fn finish(before: Stance, happened: Happened) -> Finish {
    let (outcome, kind) = match happened {
        Happened::Late => (Outcome::TimedOut, Some(Kind::InVain)),
        Happened::Signal => (Outcome::Interrupted, Some(Kind::InVain)),
        Happened::Elsewhere => (Outcome::Elsewhere, None),
        _ if before.manner().leads => (Outcome::Over, Some(Kind::Own)),
        _ => (Outcome::Over, Some(Kind::Woken)),
    };
    Finish { outcome, kind }
}
