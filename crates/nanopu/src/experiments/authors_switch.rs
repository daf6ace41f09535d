//! Nodes around the authors' switch, which works in rounds (see [`crate::rounds`]).
//!
//! Data for a full queue is trimmed, or dropped where the switch does not trim.

use super::ExperimentError;
use crate::node::{Node, NodeEvent};
use crate::packet::{Packet, flag};
use crate::rounds::{DATA, Port, URGENT, bytes_of};

/// Cycles in which nodes run before they have sent anything.
const STEP_CYCLES: u64 = 100;

/// How the switch is built.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// A round, and the latency of each link, which is at least as long.
    pub(super) round_cycles: u64,
    pub(super) link_cycles: u64,
    /// The room of one queue, plus one byte.
    pub(super) queue_bytes: u64,
    pub(super) trims: bool,
    /// How far into a round the first packet's first word is in the switch.
    pub(super) offset_cycles: u64,
}

/// The switch and its nodes; node *n* has the address of host *n*.
pub(super) struct AuthorsSwitch {
    shape: Shape,
    nodes: Vec<Node>,
    ports: Vec<Port>,
    /// When its first word is in the switch, from which port, and the packet.
    arriving: Vec<(u64, usize, Packet)>,
    base: u64,
    /// Packets that were trimmed or dropped.
    pub(super) cut: u64,
}

impl AuthorsSwitch {
    /// A switch that is about to begin the round in which the first packet arrives.
    pub(super) fn new(shape: Shape, mut nodes: Vec<Node>) -> Result<AuthorsSwitch, ExperimentError> {
        let mut now = 0;
        while !nodes.iter().any(Node::has_events) {
            now += STEP_CYCLES;
            nodes.iter_mut().for_each(|node| node.run_until(now));
            if now > 1_000_000 {
                return Err(ExperimentError::Broken("nobody sends anything".to_string()));
            }
        }
        let ports = vec![Port::default(); nodes.len()];
        let mut switch = AuthorsSwitch { shape, nodes, ports, arriving: Vec::new(), base: 0, cut: 0 };
        switch.collect()?;
        let first = switch.arriving.iter().map(|&(first, ..)| first).min().unwrap_or(0);
        // Packets whose end comes too late for this round are switched in the next; so the first round may still find none.
        switch.base = first - shape.offset_cycles;
        switch.run_nodes()?;
        Ok(switch)
    }

    /// One round. Returns the bytes that waited behind `port`, headers and data, when all packets had been
    /// switched and none had left.
    pub(super) fn round(&mut self, port: usize) -> Result<[u64; 2], ExperimentError> {
        let Shape { round_cycles, link_cycles, .. } = self.shape;
        let base = self.base;
        let mut whole: Vec<_> = self
            .arriving
            .extract_if(.., |(first, _, packet)| *first + packet.wire_words() <= base + round_cycles)
            .collect();
        whole.sort_by_key(|&(first, from, _)| (first, from));
        whole.into_iter().for_each(|(first, _, packet)| self.switch(first, packet));
        let waiting = [URGENT, DATA].map(|priority| self.ports[port].bytes(priority));
        for (port, node) in self.ports.iter_mut().zip(&mut self.nodes) {
            for (first, packet) in port.transmit(base, round_cycles) {
                node.receive(first + link_cycles, packet);
            }
        }
        self.base += round_cycles;
        self.run_nodes()?;
        Ok(waiting)
    }

    fn switch(&mut self, first: u64, mut packet: Packet) {
        let to = packet.destination.wrapping_sub(crate::network::address(crate::network::HostId(0)));
        let Some(port) = self.ports.get_mut(to as usize) else { return };
        let priority = if packet.is_data() && packet.flags & flag::CHOP == 0 { DATA } else { URGENT };
        let fits =
            |priority, packet: &Packet| port.bytes(priority) + bytes_of(packet) < self.shape.queue_bytes;
        if fits(priority, &packet) {
            return port.push(priority, first, packet);
        }
        self.cut += 1;
        if self.shape.trims && priority == DATA {
            packet.flags |= flag::CHOP;
            packet.payload.truncate(crate::packet::TRIMMED_BYTES - crate::packet::HEADER_BYTES);
            if fits(URGENT, &packet) {
                port.push(URGENT, first, packet);
            }
        }
    }

    fn run_nodes(&mut self) -> Result<(), ExperimentError> {
        let base = self.base;
        self.nodes.iter_mut().for_each(|node| node.run_until(base));
        self.collect()
    }

    fn collect(&mut self) -> Result<(), ExperimentError> {
        for (from, node) in self.nodes.iter_mut().enumerate() {
            for event in node.take_events() {
                match event {
                    NodeEvent::Sent { first, packet } => {
                        self.arriving.push((first + self.shape.link_cycles, from, packet));
                    }
                    trap => return Err(ExperimentError::trapped("incast", &trap)),
                }
            }
        }
        Ok(())
    }
}
