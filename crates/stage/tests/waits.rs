//! What a waiting thread does, call by call, under a script of a seed: the script is its clock, its scheduler, its work and all other threads.
//!
//! `waits.txt` is the golden text: how often each strategy did what in all scripts, and a sum over every call with its time. A change of
//! a strategy shows there as changed numbers. `HIGHWIRE_BLESS=1` writes it anew.

use highwire_stdx::Rng;
use highwire_wake::world::{self, Step, World};
use highwire_wake::{Account, Core, Leading, Slept, Station, Strategy, Turn, Wait, WakeWord, Work};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SEEDS: u64 = 400;
const WAITS: u32 = 60;

/// Everything that is not the strategy.
struct Script {
    rng: RefCell<Rng>,
    now: Cell<u64>,
    /// The thread's event is there.
    is_there: Cell<bool>,
    /// The thread's word, and the seat while another thread leads.
    word: Arc<WakeWord>,
    station: &'static Station,
    other: RefCell<Option<Leading<'static>>>,
    /// How kind this script is: how often events come, how often a thread loses its core, how many threads want to run.
    events: f64,
    losses: f64,
    crowd: u64,
    can_rest: bool,
    sleeps_elsewhere: bool,
    others_poll: f64,
    calls: RefCell<BTreeMap<&'static str, u64>>,
    sum: Cell<u64>,
}

impl Script {
    fn new(seed: u64, station: &'static Station) -> Script {
        let mut rng = Rng::new(seed);
        let mut one_of = |choices: [f64; 4]| choices[rng.below(4) as usize];
        let (events, losses) = (one_of([0.001, 0.02, 0.1, 0.4]), one_of([0.0, 0.0, 0.001, 0.02]));
        let others_poll = one_of([0.0, 0.0, 0.0, 0.5]);
        let crowd = rng.below(5);
        let (can_rest, sleeps_elsewhere) = (rng.chance(0.8), rng.chance(0.1));
        Script {
            rng: RefCell::new(rng),
            now: Cell::new(0),
            is_there: Cell::new(false),
            word: Arc::default(),
            station,
            other: RefCell::default(),
            events,
            losses,
            crowd,
            can_rest,
            sleeps_elsewhere,
            others_poll,
            calls: RefCell::default(),
            sum: Cell::new(0xcbf2_9ce4_8422_2325),
        }
    }

    fn chance(&self, chance: f64) -> bool {
        self.rng.borrow_mut().chance(chance)
    }

    fn below(&self, limit: u64) -> u64 {
        self.rng.borrow_mut().below(limit)
    }

    fn pass(&self, nanos: u64) {
        self.now.set(self.now.get() + nanos);
    }

    /// Some time, short ones as likely as long ones.
    fn pass_long(&self) {
        let magnitude = self.below(10);
        self.pass(500 + self.below(1000 << magnitude));
    }

