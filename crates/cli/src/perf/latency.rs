//! Round trips, one at a time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use crate::progress::Progress;

use super::endpoint::{Endpoint, Polled};
use super::plan::{Length, Operation, Plan, Service};
use super::silence::Silence;

/// Round trips before the measured ones: caches, page tables and round-trip estimates settle.
const WARM_UP: u64 = 1_000;
/// An unreliable service may lose a message for good; when this end has polled for so long, it counts as lost.
const LOST_AFTER: Duration = Duration::from_millis(100);
const ROUND_TRIP_NS_MAX: u64 = 60_000_000_000;
/// Answers between two signaled ones: the queue must drain now and then.
const SIGNAL_INTERVAL: u64 = 32;
/// Polls between two looks at whether the test is over.
const POLLS_PER_LOOK: u32 = 4096;

/// One side's measurement.
pub(crate) struct Latency {
    /// Nanoseconds from posting to the answer (ping-pong) or to the completion (READ, atomic).
    pub(crate) round_trips_ns: Histogram<u64>,
    pub(crate) lost: u64,
}

/// The active end: times each round trip. `check_peer` fails when the other end has gone; this end calls it
/// in a long silence.
pub(crate) fn measure(
    end: &mut impl Endpoint,
    plan: &Plan,
    mut check_peer: impl FnMut() -> Result<()>,
) -> Result<Latency> {
    let mut round_trips_ns =
        Histogram::new_with_bounds(1, ROUND_TRIP_NS_MAX, 3).context("the bounds are in order")?;
    let mut lost = 0;
    let (iterations, deadline) = match plan.length {
        Length::Iterations(iterations) => (iterations, None),
        Length::Time(time) => (u64::MAX, Some(Instant::now() + time)),
        Length::Within(iterations, time) => (iterations, Some(Instant::now() + time)),
    };
    let mut progress = Progress::new("measuring", iterations);
    let mut mark = 0u8;
    let mut done = 0u64;
    let warm_up = WARM_UP.min(iterations / 2);
    if plan.needs_receives() {
        end.post_receives(plan.receives())?;
    }
    while done < warm_up.saturating_add(iterations) {
        mark = mark.wrapping_add(1);
        let started = Instant::now();
        end.mark(mark);
        end.post(1, !plan.is_ping_pong() || done.is_multiple_of(SIGNAL_INTERVAL))?;
        let answered = match plan.operation {
            Operation::Send if plan.is_ping_pong() => wait_for_message(end, plan, &mut check_peer)?,
            Operation::Write if plan.is_ping_pong() => wait_for_mark(end, mark, plan, &mut check_peer)?,
            _ => wait(end, plan, &mut check_peer, |_, polled| polled.sent > 0)?,
        };
        let now = Instant::now();
        done += 1;
        if answered && done > warm_up {
            round_trips_ns.saturating_record((now - started).as_nanos() as u64);
        }
        lost += u64::from(!answered);
        progress.at(done, now);
        if deadline.is_some_and(|deadline| now > deadline) {
            break;
        }
    }
    Ok(Latency { round_trips_ns, lost })
}

/// The passive end: answers each message until `is_over` says that the active end has finished, which it
/// checks rarely.
pub(crate) fn answer(
    end: &mut impl Endpoint,
    plan: &Plan,
    mut is_over: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let mut polls = 0u32;
    let mut answers = 0u64;
    // Not the value at this moment: the first message may be quicker than this loop, and buffers begin with
    // zero.
    let mut seen = 0;
    loop {
        let polled = end.poll()?;
        let due = match plan.operation {
            _ if !plan.is_ping_pong() => 0,
            Operation::Write if end.arrived() != seen => {
                seen = end.arrived();
                end.mark(seen);
                1
            }
            Operation::Send => polled.received,
            _ => 0,
        };
        for _ in 0..due {
            end.post(1, answers.is_multiple_of(SIGNAL_INTERVAL))?;
            answers += 1;
        }
        // While the answer travels.
        if polled.received > 0 {
            end.post_receives(polled.received)?;
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_LOOK) && is_over()? {
            return Ok(());
        }
    }
}

type CheckPeer<'a> = &'a mut dyn FnMut() -> Result<()>;

fn wait_for_message(end: &mut impl Endpoint, plan: &Plan, check_peer: CheckPeer<'_>) -> Result<bool> {
    let mut received = 0;
    let answered = wait(end, plan, check_peer, |_, polled| {
        received += polled.received;
        received > 0
    })?;
    end.post_receives(received)?;
    Ok(answered)
}

