//! Threads that are away with an event, and will soon wait again: a leader on their core leaves the seat to them and sleeps.
//!
//! Otherwise each request of a server with a thread for each connection costs two switches: from the leader to the thread that it has woken,
//! and back. The thread that comes back finds the seat free, makes a turn, and leaves the seat in the same way. The last one polls.
//!
//! Why the seat does not stay empty with no thread away: a thread that comes back counts itself and then tries the seat; a leader leaves the
//! seat and then looks at the count. Both have a full fence between the two steps. A thread that stays away for long is another matter:
//! the background thread then works for all, and the seat is left to others more seldom.

use crate::account::Account;
use crate::payoff::{Pause, Restraint};
use crate::sync::fence;
use crate::sys;
use crate::world::may_switch;
use highwire_stdx::{Duration, Instant};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A thread that is back within this time was worth waiting for.
const AWAY_MAX: Duration = Duration::from_micros(100);
/// How long the seat is left to nobody after a thread has been away for longer: the first time, and at most.
const PAUSE_NS: u64 = 1_000_000;
const PAUSE_MAX_NS: u64 = 256_000_000;
/// A leader that goes calls nobody to the seat once threads that were away have been back so often within that time.
const SOON_BACK: u32 = 4;
/// Cores that are told apart.
const CORES: usize = 64;

/// The threads of a station that are away with an event.
#[derive(Debug)]
pub(crate) struct Absence {
    /// By core: how many, in the lower half; in the upper, how often the count was begun anew, plus one.
    away: Box<[AtomicU64]>,
    /// When the seat was left to them; zero if a thread leads.
    left_ns: AtomicU64,
    /// How often in a row they were soon back, and whether it pays to leave the seat to them.
    soon_back: AtomicU32,
    pays: Restraint,
    /// No leader leaves the seat to them for a while.
    pause: Pause,
}

/// What a station knows of the thread that waits at a channel.
#[derive(Debug, Default)]
pub(crate) struct Errand {
    /// It is away with an event: where, plus one, in the lower half, and in which count. Zero if it is not.
    mark: AtomicU64,
    /// The core on which it went to sleep. There it will probably wake.
    core: AtomicU32,
}

const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

const fn whole(upper: u32, lower: u32) -> u64 {
    (upper as u64) << 32 | lower as u64
}

fn this_core() -> u32 {
    sys::current_core() as u32 % CORES as u32
}

impl Default for Absence {
    fn default() -> Absence {
        let away = (0..CORES).map(|_| AtomicU64::new(whole(1, 0))).collect();
        let (left_ns, soon_back) = (AtomicU64::new(0), AtomicU32::new(0));
        Absence { away, left_ns, soon_back, pays: Restraint::default(), pause: Pause::default() }
    }
}

impl Errand {
    /// The thread goes to sleep here.
    pub(crate) fn note_sleep_here(&self) {
        self.core.store(this_core(), Ordering::Relaxed);
    }
}

impl Absence {
    /// A thread that waits there has its event, and goes.
    pub(crate) fn go(&self, account: &Account) {
        self.go_on(account.errand(), this_core());
    }

    /// A thread that sleeps there was woken for its event.
    pub(crate) fn note_woken(&self, account: &Account) {
        let errand = account.errand();
        self.go_on(errand, errand.core.load(Ordering::Relaxed));
    }

    fn go_on(&self, errand: &Errand, core: u32) {
        let (count, _) = halves(self.away[core as usize].load(Ordering::Relaxed));
        let mark = &errand.mark;
        if mark.load(Ordering::Relaxed) == 0
            && mark.compare_exchange(0, whole(count, core + 1), Ordering::SeqCst, Ordering::Relaxed).is_ok()
        {
            self.change(core, count, |away| away.checked_add(1));
        }
    }

