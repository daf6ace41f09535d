//! Opening a device: an address, sockets, lanes.

use super::housekeeping::Housekeeping;
use super::{Arenas, Guests, Shared};
use crate::clock::Clock;
use crate::company::Company;
use crate::config::{ADDRESS_VARIABLE, DeviceConfig, LinkChoice, Sharing, WAKE_VARIABLE};
use crate::crowd::Crowd;
use crate::engine::{Disturbed, Engine, Groups, Neighbours, Parts, Shm, Udp, Ways};
use crate::error::OpenError;
use crate::events::EventQueue;
use crate::lane::Lane;
use crate::limits::BELLS;
use crate::memory::HostMemory;
use crate::recording::Watched;
use crate::side_band::SideBand;
use crate::stray::MAILBOX_PACKETS;
use crate::sys;
use crate::waiting::Waiting;
use crate::waker::Waker;
use crossbeam_queue::ArrayQueue;
use highwire_broker::Client;
use highwire_link::shm::stats::{self, StatsFile};
use highwire_link::shm::{ClaimError, EngineConfig, EngineName, LocalEngine, Registry};
use highwire_link::{
    Capture, CaptureFile, Ecn, FaultConfig, Faulty, Link, OpenError as UdpError, Rates, UdpConfig, UdpLink,
    netdev_mtu_of, roce_mtu_bytes, secret_rng,
};
use highwire_record::Tap;
use highwire_rnic::{Rnic, RnicConfig, TransportConfig};
use highwire_shmem::{DoorbellBoard, Segment, SharedPool, WholeSegment, Window};
use highwire_stdx::{Duration, Rng};
use highwire_verbs::{Gid, Mtu};
use highwire_wake::{Mode, Strategy};
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

const LANES_MAX: u32 = 64;
/// Other users' devices are invisible, so an address that looks free may not be.
const ADDRESS_ATTEMPTS: u32 = 16;

/// The address with everything that holds it.
pub(super) struct Place {
    pub(super) ip: IpAddr,
    pub(super) local: Option<Arc<LocalEngine>>,
    pub(super) sockets: Vec<UdpLink>,
    /// Present where the address is shared.
    pub(super) side_band: Option<OwnedFd>,
    pub(super) broker: Option<Client>,
}

