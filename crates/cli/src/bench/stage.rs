//! Threads that wait, and a source of events: one event, one answer, and the time between them.
//!
//! The source stands for a network card and its engine. It leaves an event in a mailbox, as a packet lies in a ring, and
//! spins until it is answered. A thread that polls takes it from there; where no thread does, the source delivers it
//! itself, which is what an interrupt or a background thread would do. It also does so when a polling thread has not said for a
//! while that it runs. For a soak it leaves several events at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hdrhistogram::Histogram;
use highwire_stdx::Rng;
use highwire_wake::{
    Account, Core, Dispatcher, Posted, Priority, Station, Strategy, Turn, Wait, WakeStrategy, WakeWord, Work,
    pin, run_urgently, thread_time, yield_core,
};
use rustix::time::{ClockId, clock_gettime};

/// An event that takes this long is lost.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// A polling thread that has not said for so long that it runs may be waiting for its core.
const SILENCE: Duration = Duration::from_micros(100);
/// Nobody's number.
const NOBODY: u32 = u32::MAX;
/// Events under way at a time.
pub(super) const DEPTH_MAX: usize = 64;
/// Real-time priorities: whoever a dispatcher wakes runs before it.
const DISPATCHER_PRIORITY: Priority = 1;
const WAITER_PRIORITY: Priority = 2;
const STACK_BYTES: usize = 64 << 10;

/// What is to be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scene {
    pub(super) strategy: Strategy,
    pub(super) threads: u32,
    /// Every event is for the same thread; otherwise for one drawn at random.
    pub(super) is_own: bool,
    /// Another thread computes on the waiting threads' core.
    pub(super) is_busy: bool,
    /// The source has a core of its own.
    pub(super) is_apart: bool,
    /// The waiting threads and their dispatcher run before all ordinary threads.
    pub(super) is_urgent: bool,
    /// So long the source leaves the threads alone after an answer.
    pub(super) pause: Duration,
}

/// What came of it.
pub(super) struct Outcome {
    /// Nanoseconds from event to answer; where several are under way, to the last answer of them.
    pub(super) times: Histogram<u64>,
    /// How many there were.
    pub(super) events: u64,
    /// What the waiting threads and their dispatcher took.
    pub(super) cpu: Duration,
}

/// What an event may suffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Care {
    /// One that takes longer is lost.
    pub(super) patience: Duration,
    /// Planted: whoever finds this one tells nobody. None is the zeroth.
    pub(super) untold: u64,
    /// Events under way at a time, at most [`DEPTH_MAX`].
    pub(super) depth: usize,
}

impl Default for Care {
    fn default() -> Care {
        Care { patience: PATIENCE, untold: 0, depth: 1 }
    }
}

/// How long to go on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    Time(Duration),
    Events(u64),
}

struct Shared {
    station: Station,
    strategy: Arc<dyn WakeStrategy>,
    /// The threads that the events under way are for, until somebody delivers them.
    mailboxes: Vec<AtomicU32>,
    seats: Vec<Place>,
    answers: AtomicU64,
    is_over: AtomicBool,
    /// Nobody polls: the last one has said so.
    ready: AtomicU32,
    /// Events that were found, and the one that nobody is told of.
    found: AtomicU64,
    untold: u64,
}

/// One waiting thread's own.
#[derive(Default)]
#[repr(align(128))]
struct Place {
    word: Arc<WakeWord>,
    events: AtomicU64,
    account: Account,
}

impl Work for Shared {
    fn turn(&self) -> Turn {
        let mut all = Turn::Idle;
        for mailbox in &self.mailboxes {
            match self.deliver(mailbox) {
                Turn::Idle => {}
                Turn::Woke => all = Turn::Woke,
                turn if all == Turn::Idle => all = turn,
                _ => {}
            }
        }
        all
    }

    // The source sees for itself that nobody polls.
    fn hand_over(&self) {}
}

