//! 99th percentiles to compare with: exact ones, and those of one recorded simulation of JBSQ.
//!
//! The simulation had two million requests, whose tails are some per cent beside those of the next two million. So it is compared
//! request by request: its arrivals and service times came from the 64-bit Mersenne Twister with a seed of 7, in the order of
//! [`requests`](super::requests), and the selector gets the same ones.

use super::Service;
use super::theory::{mg1_percentile, mmk_percentile};
use crate::nic::Selection;

/// The share of requests that the tails bound.
pub const SHARE: f64 = 0.99;
/// Requests of the recorded simulation.
pub const RECORDED_REQUESTS: usize = 2_000_000;
/// The seed of its generator.
pub const RECORDED_SEED: u64 = 7;

/// Where a tail comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Source {
    /// Erlang C.
    MarkovServers,
    /// Pollaczek and Khinchine, each server by itself.
    SingleServers,
    /// The recorded simulation.
    Recorded(f64),
}

/// A tail to compare with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reference {
    /// The distribution of service times.
    pub service: Service,
    /// Servers.
    pub servers: usize,
    /// How a request finds its server.
    pub selection: Selection,
    /// The share of what the servers can do.
    pub load: f64,
    /// Where the tail comes from.
    pub source: Source,
}

impl Reference {
    /// The 99th percentile of the response, in mean service times.
    pub fn tail(&self) -> f64 {
        match (self.source, self.service.atoms()) {
            (Source::Recorded(tail), _) => tail,
            (Source::SingleServers, Some(atoms)) => mg1_percentile(atoms, self.load, SHARE),
            (Source::SingleServers, None) => mmk_percentile(1, self.load, SHARE),
            (Source::MarkovServers, _) => mmk_percentile(self.servers, self.load, SHARE),
        }
    }
}

type Row<const N: usize> = (Service, Selection, [f64; N]);

const QUEUE: Selection = Selection::Jbsq(1);
const TWO: Selection = Selection::Jbsq(2);
const THREE: Selection = Selection::Jbsq(3);
const FOUR: Selection = Selection::Jbsq(4);
/// Join the shortest queue.
const JSQ: Selection = Selection::Jbsq(u32::MAX);

const LOADS: [f64; 3] = [0.5, 0.8, 0.9];
const RECORDED: [Row<3>; 15] = [
    (Service::Exponential, QUEUE, [4.756, 6.913, 12.33]),
    (Service::Exponential, TWO, [5.19, 7.60, 12.7]),
    (Service::Exponential, THREE, [5.25, 7.99, 13.0]),
    (Service::Exponential, FOUR, [5.26, 8.22, 13.3]),
    (Service::Exponential, JSQ, [5.25, 8.40, 14.0]),
    (Service::Fixed, QUEUE, [1.71, 3.45, 6.31]),
    (Service::Fixed, TWO, [1.96, 3.55, 6.41]),
    (Service::Fixed, THREE, [1.96, 3.55, 6.42]),
    (Service::Fixed, FOUR, [1.96, 3.78, 6.42]),
    (Service::Fixed, JSQ, [1.96, 3.75, 6.56]),
    (Service::Bimodal, QUEUE, [1.95, 5.50, 9.69]),
    (Service::Bimodal, TWO, [2.20, 7.10, 10.3]),
    (Service::Bimodal, THREE, [2.39, 8.54, 10.5]),
    (Service::Bimodal, FOUR, [2.38, 8.93, 10.8]),
    (Service::Bimodal, JSQ, [2.38, 9.16, 11.1]),
];

const SIXTEEN_LOADS: [f64; 2] = [0.8, 0.95];
const SIXTEEN: [Row<2>; 3] = [
    (Service::Bimodal, QUEUE, [1.76, 5.29]),
    (Service::Bimodal, TWO, [1.99, 6.61]),
    (Service::Bimodal, FOUR, [1.91, 9.09]),
];

/// All tails: exact ones first.
pub fn references() -> Vec<Reference> {
    let mut all = Vec::new();
    let mut exact = |service, servers, selection, source, loads: &[f64]| {
        all.extend(loads.iter().map(|&load| Reference { service, servers, selection, load, source }));
    };
    for servers in [4, 16] {
        exact(Service::Exponential, servers, QUEUE, Source::MarkovServers, &[0.5, 0.7, 0.8, 0.9, 0.95]);
    }
    for service in [Service::Exponential, Service::Fixed, Service::Bimodal] {
        exact(service, 4, Selection::Rss, Source::SingleServers, &LOADS);
    }
    exact(Service::Bimodal, 16, Selection::Rss, Source::SingleServers, &SIXTEEN_LOADS);
    recorded(&mut all, 4, &LOADS, &RECORDED);
    recorded(&mut all, 16, &SIXTEEN_LOADS, &SIXTEEN);
    all
}

fn recorded<const N: usize>(all: &mut Vec<Reference>, servers: usize, loads: &[f64; N], rows: &[Row<N>]) {
    for &(service, selection, tails) in rows {
        let of =
            |(&load, tail)| Reference { service, servers, selection, load, source: Source::Recorded(tail) };
        all.extend(loads.iter().zip(tails).map(of));
    }
}
