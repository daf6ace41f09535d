//! A device's lanes, its background thread, a thread that leads and threads that call in, in steps of a seeded order.
//!
//! What the threads of a device do in one atomic step is one step here. Memory is sequentially consistent: weaker orders are loom's
//! part (`model.rs`). The background thread and all that is said are the code that devices run.

use highwire_stdx::{Duration, Instant, Rng};
use highwire_wake::duty::{Background, Charge, Duty, Ended, Event, Found, Next, Prepared, Said, Sight};

const LANES: usize = 2;
/// What is left to a thread that sleeps without being told is seen to this soon.
const LATE_MAX: Duration = Duration::from_millis(101);
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Mistakes in what threads tell each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Planted {
    /// The leader leaves its seat, and asks nobody whether they relied on it.
    LeavesInSilence,
    /// It asks before it leaves.
    AsksTooEarly,
    /// A thread that calls in leaves a timer to a long sleep.
    VisitsInSilence,
    /// The background thread relies on a leader and does not look whether it is still there.
    DoesNotLookAgain,
    /// It sleeps although it was called meanwhile.
    SleepsThoughCalled,
    /// It sleeps beyond the lanes' timers.
    Oversleeps,
    /// A leader that rests says that it wakes sooner than it does.
    SaysTooSoon,
    /// It does not tell a leader that rests of earlier timers.
    TellsNoLeader,
}

impl Planted {
    pub(crate) const ALL: [Planted; 8] = [
        Planted::LeavesInSilence,
        Planted::AsksTooEarly,
        Planted::VisitsInSilence,
        Planted::DoesNotLookAgain,
        Planted::SleepsThoughCalled,
        Planted::Oversleeps,
        Planted::SaysTooSoon,
        Planted::TellsNoLeader,
    ];
}

#[derive(Clone, Copy, Default, Debug)]
struct Lane {
    visits: u64,
    packets: bool,
    /// The first timer, and when it was set.
    timer: Option<(Instant, Instant)>,
    /// A visitor runs it.
    is_taken: bool,
}

/// What the background thread does next.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Turn,
    Choose,
    LookAgain,
    Ask(usize),
    Tell,
    Settle,
    Asleep(Instant),
}

/// What the thread that waits does next.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Waiter {
    Away,
    Polling,
    Asks(usize, Duty, Instant),
    Resting(Instant),
    /// It is about to leave the seat. It has seen whether another thread relies on it.
    Leaves(bool),
    /// It has left the seat, and has yet to look whether another thread relied on it; what it saw before.
    Gone(bool),
    /// It has left the work, and has yet to call.
    Left,
}

pub(crate) struct World {
    rng: Rng,
    planted: Option<Planted>,
    now: Instant,
    lanes: [Lane; LANES],
    background: Background,
    step: Step,
    said: Said,
    slept_at: Instant,
    sleeps_on: [bool; LANES],
    waiter: Waiter,
    waiter_said: Said,
    is_seat_taken: bool,
    rests: bool,
    beats: u64,
    is_left: bool,
    /// A visitor that has let go of a lane, and has yet to look whether it ends a sleep.
    goes_on: bool,
    /// A thread wants to block, and has yet to look whether it must call.
    arms: bool,
    /// Now and then nothing happens for a while: for so many steps yet.
    is_quiet: bool,
    calm: u32,
    duties: [u32; Duty::ALL.len()],
}

impl World {
    pub(crate) fn new(seed: u64, planted: Option<Planted>) -> World {
        let mut rng = Rng::new(seed);
        let is_quiet = rng.chance(0.5);
        World {
            background: Background::beside_others(LANES, rng.chance(0.3)),
            rng,
            planted,
            now: Instant::from_nanos(1_000_000_000),
            lanes: [Lane::default(); LANES],
            step: Step::Turn,
            said: Said::Awake,
            slept_at: Instant::ZERO,
            sleeps_on: [false; LANES],
            waiter: Waiter::Away,
            waiter_said: Said::Awake,
            is_seat_taken: false,
            rests: false,
            beats: 0,
            is_left: false,
            goes_on: false,
            arms: false,
            is_quiet,
            calm: 0,
            duties: [0; Duty::ALL.len()],
        }
    }

    /// How often threads slept on a duty, or made turns.
    pub(crate) fn times(&self, duty: Duty) -> u32 {
        self.duties[duty as usize]
    }

