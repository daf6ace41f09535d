//! One event, one answer, and the time between them: the scene of `highwire bench wake`, with the kernel module as one more way to wait.
//!
//! The source stands for a network card. It leaves an event in a mailbox and spins until a thread has
//! answered it. A thread that polls takes it from there; if no thread polls, or none has reported for a while
//! that it runs, the source delivers the event itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use highwire_stdx::Rng;
use highwire_wake::{
    Account, Core, Dispatcher, Posted, Station, Strategy, Turn, Wait, WakeStrategy, WakeWord, Work, pin,
    thread_time, yield_core,
};

use crate::device::{Group, Switched};
use crate::sys::process_time;

/// An event that takes this long is lost. An emulated core may be away for seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// A polling thread that has not reported for this long that it runs may be waiting for its core.
const SILENCE: Duration = Duration::from_millis(1);
/// How long the source leaves the threads alone after an answer: they are asleep by then.
const PAUSE: Duration = Duration::from_micros(60);
/// A dispatcher that has given its core away wants it back after this time, whatever the thread does with it.
const SWITCH_PATIENCE_US: u32 = 10_000;
/// No thread has this number.
const NOBODY: u32 = u32::MAX;
const STACK_BYTES: usize = 64 << 10;

/// How the threads wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A strategy in user space.
    User(Strategy),
    /// A dispatcher that switches through the module.
    Module,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::User(strategy) => strategy.name(),
            Way::Module => "module",
        }
    }

    fn has_dispatcher(self) -> bool {
        matches!(self, Way::Module | Way::User(Strategy::Dispatcher))
    }
}

/// The scene to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scene {
    pub(crate) way: Way,
    pub(crate) threads: u32,
    /// Another thread computes on the waiting threads' core.
    pub(crate) is_busy: bool,
}

/// The result of a scene.
pub(crate) struct Outcome {
    /// Nanoseconds from event to answer.
    pub(crate) times: Histogram<u64>,
    /// The processor time of the waiting threads and their dispatcher.
    pub(crate) cpu: Duration,
}

/// How the threads are served.
enum Means {
    User { strategy: Arc<dyn WakeStrategy>, dispatcher: Option<Arc<Dispatcher>> },
    Module { group: Group, beats: AtomicU64 },
}

struct Shared {
    means: Means,
    station: Station,
    /// The thread for which the event is, until a thread delivers it.
    mailbox: AtomicU32,
    places: Vec<Place>,
    answers: AtomicU64,
    ready: AtomicU32,
    is_over: AtomicBool,
}

/// The state of one waiting thread.
#[derive(Default)]
#[repr(align(128))]
struct Place {
    word: Arc<WakeWord>,
    events: AtomicU64,
    account: Account,
}

impl Work for Shared {
    fn turn(&self) -> Turn {
        let Some(whose) = self.take() else { return Turn::Idle };
        let place = &self.places[whose as usize];
        place.events.fetch_add(1, Ordering::Release);
        if place.word.post() == Posted::Woke { Turn::Woke } else { Turn::Worked }
    }

    // The source itself notices that no thread polls.
    fn hand_over(&self) {}
}

impl Shared {
    /// The thread whose event lies in the mailbox; the caller has to deliver it.
    fn take(&self) -> Option<u32> {
        if self.mailbox.load(Ordering::Relaxed) == NOBODY {
            return None;
        }
        let whose = self.mailbox.swap(NOBODY, Ordering::AcqRel);
        (whose != NOBODY).then_some(whose)
    }

    /// Delivers the event in the mailbox from the source's own core.
    fn deliver(&self) -> io::Result<()> {
        match &self.means {
            Means::User { .. } => {
                self.turn();
            }
            Means::Module { group, .. } => {
                if let Some(whose) = self.take() {
                    group.post(whose)?;
                }
            }
        }
        Ok(())
    }

    /// A waiting thread's loop: wait, answer, again.
    fn serve(&self, number: u32) -> Result<()> {
        self.ready.fetch_add(1, Ordering::Release);
        match &self.means {
            Means::User { strategy, .. } => {
                self.serve_words(&**strategy, number as usize);
                Ok(())
            }
            Means::Module { group, .. } => self.serve_slot(group, number),
        }
    }

