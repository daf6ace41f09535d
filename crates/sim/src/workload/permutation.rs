//! Each host sends to one other and receives from one other: a network of full bisection should carry this at
//! full rate.

use highwire_fabric::Time;
use highwire_stdx::Rng;

use super::{Ground, WorkloadError};
use crate::Flow;

/// A random permutation in which no host sends to itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permutation {
    /// Bytes that each host sends.
    pub bytes: u64,
}

impl Permutation {
    pub(super) fn flows(&self, ground: &Ground<'_>, seed: u64) -> Result<Vec<Flow>, WorkloadError> {
        if self.bytes == 0 {
            return Err(WorkloadError::NothingToSend);
        }
        let mut rng = Rng::new(seed).fork(0);
        let mut targets: Vec<u32> = (0..ground.hosts()).collect();
        // Sattolo: one cycle through all of them.
        for last in (1..targets.len()).rev() {
            targets.swap(last, rng.below(last as u64) as usize);
        }
        let pairs = targets.iter().zip(0..);
        Ok(pairs.map(|(&target, source)| Flow::new(source, target, self.bytes, Time::ZERO)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::GROUND;
    use super::*;

    #[test]
    fn each_sends_once_and_receives_once_and_never_to_itself() {
        for seed in 0..20 {
            let flows = Permutation { bytes: 5 }.flows(&GROUND, seed).expect("it fits");
            let mut targets: Vec<u32> = flows.iter().map(|flow| flow.destination.0).collect();
            assert!(flows.iter().all(|flow| flow.source != flow.destination));
            targets.sort_unstable();
            assert_eq!(targets, (0..54).collect::<Vec<_>>());
        }
    }
}
