//! Looking at a network between events.

use super::Fabric;
use crate::packet::Store;
use crate::port::PortCounters;
use crate::{FabricConfig, Host, HostId, NodeId, Observer, Packet, PortId, Time, Topology, Violation};

impl<P: Packet, H: Host<P>, O: Observer<P>> Fabric<P, H, O> {
    /// The present.
    pub fn now(&self) -> Time {
        self.events.now()
    }

    /// Its shape.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Its behaviour.
    pub fn config(&self) -> &FabricConfig {
        &self.config
    }

    /// Every host, in the order of their numbers.
    pub fn hosts(&self) -> &[H] {
        &self.hosts
    }

    /// One host.
    pub fn host(&self, host: HostId) -> &H {
        &self.hosts[(host.0 - self.first_host) as usize]
    }

    /// The observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// The observer, to take out what it saw.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// The hosts and the observer, when all is over.
    pub fn into_parts(self) -> (Vec<H>, O) {
        (self.hosts, self.observer)
    }

    /// How many events have happened.
    pub fn event_count(&self) -> u64 {
        self.processed
    }

    /// A number that follows from all events so far: equal for equal runs.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Packets that have reached the end of a link, pause frames included: the work done.
    pub fn packet_hops(&self) -> u64 {
        self.ports.iter().map(|p| p.arrived.packets).sum()
    }

    /// Packets in the network now.
    pub fn packets_in_flight(&self) -> usize {
        self.store.len()
    }

    /// Bytes of memory that a packet in flight occupies.
    pub const fn bytes_per_packet() -> usize {
        Store::<P>::bytes_per_packet()
    }

    /// How many ports there are; those of hosts come first and have the hosts' numbers.
    pub fn port_count(&self) -> u32 {
        self.ports.len() as u32
    }

    /// The port at the other end of a port's link.
    pub fn peer(&self, port: PortId) -> PortId {
        PortId(self.ports[port.0 as usize].peer)
    }

    /// A switch's port in global numbers.
    ///
    /// # Panics
    /// If there is no such switch or port.
    pub fn switch_port(&self, switch: u32, port: u16) -> PortId {
        assert!(port < self.topology.switch_ports(switch), "switch {switch} has no port {port}");
        PortId(self.switches[switch as usize].base + u32::from(port))
    }

    /// The node that a port belongs to.
    pub fn node_of(&self, port: PortId) -> NodeId {
        match self.ports[port.0 as usize].switch {
            u32::MAX => NodeId::Host(port.0),
            switch => NodeId::Switch(switch),
        }
    }

    /// The counters of a port.
    pub fn counters(&self, port: PortId) -> PortCounters {
        let state = &self.ports[port.0 as usize];
        let mut counters = self.counters[port.0 as usize];
        (counters.sent, counters.arrived) = (state.sent, state.arrived);
        if state.paused != 0 {
            counters.paused = counters.paused + self.now().since(self.paused_since[port.0 as usize]);
        }
        counters
    }

    /// The sum of all ports' counters.
    pub fn totals(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        (0..self.port_count()).for_each(|p| sum.merge(&self.counters(PortId(p))));
        sum
    }

    /// Bytes that wait for a switch's port at all priorities.
    pub fn queue_bytes(&self, port: PortId) -> u64 {
        (0..self.config.priorities).map(|p| self.queues.lane(port.0, p).bytes).sum()
    }

    /// The most bytes that ever waited for a switch's port at one priority.
    pub fn queue_bytes_max(&self, port: PortId) -> u64 {
        (0..self.config.priorities).map(|p| self.queues.lane(port.0, p).bytes_max).max().unwrap_or(0)
    }

    /// Bytes in a switch's buffer that came in by this port.
    pub fn input_bytes(&self, port: PortId) -> u64 {
        self.inputs[self.input_at(port.0)]
    }

    /// Whether any priority of a port is paused by its peer.
    pub fn is_paused(&self, port: PortId) -> bool {
        self.ports[port.0 as usize].paused != 0
    }

    /// Runs up to `limit` and shows the network to `look` after every `every`, at the end included.
    ///
    /// # Errors
    /// As [`Fabric::run_until`].
    ///
    /// # Panics
    /// If `every` is zero.
    pub fn run_sampled(
        &mut self,
        limit: Time,
        every: crate::Span,
        mut look: impl FnMut(&Fabric<P, H, O>),
    ) -> Result<(), Violation> {
        assert!(every > crate::Span::ZERO, "samples need a distance");
        while self.now() < limit {
            let next = (self.now() + every).min(limit);
            self.run_until(next)?;
            look(self);
        }
        Ok(())
    }
}
