//! Which threads take a lane's packets: application threads, or the device's own.
//!
//! An application thread that calls in (a visitor) need not be one that takes packets. A thread that posts a WRITE, polls for
//! its completion, and then spins on the memory that its peer will write calls in all the time, and yet never when the peer's
//! packet is there. So what counts is which thread *finds* packets. Where visitors find them, the background thread stays away
//! and only checks now and then; where it finds them itself, it sleeps on the socket and every packet wakes it.

use super::Found;

/// So many finds of visitors between two looks show that they poll, even if some of their turns are long. A thread that spins
/// on memory finds one packet at most: the acknowledgement of its own WRITE.
const FINDS_OF_POLLERS: u64 = 2;
/// Wake-ups after which the thread asks itself whether they were worth it.
const WAKES_PER_JUDGEMENT: u32 = 8;
/// Visits meanwhile that only a thread that polls makes: one that finds all it wants in its ring, because this thread has put
/// it there, makes few finds of its own.
const VISITS_OF_POLLERS: u64 = 16 * WAKES_PER_JUDGEMENT as u64;

/// The account of one lane.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    is_attended: bool,
    /// Visitors' finds when it was last looked at.
    finds: u64,
    /// The count of visits at the last judgement.
    visits: u64,
    /// Wake-ups by packets since the last judgement, how many found one, and how often visitors did meanwhile.
    wakes: u32,
    mine: u64,
    theirs: u64,
}

impl Attendance {
    /// Whether visitors take arriving packets.
    pub(super) fn is_attended(&self) -> bool {
        self.is_attended
    }

    /// Takes note of how many finds visitors have made by now; true if they poll.
    pub(super) fn note_finds(&mut self, finds: u64) -> bool {
        finds.wrapping_sub(std::mem::replace(&mut self.finds, finds)) >= FINDS_OF_POLLERS
    }

    /// The thread takes packets itself, and begins to count anew.
    fn take_over(&mut self) {
        *self = Attendance { finds: self.finds, visits: self.visits, ..Attendance::default() };
    }

    /// Takes note of a first turn after a sleep, or of none if a visitor was running the lane, with the count of visits;
    /// `was_woken`: by a packet.
    pub(super) fn on_turn(&mut self, turn: Option<Found>, visits: u64, was_woken: bool) {
        let found = turn.is_some_and(|turn| turn.packets);
        let theirs = turn.map_or(0, |turn| turn.visitors_finds.wrapping_sub(self.finds));
        if let Some(turn) = turn {
            self.finds = turn.visitors_finds;
        }
        if self.is_attended {
            // The visitors had their chance to find packets: see `note_finds`.
            if found && theirs < FINDS_OF_POLLERS {
                self.take_over();
            }
            return;
        }
        self.theirs += theirs;
        self.mine += u64::from(found);
        self.wakes += u32::from(was_woken);
        if self.wakes >= WAKES_PER_JUDGEMENT {
            // Two threads that take packets in turns hinder each other.
            let has_pollers = visits.wrapping_sub(self.visits) >= VISITS_OF_POLLERS;
            let is_attended = has_pollers || 2 * self.theirs >= self.mine;
            self.visits = visits;
            self.take_over();
            self.is_attended = is_attended;
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    fn turn(packets: u32, visitors_finds: u64) -> Option<Found> {
        Some(Found { packets: packets > 0, work: packets > 0, visitors_finds, ..Found::default() })
    }

    /// Wakes it until it has judged.
    fn wake(attendance: &mut Attendance, mut turn: impl FnMut(u64) -> Option<Found>) {
        (1..=u64::from(WAKES_PER_JUDGEMENT)).for_each(|n| attendance.on_turn(turn(n), n, true));
    }

    #[test]
    fn where_visitors_take_the_packets_the_thread_stays_away() {
        let mut attendance = Attendance::default();
        wake(&mut attendance, |n| turn(u32::from(n % 2 == 0), n));
        assert!(attendance.is_attended());
        // A packet that it takes from a busy poller changes nothing.
        attendance.on_turn(turn(1, 100), 100, false);
        assert!(attendance.is_attended());
    }

    #[test]
    fn where_packets_wait_for_somebody_it_takes_them() {
        let mut attendance = Attendance::default();
        wake(&mut attendance, |_| None);
        assert!(attendance.is_attended());
        attendance.on_turn(turn(1, 1), 1, false);
        assert!(!attendance.is_attended());
        // A visitor that takes one now and then does not send it away.
        for round in 1..10 {
            wake(&mut attendance, |n| turn(1, round + n / WAKES_PER_JUDGEMENT as u64));
            assert!(!attendance.is_attended());
        }
    }

    #[test]
    fn who_polls_without_pause_is_left_alone() {
        let mut attendance = Attendance::default();
        // It never finds a packet, because this thread is always first.
        (1..=u64::from(WAKES_PER_JUDGEMENT)).for_each(|n| attendance.on_turn(turn(1, 0), 100 * n, true));
        assert!(attendance.is_attended());
    }

    #[test]
    fn looking_without_being_woken_says_nothing() {
        let mut attendance = Attendance::default();
        (0..100).for_each(|_| attendance.on_turn(turn(0, 0), 0, false));
        assert!(!attendance.is_attended());
    }
}
