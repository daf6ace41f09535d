//! A thousand packets across a fat tree: the smallest program on the fabric.

use std::error::Error;

use highwire_fabric::{
    Fabric, FabricConfig, Host, HostId, LinkSpec, Packet, Priorities, Rate, Span, Time, Topology,
};

#[derive(Clone, Copy)]
struct Parcel {
    to: u32,
    bytes: u32,
}

impl Packet for Parcel {
    fn wire_bytes(&self) -> u32 {
        self.bytes
    }
    fn destination(&self) -> HostId {
        HostId(self.to)
    }
    fn flow_hash(&self) -> u64 {
        u64::from(self.to)
    }
}

#[derive(Clone, Default)]
struct Node {
    outbox: Vec<Parcel>,
    last: Time,
}

impl Host<Parcel> for Node {
    fn handle_packet(&mut self, now: Time, _packet: Parcel) {
        self.last = now;
    }
    fn handle_timeout(&mut self, _now: Time) {}
    fn poll_transmit(&mut self, _now: Time, _open: Priorities) -> Option<Parcel> {
        self.outbox.pop()
    }
    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let link = LinkSpec { rate: Rate::from_gbps(40), delay: Span::from_us(2) };
    let mut nodes = vec![Node::default(); 54];
    nodes[0].outbox = vec![Parcel { to: 53, bytes: 1086 }; 1000];
    let mut fabric = Fabric::new(Topology::fat_tree(6, link)?, FabricConfig::default(), nodes)?;
    fabric.run_to_rest()?;
    println!("{} packet-hops, the last at {}", fabric.packet_hops(), fabric.host(HostId(53)).last);
    Ok(())
}
