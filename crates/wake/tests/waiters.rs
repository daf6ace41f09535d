//! Threads that wait, in steps of a seeded order: some lead, some follow, and no wake-up is lost.
//!
//! What a thread does in one atomic step is one step here; memory is sequentially consistent (weaker orders are loom's part, `model.rs`).
//! What each thread does next is the state machine's choice. No sleep ends by time, and the background thread works only when it is told:
//! whatever is forgotten stays forgotten. Planted mistakes in the order of steps have to be found.

use highwire_stdx::{Duration, Instant, Rng};
use highwire_wake::Choice;
use highwire_wake::duty::{Happened, Stance, Told, Waiter};

const THREADS_MAX: u64 = 3;
const STEPS: u32 = 600;
const SEEDS: u64 = 20_000;
/// Some mistakes show in few worlds.
const PLANTED_SEEDS: u64 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    /// A leader goes and tells nobody.
    GoesInSilence,
    /// A thread looks at the seat before it enters its name.
    EntersTooLate,
    /// A follower reads the count of posts after it has looked for its event.
    ReadsTooLate,
    /// A thread that finds an event posts before the event is visible.
    PostsTooSoon,
    /// A leader rests although there was a post since it looked.
    RestsBlindly,
    /// A thread that cannot rest sleeps and tells nobody.
    SleepsInSilence,
    /// It keeps the seat meanwhile.
    KeepsTheSeat,
    /// It leaves its name among the followers.
    LeavesItsName,
    /// A leader calls followers before it leaves the seat.
    CallsTooSoon,
    /// A leader leaves the seat to threads that are away, and does not look again whether one is.
    DefersBlindly,
    /// A thread that is back counts as away until it has looked at the seat.
    ComesBackTooLate,
    /// A thread that was woken counts as away only once the thread that has woken it goes on.
    CountsTooLate,
    /// A follower that was called to the seat goes with its event instead.
    IgnoresTheCall,
}

impl Planted {
    const ALL: [Planted; 13] = [
        Planted::GoesInSilence,
        Planted::EntersTooLate,
        Planted::ReadsTooLate,
        Planted::PostsTooSoon,
        Planted::RestsBlindly,
        Planted::SleepsInSilence,
        Planted::KeepsTheSeat,
        Planted::LeavesItsName,
        Planted::CallsTooSoon,
        Planted::DefersBlindly,
        Planted::ComesBackTooLate,
        Planted::CountsTooLate,
        Planted::IgnoresTheCall,
    ];
}

struct Thread {
    waiter: Waiter,
    /// It does something else than to wait.
    is_away: bool,
    /// How far it is in what its stance demands.
    at: u32,
    /// The posts that it has read, and what it saw of the seat.
    seen: u32,
    saw_taken: bool,
    is_asleep: bool,
    /// It had the seat when its wait ended.
    led: bool,
    /// Its word, its event, and its name among the followers.
    posts: u32,
    has_event: bool,
    is_named: bool,
    /// It counts as away with an event.
    is_counted: bool,
    /// It has led in this wait, and could not rest.
    gave_up: bool,
}

