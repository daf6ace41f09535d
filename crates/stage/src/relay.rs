//! Threads that pass events to each other: as many events as a machine can do, each of which finds a thread asleep or nearly so.
//!
//! A thread waits for its event and sends one to another thread, drawn at random, that has none under way; then it waits again. So
//! many events are under way at a time, no thread spins for an answer, and where all cores have something to do a wake-up costs a
//! switch. As no thread ever has two events under way, no later event makes up for a wake-up that was lost: the thread sleeps until the
//! watcher finds it.
//!
//! A waiting thread polls, arms and polls again, as a program does with a completion queue: an event is posted only to a thread that has
//! armed. The threads of a core share a station. Where the strategy has a thread that polls, an event is left in the station's mail, and
//! delivered by that thread; otherwise the thread that sends it delivers it.
//!
//! Why no mail is left lying: a sender leaves the mail and then looks whether a thread polls; a thread that has polled leaves the seat and
//! then looks for mail, before it does anything else. A full fence between the two steps on both sides. A dispatcher may wait for its core
//! behind all other threads of the machine; where it has not run since the watcher looked, the watcher delivers.

mod watcher;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use highwire_stdx::Rng;
use highwire_wake::{
    Account, Core, Dispatcher, Posted, Station, Strategy, Turn, Wait, WakeStrategy, WakeWord, Work, pin,
    yield_core,
};

use crate::hands::STACK_BYTES;

/// What is to be played.
#[derive(Clone, Copy, Debug)]
pub struct Relay {
    /// How they wait; one that sleeps.
    pub strategy: Strategy,
    /// Two at least.
    pub threads: u32,
    /// Events that are under way at a time: at most half as many as threads.
    pub depth: u32,
    /// The threads keep to their stations' cores; otherwise the system moves them.
    pub is_pinned: bool,
    /// How many events, or fewer if they take longer than this.
    pub events: u64,
    /// Where threads have no core for themselves, strategies that poll are slow.
    pub longest: Duration,
    /// Whose events they are follows from it, and from who comes first.
    pub seed: u64,
    /// A thread that sleeps for so long while its event is under way has lost it. Time during which the whole process is stopped does not
    /// count.
    pub patience: Duration,
    /// A defect.
    pub planted: Option<Planted>,
}

/// A defect that the soak is to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// From this event on the next thread that sleeps, or is about to, is not told of its event; one of each station.
    Untold(u64),
    /// A waiting thread looks for its event for the last time and arms then, not the other way round.
    ArmsLate,
}

/// How long a thread with [`Planted::ArmsLate`] takes from its last look to its arming.
const PLANTED_WINDOW: Duration = Duration::from_micros(50);

/// How the events were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relayed {
    /// All of them.
    pub events: u64,
    /// Was there when the thread polled, before it armed.
    pub polled: u64,
    /// Came between that and the thread's sleep: a look after arming found it.
    pub looked: u64,
    /// A thread found it that polled as the leader.
    pub led: u64,
    /// Its thread slept, or had said that it was about to, and was woken.
    pub woken: u64,
}

/// Why a relay did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// A thread sleeps though its event is under way.
    #[error("a wake-up was lost: {0}")]
    Lost(Lost),
    /// There is no room for another thread.
    #[error("cannot start a thread")]
    Start(#[source] std::io::Error),
    /// One of the threads panicked.
    #[error("a thread panicked")]
    Panicked,
}

/// A lost wake-up.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "{} with {} threads, {} events under way, seed {}: thread {thread} {} for {} s after {taken} events, and its next one {}",
    relay.strategy, relay.threads, relay.depth, relay.seed,
    if *is_asleep { "has slept" } else { "has not come" }, waited.as_secs(),
    if *is_there { "is there" } else { "lies in the mail" }
)]
pub struct Lost {
    /// Of this relay.
    pub relay: Relay,
    /// The thread that waits.
    pub thread: u32,
    /// What it has had.
    pub taken: u64,
    /// It sleeps; otherwise it has not had a core for very long.
    pub is_asleep: bool,
    /// The event has been delivered.
    pub is_there: bool,
    /// For so long.
    pub waited: Duration,
}

