//! The broker itself: one thread, one `poll`.
//!
//! Invariant: a socket belongs to one member at a time, and to the broker while it belongs to none; then whatever arrives
//! at it is thrown away, so that nobody is given what was for somebody else.

use super::mad::{Recipient, decline, gsi_packet, mad_of, recipient};
use super::protocol::{Mad, PortSpace, RECORD_BYTES_MAX, Reply, Request, ServiceIds, VERSION, ip_bytes};
use super::{SHARDS, sys};
use crate::stats;
use highwire_link::shm::{EngineName, Registry};
use highwire_link::{Link, OpenError, Order, Packet, RxBatch, SharedPort, SteerBy, TxBatch, UdpConfig};
use highwire_stdx::Rng;
use highwire_wire::cm::CmMad;
use highwire_wire::{ICRC_LEN, PathIcrc, Psn, UDP_PORT, parse_packet_with_icrc};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a broker outlives the last of those it serves: a script starts its programs one after the other.
const LINGER: Duration = Duration::from_secs(2);
/// How long it waits for the first of them.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many shards stay free before one is given to a second process: neighbours take a moment to notice that the first is
/// gone.
const FREE_SHARDS_MIN: usize = 16;
/// The first port that is given to those who want any.
const EPHEMERAL_FIRST: u16 = 32_768;
/// The links below keep no time of their own.
const NO_TIME: highwire_stdx::Instant = highwire_stdx::Instant::ZERO;
/// How long a service that was given up may pause. Servers that make a listener for each connection are asked in between;
/// a request that is not answered then is repeated, and finds the next listener.
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
    /// Shards whose sockets are the broker's, the one that has been free for longest first.
    free: VecDeque<u8>,
    services: Vec<(ServiceIds, u8)>,
    /// Services that were given up, and when.
    given_up: Vec<(ServiceIds, Instant)>,
    ports: BTreeMap<(PortSpace, u16), u8>,
    linger: Duration,
    rng: Rng,
    psn: Psn,
    rx: RxBatch,
    tx: TxBatch,
}

/// A connection.
struct Member {
    connection: OwnedFd,
    pid: u32,
    part: Option<Part>,
    wills: BTreeMap<u32, (IpAddr, Box<Mad>)>,
}

/// What a member that has joined was given.
struct Part {
    shard: u8,
    mads: OwnedFd,
}

/// Why there is no broker.
#[derive(Debug)]
#[non_exhaustive]
pub enum BrokerError {
    /// The address cannot be had; the text says why and what to do.
    Address(OpenError),
    /// The socket for clients could not be made, or waiting failed.
    Io(io::Error),
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BrokerError::Address(error) => error.fmt(f),
            BrokerError::Io(error) => write!(f, "the broker cannot work: {error}"),
        }
    }
}

impl std::error::Error for BrokerError {}

impl From<OpenError> for BrokerError {
    fn from(error: OpenError) -> BrokerError {
        BrokerError::Address(error)
    }
}

impl From<io::Error> for BrokerError {
    fn from(error: io::Error) -> BrokerError {
        BrokerError::Io(error)
    }
}

impl Broker {
    /// Takes an address. The caller holds the registry's lock of brokers, or knows that nobody else looks for this one.
    ///
    /// # Errors
    /// [`BrokerError`], whose text says what to do.
    pub fn open(registry: &Registry, address: IpAddr) -> Result<Broker, BrokerError> {
        let address = address.to_canonical();
        let config = UdpConfig { gro: false, ..UdpConfig::new(address) };
        let packets = SharedPort::open(&config, SteerBy::DestinationQpn)?;
        let small = 1 << 18;
        let side_band_config = UdpConfig {
            port: crate::negotiate::NEGOTIATION_PORT,
            receive_buffer_bytes: small,
            send_buffer_bytes: small,
            gso: false,
            ..config
        };
        let side_band = SharedPort::open(&side_band_config, SteerBy::ReceiverQpn)?;
        let path = registry.broker_socket(address);
        // The address is ours, so whoever made this is gone.
        let _ = std::fs::remove_file(&path);
        let listener = sys::listen(&path)?;
        sys::raise_descriptor_limit();
        let mut rng = Rng::new(crate::sys::random_u64()?);
        Ok(Broker {
            address,
            registry: registry.clone(),
            listener,
            packets,
            side_band,
            members: Vec::new(),
            free: VecDeque::new(),
            services: Vec::new(),
            given_up: Vec::new(),
            ports: BTreeMap::new(),
            linger: LINGER,
            psn: Psn::new(rng.next_u32()),
            rng,
            rx: RxBatch::new(),
            tx: TxBatch::new(),
        })
    }

