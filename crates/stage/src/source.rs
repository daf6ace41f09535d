//! A source of events: one at a time, each when the one before has been answered.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use highwire_stdx::Rng;
use highwire_wake::world::{self, Step};
use highwire_wake::{Core, Dispatcher, Strategy, pin, thread_time, yield_core};

use super::{Outcome, PlayError, Shared, Until};

/// A polling thread that has not reported for this long that it runs may be waiting for its core.
const SILENCE: Duration = Duration::from_micros(100);

pub(super) struct Source<'a> {
    shared: &'a Shared,
    lane: usize,
    station: usize,
    /// The source's core, and that of the waiting threads.
    cores: [Core; 2],
    /// Whether it moves to the core where the thread sleeps.
    follows: bool,
    patience: Duration,
}

impl Source<'_> {
    pub(super) fn new(shared: &Shared, lane: usize, cores: [Core; 2], patience: Duration) -> Source<'_> {
        let scene = shared.scene;
        let follows = scene.strategy == Strategy::Affine && scene.is_apart;
        Source { shared, lane, station: shared.station_of(lane), cores, follows, patience }
    }

    pub(super) fn run(&self, until: Until, seed: u64) -> Result<Outcome, PlayError> {
        let (shared, scene) = (self.shared, self.shared.scene);
        drop(pin(&[self.cores[0]]));
        let mut rng = Rng::new(seed);
        let mut times = Histogram::new(3).expect("three digits are few enough");
        while shared.ready.load(Ordering::Acquire) < scene.threads {
            yield_core();
        }
        if self.follows {
            drop(pin(&[self.cores[1]]));
        }
        // Its time so far is not part of the measurement; its time from now on is reported at the end.
        let (begin, own_before) = (world::now(), thread_time());
        let waiting_before = *shared.waiting_before.get_or_init(|| shared.waiting_time());
        let in_lane = u64::from((scene.threads - self.lane as u32).div_ceil(scene.lanes));
        let mut count = 0;
        loop {
            let is_done = match until {
                Until::Time(time) => world::now() - begin >= time && count > 0,
                Until::Events(events) => count >= events,
            };
            if is_done {
                break;
            }
            let place = if scene.is_own { 0 } else { rng.next_u64() % in_lane };
            let time = self.send(self.lane as u32 + place as u32 * scene.lanes, count + 1)?;
            times.record(time.as_nanos() as u64).expect("it grows");
            count += 1;
            if matches!(until, Until::Time(_)) {
                self.pause();
            }
        }
        let own = thread_time().saturating_sub(own_before);
        shared.others_ns.fetch_add(own.as_nanos() as u64, Ordering::Relaxed);
        Ok(Outcome { times, events: count, cpu: shared.waiting_time().saturating_sub(waiting_before) })
    }

    /// One event, until all are answered that there have been.
    fn send(&self, whose: u32, answers: u64) -> Result<Duration, PlayError> {
        let (shared, lane) = (self.shared, &self.shared.lanes[self.lane]);
        let begin = world::now();
        lane.mailbox.store(whose, Ordering::Release);
        let mut heard = (self.beats(), begin);
        let mut turns = 0u32;
        while lane.answers.load(Ordering::Acquire) < answers {
            if !self.is_polled() {
                shared.deliver(self.lane, true);
            }
            turns = turns.wrapping_add(1);
            self.relax();
            if turns.is_multiple_of(64) {
                let now = world::now();
                let beats = self.beats();
                if beats != heard.0 {
                    heard = (beats, now);
                } else if now - heard.1 > SILENCE {
                    shared.deliver(self.lane, true);
                }
                if now - begin > self.patience {
                    return Err(PlayError::Lost(shared.scene));
                }
            }
        }
        if self.is_alone() {
            world::step(Step::Fetch);
        }
        Ok(world::now() - begin)
    }

    fn pause(&self) {
        let begin: Instant = world::now();
        while world::now() - begin < self.shared.scene.pause {
            self.relax();
        }
    }

    fn relax(&self) {
        if self.is_alone() { world::step(Step::Relax) } else { yield_core() }
    }

    /// Whether the waiting threads are on another core.
    fn is_alone(&self) -> bool {
        self.shared.scene.is_apart && !self.follows
    }

    /// Whether a thread looks into the mailbox.
    fn is_polled(&self) -> bool {
        match self.shared.scene.strategy {
            Strategy::BusyPoll | Strategy::Dispatcher => true,
            Strategy::LeaderFollower | Strategy::Adaptive => {
                self.shared.stations[self.station].seat.is_taken()
            }
            Strategy::Event | Strategy::Affine => false,
        }
    }

    fn beats(&self) -> u64 {
        let dispatcher = self.shared.dispatchers.get(self.lane);
        dispatcher.map_or_else(
            || self.shared.stations[self.station].seat.beats(),
            |dispatcher| Dispatcher::beats(dispatcher),
        )
    }
}
