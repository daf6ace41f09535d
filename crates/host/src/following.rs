//! On which core the background thread or the dispatcher runs, where it follows the threads that sleep.
//!
//! A thread is woken several times sooner from its own core than from another. But this thread must not be kept on a core that another
//! thread has for itself, such as a client of this machine that polls: each time it wakes there it would wait a millisecond or more for
//! its turn, while another core is idle. So it looks now and then how long it has waited for its core, and where that is long it runs on
//! whatever core the system gives it, for a time that doubles.

use highwire_stdx::{Duration, Instant};
use highwire_wake::{Core, world};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The interval between two looks at how long this thread has waited.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// A thread that is woken waits for the turns of those that it has woken before it, which are short. So long a wait, on average, is for one that
/// computes.
const LATE: Duration = Duration::from_micros(100);
/// How long it then follows no thread: the first time, and at most.
const FREE_FOR: Duration = Duration::from_millis(100);
const FREE_FOR_MAX: Duration = Duration::from_millis(3200);

/// Where the thread is to run from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Move {
    To(Core),
    Anywhere,
}

/// How long a thread has waited for a core so far, and how often it was given one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Waits {
    pub(crate) total_ns: u64,
    pub(crate) count: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Following {
    /// The core to which it has moved.
    core: Option<Core>,
    look_at: Instant,
    before: Waits,
    /// Until when it runs anywhere, and how long it did so the last time.
    free_until: Instant,
    free_for: Duration,
}

impl Following {
    /// Where to move, if anywhere: `wanted` is the core where a thread went to sleep last, and `waits` tells how this thread has fared.
    pub(crate) fn follow(
        &mut self,
        wanted: Core,
        now: Instant,
        waits: impl FnOnce() -> Option<Waits>,
    ) -> Option<Move> {
        if now >= self.look_at {
            self.look_at = now + LOOK_INTERVAL;
            let waits = waits()?;
            let count = waits.count.saturating_sub(self.before.count);
            let waited_ns = waits.total_ns.saturating_sub(self.before.total_ns);
            self.before = waits;
            if self.core.is_some() && waited_ns > LATE.as_nanos() * count.max(1) {
                // It was well for as long as it was free before: that begins anew.
                let was_well = now.saturating_since(self.free_until) > self.free_for;
                self.free_for =
                    if was_well { FREE_FOR } else { self.free_for.saturating_mul(2).min(FREE_FOR_MAX) };
                self.free_until = now + self.free_for;
                self.core = None;
                return Some(Move::Anywhere);
            }
        }
        if now < self.free_until || self.core.replace(wanted) == Some(wanted) {
            return None;
        }
        Some(Move::To(wanted))
    }
}

/// Moves the calling thread to where it is wanted, unless it is kept waiting there.
pub(crate) fn follow(
    following: &mut Following,
    wanted: Core,
    now: Instant,
    account: &Account,
    allowed: &[Core],
) {
    // If this process may not use the core, the thread stays where it is.
    let _ = match following.follow(wanted, now, || account.waits()) {
        Some(Move::To(core)) => highwire_wake::pin(&[core]),
        Some(Move::Anywhere) => highwire_wake::pin(allowed),
        None => return,
    };
}

/// The cores that this process may use.
pub(crate) fn allowed_cores() -> Vec<Core> {
    let cores = highwire_link::floor::allowed_cores().unwrap_or_default();
    cores.into_iter().filter_map(|core| Core::try_from(core).ok()).collect()
}

/// The system's account of the calling thread; closed, it tells nothing.
#[derive(Debug)]
pub(crate) struct Account(Option<File>);

impl Account {
    pub(crate) fn of_this_thread() -> Account {
        // A model's threads have no such account.
        Account(if world::time().is_some() { None } else { File::open("/proc/thread-self/schedstat").ok() })
    }

    /// "time on cores, time waiting for one, turns": Documentation/scheduler/sched-stats.rst.
    pub(crate) fn waits(&self) -> Option<Waits> {
        let mut text = [0; 96];
        let length = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        let mut numbers = std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace();
        let total_ns = numbers.nth(1)?.parse().ok()?;
        Some(Waits { total_ns, count: numbers.next()?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn it_moves_to_where_threads_sleep_and_leaves_a_core_on_which_it_waits_for_long() {
        let mut following = Following::default();
        let mut waits = Waits::default();
        assert_eq!(following.follow(3, at(1), || Some(waits)), Some(Move::To(3)));
        assert_eq!(following.follow(3, at(2), || unreachable!("it has just looked")), None);
        // A hundred turns, each after a short wait for a thread that it has woken.
        waits = Waits { total_ns: 1_000_000, count: 100 };
        assert_eq!(following.follow(3, at(10), || Some(waits)), None);
        // And then three behind a thread that computes.
        waits = Waits { total_ns: 5_000_000, count: 103 };
        assert_eq!(following.follow(3, at(20), || Some(waits)), Some(Move::Anywhere));
        assert_eq!(following.follow(3, at(119), || Some(waits)), None, "it is free for a while");
        assert_eq!(following.follow(3, at(120), || Some(waits)), Some(Move::To(3)));
        // The same again at once: it is free for longer.
        waits = Waits { total_ns: 9_000_000, count: 106 };
        assert_eq!(following.follow(3, at(130), || Some(waits)), Some(Move::Anywhere));
        assert_eq!(following.follow(3, at(329), || Some(waits)), None);
        assert_eq!(following.follow(4, at(330), || Some(waits)), Some(Move::To(4)));
        // It was well for long: the first time again.
        waits = Waits { total_ns: 13_000_000, count: 109 };
        assert_eq!(following.follow(4, at(1000), || Some(waits)), Some(Move::Anywhere));
        assert_eq!(following.follow(4, at(1100), || Some(waits)), Some(Move::To(4)));
    }

    #[test]
    fn the_system_tells_how_a_thread_has_fared() {
        let account = Account::of_this_thread();
        let Some(before) = account.waits() else {
            println!("skipped: this kernel keeps no account of waits for a core");
            return;
        };
        let begin = std::time::Instant::now();
        loop {
            // Mostly this thread sleeps until the other one ends.
            std::thread::spawn(std::thread::yield_now).join().expect("no panic");
            let after = account.waits().expect("it has just told");
            if after.count > before.count && after.total_ns >= before.total_ns {
                break;
            }
            assert!(begin.elapsed() < std::time::Duration::from_secs(60), "{before:?}, {after:?}");
        }
    }
}
