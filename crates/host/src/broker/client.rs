//! A process's end: its shard, and what it asks of the broker later on.

use super::protocol::{Mad, PortSpace, RECORD_BYTES_MAX, Reply, Request, ServiceIds, VERSION, ip_from};
use super::standing::Standing;
use super::{spawn, sys};
use highwire_link::shm::Registry;
use highwire_wire::{Qpn, parse_packet_with_icrc};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// How long a broker may take to answer: it never waits for anything itself.
pub(super) const PATIENCE_SECONDS: i64 = 10;

/// How often a broker is looked for that does not end in between.
const JOIN_ATTEMPTS: u32 = 3;

/// A shard of an address, for as long as this lives and no forked child keeps its descriptors.
#[derive(Debug)]
pub(crate) struct Client {
    standing: Mutex<Standing>,
    registry: Registry,
    address: IpAddr,
    /// Where management datagrams for this process arrive, one per record.
    mads: OwnedFd,
    shard: u8,
}

/// What a client is given to receive with.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// UDP 4791.
    pub(crate) packets: OwnedFd,
    /// UDP 4794.
    pub(crate) side_band: OwnedFd,
}

/// Where to ask about others who share an address.
#[derive(Clone, Debug)]
pub(crate) struct Doorman {
    /// The broker's socket.
    path: PathBuf,
}

impl Doorman {
    /// The socket of UDP 4791 that a shard receives from, to look at.
    pub(crate) fn socket_of(&self, shard: u8) -> io::Result<OwnedFd> {
        let connection = sys::connect(&self.path)?;
        // A lane waits for this.
        sys::set_patience(connection.as_fd(), 1)?;
        let (_, fds) = exchange(connection.as_fd(), &Request::Socket { shard })?;
        fds.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The process that is an address's broker; `None` if there is none.
pub fn process(registry: &Registry, address: IpAddr) -> Option<u32> {
    let connection = sys::connect(&registry.broker_socket(address)).ok()?;
    sys::peer_pid(connection.as_fd()).ok()
}

/// Whether the other end is gone.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Why no shard was had.
#[derive(Debug)]
pub(crate) enum JoinError {
    /// There is no broker and none could be started; the text says why.
    NoBroker(String),
    /// As many processes as there are shards have the address.
    Full,
    /// It is of another release.
    OtherVersion,
    Io(io::Error),
}

impl From<io::Error> for JoinError {
    fn from(error: io::Error) -> JoinError {
        JoinError::Io(error)
    }
}

/// A packet for queue pair 1.
pub(crate) struct GsiPacket {
    pub(crate) source: SocketAddr,
    pub(crate) source_qpn: Qpn,
    pub(crate) mad: Box<Mad>,
    /// As it came from the network, BTH to ICRC.
    pub(crate) packet: Vec<u8>,
}

impl Client {
    /// Joins those who share `address`, and starts its broker if there is none.
    pub(crate) fn join(registry: &Registry, address: IpAddr) -> Result<(Client, Sockets), JoinError> {
        let mut attempts = 0..JOIN_ATTEMPTS;
        let (connection, (reply, fds)) = loop {
            let connection = spawn::connect(registry, address)?;
            sys::set_patience(connection.as_fd(), PATIENCE_SECONDS)?;
            match exchange(connection.as_fd(), &Request::Join { version: VERSION }) {
                Ok(reply) => break (connection, reply),
                // It was killed just now: there will be another.
                Err(error) if is_end(&error) && attempts.next().is_some() => {}
                Err(error) => return Err(error.into()),
            }
        };
        let shard = match reply {
            Reply::Shard(shard) => shard,
            Reply::Full => return Err(JoinError::Full),
            Reply::Failed(errno) => return Err(JoinError::Io(io::Error::from_raw_os_error(errno))),
            _ => return Err(JoinError::OtherVersion),
        };
        let Ok([packets, side_band, mads, far_mads, estate]) = <[OwnedFd; 5]>::try_from(fds) else {
            return Err(JoinError::OtherVersion);
        };
        let standing = Mutex::new(Standing::new(connection, shard, far_mads, estate));
        let client = Client { standing, registry: registry.clone(), address, mads, shard };
        Ok((client, Sockets { packets, side_band }))
    }

    /// Whom to ask about the others.
    pub(crate) fn doorman(&self) -> Doorman {
        Doorman { path: self.registry.broker_socket(self.address) }
    }

    /// Looks whether the broker still lives, and has it succeeded if not. What does not succeed is tried again later.
    pub(crate) fn look_after_broker(&self) {
        // Who asks something meanwhile finds out as well.
        let Ok(mut standing) = self.standing.try_lock() else { return };
        if standing.is_over() {
            let _ = standing.recover(&self.registry, self.address);
        }
    }

    /// The number in which every queue pair number and communication id of this process ends.
    pub(crate) fn shard(&self) -> u8 {
        self.shard
    }

    /// Becomes readable when a management datagram waits.
    pub(crate) fn mads_fd(&self) -> BorrowedFd<'_> {
        self.mads.as_fd()
    }

    /// The next management datagram.
    pub(crate) fn try_receive(&self) -> Option<GsiPacket> {
        let mut record = [0; RECORD_BYTES_MAX];
        loop {
            let (len, _) = sys::receive(self.mads.as_fd(), &mut record).ok()?;
            if len == 0 {
                return None;
            }
            // What makes no sense does not hide what is behind it.
            if let Some(packet) = GsiPacket::parse(&record[..len]) {
                return Some(packet);
            }
        }
    }

    pub(crate) fn listen(&self, services: ServiceIds) -> io::Result<Reply> {
        self.ask(&Request::Listen(services))
    }

    pub(crate) fn unlisten(&self, services: ServiceIds) -> io::Result<Reply> {
        self.ask(&Request::Unlisten(services))
    }

    pub(crate) fn bind(&self, space: PortSpace, port: u16) -> io::Result<Reply> {
        self.ask(&Request::Bind { space, port })
    }

    pub(crate) fn release(&self, space: PortSpace, port: u16) -> io::Result<Reply> {
        self.ask(&Request::Release { space, port })
    }

    pub(crate) fn leave_will(&self, id: u32, to: IpAddr, mad: &Mad) -> io::Result<Reply> {
        self.ask(&Request::LeaveWill { id, to, mad: Box::new(*mad) })
    }

    pub(crate) fn revoke_will(&self, id: u32) -> io::Result<Reply> {
        self.ask(&Request::RevokeWill { id })
    }

    fn ask(&self, request: &Request) -> io::Result<Reply> {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.ask(&self.registry, self.address, request)
    }
}

/// A process that shares an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharer {
    /// Its part of the address.
    pub shard: u8,
    /// Its process number.
    pub pid: u32,
}