    /// One step of one thread, or of the world.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        self.calm = self.calm.saturating_sub(1);
        if self.is_quiet && self.calm == 0 && self.rng.chance(0.02) {
            self.calm = 300;
            self.lanes.iter_mut().for_each(|lane| lane.is_taken = false);
        }
        match self.rng.below(if self.is_quiet { 40 } else { 12 }) {
            _ if self.calm > 0 => {
                self.finish_small_steps();
                if self.rng.chance(0.5) { self.run_waiter(false) } else { self.run_background()? }
            }
            0 => self.lane().packets = true,
            1 => self.visit(),
            2 => self.arms = true,
            3 => self.pass(Duration::from_micros(300)),
            4 => self.pass(Duration::from_millis(60)),
            5 | 6 => self.run_waiter(true),
            7 | 12..20 => self.finish_small_steps(),
            8.. if !self.rng.chance(0.5) => self.run_waiter(false),
            _ => self.run_background()?,
        }
        self.pass_if_all_sleep();
        self.check()
    }

    /// Nothing new happens, and every step is taken: all that is left is seen to, and nothing by chance.
    pub(crate) fn settle_down(&mut self) -> Result<(), String> {
        for lane in &mut self.lanes {
            lane.is_taken = false;
        }
        for _ in 0..200 {
            self.finish_small_steps();
            self.run_waiter(false);
            self.run_background()?;
            self.pass_if_all_sleep();
            self.check()?;
        }
        let first =
            self.lanes.iter().find(|lane| lane.packets || lane.timer.is_some_and(|(due, _)| due <= self.now));
        first.map_or(Ok(()), |lane| Err(format!("{lane:?} is never served: {}", self.tell())))
    }

    fn lane(&mut self) -> &mut Lane {
        let index = self.rng.below(LANES as u64) as usize;
        &mut self.lanes[index]
    }

    fn pass(&mut self, at_most: Duration) {
        self.now += Duration::from_nanos(self.rng.below(at_most.as_nanos()));
    }

    /// Time passes until the first sleep ends, if no thread has anything to do.
    fn pass_if_all_sleep(&mut self) {
        let Step::Asleep(until) = self.step else { return };
        let other = match self.waiter {
            Waiter::Away => None,
            Waiter::Resting(until) => Some(until),
            _ => return,
        };
        let is_called = [self.said, self.waiter_said].contains(&Said::Called);
        let is_taken = self.lanes.iter().any(|lane| lane.is_taken);
        let is_heard = self
            .lanes
            .iter()
            .zip(self.sleeps_on)
            .any(|(lane, sleeps)| lane.packets && (sleeps || other.is_some()));
        if !is_called && !is_taken && !self.goes_on && !self.arms && !is_heard {
            self.now = self.now.max(other.map_or(until, |other| other.min(until)));
        }
    }

    /// When a lane wants to be run; `None`: a visitor runs it.
    fn due(&self, lane: usize) -> Option<Option<Instant>> {
        let lane = &self.lanes[lane];
        (!lane.is_taken).then(|| lane.timer.map(|(due, _)| due))
    }

    /// Whether a thread that has said this sleeps on all lanes, and wakes before they want to be run.
    fn is_seen_to(&self, said: Said) -> bool {
        (0..LANES).all(|lane| self.due(lane).is_some_and(|due| said.wakes_before(due)))
    }

    fn call(said: &mut Said) {
        if matches!(said, Said::Asleep { .. }) {
            *said = Said::Called;
        }
    }

    fn serve(&mut self, lane: usize) -> Option<Found> {
        let lane = &mut self.lanes[lane];
        if lane.is_taken {
            return None;
        }
        let packets = std::mem::take(&mut lane.packets);
        let expired = lane.timer.take_if(|(due, _)| *due <= self.now).is_some();
        Some(Found { work: packets || expired, packets, ..Found::default() })
    }

    /// A visitor takes a lane, or lets go of it and leaves a timer there.
    fn visit(&mut self) {
        let after = Duration::from_micros(100 << self.rng.below(13));
        let (now, leaves) = (self.now, self.rng.chance(0.7));
        let lane = self.lane();
        lane.visits += 1;
        lane.is_taken = !lane.is_taken;
        if !lane.is_taken {
            lane.packets = false;
            if leaves && lane.timer.is_none_or(|(due, _)| due > now + after) {
                lane.timer = Some((now + after, now));
            }
            self.goes_on = true;
        }
    }

    fn finish_small_steps(&mut self) {
        if std::mem::take(&mut self.goes_on)
            && self.said.ends_by_visit()
            && self.planted != Some(Planted::VisitsInSilence)
        {
            World::call(&mut self.said);
        }
        if std::mem::take(&mut self.arms) {
            if !self.is_seat_taken {
                let can_wait = self.said.is_checking();
                if !can_wait && !self.is_seen_to(self.said) {
                    World::call(&mut self.said);
                }
            } else if self.rests && !self.is_seen_to(self.waiter_said) {
                World::call(&mut self.waiter_said);
            }
        }
    }

    /// A step of the thread that leads; `goes`: it has its event, or begins to wait.
    fn run_waiter(&mut self, goes: bool) {
        match self.waiter {
            Waiter::Away if goes => {
                (self.waiter, self.is_seat_taken) = (Waiter::Polling, true);
            }
            Waiter::Away => {}
            Waiter::Polling if goes => {
                self.waiter = Waiter::Leaves(self.said.relies());
            }
            Waiter::Leaves(saw) => {
                self.is_seat_taken = false;
                self.waiter = if self.rng.chance(0.8) {
                    Waiter::Gone(saw)
                } else {
                    self.is_left = true;
                    Waiter::Left
                };
            }
            Waiter::Polling => {
                self.beats += 1;
                for lane in 0..LANES {
                    self.serve(lane);
                }
                if self.calm > 0 || self.rng.chance(0.5) {
                    let until = self.now + Duration::from_millis(if self.is_quiet { 1000 } else { 100 });
                    self.waiter_said = Said::Asleep { duty: Duty::Resting, until, is_settled: false };
                    self.rests = true;
                    self.waiter = Waiter::Asks(0, Duty::Resting, until);
                }
            }
            Waiter::Asks(LANES, duty, until) => {
                if self.waiter_said == Said::Called {
                    self.wake_waiter();
                } else {
                    let said = if self.planted == Some(Planted::SaysTooSoon) { self.now } else { until };
                    self.waiter_said = Said::Asleep { duty, until: said, is_settled: true };
                    self.waiter = Waiter::Resting(until);
                    self.duties[Duty::Resting as usize] += 1;
                }
            }
            Waiter::Asks(lane, duty, until) => match self.due(lane) {
                _ if self.lanes[lane].packets => self.wake_waiter(),
                None => {
                    let duty = duty.next(Event::LaneTaken).expect("any may be taken");
                    let soon = self.now + duty.rules().longest.expect("a sleep");
                    self.waiter = Waiter::Asks(lane + 1, duty, until.min(soon));
                }
                Some(due) if due.is_some_and(|due| due <= self.now) => self.wake_waiter(),
                Some(due) => {
                    let until = due.map_or(until, |due| until.min(due));
                    self.waiter = Waiter::Asks(lane + 1, duty, until);
                }
            },
            Waiter::Resting(until) => {
                let is_over = self.now >= until || self.lanes.iter().any(|lane| lane.packets);
                if is_over || self.waiter_said == Said::Called {
                    self.wake_waiter();
                }
            }
            Waiter::Gone(saw) => {
                let relies = match self.planted {
                    Some(Planted::LeavesInSilence) => false,
                    Some(Planted::AsksTooEarly) => saw,
                    _ => self.said.relies(),
                };
                if relies && !self.is_seat_taken {
                    World::call(&mut self.said);
                }
                self.waiter = Waiter::Away;
            }
            Waiter::Left => {
                if !self.is_seen_to(self.said) {
                    World::call(&mut self.said);
                }
                self.waiter = Waiter::Gone(false);
            }
        }
    }

    fn wake_waiter(&mut self) {
        (self.rests, self.waiter_said, self.waiter) = (false, Said::Awake, Waiter::Polling);
    }

    fn sight(&self) -> Sight {
        let World { beats, is_left, rests, is_seat_taken: is_taken, .. } = *self;
        Sight { beats, is_taken, rests, is_left }
    }

    fn run_background(&mut self) -> Result<(), String> {
        self.step = match self.step {
            Step::Turn => self.turn(),
            Step::Choose => {
                let (duty, longest) = self.background.choose();
                self.said = Said::Asleep { duty, until: self.now + longest, is_settled: false };
                self.slept_at = self.now;
                Step::LookAgain
            }
            Step::LookAgain => {
                let mut sight = self.sight();
                if self.planted == Some(Planted::DoesNotLookAgain) {
                    sight.rests = self.background.duty().rules().relies;
                }
                self.background.see_again(sight);
                Step::Ask(0)
            }
            Step::Ask(LANES) => Step::Tell,
            Step::Ask(lane) => {
                let charge = self.background.charge(lane, self.lanes[lane].visits, false);
                self.sleeps_on[lane] = charge == Charge::Watch && {
                    let prepared = match self.due(lane) {
                        None => Prepared::Taken,
                        Some(_) if self.lanes[lane].packets => Prepared::Ready,
                        Some(Some(due)) if due <= self.now => Prepared::Ready,
                        Some(Some(due)) => Prepared::For(due.saturating_since(self.now)),
                        Some(None) => Prepared::For(Duration::MAX),
                    };
                    self.background.note_prepared(lane, prepared)
                };
                Step::Ask(lane + 1)
            }
            Step::Tell => {
                let tells =
                    self.background.duty().rules().relies && self.planted != Some(Planted::TellsNoLeader);
                if tells && self.rests && !self.is_seen_to(self.waiter_said) {
                    World::call(&mut self.waiter_said);
                }
                Step::Settle
            }
            Step::Settle => {
                let is_called =
                    self.said == Said::Called && self.planted != Some(Planted::SleepsThoughCalled);
                match self.background.settle().filter(|_| !is_called) {
                    Some((duty, mut timeout)) => {
                        if self.planted == Some(Planted::Oversleeps) {
                            timeout = duty.rules().longest.expect("a sleep");
                        }
                        let until = self.slept_at + timeout;
                        self.said = Said::Asleep { duty, until, is_settled: true };
                        self.duties[duty as usize] += 1;
                        Step::Asleep(until)
                    }
                    None => self.wake_up(Ended::AtOnce)?,
                }
            }
            Step::Asleep(until) => {
                let hears =
                    self.lanes.iter().zip(self.sleeps_on).any(|(lane, sleeps)| sleeps && lane.packets);
                if self.said == Said::Called {
                    self.wake_up(Ended::Rung)?
                } else if hears {
                    self.wake_up(Ended::Packet)?
                } else if self.now >= until {
                    self.wake_up(Ended::Time)?
                } else {
                    Step::Asleep(until)
                }
            }
        };
        Ok(())
    }

    fn turn(&mut self) -> Step {
        self.now += Duration::from_micros(1);
        self.duties[Duty::Polling as usize] += 1;
        let sight = self.sight();
        self.is_left = false;
        let has_packets = self.lanes.iter().any(|lane| lane.packets);
        self.background.see(sight, || has_packets);
        let mut worked = false;
        for lane in 0..LANES {
            self.background.note_visits(lane, self.lanes[lane].visits, self.waiter == Waiter::Away);
            if self.background.is_led() {
                continue;
            }
            let looks = self.background.has_slept() && !self.lanes[lane].is_taken;
            let watch = self.background.lane(lane);
            if watch.is_attended() && (!looks || watch.note_finds(0)) {
                continue;
            }
            let found = self.serve(lane);
            self.background.note_turn(lane, found);
            worked |= found.is_some_and(|found| found.work);
        }
        let now = self.now;
        match self.background.on_turn(worked, || false, || now) {
            Next::Sleep => Step::Choose,
            Next::Turn | Next::MakeWay => Step::Turn,
        }
    }

    fn wake_up(&mut self, ended: Ended) -> Result<Step, String> {
        // A leader that is about to call has done nothing wrong.
        let is_about_to_call = matches!(self.waiter, Waiter::Gone(_) | Waiter::Left);
        if ended == Ended::Time
            && self.background.duty().rules().relies
            && !self.is_seat_taken
            && !is_about_to_call
        {
            return Err(format!("rescued: it relied on a leader that has gone: {}", self.tell()));
        }
        self.said = Said::Awake;
        self.background.on_end(ended);
        for lane in 0..LANES {
            self.background.note_end(lane, self.lanes[lane].visits, ended);
        }
        self.sleeps_on = [false; LANES];
        Ok(Step::Turn)
    }

    /// No thread that sleeps forgets anything.
    fn check(&self) -> Result<(), String> {
        let Step::Asleep(until) = self.step else { return Ok(()) };
        if until > self.slept_at + SLEEP_MAX {
            return Err(format!("a sleep has no end: {}", self.tell()));
        }
        let (rests_until, is_resting) = match self.waiter {
            Waiter::Away => (None, false),
            Waiter::Resting(until) => (Some(until), true),
            _ => return Ok(()),
        };
        if self.goes_on || self.arms || [self.said, self.waiter_said].contains(&Said::Called) {
            return Ok(());
        }
        let is_checking = self.said.is_checking();
        for (lane, &sleeps) in self.lanes.iter().zip(&self.sleeps_on) {
            if lane.is_taken {
                continue;
            }
            if lane.packets && !sleeps && !is_resting && !is_checking {
                return Err(format!("a packet wakes no thread: {}", self.tell()));
            }
            if let Some((due, set)) = lane.timer {
                // A thread that relies on the leader does not serve the lane. It has told the leader what was left before.
                let is_late = rests_until.is_some_and(|until| until > due.max(self.slept_at));
                if self.said.relies() && set < self.slept_at && is_late {
                    return Err(format!(
                        "the leader does not know of a timer due at {due:?}: {}",
                        self.tell()
                    ));
                }
                let wakes = rests_until.map_or(until, |rests| rests.min(until));
                // Threads that are kept from their cores are late without a mistake.
                if wakes > due.max(set).max(self.slept_at) + LATE_MAX {
                    return Err(format!("a timer due at {due:?} is forgotten: {}", self.tell()));
                }
            }
        }
        Ok(())
    }

    fn tell(&self) -> String {
        format!(
            "at {:?}: {:?}, said {:?}, on {:?}; {:?}, said {:?}; {:?}",
            self.now, self.step, self.said, self.sleeps_on, self.waiter, self.waiter_said, self.lanes
        )
    }
}
