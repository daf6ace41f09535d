//! How threads of a device wait: for a completion queue, or for an event on a channel.
//!
//! The strategy is the wake crate's. What the device brings to it is the work that events come from, a turn of every lane, and
//! the background thread, to which a thread that sleeps leaves that work. While a leader polls, the background thread
//! stays away, and looks in every now and then whether the leader still runs.
//!
//! A leader that has polled long enough rests: it sleeps on the lanes' sockets itself, so that a packet costs one wake-up. The
//! background thread then sleeps, too, and is told when the leader goes.

use crate::device::Shared;
use crate::engine::{Engine, Sleeper};
use crate::sys;
use crate::waker::Waker;
use highwire_wake::{
    Account, Core, Outcome, Posted, Slept, Station, Turn, Wait, WakeStrategy, WakeWord, Work,
};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The longest rest.
const REST_MAX: highwire_stdx::Duration = highwire_stdx::Duration::from_millis(100);
/// How long a thread rests on a lane that another one runs.
const LOOK_AGAIN: highwire_stdx::Duration = highwire_stdx::Duration::from_micros(400);

/// What the waiting threads of a device share.
#[derive(Debug)]
pub(crate) struct Waiting {
    strategy: Arc<dyn WakeStrategy>,
    /// The background thread moves to where threads sleep.
    is_followed: bool,
    station: Arc<Station>,
    /// Threads that wait, and channels that an event was asked for.
    count: Arc<Count>,
    /// Wakes the leader that rests.
    pub(crate) leader_waker: Arc<Waker>,
    /// The background thread sleeps until the leader has gone.
    is_relieved: AtomicBool,
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
    leader_waker: Arc<Waker>,
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
    pub(crate) fn new(strategy: Arc<dyn WakeStrategy>, is_followed: bool) -> io::Result<Waiting> {
        Ok(Waiting {
            strategy,
            is_followed,
            station: Arc::default(),
            count: Arc::default(),
            leader_waker: Arc::new(Waker::new()?),
            is_relieved: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            account: Arc::default(),
        })
    }

    /// A place to sleep.
    pub(crate) fn sleepers(&self) -> Sleepers {
        let word = Arc::<WakeWord>::default();
        let place = self.station.seat.enroll(&word);
        let (station, account) = (Arc::clone(&self.station), Arc::clone(&self.account));
        Sleepers { word, place, station, account, leader_waker: Arc::clone(&self.leader_waker) }
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
        if self.is_relieved.load(Ordering::SeqCst) {
            self.resume();
            device.waker.wake();
        }
        outcome
    }

    /// The background thread is about to sleep until the leader that rests has gone; false if it has.
    pub(crate) fn relieve(&self) -> bool {
        self.is_relieved.store(true, Ordering::SeqCst);
        // The leader ends its rest and then looks whether anybody relies on it.
        let is_relieved = self.station.rest.is_taken();
        if !is_relieved {
            self.resume();
        }
        is_relieved
    }

    /// Nobody relies on the leader any more.
    pub(crate) fn resume(&self) {
        self.is_relieved.store(false, Ordering::SeqCst);
    }

    /// Every figure by name.
    pub(crate) fn each(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.account.each(each);
    }
}

impl Sleepers {
    /// Wakes one thread; what it is to find is there.
    pub(crate) fn wake(&self) {
        self.ring_after(self.word.post());
    }

    /// Wakes all of them.
    pub(crate) fn wake_all(&self) {
        self.ring_after(self.word.post_all());
    }

    /// Wakes the one that sleeps on the lanes' sockets, if the post was for it.
    fn ring_after(&self, posted: Posted) {
        if self.station.rest.is_to_be_rung(&self.word, posted) {
            self.leader_waker.wake();
        }
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

impl Lanes<'_> {
    /// Sleeps until a packet, a timer, a ring, or `deadline`.
    fn sleep_on_sockets(&self, deadline: Option<Instant>) -> Slept {
        let device = self.0;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let longest = REST_MAX.min(left.map_or(highwire_stdx::Duration::MAX, highwire_stdx::Duration::from));
        let mut at_most = longest;
        for lane in &device.lanes {
            match lane.try_run(|engine| engine.prepare_sleep(Sleeper::Leader)) {
                // Somebody else runs it just now, and may leave something.
                None => at_most = at_most.min(LOOK_AGAIN),
                Some(None) => return Slept::Posted,
                Some(Some(left)) => at_most = at_most.min(left),
            }
        }
        let lanes = device.lane_fds.iter().flatten().map(AsFd::as_fd);
        let fds: Vec<_> = std::iter::once(device.waiting.leader_waker.fd()).chain(lanes).collect();
        match sys::wait_readable_or_signal(&fds, Some(at_most)) {
            sys::Waited::Interrupted if sys::ends_waits() => Slept::Interrupted,
            sys::Waited::TimedOut if at_most == longest => Slept::TimedOut,
            // Or a timer of the lane.
            _ => Slept::Posted,
        }
    }
}

impl Work for Lanes<'_> {
    fn turn(&self) -> Turn {
        let mut all = Turn::Idle;
        for lane in &self.0.lanes {
            let run = |engine: &mut Engine| {
                engine.awake_from_rest();
                engine.pump()
            };
            match lane.visit(run) {
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

    fn rest(&self, word: &WakeWord, seen: u32, deadline: Option<Instant>) -> Option<Slept> {
        let device = self.0;
        let waiting = &device.waiting;
        if !sys::may_be_interrupted_in_poll() {
            return None;
        }
        sys::be_quick_to_run_once();
        waiting.leader_waker.prepare_sleep();
        let slept = waiting.station.rest.sleep(word, seen, || self.sleep_on_sockets(deadline));
        waiting.leader_waker.awake();
        if slept != Slept::Posted {
            // No turn follows.
            for lane in &device.lanes {
                lane.try_run(Engine::awake_from_rest);
            }
        }
        Some(slept)
    }
}
