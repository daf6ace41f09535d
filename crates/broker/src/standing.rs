//! A sharer's standing with its broker, and how it restores that when the broker is killed.
//!
//! Only a sharer can replace the broker, because the sharers have the sockets. The first sharer that notices
//! starts the next broker and hands it the socket store. All sharers come back with their shards and repeat what
//! they had told the former broker.

use super::ask::{PATIENCE_SECONDS, exchange, hear, is_end};
use super::protocol::{Mad, PortSpace, Reply, Request, ServiceIds, VERSION};
use super::socket_store::SocketStore;
use super::{spawn, sys};
use highwire_link::shm::Registry;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The pause after which a sharer tries again to restore a broker, if that has failed and no thread waits for
/// it.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a thread that asks the broker waits for the next broker.
const PATIENCE: Duration = Duration::from_secs(PATIENCE_SECONDS as u64);

/// A connection to the broker, and everything that holds only as long as the broker knows of it.
#[derive(Debug)]
pub(super) struct Standing {
    connection: OwnedFd,
    socket_store: SocketStore,
    /// The far end of the socket for datagrams.
    far_mads: OwnedFd,
    shard: u8,
    services: Vec<ServiceIds>,
    ports: Vec<(PortSpace, u16)>,
    last_messages: BTreeMap<u32, (IpAddr, Box<Mad>)>,
    /// When the sharer may look for a broker again.
    again_at: Instant,
}

impl Standing {
    pub(super) fn new(
        connection: OwnedFd,
        shard: u8,
        far_mads: OwnedFd,
        socket_store: SocketStore,
    ) -> Standing {
        Standing {
            connection,
            socket_store,
            far_mads,
            shard,
            services: Vec::new(),
            ports: Vec::new(),
            last_messages: BTreeMap::new(),
            again_at: Instant::now(),
        }
    }

    /// Asks the broker, or its successor if it is gone.
    pub(super) fn ask(
        &mut self,
        registry: &Registry,
        address: IpAddr,
        request: &Request,
    ) -> io::Result<Reply> {
        let begun = Instant::now();
        loop {
            let error = match exchange(self.connection.as_fd(), request) {
                Ok((reply, _)) => {
                    self.note(request, &reply);
                    return Ok(reply);
                }
                Err(error) => error,
            };
            if !self.is_over() || begun.elapsed() > PATIENCE {
                return Err(error);
            }
            // The next broker may be killed as well, before it has answered.
            while let Err(error) = self.recover(registry, address) {
                if begun.elapsed() > PATIENCE {
                    return Err(error);
                }
                std::thread::sleep(spawn::LOOK_INTERVAL);
            }
        }
    }

    /// Whether the broker is gone: it never sends without a request.
    pub(super) fn is_over(&self) -> bool {
        sys::is_readable(self.connection.as_fd())
    }

    /// Whether it is time to look for the next one.
    pub(super) fn is_due(&self) -> bool {
        self.is_over() && Instant::now() >= self.again_at
    }

    /// Finds the next broker, or starts it, and takes its place there.
    pub(super) fn recover(&mut self, registry: &Registry, address: IpAddr) -> io::Result<()> {
        let recovered = self.find_next(registry, address);
        let has_failed = recovered.as_ref().is_err_and(|error| !is_end(error));
        self.again_at = Instant::now() + if has_failed { AGAIN_AFTER } else { Duration::ZERO };
        recovered
    }

    fn find_next(&mut self, registry: &Registry, address: IpAddr) -> io::Result<()> {
        let connection = spawn::reconnect(registry, address, &self.socket_store)?;
        sys::set_patience(connection.as_fd(), PATIENCE_SECONDS)?;
        let request = Request::Rejoin { version: VERSION, shard: self.shard };
        sys::send(connection.as_fd(), &request.encode(), &[self.far_mads.as_fd()])?;
        let (reply, _) = hear(connection.as_fd())?;
        if reply != Reply::Shard(self.shard) {
            return Err(io::Error::other(format!("the new broker does not take us back: {reply:?}")));
        }
        self.connection = connection;
        self.say_again(self.connection.as_fd())
    }

    /// Repeats to the new broker what the former one knew. Another process may have taken a port or service
    /// meanwhile; the process that had it first gets no error, only no more requests.
    fn say_again(&self, connection: BorrowedFd<'_>) -> io::Result<()> {
        let ports = self.ports.iter().map(|&(space, port)| Request::Bind { space, port });
        let services = self.services.iter().map(|&services| Request::Listen(services));
        let last_messages = self.last_messages.iter();
        let last_messages =
            last_messages.map(|(&id, (to, mad))| Request::LeaveLastMessage { id, to: *to, mad: mad.clone() });
        for request in ports.chain(services).chain(last_messages) {
            exchange(connection, &request)?;
        }
        Ok(())
    }

    fn note(&mut self, request: &Request, reply: &Reply) {
        match (request, reply) {
            (Request::Bind { space, .. }, Reply::Port(port)) => self.ports.push((*space, *port)),
            (Request::Release { space, port }, _) => self.ports.retain(|had| *had != (*space, *port)),
            (Request::Listen(services), Reply::Done) => self.services.push(*services),
            (Request::Unlisten(services), _) => self.services.retain(|had| had != services),
            (Request::LeaveLastMessage { id, to, mad }, Reply::Done) => {
                self.last_messages.insert(*id, (*to, mad.clone()));
            }
            (Request::RevokeLastMessage { id }, _) => drop(self.last_messages.remove(id)),
            _ => {}
        }
    }
}
