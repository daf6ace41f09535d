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

/// An all-reduce over a binary tree of hosts: each vector travels up to host 0, which has the sum then, and the sum travels down. Host `i`
/// has the hosts `2i + 1` and `2i + 2` below it. A vector may be cut into parts, which follow each other, so that all levels of the
/// tree work at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeAllReduce {
    /// Each host's vector.
    pub bytes: u64,
    /// How many parts it has.
    pub parts: u32,
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

impl TreeAllReduce {
    pub(super) fn flows(&self, ground: &Ground<'_>) -> Result<Vec<Flow>, WorkloadError> {
        let (hosts, parts) = (ground.hosts(), self.parts.max(1));
        if self.bytes < u64::from(parts) {
            return Err(WorkloadError::NothingToSend);
        }
        let bytes = self.bytes.div_ceil(u64::from(parts));
        // Per part, one flow up and one down for each host but the root, which is host 0.
        let edges = hosts - 1;
        let up = |part: u32, host: u32| FlowId(part * 2 * edges + host - 1);
        let down = |part: u32, host: u32| FlowId(part * 2 * edges + edges + host - 1);
        let below = |host: u32| [2 * host + 1, 2 * host + 2].into_iter().filter(move |&child| child < hosts);
        let mut flows = Vec::new();
        for part in 0..parts {
            let behind = |flow: FlowId| (part > 0).then_some(FlowId(flow.0.wrapping_sub(2 * edges)));
            for host in 1..hosts {
                // What it adds to has come from below, and the part before has gone.
                let mut after: Vec<FlowId> = below(host).map(|child| up(part, child)).collect();
                after.extend(behind(up(part, host)));
                flows.push(Flow { after, ..request(host, (host - 1) / 2, bytes) });
            }
            for host in 1..hosts {
                let parent = (host - 1) / 2;
                let mut after: Vec<FlowId> = match parent {
                    0 => below(0).map(|child| up(part, child)).collect(),
                    parent => vec![down(part, parent)],
                };
                after.extend(behind(down(part, host)));
                flows.push(Flow { after, ..request(parent, host, bytes) });
            }
        }
        Ok(flows)
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

    /// Every host's vector reaches the root, and the sum every host: no flow leaves before what it is made of has come, and parts
    /// keep their order.
    #[test]
    fn a_tree_adds_up_before_it_tells() {
        for parts in [1, 4] {
            let flows = TreeAllReduce { bytes: 8_000, parts }.flows(&GROUND).expect("it fits");
            assert_eq!(flows.len(), 2 * 53 * parts as usize);
            for part in flows.chunks(2 * 53) {
                let (ups, downs) = part.split_at(53);
                for (flow, host) in ups.iter().zip(1..) {
                    assert_eq!((flow.source.0, flow.bytes), (host, 8_000 / u64::from(parts)));
                    let from_below = ups.iter().filter(|other| other.destination == flow.source).count();
                    let waits = flow.after.iter().filter(|f| flows[f.0 as usize].destination == flow.source);
                    assert_eq!(waits.count(), from_below, "host {host}");
                }
                for flow in downs {
                    assert!(flow.after.iter().any(|f| flows[f.0 as usize].destination == flow.source));
                }
                let mut told: Vec<u32> = downs.iter().map(|flow| flow.destination.0).collect();
                told.sort_unstable();
                assert_eq!(told, (1..54).collect::<Vec<_>>());
            }
            for flow in &flows {
                let knows = |f: &FlowId| {
                    let other = &flows[f.0 as usize];
                    other.source == flow.source || other.destination == flow.source
                };
                assert!(flow.after.iter().all(knows));
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
