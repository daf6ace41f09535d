//! Counting everything again: the running counters must agree with the queues and wires.

use super::Fabric;
use crate::packet::CONTROL;
use crate::port::Tally;
use crate::{Buffering, Host, NodeId, Observer, Packet, PortId, Violation, ViolationKind};

/// A difference: where, what, expected, found.
type Mismatch = (String, &'static str, u64, u64);

impl<P: Packet, H: Host<P>, O: Observer<P>> Fabric<P, H, O> {
    /// Checks that nothing was created or lost: on each link, in each switch, in all, and that buffers hold
    /// what their counters say and no more than they can. A run calls it now and then and at its end.
    ///
    /// # Errors
    /// The first difference, or the violation that stopped the run before.
    pub fn verify(&mut self) -> Result<(), Violation> {
        self.verified_at = self.processed;
        if self.violation.is_none()
            && let Err((place, what, expected, found)) = self.recount()
        {
            self.violate(place, ViolationKind::NotConserved { what, expected, found });
        }
        self.violation.as_deref().map_or(Ok(()), |v| Err(v.clone()))
    }

    fn recount(&self) -> Result<(), Mismatch> {
        let mut present = 0;
        for port in 0..self.ports.len() as u32 {
            present += self.recount_wire(port)?;
            present += self.recount_queues(port)?;
        }
        for switch in 0..self.switches.len() as u32 {
            self.recount_switch(switch)?;
        }
        equal("the network", "packets in flight", self.store.len() as u64, present)
    }

    /// Checks that every packet sent has arrived, was lost or is on the way. Returns the number on the way.
    fn recount_wire(&self, port: u32) -> Result<u64, Mismatch> {
        let state = &self.ports[port as usize];
        let (sum, present) = self.after(port);
        if self.kinds[usize::from(state.kind)].is_cut {
            // Two parts count the two ends of a wire between them.
            return Ok(present);
        }
        let place = || format!("the link behind {}", self.port_name(PortId(port)));
        equal_at(place, "packets", state.sent.packets, sum.packets)?;
        equal_at(place, "bytes", state.sent.bytes, sum.bytes)?;
        Ok(present)
    }

    /// The fate of the packets that a port has sent, as far as this part knows, and how many are on the wire.
    pub(crate) fn after(&self, port: u32) -> (Tally, u64) {
        let state = &self.ports[port as usize];
        let mut sum = state.arrived;
        sum.merge(self.counters[port as usize].lost);
        let mut present = Tally::default();
        self.store.iter(&state.wire).for_each(|r| present.add(r.bytes));
        sum.merge(present);
        (sum, present.packets)
    }

    /// Checks that the queues for a port hold what its counters say. Returns the packets in them.
    fn recount_queues(&self, port: u32) -> Result<u64, Mismatch> {
        let state = &self.ports[port as usize];
        if state.switch == u32::MAX {
            return Ok(0);
        }
        let mut present = 0;
        for priority in 0..self.config.priorities {
            let (bytes, packets) = self.queues.count(&self.store, port, priority);
            let place = || format!("the queue of {}", self.port_name(PortId(port)));
            equal_at(place, "bytes", self.queues.lane(port, priority).bytes, bytes)?;
            equal_at(
                place,
                "waiting bits",
                u64::from(state.waiting >> priority & 1),
                u64::from(packets > 0),
            )?;
            present += packets;
        }
        Ok(present)
    }

    /// Checks that every packet that entered a switch has left it, ended there or waits in it, and that the
    /// buffer is not overfull.
    fn recount_switch(&self, switch: u32) -> Result<(), Mismatch> {
        let base = self.switches[switch as usize].base;
        let ports = base..base + u32::from(self.topology.switch_ports(switch));
        let frame = self.config.pfc.map_or(0, |pfc| u64::from(pfc.frame_bytes));
        let (mut came, mut went, mut held_by_output, mut held_by_input) = (0, 0, 0, 0);
        for port in ports {
            let counters = self.counters(PortId(port));
            let peer = &self.ports[self.ports[port as usize].peer as usize];
            came += peer.arrived.bytes + counters.pause_frames * frame;
            went += counters.sent.bytes + counters.pause_frames_received * frame;
            went += counters.dropped.bytes + counters.unroutable.bytes + counters.trimmed.bytes;
            held_by_output += self.queue_bytes(PortId(port));
            held_by_input += self.input_bytes(PortId(port));
            if let Buffering::InputQueued { input_bytes } = self.config.buffering {
                let held = self.input_bytes(PortId(port));
                let place = || format!("the buffer of {}", self.port_name(PortId(port)));
                equal_at(place, "bytes beyond its size", 0, held.saturating_sub(input_bytes))?;
            }
        }
        let used = self.switches[switch as usize].used_bytes;
        let place = || format!("switch {}", self.topology.node_name(NodeId::Switch(switch)));
        equal_at(place, "bytes", came, went + held_by_output)?;
        equal_at(place, "buffered bytes", used, held_by_output)?;
        equal_at(place, "buffered bytes by input", used, held_by_input)?;
        if let Buffering::OutputQueued { pool_bytes, .. } = self.config.buffering {
            equal_at(place, "bytes beyond the pool's size", 0, used.saturating_sub(pool_bytes))?;
        }
        Ok(())
    }

    /// Data packets that hosts have put into the network and that have left it into a host.
    pub fn injected_and_delivered(&self) -> (Tally, Tally) {
        let (mut injected, mut delivered) = (Tally::default(), Tally::default());
        let frame = self.config.pfc.map_or(0, |pfc| u64::from(pfc.frame_bytes));
        for host in 0..self.host_count as usize {
            let port = &self.ports[host];
            injected.merge(port.sent);
            let arrived = self.ports[port.peer as usize].arrived;
            let frames = self.counters[host].pause_frames_received;
            delivered.packets += arrived.packets - frames;
            delivered.bytes += arrived.bytes - frames * frame;
        }
        (injected, delivered)
    }

    /// Packets in flight that carry data.
    pub fn data_packets_in_flight(&self) -> usize {
        let wires = self.ports.iter().flat_map(|p| self.store.iter(&p.wire));
        self.store.len() - wires.filter(|r| r.flags & CONTROL != 0).count()
    }
}

fn equal(place: &str, what: &'static str, expected: u64, found: u64) -> Result<(), Mismatch> {
    equal_at(|| place.to_owned(), what, expected, found)
}

fn equal_at(
    place: impl Fn() -> String,
    what: &'static str,
    expected: u64,
    found: u64,
) -> Result<(), Mismatch> {
    if expected == found { Ok(()) } else { Err((place(), what, expected, found)) }
}
