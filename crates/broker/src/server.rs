//! The broker itself: one thread, one `poll`.
//!
//! Invariant: a socket belongs to one member at a time, and to the broker while it belongs to none. Then the
//! broker drops the packets that arrive, so that no member gets packets of an earlier one.

mod counters;
mod gsi;
mod members;
mod parked;
mod succession;

use self::counters::Counters;
use super::SHARDS;
use super::protocol::{Mad, PortSpace, ServiceIds};
use super::socket_store::SocketStore;
use super::sys;
use highwire_link::shm::stats;
use highwire_link::shm::{EngineName, Registry};
use highwire_link::{Link, OpenError, RxBatch, SharedPort, SteerBy, TxBatch, UdpConfig, secret_rng};
use highwire_stdx::Rng;
use highwire_wire::{NEGOTIATION_PORT, Psn};
use parked::Parked;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a broker outlives its last member: a script starts its programs one after the other.
const LINGER: Duration = Duration::from_secs(2);
/// How often a broker without members checks that clients can still find it.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a broker waits for its first member.
const PATIENCE: Duration = Duration::from_secs(10);
/// The links below need no time.
const NO_TIME: highwire_stdx::Instant = highwire_stdx::Instant::ZERO;
/// How long a service without a listener may pause. Servers that make a listener for each connection get
/// requests in between; a client repeats a request without an answer, which then finds the next listener.
const GRACE: Duration = Duration::from_secs(1);
/// The socket of queue pair 1.
const GSI: usize = 1;

/// The owner of a shared address.
pub struct Broker {
    address: IpAddr,
    registry: Registry,
    listener: OwnedFd,
    packets: SharedPort,
    side_band: SharedPort,
    members: Vec<Member>,
    /// Shards whose sockets are the broker's, first the one that has been free for longest.
    free: VecDeque<u8>,
    /// Shards of a former broker's whose owners have not come back yet. The broker does not touch their
    /// sockets.
    unclaimed: BTreeSet<u8>,
    /// All sockets, for the next broker, and the number of pairs.
    socket_store: SocketStore,
    in_estate: usize,
    services: Vec<(ServiceIds, u8)>,
    /// Services whose listeners have gone, and when.
    given_up: Vec<(ServiceIds, Instant)>,
    /// The shard that has a port, and since when.
    ports: BTreeMap<(PortSpace, u16), (u8, Instant)>,
    /// Requests for services that may soon have a listener.
    parked: Vec<Parked>,
    /// Until then members of a former broker may still report the services to which they listen.
    settled_at: Instant,
    linger: Duration,
    rng: Rng,
    psn: Psn,
    counters: Counters,
    rx: RxBatch,
    tx: TxBatch,
}

/// A connection.
struct Member {
    connection: OwnedFd,
    pid: u32,
    part: Option<Part>,
    last_messages: BTreeMap<u32, (IpAddr, Box<Mad>)>,
}

