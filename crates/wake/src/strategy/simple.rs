//! The strategies without memory: spin, or sleep at once while other threads do the work.

use super::{Outcome, Station, TURNS_PER_CLOCK, Wait, WakeStrategy};
use crate::account::Kind;
use crate::world;

/// Spins until the event is there: the shortest possible wait, at a core for each thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusyPoll;

impl WakeStrategy for BusyPoll {
    fn wait(&self, _station: &Station, wait: &Wait<'_>) -> Outcome {
        // Read before the look, and not again in each turn: another thread may post between two turns.
        let mut posts = wait.word.posts();
        if wait.is_ready() {
            return Outcome::Over;
        }
        let begin = world::now();
        let mut turns = 0;
        loop {
            wait.work.turn();
            turns += 1;
            let is_over = std::mem::replace(&mut posts, wait.word.posts()) != posts && (wait.is_over)();
            if is_over || (turns % TURNS_PER_CLOCK == 0 && wait.is_late(world::now())) {
                let (kind, outcome) =
                    if is_over { (Kind::Own, Outcome::Over) } else { (Kind::InVain, Outcome::TimedOut) };
                wait.account.note(kind, turns, world::now() - begin);
                return outcome;
            }
        }
    }
}

/// Sleeps at once; the thread that runs the work wakes it, from any core. As a card's completion channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event;

impl WakeStrategy for Event {
    fn wait(&self, _station: &Station, wait: &Wait<'_>) -> Outcome {
        if wait.is_ready() { Outcome::Over } else { wait.sleep_until_over(|| wait.work.hand_over()) }
    }
}

/// Sleeps at once, and records its core: the thread that runs the work moves to that core, since a thread is
/// woken several times faster from its own core than from another. The paper's design for saving power.
#[derive(Clone, Copy, Debug, Default)]
pub struct Affine;

impl WakeStrategy for Affine {
    fn wait(&self, station: &Station, wait: &Wait<'_>) -> Outcome {
        if wait.is_ready() {
            return Outcome::Over;
        }
        station.note_sleep_here();
        wait.sleep_until_over(|| wait.work.hand_over())
    }
}
