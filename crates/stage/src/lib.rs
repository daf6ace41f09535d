//! Threads that wait, and a source of events: one event, one answer, and the time between them.
//!
//! The source stands for a network card and its engine. It leaves an event in a mailbox, as a packet lies in a ring, and
//! spins until it is answered. A thread that polls takes it from there; where no thread does, the source delivers it
//! itself, which is what an interrupt or a background thread would do. It also does so when a polling thread has not said for a
//! while that it runs.
//!
//! A scene is played by threads of this machine or by those of a model ([`Hands`]): what they do is the same code. A model may have many
//! lanes, each a source and a core of waiting threads.
//!
//! For a soak, where only the number of events counts, threads pass them to each other without a source ([`Relay`]).

mod hands;
mod measure;
mod relay;
mod source;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use highwire_wake::world::{self, Step};
use highwire_wake::{
    Account, Core, Dispatcher, Posted, Priority, Station, Strategy, Turn, Wait, WakeStrategy, WakeWord, Work,
    pin, process_time, run_urgently, thread_time,
};

pub use hands::{Hands, Modelled, Real};
pub use measure::costs;
pub use relay::{Lost, Planted, Relay, RelayError, Relayed};
use source::Source;

/// An event that takes this long is lost, unless the caller says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a source leaves the threads alone after an answer, unless told otherwise: threads that sleep are
/// asleep by then.
pub const PAUSE: Duration = Duration::from_micros(12);
/// The number of no thread.
const NOBODY: u32 = u32::MAX;
/// Real-time priorities: a thread that a dispatcher wakes runs before the dispatcher.
const DISPATCHER_PRIORITY: Priority = 1;
const WAITER_PRIORITY: Priority = 2;

/// The scene to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scene {
    /// How the threads wait.
    pub strategy: Strategy,
    /// Waiting threads in all lanes together.
    pub threads: u32,
    /// Every event is for the same thread of its lane; otherwise for one drawn at random.
    pub is_own: bool,
    /// Lanes where another thread computes on the waiting threads' core.
    pub hogs: u32,
    /// Sources have cores of their own.
    pub is_apart: bool,
    /// Sources, each with threads of its own on a core of theirs.
    pub lanes: u32,
    /// The threads that share a seat.
    pub seats: Seats,
    /// The waiting threads and their dispatchers run before all ordinary threads. Only for threads of this
    /// machine: a model knows no such priority.
    pub is_urgent: bool,
    /// How long a source leaves the threads alone after an answer.
    pub pause: Duration,
}

impl Scene {
    /// One thread with this strategy, on a core of its own beside the source's, undisturbed.
    pub fn of(strategy: Strategy) -> Scene {
        Scene {
            strategy,
            threads: 1,
            is_own: true,
            hogs: 0,
            is_apart: true,
            lanes: 1,
            seats: Seats::Core,
            is_urgent: false,
            pause: PAUSE,
        }
    }
}

/// The threads that share a leader's seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seats {
    /// The threads of a core.
    Core,
    /// All threads, as those of one device do.
    Machine,
}

/// The result of a scene.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Nanoseconds from event to answer.
    pub times: Histogram<u64>,
    /// The number of events.
    pub events: u64,
    /// The processor time of the waiting threads and their dispatchers.
    pub cpu: Duration,
}

/// The conditions of events.
#[derive(Clone, Copy, Debug)]
pub struct Care {
    /// An event that takes longer is lost.
    pub patience: Duration,
    /// Planted: the thread that finds this event wakes no other. There is no event zero.
    pub untold: u64,
}

impl Default for Care {
    fn default() -> Care {
        Care { patience: PATIENCE, untold: 0 }
    }
}

/// The length of a scene.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// This long, and at least one event.
    Time(Duration),
    /// This many events from each source.
    Events(u64),
}

