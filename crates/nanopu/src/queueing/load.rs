//! Requests to ideal servers: Poisson arrivals, and the service times that core selection is compared under.

use super::Request;

/// How long requests take. The mean is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Exponentially distributed.
    Exponential,
    /// All the same.
    Fixed,
    /// One in two hundred takes ten times as long as the others.
    Bimodal,
}

/// Shares of requests and their service times.
pub type Atoms = &'static [(f64, f64)];

const LONG_SHARE: f64 = 0.005;
const SHORT: f64 = 1.0 / (1.0 + 9.0 * LONG_SHARE);
const BIMODAL: Atoms = &[(1.0 - LONG_SHARE, SHORT), (LONG_SHARE, 10.0 * SHORT)];

impl Service {
    /// The service times there are, shortest first; nothing if there are infinitely many.
    pub fn atoms(self) -> Option<Atoms> {
        match self {
            Service::Exponential => None,
            Service::Fixed => Some(&[(1.0, 1.0)]),
            Service::Bimodal => Some(BIMODAL),
        }
    }

    fn draw(self, unit: &mut impl FnMut() -> f64) -> f64 {
        match self {
            Service::Exponential => exponential(unit()),
            Service::Fixed => 1.0,
            Service::Bimodal if unit() < LONG_SHARE => 10.0 * SHORT,
            Service::Bimodal => SHORT,
        }
    }
}

fn exponential(unit: f64) -> f64 {
    -(1.0 - unit).ln()
}

/// `count` requests to `servers` servers at `load` of what they can do.
///
/// `unit` draws from `[0, 1)`: for each request the time since the last, then its service unless that is
/// fixed. `hash` draws the hash for RSS.
pub fn requests(
    service: Service,
    servers: usize,
    load: f64,
    count: usize,
    mut unit: impl FnMut() -> f64,
    mut hash: impl FnMut() -> u64,
) -> Vec<Request> {
    let rate = load * servers as f64;
    let mut arrival = 0.0;
    let mut request = || {
        arrival += exponential(unit()) / rate;
        Request { arrival, service: service.draw(&mut unit), hash: hash() }
    };
    (0..count).map(|_| request()).collect()
}
