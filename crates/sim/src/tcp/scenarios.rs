//! One test per rule: a sender on a link of 10 µs one way, on which only the named segments are lost.

use super::exchange::{DELAY, Exchange, Fate};
use super::{Ack, Config, SACK_BLOCKS, Segment, Sender};
use highwire_stdx::{Duration, Instant};

const MSS: u64 = 100;

fn config(initial_window: u32, sack: bool) -> Config {
    Config { mss: MSS as u32, initial_window, sack, ..Config::default() }
}

/// Drops the segments with these numbers, each as often as it is named.
fn losing(numbers: &[u64]) -> impl FnMut(&Segment) -> Fate {
    let mut left = numbers.to_vec();
    move |segment| match left.iter().position(|n| n * MSS == segment.offset) {
        Some(at) => {
            left.swap_remove(at);
            Vec::new()
        }
        None => vec![DELAY],
    }
}

fn check(config: Config, segments: u64, lost: &[u64], story: &str) -> (Sender, Instant) {
    let mut exchange = Exchange::new(config, losing(lost));
    exchange.sender.post(Instant::ZERO, 0, segments * MSS);
    exchange.run();
    assert_eq!(exchange.placed, segments * MSS);
    assert_eq!(exchange.story(MSS), story);
    (exchange.sender.clone(), exchange.now)
}

fn ack(cumulative: u64) -> Ack {
    Ack { cumulative: cumulative * MSS, window: 1 << 20, blocks: [(0, 0); SACK_BLOCKS] }
}

fn nothing_more(sender: &mut Sender, now: Instant) -> usize {
    std::iter::from_fn(|| sender.poll_transmit(now)).count()
}

/// RFC 5681 §3.1: each acknowledgement lets two segments leave, so the window doubles per round trip.
#[test]
fn slow_start_doubles_per_round_trip() {
    let mut exchange = Exchange::new(config(2, true), |_| vec![DELAY]);
    exchange.sender.post(Instant::ZERO, 0, 1_000 * MSS);
    exchange.drain();
    let mut per_round_trip = vec![exchange.sent.len()];
    for round in 1..6 {
        while exchange.now < Instant::ZERO + Duration::from_micros(20 * round) && exchange.step() {}
        per_round_trip.push(exchange.sent.len() - per_round_trip.iter().sum::<usize>());
    }
    assert_eq!(per_round_trip, [2, 4, 8, 16, 32, 64]);
}

/// RFC 5681 §3.1, equation 3: about one segment per round trip above the threshold.
#[test]
fn congestion_avoidance_adds_one_segment_per_round_trip() {
    let mut sender = Sender::new(config(8, true));
    sender.post(Instant::ZERO, 0, 100_000 * MSS);
    let sent = nothing_more(&mut sender, Instant::ZERO) as u64;
    assert_eq!(sent, 8);
    // A timeout with eight segments in flight: four are the threshold.
    let mut now = sender.poll_timeout().expect("something is in flight");
    sender.handle_timeout(now);
    assert_eq!((sender.congestion_window(), sender.slow_start_threshold()), (MSS, 4 * MSS));
    let mut acknowledged = 0;
    let mut windows = Vec::new();
    for _ in 0..9 {
        now += Duration::from_micros(20);
        let flight = nothing_more(&mut sender, now).max(1) as u64;
        for _ in 0..flight {
            acknowledged += 1;
            sender.handle_ack(now, &ack(acknowledged));
        }
        windows.push(sender.congestion_window() / MSS);
    }
    assert_eq!(windows[..2], [2, 4], "slow start");
    // Equation 3 falls a little short of a whole segment in each round trip.
    assert!(windows[2..].windows(2).all(|w| (0..=1).contains(&(w[1] - w[0]))), "{windows:?}");
    assert!((8..=11).contains(&windows[8]), "{windows:?}");
}

/// RFC 5681 §3.2, RFC 3042: new segments for the first two duplicates, the missing one for the third.
#[test]
fn three_duplicates_bring_the_missing_segment() {
    for sack in [false, true] {
        // With SACK the tail is sent once more to be sure, as nothing else is left to send.
        let story = if sack { "0 1 2 3 4 5 6 7 0* 8 9 9*" } else { "0 1 2 3 4 5 6 7 0* 8 9" };
        let (sender, end) = check(config(6, sack), 10, &[0], story);
        assert_eq!((sender.counters().timeouts, sender.counters().recoveries), (0, 1));
        assert!(end < Instant::ZERO + Duration::from_micros(100));
    }
}

/// Two duplicates are not enough; RFC 6675 has no early retransmit either.
#[test]
fn a_lost_tail_waits_for_the_timer() {
    for sack in [false, true] {
        let (sender, end) = check(config(10, sack), 5, &[3, 4], "0 1 2 3 4 3* 4*");
        assert_eq!((sender.counters().timeouts, sender.counters().recoveries), (1, 0));
        assert!(end >= Instant::ZERO + Duration::from_micros(320), "{end:?}");
    }
}

/// RFC 6582: one hole per round trip, each found by a partial acknowledgement.
#[test]
fn new_reno_repairs_a_hole_per_round_trip() {
    let (sender, end) = check(config(12, false), 12, &[0, 2, 4], "0 1 2 3 4 5 6 7 8 9 10 11 0* 2* 4*");
    assert_eq!((sender.counters().timeouts, sender.counters().recoveries), (0, 1));
    assert_eq!(end, Instant::ZERO + Duration::from_micros(20 + 3 * 20));
}

