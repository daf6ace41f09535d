//! The thread by which events happen at their time, and late completions become ready.

use super::{Play, completions, lock};
use highwire_host::SignalMask;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Starts the thread, once in each process: a child of `fork` has none.
pub(super) fn begin(play: &'static Play) {
    let process = std::process::id();
    if play.timeline.swap(process, Ordering::SeqCst) == process {
        return;
    }
    let _masked = SignalMask::all();
    let spawned = std::thread::Builder::new().name("highwire-faults".into()).spawn(move || run(play));
    if let Err(error) = spawned {
        crate::env::say(&format!("the scenario's events in time do not happen: {error}"));
    }
}

fn run(play: &'static Play) {
    loop {
        play.catch_up();
        completions::release(play);
        let course = lock(&play.course);
        let next = [course.deadline(), completions::deadline(play)].into_iter().flatten().min();
        let wait = next.map(|at| Duration::from_nanos(at.saturating_since(play.now()).as_nanos()));
        match wait {
            None => drop(play.changed.wait(course).unwrap_or_else(PoisonError::into_inner)),
            Some(wait) => {
                drop(play.changed.wait_timeout(course, wait).unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}
