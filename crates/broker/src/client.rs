//! A process's end: its shard, and its later requests to the broker.

use super::ask::{PATIENCE_SECONDS, exchange, is_end};
use super::error::JoinError;
use super::protocol::{Mad, PortSpace, RECORD_BYTES_MAX, Reply, Request, ServiceIds, VERSION, ip_from};
use super::socket_store::SocketStore;
use super::standing::Standing;
use super::{spawn, sys};
use highwire_link::shm::stats;
use highwire_link::shm::{EngineName, Registry};
use highwire_wire::{Qpn, parse_packet_with_icrc};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Starts a thread of this name; some processes have rules for the threads of their libraries.
pub type StartThread = fn(&str, Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>;

/// A shard of an address, for as long as this lives and no forked child keeps its descriptors.
#[derive(Debug)]
pub struct Client {
    tie: Arc<Tie>,
    /// The thread that restores the broker, or has done so: the device's own threads must not wait for that.
    helper: Mutex<Option<JoinHandle<()>>>,
    start_thread: StartThread,
    /// The socket on which management datagrams for this process arrive, one per record.
    mads: OwnedFd,
    shard: u8,
}

/// A process's connection to the broker, and how to find the next broker.
#[derive(Debug)]
struct Tie {
    standing: Mutex<Standing>,
    registry: Registry,
    address: IpAddr,
}

impl Tie {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, request: &Request) -> io::Result<Reply> {
        self.standing().ask(&self.registry, self.address, request)
    }

    fn recover(&self) {
        let mut standing = self.standing();
        // Another thread may have asked the broker meanwhile, found it gone, and restored it.
        if standing.is_over() {
            let _ = standing.recover(&self.registry, self.address);
        }
    }
}

/// The sockets with which a client receives.
#[derive(Debug)]
pub struct Sockets {
    /// UDP 4791.
    pub packets: OwnedFd,
    /// UDP 4794.
    pub side_band: OwnedFd,
}

/// Asks the broker about the other processes that share an address.
#[derive(Clone, Debug)]
pub struct Doorman {
    /// The broker's socket.
    path: PathBuf,
    registry: Registry,
    address: IpAddr,
}

impl Doorman {
    /// The socket of UDP 4791 on which a shard receives, for inspection.
    ///
    /// # Errors
    /// [`NotFound`](io::ErrorKind::NotFound) if no process has the shard, and errors of the connection to the broker.
    pub fn socket_of(&self, shard: u8) -> io::Result<OwnedFd> {
        let connection = sys::connect(&self.path)?;
        // A lane waits for this.
        sys::set_patience(connection.as_fd(), 1)?;
        let (_, fds) = exchange(connection.as_fd(), &Request::Socket { shard })?;
        fds.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The process that has a shard, according to its device in the registry.
    pub fn process_of(&self, shard: u8) -> Option<u32> {
        let sharers = stats::sharing(&self.registry, self.address).ok()?;
        sharers.into_iter().find(|device| device.shard == Some(shard)).map(|device| device.pid)
    }
}

/// The process that is an address's broker; `None` if there is none.
pub fn process(registry: &Registry, address: IpAddr) -> Option<u32> {
    let connection = sys::connect(&registry.broker_socket(address)).ok()?;
    sys::peer_pid(connection.as_fd()).ok()
}

/// A packet for queue pair 1.
pub struct GsiPacket {
    /// The sender's address.
    pub source: SocketAddr,
    /// The queue pair that sent it.
    pub source_qpn: Qpn,
    /// The datagram.
    pub mad: Box<Mad>,
    /// The packet as it came from the network, BTH to ICRC.
    pub packet: Vec<u8>,
}

impl Client {
    /// Joins the processes that share `address`, and starts its broker if there is none. If the broker is
    /// killed, a thread that `start_thread` starts restores it.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(
        registry: &Registry,
        address: IpAddr,
        start_thread: StartThread,
    ) -> Result<(Client, Sockets), JoinError> {
        let begun = Instant::now();
        let (connection, (reply, fds)) = loop {
            let connection = spawn::connect(registry, address)?;
            sys::set_patience(connection.as_fd(), PATIENCE_SECONDS)?;
            match exchange(connection.as_fd(), &Request::Join { version: VERSION }) {
                Ok(reply) => break (connection, reply),
                // The broker was killed just now: there will be another.
                Err(error) if is_end(&error) && begun.elapsed() < spawn::SUCCESSION_MAX => {
                    std::thread::sleep(spawn::LOOK_INTERVAL);
                }
                Err(error) => return Err(error.into()),
            }
        };
        let shard = match reply {
            Reply::Shard(shard) => shard,
            Reply::Full => return Err(JoinError::Full),
            Reply::Failed(errno) => return Err(JoinError::Io(io::Error::from_raw_os_error(errno))),
            _ => return Err(JoinError::OtherVersion),
        };
        let Ok([packets, side_band, mads, far_mads, writer, reader]) = <[OwnedFd; 6]>::try_from(fds) else {
            return Err(JoinError::OtherVersion);
        };
        let socket_store = SocketStore::of([writer, reader]);
        let standing = Mutex::new(Standing::new(connection, shard, far_mads, socket_store));
        let tie = Arc::new(Tie { standing, registry: registry.clone(), address });
        let client = Client { tie, helper: Mutex::default(), start_thread, mads, shard };
        Ok((client, Sockets { packets, side_band }))
    }

    /// Asks the broker about the other processes of the address.
    pub fn doorman(&self) -> Doorman {
        let (registry, address) = (self.tie.registry.clone(), self.tie.address);
        Doorman { path: registry.broker_socket(address), registry, address }
    }

