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
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A thread that has its core cannot spend this long on the turns between two looks at the clock.
const GAP_MAX: Duration = Duration::from_micros(200);
/// A leader that waits again within this time counts as not having been away.
const AWAY_MAX_NS: u64 = 50_000;
/// After this many quick returns in a row, a leader may leave the seat empty.
const QUICK_RETURNS: u64 = 4;

/// Polls for as long as `budget` allows without an event, and rests then: the leader sleeps on the source of
/// work, still for all that wait. Followers sleep at once.
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

/// How a wait went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The event was there at once.
    Ready,
    /// The leader found its own event.
    Own,
    /// A leader found a follower's event.
    Followed,
    /// The leader polled in vain, and slept.
    Spent,
    /// Another thread had the leader's core for a while: there are more threads than cores.
    Crowded,
    /// The deadline passed.
    Late,
}

impl WakeStrategy for LeaderFollower {
    fn wait(&self, station: &Station, wait: &Wait<'_>) -> Outcome {
        lead_or_follow(station, wait, self.budget).0
    }
}

/// A leader's polling so far.
struct Polled {
    begin: Instant,
    turns: u64,
}

/// Waits as leader or follower; returns whether the event came, and how.
pub(super) fn lead_or_follow(station: &Station, wait: &Wait<'_>, budget: Duration) -> (Outcome, End) {
    if wait.is_ready() {
        return (Outcome::Over, End::Ready);
    }
    let name = std::ptr::from_ref(wait.word).addr() as u64;
    let mut polled = Polled { begin: world::now(), turns: 0 };
    station.returns.on_wait(name, station.nanos(polled.begin));
    loop {
        let posts = wait.word.posts();
        if let Some(leading) = station.seat.try_take() {
            let (end, now) = lead(&leading, wait, budget, &mut polled);
            let spent = now - polled.begin;
            match end {
                End::Own => {
                    wait.account.note(Kind::Own, polled.turns, spent);
                    if station.returns.on_leave(name, station.nanos(now)) {
                        leading.pass_on();
                    }
                    return (Outcome::Over, End::Own);
                }
                End::Late => {
                    leading.pass_on();
                    wait.account.note(Kind::InVain, polled.turns, spent);
                    return (Outcome::TimedOut, End::Late);
                }
                end => {
                    station.note_sleep_here();
                    let Some(outcome) = rest(&leading, wait, &mut polled.turns) else {
                        drop(leading);
                        return (wait.sleep_until_over(polled.turns, spent), end);
                    };
                    let is_over = outcome == Outcome::Over;
                    wait.account.note(if is_over { Kind::Own } else { Kind::InVain }, polled.turns, spent);
                    if !is_over || station.returns.on_leave(name, station.nanos(world::now())) {
                        leading.pass_on();
                    }
                    return (outcome, end);
                }
            }
        }
        if (wait.is_over)() {
            wait.account.note(Kind::Woken, polled.turns, Duration::ZERO);
            return (Outcome::Over, End::Followed);
        }
        if wait.place.is_some_and(|place| !station.seat.follow(place)) {
            continue;
        }
        wait.work.leave_to_leader();
        wait.account.note_sleep();
        if let Some(outcome) = wait.end_of(wait.word.sleep(posts, wait.deadline)) {
            let is_over = outcome == Outcome::Over;
            wait.account.note(if is_over { Kind::Woken } else { Kind::InVain }, polled.turns, Duration::ZERO);
            return (outcome, if is_over { End::Followed } else { End::Late });
        }
    }
}

/// Sleeps until there is work, does it, and sleeps again, until the event is there; `None`: a thread cannot
/// sleep on this work.
fn rest(leading: &Leading<'_>, wait: &Wait<'_>, turns: &mut u64) -> Option<Outcome> {
    loop {
        let posts = wait.word.posts();
        if (wait.is_over)() {
            return Some(Outcome::Over);
        }
        wait.account.note_sleep();
        let slept = wait.work.rest(wait.word, posts, wait.deadline)?;
        let is_heartbeat = slept == Slept::TimedOut && !wait.is_late(world::now());
        match wait.end_of(slept) {
            Some(Outcome::Over) if is_heartbeat => {
                wait.account.note_rescue();
                return Some(Outcome::Over);
            }
            Some(outcome) if !is_heartbeat => return Some(outcome),
            _ => {}
        }
        leading.beat();
        *turns += 1;
        // A thread that this turn wakes runs as soon as this one sleeps.
        if wait.work.turn() == Turn::Taken {
            // The work that woke this thread is still there, and the thread that runs it may need this core.
            sys::yield_core();
        }
    }
}

/// Polls until the event is there or there is a reason to stop; returns also when that was.
fn lead(leading: &Leading<'_>, wait: &Wait<'_>, budget: Duration, polled: &mut Polled) -> (End, Instant) {
    let (mut looked, mut worked) = (polled.begin, polled.begin);
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
                return (End::Own, world::now());
            }
        }
        if turn == Turn::Woke {
            // The thread that was woken must have the core now. If it has another, this is a short call.
            sys::yield_core();
        }
        if turn.is_work() || budget.is_zero() || polled.turns.is_multiple_of(TURNS_PER_CLOCK) {
            leading.beat();
            let now = world::now();
            if turn.is_work() {
                worked = now;
            } else if now - looked > GAP_MAX {
                return (End::Crowded, now);
            }
            looked = now;
            if wait.is_late(now) {
                return (End::Late, now);
            }
            if now - worked >= budget {
                return (End::Spent, now);
            }
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
}
