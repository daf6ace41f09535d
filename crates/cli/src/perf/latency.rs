//! Round trips, one at a time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;

use crate::progress::Progress;

use super::endpoint::{Endpoint, Polled};
use super::plan::{Length, Operation, Plan, Service};

/// Round trips before the measured ones: caches, page tables and round-trip estimates settle.
const WARM_UP: u64 = 1_000;
/// An unreliable service may lose a message for good; this long after it was sent it counts as lost.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// A reliable one reports what it gave up; only a peer that has gone altogether is silent for longer.
const SILENT_AFTER: Duration = Duration::from_secs(20);
/// Polls between two looks at the clock while waiting.
const POLLS_PER_LOOK: u32 = 4096;

/// What one side measured.
pub(crate) struct Latency {
    /// Nanoseconds from posting to the answer (ping-pong) or to the completion (READ, atomic).
    pub(crate) round_trips_ns: Histogram<u64>,
    pub(crate) lost: u64,
}

/// The active end: times each round trip.
pub(crate) fn measure(end: &mut impl Endpoint, plan: &Plan) -> Result<Latency> {
    let mut round_trips_ns = Histogram::new(3).context("three digits are a valid precision")?;
    let mut lost = 0;
    let (iterations, deadline) = match plan.length {
        Length::Iterations(iterations) => (iterations, None),
        Length::Time(time) => (u64::MAX, Some(Instant::now() + time)),
    };
    let mut progress = Progress::new("measuring", iterations);
    let mut mark = 0u8;
    let mut done = 0u64;
    let warm_up = WARM_UP.min(iterations / 2);
    if plan.needs_receives() {
        end.post_receives(plan.depth)?;
    }
    while done < warm_up.saturating_add(iterations) {
        mark = mark.wrapping_add(1);
        let started = Instant::now();
        end.mark(mark);
        end.post(1)?;
        let answered = match plan.operation {
            Operation::Send => wait_for_message(end, plan)?,
            Operation::Write => wait_for_mark(end, mark, plan)?,
            Operation::Read | Operation::FetchAdd => wait(end, plan, |_, polled| polled.sent > 0)?,
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

/// The passive end: answers each message until `is_over` says that the active end has finished. Looks at it rarely.
pub(crate) fn answer(
    end: &mut impl Endpoint,
    plan: &Plan,
    mut is_over: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let mut polls = 0u32;
    let mut seen = end.arrived();
    loop {
        let polled = end.poll()?;
        match plan.operation {
            Operation::Send if polled.received > 0 => {
                end.post_receives(polled.received)?;
                (0..polled.received).try_for_each(|_| end.post(1))?;
            }
            Operation::Write if end.arrived() != seen => {
                seen = end.arrived();
                end.mark(seen);
                end.post(1)?;
            }
            _ => {}
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_LOOK) && is_over()? {
            return Ok(());
        }
    }
}

fn wait_for_message(end: &mut impl Endpoint, plan: &Plan) -> Result<bool> {
    let mut received = 0;
    let answered = wait(end, plan, |_, polled| {
        received += polled.received;
        received > 0
    })?;
    end.post_receives(received)?;
    Ok(answered)
}

fn wait_for_mark(end: &mut impl Endpoint, mark: u8, plan: &Plan) -> Result<bool> {
    wait(end, plan, |end, _| end.arrived() == mark)
}

/// Polls until `is_done`; false when an unreliable service has lost the message.
fn wait<E: Endpoint>(end: &mut E, plan: &Plan, mut is_done: impl FnMut(&E, Polled) -> bool) -> Result<bool> {
    let mut started = None;
    let mut polls = 0u32;
    loop {
        let polled = end.poll()?;
        if is_done(end, polled) {
            return Ok(true);
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_LOOK) {
            let waited = started.get_or_insert_with(Instant::now).elapsed();
            if plan.service != Service::Rc && waited > LOST_AFTER {
                return Ok(false);
            }
            if waited > SILENT_AFTER {
                bail!("the other end has been silent for {} s; is it still running?", waited.as_secs());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::options::plan_for_tests;
    use crate::perf::plan::Metric;

    /// An end whose peer answers at once, or never when `drops` says so for the message's number.
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
        fn post(&mut self, count: u32) -> Result<()> {
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
            let latency = measure(&mut Mirror::new(operation, |_| false), &plan).expect("nothing is lost");
            assert_eq!((latency.round_trips_ns.len(), latency.lost), (5_000, 0), "{operation:?}");
        }
    }

    #[test]
    fn counts_what_an_unreliable_service_loses() {
        let mut plan = plan_for_tests(Operation::Send, Metric::Lat, Length::Iterations(10));
        plan.service = Service::Ud;
        let latency =
            measure(&mut Mirror::new(Operation::Send, |n| n == 8), &plan).expect("the rest arrives");
        assert_eq!((latency.round_trips_ns.len(), latency.lost), (9, 1));
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
