//! What scenarios say of devices, and how they change while the program runs.

use super::{Play, completions, lock, play};
use crate::abi::*;
use crate::context::Context;
use crate::events::{Channel, NO_QUEUE};
use crate::limits::{GID_TABLE, GIDS, PORT};
use crate::qp::Qp;
use crate::refusal::refused;
use crate::registry;
use highwire_faults::{Device, Event, Happening, PathRule, Port, Scenario, Traffic, address_of_port};
use highwire_host::{DeviceConfig, PacketFaults, TaggedEvent};
use highwire_verbs::{AsyncEvent, Gid};
use highwire_wire::Qpn;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The states of all devices of a scenario.
pub(super) struct States {
    devices: Vec<State>,
    /// Events are carried out one after the other.
    turn: Mutex<()>,
    /// How often any device has come back.
    returns: AtomicU32,
}

/// A device as it is now.
struct State {
    about: Device,
    ports: Vec<PortState>,
    is_dead: AtomicBool,
    /// How often it has come back: contexts that were opened before stay dead.
    generation: AtomicU32,
    is_listed: AtomicBool,
    /// When it came back, among all that did: what comes back is listed behind the others.
    came_back: AtomicU32,
    /// A path is silent, whatever its port says.
    is_silent: AtomicBool,
    packets: Option<PacketFaults>,
}

/// A port as it is now.
struct PortState {
    state: AtomicU8,
    /// The first place of its address in its GID table.
    first_gid: AtomicU32,
}

impl PortState {
    fn new(port: Port) -> PortState {
        PortState { state: AtomicU8::new(number_of(port)), first_gid: AtomicU32::new(0) }
    }

    fn is_active(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ACTIVE
    }
}

impl State {
    fn port(&self, number: u8) -> Option<&PortState> {
        self.ports.get(usize::from(number).checked_sub(1)?)
    }

    /// Lets packets pass or not, as the ports say.
    fn hear(&self) {
        let Some(packets) = &self.packets else { return };
        let is_off = self.is_dead.load(Ordering::Relaxed) || self.is_silent.load(Ordering::Relaxed);
        let has_none = !self.ports.iter().any(PortState::is_active);
        packets.change(|traffic| {
            traffic.silence(is_off || has_none);
            if self.ports.len() > 1 {
                for (number, port) in (1..).zip(&self.ports) {
                    traffic.silence_port(number, !port.is_active());
                }
            }
        });
    }
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
        || scenario.devices.iter().any(|device| device.ports.iter().any(|port| *port != Port::Active))
        || scenario.control
}

