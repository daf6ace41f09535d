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

use self::lanes::Lanes;
use crate::absence::Absence;
use crate::company::Look;
use crate::config::Engine;
use crate::device::Shared;
use crate::sys;
use crate::waker::Waker;
use highwire_stdx::Instant as DeviceTime;
use highwire_wake::{
    Account, Core, Outcome, Posted, Relief, Station, Wait, WakeStrategy, WakeWord, Watch, thread_time,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The state that the waiting threads of a device share.
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
    /// Until when the leader that rests sleeps on the sockets, and until when the background thread.
    resting: Watch,
    pub(crate) watching: Watch,
    /// Until when the background thread sleeps, whatever it sleeps on.
    pub(crate) absence: Arc<Absence>,
    /// The background thread sleeps for a moment, and looks at everything then.
    pub(crate) dozing: Watch,
    /// The background thread sleeps until the leader has gone.
    relief: Relief,
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
    pub(crate) fn new(strategy: Arc<dyn WakeStrategy>, is_followed: bool) -> io::Result<Waiting> {
        Ok(Waiting {
            strategy,
            is_followed,
            station: Arc::default(),
            count: Arc::default(),
            leader_waker: Arc::new(Waker::new()?),
            resting: Watch::default(),
            watching: Watch::default(),
            absence: Arc::default(),
            dozing: Watch::default(),
            relief: Relief::default(),
            beside: AtomicU8::new(0),
            is_left: AtomicBool::new(false),
            woken: Arc::default(),
            told: Arc::default(),
            accounts: Arc::default(),
            look: Look::default(),
        })
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

    /// Where waiting threads meet.
    pub(crate) fn station(&self) -> &Station {
        &self.station
    }

    /// Leaves the work to the background thread, until a leader takes it up.
    fn leave(&self, device: &Shared) {
        self.is_left.store(true, Ordering::SeqCst);
        if !self.is_seen_to(device, &self.watching, true) {
            device.waker.wake();
        }
    }

    /// Leaves it to the thread that leads.
    pub(crate) fn leave_to_leader(&self, device: &Shared) {
        // One that is awake looks at all of it before it rests.
        if self.station.rest.is_taken() && !self.is_seen_to(device, &self.resting, true) {
            self.leader_waker.wake();
        }
    }

    /// An event was asked for, perhaps by a thread that will sleep on a descriptor. One that will block on the channel does the work itself
    /// then; until it does, the background thread need not get up if it looks soon anyway.
    pub(crate) fn note_armed(&self, device: &Shared, will_block: bool) {
        if !self.station.seat.is_taken() {
            let can_wait = (will_block || self.is_waited_beside()) && self.dozing.wakes_before(u64::MAX);
            if !can_wait && !self.is_seen_to(device, &self.watching, false) {
                device.waker.wake();
            }
        } else if self.station.rest.is_taken() && !self.is_seen_to(device, &self.resting, false) {
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

    /// Whether a thread sleeps on the sockets and wakes before the lanes want to be run. Acknowledgements that were kept for the
    /// next step of this thread leave now, if there is no such step.
    fn is_seen_to(&self, device: &Shared, watch: &Watch, is_last_step: bool) -> bool {
        // Where threads do not run the lanes, they cannot ask them either.
        device.engine == Engine::Both
            && device.lanes.iter().all(|lane| {
                let due = lane.try_run(|engine| engine.due_after(is_last_step));
                // Another thread runs this lane just now, and may leave work behind.
                due.is_some_and(|due| watch.wakes_before(due.map_or(u64::MAX, DeviceTime::as_nanos)))
            })
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
        if self.is_followed { self.station.slept_on() } else { None }
    }

    /// Whether threads should not poll in vain, to save power.
    pub(crate) fn saves_power(&self) -> bool {
        self.is_followed
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
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let Sleepers { word, place, account, .. } = sleepers;
        self.run(device, &Wait { word, place: *place, account, is_over, work: &Lanes::new(device), deadline })
    }

    fn run(&self, device: &Shared, wait: &Wait<'_>) -> Outcome {
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
        if self.relief.is_forsaken(&self.station.seat) {
            self.relief.end();
            device.waker.wake();
        }
        outcome
    }

    /// The background thread is about to sleep until the leader that rests has gone; false if it has.
    pub(crate) fn relieve(&self) -> bool {
        self.relief.begin(&self.station.rest)
    }

    /// The background thread is awake. A leader that leaves the seat empty wakes this thread; if it has failed to, this is
    /// counted as a rescue.
    pub(crate) fn resume(&self) {
        if self.relief.is_forsaken(&self.station.seat) {
            self.accounts.of_device().note_rescue();
        }
        self.relief.end();
        self.watching.end();
        self.dozing.end();
        self.absence.end();
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
        if let Some(place) = self.place {
            self.station.seat.dismiss(place);
        }
        self.accounts.close(&self.account);
    }
}
