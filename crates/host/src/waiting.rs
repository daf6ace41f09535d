//! How threads of a device wait: for a completion queue, or for an event on a channel.
//!
//! The strategy is the wake crate's. What the device brings to it is the work that events come from, a turn of every lane, and
//! the background thread, to which a thread that sleeps leaves that work. While a leader polls, the background thread
//! stays away, and looks in every now and then whether the leader still runs.
//!
//! A leader that has polled long enough rests: it sleeps on the lanes' sockets itself, so that a packet costs one wake-up. The
//! background thread then sleeps, too, and is told when the leader goes.
//!
//! The thread that sleeps on the sockets says until when. Threads that go to sleep on something else wake it only if the lanes want
//! to be run before that time: so a thread usually wakes no other thread before it waits for its next event.

mod accounts;
mod descriptors;
mod lanes;

pub(crate) use accounts::{Accounts, News, Place};
pub use descriptors::Descriptors;

pub(crate) use self::lanes::Lanes;

use crate::company::Look;
use crate::config::Engine;
use crate::device::Shared;
use crate::sys;
use crate::waker::Waker;
use highwire_wake::duty::Sight;
use highwire_wake::{
    Account, Core, Dispatcher, Outcome, Posted, Station, Wait, WakeStrategy, WakeWord, thread_time, world,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// The state that the waiting threads of a device share.
#[derive(Debug)]
pub(crate) struct Waiting {
    strategy: Arc<dyn WakeStrategy>,
    /// The background thread moves to where threads sleep.
    is_followed: bool,
    /// Polls for them, where the mode has a dispatcher.
    dispatcher: Option<Arc<Dispatcher>>,
    station: Arc<Station>,
    /// Threads that wait, and channels that an event was asked for.
    count: Arc<Count>,
    /// Wakes the background thread, and the leader that rests. Each says there what it does.
    background: Arc<Waker>,
    pub(crate) leader_waker: Arc<Waker>,
    /// How many more times a queue may be armed before threads that wait in `poll` no longer count as ones that come back to lead.
    beside: AtomicU8,
    /// The work was left to the background thread, which has yet to take note of it.
    is_left: AtomicBool,
    /// How many times a thread was woken, and how often of these through a descriptor.
    woken: Arc<AtomicU64>,
    told: Arc<AtomicU64>,
    accounts: Arc<Accounts>,
    /// What the thread that leads knows of others on its core.
    look: Look,
}

/// How many there are that the background thread works for, in the lower half; in the upper, how many there have been.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

const ONE_MORE: u64 = 1 << 32 | 1;

/// A place where threads sleep: one for each completion queue and each channel.
#[derive(Debug)]
pub(crate) struct Sleepers {
    word: Arc<WakeWord>,
    place: Option<usize>,
    station: Arc<Station>,
    account: Arc<Account>,
    accounts: Arc<Accounts>,
    woken: Arc<AtomicU64>,
    told: Arc<AtomicU64>,
    leader_waker: Arc<Waker>,
}

impl Count {
    pub(crate) fn begin(&self) {
        self.0.fetch_add(ONE_MORE, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Waiting {
    pub(crate) fn new(
        strategy: Arc<dyn WakeStrategy>,
        is_followed: bool,
        background: Arc<Waker>,
    ) -> io::Result<Waiting> {
        Ok(Waiting {
            strategy,
            is_followed,
            dispatcher: None,
            station: Arc::default(),
            count: Arc::default(),
            background,
            leader_waker: Arc::new(Waker::new()?),
            beside: AtomicU8::new(0),
            is_left: AtomicBool::new(false),
            woken: Arc::default(),
            told: Arc::default(),
            accounts: Arc::default(),
            look: Look::default(),
        })
    }

    /// The same, where a dispatcher polls for all threads that wait.
    pub(crate) fn dispatched(background: Arc<Waker>) -> io::Result<Waiting> {
        let dispatcher = Arc::<Dispatcher>::default();
        let waiting = Waiting::new(Arc::clone(&dispatcher) as _, false, background)?;
        Ok(Waiting { dispatcher: Some(dispatcher), ..waiting })
    }

    pub(crate) fn dispatcher(&self) -> Option<&Arc<Dispatcher>> {
        self.dispatcher.as_ref()
    }

    pub(crate) fn station(&self) -> &Station {
        &self.station
    }

    /// What the thread that leads knows of others on its core.
    pub(crate) fn look(&self) -> &Look {
        &self.look
    }

    /// The core where a thread went to sleep last.
    pub(crate) fn slept_on(&self) -> Option<Core> {
        self.station.slept_on()
    }

    /// A place to sleep.
    pub(crate) fn sleepers(&self, what: Place) -> Sleepers {
        let word = Arc::<WakeWord>::default();
        let place = self.station.seat.enroll(&word);
        let account = self.accounts.open(what);
        let (station, accounts) = (Arc::clone(&self.station), Arc::clone(&self.accounts));
        let (woken, told, leader_waker) =
            (Arc::clone(&self.woken), Arc::clone(&self.told), Arc::clone(&self.leader_waker));
        Sleepers { word, place, station, account, accounts, woken, told, leader_waker }
    }

    pub(crate) fn count(&self) -> &Arc<Count> {
        &self.count
    }

    /// Whether a thread or task waits, so that the background thread has to work for it.
    pub(crate) fn any(&self) -> bool {
        self.count.0.load(Ordering::SeqCst) as u32 > 0
    }

    /// The cost of waits, for other programs to read.
    pub(crate) fn news(&self, now_ns: u64, most_places: usize) -> News {
        // A thread that has changed the count has entered its figures before.
        self.accounts.news(now_ns, self.count.0.load(Ordering::Acquire), most_places)
    }

    /// Leaves the work to the background thread, until a leader takes it up.
    fn leave(&self, device: &Shared) {
        self.is_left.store(true, Ordering::SeqCst);
        if !self.is_seen_to(device, &self.background, true) {
            self.background.wake();
        }
    }

    /// The work is left, by a thread that finds the background thread awake.
    #[cfg(test)]
    pub(crate) fn leave_for_test(&self) {
        self.is_left.store(true, Ordering::SeqCst);
    }

    /// Leaves it to the thread that leads.
    pub(crate) fn leave_to_leader(&self, device: &Shared) {
        // One that is awake looks at all of it before it rests.
        if self.station.rest.is_taken() && !self.is_seen_to(device, &self.leader_waker, true) {
            self.leader_waker.wake();
        }
    }

    /// An event was asked for, perhaps by a thread that will sleep on a descriptor. One that will block on the channel does the work itself
    /// then; until it does, the background thread need not get up if it looks soon anyway.
    pub(crate) fn note_armed(&self, device: &Shared, will_block: bool) {
        if !self.station.seat.is_taken() {
            let can_wait =
                (will_block || self.is_waited_beside()) && self.background.said_after().is_checking();
            if !can_wait && !self.is_seen_to(device, &self.background, false) {
                self.background.wake();
            }
        } else if self.station.rest.is_taken() && !self.is_seen_to(device, &self.leader_waker, false) {
            // If the leader goes and no thread takes its place, the background thread is told.
            self.leader_waker.wake();
        }
    }

    /// Whether a thread will probably wait in `poll` soon, and lead there.
    fn is_waited_beside(&self) -> bool {
        let left = self.beside.load(Ordering::Relaxed);
        if left > 0 {
            self.beside.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Whether a thread sleeps on the sockets and wakes before the lanes want to be run.
    fn is_seen_to(&self, device: &Shared, sleeper: &Waker, is_last_step: bool) -> bool {
        // Where threads do not run the lanes, they cannot ask them either.
        device.engine == Engine::Both && sleeper.sees_to(&device.lanes, is_last_step)
    }

    /// How many times a thread was woken so far.
    pub(crate) fn woken(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    /// How many of these slept on a descriptor.
    fn told(&self) -> u64 {
        self.told.load(Ordering::Acquire)
    }

    /// The core where a thread went to sleep last, if the background thread is to be there.
    pub(crate) fn sleeper_to_follow(&self) -> Option<Core> {
        self.slept_on().filter(|_| self.is_followed)
    }

    /// Whether threads should not poll in vain, to save power.
    pub(crate) fn saves_power(&self) -> bool {
        self.is_followed
    }

    /// What the leader's seat shows.
    pub(crate) fn sight(&self) -> Sight {
        let Station { seat, rest, .. } = &*self.station;
        let is_left = self.is_left.load(Ordering::SeqCst);
        Sight { beats: seat.beats(), is_taken: seat.is_taken(), rests: rest.is_taken(), is_left }
    }

    /// The same; the background thread takes up the work that was left.
    pub(crate) fn take_sight(&self) -> Sight {
        let is_left = self.is_left.load(Ordering::SeqCst) && self.is_left.swap(false, Ordering::SeqCst);
        Sight { is_left, ..self.sight() }
    }

    /// Waits, where the device has a background thread, until `is_over`.
    pub(crate) fn wait(
        &self,
        device: &Shared,
        sleepers: &Sleepers,
        is_over: &dyn Fn() -> bool,
        timeout: Option<Duration>,
    ) -> Outcome {
        let deadline = timeout.and_then(|timeout| world::now().checked_add(timeout));
        let Sleepers { word, place, account, .. } = sleepers;
        self.run(&Wait { word, place: *place, account, is_over, work: &Lanes::new(device), deadline })
    }

    fn run(&self, wait: &Wait<'_>) -> Outcome {
        // A thread that is woken while another one spins on its core would otherwise wait milliseconds, until the other's time slice
        // ends.
        sys::be_quick_to_run_once();
        self.count.begin();
        let account = wait.account;
        let began = account.begin().then(thread_time);
        let outcome = self.strategy.wait(&self.station, wait);
        if let Some(began) = began {
            account.note_sample(thread_time().saturating_sub(began));
        }
        self.count.end();
        self.background.wake_if_forsaken(&self.station.seat);
        outcome
    }

    /// The background thread relied on a leader, and its sleep has ended by time. A leader that leaves the seat empty calls this thread; if
    /// it has failed to, this is counted as a rescue.
    pub(crate) fn note_if_forsaken(&self) {
        if !self.station.seat.is_taken() {
            self.note_rescue();
        }
    }

    /// The background thread has slept as long as it may, and found packets for which no bell had rung.
    pub(crate) fn note_rescue(&self) {
        self.accounts.of_device().note_rescue();
    }

    /// The cost of waits, by place.
    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }
}

impl Sleepers {
    /// A thread that sleeps on a descriptor was told.
    pub(crate) fn note_told(&self) {
        self.told.fetch_add(1, Ordering::Release);
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    /// Wakes one thread, whose event must be visible already.
    pub(crate) fn wake(&self) {
        // Before the post: the thread may take this one's core at once, and be back before this one goes on.
        if self.word.sleepers() > 0 {
            self.station.note_woken(&self.account);
        }
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
        } else if posted == Posted::Woke {
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.station.note_closed(&self.account);
        if let Some(place) = self.place {
            self.station.seat.dismiss(place);
        }
        self.accounts.close(&self.account);
    }
}