    /// A thread waits there again.
    pub(crate) fn come_back(&self, account: &Account) {
        let mark = &account.errand().mark;
        if mark.load(Ordering::Relaxed) != 0 {
            let (count, core) = halves(mark.swap(0, Ordering::SeqCst));
            if core > 0 {
                self.change(core - 1, count, |away| away.checked_sub(1));
            }
            // Store of the count, then load of the seat: see above.
            fence(Ordering::SeqCst);
            may_switch();
        }
    }

    fn change(&self, core: u32, of: u32, change: impl Fn(u32) -> Option<u32>) {
        let changed = |word| {
            let (count, away) = halves(word);
            let away = if count == of { change(away) } else { None };
            away.map(|away| whole(count, away))
        };
        // Of a count that is over, nothing is left to change.
        let _ = self.away[core as usize].fetch_update(Ordering::SeqCst, Ordering::Relaxed, changed);
    }

    /// Whether a thread is away on this core. To be called after a full fence that follows what the caller has left.
    pub(crate) fn is_any_here(&self) -> bool {
        halves(self.away[this_core() as usize].load(Ordering::SeqCst)).1 > 0
    }

    /// Whether the leader, which has just woken a thread or not, leaves the seat to threads that are away on its core.
    pub(crate) fn may_leave_seat(&self, has_woken: bool, now: Instant) -> bool {
        self.is_any_here()
            && !self.pause.is_on(now.as_nanos())
            && if has_woken { self.pays.may_try() } else { self.pays.is_free() }
    }

    /// Whether a leader that goes with its own event needs to call nobody to the seat.
    pub(crate) fn is_soon_back(&self, now: Instant) -> bool {
        self.soon_back.load(Ordering::Relaxed) >= SOON_BACK && self.may_leave_seat(false, now)
    }

