//! Messages and bytes per second with many work requests in flight.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::progress::Progress;

use super::endpoint::Endpoint;
use super::plan::{Length, Plan};
use super::silence::Silence;

/// Polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 256;

/// The active end's measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bandwidth {
    /// Work requests completed.
    pub(crate) messages: u64,
    pub(crate) time: Duration,
}

/// The active end: keeps `depth` work requests in flight, posted in chains. `check_peer` fails when the other
/// end has gone; this end calls it in a long silence.
pub(crate) fn measure(
    end: &mut impl Endpoint,
    plan: &Plan,
    mut check_peer: impl FnMut() -> Result<()>,
) -> Result<Bandwidth> {
    let warm_up = u64::from(plan.depth) * 2;
    let mut progress = Progress::new("warming up", warm_up);
    drive(end, plan, Length::Iterations(warm_up), &mut progress, &mut check_peer)?;
    let total = match plan.length {
        Length::Iterations(iterations) | Length::Within(iterations, _) => iterations,
        Length::Time(time) => time.as_millis() as u64,
    };
    drive(end, plan, plan.length, &mut Progress::new("measuring", total), &mut check_peer)
}

fn drive(
    end: &mut impl Endpoint,
    plan: &Plan,
    length: Length,
    progress: &mut Progress,
    check_peer: &mut dyn FnMut() -> Result<()>,
) -> Result<Bandwidth> {
    let started = Instant::now();
    let mut silence = Silence::default();
    let (mut posted, mut completed) = (0u64, 0u64);
    let mut limit = match length {
        Length::Iterations(iterations) | Length::Within(iterations, _) => iterations,
        Length::Time(_) => u64::MAX,
    };
    // A completion per quarter of the queue keeps it full at a fraction of the cost of one per message.
    let signal_interval = u64::from(plan.depth / 4);
    let mut signaled = 0u64;
    let mut polls = 0u32;
    while completed < limit {
        while posted < limit {
            let chain = u64::from(plan.chain).min(limit - posted);
            if posted - completed + chain > u64::from(plan.depth) {
                break;
            }
            posted += chain;
            let is_due = posted - signaled >= signal_interval || posted == limit;
            end.post(chain as u32, is_due)?;
            signaled = if is_due { posted } else { signaled };
        }
        let sent = end.poll()?.sent;
        completed += u64::from(sent);
        if sent > 0 {
            silence.end();
        } else if silence.grows().is_some() {
            silence.check(check_peer)?;
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_LOOK) {
            let now = Instant::now();
            if let Length::Time(time) | Length::Within(_, time) = length
                && now - started >= time
            {
                // One more chain, which is signaled and so ends all that are in flight.
                limit = limit.min(posted + u64::from(plan.chain));
            }
            match length {
                Length::Time(_) => progress.at((now - started).as_millis() as u64, now),
                Length::Iterations(_) | Length::Within(..) => progress.at(completed, now),
            }
        }
    }
    Ok(Bandwidth { messages: completed, time: started.elapsed() })
}

/// The passive end: keeps receives posted and runs the engine until `is_over`. Returns the number of messages
/// that arrived.
pub(crate) fn serve(
    end: &mut impl Endpoint,
    plan: &Plan,
    mut is_over: impl FnMut() -> Result<bool>,
) -> Result<u64> {
    let mut received = 0u64;
    let mut owed = 0u32;
    let mut polls = 0u32;
    loop {
        let polled = end.poll()?;
        received += u64::from(polled.received);
        owed += polled.received;
        if owed >= plan.chain || (owed > 0 && polled.received == 0) {
            end.post_receives(owed)?;
            owed = 0;
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_LOOK * 16) && is_over()? {
            return Ok(received);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::endpoint::Polled;
    use crate::perf::options::plan_for_tests;
    use crate::perf::plan::{Metric, Operation};

    /// Completes half of the requests in flight at each poll, and remembers their greatest number.
    #[derive(Default)]
    struct Pipe {
        in_flight: u32,
        /// The number of requests in flight for which the last signaled one stands.
        signaled: u32,
        in_flight_max: u32,
        longest_chain: u32,
        receives: u32,
        to_deliver: u32,
    }

    impl Endpoint for Pipe {
        fn post(&mut self, count: u32, signaled: bool) -> Result<()> {
            self.in_flight += count;
            self.signaled = if signaled { self.in_flight } else { self.signaled };
            self.in_flight_max = self.in_flight_max.max(self.in_flight);
            self.longest_chain = self.longest_chain.max(count);
            Ok(())
        }

        fn post_receives(&mut self, count: u32) -> Result<()> {
            self.receives += count;
            Ok(())
        }

        fn poll(&mut self) -> Result<Polled> {
            let sent = self.signaled.div_ceil(2);
            self.signaled -= sent;
            self.in_flight -= sent;
            let received = self.to_deliver.min(self.receives).min(3);
            self.receives -= received;
            self.to_deliver -= received;
            Ok(Polled { sent, received })
        }

        fn write_message(&mut self, _bytes: &[u8]) {}

        fn read_message(&self, _bytes: &mut [u8]) {}

        fn mark(&mut self, _mark: u8) {}

        fn arrived(&self) -> u8 {
            0
        }
    }

    #[test]
    fn keeps_within_depth_and_finishes_exactly() {
        let mut plan = plan_for_tests(Operation::Write, Metric::Bw, Length::Iterations(1_003));
        (plan.depth, plan.chain) = (64, 16);
        let mut pipe = Pipe::default();
        let bandwidth = measure(&mut pipe, &plan, || Ok(())).expect("all complete");
        assert_eq!(bandwidth.messages, 1_003);
        assert_eq!((pipe.in_flight, pipe.in_flight_max, pipe.longest_chain), (0, 64, 16));
    }

    #[test]
    fn time_ends_a_test_with_nothing_in_flight() {
        let mut plan = plan_for_tests(Operation::Write, Metric::Bw, Length::Time(Duration::from_millis(5)));
        (plan.depth, plan.chain) = (64, 8);
        let mut pipe = Pipe::default();
        let bandwidth = measure(&mut pipe, &plan, || Ok(())).expect("all complete");
        assert!(bandwidth.messages > 0 && pipe.in_flight == 0);
    }

    #[test]
    fn a_receiver_never_runs_dry() {
        let plan = plan_for_tests(Operation::Send, Metric::Bw, Length::Iterations(1));
        let mut pipe = Pipe { to_deliver: 1_000, ..Pipe::default() };
        pipe.post_receives(plan.receives()).expect("receives");
        assert_eq!(serve(&mut pipe, &plan, || Ok(true)).expect("all arrive"), 1_000);
        assert_eq!(pipe.receives, plan.receives());
    }
}