/// The shard and sockets of a member.
struct Part {
    shard: u8,
    mads: OwnedFd,
}

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The broker cannot take the address; the text says why and what to do.
    #[error(transparent)]
    Address(#[from] OpenError),
    /// The socket for clients could not be made, or waiting failed.
    #[error("the broker cannot work: {0}")]
    Io(#[from] io::Error),
}

impl Broker {
    /// Takes an address. The caller holds the registry's lock of the address's broker, or knows that no other
    /// process looks for this one.
    ///
    /// # Errors
    /// [`BrokerError`], whose text says what to do.
    pub fn open(registry: &Registry, address: IpAddr) -> Result<Broker, BrokerError> {
        let address = address.to_canonical();
        let [packets, side_band] = configs(address);
        let packets = SharedPort::open(&packets, SteerBy::DestinationQpn)?;
        let side_band = SharedPort::open(&side_band, SteerBy::ReceiverQpn)?;
        let path = registry.broker_socket(address);
        // This broker owns the address, so the broker that made this socket is gone.
        let _ = std::fs::remove_file(&path);
        let listener = sys::listen(&path)?;
        let socket_store = SocketStore::new()?;
        for number in 0..side_band.len() {
            socket_store.add(number, packets.fd(number), side_band.fd(number))?;
        }
        Broker::with(registry, address, listener, (packets, side_band), socket_store)
    }

    fn with(
        registry: &Registry,
        address: IpAddr,
        listener: OwnedFd,
        (packets, side_band): (SharedPort, SharedPort),
        socket_store: SocketStore,
    ) -> Result<Broker, BrokerError> {
        sys::raise_descriptor_limit();
        let mut rng = secret_rng()?;
        Ok(Broker {
            address,
            registry: registry.clone(),
            listener,
            members: Vec::new(),
            free: VecDeque::new(),
            unclaimed: BTreeSet::new(),
            in_estate: side_band.len(),
            socket_store,
            packets,
            side_band,
            services: Vec::new(),
            given_up: Vec::new(),
            ports: BTreeMap::new(),
            parked: Vec::new(),
            settled_at: Instant::now(),
            linger: LINGER,
            psn: Psn::new(rng.next_u32()),
            rng,
            counters: Counters::new(registry, address),
            rx: RxBatch::new(),
            tx: TxBatch::new(),
        })
    }

    /// Sets how long the broker stays after the last process has left, instead of two seconds.
    #[must_use]
    pub fn with_linger(self, linger: Duration) -> Broker {
        Broker { linger, ..self }
    }

    /// Serves until there was no member for two seconds; the first member has ten seconds to come.
    ///
    /// # Errors
    /// Those of `poll(2)`.
    pub fn run(mut self) -> Result<(), BrokerError> {
        let mut end_at = Instant::now() + PATIENCE;
        loop {
            let is_lonely = self.members.is_empty();
            let left = end_at.saturating_duration_since(Instant::now());
            // A broker that clients cannot find any more only keeps the port from the next one.
            if is_lonely && (left.is_zero() || !self.registry.is_shared(self.address)) {
                match self.end() {
                    None => return Ok(()),
                    Some(broker) => self = broker,
                }
                end_at = Instant::now() + self.linger;
            }
            let timeout_ms = left.min(LOOK_INTERVAL).as_millis() as i32 + 1;
            let is_watchful = is_lonely || !self.parked.is_empty();
            self.turn(if is_watchful { timeout_ms } else { -1 })?;
            self.decline_parked();
            if !is_lonely {
                end_at = Instant::now() + self.linger;
            }
        }
    }

    /// Ends, unless a client has connected or is about to.
    fn end(mut self) -> Option<Broker> {
        // A client that looks for a broker holds this lock until it is connected. While the broker holds it,
        // no client is on the way.
        let lock = match self.registry.try_lock_broker(self.address) {
            Ok(Some(lock)) => Some(lock),
            // The registry was removed, so clients cannot find this broker any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Ok(None) | Err(_) => return Some(self),
        };
        // Some sharers may not have come back to this broker yet, such as processes that are stopped.
        self.reclaim();
        if self.accept() > 0 || !self.unclaimed.is_empty() {
            return Some(self);
        }
        let path = self.registry.broker_socket(self.address);
        let _ = std::fs::remove_file(succession::draft_of(&path));
        let _ = self.registry.reap_stale();
        // A process that was killed while it made its statistics file has left one without an owner's name.
        for shard in SHARDS.take_while(|&shard| usize::from(shard) < self.side_band.len()) {
            stats::remove(&self.registry, EngineName::shared(self.address, shard));
        }
        let _ = stats::running_in(&self.registry);
        self.counters.close();
        // Removed last: without this file, nothing else of the broker is left.
        let _ = std::fs::remove_file(path);
        // The next broker may bind once it has the lock.
        drop(self);
        drop(lock);
        None
    }

    /// Waits for events, and handles them.
    fn turn(&mut self, timeout_ms: i32) -> io::Result<()> {
        let readable =
            |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polled = vec![readable(self.listener.as_fd())];
        polled.extend(self.members.iter().map(|member| readable(member.connection.as_fd())));
        let members = self.members.len();
        // The broker reads the sockets of number 0, of queue pair 1, and of every free shard.
        let ours: Vec<usize> =
            [0, GSI].into_iter().chain(self.free.iter().map(|&s| usize::from(s))).collect();
        for &number in &ours {
            polled.push(readable(self.packets.fd(number)));
            polled.push(readable(self.side_band.fd(number)));
        }
        sys::poll(&mut polled, timeout_ms)?;
        let is_ready = |index: usize| polled[index].revents != 0;
        for (index, &number) in ours.iter().enumerate() {
            let at = 1 + members + 2 * index;
            if is_ready(at) {
                if number == GSI { self.receive_mads() } else { self.packets.drain(number, &mut self.rx) }
            }
            if is_ready(at + 1) {
                self.side_band.drain(number, &mut self.rx);
            }
        }
        // From the last to the first, since members that leave are taken out.
        for index in (0..members).rev() {
            if is_ready(1 + index) && self.serve(index).is_err() {
                self.leave(index);
            }
        }
        if is_ready(0) {
            self.accept();
        }
        let packets = &mut self.packets;
        self.counters.write(|each| packets.socket(GSI).counters(each));
        Ok(())
    }

    /// Accepts the connections that wait; returns how many.
    fn accept(&mut self) -> usize {
        let mut count = 0;
        while let Ok(connection) = sys::accept(self.listener.as_fd()) {
            let pid = sys::peer_pid(connection.as_fd()).unwrap_or(0);
            self.members.push(Member { connection, pid, part: None, last_messages: BTreeMap::new() });
            count += 1;
        }
        count
    }
}

/// The configuration of the sockets of packets and those of the side band.
fn configs(address: IpAddr) -> [UdpConfig; 2] {
    let packets = UdpConfig { gro: false, ..UdpConfig::new(address) };
    let small = 1 << 18;
    let side_band = UdpConfig {
        port: NEGOTIATION_PORT,
        receive_buffer_bytes: small,
        send_buffer_bytes: small,
        gso: false,
        ..packets
    };
    [packets, side_band]
}

/// Makes this process the broker of an address, says on standard output that it is ready or why it cannot be,
/// and serves. For a process with one thread and no other task; it goes on in the background. `registry` is
/// the directory in which the user's processes find each other, if it is not the usual one. With `succeeds`,
/// standard input is a local socket that holds the socket store of a broker that was killed: the processes that
/// share the address go on under this one.
///
/// # Errors
/// [`BrokerError`]; the process says it on standard output, too.
pub fn serve(registry: Option<&Path>, address: IpAddr, succeeds: bool) -> Result<(), BrokerError> {
    let say = |text: &str| {
        let mut out = io::stdout();
        // The process that started this broker may have ended by now.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    };
    let open = || {
        let registry = match registry {
            Some(root) => Registry::open_at(root),
            None => Registry::open(),
        };
        sys::detach()?;
        let registry = registry.map_err(io::Error::other)?;
        if succeeds {
            Broker::succeed(&registry, address, io::stdin().as_fd())
        } else {
            Broker::open(&registry, address)
        }
    };
    match open() {
        Ok(broker) => {
            say(super::spawn::READY);
            let _ = std::env::set_current_dir("/");
            sys::leave_standard_files()?;
            broker.run()
        }
        Err(error) => {
            say(&format!("{error}\n"));
            Err(error)
        }
    }
}