fn wait_for_mark(end: &mut impl Endpoint, mark: u8, plan: &Plan, check_peer: CheckPeer<'_>) -> Result<bool> {
    wait(end, plan, check_peer, |end, _| end.arrived() == mark)
}

/// Polls until `is_done`; false when an unreliable service has lost the message.
fn wait<E: Endpoint>(
    end: &mut E,
    plan: &Plan,
    check_peer: CheckPeer<'_>,
    mut is_done: impl FnMut(&E, Polled) -> bool,
) -> Result<bool> {
    let mut silence = Silence::default();
    loop {
        let polled = end.poll()?;
        if is_done(end, polled) {
            return Ok(true);
        }
        let Some(waited) = silence.grows() else { continue };
        if plan.service != Service::Rc && waited > LOST_AFTER {
            return Ok(false);
        }
        silence.check(check_peer)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::options::plan_for_tests;
    use crate::perf::plan::Metric;

    /// An end whose peer answers at once, or never if `drops` says so for the message's number.
    struct Mirror {
        is_send: bool,
        drops: fn(u64) -> bool,
        posted: u64,
        pending: Polled,
        receives: u32,
        mark: u8,
        arrived: u8,
    }

    impl Mirror {
        fn new(operation: Operation, drops: fn(u64) -> bool) -> Self {
            let is_send = operation == Operation::Send;
            Self { is_send, drops, posted: 0, pending: Polled::default(), receives: 0, mark: 0, arrived: 0 }
        }
    }

    impl Endpoint for Mirror {
        fn post(&mut self, count: u32, _signaled: bool) -> Result<()> {
            self.posted += u64::from(count);
            self.pending.sent += count;
            if !(self.drops)(self.posted) {
                self.pending.received += if self.is_send { count } else { 0 };
                self.arrived = self.mark;
            }
            Ok(())
        }

        fn post_receives(&mut self, count: u32) -> Result<()> {
            self.receives += count;
            Ok(())
        }

        fn poll(&mut self) -> Result<Polled> {
            self.receives = self.receives.checked_sub(self.pending.received).context("no receive posted")?;
            Ok(std::mem::take(&mut self.pending))
        }

        fn write_message(&mut self, _bytes: &[u8]) {}

        fn read_message(&self, _bytes: &mut [u8]) {}

        fn mark(&mut self, mark: u8) {
            self.mark = mark;
        }

        fn arrived(&self) -> u8 {
            self.arrived
        }
    }

    #[test]
    fn times_every_operation() {
        for operation in [Operation::Send, Operation::Write, Operation::Read, Operation::FetchAdd] {
            let plan = plan_for_tests(operation, Metric::Lat, Length::Iterations(5_000));
            let latency =
                measure(&mut Mirror::new(operation, |_| false), &plan, || Ok(())).expect("nothing is lost");
            assert_eq!((latency.round_trips_ns.len(), latency.lost), (5_000, 0), "{operation:?}");
        }
    }

    #[test]
    fn counts_what_an_unreliable_service_loses() {
        let mut plan = plan_for_tests(Operation::Send, Metric::Lat, Length::Iterations(10));
        plan.service = Service::Ud;
        let latency = measure(&mut Mirror::new(Operation::Send, |n| n == 8), &plan, || Ok(()))
            .expect("the rest arrives");
        assert_eq!((latency.round_trips_ns.len(), latency.lost), (9, 1));
    }

    #[test]
    fn a_peer_that_has_gone_ends_the_wait() {
        let plan = plan_for_tests(Operation::Send, Metric::Lat, Length::Iterations(10));
        let error =
            measure(&mut Mirror::new(Operation::Send, |n| n == 3), &plan, || anyhow::bail!("it has gone"));
        assert!(error.is_err_and(|error| error.to_string() == "it has gone"));
    }

    #[test]
    fn a_write_that_came_before_the_loop_is_answered() {
        let plan = plan_for_tests(Operation::Write, Metric::Lat, Length::Iterations(1));
        let mut end = Mirror::new(Operation::Write, |_| true);
        end.arrived = 1;
        answer(&mut end, &plan, || Ok(true)).expect("it ends when told");
        assert_eq!((end.posted, end.mark), (1, 1));
    }

    #[test]
    fn answers_until_told_to_stop() {
        let plan = plan_for_tests(Operation::Send, Metric::Lat, Length::Iterations(1));
        let mut end = Mirror::new(Operation::Send, |n| n > 3);
        end.post_receives(16).expect("a receive");
        end.pending.received = 1;
        answer(&mut end, &plan, || Ok(true)).expect("an answer for each message");
        assert_eq!(end.posted, 4, "one message came in, three of ours came back as answers");
    }
}
