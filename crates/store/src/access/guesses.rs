//! Wrong passwords, by the address from which they come: each makes the answer to the next one slower.
//!
//! Time is an argument. What is kept is bounded: attempts under way of all and of one address, and addresses that have guessed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Passwords that are being checked, or whose wrong answer waits.
const UNDER_WAY_MAX: usize = 64;
const UNDER_WAY_OF_ONE_MAX: usize = 4;
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 4096;
/// The pause after the first wrong password; twice as long after each further one.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// After so long without a wrong password, one is forgotten, and then the next.
const FORGIVEN_AFTER: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
struct Guesser {
    under_way: usize,
    wrong: u32,
    last: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Guesses {
    under_way: usize,
    by_address: HashMap<IpAddr, Guesser>,
}

impl Guesses {
    /// A password is to be checked; `false`: too many are already.
    pub(super) fn begin(&mut self, address: IpAddr, now: Instant) -> bool {
        if self.under_way >= UNDER_WAY_MAX {
            return false;
        }
        if !self.by_address.contains_key(&address) && self.by_address.len() >= ADDRESSES_MAX {
            self.forget_oldest();
        }
        let guesser = self.by_address.entry(address).or_insert(Guesser { under_way: 0, wrong: 0, last: now });
        if guesser.under_way >= UNDER_WAY_OF_ONE_MAX {
            return false;
        }
        guesser.under_way += 1;
        self.under_way += 1;
        true
    }

    /// It was wrong: how long its answer must wait.
    pub(super) fn was_wrong(&mut self, address: IpAddr, now: Instant) -> Duration {
        let Some(guesser) = self.by_address.get_mut(&address) else { return PAUSE };
        let forgiven = now.saturating_duration_since(guesser.last).as_secs() / FORGIVEN_AFTER.as_secs();
        guesser.wrong = guesser.wrong.saturating_sub(forgiven.try_into().unwrap_or(u32::MAX)) + 1;
        guesser.last = now;
        PAUSE.saturating_mul(1 << (guesser.wrong - 1).min(16)).min(PAUSE_MAX)
    }

    /// It has its answer.
    pub(super) fn end(&mut self, address: IpAddr) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(guesser) = self.by_address.get_mut(&address) {
            guesser.under_way = guesser.under_way.saturating_sub(1);
            if guesser.under_way == 0 && guesser.wrong == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    fn forget_oldest(&mut self) {
        let idle = self.by_address.iter().filter(|(_, guesser)| guesser.under_way == 0);
        if let Some(oldest) = idle.min_by_key(|(_, guesser)| guesser.last).map(|(address, _)| *address) {
            self.by_address.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn each_wrong_password_of_an_address_waits_longer_and_time_forgives() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        let mut wrong = |address, at: u64| {
            let at = now + Duration::from_secs(at);
            assert!(guesses.begin(of(address), at));
            let pause = guesses.was_wrong(of(address), at);
            guesses.end(of(address));
            pause.as_millis()
        };
        let pauses: Vec<u128> = (0..8).map(|_| wrong(1, 0)).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3000, 3000]);
        assert_eq!(wrong(2, 0), 50, "another address has not guessed");
        assert_eq!(wrong(1, 60), 200, "six are forgotten");
    }

    #[test]
    fn few_are_under_way_and_fewer_of_one_address() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        let begun = (0..10).filter(|_| guesses.begin(of(1), now)).count();
        assert_eq!(begun, UNDER_WAY_OF_ONE_MAX);
        assert!(guesses.begin(of(2), now), "another address is not kept waiting");
        let begun = (10..200).filter(|&address| guesses.begin(of(address), now)).count();
        assert_eq!(begun, UNDER_WAY_MAX - UNDER_WAY_OF_ONE_MAX - 1);
        guesses.end(of(1));
        assert!(guesses.begin(of(1), now));
    }

    #[test]
    fn addresses_without_number_take_no_memory() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        for address in 0..3 * ADDRESSES_MAX as u32 {
            assert!(guesses.begin(of(address), now));
            let _ = guesses.was_wrong(of(address), now);
            guesses.end(of(address));
        }
        assert!(guesses.by_address.len() <= ADDRESSES_MAX && guesses.under_way == 0);
        assert!(guesses.begin(of(u32::MAX), now));
        guesses.end(of(u32::MAX));
        assert!(!guesses.by_address.contains_key(&of(u32::MAX)), "a right password leaves nothing behind");
    }
}
