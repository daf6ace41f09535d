//! How fast the simulator is, in packet-hops per second of CPU time.
//!
//! The cases are those that other simulators were measured with: permutations of 2 MB on fat trees, and an
//! incast of fifty. The whole model is on: virtual output queues, round robin, PFC, ECN, IRN, one
//! acknowledgement per packet; cases with DCQCN add pacing, CNPs and timers. The caller brings the clock, for
//! this crate has none.

use highwire_fabric::{Ecn, Time};

use crate::parcel::Parcel;
pub use crate::run::BYTES_PER_PACKET;
use crate::run::{Run, RunError};
use crate::scenario::{CongestionChoice, PfcChoice, Shape};
use crate::{Flow, Scenario};

/// Something to measure.
#[derive(Clone, Debug)]
pub struct Case {
    /// A short name.
    pub name: &'static str,
    /// The case, in words.
    pub what: &'static str,
    /// The run.
    pub scenario: Scenario,
    /// Packet-hops per CPU second that one thread should reach.
    pub goal: Option<f64>,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Packets times links.
    pub packet_hops: u64,
    /// Events of the simulator.
    pub events: u64,
    /// Seconds of CPU time of all threads.
    pub cpu_seconds: f64,
    /// Seconds by the clock.
    pub seconds: f64,
    /// Threads that ran.
    pub threads: usize,
    /// Bytes of memory that a packet in flight occupies.
    pub bytes_per_packet: usize,
}

/// What a clock shows, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// CPU time of the process, all threads together.
    pub cpu_seconds: f64,
    /// Time on the wall.
    pub seconds: f64,
}

impl Measurement {
    /// Packet-hops per second of CPU time.
    pub fn hops_per_cpu_second(&self) -> f64 {
        self.packet_hops as f64 / self.cpu_seconds.max(1e-9)
    }

    /// Packet-hops per second.
    pub fn hops_per_second(&self) -> f64 {
        self.packet_hops as f64 / self.seconds.max(1e-9)
    }
}

/// All cases, the quick ones first.
pub fn cases() -> Vec<Case> {
    let case = |name, what, scenario, goal| Case { name, what, scenario, goal };
    let (none, dcqcn) = (CongestionChoice::NONE, CongestionChoice::DCQCN);
    vec![
        case("p54", "54 hosts, permutation of 2 MB", permutation(6, 2_000_000, none), Some(6e6)),
        case("p54-dcqcn", "54 hosts, permutation of 2 MB, DCQCN", permutation(6, 2_000_000, dcqcn), None),
        case("i50", "50 hosts send 3 MB each to one", incast(50, 3_000_000, none), None),
        case("p128", "128 hosts, permutation of 2 MB", permutation(8, 2_000_000, none), None),
        case("p1024", "1024 hosts, permutation of 2 MB", permutation(16, 2_000_000, none), Some(5e6)),
    ]
}

/// The largest network that fits eight gigabytes: 11,664 hosts, each sends and receives.
pub fn largest() -> Case {
    Case {
        name: "p11664",
        what: "11,664 hosts, permutation of 50 KB",
        scenario: permutation(36, 50_000, CongestionChoice::NONE),
        goal: None,
    }
}

fn full(k: u32, congestion: CongestionChoice) -> Scenario {
    let mut scenario = Scenario::default();
    scenario.network.shape = Shape::FatTree { k };
    scenario.network.pfc = PfcChoice::Computed;
    scenario.network.ecn = Some(Ecn::red(5_000, 200_000, 0.01));
    scenario.scheme.congestion = congestion;
    scenario
}

/// Each host sends to one in another pod and receives from one.
fn permutation(k: u32, bytes: u64, congestion: CongestionChoice) -> Scenario {
    let mut scenario = full(k, congestion);
    let hosts = k * k * k / 4;
    // An odd stride that divides no number of hosts here keeps neighbours from sending to neighbours.
    let peer = |host: u32| (host * 7 + hosts / 2 + 1) % hosts;
    scenario.flows = (0..hosts)
        .filter(|&host| peer(host) != host)
        .map(|host| Flow::new(host, peer(host), bytes, Time::ZERO))
        .collect();
    scenario
}

fn incast(senders: u32, bytes: u64, congestion: CongestionChoice) -> Scenario {
    let mut scenario = full(6, congestion);
    scenario.flows = (0..senders).map(|host| Flow::new(host, 53, bytes, Time::ZERO)).collect();
    scenario
}

/// Runs a case once. Building the network is not counted.
///
/// # Errors
/// As [`crate::run`].
pub fn measure(
    case: &Case,
    threads: usize,
    mut clock: impl FnMut() -> Reading,
) -> Result<Measurement, RunError> {
    let mut run = Run::<Parcel>::new(&case.scenario, threads)?;
    let before = clock();
    run.play(&mut ())?;
    let after = clock();
    Ok(Measurement {
        packet_hops: run.net.packet_hops(),
        events: run.net.event_count(),
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        seconds: after.seconds - before.seconds,
        threads,
        bytes_per_packet: BYTES_PER_PACKET,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_possible_and_keep_their_invariants() {
        let mut case = cases().remove(0);
        for flow in &mut case.scenario.flows {
            flow.bytes = 20_000;
        }
        let mut ticks = 0.0;
        let clock = || {
            ticks += 1.0;
            Reading { cpu_seconds: ticks, seconds: 2.0 * ticks }
        };
        let found = measure(&case, 1, clock).expect("it runs");
        assert_eq!((found.cpu_seconds, found.seconds), (1.0, 2.0));
        // Twenty data packets and as many acknowledgements per host, mostly over six links.
        assert!(found.packet_hops > 54 * 40 * 4 && found.packet_hops <= 54 * 40 * 6);
        assert!(found.bytes_per_packet <= 200);
        // The largest network, with a few packets per host.
        let mut case = largest();
        case.scenario.flows.iter_mut().for_each(|flow| flow.bytes = 2_000);
        let found = measure(&case, 1, || Reading { cpu_seconds: 0.0, seconds: 0.0 }).expect("it runs");
        assert!(found.packet_hops > 11_664 * 4 * 4);
        for case in cases().iter().chain([&largest()]) {
            assert!(case.scenario.flows.iter().all(|f| f.source != f.destination), "{}", case.name);
        }
    }
}