    fn serve_words(&self, strategy: &dyn WakeStrategy, number: usize) {
        let place = &self.places[number];
        let seat = self.station.seat.enroll(&place.word);
        let mut seen = 0;
        loop {
            let is_over =
                || place.events.load(Ordering::Acquire) != seen || self.is_over.load(Ordering::Acquire);
            let wait = Wait {
                word: &place.word,
                place: seat,
                account: &place.account,
                is_over: &is_over,
                work: self,
                deadline: None,
            };
            strategy.wait(&self.station, &wait);
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            while seen != place.events.load(Ordering::Acquire) {
                seen += 1;
                self.answers.fetch_add(1, Ordering::Release);
            }
        }
    }

    fn serve_slot(&self, group: &Group, number: u32) -> Result<()> {
        loop {
            match group.wait(number) {
                Ok(events) => self.answers.fetch_add(events.into(), Ordering::Release),
                Err(error) if error.raw_os_error() == Some(libc::ESHUTDOWN) => return Ok(()),
                Err(error) => return Err(error).context("a thread cannot wait at its slot"),
            };
        }
    }

    fn dispatch(&self) -> Result<()> {
        match &self.means {
            Means::User { dispatcher, .. } => {
                if let Some(dispatcher) = dispatcher {
                    dispatcher.serve(self);
                }
            }
            Means::Module { group, beats } => {
                while !self.is_over.load(Ordering::Acquire) {
                    beats.store(beats.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                    if let Some(whose) = self.take() {
                        let switched = group.switch(whose, SWITCH_PATIENCE_US);
                        // A thread that does not sleep yet takes its post when it waits, so give it time.
                        if switched.context("the dispatcher cannot switch")? == Switched::Nobody {
                            yield_core();
                        }
                    }
                    std::hint::spin_loop();
                }
            }
        }
        Ok(())
    }

    /// Ends everything.
    fn close(&self) -> io::Result<()> {
        self.is_over.store(true, Ordering::Release);
        match &self.means {
            Means::User { dispatcher, .. } => {
                for place in &self.places {
                    place.word.post_all();
                }
                if let Some(dispatcher) = dispatcher {
                    dispatcher.close();
                }
                Ok(())
            }
            Means::Module { group, .. } => group.close(),
        }
    }
}

/// Plays a scene on the given cores; the source has the first, the threads the second.
///
/// # Errors
/// An event was lost, the device refused something, or a thread could not be started.
pub(crate) fn play(scene: Scene, cores: [Core; 2], time: Duration, seed: u64) -> Result<Outcome> {
    let means = match scene.way {
        Way::Module => {
            let group = Group::with_slots(scene.threads).context("no group of the module's")?;
            Means::Module { group, beats: AtomicU64::new(0) }
        }
        Way::User(Strategy::Dispatcher) => {
            let dispatcher = Arc::new(Dispatcher::default());
            Means::User { strategy: Arc::clone(&dispatcher) as _, dispatcher: Some(dispatcher) }
        }
        Way::User(strategy) => Means::User { strategy: strategy.make(), dispatcher: None },
    };
    let shared = Shared {
        means,
        station: Station::new(),
        mailbox: AtomicU32::new(NOBODY),
        places: (0..scene.threads).map(|_| Place::default()).collect(),
        answers: AtomicU64::new(0),
        ready: AtomicU32::new(0),
        is_over: AtomicBool::new(false),
    };
    let hog_time = AtomicU64::new(0);
    thread::scope(|threads| {
        let (shared, hog_time) = (&shared, &hog_time);
        let on_core = move || drop(pin(&[cores[1]]));
        let small = |name: &str| thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
        let mut helpers = Vec::new();
        for number in 0..scene.threads {
            helpers.push(small("hw-waiter").spawn_scoped(threads, move || {
                on_core();
                shared.serve(number)
            })?);
        }
        if scene.way.has_dispatcher() {
            helpers.push(small("hw-dispatcher").spawn_scoped(threads, move || {
                on_core();
                shared.dispatch()
            })?);
        }
        if scene.is_busy {
            small("hw-neighbour").spawn_scoped(threads, move || {
                on_core();
                while !shared.is_over.load(Ordering::Relaxed) {
                    (0..2000).for_each(|_| std::hint::spin_loop());
                    hog_time.store(thread_time().as_nanos() as u64, Ordering::Relaxed);
                }
            })?;
        }
        let source = Source { shared, cores, scene, hog_time };
        let outcome = small("hw-source").spawn_scoped(threads, move || source.run(time, seed))?;
        let outcome = outcome.join().unwrap_or_else(|_| bail!("the source of events panicked"));
        shared.close().context("the group cannot be closed")?;
        for helper in helpers {
            helper.join().unwrap_or_else(|_| bail!("a thread panicked"))?;
        }
        outcome
    })
}

struct Source<'a> {
    shared: &'a Shared,
    cores: [Core; 2],
    scene: Scene,
    hog_time: &'a AtomicU64,
}