struct Shared {
    relay: Relay,
    groups: Vec<Group>,
    places: Vec<Place>,
    tokens: Vec<Token>,
    ready: AtomicU32,
    /// Tokens that are still passed on.
    playing: AtomicU32,
    /// No further event is sent.
    is_ending: AtomicBool,
    is_over: AtomicBool,
    /// Where the watcher sleeps.
    end: WakeWord,
}

/// The threads of a core, and what they share.
struct Group {
    station: Station,
    strategy: Arc<dyn WakeStrategy>,
    dispatcher: Option<Arc<Dispatcher>>,
    /// A bit for each thread whose event is to be delivered.
    mail: Vec<AtomicU64>,
    /// How often the dispatcher had run when the watcher looked.
    heard: AtomicU64,
    /// Events that were delivered, for the planted defect alone, and whether it has happened.
    delivered: AtomicU64,
    has_kept: AtomicBool,
}

/// One waiting thread's own.
#[derive(Default)]
#[repr(align(128))]
struct Place {
    word: Arc<WakeWord>,
    account: Account,
    /// The thread's place at its group's seat, and its number within the group.
    seat: Option<usize>,
    /// Has an event under way, or has not taken it yet; and which token that is.
    is_chosen: AtomicBool,
    token: AtomicU32,
    is_armed: AtomicBool,
    there: AtomicU64,
    taken: AtomicU64,
    polled: AtomicU64,
    woken: AtomicU64,
    /// As the system numbers threads.
    number: AtomicU64,
}

/// Who has it sends the next event.
#[repr(align(128))]
struct Token {
    left: AtomicU64,
}

impl Relay {
    /// Plays it, with a station for each of the cores.
    ///
    /// # Errors
    /// A wake-up was lost, or a thread could not be started.
    pub fn play(self, cores: &[Core]) -> Result<Relayed, RelayError> {
        let shared = Shared::new(self, cores.len());
        std::thread::scope(|scope| {
            let ended = shared.start(scope, cores).and_then(|threads| watcher::watch(&shared, &threads));
            // Or the scope would wait for threads that sleep.
            shared.finish();
            ended
        })?;
        Ok(shared.relayed())
    }
}

impl Shared {
    fn new(relay: Relay, cores: usize) -> Shared {
        let threads = relay.threads.max(2);
        let relay = Relay { threads, depth: relay.depth.clamp(1, threads / 2), ..relay };
        let count = cores.clamp(1, threads as usize);
        let in_group = (threads as usize).div_ceil(count);
        let groups: Vec<Group> = (0..count).map(|_| Group::new(relay.strategy, in_group)).collect();
        let place = |number: usize| {
            let word = Arc::<WakeWord>::default();
            let seat = groups[number % count].station.seat.enroll(&word);
            Place { word, seat, ..Place::default() }
        };
        let places = (0..threads as usize).map(place).collect();
        let (depth, events) = (u64::from(relay.depth), relay.events);
        let share = |token: u64| Token { left: (events / depth + u64::from(token < events % depth)).into() };
        Shared {
            relay,
            groups,
            places,
            tokens: (0..depth).map(share).collect(),
            ready: AtomicU32::new(0),
            playing: AtomicU32::new(relay.depth),
            is_ending: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            end: WakeWord::default(),
        }
    }

