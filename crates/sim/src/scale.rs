//! Rates of operations in a growing cluster: one-sided READs and RPCs over connections, and RPCs over
//! datagrams.
//!
//! Every thread of every node keeps some operations under way, each to a node drawn at random. Over connections (RC) a thread needs a queue pair for
//! each peer; over datagrams (UD) one for all. Hosts are real [`highwire_rnic::Rnic`]s on a simulated star,
//! behind a model of a card's pipeline and its cache of queue pairs' contexts ([`Nic`]). Software costs
//! nothing here. So the rates are the model's, and only their change with the number of queue pairs is
//! meaningful.

mod host;
mod nic;

pub use nic::Nic;

use crate::fabric::{Fabric, FabricConfig, HostId, LinkSpec, Rate, Span, Time, Topology, Violation};
use highwire_stdx::Rng;
use host::ScaleHost;

/// The kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A READ over a connection.
    Read,
    /// A SEND there and a SEND back over a connection, each acknowledged.
    RcRpc,
    /// A SEND there and a SEND back over datagrams.
    UdRpc,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 3] = [Operation::Read, Operation::RcRpc, Operation::UdRpc];
}

/// A cluster, and its load.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Nodes, 2 at least.
    pub nodes: u32,
    /// Threads of each.
    pub threads: u32,
    /// Operations that a thread keeps under way.
    pub window: u32,
    /// Bytes of a READ, of a request and of a response.
    pub bytes: u32,
    /// The cards.
    pub nic: Nic,
    /// The links of the star.
    pub link: LinkSpec,
    /// The seed of random peers.
    pub seed: u64,
    /// Time before anything is counted.
    pub warm_up: Span,
    /// Time in which operations are counted.
    pub length: Span,
}

impl Default for Setting {
    /// FaSST's cluster size and message (14 cores are 8 here, as on its ConnectX-3 machines); the cards are
    /// assumed to handle 48 million packets per second, to hold 80 contexts and to fetch one in 190 ns.
    fn default() -> Setting {
        Setting {
            nodes: 11,
            threads: 8,
            window: 16,
            bytes: 32,
            nic: Nic { cached: 80, packet: Span::from_ns(21), miss: Span::from_ns(190) },
            link: LinkSpec { rate: Rate::from_gbps(56), delay: Span::from_ns(500) },
            seed: 1,
            warm_up: Span::from_us(50),
            length: Span::from_us(100),
        }
    }
}

/// The results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Queue pairs of each node.
    pub queue_pairs: u32,
    /// Operations that ended while they were counted, of all nodes.
    pub operations: u64,
    /// Millions per second and node.
    pub rate: f64,
    /// Packets that found their queue pair's context in the cache, in percent.
    pub hits_percent: f64,
}

/// Plays one.
///
/// # Errors
/// The fabric's invariant that did not hold.
///
/// # Panics
/// With fewer than two nodes, no thread or no operation under way, or more nodes than a star has.
pub fn measure(setting: &Setting, operation: Operation) -> Result<Measured, Violation> {
    assert!(setting.threads > 0 && setting.window > 0, "somebody must do something");
    let topology = Topology::star(setting.nodes, setting.link).expect("two nodes at least");
    let mut rng = Rng::new(setting.seed);
    let hosts: Vec<ScaleHost> = (0..setting.nodes)
        .map(|node| ScaleHost::new(node, setting, operation, rng.fork(u64::from(node))))
        .collect();
    let config = FabricConfig { seed: setting.seed, ..FabricConfig::default() };
    let mut fabric = Fabric::new(topology, config, hosts).expect("a star and its hosts fit");
    for node in 0..setting.nodes {
        fabric.with_host(HostId(node), |host, now| host.begin(now));
    }
    let from = Time::ZERO + setting.warm_up;
    fabric.run_until(from)?;
    let count = |fabric: &mut Fabric<_, ScaleHost>| {
        (0..setting.nodes).fold((0, 0, 0), |sums, node| {
            let (ended, hits, misses) = fabric.with_host(HostId(node), |host, _| host.counted());
            (sums.0 + ended, sums.1 + hits, sums.2 + misses)
        })
    };
    let before = count(&mut fabric);
    fabric.run_until(from + setting.length)?;
    let after = count(&mut fabric);
    let (operations, hits, misses) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
    let seconds = setting.length.as_ps() as f64 / 1e12;
    Ok(Measured {
        queue_pairs: host::queue_pairs(setting, operation),
        operations,
        rate: operations as f64 / seconds / f64::from(setting.nodes) / 1e6,
        hits_percent: hits as f64 * 100.0 / (hits + misses).max(1) as f64,
    })
}
