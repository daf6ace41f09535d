//! Nodes around one switch, and a host in it that asks them, for distributed programs.
//!
//! ```text
//! node ── link ──┐
//! node ── link ──┼─ switch, host
//! node ── link ──┘
//! ```
//!
//! A [`Network`] whose switch cuts through: it passes words on as they come, queues packets for a busy port without limit, and loses none
//! unless a rule says so. As with the authors' load generator, the host sits in the switch: its link takes no time, so a request crosses
//! one link, a message between nodes two.

mod host;

use std::fmt;

use highwire_fabric::{Buffering, FabricConfig, Forwarding, HostId, Topology};

use crate::network::{Loss, Network, NetworkError, Place, cycle_of, link};
use crate::nic::Ndp;
use crate::node::Node;
use host::Host;
pub use host::{Answer, HOST, Request};

/// The host's place; nodes follow.
const HOST_PLACE: HostId = HostId(0);

/// The switch, its host, and the nodes.
pub struct Testbed {
    network: Network<Ndp, Host>,
    /// How far to run before the testbed looks at the answers.
    look_cycles: u64,
}

/// Why a run ended early.
#[derive(Clone, PartialEq, Debug)]
pub enum TestbedError {
    /// A program trapped, or the network cannot go on.
    Network(NetworkError),
    /// No answer within so many cycles.
    Silent {
        /// The address of the node that was asked.
        node: u32,
        /// How long.
        cycles: u64,
    },
}

impl Testbed {
    /// Nodes with addresses of their own (see [`address`]) and links of so many cycles, at least one.
    ///
    /// # Errors
    /// [`NetworkError::Build`], [`NetworkError::NoDelay`].
    pub fn new(nodes: Vec<Node>, link_cycles: u64) -> Result<Testbed, TestbedError> {
        let mut star = Topology::star(nodes.len() as u32 + 1, link(link_cycles))
            .expect("a host and a node make a star, and more do");
        star.take_host_delay(HOST_PLACE);
        let config = FabricConfig {
            priorities: 2,
            buffering: Buffering::OutputQueued { pool_bytes: 1 << 40, alpha_log2: 0 },
            forwarding: Forwarding::CutThrough { header_bytes: 0 },
            ..FabricConfig::default()
        };
        let nodes = nodes.into_iter().map(|node| Place::Node(Box::new(node)));
        let places = [Place::Other(Host::default())].into_iter().chain(nodes).collect();
        let network = Network::new(star, config, places).map_err(TestbedError::Network)?;
        Ok(Testbed { network, look_cycles: link_cycles })
    }

    /// The first cycle in which the host can still send.
    pub fn cycle(&self) -> u64 {
        (cycle_of(self.network.fabric().now()) + 1).max(self.network.cycle())
    }

    /// A node, from zero.
    pub fn node(&self, number: usize) -> &Node {
        self.network.node(HostId(number as u32 + 1)).expect("all but the host are nodes")
    }

    /// Loses each packet for which `rule` returns true, on its way into the switch; `None` ends it.
    pub fn lose(&mut self, rule: Option<Loss>) {
        self.network.lose(rule);
    }

    /// How many packets were lost.
    pub fn lost(&self) -> u64 {
        self.network.fabric().totals().lost.packets
    }

    /// Sends a request when it is due, or at once if that is past. Returns its number, from zero.
    pub fn send(&mut self, request: Request) -> usize {
        self.network.with_other(HOST_PLACE, |host| host.send(request)).expect("the host's place")
    }

    /// How many requests there have been; the next one's number.
    pub fn requests(&self) -> usize {
        self.host().requests()
    }

    /// The answer to a request, if it has come.
    pub fn answer(&self, number: usize) -> Option<&Answer> {
        self.host().answer(number)
    }

    fn host(&self) -> &Host {
        self.network.other(HOST_PLACE).expect("the host's place")
    }

    /// Runs so many cycles.
    ///
    /// # Errors
    /// [`TestbedError::Network`].
    pub fn run(&mut self, cycles: u64) -> Result<(), TestbedError> {
        let end = self.cycle() + cycles;
        self.network.run_until(end).map_err(TestbedError::Network)
    }

    /// Sends a request now, and waits for its answer.
    ///
    /// # Errors
    /// [`TestbedError`].
    pub fn call(
        &mut self,
        node: u32,
        context: u16,
        words: &[u64],
        patience_cycles: u64,
    ) -> Result<Answer, TestbedError> {
        let start = self.cycle();
        let number = self.send(Request::of_words(start, node, context, words));
        while self.cycle() < start + patience_cycles {
            self.run(self.look_cycles)?;
            if let Some(answer) = self.answer(number) {
                return Ok(answer.clone());
            }
        }
        Err(TestbedError::Silent { node, cycles: patience_cycles })
    }

    /// Sends requests when they are due, and runs until all are answered or `patience_cycles` have passed since the last was due.
    /// Returns the response time of each, in cycles, and nothing for one without an answer.
    ///
    /// # Errors
    /// [`TestbedError::Network`].
    pub fn play(
        &mut self,
        requests: Vec<Request>,
        patience_cycles: u64,
    ) -> Result<Vec<Option<u64>>, TestbedError> {
        let due: Vec<u64> = requests.iter().map(|request| request.sent).collect();
        let end = due.iter().max().map_or(0, |last| last + patience_cycles);
        let numbers: Vec<usize> = requests.into_iter().map(|request| self.send(request)).collect();
        let before = self.host().answered();
        while self.host().answered() - before < numbers.len() && self.cycle() < end {
            self.run(self.look_cycles)?;
        }
        let times = numbers
            .iter()
            .zip(due)
            .map(|(&number, sent)| self.answer(number).map(|answer| answer.received - sent));
        Ok(times.collect())
    }
}

/// The address of node `number` of a [`Testbed`]; its `NicConfig` has to say the same.
pub fn address(number: usize) -> u32 {
    HOST + 1 + number as u32
}

impl fmt::Display for TestbedError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TestbedError::Network(error) => write!(out, "{error}"),
            TestbedError::Silent { node, cycles } => {
                write!(out, "no answer from {} within {cycles} cycles", std::net::Ipv4Addr::from(*node))
            }
        }
    }
}

impl std::error::Error for TestbedError {}