struct World {
    rng: Rng,
    planted: Option<Planted>,
    now: Instant,
    can_rest: bool,
    /// The threads share a core: leaders leave the seat to threads that are away.
    shares_core: bool,
    threads: Vec<Thread>,
    seat: Option<usize>,
    /// Packets that lie in the lanes: each has an event for a thread.
    packets: Vec<usize>,
    /// The threads of events that were found, which have yet to be told.
    found: Vec<usize>,
    /// Threads that were woken, and have yet to be counted as away.
    uncounted: Vec<usize>,
    background_works: bool,
    /// The leader that went last has called nobody: it will soon be back, or has left its work to the background thread.
    is_seat_kept: bool,
    /// It has left the seat to threads that are away.
    is_seat_left: bool,
    stances: [u32; Stance::ALL.len()],
}

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> World {
        let mut rng = Rng::new(seed);
        let thread = || Thread {
            waiter: Waiter::new(Instant::ZERO, None),
            is_away: true,
            at: 0,
            seen: 0,
            saw_taken: false,
            is_asleep: false,
            led: false,
            posts: 0,
            has_event: false,
            is_named: false,
            is_counted: false,
            gave_up: false,
        };
        let shares_core = rng.chance(0.5);
        let threads = THREADS_MAX - u64::from(shares_core && rng.chance(0.5));
        World {
            can_rest: rng.chance(0.7),
            shares_core,
            rng,
            planted,
            now: Instant::ZERO,
            threads: (0..threads).map(|_| thread()).collect(),
            seat: None,
            packets: Vec::new(),
            found: Vec::new(),
            uncounted: Vec::new(),
            background_works: false,
            is_seat_kept: false,
            is_seat_left: false,
            stances: [0; Stance::ALL.len()],
        }
    }

    /// A step of one thread, or a packet.
    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(10) {
            0 => {
                let whose = self.rng.below(self.threads.len() as u64) as usize;
                self.packets.push(whose);
            }
            1 => {
                self.background();
                let late = self.uncounted.pop();
                late.into_iter().for_each(|number| self.threads[number].is_counted = true);
            }
            // A thread that posts or polls runs the lanes for a step, and waits for nothing.
            2 => drop(self.find()),
            _ => {
                let thread = self.rng.below(self.threads.len() as u64) as usize;
                let returns = self.rng.chance(0.3);
                self.run(thread, returns);
            }
        }
        self.check()
    }

    /// Every step is taken until nothing happens any more: then every thread that waits has what is for it.
    fn settle(&mut self) -> Result<(), String> {
        // A thread that found something has told it by then.
        while !self.found.is_empty() {
            self.find();
        }
        for _ in 0..400 {
            self.background();
            for thread in 0..self.threads.len() {
                self.run(thread, false);
            }
            self.check()?;
        }
        let is_waited = |thread: &Thread| !thread.is_away;
        for (number, thread) in self.threads.iter().enumerate().filter(|(_, thread)| is_waited(thread)) {
            if thread.has_event || self.packets.contains(&number) {
                let stance = thread.waiter.stance();
                return Err(format!("thread {number} is {} and never has its event", stance.name()));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let leads = |thread: &&Thread| !thread.is_away && thread.waiter.stance().manner().leads;
        if self.threads.iter().filter(leads).count() > 1 {
            return Err("two threads lead".to_owned());
        }
        for (number, thread) in self.threads.iter().enumerate().filter(|(_, thread)| !thread.is_away) {
            let stance = thread.waiter.stance();
            let rests = stance == Stance::Resting && thread.at > 3 && thread.seen == thread.posts;
            let is_to_be_told = self.found.contains(&number);
            if (thread.is_asleep || rests) && thread.has_event && !is_to_be_told {
                return Err(format!("thread {number} is {} though its event is there", stance.name()));
            }
        }
        // Nobody is about to take the seat or to call a thread to it, and it was not left to a thread that is away.
        let is_idle = |thread: &Thread| {
            let is_awaited = self.is_seat_left && thread.is_counted;
            (thread.is_away && !is_awaited) || thread.is_asleep
        };
        let follows = |thread: &Thread| {
            thread.is_asleep && matches!(thread.waiter.stance(), Stance::Following | Stance::Deferring)
        };
        if self.seat.is_none()
            && !self.is_seat_kept
            && self.threads.iter().all(is_idle)
            && self.threads.iter().any(follows)
        {
            return Err("the seat stays empty beside a follower".to_owned());
        }
        Ok(())
    }

    /// The thread that takes packets finds one event, in two steps: it makes it visible, and it tells the thread.
    fn find(&mut self) -> Option<usize> {
        if let Some(whose) = self.found.pop() {
            if self.planted == Some(Planted::PostsTooSoon) {
                self.threads[whose].has_event = true;
            } else {
                self.tell(whose);
            }
            return Some(whose);
        }
        let whose = self.packets.pop()?;
        if self.planted == Some(Planted::PostsTooSoon) {
            self.tell(whose);
        } else {
            self.threads[whose].has_event = true;
        }
        self.found.push(whose);
        None
    }

    /// Posts for an event. A thread that sleeps counts as away before it is woken.
    fn tell(&mut self, whose: usize) {
        if self.threads[whose].is_asleep {
            if self.planted == Some(Planted::CountsTooLate) {
                self.uncounted.push(whose);
            } else {
                self.threads[whose].is_counted = true;
            }
        }
        self.post(whose);
    }

    fn post(&mut self, whose: usize) -> bool {
        let thread = &mut self.threads[whose];
        thread.posts += 1;
        std::mem::take(&mut thread.is_asleep)
    }

    fn background(&mut self) {
        if self.seat.is_some() {
            self.background_works = false;
        } else if self.background_works {
            self.find();
        }
    }

    fn on(&mut self, number: usize, happened: Happened) {
        let thread = &mut self.threads[number];
        thread.waiter.on(happened, self.now);
        thread.at = 0;
    }

    fn run(&mut self, number: usize, returns: bool) {
        self.now += Duration::from_micros(1);
        let thread = &mut self.threads[number];
        if thread.is_away {
            if returns {
                (thread.is_away, thread.at, thread.gave_up) = (false, 0, false);
                thread.is_counted &= self.planted == Some(Planted::ComesBackTooLate);
                thread.waiter = Waiter::new(self.now, None);
            }
            return;
        }
        if thread.is_asleep {
            return;
        }
        let stance = thread.waiter.stance();
        self.stances[stance as usize] += 1;
        match stance {
            Stance::Arriving => self.arrive(number),
            Stance::Choosing | Stance::Polling | Stance::Glancing if self.is_relieved(number) => {
                self.on(number, Happened::Relieved);
            }
            Stance::Seated | Stance::Choosing => {
                let choice = match self.rng.below(3) {
                    0 => Choice::Poll(1),
                    1 => Choice::Trial(1),
                    _ => Choice::Sleep,
                };
                let thread = &mut self.threads[number];
                thread.waiter.choose(choice);
                thread.at = 0;
            }
            Stance::Polling | Stance::Trying | Stance::Glancing => {
                if self.threads[number].has_event {
                    return self.on(number, Happened::Own);
                }
                match self.find() {
                    Some(whose) if whose != number && stance == Stance::Trying => {
                        self.on(number, Happened::Other);
                    }
                    // A turn is over once all that it found was told.
                    None if self.found.is_empty() && (stance == Stance::Glancing || self.rng.chance(0.3)) => {
                        self.on(number, Happened::Vain);
                    }
                    _ => {}
                }
            }
            Stance::Resting => self.rest(number),
            Stance::Deferring => self.defer(number),
            Stance::Serving => match self.find() {
                Some(whose) if whose != number => self.on(number, Happened::Other),
                _ if self.threads[number].has_event => self.on(number, Happened::Own),
                _ if self.found.is_empty() => self.on(number, Happened::Nothing),
                _ => {}
            },
            Stance::Following | Stance::Sleeping => self.sleep(number, stance),
            Stance::Done => self.leave(number),
        }
    }

    fn arrive(&mut self, number: usize) {
        let is_taken = self.seat.is_some();
        let (planted, now) = (self.planted, self.now);
        let thread = &mut self.threads[number];
        thread.at += 1;
        match thread.at {
            1 => thread.seen = thread.posts,
            2 if !is_taken => {
                thread.waiter.lead(now);
                thread.at = 0;
                (self.seat, self.is_seat_left) = (Some(number), false);
            }
            2 => {}
            3 if thread.has_event => self.on(number, Happened::Own),
            3 => {
                if planted == Some(Planted::ReadsTooLate) {
                    thread.at = 10;
                }
            }
            4 => match planted {
                Some(Planted::EntersTooLate) => thread.saw_taken = is_taken,
                _ => thread.is_named = true,
            },
            11 => {
                thread.seen = thread.posts;
                thread.at = 3;
            }
            _ => {
                let mut saw = is_taken;
                if planted == Some(Planted::EntersTooLate) {
                    thread.is_named = true;
                    saw = thread.saw_taken;
                }
                self.on(number, if saw { Happened::Led } else { Happened::SeatLeft });
            }
        }
    }

    /// Once all that the last turn found was told, it may leave the seat to threads that are away.
    fn is_relieved(&mut self, number: usize) -> bool {
        self.shares_core && self.found.is_empty() && self.is_any_away(number) && self.rng.chance(0.5)
    }

    fn is_any_away(&self, number: usize) -> bool {
        self.threads.iter().enumerate().any(|(other, thread)| other != number && thread.is_counted)
    }

    /// A leader leaves the seat to threads that are away. If they stay away for long, the background thread works.
    fn defer(&mut self, number: usize) {
        let (is_taken, is_any_away) = (self.seat.is_some(), self.is_any_away(number));
        let is_blind = self.planted == Some(Planted::DefersBlindly);
        let goes_at_once = self.goes_at_once(number);
        let thread = &mut self.threads[number];
        thread.at += 1;
        match thread.at {
            1 => {
                (self.seat, self.is_seat_kept, self.is_seat_left) = (None, false, true);
                self.background_works = true;
            }
            2 => thread.seen = thread.posts,
            3 => thread.is_named = true,
            4 => thread.saw_taken = is_taken,
            5 if thread.has_event => self.on(number, Happened::Own),
            5 if thread.saw_taken => self.on(number, Happened::Led),
            5 if !is_any_away && !is_blind => self.on(number, Happened::SeatLeft),
            5 => self.is_seat_left = true,
            6 => thread.is_asleep = thread.seen == thread.posts,
            _ if goes_at_once => self.on(number, Happened::Own),
            _ => self.on(number, Happened::Woken),
        }
    }

    fn rest(&mut self, number: usize) {
        let (planted, can_rest, is_quiet) = (self.planted, self.can_rest, self.packets.is_empty());
        let thread = &mut self.threads[number];
        thread.at += 1;
        match thread.at {
            1 => thread.seen = thread.posts,
            2 if thread.has_event => self.on(number, Happened::Own),
            2 => {}
            3 if !can_rest => {
                thread.gave_up = true;
                if planted != Some(Planted::KeepsTheSeat) {
                    (self.seat, self.is_seat_kept) = (None, true);
                }
                if planted != Some(Planted::LeavesItsName) {
                    thread.is_named = false;
                }
                self.on(number, Happened::CannotRest);
            }
            3 => {
                if planted == Some(Planted::RestsBlindly) {
                    thread.seen = thread.posts;
                }
            }
            // It sleeps as long as no packet comes, and no post.
            _ if is_quiet && thread.seen == thread.posts => {}
            _ => self.on(number, Happened::Woken),
        }
    }

    /// A follower that was woken goes with its event, unless it was called to the seat.
    fn goes_at_once(&self, number: usize) -> bool {
        let thread = &self.threads[number];
        thread.has_event && (thread.is_named || self.planted == Some(Planted::IgnoresTheCall))
    }

    fn sleep(&mut self, number: usize, stance: Stance) {
        let planted = self.planted;
        let goes_at_once = self.goes_at_once(number);
        let thread = &mut self.threads[number];
        thread.at += 1;
        match thread.at {
            1 if stance == Stance::Sleeping => thread.seen = thread.posts,
            2 if stance == Stance::Sleeping && thread.has_event => self.on(number, Happened::Own),
            1 | 2 => {}
            3 => {
                if stance.manner().tells == Some(Told::Background)
                    && planted != Some(Planted::SleepsInSilence)
                {
                    self.background_works = true;
                }
            }
            // The kernel compares once more.
            4 => {
                thread.is_asleep = thread.seen == thread.posts;
                thread.is_counted &= planted != Some(Planted::ComesBackTooLate) || !thread.is_asleep;
            }
            _ if stance == Stance::Following && goes_at_once => self.on(number, Happened::Own),
            _ => self.on(number, Happened::Woken),
        }
    }

    /// A leader leaves the seat, and calls a follower, or the background thread if no other thread leads by then.
    fn leave(&mut self, number: usize) {
        let calls_first = self.planted == Some(Planted::CallsTooSoon);
        let leads = self.seat == Some(number);
        let thread = &mut self.threads[number];
        thread.at += 1;
        match thread.at {
            1 => {
                thread.led = leads;
                thread.is_counted = true;
                if leads && calls_first {
                    self.call();
                } else if leads {
                    self.seat = None;
                }
            }
            2 if leads && calls_first => (self.seat, self.is_seat_kept) = (None, false),
            2 if thread.led && self.planted == Some(Planted::GoesInSilence) => self.is_seat_kept = false,
            2 if thread.led => {
                // It is about to be back, or there is no follower.
                self.is_seat_kept = self.rng.chance(0.3);
                if (self.is_seat_kept || !self.call()) && self.seat.is_none() {
                    self.background_works = true;
                }
            }
            // It has left the seat before, to sleep on its word, and called nobody.
            2 if thread.gave_up && self.seat.is_none() => self.background_works = true,
            2 => {}
            _ => (thread.is_away, thread.has_event) = (true, false),
        }
    }

    fn call(&mut self) -> bool {
        for number in 0..self.threads.len() {
            if std::mem::take(&mut self.threads[number].is_named) && self.post(number) {
                return true;
            }
        }
        false
    }
}

fn play(seed: u64, planted: Option<Planted>) -> Result<World, String> {
    let mut world = World::new(seed, planted);
    (0..STEPS).try_for_each(|_| world.step())?;
    world.settle()?;
    Ok(world)
}

#[test]
fn every_thread_that_waits_has_its_event_and_one_leads_at_most() {
    let mut stances = [0u32; Stance::ALL.len()];
    for seed in 0..SEEDS {
        let world = play(seed, None).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        stances.iter_mut().zip(world.stances).for_each(|(sum, times)| *sum += times);
    }
    assert!(stances.iter().all(|&times| times > 1_000), "each was played: {stances:?}");
}

#[test]
fn every_planted_mistake_is_found() {
    for planted in Planted::ALL {
        let found = (0..PLANTED_SEEDS)
            .find_map(|seed| play(seed, Some(planted)).err().map(|problem| (seed, problem)));
        let (seed, problem) =
            found.unwrap_or_else(|| panic!("{planted:?} was not found in {PLANTED_SEEDS} worlds"));
        println!("{planted:?}: seed {seed}: {problem}");
    }
}
