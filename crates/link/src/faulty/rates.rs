//! Faults by chance: each packet's fate follows from the seed, its stream and its number, and from nothing else.

use super::{FaultConfig, Rule, Subject, Verdict};
use highwire_stdx::{Duration, Rng};

/// A [`Rule`] that draws every packet's verdict with the rates of a [`FaultConfig`].
#[derive(Clone, Debug)]
pub struct Rates {
    config: FaultConfig,
}

impl Rates {
    /// Verdicts with these rates.
    pub fn new(config: &FaultConfig) -> Rates {
        Rates { config: *config }
    }
}

impl Rule for Rates {
    fn judge(&mut self, packet: &Subject<'_>) -> Verdict {
        // A generator per packet instead of one for all: no draw for one packet shifts those of the next.
        let mut rng = Rng::new(self.config.seed).fork(packet.stream).fork(packet.ordinal);
        let c = &self.config;
        let mut chance = rng.unit();
        let mut falls_on = |rate: f64| {
            chance -= rate;
            chance < 0.0
        };
        if falls_on(c.loss) {
            Verdict::Drop
        } else if falls_on(c.corrupt) {
            Verdict::Corrupt { bit: rng.next_u32() }
        } else if falls_on(c.duplicate) {
            Verdict::Duplicate
        } else if falls_on(c.reorder) {
            Verdict::Reorder(rng.between(1, u64::from(c.reorder_depth.max(1))) as u32)
        } else if c.jitter > Duration::ZERO {
            Verdict::Delay(Duration::from_nanos(rng.between(0, c.jitter.as_nanos())))
        } else {
            Verdict::Pass
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Order, Path};
    use std::net::SocketAddr;

    #[test]
    fn faults_come_as_often_as_asked() {
        let config: FaultConfig = "loss=1%,duplicate=2%,reorder=3%,corrupt=4%".parse().unwrap();
        let mut rates = Rates::new(&config);
        let path = Path::from(SocketAddr::from(([127, 0, 0, 2], 4791)));
        let mut counts = [0u32; 4];
        for ordinal in 0..100_000 {
            let subject = Subject {
                stream: 0,
                ordinal,
                now: highwire_stdx::Instant::ZERO,
                order: Order::Strict,
                path,
                bytes: &[0],
            };
            match rates.judge(&subject) {
                Verdict::Drop => counts[0] += 1,
                Verdict::Duplicate => counts[1] += 1,
                Verdict::Reorder(depth) => {
                    assert!((1..=config.reorder_depth).contains(&depth));
                    counts[2] += 1;
                }
                Verdict::Corrupt { .. } => counts[3] += 1,
                Verdict::Pass | Verdict::Delay(_) => {}
            }
        }
        for (count, expected) in counts.into_iter().zip([1_000, 2_000, 3_000, 4_000]) {
            assert!(count.abs_diff(expected) < 250, "{counts:?}");
        }
    }
}
