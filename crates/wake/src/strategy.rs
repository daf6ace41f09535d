//! The strategies: one trait, and the state that threads waiting for one source of events share.

mod absence;
mod adaptive;
mod choice;
mod dispatcher;
mod leader_follower;
mod presence;
mod simple;

pub(crate) use absence::Errand;
pub use adaptive::Adaptive;
pub use choice::{Mode, Strategy};
pub use dispatcher::Dispatcher;
pub use leader_follower::LeaderFollower;
pub use simple::{Affine, BusyPoll, Event};

use crate::account::{Account, Kind};
use crate::rest::Rest;
use crate::seat::Seat;
use crate::sys::{self, Core};
use crate::word::{Slept, WakeWord};
use crate::world;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Turns of a polling thread between two looks at the clock.
const TURNS_PER_CLOCK: u64 = 16;

/// How a thread waits.
pub trait WakeStrategy: fmt::Debug + Send + Sync {
    /// Returns when the event is there, the deadline has passed, or a signal has ended a sleep.
    fn wait(&self, station: &Station, wait: &Wait<'_>) -> Outcome;
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The event is there.
    Over,
    /// The deadline passed.
    TimedOut,
    /// A signal was handled during a sleep, and the event is not there.
    Interrupted,
    /// The thread would sleep on its word now, and [sleeps elsewhere](Work::sleeps_elsewhere) instead.
    Elsewhere,
}

/// A thread's wait for an event.
pub struct Wait<'a> {
    /// The word on which it sleeps. The thread that finds its event posts here, after making it visible.
    pub word: &'a WakeWord,
    /// The word's place at the seat, if it has one.
    pub place: Option<usize>,
    /// The channel's account.
    pub account: &'a Account,
    /// Looks whether the event is there; called again after every post to the word. Where events come only if
    /// asked for, this asks and then looks.
    pub is_over: &'a dyn Fn() -> bool,
    /// The source of events.
    pub work: &'a dyn Work,
    /// When the wait gives up.
    pub deadline: Option<Instant>,
}

/// A source of events: an engine that any thread may run for a turn.
pub trait Work {
    /// Runs it once. Events that it finds are made visible, and their words posted to, before this returns.
    fn turn(&self) -> Turn;

    /// No waiting thread polls any more: the background thread must run the work.
    fn hand_over(&self);

    /// Whether a thread that does not lead ends its wait and sleeps on something else than its word, such as a descriptor: the word need not be
    /// posted to for it.
    fn sleeps_elsewhere(&self) -> bool {
        false
    }

    /// This thread is about to sleep while another leads: work that it has begun must be finished in time
    /// even if the leader rests.
    fn leave_to_leader(&self) {}

    /// This thread has left the leader's seat to threads that are away, and is about to sleep. A background thread that relies on a leader must
    /// be told.
    fn leave_seat(&self) {}

    /// Whether another thread polls on this thread's core, for work of its own; also lets that one know that this one polls. Called
    /// often, by a thread that polls in vain.
    fn shares_core(&self) -> bool {
        false
    }

    /// Lets the threads with which this one shares its core run first.
    fn make_way(&self) {
        sys::yield_core();
    }

    /// Sleeps until there is work, or `word` has more posts than `seen`, or it is `deadline`; `TimedOut`
    /// before that is a heartbeat, in case that no thread has posted. `None`, at once: a thread cannot sleep
    /// on this work, so it must hand it over. Only the thread that leads calls it.
    fn rest(&self, word: &WakeWord, seen: u32, deadline: Option<Instant>) -> Option<Slept> {
        let _ = (word, seen, deadline);
        None
    }
}

/// The result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// There was no work.
    Idle,
    /// There was work.
    Worked,
    /// There was work for a thread that slept: it has been woken, and may need this core.
    Woke,
    /// Another thread runs the work just now.
    Taken,
}

/// The state that threads waiting for one source of events share.
#[derive(Debug)]
pub struct Station {
    /// The seat of the thread that polls for all.
    pub seat: Seat,
    /// Where that thread sleeps when it has polled long enough.
    pub rest: Rest,
    adaptive: adaptive::Experience,
    returns: leader_follower::Returns,
    presence: presence::Presence,
    absence: absence::Absence,
    /// The core on which a thread last went to sleep, plus one.
    slept_on: AtomicU64,
    /// The instant from which the station's times count.
    epoch: Instant,
}

