//! What scenarios say of devices, and how they change while the program runs.

use super::{Play, completions, lock, play};
use crate::abi::*;
use crate::context::Context;
use crate::limits::{GID_TABLE, GIDS, PORT};
use crate::qp::Qp;
use crate::registry;
use highwire_faults::{Device, Event, Happening, PathRule, Port, Scenario, Traffic};
use highwire_host::{DeviceConfig, PacketFaults, TaggedEvent};
use highwire_verbs::AsyncEvent;
use highwire_wire::Qpn;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The states of all devices of a scenario.
pub(super) struct States {
    devices: Vec<State>,
    /// Events are carried out one after the other.
    turn: Mutex<()>,
}

/// A device as it is now.
struct State {
    about: Device,
    port: AtomicU8,
    is_dead: AtomicBool,
    /// A path is silent, whatever its port says.
    is_silent: AtomicBool,
    /// The first place of its address in the GID table.
    first_gid: AtomicU32,
    packets: Option<PacketFaults>,
}

const DOWN: u8 = IBV_PORT_DOWN as u8;
const INIT: u8 = IBV_PORT_INIT as u8;
const ACTIVE: u8 = IBV_PORT_ACTIVE as u8;

fn number_of(port: Port) -> u8 {
    match port {
        Port::Down => DOWN,
        Port::Init => INIT,
        Port::Active => ACTIVE,
    }
}

/// Whether packets have to be judged.
fn judges_packets(scenario: &Scenario) -> bool {
    !scenario.paths.is_empty()
        || !scenario.events.is_empty()
        || scenario.devices.iter().any(|device| device.port != Port::Active)
        || scenario.control
}

impl States {
    pub(super) fn new(scenario: &Scenario) -> States {
        let usual = [Device { name: "hw0".into(), ..Device::default() }];
        let devices = if scenario.devices.is_empty() { &usual[..] } else { &scenario.devices };
        let judges = judges_packets(scenario);
        let state = |(index, about): (usize, &Device)| {
            let packets = judges.then(|| {
                let mut traffic = Traffic::new(scenario, index, |index| Some(address_of(index)));
                traffic.silence(about.port != Port::Active);
                PacketFaults::new(traffic)
            });
            State {
                about: about.clone(),
                port: AtomicU8::new(number_of(about.port)),
                is_dead: AtomicBool::new(false),
                is_silent: AtomicBool::new(false),
                first_gid: AtomicU32::new(0),
                packets,
            }
        };
        States { devices: devices.iter().enumerate().map(state).collect(), turn: Mutex::new(()) }
    }

    /// More rules for packets.
    pub(super) fn add_paths(&self, paths: &[PathRule]) {
        for (index, state) in self.devices.iter().enumerate() {
            if let Some(packets) = &state.packets {
                packets.change(|traffic| traffic.add(paths, index, |index| Some(address_of(index))));
            }
        }
    }

    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }
}

/// The address by the environment alone: a device is not open yet.
fn address_of(index: usize) -> std::net::IpAddr {
    crate::device::named_address(index).unwrap_or_else(highwire_host::default_shared_address)
}

fn state(index: usize) -> Option<&'static State> {
    play()?.devices.devices.get(index)
}

/// Makes a device as the scenario says.
pub(crate) fn configure(index: usize, config: &mut DeviceConfig) {
    let Some(state) = state(index) else { return };
    config.packet_faults = state.packets.clone();
    config.mtu_max = state.about.mtu.or(config.mtu_max);
}

/// A port's attributes as they are now.
pub(crate) fn shape_port(index: usize, attr: &mut ibv_port_attr) {
    let Some(state) = state(index) else { return };
    attr.state = ibv_port_state::from(state.port.load(Ordering::Relaxed));
    // 5 is LinkUp, 3 Disabled.
    attr.phys_state = if attr.state == IBV_PORT_DOWN { 3 } else { 5 };
    (attr.active_width, attr.active_speed) = width_and_speed(gigabits(index));
}