pub(super) fn open(config: &DeviceConfig) -> Result<Shared, OpenError> {
    if !(1..=LANES_MAX).contains(&config.lanes) {
        return Err(OpenError::BadLanes(config.lanes));
    }
    if let Some(faults) = &config.faults {
        faults.check()?;
    }
    highwire_shmem::guard::install();
    let mut rng = random_numbers(config)?;
    let place = match config.sharing {
        Sharing::Exclusive => find_place(config, &mut rng)?,
        Sharing::Shared => super::sharing::join(config)?,
    };
    let Place { ip, local, sockets, side_band, broker } = place;
    let gid = Gid::from_ip(ip);
    let name = EngineName::shared(ip, broker.as_ref().map_or(0, Client::shard));
    let clock = Clock::start();
    let mtu = path_mtu(config, ip)?;
    let system = |what| move |error: io::Error| OpenError::System(what, error);
    let waker = Arc::new(Waker::new().map_err(system("make an eventfd"))?);
    let waiting = waits(config, &waker)?;
    let events = EventQueue::new().map_err(system("make an eventfd"))?;
    let mailboxes: Arc<[_]> = (0..config.lanes).map(|_| ArrayQueue::new(MAILBOX_PACKETS)).collect();
    let capture = capture_file(config)?;
    let record = config.record.as_ref();
    let record = record.map(|record| record.recorder.device(gid, &record.name, clock.now()));
    let mut lanes = Vec::new();
    let mut lane_fds = Vec::new();
    let mut boards = Vec::new();
    for (lane, socket) in (0..).zip(sockets) {
        let fds = socket.poll_fd().map(|fd| fd.try_clone_to_owned()).transpose();
        let mut fds: Vec<OwnedFd> = fds.map_err(system("copy a descriptor"))?.into_iter().collect();
        // If this fails, datagrams to groups are lost without an error, as on any network.
        fds.iter().for_each(|fd| drop(sys::send_groups_from(fd.as_fd(), ip)));
        let epoll = sys::Epoll::new().map_err(system("make an epoll instance"))?;
        fds.push(epoll.fd().try_clone_to_owned().map_err(system("copy a descriptor"))?);
        let bell = |_| UdpSocket::bind((ip, 0)).map_err(system("open a socket"));
        let (udp, disturbed) = links(config, socket, lane, (capture.as_ref(), record.as_ref()));
        let shm = match &local {
            Some(local) => Some(Shm::new(Neighbours::new(local, lane, bell(())?), disturbed)),
            None => None,
        };
        let bell = shm.as_ref().and_then(|shm| shm.rings.inbox.bell());
        let bell = bell.map(|fd| fd.try_clone_to_owned()).transpose();
        fds.extend(bell.map_err(system("copy a descriptor"))?);
        lane_fds.push(fds);
        let doorman = broker.as_ref().map(Client::doorman);
        let udp = Udp::new(udp, gid, doorman, Groups::new(ip, epoll));
        let served = local.as_ref().filter(|_| config.has_door).map(|local| local.pool());
        let (board, file) = doorbells(served).map_err(system("make shared memory"))?;
        boards.extend(file);
        let parts = Parts {
            rnic: Rnic::new(rnic_config(config, gid, lane, name.shard), rng.fork(u64::from(lane))),
            lane,
            gid,
            clock: clock.clone(),
            memory: host_memory(),
            ways: Ways::new(shm, udp, config.link == LinkChoice::Shm),
            may_defer: config.engine != crate::config::Engine::Inline,
            board: board.clone(),
            mailboxes: Arc::clone(&mailboxes),
            waker: Arc::clone(&waker),
            leader_waker: Arc::clone(&waiting.leader_waker),
            record: record.clone(),
        };
        lanes.push(Lane::new(Engine::new(parts), board, Arc::clone(&waker)));
    }
    let pool = local.as_ref().map_or_else(SharedPool::anonymous, |local| local.pool().clone());
    Ok(Shared {
        gid,
        engine: config.engine,
        mtu,
        lanes,
        events,
        waker,
        waiting,
        side_band: SideBand::open(gid, side_band, rng.fork(1 << 32), clock.clone()),
        arenas: Arenas { pool, rings: SharedPool::anonymous() },
        local,
        is_disturbed: config.link == LinkChoice::Shm && is_watched(config),
        house: Housekeeping::new(StatsFile::create(name).ok()),
        capture,
        record,
        deafness: config.packet_faults.clone(),
        lane_fds,
        guests: Guests { boards, door_share: config.door_share },
        rng: Mutex::new(rng),
        connections: Mutex::default(),
        clock,
        is_closing: AtomicBool::new(false),
        company: Company::default(),
        crowd: Crowd::new(std::thread::available_parallelism().map_or(1, usize::from)),
        broker,
    })
}

/// Peers see keys, queue pair numbers and PSNs, and must not guess the next ones from them; unless a test asks for a seed.
fn random_numbers(config: &DeviceConfig) -> Result<Rng, OpenError> {
    match config.seed {
        Some(seed) => Ok(Rng::new(seed)),
        None => secret_rng().map_err(|error| OpenError::System("get random numbers", error)),
    }
}

/// How threads of the device wait.
fn waits(config: &DeviceConfig, background: &Arc<Waker>) -> Result<Waiting, OpenError> {
    let failed = |error| OpenError::System("make an eventfd", error);
    let waiting =
        |strategy, is_followed| Waiting::new(strategy, is_followed, Arc::clone(background)).map_err(failed);
    // If one thread runs the engine, waiting threads can only sleep.
    if config.engine != crate::config::Engine::Both {
        return waiting(Strategy::Event.make(), false);
    }
    let mode = match (config.wake, highwire_link::environment::variable(WAKE_VARIABLE)) {
        (Some(mode), _) => mode,
        (None, Some(text)) => text.to_string_lossy().trim().parse().map_err(OpenError::BadWake)?,
        (None, None) => Mode::default(),
    };
    if mode == Mode::Dispatcher {
        return Waiting::dispatched(Arc::clone(background)).map_err(failed);
    }
    waiting(mode.strategy(), mode == Mode::Power)
}