impl Default for Station {
    fn default() -> Station {
        Station {
            seat: Seat::default(),
            rest: Rest::default(),
            adaptive: adaptive::Experience::default(),
            returns: leader_follower::Returns::default(),
            presence: presence::Presence::default(),
            absence: absence::Absence::default(),
            slept_on: AtomicU64::new(0),
            epoch: world::now(),
        }
    }
}

impl Station {
    /// A station where no thread waits yet.
    pub fn new() -> Station {
        Station::default()
    }

    /// The channel of this account is closed.
    pub fn note_closed(&self, account: &Account) {
        self.absence.come_back(account);
    }

    /// A post to the word of this account has woken a thread: it is away from now on.
    pub fn note_woken(&self, account: &Account) {
        self.absence.note_woken(account);
    }

    /// The core on which a thread last went to sleep.
    pub fn slept_on(&self) -> Option<Core> {
        let stored = self.slept_on.load(Ordering::Relaxed);
        Core::try_from(stored.checked_sub(1)?).ok()
    }

    /// A time of the system as state machines count it.
    fn at(&self, time: Instant) -> highwire_stdx::Instant {
        highwire_stdx::Instant::from_nanos(nanos(time.saturating_duration_since(self.epoch)))
    }

    fn now(&self) -> highwire_stdx::Instant {
        self.at(world::now())
    }

    fn note_sleep_here(&self) {
        let here = u64::from(sys::current_core()) + 1;
        if self.slept_on.load(Ordering::Relaxed) != here {
            self.slept_on.store(here, Ordering::Relaxed);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Turn {
    /// Whether there was any work.
    #[inline]
    pub fn is_work(self) -> bool {
        matches!(self, Turn::Worked | Turn::Woke)
    }
}

impl Wait<'_> {
    /// Whether the event was there before the wait began.
    fn is_ready(&self) -> bool {
        let is_over = (self.is_over)();
        if is_over {
            self.account.note(Kind::Ready, 0, Duration::ZERO);
        }
        is_over
    }

    fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// Looks, then sleeps until a post, over and over, until the event is there. `leave` leaves the work to another thread.
    fn sleep_until_over(&self, leave: impl Fn()) -> Outcome {
        let outcome = loop {
            let posts = self.word.posts();
            if (self.is_over)() {
                break Outcome::Over;
            }
            leave();
            self.account.note_sleep();
            if self.work.sleeps_elsewhere() {
                return Outcome::Elsewhere;
            }
            if let Some(end) = self.end_of(self.word.sleep(posts, self.deadline)) {
                break end;
            }
        };
        self.account.note(
            if outcome == Outcome::Over { Kind::Woken } else { Kind::InVain },
            0,
            Duration::ZERO,
        );
        outcome
    }

    /// The wait's outcome after a sleep, if the sleep ends the wait.
    fn end_of(&self, slept: Slept) -> Option<Outcome> {
        let otherwise = match slept {
            Slept::Posted => return None,
            Slept::TimedOut => Outcome::TimedOut,
            Slept::Interrupted => Outcome::Interrupted,
        };
        Some(if (self.is_over)() { Outcome::Over } else { otherwise })
    }
}

impl fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait")
            .field("word", self.word)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// A source whose work other threads do.
    struct Nothing;

    impl Work for Nothing {
        fn turn(&self) -> Turn {
            Turn::Idle
        }
        fn hand_over(&self) {}
    }

    #[test]
    fn every_strategy_sees_every_event_that_another_thread_posts() {
        const EVENTS: u64 = 3000;
        for strategy in Strategy::ALL {
            let (station, word, account) = (Station::new(), WakeWord::default(), Account::default());
            let (posted, taken) = (AtomicU64::new(0), AtomicU64::new(0));
            let strategy = strategy.make();
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    for event in 1..=EVENTS {
                        posted.store(event, Ordering::Release);
                        word.post();
                        while taken.load(Ordering::Acquire) < event {
                            std::thread::yield_now();
                        }
                    }
                });
                for event in 1..=EVENTS {
                    let wait = Wait {
                        word: &word,
                        place: None,
                        account: &account,
                        is_over: &|| posted.load(Ordering::Acquire) >= event,
                        work: &Nothing,
                        // Far longer than any wait takes: a lost event ends the test and not the patience of
                        // its reader.
                        deadline: Some(Instant::now() + Duration::from_secs(60)),
                    };
                    let outcome = strategy.wait(&station, &wait);
                    taken.store(event, Ordering::Release);
                    assert_eq!(outcome, Outcome::Over, "{strategy:?}, event {event}");
                }
            });
        }
    }
}