    /// Lets it end sooner or later than two seconds after the last process has left.
    #[must_use]
    pub fn with_linger(self, linger: Duration) -> Broker {
        Broker { linger, ..self }
    }

    /// Serves until nobody has been there for two seconds, and at first for ten.
    ///
    /// # Errors
    /// Those of `poll(2)`.
    pub fn run(mut self) -> Result<(), BrokerError> {
        let mut end_at = Instant::now() + PATIENCE;
        loop {
            let is_lonely = self.members.is_empty();
            let left = end_at.saturating_duration_since(Instant::now());
            if is_lonely && left.is_zero() {
                match self.end() {
                    None => return Ok(()),
                    Some(broker) => self = broker,
                }
                end_at = Instant::now() + self.linger;
            }
            self.turn(if is_lonely { left.as_millis() as i32 + 1 } else { -1 })?;
            if !is_lonely {
                end_at = Instant::now() + self.linger;
            }
        }
    }

    /// Ends, unless somebody has come or is about to.
    fn end(mut self) -> Option<Broker> {
        // Whoever looks for a broker holds this lock until connected: held by us, nobody is on the way.
        let lock = match self.registry.try_lock_brokers() {
            Ok(Some(lock)) => Some(lock),
            // The registry was removed, so nobody can find this broker any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Ok(None) | Err(_) => return Some(self),
        };
        if self.accept() > 0 {
            return Some(self);
        }
        let _ = std::fs::remove_file(self.registry.broker_socket(self.address));
        let _ = self.registry.reap_stale();
        let _ = stats::running_in(&self.registry);
        // The next one may bind once it has the lock.
        drop(self);
        drop(lock);
        None
    }

    /// Waits for something to happen, and does what it asks for.
    fn turn(&mut self, timeout_ms: i32) -> io::Result<()> {
        let readable =
            |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polled = vec![readable(self.listener.as_fd())];
        polled.extend(self.members.iter().map(|member| readable(member.connection.as_fd())));
        let members = self.members.len();
        // Ours are those of nobody, of queue pair 1, and of every free shard.
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
        // From the last to the first, since those who leave are taken out.
        for index in (0..members).rev() {
            if is_ready(1 + index) && self.serve(index).is_err() {
                self.leave(index);
            }
        }
        if is_ready(0) {
            self.accept();
        }
        Ok(())
    }

    /// Takes the connections that wait; returns how many.
    fn accept(&mut self) -> usize {
        let mut count = 0;
        while let Ok(connection) = sys::accept(self.listener.as_fd()) {
            let pid = sys::peer_pid(connection.as_fd()).unwrap_or(0);
            self.members.push(Member { connection, pid, part: None, wills: BTreeMap::new() });
            count += 1;
        }
        count
    }

    /// Answers one question; an error means that the member is gone.
    fn serve(&mut self, index: usize) -> io::Result<()> {
        let mut record = [0; RECORD_BYTES_MAX];
        let (len, _) = sys::receive(self.members[index].connection.as_fd(), &mut record)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let reply = match Request::decode(&record[..len]) {
            Some(Request::Join { version: VERSION }) => return self.join(index),
            Some(request) => self.answer(index, request),
            None => Reply::NotUnderstood,
        };
        sys::send(self.members[index].connection.as_fd(), &reply.encode(), &[])
    }

    fn answer(&mut self, index: usize, request: Request) -> Reply {
        if request == Request::Status {
            let joined = self.members.iter().filter_map(|m| m.part.as_ref().map(|part| (part.shard, m.pid)));
            let mut sharers: Vec<_> = joined.collect();
            sharers.sort_unstable();
            return Reply::Sharers(sharers);
        }
        let member = &mut self.members[index];
        let Some(shard) = member.part.as_ref().map(|part| part.shard) else { return Reply::NotUnderstood };
        match request {
            Request::Listen(wanted) => {
                if self.services.iter().any(|(services, _)| services.overlaps(wanted)) {
                    return Reply::InUse;
                }
                self.services.push((wanted, shard));
            }
            Request::Unlisten(unwanted) => {
                self.services.retain(|entry| *entry != (unwanted, shard));
                self.given_up.retain(|(_, when)| when.elapsed() < GRACE);
                self.given_up.push((unwanted, Instant::now()));
            }
            Request::Bind { space, port } => return self.bind(shard, space, port),
            Request::Release { space, port } => {
                if self.ports.get(&(space, port)) == Some(&shard) {
                    self.ports.remove(&(space, port));
                }
            }
            Request::LeaveWill { id, to, mad } => drop(member.wills.insert(id, (to, mad))),
            Request::RevokeWill { id } => drop(member.wills.remove(&id)),
            Request::Join { .. } | Request::Status => return Reply::NotUnderstood,
        }
        Reply::Done
    }