/// Why a scene was not played to its end.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// No thread answered in time.
    #[error("an event was lost: {0:?}")]
    Lost(Scene),
    /// There is no room for another thread.
    #[error("cannot start a thread")]
    Start(#[source] std::io::Error),
    /// One of the threads panicked.
    #[error("a thread panicked")]
    Panicked,
    /// Threads of a model sleep that no other will wake.
    #[error(transparent)]
    Stuck(#[from] highwire_cores::Stuck),
}

struct Shared {
    scene: Scene,
    /// One for all lanes, or one for each.
    stations: Vec<Station>,
    strategies: Vec<Arc<dyn WakeStrategy>>,
    /// The dispatchers, if the strategy has them.
    dispatchers: Vec<Arc<Dispatcher>>,
    lanes: Vec<Lane>,
    places: Vec<Place>,
    is_over: AtomicBool,
    ready: AtomicU32,
    /// Events that were found, and the one of which no thread is told.
    found: AtomicU64,
    untold: u64,
    /// The processor time of sources and hogs, which does not count.
    others_ns: AtomicU64,
    /// Sources that have not ended.
    playing: AtomicU32,
    /// The processor time of all other threads when the first source began.
    waiting_before: OnceLock<Duration>,
}

/// The state of one source.
#[repr(align(128))]
struct Lane {
    /// The thread that the event under way is for, until a thread delivers it.
    mailbox: AtomicU32,
    answers: AtomicU64,
    hog_ns: AtomicU64,
}

/// The state of one waiting thread.
#[derive(Default)]
#[repr(align(128))]
struct Place {
    word: Arc<WakeWord>,
    events: AtomicU64,
    account: Account,
}

/// The work of a station's threads: the lanes whose events are for them.
struct Lanes<'a> {
    shared: &'a Shared,
    station: usize,
}

impl Work for Lanes<'_> {
    fn turn(&self) -> Turn {
        let mut turn = Turn::Idle;
        for lane in self.shared.lanes_of(self.station) {
            match self.shared.deliver(lane, false) {
                Turn::Woke => turn = Turn::Woke,
                Turn::Worked if turn == Turn::Idle => turn = Turn::Worked,
                _ => {}
            }
        }
        turn
    }

    // The source itself notices that no thread polls.
    fn hand_over(&self) {}
}

impl Shared {
    fn new(scene: Scene, care: Care) -> Shared {
        let lanes = scene.lanes as usize;
        let has_dispatchers = scene.strategy == Strategy::Dispatcher;
        let stations = if scene.seats == Seats::Machine && !has_dispatchers { 1 } else { lanes };
        let dispatchers: Vec<Arc<Dispatcher>> =
            (0..if has_dispatchers { lanes } else { 0 }).map(|_| Arc::default()).collect();
        let strategies = (0..stations).map(|station| match dispatchers.get(station) {
            Some(dispatcher) => Arc::clone(dispatcher) as _,
            None => scene.strategy.make(),
        });
        let lane = || Lane {
            mailbox: AtomicU32::new(NOBODY),
            answers: AtomicU64::new(0),
            hog_ns: AtomicU64::new(0),
        };
        Shared {
            scene,
            stations: (0..stations).map(|_| Station::new()).collect(),
            strategies: strategies.collect(),
            dispatchers,
            lanes: (0..lanes).map(|_| lane()).collect(),
            places: (0..scene.threads).map(|_| Place::default()).collect(),
            is_over: AtomicBool::new(false),
            ready: AtomicU32::new(0),
            found: AtomicU64::new(0),
            untold: care.untold,
            others_ns: AtomicU64::new(0),
            playing: AtomicU32::new(scene.lanes),
            waiting_before: OnceLock::new(),
        }
    }

    fn station_of(&self, lane: usize) -> usize {
        lane % self.stations.len()
    }

    fn lanes_of(&self, station: usize) -> std::ops::Range<usize> {
        if self.stations.len() == 1 { 0..self.lanes.len() } else { station..station + 1 }
    }

    /// Takes the lane's event to the thread that it is for. `is_near`: on the core of the source.
    fn deliver(&self, lane: usize, is_near: bool) -> Turn {
        world::step(Step::Turn);
        let mailbox = &self.lanes[lane].mailbox;
        if mailbox.load(Ordering::Relaxed) == NOBODY {
            return Turn::Idle;
        }
        if !is_near {
            world::step(Step::Fetch);
        }
        let whose = mailbox.swap(NOBODY, Ordering::AcqRel);
        let Some(place) = self.places.get(whose as usize) else { return Turn::Idle };
        world::step(Step::Event);
        place.events.fetch_add(1, Ordering::Release);
        // Counted only for the planted defect.
        if place.word.sleepers() > 0 {
            let station = self.station_of(whose as usize % self.lanes.len());
            self.stations[station].note_woken(&place.account);
        }
        let is_untold = self.untold > 0 && self.found.fetch_add(1, Ordering::Relaxed) + 1 == self.untold;
        if !is_untold && place.word.post() == Posted::Woke { Turn::Woke } else { Turn::Worked }
    }

