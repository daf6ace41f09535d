//! Core selection with ideal servers, as in queueing theory, without a core or a network.
//!
//! The selector is the NIC's own ([`crate::nic::Selector`]); only the cores are replaced by servers that take exactly their
//! service time. So the same rule is held against theory here and against recorded hardware in the NIC.

mod cycles;
mod load;
mod references;
mod theory;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::nic::{Selection, Selector};
pub use cycles::{Job, response_cycles};
pub use load::{Atoms, Service, requests};
pub use references::{RECORDED_REQUESTS, RECORDED_SEED, Reference, SHARE, Source, references};
pub use theory::{mg1_percentile, mmk_percentile};

/// A request to ideal servers. Times are in units of the caller's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Request {
    /// When it arrives; not before the request before it.
    pub arrival: f64,
    /// How long a server works on it.
    pub service: f64,
    /// The hash by which RSS selects.
    pub hash: u64,
}

/// The response time of each request, waiting and service, in the order of arrival.
///
/// Servers are first come, first served. A completion and an arrival at the same time happen in the hardware's order: the arrival first.
pub fn response_times(selection: Selection, servers: usize, requests: &[Request]) -> Vec<f64> {
    let servers = servers.max(1);
    let mut run = Run {
        requests,
        selector: Selector::new(selection, servers),
        queues: vec![VecDeque::new(); servers],
        ends: BinaryHeap::new(),
        responses: vec![0.0; requests.len()],
    };
    for (number, request) in requests.iter().enumerate() {
        run.finish_before(request.arrival);
        if let Some((server, number)) = run.selector.arrive(number, request.hash) {
            run.give(server, number, request.arrival);
        }
    }
    run.finish_before(f64::INFINITY);
    run.responses
}

/// The time that `share` of all responses do not exceed; zero without responses.
pub fn percentile(responses: &[f64], share: f64) -> f64 {
    if responses.is_empty() {
        return 0.0;
    }
    let mut some = responses.to_vec();
    let rank = (share.clamp(0.0, 1.0) * some.len() as f64).ceil() as usize;
    *some.select_nth_unstable_by(rank.saturating_sub(1), f64::total_cmp).1
}

struct Run<'a> {
    requests: &'a [Request],
    selector: Selector<usize>,
    /// The requests of each server; it works on the first.
    queues: Vec<VecDeque<usize>>,
    ends: BinaryHeap<Reverse<(Moment, usize)>>,
    responses: Vec<f64>,
}

impl Run<'_> {
    fn give(&mut self, server: usize, number: usize, now: f64) {
        self.queues[server].push_back(number);
        if self.queues[server].len() == 1 {
            self.begin(server, now);
        }
    }

    fn begin(&mut self, server: usize, now: f64) {
        if let Some(&number) = self.queues[server].front() {
            self.ends.push(Reverse((Moment(now + self.requests[number].service), server)));
        }
    }

    fn finish_before(&mut self, limit: f64) {
        while let Some(&Reverse((Moment(now), server))) = self.ends.peek() {
            if now >= limit {
                return;
            }
            self.ends.pop();
            let number = self.queues[server].pop_front().expect("a server that ends has a request");
            self.responses[number] = now - self.requests[number].arrival;
            if let Some(next) = self.selector.finish(server) {
                self.queues[server].push_back(next);
            }
            self.begin(server, now);
        }
    }
}

/// A time that can be sorted.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Moment(f64);

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Moment) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Moment) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
