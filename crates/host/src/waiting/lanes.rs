//! The work that events come from, as the wake crate's strategies see it: a turn of every lane, and sleep on their sockets.

use crate::device::Shared;
use crate::engine::{By, Engine, Sleeper};
use crate::sys;
use highwire_wake::{Slept, Turn, WakeWord, Work};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::Instant;

/// The longest rest while packets come now and then, and the longest after a while without any. A leader looks by itself in case it was not
/// told of something, which should not happen; the background thread finds out whether the leader is starved.
const REST_MAX: highwire_stdx::Duration = highwire_stdx::Duration::from_millis(100);
const IDLE_REST_MAX: highwire_stdx::Duration = highwire_stdx::Duration::from_secs(1);
/// How long a thread rests on a lane that another one runs.
const LOOK_AGAIN: highwire_stdx::Duration = highwire_stdx::Duration::from_micros(400);

/// The work that events come from.
pub(super) struct Lanes<'a> {
    device: &'a Shared,
    /// The longest rest that comes next.
    rest_max: Cell<highwire_stdx::Duration>,
    /// What a thread that waits in `poll` sleeps on besides the sockets.
    beside: &'a [libc::pollfd],
}

impl<'a> Lanes<'a> {
    pub(super) fn new(device: &'a Shared) -> Lanes<'a> {
        Lanes::beside(device, &[])
    }

    pub(super) fn beside(device: &'a Shared, beside: &'a [libc::pollfd]) -> Lanes<'a> {
        Lanes { device, rest_max: Cell::new(REST_MAX), beside }
    }

    /// Sleeps until a packet, a timer, a ring, or `deadline`.
    fn sleep_on_sockets(&self, deadline: Option<Instant>) -> Slept {
        let device = self.device;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let longest =
            self.rest_max.get().min(left.map_or(highwire_stdx::Duration::MAX, highwire_stdx::Duration::from));
        let (mut at_most, mut watches_all) = (longest, true);
        // Before the lanes are asked: what they want to be run for is not to lie before the end of the sleep by these lines' time.
        let begin = device.clock.now();
        for lane in &device.lanes {
            match lane.try_run(|engine| engine.prepare_sleep(Sleeper::Leader)) {
                // Another thread runs this lane just now, and may leave work behind.
                None => (at_most, watches_all) = (at_most.min(LOOK_AGAIN), false),
                Some(None) => return Slept::Posted,
                Some(Some(left)) => at_most = at_most.min(left),
            }
        }
        let lanes = device.lane_fds.iter().flatten().map(AsFd::as_fd);
        let fds: Vec<_> = std::iter::once(device.waiting.leader_waker.fd()).chain(lanes).collect();
        if watches_all {
            device.waiting.resting.begin((begin + at_most).as_nanos());
        }
        let waited = sys::wait_beside(&fds, self.beside, Some(at_most));
        device.waiting.resting.end();
        let is_idle = waited == sys::Waited::TimedOut && at_most == longest;
        self.rest_max.set(if is_idle {
            IDLE_REST_MAX.min(self.rest_max.get().saturating_mul(2))
        } else {
            REST_MAX
        });
        match waited {
            // A signal ends `poll` whatever its handler's flags say.
            sys::Waited::Interrupted if !self.beside.is_empty() || sys::ends_waits() => Slept::Interrupted,
            sys::Waited::TimedOut if is_idle => Slept::TimedOut,
            // Or a timer of the lane.
            _ => Slept::Posted,
        }
    }
}

impl Work for Lanes<'_> {
    fn turn(&self) -> Turn {
        let (mut all, woken) = (Turn::Idle, self.device.waiting.woken());
        for lane in &self.device.lanes {
            let run = |engine: &mut Engine| {
                engine.awake_from_rest();
                engine.pump_by(By::Leader)
            };
            match lane.visit_and_stay(run) {
                Some(pumped) if pumped.work > 0 || pumped.completions > 0 => all = Turn::Worked,
                None if all == Turn::Idle => all = Turn::Taken,
                _ => {}
            }
        }
        if self.device.waiting.woken() == woken { all } else { Turn::Woke }
    }

    fn hand_over(&self) {
        sys::be_quick_to_run();
        self.device.waiting.leave(self.device);
    }

    fn leave_to_leader(&self) {
        sys::be_quick_to_run();
        self.device.waiting.leave_to_leader(self.device);
    }

    fn shares_core(&self) -> bool {
        let device = self.device;
        device.company.shares_core(&device.waiting.look, device.clock.now())
    }

    fn make_way(&self) {
        self.device.crowd.make_way();
    }

    fn rest(&self, word: &WakeWord, seen: u32, deadline: Option<Instant>) -> Option<Slept> {
        let device = self.device;
        let waiting = &device.waiting;
        if self.beside.is_empty() && !sys::may_be_interrupted_in_poll() {
            return None;
        }
        device.company.leave(&waiting.look);
        sys::be_quick_to_run();
        waiting.leader_waker.prepare_sleep();
        let slept = waiting.station.rest.sleep(word, seen, || self.sleep_on_sockets(deadline));
        waiting.leader_waker.awake();
        if slept != Slept::Posted {
            // No turn follows.
            for lane in &device.lanes {
                lane.try_run(Engine::awake_from_rest);
            }
        }
        Some(slept)
    }
}