impl Shared {
    fn deliver(&self, mailbox: &AtomicU32) -> Turn {
        if mailbox.load(Ordering::Relaxed) == NOBODY {
            return Turn::Idle;
        }
        let whose = mailbox.swap(NOBODY, Ordering::AcqRel);
        let Some(place) = self.seats.get(whose as usize) else { return Turn::Idle };
        place.events.fetch_add(1, Ordering::Release);
        // Counted for the planted defect alone.
        let is_untold = self.untold > 0 && self.found.fetch_add(1, Ordering::Relaxed) + 1 == self.untold;
        if !is_untold && place.word.post() == Posted::Woke { Turn::Woke } else { Turn::Worked }
    }
}

/// What a waiting thread does: wait, answer, again.
fn serve(shared: &Shared, number: usize) {
    let place = &shared.seats[number];
    let seat = shared.station.seat.enroll(&place.word);
    let mut seen = 0;
    shared.ready.fetch_add(1, Ordering::Release);
    loop {
        let is_over =
            || place.events.load(Ordering::Acquire) != seen || shared.is_over.load(Ordering::Acquire);
        let wait = Wait {
            word: &place.word,
            place: seat,
            account: &place.account,
            is_over: &is_over,
            work: shared,
            deadline: None,
        };
        shared.strategy.wait(&shared.station, &wait);
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        while seen != place.events.load(Ordering::Acquire) {
            seen += 1;
            shared.answers.fetch_add(1, Ordering::Release);
        }
    }
}

/// Plays a scene on the given cores; the source has the first.
///
/// # Errors
/// An event was lost, or a thread could not be started.
pub(super) fn play(scene: Scene, cores: [Core; 2], until: Until, seed: u64, care: Care) -> Result<Outcome> {
    let waiting_core = if scene.is_apart { cores[1] } else { cores[0] };
    let dispatcher = (scene.strategy == Strategy::Dispatcher).then(|| Arc::new(Dispatcher::default()));
    let strategy: Arc<dyn WakeStrategy> = match &dispatcher {
        Some(dispatcher) => Arc::clone(dispatcher) as _,
        None => scene.strategy.make(),
    };
    let shared = Shared {
        station: Station::new(),
        strategy,
        mailboxes: (0..care.depth.clamp(1, DEPTH_MAX)).map(|_| AtomicU32::new(NOBODY)).collect(),
        seats: (0..scene.threads).map(|_| Place::default()).collect(),
        answers: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        ready: AtomicU32::new(0),
        found: AtomicU64::new(0),
        untold: care.untold,
    };
    let hog_time = AtomicU64::new(0);
    thread::scope(|threads| {
        let small = || thread::Builder::new().stack_size(STACK_BYTES);
        let on_core = move || drop(pin(&[waiting_core]));
        for number in 0..shared.seats.len() {
            let shared = &shared;
            small().spawn_scoped(threads, move || {
                on_core();
                if scene.is_urgent {
                    drop(run_urgently(WAITER_PRIORITY));
                }
                serve(shared, number);
            })?;
        }
        if let Some(dispatcher) = &dispatcher {
            let shared = &shared;
            small().spawn_scoped(threads, move || {
                on_core();
                let urgency = scene.is_urgent.then_some(DISPATCHER_PRIORITY);
                dispatcher.serve_at(urgency, shared);
            })?;
        }
        if scene.is_busy {
            let (shared, hog_time) = (&shared, &hog_time);
            small().spawn_scoped(threads, move || {
                on_core();
                while !shared.is_over.load(Ordering::Relaxed) {
                    // Read now and then, not once at the end: what it took is wanted while it runs.
                    (0..2000).for_each(|_| std::hint::spin_loop());
                    hog_time.store(thread_time().as_nanos() as u64, Ordering::Relaxed);
                }
            })?;
        }
        let follows = scene.strategy == Strategy::Affine && scene.is_apart;
        let patience = care.patience;
        let source =
            Source { shared: &shared, dispatcher: dispatcher.as_deref(), cores, scene, follows, patience };
        let hog_time = &hog_time;
        let hog = move || Duration::from_nanos(hog_time.load(Ordering::Relaxed));
        let outcome = small().spawn_scoped(threads, move || source.run(until, seed, &hog));
        let outcome = outcome?.join().unwrap_or_else(|_| bail!("the source of events panicked"));
        shared.is_over.store(true, Ordering::Release);
        for place in &shared.seats {
            place.word.post_all();
        }
        if let Some(dispatcher) = &dispatcher {
            dispatcher.close();
        }
        outcome
    })
}

