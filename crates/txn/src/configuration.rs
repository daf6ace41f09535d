//! A configuration: which nodes are the cluster, and which regions each holds. The nodes agree on one
//! configuration after the other through the configuration service, and name theirs in every packet.
//!
//! Two rules decide which configuration may follow, and between them no committed write is lost to f failures:
//! every region keeps a complete replica, and of every set of nodes that may hold undecided records, at most
//! f, and never all, are removed.

use crate::id::{Key, NodeId, RegionId, TableId, mix};

/// A node in one of its lives: one that lost its memory is another member.
pub type Member = (NodeId, u64);

/// One copy of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The node that holds it.
    pub node: NodeId,
    /// Whether it is complete. If not, it is being filled, and receives new writes meanwhile.
    pub synced: bool,
}

/// Numbers on which the promises rest, so that all members must have the same ones whatever their files say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// How many nodes may fail at once.
    pub f: u16,
    /// Slots of each node in the logs.
    pub workers: u16,
    /// Keys in one table of one region.
    pub rows_max: u64,
    /// The length of a lease.
    pub lease_ns: u64,
    /// The bound on the rates of clocks.
    pub drift_ppm_max: u64,
    /// The tables, and how their keys are spread over regions.
    pub schema: u64,
}

impl Agreed {
    /// The first number that differs: its name, and both values.
    pub fn difference(&self, other: &Agreed) -> Option<(&'static str, u64, u64)> {
        let all = |of: &Agreed| {
            [
                ("f", u64::from(of.f)),
                ("workers", u64::from(of.workers)),
                ("rows_max", of.rows_max),
                ("lease_ns", of.lease_ns),
                ("drift_ppm_max", of.drift_ppm_max),
                ("schema", of.schema),
            ]
        };
        let both = all(self).into_iter().zip(all(other));
        both.into_iter().find(|(a, b)| a.1 != b.1).map(|(a, b)| (a.0, a.1, b.1))
    }
}

/// A configuration, on which all its members agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The cluster's number, which all configurations that follow from one first one share.
    pub cluster: u64,
    /// The fence in every packet.
    pub id: u32,
    /// Counts changes that need no fence: replicas that became complete.
    pub revision: u32,
    /// The node that made it and leads its recovery.
    pub manager: NodeId,
    /// In ascending order.
    pub members: Vec<Member>,
    /// Members that want to go: they get no new regions.
    pub leaving: Vec<NodeId>,
    /// By region: the primary first.
    pub regions: Vec<Vec<Replica>>,
    /// Member sets that may hold records of undecided transactions.
    pub guards: Vec<Vec<Member>>,
    /// Every record of earlier configurations has been decided and applied.
    pub complete: bool,
    /// Members of earlier configurations are missing from this one, and may hold leases that have not
    /// expired.
    pub has_removed: bool,
    /// The numbers that members share. `None` in a configuration that an earlier version of this program made; the next one has them.
    pub agreed: Option<Agreed>,
    /// The longest lease that may have been granted since the last configuration that is complete.
    pub lease_before_ns: u64,
}

/// Why no configuration with these members may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No member would be left.
    Empty,
    /// A region would have no complete replica.
    RegionLost(RegionId),
    /// A record that was committed might have no replica.
    RecordsLost,
}

impl Configuration {
    /// The first one: nodes, their boots, and everything replicated on f + 1 of them, all empty and so all complete.
    pub fn first(nodes: &[NodeId], boots: &[u64], regions: usize, f: usize) -> Configuration {
        let mut members: Vec<Member> = nodes.iter().copied().zip(boots.iter().copied()).collect();
        members.sort_unstable();
        let everyone: Vec<NodeId> = members.iter().map(|member| member.0).collect();
        let full = |region| {
            desired(&everyone, RegionId(region as u16), f)
                .into_iter()
                .map(|node| Replica { node, synced: true })
                .collect()
        };
        let cluster = members.iter().fold(0, |sum, &(node, boot)| mix(mix(sum ^ boot) ^ u64::from(node.0)));
        Configuration {
            cluster,
            id: 1,
            revision: 0,
            manager: members[0].0,
            regions: (0..regions).map(full).collect(),
            guards: vec![members.clone()],
            members,
            leaving: Vec::new(),
            complete: true,
            has_removed: false,
            agreed: None,
            lease_before_ns: 0,
        }
    }

