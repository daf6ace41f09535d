//! How threads of a device wait: for a completion queue, or for an event on a channel.
//!
//! The strategy is the wake crate's. What the device brings to it is the work that events come from, a turn of every lane, and
//! the background thread, to which a thread that sleeps leaves that work. While a leader polls, the background thread
//! stays away, and looks in every now and then whether the leader still runs.

use crate::device::Shared;
use highwire_wake::{Account, Core, Outcome, Station, Turn, Wait, WakeStrategy, WakeWord, Work};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What the waiting threads of a device share.
#[derive(Debug)]
pub(crate) struct Waiting {
    strategy: Arc<dyn WakeStrategy>,
    /// The background thread moves to where threads sleep.
    is_followed: bool,
    station: Arc<Station>,
    /// Threads that wait, and channels that an event was asked for.
    count: Arc<Count>,
    /// The work was left to the background thread, which has yet to take note of it.
    is_left: AtomicBool,
    /// What all waits together have cost.
    account: Arc<Account>,
}

/// How many there are that the background thread works for.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU32);

/// A place where threads sleep: one for each completion queue and each channel.
#[derive(Debug)]
pub(crate) struct Sleepers {
    word: Arc<WakeWord>,
    place: Option<usize>,
    station: Arc<Station>,
    account: Arc<Account>,
}

impl Count {
    pub(crate) fn begin(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Waiting {
    pub(crate) fn new(strategy: Arc<dyn WakeStrategy>, is_followed: bool) -> Waiting {
        Waiting {
            strategy,
            is_followed,
            station: Arc::default(),
            count: Arc::default(),
            is_left: AtomicBool::new(false),
            account: Arc::default(),
        }
    }

    /// A place to sleep.
    pub(crate) fn sleepers(&self) -> Sleepers {
        let word = Arc::<WakeWord>::default();
        let place = self.station.seat.enroll(&word);
        let (station, account) = (Arc::clone(&self.station), Arc::clone(&self.account));
        Sleepers { word, place, station, account }
    }

    pub(crate) fn count(&self) -> &Arc<Count> {
        &self.count
    }

    /// Whether there is anybody whom the background thread works for.
    pub(crate) fn any(&self) -> bool {
        self.count.0.load(Ordering::SeqCst) > 0
    }

    /// Where waiting threads meet.
    pub(crate) fn station(&self) -> &Station {
        &self.station
    }

    /// Leaves the work to the background thread, until a leader takes it up.
    pub(crate) fn leave(&self, device: &Shared) {
        self.is_left.store(true, Ordering::SeqCst);
        // Even if it sleeps on the sockets: acknowledgements may have been kept back since, and timers have begun.
        device.waker.wake();
    }

    /// The core where a thread went to sleep last, if the background thread is to be there.
    pub(crate) fn sleeper_to_follow(&self) -> Option<Core> {
        if self.is_followed { self.station.slept_on() } else { None }
    }

    /// Whether the work was left since the last call.
    pub(crate) fn take_left(&self) -> bool {
        self.is_left.load(Ordering::SeqCst) && self.is_left.swap(false, Ordering::SeqCst)
    }

    /// The same, for another look later.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::SeqCst)
    }

    /// Waits, where the device has a background thread, until `is_over`.
    pub(crate) fn wait(
        &self,
        device: &Shared,
        sleepers: &Sleepers,
        is_over: &dyn Fn() -> bool,
        timeout: Option<Duration>,
    ) -> Outcome {
        self.count.begin();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let Sleepers { word, place, account, .. } = sleepers;
        let wait = Wait { word, place: *place, account, is_over, work: &Lanes(device), deadline };
        let outcome = self.strategy.wait(&self.station, &wait);
        self.count.end();
        outcome
    }

    /// Every figure by name.
    pub(crate) fn each(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.account.each(each);
    }
}

impl Sleepers {
    /// Wakes one thread; what it is to find is there.
    pub(crate) fn wake(&self) {
        self.word.post();
    }

    /// Wakes all of them.
    pub(crate) fn wake_all(&self) {
        self.word.post_all();
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.station.seat.dismiss(place);
        }
    }
}

/// The work that events come from.
struct Lanes<'a>(&'a Shared);

impl Work for Lanes<'_> {
    fn turn(&self) -> Turn {
        let mut all = Turn::Idle;
        for lane in &self.0.lanes {
            match lane.visit(|engine| engine.pump()) {
                Some(pumped) if pumped.work > 0 || pumped.completions > 0 => all = Turn::Worked,
                None if all == Turn::Idle => all = Turn::Taken,
                _ => {}
            }
        }
        all
    }

    fn hand_over(&self) {
        self.0.waiting.leave(self.0);
    }
}
