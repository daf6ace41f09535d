//! What a node's thread does after a turn that found nothing to do.
//!
//! A node that exchanges little with others first looks again some times, so that one transaction alone is
//! fast, then offers its core to other threads, and then sleeps until it is woken. Looking again costs as
//! much as work does, and so do many small turns. So a node that exchanges much offers its core at once, and
//! if no thread wants it the node naps: no peer has to wake it, and all messages that arrive meanwhile are
//! the work of one turn. Where cores are scarce, the turns of other threads are as good as naps.

use std::time::Duration;

/// Turns without work before other threads may have the core in between: on a machine with fewer cores than
/// nodes, this node waits for those threads.
const TURNS_AWAKE: u32 = 50;
/// Turns without work that one turn with work pays for: a node with much to do offers its core rather than
/// sleeps, since a sleep costs the peer that ends it a system call, and both some microseconds; a node with
/// little to do sleeps.
const TURNS_EARNED: u32 = 20;
/// The most of these turns that a node can save.
const TURNS_SAVED_MAX: u32 = 1000;
/// How long requests are counted before the node decides whether to nap.
const WINDOW_NS: u64 = 1_000_000;
/// This many requests in a window, to this node and from it, begin napping.
const REQUESTS_PER_WINDOW: u64 = 100;
/// Fewer requests than this for each nap end it: the transactions of one client come one after the other,
/// however fast, and naps delay each.
const REQUESTS_PER_NAP: u64 = 3;
/// How long a node that has ended napping does not begin again.
const NAPS_PAUSE_NS: u64 = 50_000_000;
/// The kernel's timer adds up to 50 µs.
const NAP: Duration = Duration::from_micros(30);
/// An offer that took less time has found no thread that wants the core.
const OFFER_NS: u64 = 5_000;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Look again.
    Look,
    /// Let another thread have the core, if one wants it; [`Idle::offered`] says whether to look again then.
    Offer,
    /// Sleep until the thread is woken.
    Sleep,
}

/// The amount of recent work.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    turns: u32,
    saved_turns: u32,
    /// When the window began, the requests until then, and the naps since.
    began_ns: u64,
    requests: u64,
    naps: u64,
    is_napping: bool,
    no_naps_until_ns: u64,
}

impl Idle {
    /// A turn has found work.
    pub(crate) fn worked(&mut self) {
        self.turns = 0;
        self.saved_turns = (self.saved_turns + TURNS_EARNED).min(TURNS_SAVED_MAX);
    }

    /// A turn has found no work. `look` gives the time, and the number of requests so far.
    pub(crate) fn rest(&mut self, look: impl FnOnce() -> (u64, u64)) -> Rest {
        self.turns += 1;
        if self.turns == 1 || self.is_napping {
            let (now_ns, requests) = look();
            self.judge(now_ns, requests);
        }
        if self.is_napping {
            return Rest::Offer;
        }
        if self.turns <= TURNS_AWAKE {
            return Rest::Look;
        }
        if self.saved_turns > 0 {
            self.saved_turns -= 1;
            return Rest::Offer;
        }
        self.turns = 0;
        Rest::Sleep
    }

    /// Takes the time for which the core was offered. Returns how long to nap, if at all.
    pub(crate) fn offered(&mut self, took_ns: u64) -> Option<Duration> {
        let naps = self.is_napping && took_ns < OFFER_NS;
        self.naps += u64::from(naps);
        naps.then_some(NAP)
    }

