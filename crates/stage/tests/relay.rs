//! Threads of this machine that pass events to each other: none is lost, and each defect that is planted is found.

use std::time::Duration;

use highwire_stage::{Planted, Relay, RelayError};
use highwire_wake::{Core, Strategy};

const SLEEPERS: [Strategy; 5] =
    [Strategy::Event, Strategy::Dispatcher, Strategy::LeaderFollower, Strategy::Affine, Strategy::Adaptive];

fn relay(strategy: Strategy, threads: u32, events: u64) -> Relay {
    Relay {
        strategy,
        threads,
        depth: 8,
        is_pinned: false,
        events,
        longest: Duration::MAX,
        seed: 7,
        patience: Duration::from_secs(60),
        planted: None,
    }
}

/// Where the system lets threads run does not matter here.
const CORES: [Core; 2] = [0, 1];

#[test]
fn every_event_is_taken_and_counted_once_and_threads_arm_for_some() {
    for strategy in SLEEPERS {
        for (threads, is_pinned, events) in
            [(2, false, 500), (3, true, 500), (16, true, 5000), (130, false, 5000)]
        {
            let relay = Relay { is_pinned, ..relay(strategy, threads, events) };
            let relayed = relay.play(&CORES).unwrap_or_else(|error| panic!("{strategy}, {threads}: {error}"));
            assert_eq!(relayed.events, events, "{strategy}, {threads}");
            let kinds = relayed.polled + relayed.looked + relayed.led + relayed.woken;
            assert_eq!(kinds, events, "{strategy}, {threads}: {relayed:?}");
            // One event for two threads: it is seldom back before the thread that has just sent it arms. How a thread finds it then depends on
            // what else runs.
            assert!(relayed.polled < events, "{strategy}, {threads}: {relayed:?}");
        }
    }
}

#[test]
fn a_relay_that_takes_too_long_ends_without_a_loss() {
    let relay = Relay { longest: Duration::ZERO, ..relay(Strategy::Event, 16, u64::MAX) };
    let relayed = relay.play(&CORES).expect("no wake-up is lost");
    assert!(relayed.events >= 8, "all that were under way were taken: {relayed:?}");
}

#[test]
fn a_sleeping_thread_that_is_not_told_is_found() {
    for strategy in [Strategy::Event, Strategy::Dispatcher, Strategy::Affine] {
        let planted = Some(Planted::Untold(300));
        let relay = Relay { planted, patience: Duration::from_secs(1), ..relay(strategy, 16, 1_000_000) };
        match relay.play(&CORES) {
            Err(RelayError::Lost(lost)) => assert!(lost.is_asleep && lost.is_there, "{strategy}: {lost}"),
            other => panic!("{strategy}: {other:?}"),
        }
    }
}

/// The mistake pauses between the look and the arming, so that an event soon falls into that window.
#[test]
fn a_thread_that_looks_before_it_arms_is_found() {
    for strategy in [Strategy::Event, Strategy::Affine] {
        let relay = Relay { patience: Duration::from_secs(1), ..relay(strategy, 16, 1_000_000_000) };
        match (Relay { planted: Some(Planted::ArmsLate), ..relay }).play(&CORES) {
            Err(RelayError::Lost(lost)) => assert!(lost.is_asleep && lost.is_there, "{strategy}: {lost}"),
            other => panic!("{strategy}: {other:?}"),
        }
    }
}
