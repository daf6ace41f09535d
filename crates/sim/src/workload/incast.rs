//! Many to one: a request whose answer is striped over many hosts (IRN §4.4.3).

use highwire_fabric::{HostId, Time};
use highwire_stdx::Rng;

use super::{Ground, REQUEST, WorkloadError};
use crate::Flow;

/// An incast of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incast {
    /// How many hosts answer, chosen at random.
    pub senders: u32,
    /// The host that asked.
    pub receiver: HostId,
    /// The whole answer, in equal parts; a remainder goes to the first.
    pub bytes: u64,
    /// Flows per sender.
    pub connections: u32,
    /// When all begin.
    pub start: Time,
}

impl Incast {
    pub(super) fn flows(&self, ground: &Ground<'_>, seed: u64) -> Result<Vec<Flow>, WorkloadError> {
        let (senders, hosts) = (self.senders, ground.hosts());
        if self.receiver.0 >= hosts {
            return Err(WorkloadError::NoSuchHost { host: self.receiver.0, hosts });
        }
        if senders >= hosts {
            return Err(WorkloadError::TooManySenders { senders, hosts });
        }
        let count = u64::from(senders) * u64::from(self.connections);
        if count == 0 || self.bytes < count {
            return Err(WorkloadError::NothingToSend);
        }
        let mut others: Vec<u32> = (0..hosts).filter(|&host| host != self.receiver.0).collect();
        let mut rng = Rng::new(seed).fork(0);
        shuffle(&mut others, &mut rng);
        others.truncate(senders as usize);
        others.sort_unstable();
        let part = |index: u64| self.bytes / count + u64::from(index < self.bytes % count);
        let sources = others.iter().flat_map(|&host| (0..self.connections).map(move |_| host));
        let flows = sources.zip(0u64..).map(|(source, index)| Flow {
            class: REQUEST,
            group: Some(0),
            ..Flow::new(source, self.receiver.0, part(index), self.start)
        });
        Ok(flows.collect())
    }
}

/// Fisher and Yates.
pub(super) fn shuffle(items: &mut [u32], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::super::GROUND;
    use super::*;

    fn incast(senders: u32, connections: u32) -> Incast {
        Incast { senders, receiver: HostId(3), bytes: 150_000_001, connections, start: Time::ZERO }
    }

    #[test]
    fn the_whole_is_striped_over_different_senders() {
        let flows = incast(50, 2).flows(&GROUND, 9).expect("it fits");
        assert_eq!(flows.len(), 100);
        assert_eq!(flows.iter().map(|flow| flow.bytes).sum::<u64>(), 150_000_001);
        let mut sources: Vec<u32> = flows.iter().map(|flow| flow.source.0).collect();
        sources.dedup();
        assert_eq!(sources.len(), 50);
        assert!(!sources.contains(&3));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let check = |incast: Incast, expected| assert_eq!(incast.flows(&GROUND, 1), Err(expected));
        check(incast(54, 1), WorkloadError::TooManySenders { senders: 54, hosts: 54 });
        check(incast(0, 1), WorkloadError::NothingToSend);
        let nobody = Incast { receiver: HostId(54), ..incast(5, 1) };
        check(nobody, WorkloadError::NoSuchHost { host: 54, hosts: 54 });
    }
}