    /// The seat is left to them.
    pub(crate) fn note_left(&self, now: Instant) {
        self.left_ns.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    /// A thread has taken the seat.
    pub(crate) fn note_taken(&self, now: Instant) {
        let left = self.left_ns.load(Ordering::Relaxed);
        if left == 0 {
            return;
        }
        self.left_ns.store(0, Ordering::Relaxed);
        if now.saturating_since(Instant::from_nanos(left)) <= AWAY_MAX {
            self.soon_back.store(self.soon_back.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
            self.pays.on_success();
        } else {
            self.soon_back.store(0, Ordering::Relaxed);
            self.pays.on_failure();
            self.pause.begin(PAUSE_NS, PAUSE_MAX_NS, now.as_nanos());
            // Some may never come back.
            let anew = |word| Some(whole(halves(word).0.wrapping_add(1).max(1), 0));
            for away in &self.away {
                let _ = away.fetch_update(Ordering::SeqCst, Ordering::Relaxed, anew);
            }
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::strategy::{Outcome, Station, Strategy, Turn, Wait, Work};
    use crate::word::WakeWord;
    use std::cell::Cell;

    /// This thread stays on its core, and knows which.
    fn stay() -> u32 {
        sys::pin(&[sys::current_core()]).expect("it may stay where it is");
        this_core()
    }

    fn asleep_on(core: u32) -> Account {
        let account = Account::default();
        account.errand().core.store(core, Ordering::Relaxed);
        account
    }

    #[test]
    fn a_thread_counts_on_the_core_where_it_slept_until_it_waits_again() {
        let (here, absence) = (stay(), Absence::default());
        let (near, far) = (asleep_on(here), asleep_on((here + 1) % CORES as u32));
        absence.note_woken(&far);
        assert!(!absence.is_any_here());
        absence.note_woken(&near);
        // It has its event, and goes: it was counted when it was woken.
        absence.go(&near);
        assert!(absence.is_any_here());
        absence.come_back(&near);
        assert!(!absence.is_any_here());
        absence.come_back(&near);
        absence.go(&near);
        assert!(absence.is_any_here(), "one that was not away takes nothing from the count");
    }

    #[test]
    fn threads_that_stay_away_are_left_the_seat_more_seldom_and_no_longer_count() {
        let (here, absence) = (stay(), Absence::default());
        let (gone, quick) = (asleep_on(here), asleep_on(here));
        let mut now = Instant::from_nanos(1);
        for skipped in [1, 3, 7] {
            absence.note_woken(&gone);
            let later = Duration::from_millis(1_000);
            now += later;
            assert!(absence.may_leave_seat(true, now));
            absence.note_left(now);
            now += AWAY_MAX + Duration::from_nanos(1);
            absence.note_taken(now);
            assert!(!absence.is_any_here(), "it may never come back");
            absence.come_back(&gone);
            absence.note_woken(&quick);
            assert!(!absence.may_leave_seat(true, now), "a pause");
            now += later;
            for turn in 0..skipped {
                assert!(!absence.may_leave_seat(false, now) && !absence.may_leave_seat(true, now), "{turn}");
            }
            absence.come_back(&quick);
        }
    }

    #[test]
    fn a_leader_that_goes_calls_nobody_once_such_threads_were_soon_back_four_times() {
        let (here, absence, now) = (stay(), Absence::default(), Instant::from_nanos(1));
        let quick = asleep_on(here);
        for times in 0..SOON_BACK {
            absence.note_woken(&quick);
            assert!(!absence.is_soon_back(now), "{times}");
            absence.note_left(now);
            absence.note_taken(now + AWAY_MAX);
            // No thread leads a second time for that.
            absence.note_taken(now + AWAY_MAX);
        }
        assert!(absence.is_soon_back(now));
        absence.come_back(&quick);
        assert!(!absence.is_soon_back(now), "none is away");
    }

    /// When a thread is back that was woken.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Back {
        InTheTurn,
        AsTheLeaderGoes,
        Never,
    }

    /// In the first turn a thread on this core is woken.
    struct Waking<'a> {
        station: &'a Station,
        other: Account,
        back: Back,
        word: &'a WakeWord,
        is_there: Cell<bool>,
        turns: Cell<u32>,
        left: Cell<u32>,
    }

    impl Waking<'_> {
        fn bring_event(&self) {
            self.is_there.set(true);
            self.word.post();
        }
    }

    impl Work for Waking<'_> {
        fn turn(&self) -> Turn {
            self.turns.set(self.turns.get() + 1);
            if self.turns.get() > 1 {
                self.bring_event();
                return Turn::Idle;
            }
            self.station.note_woken(&self.other);
            if self.back == Back::InTheTurn {
                self.station.note_closed(&self.other);
            }
            Turn::Woke
        }
        fn hand_over(&self) {}
        fn leave_seat(&self) {
            assert!(!self.station.seat.is_taken(), "it has left the seat");
            self.left.set(self.left.get() + 1);
            self.bring_event();
        }
    }

    #[test]
    fn a_leader_leaves_the_seat_to_a_thread_that_it_has_woken_unless_that_is_back() {
        let here = stay();
        for strategy in [Strategy::LeaderFollower, Strategy::Adaptive] {
            for (back, turns, left) in
                [(Back::Never, 1, 1), (Back::InTheTurn, 2, 0), (Back::AsTheLeaderGoes, 2, 0)]
            {
                let (station, word, account) = (Station::new(), WakeWord::default(), Account::default());
                let (is_there, work_turns, work_left) = (Cell::new(false), Cell::new(0), Cell::new(0));
                let other = asleep_on(here);
                let work = Waking {
                    station: &station,
                    other,
                    back,
                    word: &word,
                    is_there,
                    turns: work_turns,
                    left: work_left,
                };
                let wait = Wait {
                    word: &word,
                    place: None,
                    account: &account,
                    is_over: &|| {
                        if back == Back::AsTheLeaderGoes && work.turns.get() == 1 {
                            station.note_closed(&work.other);
                        }
                        work.is_there.get()
                    },
                    work: &work,
                    deadline: None,
                };
                assert_eq!(strategy.make().wait(&station, &wait), Outcome::Over);
                assert_eq!((work.turns.get(), work.left.get()), (turns, left), "{strategy:?}, {back:?}");
                assert!(!station.seat.is_taken());
            }
        }
    }
}
