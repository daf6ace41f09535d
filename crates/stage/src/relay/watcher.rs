//! Looks whether a thread sleeps though its event is under way.
//!
//! It counts time in ticks of its own, and none of them as longer than two: while the process is stopped, or has no core for long,
//! nothing is lost. A thread that wants to run and may not has not lost its wake-up either, so the system is asked whether it sleeps.

use std::thread::ScopedJoinHandle;

use super::{Duration, Instant, Lost, Ordering, RelayError, Shared, Strategy};

/// Threads that are under way.
pub(super) type Threads<'a> = Vec<ScopedJoinHandle<'a, ()>>;

const TICK: Duration = Duration::from_millis(50);
/// The same where there are dispatchers, which may have to be helped.
const TICK_OF_DISPATCHERS: Duration = Duration::from_micros(200);
/// After so many times the patience an event is lost even if its thread is said to want to run.
const STARVES_FOR: u32 = 10;

/// Returns when all events have been taken, or one is lost.
pub(super) fn watch(shared: &Shared, threads: &Threads<'_>) -> Result<(), RelayError> {
    let is_helper = shared.relay.strategy == Strategy::Dispatcher;
    let tick = if is_helper { TICK_OF_DISPATCHERS } else { TICK };
    let started = Instant::now();
    let (mut clock, mut next_look) = (Duration::ZERO, Duration::ZERO);
    // What each had had when it was last seen with another count, or without an event under way.
    let mut seen = vec![(0, clock); shared.places.len()];
    loop {
        let posts = shared.end.posts();
        if shared.playing.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let begin = Instant::now();
        shared.end.sleep(posts, Some(begin + tick));
        clock += begin.elapsed().min(2 * tick);
        shared.deliver_for_those_that_starve();
        if clock < next_look {
            continue;
        }
        next_look = clock + TICK;
        if started.elapsed() >= shared.relay.longest {
            shared.is_ending.store(true, Ordering::Relaxed);
        }
        if threads.iter().any(ScopedJoinHandle::is_finished) {
            return Err(RelayError::Panicked);
        }
        for (thread, (place, (taken, since))) in shared.places.iter().zip(&mut seen).enumerate() {
            let now = place.taken.load(Ordering::Relaxed);
            if now != *taken || !place.is_chosen.load(Ordering::Relaxed) {
                (*taken, *since) = (now, clock);
            }
            let waited = clock - *since;
            if waited <= shared.relay.patience {
                continue;
            }
            let is_asleep = sleeps(place.number.load(Ordering::Relaxed));
            if is_asleep || waited > STARVES_FOR * shared.relay.patience {
                let (relay, thread) = (shared.relay, thread as u32);
                let is_there = place.there.load(Ordering::Relaxed) != now;
                return Err(RelayError::Lost(Lost {
                    relay,
                    thread,
                    taken: now,
                    is_asleep,
                    is_there,
                    waited,
                }));
            }
        }
    }
}

/// The calling thread's number; zero where the system does not say.
pub(super) fn own_number() -> u64 {
    let link = std::fs::read_link("/proc/thread-self").ok();
    link.and_then(|path| path.file_name()?.to_str()?.parse().ok()).unwrap_or(0)
}

/// Whether the system says that the thread sleeps. Where it says nothing, it does.
fn sleeps(number: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{number}/stat")).unwrap_or_default();
    // The name stands in brackets, and may have some of its own.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('S'))
}
