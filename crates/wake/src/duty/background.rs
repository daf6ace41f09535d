//! The background thread's decisions: it runs the lanes while no other thread does, and serves peers whose target program makes no calls.
//!
//! The thread reports what it sees and what its turns find, and asks: [`Next`]. On its way to sleep it announces
//! [`choose`](Background::choose)'s duty, looks at the leader's seat and at every lane, and settles for what is left.

use super::{Charge, Duty, Event, Found, LaneWatch, Leader, Sight, Vigil};
use highwire_stdx::{Duration, Instant};

/// Turns without work before the thread sleeps: a packet that comes back at once finds it awake.
const IDLE_TURNS_MAX: u32 = 64;
/// How long it sleeps while another thread is in the middle of a turn of a lane that this one looks after.
const TAKEN_LANE: Duration = Duration::from_micros(50);
/// After so many of the longest sleeps with no work in between, a sleep lasts longer. Then the thread sleeps on the descriptors even if a
/// leader rests on them: the first packet wakes both, and from then on this thread checks on that leader as before.
const QUIET_SLEEPS: u32 = 10;
/// A leader that has reported more often during one of these sleeps has had work: it did not just look by itself.
const HEARTBEATS_MAX: u64 = 2;

/// How long the thread goes on without work.
#[derive(Debug)]
enum Patience {
    /// For so many turns.
    Turns(u32),
    /// As long as has paid. No other thread runs the lanes.
    Learnt(Box<Vigil>),
}

/// What the thread does after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Another turn.
    Turn,
    /// It gives its core away, and then makes another turn.
    MakeWay,
    /// It goes to sleep.
    Sleep,
}

/// What a lane says to a thread that wants to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prepared {
    /// Another thread runs it just now.
    Taken,
    /// It has work.
    Ready,
    /// It may sleep for so long.
    For(Duration),
}

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It did not begin: a lane had work, or another thread called.
    AtOnce,
    /// Another thread called.
    Rung,
    /// By a descriptor of a lane.
    Packet,
    /// By time.
    Time,
}

/// The state of the background thread.
#[derive(Debug)]
pub struct Background {
    duty: Duty,
    leader: Leader,
    /// How often leaders had said that they run when it last looked.
    beats: u64,
    lanes: Vec<LaneWatch>,
    patience: Patience,
    idle_turns: u32,
    /// The last turns have told programs of completions.
    has_told: bool,
    has_slept: bool,
    /// Sleeps in a row that nothing has ended, and whether many of them make a sleep longer.
    quiet_sleeps: u32,
    may_sleep_long: bool,
    /// How long the sleep may be, as far as the lanes were asked.
    timeout: Duration,
    has_work: bool,
}

impl Background {
    /// A thread that shares so many lanes with application threads. One that `saves_power` never polls in vain.
    pub fn beside_others(lanes: usize, saves_power: bool) -> Background {
        Background::new(lanes, Patience::Turns(if saves_power { 0 } else { IDLE_TURNS_MAX }))
    }

    /// A thread that alone runs so many lanes.
    pub fn alone(lanes: usize) -> Background {
        Background::new(lanes, Patience::Learnt(Box::default()))
    }

    fn new(lanes: usize, patience: Patience) -> Background {
        Background {
            duty: Duty::Polling,
            leader: Leader::None,
            beats: 0,
            lanes: (0..lanes).map(|_| LaneWatch::default()).collect(),
            patience,
            idle_turns: 0,
            has_told: false,
            has_slept: true,
            quiet_sleeps: 0,
            may_sleep_long: true,
            timeout: Duration::ZERO,
            has_work: false,
        }
    }

    /// Sleeps are never long: something has to be looked at ten times a second.
    pub fn sleep_short(&mut self) {
        self.may_sleep_long = false;
    }

    /// The duty.
    pub fn duty(&self) -> Duty {
        self.duty
    }

    /// A lane.
    pub fn lane(&mut self, index: usize) -> &mut LaneWatch {
        &mut self.lanes[index]
    }

    /// Whether a leader takes the packets that arrive.
    pub fn is_led(&self) -> bool {
        self.leader.leads()
    }

    /// Whether this is the first turn after a sleep.
    pub fn has_slept(&self) -> bool {
        self.has_slept
    }