    fn judge(&mut self, now_ns: u64, requests: u64) {
        let length_ns = now_ns.saturating_sub(self.began_ns);
        if length_ns < WINDOW_NS {
            return;
        }
        let new = requests.saturating_sub(self.requests);
        if !self.is_napping {
            let per_window = u128::from(new) * u128::from(WINDOW_NS) / u128::from(length_ns);
            self.is_napping =
                per_window >= u128::from(REQUESTS_PER_WINDOW) && now_ns >= self.no_naps_until_ns;
        } else if new == 0 {
            self.is_napping = false;
        } else if new < self.naps * REQUESTS_PER_NAP {
            self.is_napping = false;
            self.no_naps_until_ns = now_ns + NAPS_PAUSE_NS;
        }
        (self.began_ns, self.requests, self.naps) = (now_ns, requests, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs turns without work, each as long as a look, until the node stops looking; returns its next
    /// action, and the number of turns.
    fn looks(idle: &mut Idle, now_ns: &mut u64, requests: u64) -> (u32, Rest) {
        for looks in 0.. {
            *now_ns += 100;
            match idle.rest(|| (*now_ns, requests)) {
                Rest::Look => {}
                rest => return (looks, rest),
            }
        }
        unreachable!("it looks for ever")
    }

    /// Runs this many windows with equal turns, each with the given requests and length; returns whether the
    /// node naps then.
    fn naps_after(
        idle: &mut Idle,
        now_ns: &mut u64,
        requests: &mut u64,
        windows: u64,
        (each, length_ns): (u64, u64),
    ) -> bool {
        let end_ns = *now_ns + windows * WINDOW_NS;
        let mut naps = false;
        while *now_ns < end_ns {
            *now_ns += length_ns;
            *requests += each;
            idle.worked();
            naps = idle.rest(|| (*now_ns, *requests)) == Rest::Offer && idle.offered(100).is_some();
        }
        naps
    }

    #[test]
    fn a_node_that_has_little_to_do_looks_then_offers_as_often_as_it_has_earned_and_then_sleeps() {
        let (mut idle, mut now_ns) = (Idle::default(), 0);
        assert_eq!(looks(&mut idle, &mut now_ns, 0), (TURNS_AWAKE, Rest::Sleep));
        idle.worked();
        assert_eq!(looks(&mut idle, &mut now_ns, 1), (TURNS_AWAKE, Rest::Offer));
        for _ in 1..TURNS_EARNED {
            assert_eq!(idle.offered(100), None, "it has little to do, and naps");
            assert_eq!(looks(&mut idle, &mut now_ns, 1), (0, Rest::Offer));
        }
        assert_eq!(looks(&mut idle, &mut now_ns, 1), (0, Rest::Sleep));
        // After the sleep it looks again.
        assert_eq!(looks(&mut idle, &mut now_ns, 1), (TURNS_AWAKE, Rest::Sleep));
    }

    #[test]
    fn a_node_that_exchanges_much_naps_unless_a_thread_wants_its_core_and_sleeps_when_it_is_over() {
        let (mut idle, mut now_ns, mut requests) = (Idle::default(), 0, 0);
        assert!(!naps_after(&mut idle, &mut now_ns, &mut requests, 3, (8, 100_000)), "80 in a window");
        assert!(naps_after(&mut idle, &mut now_ns, &mut requests, 3, (8, 50_000)), "160 in a window");
        assert_eq!(idle.offered(OFFER_NS), None, "another thread had the core");
        assert_eq!(idle.offered(OFFER_NS - 1), Some(NAP));
        // No request comes any more, whether other threads want the core or not.
        for took_ns in [100, 10 * OFFER_NS] {
            assert!(naps_after(&mut idle, &mut now_ns, &mut requests, 60, (8, 50_000)));
            let mut rests = 0;
            while looks(&mut idle, &mut now_ns, requests).1 != Rest::Sleep {
                now_ns += took_ns + idle.offered(took_ns).map_or(0, |nap| nap.as_nanos() as u64);
                rests += 1;
                assert!(rests < 2 * TURNS_SAVED_MAX, "it does not sleep");
            }
        }
    }

    #[test]
    fn naps_that_find_one_request_at_a_time_end_and_begin_again_much_later() {
        let (mut idle, mut now_ns, mut requests) = (Idle::default(), 0, 0);
        // Transactions come one after the other, as fast as they do without naps.
        assert!(naps_after(&mut idle, &mut now_ns, &mut requests, 1, (1, 5_000)));
        assert!(!naps_after(&mut idle, &mut now_ns, &mut requests, 2, (1, 60_000)), "each nap delays one");
        let pause = NAPS_PAUSE_NS / WINDOW_NS;
        assert!(!naps_after(&mut idle, &mut now_ns, &mut requests, pause - 5, (1, 5_000)), "so soon again");
        assert!(naps_after(&mut idle, &mut now_ns, &mut requests, 8, (8, 50_000)), "never again");
    }
}
