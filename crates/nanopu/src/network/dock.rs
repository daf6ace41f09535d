//! Where a node meets the fabric: a host that keeps the node's packets until they are due, and arrived packets until the node takes
//! them.

use std::collections::VecDeque;

use highwire_fabric::{Host, Priorities, Time};

use super::frame::{Carrier, Frame};

/// A node's place on the fabric.
#[derive(Default)]
pub struct Dock {
    /// Packets that will leave, in the order of their times.
    pub(super) departures: VecDeque<(Time, Frame)>,
    /// Packets that have arrived, with the time of the last bit.
    pub(super) arrivals: Vec<(Time, Frame)>,
    /// Up to this time the fabric knows that packets are due; the port asks for the others when it is free.
    announced: Time,
    /// Packets of other protocols.
    pub(super) strangers: u64,
}

/// A host of a fabric with nanoPUs.
pub enum Station<H> {
    /// A nanoPU.
    Node(Dock),
    /// Anything else: a load generator, an RNIC.
    Other(H),
}

impl<H> Station<H> {
    /// The other host, if it is one.
    pub fn other(&self) -> Option<&H> {
        match self {
            Station::Node(_) => None,
            Station::Other(host) => Some(host),
        }
    }
}

/// Whether the link is open for a frame. If it is not, the frames behind this one wait as well.
pub(super) fn may_leave<P: Carrier>(frame: &Frame, open: Priorities) -> bool {
    open == Priorities::ALL || open.contains(P::from_frame(*frame).priority())
}

impl<P: Carrier, H: Host<P>> Host<P> for Station<H> {
    fn handle_packet(&mut self, now: Time, packet: P) {
        match self {
            Station::Other(host) => host.handle_packet(now, packet),
            Station::Node(dock) => match packet.frame() {
                Some(&frame) => dock.arrivals.push((now, frame)),
                None => dock.strangers += 1,
            },
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Station::Other(host) => host.handle_timeout(now),
            Station::Node(dock) => dock.announced = now,
        }
    }

    fn poll_transmit(&mut self, now: Time, open: Priorities) -> Option<P> {
        match self {
            Station::Other(host) => host.poll_transmit(now, open),
            Station::Node(dock) => {
                let (_, frame) = dock.departures.front().filter(|(due, _)| *due <= now)?;
                if !may_leave::<P>(frame, open) {
                    return None;
                }
                dock.departures.pop_front().map(|(_, frame)| P::from_frame(frame))
            }
        }
    }

    fn poll_timeout(&self) -> Time {
        match self {
            Station::Other(host) => host.poll_timeout(),
            Station::Node(dock) => {
                let next = dock.departures.front().map(|&(due, _)| due);
                next.filter(|&due| due > dock.announced).unwrap_or(Time::NEVER)
            }
        }
    }
}