    fn note(&self, call: &'static str, says: u64) {
        *self.calls.borrow_mut().entry(call).or_default() += 1;
        let mut sum = self.sum.get();
        for part in [call.len() as u64, u64::from(call.as_bytes()[0]), says, self.now.get()] {
            sum = (sum ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        }
        self.sum.set(sum);
    }

    /// The thread's event comes by another thread.
    fn tell(&self) {
        self.is_there.set(true);
        self.word.post();
    }

    /// The thread that leads goes, and calls another one or not.
    fn other_goes(&self) {
        if let Some(leading) = self.other.borrow_mut().take() {
            if self.chance(0.7) {
                leading.pass_on();
            } else {
                drop(leading);
            }
        }
    }
}

impl World for Script {
    fn now(&self) -> Duration {
        self.pass(30);
        if self.chance(self.losses) {
            self.pass(300_000);
        }
        Duration::from_nanos(self.now.get())
    }
    fn step(&self, _step: Step) {}
    fn sleep(&self, _word: usize, is_unchanged: &dyn Fn() -> bool, timeout: Option<Duration>) -> Slept {
        self.note("sleep", timeout.map_or(0, |timeout| timeout.as_nanos() as u64));
        if !is_unchanged() {
            return Slept::Posted;
        }
        assert!(!self.is_there.get(), "it falls asleep though its event is there, and nobody will wake it");
        self.pass_long();
        match self.below(10) {
            0 if timeout.is_some() => return Slept::TimedOut,
            1 => return Slept::Interrupted,
            2 | 3 => self.other_goes(),
            4 => {}
            _ => self.tell(),
        }
        Slept::Posted
    }
    fn wake(&self, _word: usize, _all: bool) -> u32 {
        self.note("wake", 0);
        1
    }
    fn yield_core(&self) {
        self.note("yield", 0);
        self.pass(400);
    }
    fn core(&self) -> Core {
        0
    }
    fn pin(&self, _cores: &[Core]) -> bool {
        true
    }
    fn machine_cores(&self) -> usize {
        2
    }
    fn run_only_when_idle(&self) {}
    fn thread_time(&self) -> Duration {
        Duration::ZERO
    }
    fn process_time(&self) -> Duration {
        Duration::ZERO
    }
    fn runnable_threads(&self) -> usize {
        self.note("census", 0);
        self.below(self.crowd + 1) as usize
    }
}

impl Work for Script {
    fn turn(&self) -> Turn {
        self.pass(50 + self.below(50));
        let turn = if self.chance(self.events) {
            match self.below(4) {
                0 => Turn::Woke,
                1 => Turn::Worked,
                2 => {
                    self.tell();
                    Turn::Woke
                }
                _ => {
                    self.tell();
                    Turn::Worked
                }
            }
        } else if self.chance(0.01) {
            Turn::Taken
        } else {
            Turn::Idle
        };
        self.note("turn", turn as u64);
        turn
    }
    fn hand_over(&self) {
        self.note("hand over", 0);
    }
    fn sleeps_elsewhere(&self) -> bool {
        self.sleeps_elsewhere
    }
    fn leave_to_leader(&self) {
        self.note("leave to leader", 0);
    }
    fn shares_core(&self) -> bool {
        let shares = self.chance(self.others_poll);
        self.note("shares core", u64::from(shares));
        shares
    }
    fn make_way(&self) {
        self.note("make way", 0);
        self.pass(2_000);
    }
    fn rest(&self, word: &WakeWord, seen: u32, deadline: Option<Instant>) -> Option<Slept> {
        self.note("rest", u64::from(word.posts() == seen));
        if !self.can_rest {
            return None;
        }
        if word.posts() != seen {
            return Some(Slept::Posted);
        }
        assert!(!self.is_there.get(), "it rests though its event is there, and nobody will ring");
        self.pass_long();
        Some(match self.below(12) {
            0 if deadline.is_some_and(|deadline| world::now() >= deadline) => Slept::TimedOut,
            1 => Slept::TimedOut,
            2 => Slept::Interrupted,
            3 | 4 => {
                self.tell();
                Slept::Posted
            }
            5 => {
                // An event of which the thread was not told.
                self.is_there.set(true);
                Slept::TimedOut
            }
            _ => Slept::Posted,
        })
    }
}

/// Plays the waits of one thread; counts what it did, and sums up all its calls.
fn play(strategy: Strategy, seed: u64) -> (BTreeMap<&'static str, u64>, u64) {
    let station: &'static Station = Box::leak(Box::default());
    let script = Rc::new(Script::new(seed, station));
    let entered = world::enter(Rc::clone(&script) as Rc<dyn World>);
    let (strategy, account) = (strategy.make(), Account::default());
    let place = station.seat.enroll(&script.word);
    for _ in 0..WAITS {
        if script.chance(0.2) {
            *script.other.borrow_mut() = script.station.seat.try_take();
        }
        let deadline =
            script.chance(0.2).then(|| world::now() + Duration::from_nanos(script.below(2_000_000)));
        let is_over = || {
            let is_there = script.is_there.get();
            script.note("look", u64::from(is_there));
            if !is_there && script.chance(0.03) {
                // Another thread brings it right after this look.
                script.tell();
            }
            is_there
        };
        let wait = Wait {
            word: &script.word,
            place,
            account: &account,
            is_over: &is_over,
            work: &*script,
            deadline,
        };
        let outcome = strategy.wait(station, &wait);
        script.note("end", outcome as u64);
        script.note("posts", u64::from(script.word.posts()));
        script.note("beats", station.seat.beats());
        script.note("taken", u64::from(station.seat.is_taken()));
        script.is_there.set(false);
        script.other_goes();
        assert!(!station.seat.is_taken(), "a thread that has gone leads");
        if script.chance(0.5) {
            script.pass_long();
        }
    }
    account.figures().values().iter().for_each(|&figure| script.note("figure", figure));
    drop(entered);
    (script.calls.take(), script.sum.get())
}

#[test]
fn strategies_do_call_by_call_what_they_did() {
    let mut text = String::new();
    for strategy in [Strategy::LeaderFollower, Strategy::Adaptive, Strategy::Event] {
        let (mut calls, mut sum) = (BTreeMap::<_, u64>::new(), 0u64);
        for seed in 0..SEEDS {
            let (counted, summed) = play(strategy, seed);
            counted.into_iter().for_each(|(call, count)| *calls.entry(call).or_default() += count);
            sum = sum.rotate_left(1) ^ summed;
        }
        calls.retain(|call, _| !["figure", "posts", "beats", "taken", "end"].contains(call));
        let _ = writeln!(text, "{strategy}, {SEEDS} scripts of {WAITS} waits: sum {sum:016x}");
        for (call, count) in calls {
            let _ = writeln!(text, "{call:>16} {count}");
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/waits.txt");
    if std::env::var_os("HIGHWIRE_BLESS").is_some() {
        std::fs::write(path, &text).expect("the golden text is written");
    }
    let golden = std::fs::read_to_string(path).expect("the golden text is there");
    assert_eq!(text, golden, "a strategy does something else; HIGHWIRE_BLESS=1 if that is meant");
}