    /// A waiting thread's loop: wait, answer, again.
    fn serve(&self, number: usize) {
        let (place, lane) = (&self.places[number], number % self.lanes.len());
        let station = self.station_of(lane);
        let seat = self.stations[station].seat.enroll(&place.word);
        let mut seen = 0;
        self.ready.fetch_add(1, Ordering::Release);
        loop {
            let is_over =
                || place.events.load(Ordering::Acquire) != seen || self.is_over.load(Ordering::Acquire);
            let wait = Wait {
                word: &place.word,
                place: seat,
                account: &place.account,
                is_over: &is_over,
                work: &Lanes { shared: self, station },
                deadline: None,
            };
            self.strategies[station].wait(&self.stations[station], &wait);
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            while seen != place.events.load(Ordering::Acquire) {
                seen += 1;
                self.lanes[lane].answers.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// The loop of a neighbour that computes.
    fn compute(&self, lane: usize) {
        while !self.is_over.load(Ordering::Relaxed) {
            // Read now and then, not once at the end: its time is needed while it runs.
            (0..2000).for_each(|_| std::hint::spin_loop());
            world::step(Step::Compute);
            self.lanes[lane].hog_ns.store(thread_time().as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// The processor time of all threads but sources and hogs, as far as those have reported theirs.
    fn waiting_time(&self) -> Duration {
        let hogs: u64 = self.lanes.iter().map(|lane| lane.hog_ns.load(Ordering::Relaxed)).sum();
        let others = Duration::from_nanos(hogs + self.others_ns.load(Ordering::Relaxed));
        process_time().saturating_sub(others)
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        for place in &self.places {
            place.word.post_all();
        }
        for dispatcher in &self.dispatchers {
            dispatcher.close();
        }
    }
}

/// A source that plays; dropped at its end, even by a panic.
struct Playing<'a>(&'a Shared);

impl Drop for Playing<'_> {
    fn drop(&mut self) {
        if self.0.playing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.end();
        }
    }
}

/// Plays a scene. `cores`: those of the sources, and then, if they are apart, as many for the waiting
/// threads.
///
/// # Errors
/// An event was lost, or a thread could not be started.
pub fn play(
    hands: &mut dyn Hands,
    scene: Scene,
    cores: &[Core],
    until: Until,
    seed: u64,
    care: Care,
) -> Result<Outcome, PlayError> {
    let lanes = scene.lanes as usize;
    let shared = Arc::new(Shared::new(scene, care));
    let waiting_core = |lane: usize| cores[if scene.is_apart { lanes + lane } else { lane }];
    for number in 0..shared.places.len() {
        let (shared, core) = (Arc::clone(&shared), waiting_core(number % lanes));
        hands.start(
            core,
            Box::new(move || {
                drop(pin(&[core]));
                if scene.is_urgent {
                    drop(run_urgently(WAITER_PRIORITY));
                }
                shared.serve(number);
            }),
        )?;
    }
    for (lane, dispatcher) in shared.dispatchers.iter().enumerate() {
        let (shared, dispatcher, core) = (Arc::clone(&shared), Arc::clone(dispatcher), waiting_core(lane));
        hands.start(
            core,
            Box::new(move || {
                drop(pin(&[core]));
                let urgency = scene.is_urgent.then_some(DISPATCHER_PRIORITY);
                dispatcher.serve_at(urgency, &Lanes { shared: &shared, station: lane });
            }),
        )?;
    }
    for lane in 0..scene.hogs.min(scene.lanes) as usize {
        let (shared, core) = (Arc::clone(&shared), waiting_core(lane));
        hands.start(
            core,
            Box::new(move || {
                drop(pin(&[core]));
                shared.compute(lane);
            }),
        )?;
    }
    let total: Arc<Mutex<Option<Result<Outcome, PlayError>>>> = Arc::default();
    for (lane, &core) in cores.iter().enumerate().take(lanes) {
        let (shared, total) = (Arc::clone(&shared), Arc::clone(&total));
        let source_cores = [core, waiting_core(lane)];
        hands.start(
            core,
            Box::new(move || {
                let _playing = Playing(&shared);
                let source = Source::new(&shared, lane, source_cores, care.patience);
                let outcome = source.run(until, seed.wrapping_mul(0x9e37_79b9) + lane as u64);
                let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                *total = Some(match (total.take(), outcome) {
                    (None, outcome) => outcome,
                    (Some(Err(error)), _) | (_, Err(error)) => Err(error),
                    (Some(Ok(mut total)), Ok(one)) => {
                        // The time of all threads, since the first source began: the last one's is the whole.
                        total.cpu = one.cpu;
                        total.times.add(&one.times).expect("both grow with what is recorded");
                        total.events += one.events;
                        Ok(total)
                    }
                });
            }),
        )?;
    }
    hands.finish()?;
    let total = total.lock().unwrap_or_else(PoisonError::into_inner).take();
    total.unwrap_or(Err(PlayError::Panicked))
}
