//! The work that events come from, as the wake crate's strategies see it: a turn of every lane, and sleep on their sockets.

use crate::device::Shared;
use crate::engine::{By, Engine, Sleeper};
use crate::sys;
use highwire_wake::duty::{Duty, Event};
use highwire_wake::{Announced, Slept, Turn, WakeWord, Work, world};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::Instant;

/// The longest rest while packets come now and then, and the longest after a while without any. A leader looks by itself in case it was not
/// told of something, which should not happen; the background thread finds out whether the leader is starved.
const REST_MAX: highwire_stdx::Duration = highwire_stdx::Duration::from_millis(100);
const IDLE_REST_MAX: highwire_stdx::Duration = highwire_stdx::Duration::from_secs(1);
/// The work that events come from.
pub(crate) struct Lanes<'a> {
    device: &'a Shared,
    /// The longest rest that comes next.
    rest_max: Cell<highwire_stdx::Duration>,
    /// What a thread that waits in `poll` sleeps on besides the sockets.
    beside: &'a [libc::pollfd],
}

impl<'a> Lanes<'a> {
    pub(crate) fn new(device: &'a Shared) -> Lanes<'a> {
        Lanes::beside(device, &[])
    }

    pub(super) fn beside(device: &'a Shared, beside: &'a [libc::pollfd]) -> Lanes<'a> {
        Lanes { device, rest_max: Cell::new(REST_MAX), beside }
    }

    /// Sleeps until a packet, a timer, a ring, or `longest` is over; also returns whether it was a ring. The sleep was announced at `begin`,
    /// before the lanes are asked: what they want to be run for is not to lie before its end by these lines' time.
    fn sleep_on_sockets(
        &self,
        announced: Announced,
        begin: highwire_stdx::Instant,
        longest: highwire_stdx::Duration,
    ) -> (Slept, bool) {
        let device = self.device;
        let waker = &device.waiting.leader_waker;
        let (mut at_most, mut duty) = (longest, Duty::Resting);
        for lane in &device.lanes {
            match lane.try_run(|engine| engine.prepare_sleep(Sleeper::Leader)) {
                // Another thread runs this lane just now, and may leave work behind.
                None => {
                    duty = duty.next(Event::LaneTaken).unwrap_or(duty);
                    at_most = at_most.min(duty.rules().longest.unwrap_or(at_most));
                }
                Some(None) => return (Slept::Posted, false),
                Some(Some(left)) => at_most = at_most.min(left),
            }
        }
        if !waker.settle(announced, duty, begin + at_most) {
            return (Slept::Posted, false);
        }
        let lanes = device.lane_fds.iter().flatten().map(AsFd::as_fd);
        let fds: Vec<_> = std::iter::once(waker.fd()).chain(lanes).collect();
        let (waited, is_rung) = sys::wait_beside(&fds, self.beside, Some(at_most));
        let is_idle = waited == sys::Waited::TimedOut && at_most == longest;
        self.rest_max.set(if is_idle {
            IDLE_REST_MAX.min(self.rest_max.get().saturating_mul(2))
        } else {
            REST_MAX
        });
        let slept = match waited {
            // A signal ends `poll` whatever its handler's flags say.
            sys::Waited::Interrupted if !self.beside.is_empty() || sys::ends_waits() => Slept::Interrupted,
            sys::Waited::TimedOut if is_idle => Slept::TimedOut,
            // Or a timer of the lane.
            _ => Slept::Posted,
        };
        (slept, is_rung)
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

    fn leave_seat(&self) {
        sys::be_quick_to_run();
        self.device.waiting.background.wake_if_forsaken(&self.device.waiting.station.seat);
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
        let left = deadline.map(|deadline| deadline.saturating_duration_since(world::now()));
        let longest =
            self.rest_max.get().min(left.map_or(highwire_stdx::Duration::MAX, highwire_stdx::Duration::from));
        let begin = device.clock.now();
        // Before the thread counts itself a sleeper of its word: a thread that posts there then has to be able to ring.
        let announced = waiting.leader_waker.announce(Duty::Resting, begin + longest);
        let is_rung = Cell::new(false);
        let slept = waiting.station.rest.sleep(word, seen, || {
            let (slept, rung) = self.sleep_on_sockets(announced, begin, longest);
            is_rung.set(rung);
            slept
        });
        waiting.leader_waker.awake(is_rung.get());
        if slept != Slept::Posted {
            // No turn follows.
            for lane in &device.lanes {
                lane.try_run(Engine::awake_from_rest);
            }
        }
        Some(slept)
    }
}
