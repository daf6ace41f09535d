//! The seat of the leader: of several waiting threads one polls for all, the others follow it asleep.
//!
//! A leader says with every few turns that it runs (`beat`). If it does not, because another thread has its
//! core, the watcher notices and polls in its place: no thread waits for one that waits for a core.
//!
//! Why a seat does not stay empty while a follower would take it: a follower enters its name and then looks
//! at the seat; a leader leaves the seat and then looks for names. Both have a full fence between the two
//! steps.

use crate::sync::{AtomicU64, Ordering, fence};
use crate::word::{Posted, WakeWord};
use crate::world::may_switch;
use std::sync::{Arc, PoisonError, RwLock};

/// Followers that can be called to the seat. Further followers only wait for their events.
#[cfg(not(feature = "model"))]
const PLACES: usize = 1024;
#[cfg(feature = "model")]
const PLACES: usize = 64;

/// The seat of one group of threads that wait for the same source of events.
#[derive(Debug)]
pub struct Seat {
    /// Not zero: taken.
    taken: AtomicU64,
    beats: AtomicU64,
    /// The followers, a bit for each place.
    followers: Box<[AtomicU64]>,
    places: RwLock<Vec<Option<Arc<WakeWord>>>>,
}

/// The right to lead, until it is dropped.
#[derive(Debug)]
pub struct Leading<'a> {
    seat: &'a Seat,
}

impl Default for Seat {
    fn default() -> Seat {
        Seat {
            taken: AtomicU64::new(0),
            beats: AtomicU64::new(0),
            followers: (0..PLACES / 64).map(|_| AtomicU64::new(0)).collect(),
            places: RwLock::default(),
        }
    }
}

impl Seat {
    /// Gives a place to a word whose sleepers may be called to the seat; `None` if all places are taken.
    pub fn enroll(&self, word: &Arc<WakeWord>) -> Option<usize> {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let free = places.iter().position(Option::is_none).unwrap_or(places.len());
        if free == places.len() && free < PLACES {
            places.push(None);
        }
        *places.get_mut(free)? = Some(Arc::clone(word));
        Some(free)
    }

    /// Frees a place.
    pub fn dismiss(&self, place: usize) {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = places.get_mut(place) {
            *taken = None;
        }
    }

    /// The seat, if it is free.
    #[inline]
    pub fn try_take(&self) -> Option<Leading<'_>> {
        may_switch();
        let was_free = self.taken.swap(1, Ordering::AcqRel) == 0;
        was_free.then(|| Leading { seat: self })
    }

    /// Whether a thread leads.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire) != 0
    }

    /// How often leaders have said that they run.
    #[inline]
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Enters a follower's name. True: the seat is taken, and its leader will see the name when it leaves. False: the seat
    /// is free, so try to take it.
    #[inline]
    pub fn follow(&self, place: usize) -> bool {
        self.followers[place / 64].fetch_or(1 << (place % 64), Ordering::AcqRel);
        may_switch();
        // Store of the name, then load of the seat: only a full fence keeps this order.
        fence(Ordering::SeqCst);
        self.is_taken()
    }

    /// Whether a name is still entered: its thread was not called since it entered the name.
    #[inline]
    pub fn is_entered(&self, place: usize) -> bool {
        self.followers[place / 64].load(Ordering::Acquire) & 1 << (place % 64) != 0
    }

    /// Strikes out a name: its thread will not take the seat, and a call to it would be lost.
    pub fn withdraw(&self, place: usize) {
        self.followers[place / 64].fetch_and(!(1 << (place % 64)), Ordering::AcqRel);
    }

    /// Calls a follower to the seat, if one sleeps; true if it did.
    fn call(&self) -> bool {
        for (group, names) in self.followers.iter().enumerate() {
            let mut left = names.load(Ordering::Relaxed);
            while left != 0 {
                let bit = left & left.wrapping_neg();
                left &= !bit;
                if names.fetch_and(!bit, Ordering::AcqRel) & bit == 0 {
                    continue;
                }
                let place = group * 64 + bit.trailing_zeros() as usize;
                let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
                let word = places.get(place).and_then(Option::as_ref).map(Arc::clone);
                drop(places);
                // Names stay when their threads have gone. A thread that was about to sleep looks again
                // because of the post.
                if word.is_some_and(|word| word.post() == Posted::Woke) {
                    return true;
                }
            }
        }
        false
    }
}

impl Leading<'_> {
    /// Says that the leader runs.
    #[inline]
    pub fn beat(&self) {
        let beats = &self.seat.beats;
        // Not an increment: there is one leader.
        beats.store(beats.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Leaves the seat to a sleeping follower, if there is one; true if one was called.
    pub fn pass_on(self) -> bool {
        let seat = self.seat;
        drop(self);
        // Store of the seat, then load of the names: see above.
        fence(Ordering::SeqCst);
        seat.call()
    }
}

impl Drop for Leading<'_> {
    #[inline]
    fn drop(&mut self) {
        // A swap, not a store: every change of the word also reads it, so that its changes have one order.
        self.seat.taken.swap(0, Ordering::AcqRel);
        may_switch();
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::word::Scope;

    #[test]
    fn one_thread_leads_and_the_next_is_called() {
        let seat = Seat::default();
        let word = Arc::new(WakeWord::new(Scope::Process));
        let place = seat.enroll(&word).expect("a place");
        let leading = seat.try_take().expect("it is free");
        assert!(seat.try_take().is_none());
        assert!(seat.follow(place), "the seat is taken");
        let before = word.posts();
        assert!(!leading.pass_on(), "nobody sleeps there");
        assert_ne!(word.posts(), before, "but one that was about to looks again");
        assert!(!seat.follow(place), "the seat is free");
        seat.dismiss(place);
        assert_eq!(seat.enroll(&word), Some(place), "a place is given again");
    }

    #[test]
    fn a_sleeping_follower_takes_the_seat() {
        let seat = Seat::default();
        let word = Arc::new(WakeWord::new(Scope::Process));
        let place = seat.enroll(&word).expect("a place");
        let leading = seat.try_take().expect("it is free");
        std::thread::scope(|threads| {
            let follower = threads.spawn(|| {
                loop {
                    let seen = word.posts();
                    if let Some(mine) = seat.try_take() {
                        mine.beat();
                        return seat.beats();
                    }
                    if seat.follow(place) {
                        word.sleep(seen, None);
                    }
                }
            });
            while word.sleepers() == 0 {
                std::thread::yield_now();
            }
            leading.pass_on();
            assert_eq!(follower.join().expect("no panic"), 1);
        });
        assert!(!seat.is_taken());
    }

    #[test]
    fn there_are_so_many_places_and_no_more() {
        let seat = Seat::default();
        let word = Arc::new(WakeWord::new(Scope::Process));
        assert!((0..PLACES).all(|place| seat.enroll(&word) == Some(place)));
        assert_eq!(seat.enroll(&word), None);
    }
}