impl States {
    pub(super) fn new(scenario: &Scenario) -> States {
        let usual = [Device { name: "hw0".into(), ..Device::default() }];
        let devices = if scenario.devices.is_empty() { &usual[..] } else { &scenario.devices };
        let judges = judges_packets(scenario);
        let state = |(index, about): (usize, &Device)| {
            let packets = judges
                .then(|| PacketFaults::new(Traffic::new(scenario, index, |index| Some(address_of(index)))));
            let ports = (1..=about.port_count()).map(|number| PortState::new(about.port(number)));
            let state = State {
                about: about.clone(),
                ports: ports.collect(),
                is_dead: AtomicBool::new(false),
                generation: AtomicU32::new(0),
                is_listed: AtomicBool::new(true),
                came_back: AtomicU32::new(0),
                is_silent: AtomicBool::new(false),
                packets,
            };
            state.hear();
            state
        };
        States {
            devices: devices.iter().enumerate().map(state).collect(),
            turn: Mutex::new(()),
            returns: AtomicU32::new(0),
        }
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
pub(crate) fn shape_port(index: usize, number: u8, attr: &mut ibv_port_attr) {
    let Some(state) = state(index) else { return };
    let Some(port) = state.port(number) else { return };
    attr.state = ibv_port_state::from(port.state.load(Ordering::Relaxed));
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

/// How many ports a device has.
pub(crate) fn port_count(index: usize) -> u8 {
    state(index).map_or(1, |state| state.ports.len() as u8)
}

/// The number of one of its ports.
///
/// # Errors
/// EINVAL for another number.
pub(crate) fn check_port(index: usize, number: u32) -> Result<u8, c_int> {
    let found = u8::try_from(number).ok().filter(|number| (PORT..=port_count(index)).contains(number));
    found.ok_or_else(|| refused(libc::EINVAL, || ports(index, number)))
}

/// What is wrong with a port's number.
pub(crate) fn ports(index: usize, number: u32) -> String {
    match port_count(index) {
        1 => format!("port_num is {number}; the device has port {PORT} only"),
        count => format!("port_num is {number}; the device has ports {PORT} to {count}"),
    }
}

/// The first place of a port's address in its GID table.
#[inline]
pub(crate) fn first_gid(index: usize, port: u8) -> u32 {
    let state = state(index).and_then(|state| state.port(port));
    state.map_or(0, |port| port.first_gid.load(Ordering::Relaxed))
}

/// The GID of a port of the device that has `own` at its first.
pub(crate) fn gid_of_port(own: Gid, port: u8) -> Gid {
    if port <= PORT { own } else { Gid::from_ip(address_of_port(own.to_ip(), port)) }
}

/// Where packets to a GID go, and the port that has it: the address of a device of the scenario is that of its first port.
pub(crate) fn behind(gid: Gid) -> (Gid, u8) {
    let Some(play) = play() else { return (gid, PORT) };
    for (index, state) in play.devices.devices.iter().enumerate().filter(|(_, state)| state.ports.len() > 1) {
        let own = Gid::from_ip(crate::device::address(index));
        for port in PORT + 1..=state.ports.len() as u8 {
            if gid_of_port(own, port) == gid {
                return (own, port);
            }
        }
    }
    (gid, PORT)
}

/// A queue pair has a port, and may have a peer: they decide which of its packets pass.
pub(crate) fn place(index: usize, queue_pair: u32, port: u8, peer: Option<(Gid, u32)>) {
    let Some(state) = state(index).filter(|state| state.ports.len() > 1) else { return };
    let peer = peer.map(|(gid, number)| (gid.to_ip(), number));
    if let Some(packets) = &state.packets {
        packets.change(|traffic| traffic.place(queue_pair, port, peer));
    }
}

/// A queue pair is gone.
pub(super) fn displace(index: usize, queue_pair: u32) {
    let Some(state) = state(index).filter(|state| state.ports.len() > 1) else { return };
    if let Some(packets) = &state.packets {
        packets.change(|traffic| traffic.forget(queue_pair));
    }
}

/// Whether a device has failed for those that opened it in this generation.
#[inline]
pub(crate) fn is_dead(index: usize, generation: u32) -> bool {
    state(index).is_some_and(|state| {
        state.is_dead.load(Ordering::Relaxed) || state.generation.load(Ordering::Relaxed) != generation
    })
}

/// Whether a device that was opened in this generation has left the list.
pub(crate) fn has_left(index: usize, generation: u32) -> bool {
    state(index).is_some_and(|state| {
        !state.is_listed.load(Ordering::Relaxed) || state.generation.load(Ordering::Relaxed) != generation
    })
}

/// How often a device has come back.
pub(crate) fn generation(index: usize) -> u32 {
    state(index).map_or(0, |state| state.generation.load(Ordering::Relaxed))
}

/// The devices of the list, in its order, each with how often it has come back; `None` where none can leave.
pub(crate) fn listed() -> Option<Vec<(usize, u32)>> {
    let all = play()?.devices.devices.iter().enumerate();
    let mut listed: Vec<_> = all.filter(|(_, state)| state.is_listed.load(Ordering::Relaxed)).collect();
    listed.sort_by_key(|(_, state)| state.came_back.load(Ordering::Relaxed));
    Some(listed.iter().map(|(index, state)| (*index, state.generation.load(Ordering::Relaxed))).collect())
}

/// Carries out what happens.
pub(super) fn carry_out(play: &Play, happening: Happening) {
    match happening {
        Happening::Change { device, event } => {
            if let Some(state) = play.devices.devices.get(device) {
                change(play, device, state, event);
            }
        }
        Happening::Announce { device, event } => announce(play, device, event),
    }
}

fn change(play: &Play, index: usize, state: &State, event: Event) {
    let name = &state.about.name;
    match event {
        Event::Port(number, to) => set_port(state, number, to),
        Event::Fatal => {
            fail(play, index, state);
            (1..=state.ports.len() as u8).for_each(|number| set_port(state, number, Port::Down));
        }
        Event::Removal => {
            state.is_listed.store(false, Ordering::Relaxed);
            super::files::hide(name);
            fail(play, index, state);
        }
        Event::Return if state.is_listed.load(Ordering::Relaxed) => {}
        Event::Return => come_back(play, index, state),
        Event::GidChange(number) => {
            if let Some(port) = state.port(number) {
                move_gids(name, number, port, |first| (first + GIDS) % GID_TABLE);
            }
        }
        Event::QueuePairError(number) => {
            if let Some(qp) = queue_pair(play, number) {
                completions::to_error(&qp);
            }
        }
        Event::Silence => state.is_silent.store(true, Ordering::Relaxed),
        Event::Sound => state.is_silent.store(false, Ordering::Relaxed),
    }
    state.hear();
}

fn set_port(state: &State, number: u8, to: Port) {
    if let Some(port) = state.port(number) {
        port.state.store(number_of(to), Ordering::Relaxed);
        super::files::show(&state.about.name, number, number_of(to));
    }
}

fn move_gids(device: &str, number: u8, port: &PortState, to: impl Fn(u32) -> u32) {
    let first = port.first_gid.load(Ordering::Relaxed);
    let next = to(first);
    if next != first {
        port.first_gid.store(next, Ordering::Relaxed);
        super::files::move_gids(device, number, first..first + GIDS, next);
    }
}

/// From now on calls fail; threads that wait for completions are told.
fn fail(play: &Play, index: usize, state: &State) {
    play.heed.note_failure();
    state.is_dead.store(true, Ordering::Relaxed);
    for channel in registry::every::<Channel>(|channel| channel.context.index == index) {
        if channel.context.is_dead() {
            channel.host.report(NO_QUEUE);
        }
    }
}

/// The device is there again as a new one, with ports as they were at the beginning.
fn come_back(play: &Play, index: usize, state: &State) {
    // What is left of the old one shares the address with the new, and must not answer.
    let of_old = |qp: &Qp| qp.context.index == index;
    registry::every::<Qp>(of_old).iter().for_each(|qp| completions::to_error(qp));
    let name = &state.about.name;
    super::files::reveal(name);
    for (number, port) in (1..).zip(&state.ports) {
        move_gids(name, number, port, |_| 0);
        set_port(state, number, state.about.port(number));
    }
    state.is_silent.store(false, Ordering::Relaxed);
    state.came_back.store(play.devices.returns.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
    state.generation.fetch_add(1, Ordering::Relaxed);
    state.is_dead.store(false, Ordering::Relaxed);
    state.is_listed.store(true, Ordering::Relaxed);
}

fn queue_pair(play: &Play, number: u64) -> Option<std::sync::Arc<Qp>> {
    let pointer = lock(&play.queue_pairs).numbers.iter().find(|(_, of)| **of == number).map(|(at, _)| *at)?;
    registry::find::<Qp>(pointer as *const ibv_qp).ok()
}

fn announce(play: &Play, device: usize, event: Event) {
    let event = match event {
        Event::Port(number, Port::Active) => AsyncEvent::PortActive(number),
        Event::Port(number, _) => AsyncEvent::PortError(number),
        Event::Removal => {
            // Programs find a card's end in its own events first.
            tell_contexts(device, AsyncEvent::DeviceFatal);
            return crate::rdmacm::device_removed();
        }
        Event::Fatal => AsyncEvent::DeviceFatal,
        Event::GidChange(number) => AsyncEvent::GidChange(number),
        Event::QueuePairError(number) => {
            if let Some(qp) = queue_pair(play, number) {
                let event = AsyncEvent::QpFatal(Qpn::new(qp.number()));
                qp.context.events.push(TaggedEvent { event, tag: crate::boundary::tag(&*qp) });
            }
            return;
        }
        Event::Silence | Event::Sound | Event::Return => return,
    };
    tell_contexts(device, event);
}

fn tell_contexts(device: usize, event: AsyncEvent) {
    // What is told of a device that has come back is not told to those who had opened the old one.
    let generation = generation(device);
    let is_of_it = |context: &Context| context.index == device && context.generation == generation;
    for context in registry::every::<Context>(is_of_it) {
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
