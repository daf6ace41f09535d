//! What one user takes of a node: connections, and commands in a second.

use super::users::User;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A user of the file that the node has read last.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) user: User,
    /// It outlives a file that is read again.
    pub(super) load: Arc<Load>,
}

/// What the connections of one user take together.
#[derive(Debug, Default)]
pub(super) struct Load {
    connections: AtomicUsize,
    pace: Mutex<Pace>,
}

impl Load {
    /// One connection more, if there are fewer than `most`.
    pub(super) fn connect(&self, most: Option<usize>) -> bool {
        let most = most.unwrap_or(usize::MAX);
        let more = |count: usize| (count < most).then_some(count + 1);
        self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(super) fn disconnect(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// How long so many commands must wait.
    pub(super) fn wait(&self, commands: usize, rate: u32, now: Instant) -> Duration {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).wait(commands, rate, now)
    }
}

/// Spreads commands over time: each takes its part of a second, and a second's worth may come at once.
#[derive(Debug, Default)]
struct Pace {
    /// When everything that was let in is paid for.
    paid_at: Option<Instant>,
}

impl Pace {
    fn wait(&mut self, commands: usize, rate: u32, now: Instant) -> Duration {
        let cost = Duration::from_secs_f64(commands as f64 / f64::from(rate.max(1)));
        let from = self.paid_at.map_or(now, |at| at.max(now));
        let until = from + cost;
        self.paid_at = Some(until);
        until.saturating_duration_since(now).saturating_sub(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_commands_may_come_at_once_and_more_must_wait() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let ms = Duration::from_millis;
        assert_eq!(pace.wait(100, 100, now), ms(0));
        assert_eq!(pace.wait(1, 100, now), ms(10));
        assert_eq!(pace.wait(9, 100, now), ms(100));
        assert_eq!(pace.wait(1, 100, now + ms(1100)), ms(0), "they are paid for");
        assert_eq!(pace.wait(100, 100, now + ms(9000)), ms(0), "silence is saved for a second only");
        assert_eq!(pace.wait(100, 100, now + ms(9000)), ms(1000));
    }

    #[test]
    fn connections_of_a_user_come_back() {
        let load = Load::default();
        assert!(load.connect(Some(2)) && load.connect(Some(2)) && !load.connect(Some(2)));
        load.disconnect();
        assert!(load.connect(Some(2)) && load.connect(None));
    }
}