    fn start<'a>(
        &'a self,
        scope: &'a Scope<'a, '_>,
        cores: &[Core],
    ) -> Result<watcher::Threads<'a>, RelayError> {
        let builder = || Builder::new().stack_size(STACK_BYTES);
        let mut threads = Vec::new();
        let home = |group: usize| self.relay.is_pinned.then(|| cores.get(group).copied()).flatten();
        for number in 0..self.places.len() {
            let core = home(number % self.groups.len());
            let body = move || {
                core.inspect(|core| drop(pin(&[*core])));
                self.serve(number);
            };
            threads.push(builder().spawn_scoped(scope, body).map_err(RelayError::Start)?);
        }
        for (index, group) in self.groups.iter().enumerate() {
            let Some(dispatcher) = &group.dispatcher else { continue };
            let core = home(index);
            let body = move || {
                core.inspect(|core| drop(pin(&[*core])));
                dispatcher.serve(&Mail { shared: self, group: index });
            };
            threads.push(builder().spawn_scoped(scope, body).map_err(RelayError::Start)?);
        }
        while (self.ready.load(Ordering::Acquire) as usize) < self.places.len() {
            yield_core();
        }
        let mut rng = Rng::new(self.relay.seed);
        for token in 0..self.tokens.len() {
            self.pass_on(token, None, &mut rng);
        }
        Ok(threads)
    }

    /// What a thread does: wait, take, send, again.
    fn serve(&self, number: usize) {
        let place = &self.places[number];
        let group = number % self.groups.len();
        let mut rng = Rng::new(self.relay.seed.wrapping_mul(0x9e37_79b9) ^ ((number as u64 + 1) << 32));
        let mut taken = 0;
        place.number.store(watcher::own_number(), Ordering::Relaxed);
        self.ready.fetch_add(1, Ordering::Release);
        loop {
            if place.there.load(Ordering::Acquire) == taken {
                self.wait(group, place, taken);
            } else {
                place.polled.fetch_add(1, Ordering::Relaxed);
            }
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            // Led, and leads no more: see above.
            self.deliver_unless_polled(group);
            taken += 1;
            assert_eq!(
                place.there.load(Ordering::Acquire),
                taken,
                "an event came twice, or a wait ended without"
            );
            place.taken.store(taken, Ordering::Relaxed);
            let token = place.token.load(Ordering::Relaxed) as usize;
            place.is_chosen.store(false, Ordering::Release);
            self.pass_on(token, Some(number), &mut rng);
        }
    }

    fn wait(&self, group: usize, place: &Place, taken: u64) {
        let looks = || place.there.load(Ordering::SeqCst) != taken || self.is_over.load(Ordering::Acquire);
        // A deliverer shows the event and then looks who has armed; this is the other way round, in one order of all of them.
        let arms = || place.is_armed.store(true, Ordering::SeqCst);
        let right = || {
            arms();
            looks()
        };
        let has_looked = Cell::new(false);
        let wrong = || {
            let is_there = looks();
            if has_looked.replace(true) {
                // Without a pause the window is a few instructions wide, and how soon an event falls into it a matter of luck.
                std::thread::sleep(PLANTED_WINDOW);
                arms();
            }
            is_there
        };
        let arms_late = self.relay.planted == Some(Planted::ArmsLate);
        let is_over: &dyn Fn() -> bool = if arms_late { &wrong } else { &right };
        let wait = Wait {
            word: &place.word,
            place: place.seat,
            account: &place.account,
            is_over,
            work: &Mail { shared: self, group },
            deadline: None,
        };
        self.groups[group].strategy.wait(&self.groups[group].station, &wait);
    }

    /// Sends the token's next event to another thread than `own`, if it has one left.
    fn pass_on(&self, token: usize, own: Option<usize>, rng: &mut Rng) {
        let left = &self.tokens[token].left;
        // One thread has it.
        match left.load(Ordering::Relaxed).checked_sub(1) {
            Some(fewer) if !self.is_ending.load(Ordering::Relaxed) => left.store(fewer, Ordering::Relaxed),
            _ => {
                if self.playing.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.end.post_all();
                }
                return;
            }
        }
        // There are twice as many threads as tokens, so this finds one soon.
        let whose = loop {
            let whose = (rng.next_u64() % self.places.len() as u64) as usize;
            let is_chosen = &self.places[whose].is_chosen;
            if Some(whose) != own
                && !is_chosen.load(Ordering::Relaxed)
                && !is_chosen.swap(true, Ordering::AcqRel)
            {
                break whose;
            }
        };
        self.places[whose].token.store(token as u32, Ordering::Relaxed);
        let (group, within) = (whose % self.groups.len(), whose / self.groups.len());
        if has_poller(self.relay.strategy) {
            self.groups[group].mail[within / 64].fetch_or(1 << (within % 64), Ordering::SeqCst);
            self.deliver_unless_polled(group);
        } else {
            self.tell(whose);
        }
    }

    fn deliver_unless_polled(&self, group: usize) {
        if !has_poller(self.relay.strategy) {
            return;
        }
        // Mail or seat, then seat or mail: see above.
        fence(Ordering::SeqCst);
        if !self.groups[group].is_polled() {
            self.deliver(group);
        }
    }

    /// Takes the group's mail to its threads.
    fn deliver(&self, group: usize) -> Turn {
        let mut turn = Turn::Idle;
        for (index, mail) in self.groups[group].mail.iter().enumerate() {
            if mail.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut bits = mail.swap(0, Ordering::SeqCst);
            while bits != 0 {
                let within = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                match self.tell(within * self.groups.len() + group) {
                    Posted::Woke => turn = Turn::Woke,
                    Posted::NobodySlept if turn == Turn::Idle => turn = Turn::Worked,
                    Posted::NobodySlept => {}
                }
            }
        }
        turn
    }

    /// Shows the thread its event, and tells it if it has armed.
    fn tell(&self, whose: usize) -> Posted {
        let place = &self.places[whose];
        place.there.fetch_add(1, Ordering::SeqCst);
        if !place.is_armed.swap(false, Ordering::SeqCst) || self.is_kept_from(whose) {
            return Posted::NobodySlept;
        }
        let posted = place.word.post();
        if posted == Posted::Woke {
            place.woken.fetch_add(1, Ordering::Relaxed);
        }
        posted
    }

    /// Whether this is the planted event that its thread is not told of.
    fn is_kept_from(&self, whose: usize) -> bool {
        let Some(Planted::Untold(event)) = self.relay.planted else { return false };
        let group = &self.groups[whose % self.groups.len()];
        group.delivered.fetch_add(1, Ordering::Relaxed) >= event
            && self.places[whose].word.sleepers() > 0
            && !group.has_kept.swap(true, Ordering::Relaxed)
    }

    /// In the place of dispatchers that have not run since the last call.
    fn deliver_for_those_that_starve(&self) {
        for (index, group) in self.groups.iter().enumerate() {
            let Some(dispatcher) = &group.dispatcher else { continue };
            let beats = dispatcher.beats();
            if group.heard.swap(beats, Ordering::Relaxed) == beats {
                self.deliver(index);
            }
        }
    }

    fn finish(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.places.iter().for_each(|place| _ = place.word.post_all());
        self.groups.iter().filter_map(|group| group.dispatcher.as_ref()).for_each(|it| it.close());
    }

    fn relayed(&self) -> Relayed {
        let sum = |of: fn(&Place) -> u64| self.places.iter().map(of).sum::<u64>();
        let events = sum(|place| place.taken.load(Ordering::Relaxed));
        let polled = sum(|place| place.polled.load(Ordering::Relaxed));
        let woken = sum(|place| place.woken.load(Ordering::Relaxed));
        // A thread that was woken to lead may have been told of its event while it was.
        let led = sum(|place| place.account.figures().own()).min(events - polled - woken);
        Relayed { events, polled, led, woken, looked: events - polled - woken - led }
    }
}

