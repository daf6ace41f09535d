//! The machines that can be nodes of a network: cores with the network in their registers, or a core with a
//! DMA NIC.

use highwire_riscv::Trap;

use crate::dma::{Departure, DmaEvent, DmaNode};
use crate::nic::Transport;
use crate::node::{Node, NodeEvent};
use crate::packet::Packet;

/// Cycles that the longest packet takes on the interface.
const PACKET_CYCLES: u64 = 136;

/// A machine on the network.
pub(super) enum Machine<T> {
    /// A nanoPU.
    Node(Box<Node<T>>),
    /// The baseline.
    Dma(Box<DmaNode>),
}

/// An event of a machine, for the network.
pub(super) enum MachineEvent {
    /// A packet whose first word is on the interface in the given cycle.
    Sent(u64, Packet),
    /// A frame that is no packet of this protocol.
    Stranger,
    /// A core trapped.
    Trapped { core: usize, pc: u64, trap: Trap },
}

impl<T: Transport> Machine<T> {
    /// How many cycles before its end is known a packet may begin to leave, or have an effect.
    pub(super) fn slack_cycles(&self) -> u64 {
        match self {
            Machine::Node(node) if !node.nic().cuts_through() => 0,
            // Words leave while others are still read from memory.
            Machine::Node(_) | Machine::Dma(_) => PACKET_CYCLES,
        }
    }

    pub(super) fn receive(&mut self, first: u64, packet: Packet) {
        match self {
            Machine::Node(node) => node.receive(first, packet),
            Machine::Dma(node) => node.receive(first, packet.encode()),
        }
    }

    pub(super) fn run_until(&mut self, end: u64) {
        match self {
            Machine::Node(node) => node.run_until(end),
            Machine::Dma(node) => node.run_until(end),
        }
    }

    pub(super) fn has_events(&self) -> bool {
        match self {
            Machine::Node(node) => node.has_events(),
            Machine::Dma(node) => node.has_events(),
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<MachineEvent> {
        match self {
            Machine::Node(node) => node.take_events().into_iter().map(MachineEvent::of_node).collect(),
            Machine::Dma(node) => node.take_events().into_iter().filter_map(MachineEvent::of_dma).collect(),
        }
    }
}

impl MachineEvent {
    fn of_node(event: NodeEvent) -> MachineEvent {
        match event {
            NodeEvent::Sent { first, packet } => MachineEvent::Sent(first, packet),
            NodeEvent::Trapped { core, pc, trap, .. } => MachineEvent::Trapped { core, pc, trap },
        }
    }

    fn of_dma(event: DmaEvent) -> Option<MachineEvent> {
        match event {
            DmaEvent::Sent(Departure { last, frame, .. }) => Some(match Packet::decode(&frame) {
                // Words may have gaps where memory did not keep up; the network has them in one piece, which ends when the last leaves.
                Ok(packet) => MachineEvent::Sent((last + 1).saturating_sub(packet.wire_words()), packet),
                Err(_) => MachineEvent::Stranger,
            }),
            DmaEvent::Trapped { pc, trap, .. } => Some(MachineEvent::Trapped { core: 0, pc, trap }),
            // The NIC counts them.
            DmaEvent::Refused { .. } => None,
        }
    }
}