    fn bind(&mut self, shard: u8, space: PortSpace, port: u16) -> Reply {
        let port = if port == 0 {
            // From a random one on, so that a port that was just given back is not the next to be given.
            let count = u32::from(u16::MAX - EPHEMERAL_FIRST) + 1;
            let start = self.rng.below(u64::from(count)) as u32;
            let candidates = (0..count).map(|n| EPHEMERAL_FIRST + ((start + n) % count) as u16);
            match candidates.into_iter().find(|&port| !self.ports.contains_key(&(space, port))) {
                Some(port) => port,
                None => return Reply::Full,
            }
        } else {
            port
        };
        if self.ports.contains_key(&(space, port)) {
            return Reply::InUse;
        }
        self.ports.insert((space, port), shard);
        Reply::Port(port)
    }

    /// Gives a member a shard.
    fn join(&mut self, index: usize) -> io::Result<()> {
        let part = match self.take_shard() {
            Ok(Some(shard)) => sys::pair().map(|(ours, theirs)| (Part { shard, mads: ours }, theirs)),
            Ok(None) => return self.refuse(index, &Reply::Full),
            Err(error) => Err(error),
        };
        let (part, mads) = match part {
            Ok(part) => part,
            Err(error) => {
                return self.refuse(index, &Reply::Failed(error.raw_os_error().unwrap_or(libc::EIO)));
            }
        };
        let number = usize::from(part.shard);
        self.packets.drain(number, &mut self.rx);
        self.side_band.drain(number, &mut self.rx);
        let reply = Reply::Shard(part.shard).encode();
        // From here on the member's end is the shard's.
        let old = self.members[index].part.replace(part);
        self.free.extend(old.map(|part| part.shard));
        let fds = [self.packets.fd(number), self.side_band.fd(number), mads.as_fd()];
        sys::send(self.members[index].connection.as_fd(), &reply, &fds)
    }

    fn refuse(&mut self, index: usize, reply: &Reply) -> io::Result<()> {
        sys::send(self.members[index].connection.as_fd(), &reply.encode(), &[])
    }

    /// A free shard, with a new pair of sockets if need be; `None` if every shard is taken.
    fn take_shard(&mut self) -> io::Result<Option<u8>> {
        // The two ports count alike, also after one of them failed to grow.
        let next = self.side_band.len();
        let new = u8::try_from(next).ok().filter(|shard| SHARDS.contains(shard));
        let may_reuse = self.free.len() >= FREE_SHARDS_MIN || new.is_none();
        if let Some(shard) = may_reuse.then(|| self.reuse_shard()).flatten() {
            return Ok(Some(shard));
        }
        let Some(shard) = new else { return Ok(None) };
        let failed = |error: OpenError| match error {
            OpenError::Io { source, .. } => source,
            other => io::Error::other(other.to_string()),
        };
        if self.packets.len() == next {
            self.packets.add().map_err(failed)?;
        }
        self.side_band.add().map_err(failed)?;
        Ok(Some(shard))
    }

    /// The shard that has been free for longest. Not one whose former owner still has its place in the registry: a process
    /// that is killed may lose its connection before its locks, and a forked child may keep them.
    fn reuse_shard(&mut self) -> Option<u8> {
        let has_place = |broker: &Broker, shard: u8| {
            broker.registry.directory(EngineName::shared(broker.address, shard)).exists()
        };
        if self.free.iter().any(|&shard| has_place(self, shard)) {
            let _ = self.registry.reap_stale();
        }
        let at = self.free.iter().position(|&shard| !has_place(self, shard))?;
        self.free.remove(at)
    }

