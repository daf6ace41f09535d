//! The NIC's own selectors and buses, cycle by cycle, in front of cores that take exactly their service time.
//!
//! This shows the cost of selection for hundreds of cores and millions of messages, without a program.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::nic::NicConfig;
use crate::nic::dispatch::{Dispatch, Message};
use crate::packet::AppHeader;

/// A message to an ideal core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// The cycle in which it is whole; not before the previous message's.
    pub arrival: u64,
    /// Cycles that its core works on it, from the first word on.
    pub service: u64,
}

/// Bytes of such a message.
const BYTES: u16 = 16;

/// The response of each job, waiting and service, in the order of arrival.
pub fn response_cycles(config: &NicConfig, cores: usize, jobs: &[Job]) -> Vec<u64> {
    let cores = cores.max(1);
    let mut dispatch = Dispatch::new(config, cores, false);
    (0..cores).for_each(|core| dispatch.insert(0, core, 0));
    let mut run = Run {
        jobs,
        dispatch,
        queues: vec![VecDeque::new(); cores],
        ends: BinaryHeap::new(),
        responses: vec![0; jobs.len()],
    };
    let mut next = 0;
    let mut cycle = 0;
    loop {
        while let Some(&Reverse((end, core))) = run.ends.peek()
            && end <= cycle
        {
            run.ends.pop();
            run.end(cycle, core);
        }
        if jobs.get(next).is_some_and(|job| job.arrival <= cycle) && run.dispatch.next_choice() <= cycle {
            run.dispatch.arrive(cycle, message(next));
            next += 1;
        }
        run.tick(cycle);
        let arrival = jobs.get(next).map(|job| job.arrival.max(run.dispatch.next_choice()));
        let end = run.ends.peek().map(|&Reverse((end, _))| end);
        let Some(event) = [arrival, end, run.dispatch.next_event()].into_iter().flatten().min() else {
            return run.responses;
        };
        cycle = event.max(cycle + 1);
    }
}

/// The message of job `number`, with the number in place of the sender's address.
fn message(number: usize) -> Message {
    let header = AppHeader { peer: number as u32, context: 0, bytes: BYTES };
    Message {
        context: 0,
        header,
        payload: vec![0; BYTES.into()],
        stream: None,
        key: (0, 0),
        memory_bytes: BYTES,
    }
}

struct Run<'a> {
    jobs: &'a [Job],
    dispatch: Dispatch,
    /// The jobs of each core; it works on the first.
    queues: Vec<VecDeque<usize>>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    responses: Vec<u64>,
}

impl Run<'_> {
    /// A core is done.
    fn end(&mut self, cycle: u64, core: usize) {
        let number = self.queues[core].pop_front().expect("it worked on one");
        self.responses[number] = cycle - self.jobs[number].arrival;
        self.dispatch.finish(cycle, core, 0);
        self.begin(cycle, core);
    }

    /// A core turns to its next job, if it has one.
    fn begin(&mut self, cycle: u64, core: usize) {
        if let Some(&number) = self.queues[core].front() {
            self.ends.push(Reverse((cycle + self.jobs[number].service, core)));
        }
    }

    fn tick(&mut self, cycle: u64) {
        let mut come = Vec::new();
        self.dispatch.tick(cycle, |word| {
            if word.is_first {
                come.push((word.core, AppHeader::from_word(word.word).peer as usize));
            }
        });
        for (core, number) in come {
            self.queues[core].push_back(number);
            if self.queues[core].len() == 1 {
                self.begin(cycle, core);
            }
        }
        while self.dispatch.poll_released(cycle).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::{Selection, TreeShape};
    use crate::queueing::{Request, percentile, response_times};
    use highwire_stdx::Rng;

    /// Poisson arrivals of work with a mean of 2,000 cycles, exponential, at `load`.
    fn jobs(cores: usize, load: f64, count: usize) -> Vec<Job> {
        let mut rng = Rng::new(9);
        let mut now = 0.0;
        let mut draw = |mean: f64| -(1.0 - rng.unit()).ln() * mean;
        let job = |_| {
            now += draw(2000.0 / (load * cores as f64));
            Job { arrival: now as u64, service: draw(2000.0) as u64 + 1 }
        };
        (0..count).map(job).collect()
    }

    fn p99(selection: Selection, slows: bool, jobs: &[Job]) -> f64 {
        let config = NicConfig { selection, selection_slows: slows, ..NicConfig::default() };
        let cycles: Vec<f64> =
            response_cycles(&config, 16, jobs).into_iter().map(|cycles| cycles as f64).collect();
        percentile(&cycles, 0.99)
    }

    #[test]
    fn without_delays_worth_naming_it_is_the_queueing_model() {
        let jobs = jobs(16, 0.8, 40_000);
        let ideal: Vec<_> = jobs
            .iter()
            .map(|job| Request { arrival: job.arrival as f64, service: job.service as f64, hash: 0 })
            .collect();
        for selection in [Selection::Jbsq(1), Selection::Jbsq(2), Selection::Jbsq(4)] {
            let ideal = percentile(&response_times(selection, 16, &ideal), 0.99);
            let here = p99(selection, false, &jobs);
            assert!((here / ideal - 1.0).abs() < 0.01, "{selection:?}: {here} and {ideal}");
        }
    }

    #[test]
    fn a_tree_of_free_cores_is_one_queue() {
        let jobs = jobs(16, 0.9, 40_000);
        let shape = TreeShape { cores_per_group: 4, per_core: 1, per_group: 0 };
        let (tree, one) = (p99(Selection::Tree(shape), false, &jobs), p99(Selection::Jbsq(1), false, &jobs));
        assert!((tree / one - 1.0).abs() < 0.02, "{tree} and {one}");
        let two = p99(Selection::Jbsq(2), false, &jobs);
        assert!(two > 1.05 * one, "{two} and {one}");
    }
}