/// Takes the address that was asked for, or an unused one.
fn find_place(config: &DeviceConfig, rng: &mut Rng) -> Result<Place, OpenError> {
    let registry = registry(config)?;
    if let Some(registry) = &registry {
        // The files of killed processes would fill the machine's shared memory. If removing them fails, the
        // next process tries again.
        let _ = registry.reap_stale();
        let _ = stats::running_in(registry);
    }
    let engine_config = EngineConfig { lanes: config.lanes, ..EngineConfig::default() };
    if let Some(ip) = wanted_address(config)? {
        let sockets = UdpLink::open_lanes(&udp_config(config, ip), config.lanes as usize);
        let local = match registry.as_ref().map(|registry| registry.claim(ip, &engine_config)).transpose() {
            Ok(local) => local.map(Arc::new),
            Err(ClaimError::Taken { name, .. }) => return Err(OpenError::AddressInUse(name.gid)),
            Err(error) => return Err(error.into()),
        };
        let sockets = sockets?;
        if let Some(registry) = &registry {
            // This process has the port, so the broker that left this socket behind was killed.
            let _ = std::fs::remove_file(registry.broker_socket(ip));
        }
        return Ok(Place { ip, local, sockets, side_band: None, broker: None });
    }
    let mut attempts = 0;
    loop {
        let local = match &registry {
            Some(registry) => registry.claim_unused_loopback(rng.next_u64(), &engine_config).map(Some),
            None => Ok(None),
        };
        let local = local?.map(Arc::new);
        let ip = local.as_ref().map_or_else(|| random_loopback(rng), |local| local.gid());
        attempts += 1;
        match UdpLink::open_lanes(&udp_config(config, ip), config.lanes as usize) {
            Ok(sockets) => return Ok(Place { ip, local, sockets, side_band: None, broker: None }),
            Err(UdpError::PortTaken { .. }) if attempts < ADDRESS_ATTEMPTS => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The address that the configuration or the environment asks for.
pub(super) fn wanted_address(config: &DeviceConfig) -> Result<Option<IpAddr>, OpenError> {
    if config.address.is_some() {
        return Ok(config.address);
    }
    match highwire_link::environment::variable(ADDRESS_VARIABLE) {
        None => Ok(None),
        Some(text) => {
            let text = text.to_string_lossy();
            text.trim().parse().map(Some).map_err(|_| OpenError::BadAddress(text.into_owned()))
        }
    }
}

/// The directory of this user's devices, where shared memory is to be used.
pub(super) fn registry(config: &DeviceConfig) -> Result<Option<Registry>, OpenError> {
    match config.link {
        LinkChoice::Udp => Ok(None),
        // Faults and captures mean the network, unless shared memory was asked for by name.
        LinkChoice::Auto if is_watched(config) => Ok(None),
        LinkChoice::Shm => Ok(Some(Registry::open()?)),
        // Without such a directory everybody is reached over UDP.
        LinkChoice::Auto => Ok(Registry::open().ok()),
    }
}

/// Packets suffer faults or are recorded.
fn is_watched(config: &DeviceConfig) -> bool {
    config.faults.is_some() || config.packet_faults.is_some() || config.capture.is_some()
}

fn random_loopback(rng: &mut Rng) -> IpAddr {
    let [_, b, c, d] = rng.next_u32().to_be_bytes();
    // As the registry does: 127.0.0.x is where people put things by hand.
    Ipv4Addr::new(127, b.max(1), c, d.clamp(1, 254)).into()
}

pub(super) fn udp_config(config: &DeviceConfig, ip: IpAddr) -> UdpConfig {
    let ecn = if config.congestion.uses_ecn() { Ecn::Capable0 } else { Ecn::NotCapable };
    UdpConfig { ecn, ..UdpConfig::new(ip) }
}

fn path_mtu(config: &DeviceConfig, ip: IpAddr) -> Result<Mtu, OpenError> {
    // An interface that tells no MTU is one that was just bound to, so it exists: assume Ethernet.
    let offered = roce_mtu_bytes(netdev_mtu_of(ip).unwrap_or(1500)).ok_or(OpenError::MtuTooSmall(ip))?;
    let at_most = config.mtu_max.unwrap_or(offered).min(offered);
    Mtu::ALL.into_iter().rfind(|mtu| mtu.bytes() <= at_most).ok_or(OpenError::MtuTooSmall(ip))
}

/// The numbers of a shared address's queue pairs end in the process's part, as if it were one of 256 lanes.
fn rnic_config(config: &DeviceConfig, gid: Gid, lane: u32, shard: u8) -> RnicConfig {
    let (lane, lanes) = if shard > 0 { (u32::from(shard), 256) } else { (lane, config.lanes) };
    let mut transport = TransportConfig {
        congestion: config.congestion,
        // A polling host comes back every few microseconds, and must catch up on its schedule.
        pacing_burst: Duration::from_micros(50),
        ..TransportConfig::default()
    };
    // Half a turn of the background thread: an acknowledgement that the peer does not wait for rides with the next packet.
    transport.ack_delay = Duration::from_micros(200);
    transport.acks_ride = true;
    // As many packets of the largest MTU as fit into the longest train.
    transport.train_packets = 16;
    // IRN's timeouts are for a NIC that answers within microseconds. A host's thread may first have to be
    // scheduled.
    transport.irn.cap = 256;
    transport.irn.rto_low = Duration::from_micros(1000);
    transport.irn.rto_high = Duration::from_micros(4000);
    RnicConfig { lane, lanes, egress_quantum: 16, transport, ..RnicConfig::new(gid) }
}

fn capture_file(config: &DeviceConfig) -> Result<Option<CaptureFile>, OpenError> {
    let Some(path) = &config.capture else { return Ok(None) };
    let origin = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let file = CaptureFile::create(path, origin.into());
    file.map(Some).map_err(|error| OpenError::Capture(path.clone(), error))
}

/// The lane's links: the network and, if asked for, shared memory with its decorators.
fn links(
    config: &DeviceConfig,
    socket: UdpLink,
    lane: u32,
    watchers: Watchers<'_>,
) -> (Box<dyn Link + Send>, Option<Disturbed>) {
    if config.link != LinkChoice::Shm || !is_watched(config) {
        return (decorate(config, socket, lane, watchers), None);
    }
    let local = socket.local();
    let deafness = config.packet_faults.clone();
    let capture = watchers.0.cloned();
    let disturbed =
        Disturbed::new(local, capture, deafness, |outbox| decorate(config, outbox, lane, watchers));
    (Box::new(socket), Some(disturbed))
}

/// The capture and the record of the device, if they are wanted.
type Watchers<'a> = (Option<&'a CaptureFile>, Option<&'a Tap>);

/// Captures see what the RNIC sends, packets that a fault then removes included.
fn decorate<L: Link + Send + 'static>(
    config: &DeviceConfig,
    link: L,
    lane: u32,
    watchers: Watchers<'_>,
) -> Box<dyn Link + Send> {
    match &config.packet_faults {
        None => with_rates(config, link, lane, watchers),
        Some(rule) => {
            let rule = Watched { rule: rule.clone(), tap: watchers.1.cloned() };
            with_rates(config, Faulty::with_rule(link, rule, Duration::ZERO), lane, watchers)
        }
    }
}

fn with_rates<L: Link + Send + 'static>(
    config: &DeviceConfig,
    link: L,
    lane: u32,
    (capture, tap): Watchers<'_>,
) -> Box<dyn Link + Send> {
    let faults = config.faults.as_ref().map(|faults| faults.for_lane(u64::from(lane)));
    let suffer = |link, faults: FaultConfig| {
        let rule = Watched { rule: Rates::new(&faults), tap: tap.cloned() };
        Faulty::with_rule(link, rule, faults.delay)
    };
    match (faults, capture) {
        (None, None) => Box::new(link),
        (Some(faults), None) => Box::new(suffer(link, faults)),
        (None, Some(file)) => Box::new(Capture::new(link, file.clone())),
        (Some(faults), Some(file)) => Box::new(Capture::new(suffer(link, faults), file.clone())),
    }
}

/// A lane's doorbells; in a file, if another program is to ring them.
fn doorbells(pool: Option<&SharedPool>) -> io::Result<(DoorbellBoard, Option<WholeSegment>)> {
    let failed = |error: highwire_shmem::LayoutError| io::Error::other(error.to_string());
    let bytes = DoorbellBoard::bytes(BELLS).map_err(failed)?;
    let file = pool.map(|pool| pool.whole(bytes).map_err(io::Error::other)).transpose()?;
    let window = match &file {
        Some(file) => file.window().clone(),
        None => Window::whole(&Arc::new(Segment::anonymous_shared(bytes)?)),
    };
    Ok((DoorbellBoard::create(&window, BELLS).map_err(failed)?, file))
}

#[allow(unsafe_code)]
fn host_memory() -> HostMemory {
    // SAFETY: the engine hands it only addresses that the RNIC has translated, and those of its inline arenas.
    unsafe { HostMemory::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use highwire_verbs::Access;

    /// A small device on an address of its own.
    fn device(seed: Option<u64>) -> Device {
        Device::open(&DeviceConfig { seed, link: LinkChoice::Udp, ..DeviceConfig::default() }).expect("opens")
    }

    #[test]
    fn what_peers_see_of_a_device_does_not_tell_what_comes_next() {
        let device = device(None);
        assert!(device.inner().rng.lock().expect("whole").is_secret());
        for lane in &device.inner().lanes {
            assert!(lane.control(|engine| engine.rnic.draws_secretly()), "keys and queue pair numbers");
        }
    }

    #[test]
    fn a_seed_repeats_the_keys_of_a_device() {
        let keys = |seed| {
            let device = device(seed);
            let buffer = device.protection_domain().allocate(4096, Access::ALL).expect("memory");
            buffer.remote(0).rkey
        };
        assert_eq!(keys(Some(5)), keys(Some(5)));
        assert_ne!(keys(None), keys(None));
    }
}
