//! Messages and bytes per second with many work requests in flight.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::progress::Progress;

use super::endpoint::Endpoint;
use super::plan::{Length, Plan};

const SILENT_AFTER: Duration = Duration::from_secs(20);
/// Polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 256;
/// Posted receives per work request that the active end may have in flight: it must never find none.
const RECEIVES_PER_DEPTH: u32 = 2;

/// What the active end measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bandwidth {
    /// Work requests completed.
    pub(crate) messages: u64,
    pub(crate) time: Duration,
}

/// The active end: keeps `depth` work requests in flight, posted in chains.
pub(crate) fn measure(end: &mut impl Endpoint, plan: &Plan) -> Result<Bandwidth> {
    let warm_up = u64::from(plan.depth) * 2;
    drive(end, plan, Length::Iterations(warm_up), &mut Progress::new("warming up", warm_up))?;
    let total = match plan.length {
        Length::Iterations(iterations) => iterations,
        Length::Time(time) => time.as_millis() as u64,
    };
    drive(end, plan, plan.length, &mut Progress::new("measuring", total))
}

fn drive(end: &mut impl Endpoint, plan: &Plan, length: Length, progress: &mut Progress) -> Result<Bandwidth> {
    let started = Instant::now();
    let mut last_news = started;
    let (mut posted, mut completed) = (0u64, 0u64);
    let mut limit = match length {
        Length::Iterations(iterations) => iterations,
        Length::Time(_) => u64::MAX,
    };
    let mut polls = 0u32;
    while completed < limit {
        while posted < limit {
            let chain = u64::from(plan.chain).min(limit - posted);
            if posted - completed + chain > u64::from(plan.depth) {
                break;
            }
            end.post(chain as u32)?;
            posted += chain;
        }
        let sent = end.poll()?.sent;
        completed += u64::from(sent);
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_LOOK) {
            let now = Instant::now();
            if sent > 0 {
                last_news = now;
            } else if now - last_news > SILENT_AFTER {
                bail!(
                    "nothing completed for {} s: {} of {} messages in flight",
                    (now - last_news).as_secs(),
                    posted - completed,
                    plan.depth
                );
            }
            match length {
                Length::Time(time) => {
                    if now - started >= time {
                        limit = posted;
                    }
                    progress.at((now - started).as_millis() as u64, now);
                }
                Length::Iterations(_) => progress.at(completed, now),
            }
        }
    }
    Ok(Bandwidth { messages: completed, time: started.elapsed() })
}

/// The passive end before the start: receives for all that may come at once.
pub(crate) fn prepare(end: &mut impl Endpoint, plan: &Plan) -> Result<()> {
    if plan.needs_receives() { end.post_receives(plan.depth * RECEIVES_PER_DEPTH) } else { Ok(()) }
}

/// The passive end: keeps receives posted and the engine going until `is_over`. Returns the messages that arrived.
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

    /// Completes half of what is in flight at each poll, and remembers the most that ever was.
    #[derive(Default)]
    struct Pipe {
        in_flight: u32,
        in_flight_max: u32,
        longest_chain: u32,
        receives: u32,
        to_deliver: u32,
    }

    impl Endpoint for Pipe {
        fn post(&mut self, count: u32) -> Result<()> {
            self.in_flight += count;
            self.in_flight_max = self.in_flight_max.max(self.in_flight);
            self.longest_chain = self.longest_chain.max(count);
            Ok(())
        }

        fn post_receives(&mut self, count: u32) -> Result<()> {
            self.receives += count;
            Ok(())
        }

        fn poll(&mut self) -> Result<Polled> {
            let sent = self.in_flight.div_ceil(2);
            self.in_flight -= sent;
            let received = self.to_deliver.min(self.receives).min(3);
            self.receives -= received;
            self.to_deliver -= received;
            Ok(Polled { sent, received })
        }

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
        let bandwidth = measure(&mut pipe, &plan).expect("all complete");
        assert_eq!(bandwidth.messages, 1_003);
        assert_eq!((pipe.in_flight, pipe.in_flight_max, pipe.longest_chain), (0, 64, 16));
    }

    #[test]
    fn a_receiver_never_runs_dry() {
        let plan = plan_for_tests(Operation::Send, Metric::Bw, Length::Iterations(1));
        let mut pipe = Pipe { to_deliver: 1_000, ..Pipe::default() };
        prepare(&mut pipe, &plan).expect("receives");
        assert_eq!(serve(&mut pipe, &plan, || Ok(true)).expect("all arrive"), 1_000);
        assert_eq!(pipe.receives, plan.depth * RECEIVES_PER_DEPTH);
    }
}
