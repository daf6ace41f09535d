//! A scenario in full, as its file says it.

use crate::trigger::Trigger;
use highwire_stdx::Duration;
use highwire_verbs::{CompletionOp, CompletionStatus};
use std::net::IpAddr;

/// What goes wrong on purpose, and on which devices.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Scenario {
    /// Every random choice follows from it.
    pub seed: u64,
    /// It may be changed while it is played.
    pub control: bool,
    /// Only programs of these names play it; all, if there are none.
    pub programs: Vec<String>,
    /// The devices in the order of the list; empty if the file names none, and then there is the usual one.
    pub devices: Vec<Device>,
    /// Calls that fail.
    pub calls: Vec<CallRule>,
    /// Limits on registered memory.
    pub registrations: Vec<RegistrationRule>,
    /// Completions that are changed.
    pub completions: Vec<CompletionRule>,
    /// Events.
    pub events: Vec<EventRule>,
    /// Packets.
    pub paths: Vec<PathRule>,
}

/// A device, as programs see it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its address; the driver chooses one if there is none.
    pub address: Option<IpAddr>,
    /// Its NUMA node.
    pub numa: Option<i32>,
    /// Its PCI address, as in `0000:81:00.0`; the driver chooses one if there is none.
    pub pci: Option<String>,
    /// Gigabits per second; 100 without it.
    pub gigabits: Option<u32>,
    /// The largest path MTU, in bytes.
    pub mtu: Option<u32>,
    /// Its ports when the device is opened, by their numbers from 1; one that is active, if there is none here.
    pub ports: Vec<Port>,
}

impl Device {
    /// How many ports it has.
    pub fn port_count(&self) -> u8 {
        self.ports.len().max(1) as u8
    }

    /// The state of a port when the device is opened, by its number.
    pub fn port(&self, number: u8) -> Port {
        self.ports.get(usize::from(number).wrapping_sub(1)).copied().unwrap_or_default()
    }
}

/// A port's logical state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Port {
    /// No carrier.
    Down,
    /// Not configured yet.
    Init,
    /// Packets travel.
    #[default]
    Active,
}

/// Calls that fail.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRule {
    /// The function, by its public name.
    pub function: &'static str,
    /// What it says.
    pub errno: i32,
    /// Only calls about this device, by its place in the list.
    pub device: Option<usize>,
    /// Only calls about the queue pair that the process has made as the n-th, counted from 1.
    pub queue_pair: Option<u64>,
    /// Only calls of the thread that was the n-th to call, counted from 1.
    pub thread: Option<u64>,
    /// Which of them.
    pub trigger: Trigger,
}

/// A limit on registered memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationRule {
    /// So many bytes at once.
    pub bytes: Option<u64>,
    /// So many regions at once.
    pub regions: Option<u64>,
    /// What a registration beyond it says.
    pub errno: i32,
    /// Only on this device.
    pub device: Option<usize>,
}

/// Completions that are changed.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRule {
    /// Only those of the queue pair that the process has made as the n-th.
    pub queue_pair: Option<u64>,
    /// Only those of this device.
    pub device: Option<usize>,
    /// Only those of these operations; all, if there are none.
    pub operations: &'static [CompletionOp],
    /// What happens to it.
    pub misfortune: Misfortune,
    /// Which of them.
    pub trigger: Trigger,
}

/// What happens to a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfortune {
    /// It has this status, and its queue pair goes to ERR.
    Status(CompletionStatus),
    /// It comes later.
    Late(Duration),
    /// It never comes.
    Missing,
}

/// Something that happens to a device.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRule {
    /// When.
    pub start: Start,
    /// After this it is undone, where that is possible.
    pub lasts: Option<Duration>,
    /// The device.
    pub device: usize,
    /// What happens.
    pub event: Event,
    /// How the program is told.
    pub announcement: Announcement,
}

/// When an event happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// So long after the process has opened its first device.
    After(Duration),
    /// At calls of a function, before they are carried out.
    Call(&'static str, Trigger),
}

/// What happens to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The state of a port changes, by its number; without `Active` no packet passes.
    Port(u8, Port),
    /// The device fails, for good.
    Fatal,
    /// The device is taken out: it fails, and leaves the list.
    Removal,
    /// A device that was taken out is there again, as a new one.
    Return,
    /// The GID table of a port changes: the address leaves its places and comes back at others.
    GidChange(u8),
    /// A queue pair goes to ERR; its number in the order in which the process made them.
    QueuePairError(u64),
    /// No packet passes, and the program is not told.
    Silence,
    /// Packets pass again.
    Sound,
}

/// How the program is told of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// So often: 0, 1 or 2.
    pub times: u32,
    /// So much later.
    pub late: Duration,
}

/// An end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A device of the file, by its place.
    Device(usize),
    /// An address.
    Address(IpAddr),
}

/// What happens to packets.
#[derive(Clone, Debug, PartialEq)]
pub struct PathRule {
    /// Only those from there.
    pub from: Option<End>,
    /// Only those to there.
    pub to: Option<End>,
    /// Only these.
    pub pattern: Pattern,
    /// Which of them, in their order; each if none is given.
    pub trigger: Trigger,
    /// Share lost.
    pub loss: f64,
    /// Gilbert and Elliott: from good to bad, from bad to good, and the loss while it is bad.
    pub bursts: Option<(f64, f64, f64)>,
    /// Added to their way.
    pub delay: Duration,
    /// At most so many bits per second.
    pub bandwidth: Option<u64>,
}

/// Kinds of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pattern {
    /// All.
    #[default]
    All,
    /// Acknowledgements.
    Acknowledgement,
    /// The last packet of each message.
    Last,
    /// Packets that carry requests.
    Request,
    /// Packets that answer READs.
    Response,
}

/// The address of a device for which a file names none: devices after the first have the first's with the second byte moved on,
/// within the loopback network. Both libraries that show devices use this.
pub fn address_after(first: IpAddr, index: usize) -> IpAddr {
    match first {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            IpAddr::from([a, b.wrapping_add(index as u8), c, d])
        }
        IpAddr::V6(v6) => v6.into(),
    }
}

/// The address by which a port of a device is known. Packets to any of them go to the device's own, that of the first.
pub fn address_of_port(device: IpAddr, port: u8) -> IpAddr {
    let moved = port.saturating_sub(1);
    match device {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            // Beyond all that `address_after` gives.
            IpAddr::from([a, b.wrapping_add(moved.wrapping_mul(64)), c, d])
        }
        IpAddr::V6(v6) => {
            let mut words = v6.segments();
            words[4] = words[4].wrapping_add(u16::from(moved));
            IpAddr::from(words)
        }
    }
}
