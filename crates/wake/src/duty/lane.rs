//! What the background thread knows of one lane, and whether it leaves it to the threads of the application that call in (visitors).

use super::attendance::Attendance;

/// So many visits since the lane last had work for the background thread show that a thread polls. A thread that waits for an
/// event makes only a few visits before it sleeps.
const POLLING_VISITS: u64 = 32;

/// What a turn of a lane has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// There was anything to do.
    pub work: bool,
    /// Packets were.
    pub packets: bool,
    /// Programs have been told that something is complete.
    pub completions: bool,
    /// Turns of visitors that found packets, so far.
    pub visitors_finds: u64,
}

/// What the background thread does about a lane while it sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// Nothing: the leader rests on it.
    Leave,
    /// It looks again in a moment.
    Check,
    /// It asks the lane, and sleeps on its descriptors.
    Watch,
}

/// Whether a packet has ended the last sleep on the lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Bell {
    #[default]
    Silent,
    /// It has, and the thread has not run the lane since.
    Unserved,
    Served,
}

/// The background thread's account of a lane.
#[derive(Debug, Default)]
pub struct LaneWatch {
    /// The count of visits at the last look.
    visits: u64,
    visitors_are_near: bool,
    attendance: Attendance,
    /// The count of visits when the lane last had work for this thread.
    visits_at_work: u64,
    bell: Bell,
    /// The thread sleeps on the lane's descriptors.
    is_slept_on: bool,
}

impl LaneWatch {
    /// A leader runs the lane.
    pub(super) fn note_led(&mut self, visits: u64) {
        (self.visits, self.visitors_are_near) = (visits, false);
    }

    /// A look before a turn.
    pub(super) fn note_visits(&mut self, visits: u64, may_be_visited: bool, has_slept: bool) {
        // A visitor that came by before this thread woke counts as near until this thread has slept again.
        let has_come = visits != self.visits || (self.visitors_are_near && !has_slept);
        self.visitors_are_near = may_be_visited && has_come;
        self.visits = visits;
    }

    /// Whether visitors look after the lane.
    pub fn is_attended(&self) -> bool {
        self.visitors_are_near && self.attendance.is_attended()
    }

    /// Whether visitors have come by lately.
    pub fn visitors_are_near(&self) -> bool {
        self.visitors_are_near
    }

    /// Takes note of how many finds visitors have made by now; true if they poll.
    pub fn note_finds(&mut self, finds: u64) -> bool {
        self.attendance.note_finds(finds)
    }

    /// Takes note of a turn, or of none if another thread was running the lane.
    pub(super) fn note_turn(&mut self, found: Option<Found>, has_slept: bool) {
        let was_woken = self.was_woken();
        if found.is_some() && self.bell == Bell::Unserved {
            self.bell = Bell::Served;
        }
        // A long visit may still be going on, so that no new visit was counted: a missing visit changes no judgement.
        if has_slept && self.visitors_are_near {
            self.attendance.on_turn(found, self.visits, was_woken);
        }
        if found.is_some_and(|found| found.work) {
            self.visits_at_work = self.visits;
        }
    }

    /// Whether a visitor polls in vain, if threads wait for the lane's events besides.
    pub(super) fn is_polled(&self, visits: u64) -> bool {
        visits.wrapping_sub(self.visits_at_work) > POLLING_VISITS
    }

    /// The thread is about to sleep on the lane's descriptors, or not.
    pub(super) fn prepare(&mut self, is_slept_on: bool) {
        self.is_slept_on = is_slept_on;
    }

    /// The sleep is over.
    pub(super) fn note_end(&mut self, visits: u64, by_packet: bool) {
        self.bell = if by_packet && self.is_slept_on { Bell::Unserved } else { Bell::Silent };
        self.visits_at_work = visits;
    }

    /// Whether the last sleep was on the lane's descriptors.
    pub fn is_slept_on(&self) -> bool {
        self.is_slept_on
    }

    /// Whether a packet has ended that sleep.
    pub fn was_woken(&self) -> bool {
        self.bell != Bell::Silent
    }

    /// Whether it has, and the thread has not run the lane since.
    pub(super) fn is_unserved(&self) -> bool {
        self.bell == Bell::Unserved
    }
}
