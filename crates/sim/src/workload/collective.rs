//! The traffic of distributed training.

use highwire_fabric::Time;

use super::{Ground, REQUEST, WorkloadError};
use crate::{Flow, FlowId};

/// A ring all-reduce: every host's vector is cut into as many parts as there are hosts; in twice as many
/// steps less two, each host passes one part on to its neighbour, once it has received the part of the step
/// before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllReduce {
    /// Each host's vector.
    pub bytes: u64,
}

/// Every host sends an equal part of its data to every other, all at once; each begins with its neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllToAll {
    /// Bytes that each host sends in all.
    pub bytes: u64,
}

impl AllReduce {
    pub(super) fn flows(&self, ground: &Ground<'_>) -> Result<Vec<Flow>, WorkloadError> {
        let hosts = ground.hosts();
        if self.bytes < u64::from(hosts) {
            return Err(WorkloadError::NothingToSend);
        }
        let bytes = self.bytes.div_ceil(u64::from(hosts));
        let steps = 0..2 * (hosts - 1);
        let flows = steps.flat_map(|step| {
            (0..hosts).map(move |source| {
                let before = (step > 0).then(|| FlowId((step - 1) * hosts + (source + hosts - 1) % hosts));
                Flow { after: before.into_iter().collect(), ..request(source, (source + 1) % hosts, bytes) }
            })
        });
        Ok(flows.collect())
    }
}

impl AllToAll {
    pub(super) fn flows(&self, ground: &Ground<'_>) -> Result<Vec<Flow>, WorkloadError> {
        let hosts = ground.hosts();
        let bytes = self.bytes / u64::from(hosts - 1);
        if bytes == 0 {
            return Err(WorkloadError::NothingToSend);
        }
        let flows = (1..hosts).flat_map(|distance| {
            (0..hosts).map(move |source| request(source, (source + distance) % hosts, bytes))
        });
        Ok(flows.collect())
    }
}

fn request(source: u32, destination: u32, bytes: u64) -> Flow {
    Flow { class: REQUEST, group: Some(0), ..Flow::new(source, destination, bytes, Time::ZERO) }
}

#[cfg(test)]
mod tests {
    use super::super::GROUND;
    use super::*;

    #[test]
    fn each_step_of_the_ring_waits_for_what_arrived_at_its_source() {
        let flows = AllReduce { bytes: 54_000 }.flows(&GROUND).expect("it fits");
        assert_eq!(flows.len(), 54 * 106);
        for (index, flow) in flows.iter().enumerate() {
            assert_eq!(flow.bytes, 1000);
            if let Some(before) = flow.after.first() {
                assert!((before.0 as usize) < index);
                assert_eq!(flows[before.0 as usize].destination, flow.source);
            } else {
                assert!(index < 54);
            }
        }
    }

    #[test]
    fn every_pair_talks_once() {
        let flows = AllToAll { bytes: 53_000 }.flows(&GROUND).expect("it fits");
        let mut pairs: Vec<_> = flows.iter().map(|flow| (flow.source, flow.destination)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!((pairs.len(), flows[0].bytes), (54 * 53, 1000));
    }
}