    /// A look at the leader's seat before a turn. `has_packets` looks at the lanes' descriptors.
    pub fn see(&mut self, sight: Sight, has_packets: impl FnOnce() -> bool) {
        if !self.has_slept {
            if sight.is_left {
                self.leader = Leader::None;
            }
            return;
        }
        let beats = std::mem::replace(&mut self.beats, sight.beats);
        if sight.beats.wrapping_sub(beats) > HEARTBEATS_MAX {
            self.quiet_sleeps = 0;
        }
        self.leader = self.leader.see(beats, sight, has_packets);
    }

    /// A lane is up for a turn, and has had so many visits; `may_be_visited`: they may be of threads that look after it.
    pub fn note_visits(&mut self, lane: usize, visits: u64, may_be_visited: bool) {
        let (is_led, has_slept) = (self.is_led(), self.has_slept);
        let lane = &mut self.lanes[lane];
        if is_led { lane.note_led(visits) } else { lane.note_visits(visits, may_be_visited, has_slept) }
    }

    /// What a turn of a lane has found, or `None` if another thread was running it.
    pub fn note_turn(&mut self, lane: usize, found: Option<Found>) {
        self.has_told |= found.is_some_and(|found| found.completions);
        self.lanes[lane].note_turn(found, self.has_slept);
    }

    /// All lanes had their turn. `others_poll` looks whether other threads poll on this thread's core, and says that this one does.
    pub fn on_turn(
        &mut self,
        worked: bool,
        others_poll: impl FnOnce() -> bool,
        now: impl FnOnce() -> Instant,
    ) -> Next {
        self.has_slept = false;
        let was_idle = self.idle_turns > 0;
        self.idle_turns = if worked { 0 } else { self.idle_turns.saturating_add(1) };
        // A program that was waited for has something to do now, and another look would only keep it from this core. Where work follows
        // work there is something to do here as well.
        let gives_way = std::mem::take(&mut self.has_told) && was_idle;
        // Where others spin, this thread's spinning is at their cost.
        let others_spin = self.is_led() || self.lanes.iter().any(LaneWatch::visitors_are_near);
        let next = match &mut self.patience {
            Patience::Learnt(vigil) => {
                match (vigil.goes_on(worked, gives_way, now()), worked && !gives_way) {
                    (false, _) => Next::Sleep,
                    (true, true) => Next::Turn,
                    (true, false) => {
                        // It gives its core away whatever it sees there, but the others are to know of this thread.
                        others_poll();
                        Next::MakeWay
                    }
                }
            }
            Patience::Turns(_) if worked => Next::Turn,
            Patience::Turns(most) if self.idle_turns > *most || others_spin => Next::Sleep,
            // Only a thread that would go on polling says that it does.
            Patience::Turns(_) => {
                if others_poll() {
                    Next::Sleep
                } else {
                    Next::Turn
                }
            }
        };
        if next != Next::Sleep {
            self.on(if worked { Event::Worked } else { Event::Idle });
        }
        next
    }

    /// The thread goes to sleep: the duty to announce, and the longest that the sleep may be.
    pub fn choose(&mut self) -> (Duty, Duration) {
        let is_quiet = self.may_sleep_long && self.quiet_sleeps >= QUIET_SLEEPS;
        self.on(match (self.leader, is_quiet) {
            (Leader::None | Leader::Starved, false) => Event::Unled,
            (Leader::None | Leader::Starved, true) => Event::UnledForLong,
            (Leader::Runs, _) => Event::Led,
            (Leader::Rests, false) => Event::Relieved,
            (Leader::Rests, true) => Event::RelievedForLong,
        });
        self.has_work = false;
        self.timeout = self.longest();
        (self.duty, self.timeout)
    }

    /// Another look at the leader's seat, after the duty was announced.
    pub fn see_again(&mut self, sight: Sight) {
        let relies = self.duty.rules().relies;
        if sight.is_left {
            self.has_work = true;
        } else if relies && !sight.rests {
            self.on(Event::LeaderGone);
        } else if !relies && self.duty != Duty::Checking && sight.is_taken && sight.beats != self.beats {
            self.leader = Leader::Runs;
            self.on(Event::Led);
        }
        self.timeout = self.timeout.min(self.longest());
    }

    /// What to do about a lane that has had so many visits. `anybody_waits`: a thread waits for events of the device.
    pub fn charge(&mut self, lane: usize, visits: u64, anybody_waits: bool) -> Charge {
        let is_polled = anybody_waits && self.lanes[lane].is_polled(visits);
        self.lanes[lane].prepare(false);
        if self.duty == Duty::Standby {
            return Charge::Leave;
        }
        let is_led = self.leader.leads() && !self.duty.rules().relies;
        if is_led || is_polled || self.lanes[lane].is_attended() {
            self.check(self.longest());
            return Charge::Check;
        }
        Charge::Watch
    }