/// RFC 6675: all holes in one round trip, as far as the pipe has room; the tail once more, for its loss would go unnoticed.
#[test]
fn sack_repairs_all_holes_at_once() {
    let (sender, end) = check(config(12, true), 12, &[0, 2, 4], "0 1 2 3 4 5 6 7 8 9 10 11 0* 2* 4* 11*");
    assert_eq!((sender.counters().timeouts, sender.counters().recoveries), (0, 1));
    assert_eq!(end, Instant::ZERO + Duration::from_micros(20 + 20));
}

/// RFC 6675 §4, rule 4: the rescue retransmission saves a lost tail from the timer.
#[test]
fn a_tail_lost_in_a_recovery_is_rescued() {
    let (sender, _) = check(config(10, true), 10, &[0, 9], "0 1 2 3 4 5 6 7 8 9 0* 9*");
    assert_eq!(sender.counters().timeouts, 0);
}

/// RFC 6675 §5, step 4.2: half of what was in flight, and no more than once per recovery.
#[test]
fn a_recovery_halves_the_window_once() {
    let (sender, _) = check(
        config(20, true),
        20,
        &[1, 2, 3, 10],
        "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 1* 2* 3* 10* 19*",
    );
    assert_eq!(sender.slow_start_threshold(), 19 / 2 * MSS + MSS / 2);
    assert_eq!(sender.congestion_window(), sender.slow_start_threshold());
}

/// A resent segment that is lost again is beyond fast retransmit's reach.
#[test]
fn a_lost_retransmission_waits_for_the_timer() {
    for sack in [false, true] {
        let mut exchange = Exchange::new(config(6, sack), losing(&[0, 0]));
        exchange.sender.post(Instant::ZERO, 0, 6 * MSS);
        exchange.run();
        assert_eq!(exchange.placed, 6 * MSS);
        assert_eq!(exchange.sender.counters().timeouts, 1);
    }
}

/// RFC 6298 §5.5: the timeout doubles while nothing gets through.
#[test]
fn timeouts_double_until_something_is_acknowledged() {
    let mut exchange = Exchange::new(config(1, true), losing(&[0, 0, 0, 0]));
    exchange.sender.post(Instant::ZERO, 0, MSS);
    exchange.run();
    let times: Vec<u64> = exchange.sent.iter().map(|(at, _)| at.as_nanos() / 1_000_000).collect();
    assert_eq!(times, [0, 1, 3, 7, 15]);
    // Karn's rule: the round trip of a segment that was resent is not measured.
    assert_eq!(exchange.sender.retransmission_timeout(), Duration::from_millis(16));
}

/// RFC 6675 §5.1: segments that the scoreboard has are not sent again after a timeout.
#[test]
fn after_a_timeout_only_what_is_missing_is_resent() {
    let (sender, _) = check(config(6, true), 6, &[1, 4, 5], "0 1 2 3 4 5 1* 4* 5*");
    assert_eq!(sender.counters().timeouts, 1);
}

/// The receive window binds, no matter how large the congestion window is.
#[test]
fn no_more_than_the_receive_window_is_in_flight() {
    let config = Config { window_bytes: 350, ..config(10, true) };
    let mut sender = Sender::new(config);
    sender.post(Instant::ZERO, 0, 100 * MSS);
    assert_eq!(nothing_more(&mut sender, Instant::ZERO), 3);
}

/// RFC 5681 §4.1.
#[test]
fn a_long_pause_closes_the_window_to_what_it_was_at_first() {
    let mut exchange = Exchange::new(config(4, true), |_| vec![DELAY]);
    exchange.sender.post(Instant::ZERO, 0, 200 * MSS);
    exchange.run();
    assert!(exchange.sender.congestion_window() > 100 * MSS);
    exchange.sender.post(exchange.now, 1, MSS);
    assert!(exchange.sender.congestion_window() > 100 * MSS, "it was not idle for long");
    exchange.run();
    exchange.now += Duration::from_millis(10);
    exchange.sender.post(exchange.now, 2, MSS);
    assert_eq!(exchange.sender.congestion_window(), 4 * MSS);
}

/// A segment belongs to one message; the next message begins a new one.
#[test]
fn segments_do_not_cross_messages() {
    let mut sender = Sender::new(config(10, true));
    sender.post(Instant::ZERO, 7, 250);
    sender.post(Instant::ZERO, 8, 30);
    let sent: Vec<(u32, u32)> =
        std::iter::from_fn(|| sender.poll_transmit(Instant::ZERO)).map(|s| (s.message, s.length)).collect();
    assert_eq!(sent, [(7, 100), (7, 100), (7, 50), (8, 30)]);
    sender.handle_ack(Instant::ZERO, &Ack { cumulative: 260, ..ack(0) });
    assert_eq!((sender.poll_complete(), sender.poll_complete()), (Some(7), None));
}

/// An acknowledgement of bytes never sent is ignored.
#[test]
fn an_impossible_acknowledgement_changes_nothing() {
    let mut sender = Sender::new(config(2, true));
    sender.post(Instant::ZERO, 0, 10 * MSS);
    nothing_more(&mut sender, Instant::ZERO);
    sender.handle_ack(Instant::ZERO, &ack(3));
    assert_eq!(sender.in_flight(), 2 * MSS);
    let wild = Ack { blocks: [(50, u32::MAX), (0, 0), (0, 0)], ..ack(0) };
    sender.handle_ack(Instant::ZERO, &wild);
    sender.handle_ack(Instant::ZERO, &ack(2));
    assert_eq!(sender.in_flight(), 0);
}
