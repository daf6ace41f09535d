//! Nodes around one switch, and a host in it that asks them: what distributed programs run on.
//!
//! ```text
//! node ── link ──┐
//! node ── link ──┼─ switch, host
//! node ── link ──┘
//! ```
//!
//! The switch passes words on as they come, queues packets for a busy port without limit, and loses none unless a rule says so. As with
//! the authors' load generator, the host sits in the switch: a request crosses one link, a message between nodes two.
//! All nodes move in step, so a run is the same every time.

mod host;

use std::collections::BTreeMap;
use std::fmt;

use highwire_riscv::Trap;

use crate::node::{Node, NodeEvent};
use crate::packet::Packet;
use host::Host;
pub use host::{Answer, HOST, Request};

/// What a lost packet is chosen by: the cycle in which its first word is in the switch, and the packet.
pub type Loss = Box<dyn FnMut(u64, &Packet) -> bool>;

/// The switch, its host, and the nodes.
pub struct Star {
    nodes: Vec<Node>,
    link_cycles: u64,
    /// When the wire to each node is free.
    ports: Vec<u64>,
    /// Packets by when their first word is in the switch, and then by when they were sent.
    crossing: BTreeMap<(u64, u64), Packet>,
    serial: u64,
    host: Host,
    loss: Option<Loss>,
    lost: u64,
}

/// Why a run ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StarError {
    /// A core took a trap that is not an interrupt.
    Trapped {
        /// The node, from zero.
        node: usize,
        /// The core, from zero.
        core: usize,
        /// The address of the instruction.
        pc: u64,
        /// The trap.
        trap: Trap,
    },
    /// No answer within so many cycles.
    Silent {
        /// The address of who was asked.
        node: u32,
        /// How long.
        cycles: u64,
    },
}

impl Star {
    /// Nodes with addresses of their own (see [`address`]) and links of so many cycles.
    pub fn new(nodes: Vec<Node>, link_cycles: u64) -> Star {
        Star {
            ports: vec![0; nodes.len()],
            nodes,
            link_cycles,
            crossing: BTreeMap::new(),
            serial: 0,
            host: Host::default(),
            loss: None,
            lost: 0,
        }
    }

    /// The cycle that comes next.
    pub fn cycle(&self) -> u64 {
        self.nodes.first().map_or(0, Node::cycle)
    }

    /// A node, from zero.
    pub fn node(&self, number: usize) -> &Node {
        &self.nodes[number]
    }

    /// Loses each packet that `rule` says yes to; `None` ends it.
    pub fn lose(&mut self, rule: Option<Loss>) {
        self.loss = rule;
    }

    /// How many packets were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Sends a request when it is due, or at once if that is past. Returns its number, from zero.
    pub fn send(&mut self, request: Request) -> usize {
        self.host.send(request)
    }

    /// How many requests there have been; the next one's number.
    pub fn requests(&self) -> usize {
        self.host.requests()
    }

    /// What a request was answered with, and when.
    pub fn answer(&self, number: usize) -> Option<&Answer> {
        self.host.answer(number)
    }

    /// One cycle of everything.
    ///
    /// # Errors
    /// [`StarError::Trapped`].
    pub fn tick(&mut self) -> Result<(), StarError> {
        let cycle = self.cycle();
        while let Some(packet) = self.host.poll_transmit(cycle) {
            self.cross(cycle, packet);
        }
        while let Some(entry) = self.crossing.first_entry()
            && entry.key().0 <= cycle
        {
            let ((time, _), packet) = entry.remove_entry();
            self.pass(time, packet);
        }
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            node.tick(|_, _| {});
            if !node.has_events() {
                continue;
            }
            for event in node.take_events() {
                match event {
                    NodeEvent::Sent { first, packet } => self.cross(first + self.link_cycles, packet),
                    NodeEvent::Trapped { core, pc, trap } => {
                        return Err(StarError::Trapped { node: number, core, pc, trap });
                    }
                }
            }
        }
        Ok(())
    }

    /// Many cycles.
    ///
    /// # Errors
    /// [`StarError::Trapped`].
    pub fn run(&mut self, cycles: u64) -> Result<(), StarError> {
        (0..cycles).try_for_each(|_| self.tick())
    }

    /// Sends a request now, and waits for its answer.
    ///
    /// # Errors
    /// [`StarError`].
    pub fn call(
        &mut self,
        node: u32,
        context: u16,
        words: &[u64],
        patience_cycles: u64,
    ) -> Result<Answer, StarError> {
        let number = self.send(Request::of_words(self.cycle(), node, context, words));
        for _ in 0..patience_cycles {
            self.tick()?;
            if let Some(answer) = self.host.answer(number) {
                return Ok(answer.clone());
            }
        }
        Err(StarError::Silent { node, cycles: patience_cycles })
    }

    /// Sends requests when they are due, and runs until all are answered or `patience_cycles` have passed since the last was due.
    /// Returns the response time of each, in cycles, and nothing for one without an answer.
    ///
    /// # Errors
    /// [`StarError::Trapped`].
    pub fn play(
        &mut self,
        requests: Vec<Request>,
        patience_cycles: u64,
    ) -> Result<Vec<Option<u64>>, StarError> {
        let due: Vec<u64> = requests.iter().map(|request| request.sent).collect();
        let end = due.iter().max().map_or(0, |last| last + patience_cycles);
        let numbers: Vec<usize> = requests.into_iter().map(|request| self.send(request)).collect();
        let before = self.host.answered();
        while self.host.answered() - before < numbers.len() && self.cycle() < end {
            self.tick()?;
        }
        let times = numbers
            .iter()
            .zip(due)
            .map(|(&number, sent)| self.host.answer(number).map(|answer| answer.received - sent));
        Ok(times.collect())
    }

    /// Puts a packet into the switch that is there at `time`.
    fn cross(&mut self, time: u64, packet: Packet) {
        self.crossing.insert((time, self.serial), packet);
        self.serial += 1;
    }

    /// A packet leaves the switch.
    fn pass(&mut self, time: u64, packet: Packet) {
        if self.loss.as_mut().is_some_and(|rule| rule(time, &packet)) {
            self.lost += 1;
            return;
        }
        if packet.destination == HOST {
            self.host.handle_packet(time, packet);
            return;
        }
        let Some(number) = (0..self.nodes.len()).find(|&number| address(number) == packet.destination) else {
            return;
        };
        let first = time.max(self.ports[number]);
        self.ports[number] = first + packet.wire_words();
        self.nodes[number].receive(first + self.link_cycles, packet);
    }
}

/// The address of node `number` of a [`Star`]; its `NicConfig` has to say the same.
pub fn address(number: usize) -> u32 {
    HOST + 1 + number as u32
}

impl fmt::Display for StarError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StarError::Trapped { node, core, pc, trap } => {
                write!(out, "node {node}, core {core}: {trap} at {pc:#x}")
            }
            StarError::Silent { node, cycles } => {
                write!(out, "no answer from {} within {cycles} cycles", std::net::Ipv4Addr::from(*node))
            }
        }
    }
}

impl std::error::Error for StarError {}
