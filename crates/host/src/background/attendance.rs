//! Who takes a lane's packets: threads that come by, or the device's own.
//!
//! That a thread comes by is not enough. One that posts a WRITE, polls for its completion, and then spins on the memory
//! that its peer will write comes by all the time, and yet never when the peer's packet is there. So what counts is who
//! *finds* packets. Where visitors do, the background thread stays away and only looks in now and then; where it does
//! itself, it sleeps on the socket and is woken by every packet.

use crate::engine::Pumped;

/// Finds of visitors between two looks that show that they poll: one every 50 µs.
const FINDS_OF_POLLERS: u64 = 8;
/// What being woken in vain costs, and finding something earns. At zero the thread stays away.
const TRUST_MAX: u8 = 12;
const TRUST_AT_FIRST: u8 = 4;
const TRUST_PER_FIND: u8 = 2;

/// What is known about one lane.
#[derive(Debug)]
pub(super) struct Attendance {
    is_attended: bool,
    trust: u8,
    /// Visitors' finds when it was last looked at.
    finds: u64,
}

impl Attendance {
    pub(super) fn new() -> Attendance {
        Attendance { is_attended: false, trust: TRUST_AT_FIRST, finds: 0 }
    }

    /// Whether visitors take what arrives.
    pub(super) fn is_attended(&self) -> bool {
        self.is_attended
    }

    /// Nobody has come by since the last look.
    pub(super) fn on_absence(&mut self) {
        (self.is_attended, self.trust) = (false, TRUST_AT_FIRST);
    }

    /// Takes note of a first turn after a sleep, or of none if a visitor was running the lane; `was_woken`: by a packet.
    pub(super) fn on_turn(&mut self, turn: Option<Pumped>, was_woken: bool) {
        let found = turn.is_some_and(|turn| turn.packets > 0);
        let finds = turn.map_or(0, |turn| turn.visitors_finds.wrapping_sub(self.finds));
        if let Some(turn) = turn {
            self.finds = turn.visitors_finds;
        }
        match (self.is_attended, found) {
            (true, true) if finds < FINDS_OF_POLLERS => self.on_absence(),
            (false, true) => self.trust = (self.trust + TRUST_PER_FIND).min(TRUST_MAX),
            (false, false) if was_woken => {
                self.trust -= 1;
                self.is_attended = self.trust == 0;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(packets: u32, visitors_finds: u64) -> Option<Pumped> {
        Some(Pumped { packets, visitors_finds, ..Pumped::default() })
    }

    #[test]
    fn where_visitors_take_the_packets_the_thread_stays_away() {
        let mut attendance = Attendance::new();
        for finds in 0..u64::from(TRUST_AT_FIRST) {
            assert!(!attendance.is_attended());
            attendance.on_turn(turn(0, finds), true);
        }
        assert!(attendance.is_attended());
        // A packet that it takes from a busy poller changes nothing.
        attendance.on_turn(turn(1, 100), false);
        assert!(attendance.is_attended());
    }

    #[test]
    fn where_packets_wait_for_somebody_it_takes_them() {
        let mut attendance = Attendance::new();
        (0..TRUST_AT_FIRST).for_each(|_| attendance.on_turn(None, true));
        assert!(attendance.is_attended());
        attendance.on_turn(turn(1, 1), false);
        assert!(!attendance.is_attended());
        // A visitor that takes every other packet does not send it away.
        for finds in 1..100 {
            attendance.on_turn(turn(1, finds), true);
            attendance.on_turn(turn(0, finds), true);
            assert!(!attendance.is_attended());
        }
    }

    #[test]
    fn looking_without_being_woken_says_nothing() {
        let mut attendance = Attendance::new();
        (0..100).for_each(|_| attendance.on_turn(turn(0, 0), false));
        assert!(!attendance.is_attended());
    }
}
