//! Flows that arrive at random (IRN §4.1).
//!
//! Each host's arrivals are a Poisson process of their own; each flow goes to any other host. The load is the share of a
//! host's link that its flows occupy, headers included, acknowledgements and repetitions not.

use highwire_fabric::{Span, Time};
use highwire_stdx::Rng;

use super::{Ground, SizeDistribution, WorkloadError};
use crate::Flow;

/// Random arrivals at every host.
#[derive(Clone, PartialEq, Debug)]
pub struct Poisson {
    /// How large flows are.
    pub sizes: SizeDistribution,
    /// The share of each host's link that is asked for, 0 to 1.
    pub load: f64,
    /// For how long flows arrive.
    pub duration: Span,
}

impl Poisson {
    pub(super) fn flows(&self, ground: &Ground<'_>, seed: u64) -> Result<Vec<Flow>, WorkloadError> {
        if !(self.load > 0.0 && self.load <= 1.0) {
            return Err(WorkloadError::Load(self.load));
        }
        let bits = 8.0 * self.sizes.mean_wire_bytes(ground.mtu_bytes, ground.overhead_bytes);
        let mut flows = Vec::new();
        for (source, &rate_bps) in (0..).zip(ground.rates_bps) {
            let mean_gap_ps = bits * 1e12 / (self.load * rate_bps as f64);
            // One generator per host, so that hosts' flows do not depend on each other.
            let mut rng = Rng::new(seed).fork(u64::from(source) + 1);
            let mut at = 0.0;
            loop {
                at += gap(&mut rng) * mean_gap_ps;
                if at > self.duration.as_ps() as f64 {
                    break;
                }
                let other = rng.below(u64::from(ground.hosts()) - 1) as u32;
                let destination = other + u32::from(other >= source);
                let start = Time::from_ps(at.round() as u64);
                flows.push(Flow::new(source, destination, self.sizes.sample(&mut rng), start));
            }
        }
        flows.sort_by_key(|flow| (flow.start, flow.source));
        Ok(flows)
    }
}

/// Exponentially distributed with mean one. The platform's logarithm may differ in the last bit; this one does not.
fn gap(rng: &mut Rng) -> f64 {
    -libm::log(1.0 - rng.unit())
}

#[cfg(test)]
mod tests {
    use super::super::GROUND;
    use super::*;

    fn poisson(duration: Span) -> Poisson {
        Poisson {
            sizes: SizeDistribution::named("irn-heavy-tail").expect("it is there"),
            load: 0.7,
            duration,
        }
    }

    #[test]
    fn the_load_is_what_was_asked_for() {
        let duration = Span::from_ms(400);
        let flows = poisson(duration).flows(&GROUND, 3).expect("it fits");
        let packets: u64 = flows.iter().map(|flow| flow.bytes.div_ceil(1024)).sum();
        let bytes = flows.iter().map(|flow| flow.bytes).sum::<u64>() + 62 * packets;
        let share = bytes as f64 * 8.0 / (54.0 * 40e9 * duration.as_secs_f64());
        assert!((share - 0.7).abs() < 0.01, "{share}");
        let mut received = [0u32; 54];
        flows.iter().for_each(|flow| received[flow.destination.0 as usize] += 1);
        let mean = flows.len() as f64 / 54.0;
        assert!(received.iter().all(|&count| (f64::from(count) / mean - 1.0).abs() < 0.08));
    }

    #[test]
    fn a_longer_run_begins_with_a_shorter_one() {
        let short = poisson(Span::from_ms(1)).flows(&GROUND, 5).expect("it fits");
        let long = poisson(Span::from_ms(3)).flows(&GROUND, 5).expect("it fits");
        assert!(short.len() > 300 && long.len() > 2 * short.len());
        assert_eq!(short[..], long[..short.len()]);
    }

    #[test]
    fn seeds_differ_and_repeat() {
        let flows = |seed| poisson(Span::from_us(500)).flows(&GROUND, seed).expect("it fits");
        assert_eq!(flows(1), flows(1));
        assert_ne!(flows(1), flows(2));
    }
}