impl Group {
    fn new(strategy: Strategy, threads: usize) -> Group {
        let dispatcher = (strategy == Strategy::Dispatcher).then(Arc::<Dispatcher>::default);
        Group {
            station: Station::new(),
            strategy: dispatcher.as_ref().map_or_else(|| strategy.make(), |it| Arc::clone(it) as _),
            dispatcher,
            mail: (0..threads.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            heard: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            has_kept: AtomicBool::new(false),
        }
    }

    fn is_polled(&self) -> bool {
        self.dispatcher.is_some() || self.station.seat.is_taken()
    }
}

/// Whether a thread that waits, or a dispatcher, looks for the mail.
fn has_poller(strategy: Strategy) -> bool {
    match strategy {
        Strategy::BusyPoll | Strategy::Dispatcher | Strategy::LeaderFollower | Strategy::Adaptive => true,
        Strategy::Event | Strategy::Affine => false,
    }
}

/// The mail of a group, as its leader or dispatcher sees it.
struct Mail<'a> {
    shared: &'a Shared,
    group: usize,
}

impl Work for Mail<'_> {
    fn turn(&self) -> Turn {
        let turn = self.shared.deliver(self.group);
        // The threads that are to send the next event want this core, and so may others: a poll in vain would use up this thread's share of it.
        // A dispatcher that has woken a thread makes way by its priority; in a process that itself has the lowest it does not.
        let is_dispatcher = self.shared.groups[self.group].dispatcher.is_some();
        if turn == Turn::Idle || (is_dispatcher && turn == Turn::Woke) {
            yield_core();
        }
        turn
    }

    // The thread has just left the seat, or there is none.
    fn hand_over(&self) {
        self.shared.deliver_unless_polled(self.group);
    }
}