    /// Looks whether the broker still lives, and lets a helper thread start its successor if not. If that
    /// fails, a later call tries again. This never waits: starting takes a program's start, and other
    /// processes may be doing the same.
    pub fn look_after_broker(&self) {
        // A thread that holds the lock is asking the broker, and will itself notice that the broker is gone.
        let is_due = self.tie.standing.try_lock().is_ok_and(|standing| standing.is_due());
        let Ok(mut helper) = self.helper.try_lock() else { return };
        if is_due && helper.as_ref().is_none_or(JoinHandle::is_finished) {
            // If no thread can be started now, a later call may succeed.
            let tie = Arc::clone(&self.tie);
            *helper = (self.start_thread)("highwire-help", Box::new(move || tie.recover())).ok();
        }
    }

    /// The number in which every queue pair number and communication id of this process ends.
    pub fn shard(&self) -> u8 {
        self.shard
    }

    /// Becomes readable when a management datagram waits.
    pub fn mads_fd(&self) -> BorrowedFd<'_> {
        self.mads.as_fd()
    }

    /// The next management datagram.
    pub fn try_receive(&self) -> Option<GsiPacket> {
        let mut record = [0; RECORD_BYTES_MAX];
        loop {
            let (len, _) = sys::receive(self.mads.as_fd(), &mut record).ok()?;
            if len == 0 {
                return None;
            }
            // An invalid record must not hide those behind it.
            if let Some(packet) = GsiPacket::parse(&record[..len]) {
                return Some(packet);
            }
        }
    }

    /// Asks for the datagrams to these services.
    ///
    /// # Errors
    /// The broker is gone and has no successor.
    pub fn listen(&self, services: ServiceIds) -> io::Result<Reply> {
        self.tie.ask(&Request::Listen(services))
    }

    /// Revokes [`listen`](Client::listen).
    ///
    /// # Errors
    /// The broker is gone and has no successor.
    pub fn unlisten(&self, services: ServiceIds) -> io::Result<Reply> {
        self.tie.ask(&Request::Unlisten(services))
    }

    /// Asks for a port; with 0 the broker chooses one.
    ///
    /// # Errors
    /// The broker is gone and has no successor.
    pub fn bind(&self, space: PortSpace, port: u16) -> io::Result<Reply> {
        self.tie.ask(&Request::Bind { space, port })
    }

    /// Gives a port back.
    ///
    /// # Errors
    /// The broker is gone and has no successor.
    pub fn release(&self, space: PortSpace, port: u16) -> io::Result<Reply> {
        self.tie.ask(&Request::Release { space, port })
    }

    /// Leaves a datagram that the broker sends to queue pair 1 of `to` if this process ends without revoking
    /// it.
    ///
    /// # Errors
    /// The broker is gone and has no successor.
    pub fn leave_last_message(&self, id: u32, to: IpAddr, mad: &Mad) -> io::Result<Reply> {
        self.tie.ask(&Request::LeaveLastMessage { id, to, mad: Box::new(*mad) })
    }

    /// Revokes the last message of this id.
    ///
    /// # Errors
    /// The broker is gone and has no successor.
    pub fn revoke_last_message(&self, id: u32) -> io::Result<Reply> {
        self.tie.ask(&Request::RevokeLastMessage { id })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Waits for the helper: a shard that it takes after this would have no owner.
        let helper = self.helper.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(helper) = helper.take() {
            let _ = helper.join();
        }
        // If the device was never made, the statistics file that the broker announced is still there.
        stats::remove(&self.tie.registry, EngineName::shared(self.tie.address, self.shard));
    }
}

/// A process that shares an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharer {
    /// The number of its shard.
    pub shard: u8,
    /// Its process number.
    pub pid: u32,
}

/// The processes that share an address now; `None` if it has no broker, which is not started for that.
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

impl GsiPacket {
    /// A record of the broker: 16 bytes of address, 2 of port, and the packet.
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

#[cfg(test)]
mod tests {
    use super::super::Broker;
    use super::*;
    use std::thread::Builder;
    use std::time::Duration;

    #[test]
    fn who_comes_while_brokers_are_killed_waits_for_one_that_lives() {
        let root = std::env::temp_dir().join(format!("highwire-join-{}", std::process::id()));
        let registry = Registry::open_at(&root).expect("a registry");
        let [.., c, d] = std::process::id().to_be_bytes();
        let address = IpAddr::from([127, 135, c, d.clamp(1, 254)]);
        let broker = Broker::open(&registry, address).expect("the address").with_linger(Duration::ZERO);
        // In the broker's place stand brokers that are killed as soon as a client has connected to them.
        let (path, aside) = (registry.broker_socket(address), root.join("aside"));
        std::fs::rename(&path, &aside).expect("renames");
        let dying = sys::listen(&path).expect("listens");
        let thread = std::thread::spawn(move || {
            let mut killed = 0;
            while killed < 8 {
                match sys::accept(dying.as_fd()) {
                    Ok(_) => killed += 1,
                    Err(_) => std::thread::yield_now(),
                }
            }
            std::fs::rename(&aside, &path).expect("renames");
            broker.run().expect("serves");
        });
        let start_thread = |name: &str, body| Builder::new().name(name.into()).spawn(body);
        let (client, _) = Client::join(&registry, address, start_thread).expect("a shard");
        assert_eq!(client.shard(), 2);
        drop(client);
        thread.join().expect("the broker ends by itself");
        std::fs::remove_dir_all(root).expect("it is there");
    }
}
