//! A packet with everything on it, and a host that follows a script and remembers what it got.
#![allow(dead_code, unreachable_pub)] // Each test program uses its part.

use std::collections::VecDeque;

use highwire_fabric::{
    Fabric, FabricConfig, Host, HostId, LinkSpec, Packet, Priorities, Rate, Span, Time, Topology,
};

pub const HEADER_BYTES: u32 = 64;

/// A packet with every field that tests check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    pub source: u32,
    pub destination: u32,
    pub number: u32,
    pub bytes: u32,
    pub flow: u64,
    pub priority: u8,
    pub is_marked: bool,
    pub is_trimmed: bool,
}

impl Frame {
    pub fn new(source: u32, destination: u32, bytes: u32) -> Frame {
        let flow = u64::from(source) << 32 | u64::from(destination);
        Frame {
            source,
            destination,
            number: 0,
            bytes,
            flow,
            priority: 0,
            is_marked: false,
            is_trimmed: false,
        }
    }

    pub fn numbered(self, number: u32) -> Frame {
        Frame { number, ..self }
    }
}

impl Packet for Frame {
    fn wire_bytes(&self) -> u32 {
        if self.is_trimmed { HEADER_BYTES } else { self.bytes }
    }
    fn destination(&self) -> HostId {
        HostId(self.destination)
    }
    fn flow_hash(&self) -> u64 {
        self.flow
    }
    fn priority(&self) -> u8 {
        self.priority
    }
    fn is_ecn_capable(&self) -> bool {
        true
    }
    fn mark_congestion(&mut self) {
        self.is_marked = true;
    }
    fn trim(&mut self) -> bool {
        self.is_trimmed = self.bytes > HEADER_BYTES;
        self.is_trimmed
    }
}

/// Sends its script, each frame when its time has come and the port is free, and remembers what arrives.
#[derive(Default)]
pub struct Station {
    /// Frames to send, earliest first.
    pub script: VecDeque<(Time, Frame)>,
    /// Sent again and again this often, at line rate, beside the script.
    pub stream: Option<(Frame, u32)>,
    pub received: Vec<(Time, Frame)>,
    now: Time,
}

impl Station {
    pub fn scripted(script: impl IntoIterator<Item = (Time, Frame)>) -> Station {
        Station { script: script.into_iter().collect(), ..Station::default() }
    }

    pub fn streaming(frame: Frame, count: u32) -> Station {
        Station { stream: Some((frame, count)), ..Station::default() }
    }
}

impl Host<Frame> for Station {
    fn handle_packet(&mut self, now: Time, packet: Frame) {
        self.received.push((now, packet));
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
    }

    fn poll_transmit(&mut self, now: Time, open: Priorities) -> Option<Frame> {
        self.now = now;
        if let Some(&(at, frame)) = self.script.front()
            && at <= now
            && open.contains(frame.priority)
        {
            self.script.pop_front();
            return Some(frame);
        }
        let (frame, left) = self.stream.as_mut().filter(|s| s.1 > 0 && open.contains(s.0.priority))?;
        *left -= 1;
        frame.number += 1;
        Some(*frame)
    }

    fn poll_timeout(&self) -> Time {
        // A frame that is due already waits for the port, not for the clock.
        self.script.front().map_or(Time::NEVER, |s| if s.0 > self.now { s.0 } else { Time::NEVER })
    }
}

pub type Network = Fabric<Frame, Station>;

pub fn network(topology: Topology, config: FabricConfig, stations: Vec<Station>) -> Network {
    Fabric::new(topology, config, stations).expect("the parts fit")
}

pub fn stations(count: u32) -> Vec<Station> {
    (0..count).map(|_| Station::default()).collect()
}

/// 40 Gb/s and 2 us, as in IRN §4.1.
pub fn link40() -> LinkSpec {
    LinkSpec { rate: Rate::from_gbps(40), delay: Span::from_us(2) }
}

/// Every station's log, without times.
pub fn received_numbers(network: &Network, host: u32) -> Vec<u32> {
    network.host(HostId(host)).received.iter().map(|r| r.1.number).collect()
}
