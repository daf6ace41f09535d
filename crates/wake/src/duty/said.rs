//! What a thread says of its sleep, for others to decide whether it has to be woken.
//!
//! A sleep is said twice. Before the thread looks at the lanes it announces the duty and the longest that the sleep may be. Once it has
//! seen every lane's timers the sleep is settled, and until then no longer than it is. So what was announced is never shorter than the sleep.

use super::Duty;
use highwire_stdx::{Duration, Instant};

/// What a thread has said last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// It is awake, and looks at the lanes before it sleeps.
    Awake,
    /// It sleeps or is about to, and another thread wakes it.
    Called,
    /// It sleeps, or is about to.
    Asleep {
        /// What it sleeps on.
        duty: Duty,
        /// It wakes by itself at this time at the latest.
        until: Instant,
        /// It has looked at the lanes.
        is_settled: bool,
    },
}

/// The unit of times in a word.
const UNIT_NS: u64 = 16;
const AWAKE: u64 = 0;
const CALLED: u64 = 1;
/// The words of sleeps have larger numbers in their low bits.
const FIRST_SLEEP: u64 = 2;

/// A sleep up to this long leaves acknowledgements late, and no peer waiting: it is short beside every timeout.
const SHORT: Duration = Duration::from_millis(1);

impl Said {
    /// As one word. Times are rounded up.
    pub const fn to_word(self) -> u64 {
        match self {
            Said::Awake => AWAKE,
            Said::Called => CALLED,
            Said::Asleep { duty, until, is_settled } => {
                (until.as_nanos().div_ceil(UNIT_NS) * UNIT_NS)
                    | (FIRST_SLEEP + 2 * duty as u64 + is_settled as u64)
            }
        }
    }

    /// From such a word.
    pub fn from_word(word: u64) -> Said {
        match word % UNIT_NS {
            AWAKE => Said::Awake,
            CALLED => Said::Called,
            low => {
                let duty = Duty::ALL[((low - FIRST_SLEEP) / 2) as usize];
                let until = Instant::from_nanos(word - low);
                Said::Asleep { duty, until, is_settled: low % 2 == 1 }
            }
        }
    }

    /// Whether the thread sleeps on all lanes and wakes by itself before `due`, which the caller has set before it asked.
    pub fn wakes_before(self, due: Option<Instant>) -> bool {
        match self {
            Said::Asleep { duty, until, is_settled: true } => {
                duty.rules().watches && due.is_none_or(|due| until <= due)
            }
            _ => false,
        }
    }

    /// Whether the thread looks at everything in a moment.
    pub fn is_checking(self) -> bool {
        matches!(self, Said::Asleep { duty: Duty::Checking, is_settled: true, .. })
    }

    /// Whether the thread sees soon to an acknowledgement that the caller keeps. The caller holds the lane's token. `leads`: it
    /// leads, and calls this thread when it goes.
    pub fn is_near(self, now: Instant, leads: bool) -> bool {
        match self {
            Said::Awake => true,
            Said::Called => false,
            Said::Asleep { duty, until, .. } => until <= now + SHORT || leads && duty.rules().relies,
        }
    }

    /// Whether a thread that has run a lane, and goes on to something else, ends this sleep.
    pub fn ends_by_visit(self) -> bool {
        matches!(self, Said::Asleep { duty, .. } if duty.rules().ends_by_visit)
    }

    /// Whether the leader that leaves its seat empty ends this sleep.
    pub fn relies(self) -> bool {
        matches!(self, Said::Asleep { duty, .. } if duty.rules().relies)
    }
}

/// How often in one sleep of the background thread a lane's leader went without it. Then that sleep is ended: from then on it checks.
#[derive(Debug, Default)]
pub struct Misses {
    sleep: u64,
    count: u32,
}

/// So often in one sleep.
const MISSED_MAX: u32 = 8;

impl Misses {
    /// Counts one; true if the sleep is to be ended.
    pub fn note(&mut self, said: Said) -> bool {
        let sleep = said.to_word();
        self.count = if sleep == self.sleep { self.count.saturating_add(1) } else { 1 };
        self.sleep = sleep;
        self.count == MISSED_MAX
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    fn asleep(duty: Duty, until: u64, is_settled: bool) -> Said {
        Said::Asleep { duty, until: at(until), is_settled }
    }

    #[test]
    fn a_word_says_what_was_said_and_never_a_shorter_sleep() {
        assert_eq!(
            [Said::Awake, Said::Called].map(|said| Said::from_word(said.to_word())),
            [Said::Awake, Said::Called]
        );
        for (duty, is_settled) in Duty::ALL.into_iter().flat_map(|duty| [(duty, false), (duty, true)]) {
            for nanos in [0, 1, 15, 16, 17, 123_456_789, 1 << 60] {
                let until = Instant::from_nanos(nanos);
                let word = Said::Asleep { duty, until, is_settled }.to_word();
                let Said::Asleep { duty: read, until: later, is_settled: settled } = Said::from_word(word)
                else {
                    panic!("{duty:?} at {nanos}")
                };
                assert_eq!((read, settled), (duty, is_settled));
                assert!(later >= until && later.as_nanos() < nanos + UNIT_NS);
            }
        }
    }

    #[test]
    fn only_what_is_due_before_the_sleep_ends_needs_a_call() {
        assert!(!Said::Awake.wakes_before(None) && !Said::Called.wakes_before(None));
        for duty in [Duty::Watching, Duty::LongWatch, Duty::LongStandby, Duty::Resting] {
            assert!(!asleep(duty, 100, false).wakes_before(None), "it has yet to look");
            let said = asleep(duty, 160, true);
            assert!(said.wakes_before(Some(at(160))) && said.wakes_before(None));
            assert!(!said.wakes_before(Some(at(159))));
        }
        assert!(!asleep(Duty::Standby, 160, true).wakes_before(None), "it does not watch");
        assert!(
            !asleep(Duty::Checking, 160, true).wakes_before(None)
                && asleep(Duty::Checking, 160, true).is_checking()
        );
    }

    #[test]
    fn a_long_sleep_is_no_time_to_leave_work_behind_unless_its_end_is_near_or_told() {
        assert!(Said::Awake.is_near(at(0), false), "it is awake");
        assert!(!Said::Called.is_near(at(0), true), "it may have to wait for a core");
        let said = asleep(Duty::Watching, 100_000, false);
        assert!(!said.is_near(at(98_999), false) && !said.is_near(at(98_999), true));
        assert!(said.is_near(at(99_000), false), "it is about to wake");
        let said = asleep(Duty::Standby, 100_000, true);
        assert!(!said.is_near(at(0), false), "a thread that does not lead tells it nothing");
        assert!(said.is_near(at(0), true));
    }

    #[test]
    fn a_sleep_that_is_often_missed_is_ended_once() {
        let mut misses = Misses::default();
        let said = asleep(Duty::Watching, 100_000, true);
        assert_eq!((1..100).filter(|_| misses.note(said)).count(), 1);
        let next = asleep(Duty::Watching, 200_000, true);
        assert_eq!((1..MISSED_MAX).filter(|_| misses.note(next)).count(), 0, "not too soon");
        assert!(misses.note(next));
    }
}