    /// Its bytes, for a configuration service to keep.
    pub fn to_bytes(&self) -> Vec<u8> {
        crate::codec::encode(self)
    }

    /// The configuration that these bytes are, if they are one that a cluster can be in.
    pub fn from_bytes(bytes: &[u8]) -> Option<Configuration> {
        let configuration: Configuration = crate::codec::decode(bytes).ok()?;
        let known = |node: NodeId| configuration.boot(node).is_some();
        let is_whole = |replicas: &Vec<Replica>| {
            !replicas.is_empty() && replicas.iter().all(|replica| known(replica.node))
        };
        let is_sound = known(configuration.manager)
            && !configuration.regions.is_empty()
            && configuration.regions.iter().all(is_whole);
        is_sound.then_some(configuration)
    }

    /// Members that stay: they keep the log and grant leases. A member that leaves does neither any more, so that it can go at any moment
    /// without being counted as a failure.
    pub fn core(&self) -> Vec<Member> {
        self.members.iter().copied().filter(|member| self.is_core(member.0)).collect()
    }

    /// Whether a member stays; all do if all want to go.
    pub fn is_core(&self, node: NodeId) -> bool {
        self.leaving.len() >= self.members.len() || !self.leaving.contains(&node)
    }

    /// The life in which a node is a member.
    pub fn boot(&self, node: NodeId) -> Option<u64> {
        self.members.iter().find(|member| member.0 == node).map(|member| member.1)
    }

    /// Whether a node is a member in this life.
    pub fn has(&self, member: Member) -> bool {
        self.members.contains(&member)
    }