impl Source<'_> {
    fn run(&self, time: Duration, seed: u64) -> Result<Outcome> {
        drop(pin(&[self.cores[0]]));
        let mut rng = Rng::new(seed);
        let mut times = Histogram::new(3)?;
        while self.shared.ready.load(Ordering::Acquire) < self.scene.threads {
            yield_core();
        }
        if self.follows() {
            drop(pin(&[self.cores[1]]));
        }
        let (begin, cpu_before) = (Instant::now(), self.others_time());
        let mut count = 0;
        loop {
            if begin.elapsed() >= time && count > 0 {
                break;
            }
            let whose = rng.next_u64() % u64::from(self.scene.threads);
            times.record(self.one(whose as u32, count)?.as_nanos() as u64)?;
            count += 1;
            self.pause();
        }
        let cpu = self.others_time().saturating_sub(cpu_before);
        Ok(Outcome { times, cpu })
    }

    /// One event, until it is answered.
    fn one(&self, whose: u32, answered: u64) -> Result<Duration> {
        let shared = self.shared;
        let begin = Instant::now();
        shared.mailbox.store(whose, Ordering::Release);
        let mut heard = (self.beats(), begin);
        let mut turns = 0u32;
        while shared.answers.load(Ordering::Acquire) == answered {
            if !self.is_polled() {
                shared.deliver()?;
            }
            turns = turns.wrapping_add(1);
            self.relax();
            if turns.is_multiple_of(64) {
                let now = Instant::now();
                let beats = self.beats();
                if beats != heard.0 {
                    heard = (beats, now);
                } else if now - heard.1 > SILENCE {
                    shared.deliver()?;
                }
                if now - begin > PATIENCE {
                    bail!("an event was lost: {:?}", self.scene);
                }
            }
        }
        Ok(begin.elapsed())
    }

    fn pause(&self) {
        let begin = Instant::now();
        while begin.elapsed() < PAUSE {
            self.relax();
        }
    }

    fn relax(&self) {
        if self.follows() { yield_core() } else { std::hint::spin_loop() }
    }

    /// Whether it moves to the core where the threads sleep.
    fn follows(&self) -> bool {
        self.scene.way == Way::User(Strategy::Affine)
    }

    /// Whether a thread looks into the mailbox.
    fn is_polled(&self) -> bool {
        match self.scene.way {
            Way::Module | Way::User(Strategy::BusyPoll | Strategy::Dispatcher) => true,
            Way::User(Strategy::LeaderFollower | Strategy::Adaptive) => self.shared.station.seat.is_taken(),
            Way::User(Strategy::Event | Strategy::Affine) => false,
        }
    }

    fn beats(&self) -> u64 {
        match &self.shared.means {
            Means::Module { beats, .. } => beats.load(Ordering::Relaxed),
            Means::User { dispatcher: Some(dispatcher), .. } => dispatcher.beats(),
            Means::User { dispatcher: None, .. } => self.shared.station.seat.beats(),
        }
    }

    /// The processor time of all threads but the source and the neighbour.
    fn others_time(&self) -> Duration {
        let hog = Duration::from_nanos(self.hog_time.load(Ordering::Relaxed));
        process_time().saturating_sub(thread_time()).saturating_sub(hog)
    }
}