/// A link's width and speed by their codes: 1, 2 or 8 for one, four and eight lanes, and the lane's speed.
fn width_and_speed(gigabits: u64) -> (u8, u8) {
    match gigabits {
        10 => (1, 4),
        25 => (1, 32),
        40 => (2, 4),
        50 => (1, 64),
        200 => (2, 64),
        // NDR.
        400 => (2, 128),
        800 => (4, 128),
        _ => (2, 32),
    }
}

/// The speed of a device's port.
pub(crate) fn gigabits(index: usize) -> u64 {
    state(index).and_then(|state| state.about.gigabits).map_or(100, u64::from)
}

/// The first place of a device's address in its GID table.
#[inline]
pub(crate) fn first_gid(index: usize) -> u32 {
    state(index).map_or(0, |state| state.first_gid.load(Ordering::Relaxed))
}

/// Whether a device has failed.
pub(crate) fn is_dead(index: usize) -> bool {
    state(index).is_some_and(|state| state.is_dead.load(Ordering::Relaxed))
}

/// Carries out what happens.
pub(super) fn carry_out(play: &Play, happening: Happening) {
    match happening {
        Happening::Change { device, event } => {
            if let Some(state) = play.devices.devices.get(device) {
                change(play, state, event);
            }
        }
        Happening::Announce { device, event } => announce(play, device, event),
    }
}

fn change(play: &Play, state: &State, event: Event) {
    match event {
        Event::Port(port) => state.port.store(number_of(port), Ordering::Relaxed),
        Event::Fatal => {
            state.is_dead.store(true, Ordering::Relaxed);
            state.port.store(DOWN, Ordering::Relaxed);
        }
        Event::GidChange => {
            let first = state.first_gid.load(Ordering::Relaxed);
            let next = (first + GIDS) % GID_TABLE;
            state.first_gid.store(next, Ordering::Relaxed);
            super::files::move_gids(&state.about.name, first..first + GIDS, next);
        }
        Event::QueuePairError(number) => {
            if let Some(qp) = queue_pair(play, number) {
                completions::to_error(&qp);
            }
        }
        Event::Silence => state.is_silent.store(true, Ordering::Relaxed),
        Event::Sound => state.is_silent.store(false, Ordering::Relaxed),
    }
    if let Some(packets) = &state.packets {
        let is_off = state.port.load(Ordering::Relaxed) != ACTIVE || state.is_silent.load(Ordering::Relaxed);
        packets.change(|traffic| traffic.silence(is_off));
    }
    super::files::show(&state.about.name, state.port.load(Ordering::Relaxed));
}

fn queue_pair(play: &Play, number: u64) -> Option<std::sync::Arc<Qp>> {
    let pointer = lock(&play.queue_pairs).numbers.iter().find(|(_, of)| **of == number).map(|(at, _)| *at)?;
    registry::find::<Qp>(pointer as *const ibv_qp).ok()
}

fn announce(play: &Play, device: usize, event: Event) {
    let event = match event {
        Event::Port(Port::Active) => AsyncEvent::PortActive(PORT),
        Event::Port(_) => AsyncEvent::PortError(PORT),
        Event::Fatal => AsyncEvent::DeviceFatal,
        Event::GidChange => AsyncEvent::GidChange(PORT),
        Event::QueuePairError(number) => {
            if let Some(qp) = queue_pair(play, number) {
                let event = AsyncEvent::QpFatal(Qpn::new(qp.number()));
                qp.context.events.push(TaggedEvent { event, tag: crate::boundary::tag(&*qp) });
            }
            return;
        }
        Event::Silence | Event::Sound => return,
    };
    for context in registry::every::<Context>(|context| context.index == device) {
        context.events.push(TaggedEvent { event, tag: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_times_speeds_are_what_the_file_says() {
        let lanes = |width| match width {
            1 => 1,
            2 => 4,
            4 => 8,
            _ => 0,
        };
        let lane = |speed| match speed {
            4 => 10,
            32 => 25,
            64 => 50,
            128 => 100,
            _ => 0,
        };
        for gigabits in [10, 25, 40, 50, 100, 200, 400, 800] {
            let (width, speed) = width_and_speed(gigabits);
            assert_eq!(lanes(width) * lane(speed), gigabits);
        }
    }
}