struct Source<'a> {
    shared: &'a Shared,
    dispatcher: Option<&'a Dispatcher>,
    cores: [Core; 2],
    scene: Scene,
    /// It goes to the core where the thread sleeps.
    follows: bool,
    patience: Duration,
}

impl Source<'_> {
    fn run(&self, until: Until, seed: u64, hog: &dyn Fn() -> Duration) -> Result<Outcome> {
        drop(pin(&[self.cores[0]]));
        let mut rng = Rng::new(seed);
        let mut times = Histogram::new(3)?;
        let depth = self.shared.mailboxes.len() as u64;
        while self.shared.ready.load(Ordering::Acquire) < self.scene.threads {
            yield_core();
        }
        if self.follows {
            drop(pin(&[self.cores[1]]));
        }
        let (begin, cpu_before) = (Instant::now(), others_time(hog));
        let mut count = 0;
        loop {
            let is_done = match until {
                Until::Time(time) => begin.elapsed() >= time && count > 0,
                Until::Events(events) => count >= events,
            };
            if is_done {
                break;
            }
            let mut whose = || {
                if self.scene.is_own { 0 } else { (rng.next_u64() % u64::from(self.scene.threads)) as u32 }
            };
            let at_once = match until {
                Until::Time(_) => depth,
                Until::Events(events) => depth.min(events - count),
            };
            let time = self.send(at_once as usize, &mut whose, count + at_once)?;
            times.record(time.as_nanos() as u64)?;
            count += at_once;
            if matches!(until, Until::Time(_)) {
                self.pause();
            }
        }
        Ok(Outcome { times, events: count, cpu: others_time(hog).saturating_sub(cpu_before) })
    }

    /// So many events at once, until all are answered that there have been.
    fn send(&self, events: usize, whose: &mut dyn FnMut() -> u32, answers: u64) -> Result<Duration> {
        let shared = self.shared;
        let begin = Instant::now();
        for mailbox in &shared.mailboxes[..events] {
            mailbox.store(whose(), Ordering::Release);
        }
        let mut heard = (self.beats(), begin);
        let mut turns = 0u32;
        while shared.answers.load(Ordering::Acquire) < answers {
            if !self.is_polled() {
                shared.turn();
            }
            turns = turns.wrapping_add(1);
            if !self.scene.is_apart || self.follows {
                yield_core();
            } else {
                std::hint::spin_loop();
            }
            if turns.is_multiple_of(64) {
                let now = Instant::now();
                let beats = self.beats();
                if beats != heard.0 {
                    heard = (beats, now);
                } else if now - heard.1 > SILENCE {
                    shared.turn();
                }
                if now - begin > self.patience {
                    bail!("an event was lost: {:?}", self.scene);
                }
            }
        }
        Ok(begin.elapsed())
    }

    fn pause(&self) {
        let begin = Instant::now();
        while begin.elapsed() < self.scene.pause {
            if self.scene.is_apart && !self.follows { std::hint::spin_loop() } else { yield_core() }
        }
    }

    /// Whether a thread looks into the mailbox.
    fn is_polled(&self) -> bool {
        match self.scene.strategy {
            Strategy::BusyPoll | Strategy::Dispatcher => true,
            Strategy::LeaderFollower | Strategy::Adaptive => self.shared.station.seat.is_taken(),
            Strategy::Event | Strategy::Affine => false,
        }
    }

    fn beats(&self) -> u64 {
        self.dispatcher.map_or_else(|| self.shared.station.seat.beats(), Dispatcher::beats)
    }
}

/// What all threads but the source and the hog have taken.
fn others_time(hog: &dyn Fn() -> Duration) -> Duration {
    let process = clock_gettime(ClockId::ProcessCPUTime);
    let process = Duration::new(process.tv_sec as u64, process.tv_nsec as u32);
    process.saturating_sub(thread_time()).saturating_sub(hog())
}