    /// A member is gone, however it ended: nothing of it stays.
    fn leave(&mut self, index: usize) {
        let member = self.members.swap_remove(index);
        for (to, mad) in member.wills.into_values() {
            self.send(SocketAddr::new(to, UDP_PORT), &mad);
        }
        let Some(Part { shard, .. }) = member.part else { return };
        self.services.retain(|(_, owner)| *owner != shard);
        self.ports.retain(|_, owner| *owner != shard);
        let name = EngineName::shared(self.address, shard);
        if self.registry.directory(name).exists() {
            // It was killed.
            let _ = self.registry.reap_stale();
        }
        stats::remove(&self.registry, name);
        self.packets.drain(usize::from(shard), &mut self.rx);
        self.side_band.drain(usize::from(shard), &mut self.rx);
        self.free.push_back(shard);
    }

    /// Takes what has arrived for queue pair 1.
    fn receive_mads(&mut self) {
        let mut rx = std::mem::take(&mut self.rx);
        while self.packets.socket(GSI).receive(NO_TIME, &mut rx) > 0 {
            for packet in rx.packets() {
                self.handle_packet(&packet);
            }
        }
        self.rx = rx;
    }

    fn handle_packet(&mut self, packet: &Packet<'_>) {
        let local = SocketAddr::new(self.address, UDP_PORT);
        let path = PathIcrc::between((packet.source.ip(), packet.source.port()), (local.ip(), local.port()));
        if path.and_then(|path| path.verify_unknown_id(packet.train_index, packet.bytes)).is_none() {
            return;
        }
        let Ok((headers, payload, _)) = parse_packet_with_icrc(packet.bytes) else { return };
        let Some((_, mad)) = mad_of(&headers, &packet.bytes[payload]) else { return };
        let Ok(mad) = CmMad::parse(mad) else { return };
        let shard = match recipient(&mad) {
            None => return,
            Some(Recipient::Listener(id)) => {
                let listener = self.services.iter().find(|(services, _)| services.contains(id));
                let is_pause = |(services, when): &(ServiceIds, Instant)| {
                    services.contains(id) && when.elapsed() < GRACE
                };
                if listener.is_none() && self.given_up.iter().any(is_pause) {
                    return;
                }
                listener.map(|(_, shard)| *shard)
            }
            Some(Recipient::Owner(id)) => Some(id as u8),
        };
        let part = self.members.iter().filter_map(|m| m.part.as_ref()).find(|p| Some(p.shard) == shard);
        let Some(part) = part else {
            if let Some(reply) = decline(&mad) {
                self.send(SocketAddr::new(packet.source.ip(), UDP_PORT), &reply);
            }
            return;
        };
        let mut record = ip_bytes(packet.source.ip()).to_vec();
        record.extend_from_slice(&packet.source.port().to_le_bytes());
        record.extend_from_slice(packet.bytes);
        // A member that does not listen loses datagrams, as by a full receive queue.
        let _ = sys::send(part.mads.as_fd(), &record, &[]);
    }

    /// Sends from queue pair 1. What does not leave is lost like anything on a network.
    fn send(&mut self, to: SocketAddr, mad: &Mad) {
        self.psn = self.psn.next();
        if self.tx.push(to, &gsi_packet(self.psn, mad), Order::Strict).is_err() {
            return;
        }
        let mut seal = |packet: &mut [u8], place: &highwire_link::Place| {
            let (s, d) = (place.source, place.destination);
            let Some(path) = PathIcrc::between((s.ip(), s.port()), (d.ip(), d.port())) else { return };
            if let Some((body, icrc)) = packet.split_last_chunk_mut::<ICRC_LEN>() {
                *icrc = path.icrc(place.train_index, body).to_le_bytes();
            }
        };
        let _ = self.packets.socket(GSI).transmit(NO_TIME, &mut self.tx, &mut seal);
        self.tx.clear();
    }
}

/// Makes this process the broker of an address, says on standard output that it is ready or why it cannot be, and serves.
/// For a process that has nothing else to do and one thread; it goes on in the background. `registry` is the directory in
/// which the user's processes find each other, if it is not the usual one.
///
/// # Errors
/// [`BrokerError`]; it was said on standard output, too.
pub fn serve(registry: Option<&Path>, address: IpAddr) -> Result<(), BrokerError> {
    let say = |text: &str| {
        let mut out = io::stdout();
        // Whoever asked may be gone by now.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    };
    let open = || {
        let registry = match registry {
            Some(root) => Registry::open_at(root),
            None => Registry::open(),
        };
        sys::detach()?;
        Broker::open(&registry.map_err(io::Error::other)?, address)
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
