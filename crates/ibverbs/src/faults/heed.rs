//! Which calls of the data path a scenario has anything to say about: a program polls millions of times a second, and most scenarios have no
//! rule for that.

use highwire_faults::{Scenario, Start};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The functions that are asked about.
const FUNCTIONS: [&str; 6] = [
    "ibv_poll_cq",
    "ibv_req_notify_cq",
    "ibv_post_send",
    "ibv_post_recv",
    "ibv_post_srq_recv",
    "ibv_wr_complete",
];

pub(super) fn is_of_data_path(function: &str) -> bool {
    FUNCTIONS.contains(&function)
}

/// What the rules are about. It only grows: rules come while a scenario is played, and none goes.
#[derive(Default)]
pub(super) struct Heed {
    /// A bit for each function.
    functions: AtomicU8,
    completions: AtomicBool,
    queue_pairs: AtomicBool,
    has_failed: AtomicBool,
}

impl Heed {
    pub(super) fn new(scenario: &Scenario) -> Heed {
        let heed = Heed::default();
        heed.take(scenario);
        heed
    }

    /// Takes note of a scenario's rules.
    pub(super) fn take(&self, scenario: &Scenario) {
        // Threads are numbered by their first call, of whichever function.
        let counts_threads = scenario.calls.iter().any(|rule| rule.thread.is_some());
        let is_about = |function: &str| {
            counts_threads
                || scenario.calls.iter().any(|rule| rule.function == function)
                || scenario
                    .events
                    .iter()
                    .any(|rule| matches!(&rule.start, Start::Call(at, _) if *at == function))
        };
        for (bit, function) in FUNCTIONS.iter().enumerate() {
            self.functions.fetch_or(u8::from(is_about(function)) << bit, Ordering::Relaxed);
        }
        self.completions.fetch_or(!scenario.completions.is_empty(), Ordering::Relaxed);
        let tells_apart = scenario.calls.iter().any(|rule| rule.queue_pair.is_some())
            || scenario.completions.iter().any(|rule| rule.queue_pair.is_some());
        self.queue_pairs.fetch_or(tells_apart, Ordering::Relaxed);
    }

    /// A device has failed, and what is asked of it is not carried out.
    pub(super) fn note_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether a call may meet anything else than its being carried out.
    #[inline]
    pub(super) fn is_about(&self, function: &str) -> bool {
        let bit = FUNCTIONS.iter().position(|known| *known == function);
        let is_meant = bit.is_none_or(|bit| self.functions.load(Ordering::Relaxed) >> bit & 1 == 1);
        is_meant || self.has_failed.load(Ordering::Relaxed)
    }

    /// Whether a rule is about one queue pair and not about another.
    #[inline]
    pub(super) fn tells_queue_pairs_apart(&self) -> bool {
        self.queue_pairs.load(Ordering::Relaxed)
    }

    /// Whether completions may be replaced, late or missing.
    #[inline]
    pub(super) fn is_about_completions(&self) -> bool {
        self.completions.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heed(text: &str) -> Heed {
        Heed::new(&Scenario::read("f", text).unwrap_or_else(|error| panic!("{error}")))
    }

    fn asked(heed: &Heed) -> Vec<&'static str> {
        FUNCTIONS.into_iter().filter(|function| heed.is_about(function)).collect()
    }

    #[test]
    fn only_functions_that_a_rule_names_are_asked_about() {
        assert_eq!(asked(&heed("seed = 7\n[[path]]\nloss = \"1%\"\n")), [""; 0]);
        let calls = heed("[[call]]\nfunction = \"ibv_post_send\"\nerrno = \"ENOMEM\"\n");
        assert_eq!(asked(&calls), ["ibv_post_send"]);
        assert!(calls.is_about("ibv_create_cq") && !calls.is_about_completions());
        let events = heed("[[event]]\ndo = \"port-down\"\ncall = \"ibv_poll_cq\"\n");
        assert_eq!(asked(&events), ["ibv_poll_cq"]);
        // What comes later is added to what was there.
        let more = "[[completion]]\nmissing = true\n[[event]]\ndo = \"port-up\"\ncall = \"ibv_post_recv\"\n";
        events.take(&Scenario::read("f", more).expect("it is right"));
        assert_eq!(asked(&events), ["ibv_poll_cq", "ibv_post_recv"]);
        assert!(events.is_about_completions());
    }

    #[test]
    fn queue_pairs_are_told_apart_where_a_rule_names_one() {
        let all =
            heed("[[call]]\nfunction = \"ibv_post_send\"\nerrno = \"EIO\"\n[[completion]]\nmissing = true\n");
        assert!(!all.tells_queue_pairs_apart());
        let more = "[[completion]]\nmissing = true\nqueue_pair = 2\n";
        all.take(&Scenario::read("f", more).expect("it is right"));
        assert!(all.tells_queue_pairs_apart());
        let call = "[[call]]\nfunction = \"ibv_post_send\"\nerrno = \"EIO\"\nqueue_pair = 1\n";
        assert!(heed(call).tells_queue_pairs_apart());
    }

    #[test]
    fn whoever_counts_threads_or_has_failed_asks_always() {
        let threads = heed("[[call]]\nfunction = \"ibv_create_cq\"\nerrno = \"ENOMEM\"\nthread = 2\n");
        assert_eq!(asked(&threads), FUNCTIONS);
        let failed = heed("[[event]]\ndo = \"device-fatal\"\nafter = \"5ms\"\n");
        assert_eq!(asked(&failed), [""; 0]);
        failed.note_failure();
        assert_eq!(asked(&failed), FUNCTIONS);
    }
}