    /// All members' names.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| member.0)
    }

    /// The region of a key of an unordered table.
    pub fn region_of(&self, table: TableId, key: Key) -> RegionId {
        let hash = mix(key ^ (u64::from(table.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        RegionId(((u128::from(hash) * self.regions.len() as u128) >> 64) as u16)
    }

    /// A region's primary.
    pub fn primary(&self, region: RegionId) -> NodeId {
        self.regions[usize::from(region.0)][0].node
    }

    /// A region's other replicas.
    pub fn backups(&self, region: RegionId) -> impl Iterator<Item = NodeId> + '_ {
        self.regions[usize::from(region.0)][1..].iter().map(|replica| replica.node)
    }

    /// A node's replica of a region, if it has one.
    pub fn replica(&self, region: RegionId, node: NodeId) -> Option<Replica> {
        self.regions.get(usize::from(region.0))?.iter().find(|replica| replica.node == node).copied()
    }

    /// The f other nodes that log what `node` commits: the next ones in the ring of those that stay. One more for a node that leaves: its own copy
    /// does not count.
    pub fn log_replicas(&self, node: NodeId, f: usize) -> Vec<NodeId> {
        let core = || self.nodes().filter(|&other| self.is_core(other));
        let ring = core().filter(|&other| other > node).chain(core().filter(|&other| other < node));
        ring.take(self.others_needed(node, f)).collect()
    }

    /// How many unexpired leases of others that stay a node needs before it answers for its regions: so many that at least one of them was
    /// granted by a member of any configuration that removes the node.
    pub fn leases_needed(&self, node: NodeId, f: usize) -> usize {
        let others = self.nodes().filter(|&other| other != node && self.is_core(other)).count();
        self.others_needed(node, f).min(others)
    }

    fn others_needed(&self, node: NodeId, f: usize) -> usize {
        if self.is_core(node) { f } else { f + 1 }
    }

    /// The same with these numbers.
    pub fn with(mut self, agreed: Agreed) -> Configuration {
        self.agreed = Some(agreed);
        self
    }

    /// The length of a lease that is agreed on; 0 if none is.
    fn lease_ns(&self) -> u64 {
        self.agreed.map_or(0, |agreed| agreed.lease_ns)
    }

    /// The configuration after this one with the same members, who share these numbers from then on. Members agree on it like on any other: while
    /// it opens, leases of the old length run out.
    pub fn with_other_numbers(&self, agreed: Agreed, f: usize) -> Result<Configuration, Refusal> {
        let mut next = self.successor(self.manager, self.members.clone(), &self.leaving, f)?;
        next.agreed = Some(agreed);
        Ok(next)
    }

    /// The configuration after this one, with these members, made by `manager`.
    pub fn successor(
        &self,
        manager: NodeId,
        mut members: Vec<Member>,
        leaving: &[NodeId],
        f: usize,
    ) -> Result<Configuration, Refusal> {
        members.sort_unstable();
        if members.is_empty() {
            return Err(Refusal::Empty);
        }
        for guard in &self.guards {
            let removed = guard.iter().filter(|member| !members.contains(member)).count();
            if removed >= (f + 1).min(guard.len()) {
                return Err(Refusal::RecordsLost);
            }
        }
        let mut next = Configuration {
            cluster: self.cluster,
            id: self.id + 1,
            revision: 0,
            manager,
            leaving: leaving
                .iter()
                .copied()
                .filter(|&node| self.boot(node).is_some_and(|boot| members.contains(&(node, boot))))
                .collect(),
            regions: Vec::with_capacity(self.regions.len()),
            guards: self.guards.clone(),
            has_removed: !self.complete && self.has_removed
                || self.members.iter().any(|member| !members.contains(member)),
            members,
            complete: false,
            agreed: self.agreed,
            lease_before_ns: match self.complete {
                true => self.lease_ns(),
                false => self.lease_before_ns.max(self.lease_ns()),
            },
        };
        let core = next.core();
        if !next.guards.contains(&core) {
            next.guards.push(core);
        }
        for region in 0..self.regions.len() {
            let replicas = self.place(RegionId(region as u16), &next, f)?;
            next.regions.push(replicas);
        }
        Ok(next)
    }

    /// A region's replicas in `next`: the complete ones stay until the desired ones are complete, too.
    fn place(&self, region: RegionId, next: &Configuration, f: usize) -> Result<Vec<Replica>, Refusal> {
        let stays = |node: NodeId| self.boot(node).is_some() && self.boot(node) == next.boot(node);
        let mut replicas: Vec<Replica> = self.regions[usize::from(region.0)]
            .iter()
            .copied()
            .filter(|replica| stays(replica.node))
            .collect();
        let primary = replicas.iter().find(|replica| replica.synced).ok_or(Refusal::RegionLost(region))?.node;
        let willing: Vec<NodeId> = next.nodes().filter(|node| !next.leaving.contains(node)).collect();
        let wanted = desired(&willing, region, f);
        let is_synced = |node: NodeId| replicas.iter().any(|replica| replica.node == node && replica.synced);
        if !wanted.is_empty() && wanted.iter().all(|&node| is_synced(node)) {
            return Ok(wanted.into_iter().map(|node| Replica { node, synced: true }).collect());
        }
        replicas.retain(|replica| replica.synced || wanted.contains(&replica.node));
        for &node in &wanted {
            if !replicas.iter().any(|replica| replica.node == node) {
                replicas.push(Replica { node, synced: false });
            }
        }
        let first = replicas.iter().position(|replica| replica.node == primary).unwrap_or(0);
        replicas.swap(0, first);
        Ok(replicas)
    }

    /// Whether moving on to a successor with the same members would finish moves of data.
    pub fn has_moves_to_finish(&self, f: usize) -> bool {
        let willing: Vec<NodeId> = self.nodes().filter(|node| !self.leaving.contains(node)).collect();
        self.regions.iter().enumerate().any(|(region, replicas)| {
            let wanted = desired(&willing, RegionId(region as u16), f);
            let synced = |node| replicas.iter().any(|replica| replica.node == node && replica.synced);
            let there: Vec<NodeId> = replicas.iter().map(|replica| replica.node).collect();
            !wanted.is_empty() && wanted.iter().all(|&node| synced(node)) && there != wanted
        })
    }

    /// Whether everything is where it should be, f + 1 times.
    pub fn is_settled(&self, f: usize) -> bool {
        let copies = (f + 1).min(self.members.len());
        let full = |replicas: &Vec<Replica>| {
            replicas.len() >= copies && replicas.iter().all(|replica| replica.synced)
        };
        self.complete
            && self.leaving.is_empty()
            && self.regions.iter().all(full)
            && !self.has_moves_to_finish(f)
    }
}

/// The nodes that should hold a region: the f + 1 nodes with the greatest hashes (rendezvous), so that few regions move when nodes
/// come and go.
fn desired(nodes: &[NodeId], region: RegionId, f: usize) -> Vec<NodeId> {
    let weight =
        |node: NodeId| mix(mix(u64::from(region.0) + 1) ^ (u64::from(node.0) + 1).wrapping_mul(0x9E37_79B9));
    let mut ranked = nodes.to_vec();
    ranked.sort_unstable_by_key(|&node| (std::cmp::Reverse(weight(node)), node));
    ranked.truncate(f + 1);
    ranked
}

/// Where configurations are agreed on: one register, changed by compare-and-swap. It detects no failures and keeps no leases.
pub trait ConfigurationService {
    /// An error on the way to the service. After it, a change may have happened or not.
    type Error;

    /// The configuration that holds now.
    fn read(&mut self) -> Result<Configuration, Self::Error>;

    /// Puts `new` in the place of the one with this id and revision, if that still holds. Returns the one that holds afterwards.
    fn compare_and_swap(
        &mut self,
        id: u32,
        revision: u32,
        new: Configuration,
    ) -> Result<Configuration, Self::Error>;
}

/// The service for a cluster within one process: the register itself.
#[derive(Clone, Debug)]
pub struct Register(pub Configuration);

impl ConfigurationService for Register {
    type Error = std::convert::Infallible;

    fn read(&mut self) -> Result<Configuration, Self::Error> {
        Ok(self.0.clone())
    }

    fn compare_and_swap(
        &mut self,
        id: u32,
        revision: u32,
        new: Configuration,
    ) -> Result<Configuration, Self::Error> {
        if (self.0.id, self.0.revision) == (id, revision) {
            self.0 = new;
        }
        Ok(self.0.clone())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use highwire_stdx::Rng;

    #[test]
    fn nobody_logs_with_members_that_leave_and_they_log_once_more_elsewhere() {
        let mut rng = Rng::new(5);
        for _ in 0..2000 {
            let count = rng.between(2, 7) as u16;
            let f = rng.between(0, u64::from(count) - 1) as usize;
            let nodes: Vec<NodeId> = (0..count).map(NodeId).collect();
            let mut configuration = Configuration::first(&nodes, &vec![1; nodes.len()], 4, f);
            configuration.leaving = nodes.iter().copied().filter(|_| rng.chance(0.3)).collect();
            let leaves = |node: &NodeId| configuration.leaving.contains(node);
            let staying = nodes.iter().filter(|node| !leaves(node)).count();
            if staying < f + 1 {
                continue;
            }
            for &node in &nodes {
                let replicas = configuration.log_replicas(node, f);
                assert!(replicas.iter().all(|other| *other != node && !leaves(other)), "{replicas:?}");
                // f + 1 copies that count: the node's own does unless it leaves.
                let own = usize::from(!leaves(&node));
                assert_eq!(replicas.len() + own, f + 1, "node {node:?} of {configuration:?}");
                let mut distinct = replicas.clone();
                distinct.dedup();
                assert_eq!(distinct, replicas);
            }
        }
    }

    #[test]
    fn shared_numbers_are_kept_and_the_longest_lease_is_remembered_until_all_is_complete() {
        let members = [(NodeId(0), 1), (NodeId(1), 2)];
        let agreed = Settings::of_tests().agreed();
        let with_lease = |lease_ns| Agreed { lease_ns, ..agreed };
        let mut first = Configuration::first(&[NodeId(0), NodeId(1)], &[1, 2], 4, 1).with(with_lease(500));
        let second = first.with_other_numbers(with_lease(20), 1).expect("nobody goes");
        assert_eq!((second.agreed, second.lease_before_ns), (Some(with_lease(20)), 500));
        assert_eq!((second.id, &second.members, second.complete), (2, &first.members, false));
        let third = second.successor(NodeId(0), members.to_vec(), &[], 1).expect("nobody goes");
        assert_eq!(
            (third.agreed, third.lease_before_ns),
            (second.agreed, 500),
            "leases of the first may be left"
        );
        let mut complete = third.clone();
        complete.complete = true;
        let fourth = complete.successor(NodeId(0), members.to_vec(), &[], 1).expect("nobody goes");
        assert_eq!(fourth.lease_before_ns, 20);
        for configuration in [first.clone(), second, third, fourth] {
            assert_eq!(Configuration::from_bytes(&configuration.to_bytes()), Some(configuration));
        }
        // As an earlier version wrote it: the last byte is a truth value, and nothing follows.
        first.agreed = None;
        for has_removed in [false, true] {
            first.has_removed = has_removed;
            let bytes = first.to_bytes();
            assert_eq!(bytes.last(), Some(&u8::from(has_removed)));
            assert_eq!(Configuration::from_bytes(&bytes), Some(first.clone()));
        }
    }
}
