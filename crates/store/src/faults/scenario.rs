//! The faults: how each is injected, what ends it, and how it is repaired.

use super::laboratory::NODES;
use super::timeline::{Moment, Times};
use super::{FaultError, Laboratory, Level, failed};
use crate::Clock;
use serde::Serialize;
use std::fs::File;
use std::io::Write as _;
use std::thread;
use std::time::Duration;

/// The victim of most faults.
const VICTIM: u16 = 1;

/// The faults that can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// `kill -9` of a node.
    Kill,
    /// A node is stopped for longer than its lease, and then goes on.
    Stop,
    /// A node hears no other and no other hears it, and then the network is whole again.
    Partition,
    /// A node's disk is full, and then there is room again.
    FullDisk,
    /// etcd is killed and started again.
    EtcdRestart,
    /// A node is killed while etcd is away; times are counted from its return.
    EtcdAway,
    /// All nodes are killed at once; times are counted from when they are started again.
    PowerLoss,
    /// All nodes end and begin again, one after the other.
    RollingRestart,
}

/// A fault, and how long it was felt.
#[derive(Clone, Debug, Serialize)]
pub struct Episode {
    /// In a few words.
    pub name: String,
    /// The times for which it was felt.
    #[serde(flatten)]
    pub times: Times,
    /// From the repair until all nodes served and all data had all its copies in their places.
    pub back_ms: Option<f64>,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 8] = [
        Fault::Kill,
        Fault::Stop,
        Fault::Partition,
        Fault::FullDisk,
        Fault::EtcdRestart,
        Fault::EtcdAway,
        Fault::PowerLoss,
        Fault::RollingRestart,
    ];

    /// Why this fault cannot be injected into this cluster.
    pub fn obstacle(self, laboratory: &Laboratory) -> Option<&'static str> {
        match self {
            Fault::Partition if laboratory.network.is_none() => Some("nodes are in no namespaces"),
            Fault::FullDisk if laboratory.setting.level == Level::Memory => Some("nodes have no disks"),
            Fault::FullDisk if !laboratory.can_fill => Some("no file system of its own can be mounted"),
            Fault::PowerLoss if laboratory.setting.level == Level::Memory => {
                Some("memories do not survive it")
            }
            _ => None,
        }
    }

    /// Injects the fault under load, repairs it, and counts the committed transactions again.
    ///
    /// # Errors
    /// [`FaultError`]: something was lost, or did not recover.
    pub fn play(self, laboratory: &mut Laboratory) -> Result<Vec<Episode>, FaultError> {
        if let Some(obstacle) = self.obstacle(laboratory) {
            return Err(failed(self.name(), obstacle));
        }
        laboratory.wait_for(&[0, 1, 2])?;
        let episodes = match self {
            Fault::RollingRestart => {
                (0..NODES).map(|node| self.episode(laboratory, node)).collect::<Result<_, _>>()?
            }
            _ => vec![self.episode(laboratory, VICTIM)?],
        };
        laboratory.check()?;
        Ok(episodes)
    }

    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "a node is killed",
            Fault::Stop => "a node is stopped past its lease",
            Fault::Partition => "a node is cut off",
            Fault::FullDisk => "a node's disk is full",
            Fault::EtcdRestart => "etcd is away for two leases",
            Fault::EtcdAway => "a node is killed while etcd is away",
            Fault::PowerLoss => "all nodes are killed at once",
            Fault::RollingRestart => "rolling restart",
        }
    }

    fn episode(self, laboratory: &mut Laboratory, victim: u16) -> Result<Episode, FaultError> {
        let survivors: Vec<u16> = (0..NODES).filter(|&node| node != victim).collect();
        let has_victim = !matches!(self, Fault::EtcdRestart | Fault::PowerLoss);
        let primaries = laboratory.primaries()?;
        let configuration = laboratory.status(survivors[0])?.configuration;
        let load = laboratory.load(u64::from(victim) + 1);
        load.wait_for(20)?;
        let calm_ns = Clock.now_ns();
        thread::sleep(laboratory.setting.calm);
        let calm_until_ns = Clock.now_ns();
        let fault_ns = self.inject(laboratory, victim)?;
        let mut back_ms = None;
        match self {
            Fault::EtcdRestart => {}
            Fault::RollingRestart | Fault::PowerLoss => {
                self.repair(laboratory, victim)?;
                laboratory.wait_for(&[0, 1, 2])?;
                back_ms = Some((Clock.now_ns() - fault_ns) as f64 / 1e6);
            }
            _ => laboratory.wait_for(&survivors)?,
        }
        load.wait_for(20)?;
        thread::sleep(laboratory.setting.calm);
        let until_ns = Clock.now_ns();
        let milestones = laboratory.milestones(&survivors)?;
        if back_ms.is_none() && self != Fault::EtcdRestart {
            let repaired_ns = Clock.now_ns();
            self.repair(laboratory, victim)?;
            laboratory.wait_for(&[0, 1, 2])?;
            back_ms = Some((Clock.now_ns() - repaired_ns) as f64 / 1e6);
            load.wait_for(20)?;
        }
        let commits = load.stop()?;
        let affected = primaries.iter().map(|&primary| !has_victim || primary == victim).collect();
        let victim = has_victim.then_some(victim);
        let moment = Moment { calm_ns, calm_until_ns, fault_ns, until_ns, configuration, victim, affected };
        Ok(Episode {
            name: match (self, victim) {
                (Fault::RollingRestart, Some(node)) => format!("{}: node {node}", self.name()),
                _ => self.name().into(),
            },
            times: Times::of(&moment, &milestones, &commits),
            back_ms,
        })
    }

    /// Injects the fault; returns the instant from which times count.
    fn inject(self, laboratory: &mut Laboratory, victim: u16) -> Result<u64, FaultError> {
        let two_leases = Duration::from_millis(2 * laboratory.setting.lease_ms);
        match self {
            Fault::Kill => laboratory.kill(victim),
            Fault::Stop => laboratory.freeze(victim, true)?,
            Fault::Partition => laboratory.network.as_ref().map_or(Ok(()), |network| network.cut(victim))?,
            Fault::FullDisk => fill(laboratory, victim)?,
            Fault::EtcdRestart => {
                let fault_ns = Clock.now_ns();
                laboratory.etcd.stop();
                thread::sleep(two_leases);
                laboratory.etcd.go()?;
                return Ok(fault_ns);
            }
            Fault::EtcdAway => {
                laboratory.etcd.stop();
                laboratory.kill(victim);
                thread::sleep(2 * two_leases);
                let fault_ns = Clock.now_ns();
                laboratory.etcd.go()?;
                return Ok(fault_ns);
            }
            Fault::PowerLoss => (0..NODES).for_each(|node| laboratory.kill(node)),
            Fault::RollingRestart => laboratory.end(victim),
        }
        Ok(Clock.now_ns())
    }

    fn repair(self, laboratory: &mut Laboratory, victim: u16) -> Result<(), FaultError> {
        match self {
            Fault::Kill | Fault::EtcdAway | Fault::RollingRestart => laboratory.start_node(victim),
            Fault::Stop => laboratory.freeze(victim, false),
            Fault::Partition => laboratory.network.as_ref().map_or(Ok(()), |network| network.heal(victim)),
            Fault::FullDisk => {
                let ballast = laboratory.data(victim).join(BALLAST);
                std::fs::remove_file(&ballast).map_err(|error| failed(ballast.display(), error))?;
                laboratory.end(victim);
                laboratory.start_node(victim)
            }
            Fault::EtcdRestart => Ok(()),
            Fault::PowerLoss => (0..NODES).try_for_each(|node| laboratory.start_node(node)),
        }
    }
}

/// The file that fills a disk; no journal has this name.
const BALLAST: &str = "ballast";

/// Fills the node's disk to the last byte, as another program would.
fn fill(laboratory: &Laboratory, node: u16) -> Result<(), FaultError> {
    let path = laboratory.data(node).join(BALLAST);
    let mut file = File::create(&path).map_err(|error| failed(path.display(), error))?;
    for bytes in [1 << 20, 4096, 1] {
        let piece = vec![b'x'; bytes];
        while file.write_all(&piece).is_ok() {}
    }
    Ok(())
}