    /// A lane that is to be watched says this. True: the thread sleeps on its descriptors.
    pub fn note_prepared(&mut self, lane: usize, prepared: Prepared) -> bool {
        let is_slept_on = match prepared {
            Prepared::Taken => {
                self.check(TAKEN_LANE);
                // It was run since a packet woke this thread, by one that may have lost its core to this one: if that packet ended this
                // sleep, too, this thread would go on looking in vain until its time slice ends.
                !self.lanes[lane].is_unserved()
            }
            Prepared::Ready => {
                self.has_work = true;
                true
            }
            Prepared::For(left) => {
                self.timeout = self.timeout.min(left);
                true
            }
        };
        self.lanes[lane].prepare(is_slept_on);
        is_slept_on
    }

    /// Something besides the lanes has to be looked at in time.
    pub fn wake_within(&mut self, left: Duration) {
        self.timeout = self.timeout.min(left);
    }

    /// Every lane was asked: the duty that is left and how long the sleep may be, or `None` if there is work.
    pub fn settle(&self) -> Option<(Duty, Duration)> {
        (!self.has_work).then_some((self.duty, self.timeout))
    }

    /// The sleep is over. True: it has lasted as long as its duty allows, and nothing has ended it.
    pub fn on_end(&mut self, ended: Ended) -> bool {
        let was_long = self.timeout == self.longest() && self.duty != Duty::Checking;
        let is_quiet = ended == Ended::Time && was_long;
        if ended != Ended::Time {
            self.quiet_sleeps = 0;
            if self.duty == Duty::LongStandby {
                // The leader that rests may have just been woken, too, and gets time to run.
                self.leader = Leader::None;
            }
        } else if is_quiet {
            self.quiet_sleeps = self.quiet_sleeps.saturating_add(1);
        }
        self.on(match ended {
            Ended::AtOnce | Ended::Rung => Event::Called,
            Ended::Packet => Event::Packet,
            Ended::Time => Event::Time,
        });
        self.has_slept = true;
        is_quiet
    }

    /// A lane after a sleep.
    pub fn note_end(&mut self, lane: usize, visits: u64, ended: Ended) {
        self.lanes[lane].note_end(visits, matches!(ended, Ended::Rung | Ended::Packet));
    }

    /// The longest sleep of the duty.
    fn longest(&self) -> Duration {
        self.duty.rules().longest.unwrap_or(Duration::ZERO)
    }

    fn check(&mut self, within: Duration) {
        self.on(Event::LaneTaken);
        self.timeout = self.timeout.min(within).min(self.longest());
    }

    fn on(&mut self, event: Event) {
        let next = self.duty.next(event);
        debug_assert!(next.is_some(), "{:?} in {:?}", event, self.duty);
        self.duty = next.unwrap_or(Duty::Polling);
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    const NOTHING: Found = Found { work: false, packets: false, completions: false, visitors_finds: 0 };
    const PACKET: Found = Found { work: true, packets: true, ..NOTHING };
    const TOLD: Found = Found { completions: true, ..PACKET };

    /// What the thread does after each of these turns, a microsecond apart.
    fn play(turns: &[Found]) -> Vec<Next> {
        let mut thread = Background::alone(1);
        let each = turns.iter().zip(1..).map(|(found, micros)| {
            thread.note_turn(0, Some(*found));
            thread.on_turn(found.work, || false, || Instant::ZERO + Duration::from_micros(micros))
        });
        each.collect()
    }

    #[test]
    fn a_thread_gives_way_at_once_to_a_program_that_it_has_told_of_a_completion_but_not_amid_work() {
        use Next::{MakeWay, Turn};
        assert_eq!(play(&[NOTHING, TOLD, NOTHING, TOLD]), [MakeWay; 4]);
        assert_eq!(play(&[NOTHING, PACKET, NOTHING]), [MakeWay, Turn, MakeWay]);
        assert_eq!(play(&[NOTHING, PACKET, TOLD, TOLD]), [MakeWay, Turn, Turn, Turn]);
        // A completion during the work before says nothing of this time.
        assert_eq!(play(&[NOTHING, PACKET, TOLD, NOTHING, PACKET]), [MakeWay, Turn, Turn, MakeWay, Turn]);
    }
}