/// Who shares an address now; `None` if it has no broker, which is not started for that.
pub fn sharers(registry: &Registry, address: IpAddr) -> Option<Vec<Sharer>> {
    let connection = sys::connect(&registry.broker_socket(address)).ok()?;
    sys::set_patience(connection.as_fd(), PATIENCE_SECONDS).ok()?;
    match exchange(connection.as_fd(), &Request::Status) {
        Ok((Reply::Sharers(sharers), _)) => {
            Some(sharers.into_iter().map(|(shard, pid)| Sharer { shard, pid }).collect())
        }
        _ => None,
    }
}

pub(super) fn exchange(connection: BorrowedFd<'_>, request: &Request) -> io::Result<(Reply, Vec<OwnedFd>)> {
    sys::send(connection, &request.encode(), &[])?;
    hear(connection)
}

/// The broker's next answer.
pub(super) fn hear(connection: BorrowedFd<'_>) -> io::Result<(Reply, Vec<OwnedFd>)> {
    let mut record = [0; RECORD_BYTES_MAX];
    let (len, fds) = sys::receive(connection, &mut record)?;
    if len == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    let reply = Reply::decode(&record[..len]).ok_or(io::ErrorKind::InvalidData)?;
    Ok((reply, fds))
}

impl GsiPacket {
    /// What the broker passes on: 16 bytes of address, 2 of port, and the packet.
    fn parse(record: &[u8]) -> Option<GsiPacket> {
        let (ip, rest) = record.split_first_chunk::<16>()?;
        let (port, packet) = rest.split_first_chunk::<2>()?;
        let (headers, payload, _) = parse_packet_with_icrc(packet).ok()?;
        let (source_qpn, mad) = super::mad::mad_of(&headers, &packet[payload])?;
        Some(GsiPacket {
            source: SocketAddr::new(ip_from(*ip), u16::from_le_bytes(*port)),
            source_qpn,
            mad: Box::new(*mad),
            packet: packet.to_vec(),
        })
    }
}
