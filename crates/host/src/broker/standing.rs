//! What a sharer has with its broker, and how it gets that back when the broker is killed.
//!
//! Nobody else can take over: the sockets are with those who share the address. The first of them to notice starts the next
//! broker and hands it the estate; all come back with their shard and say again what they have said before.

use super::client::{PATIENCE_SECONDS, exchange};
use super::protocol::{Mad, PortSpace, Reply, Request, ServiceIds, VERSION};
use super::{spawn, sys};
use highwire_link::shm::Registry;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// When it is tried again to bring a broker back.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A connection to the broker, and all that holds only as long as the broker knows of it.
#[derive(Debug)]
pub(super) struct Standing {
    connection: OwnedFd,
    estate: OwnedFd,
    /// The far end of where datagrams arrive.
    far_mads: OwnedFd,
    shard: u8,
    services: Vec<ServiceIds>,
    ports: Vec<(PortSpace, u16)>,
    wills: BTreeMap<u32, (IpAddr, Box<Mad>)>,
    /// When a broker may be looked for again.
    again_at: Instant,
}

impl Standing {
    pub(super) fn new(connection: OwnedFd, shard: u8, far_mads: OwnedFd, estate: OwnedFd) -> Standing {
        Standing {
            connection,
            estate,
            far_mads,
            shard,
            services: Vec::new(),
            ports: Vec::new(),
            wills: BTreeMap::new(),
            again_at: Instant::now(),
        }
    }

    /// Asks, if need be a new broker.
    pub(super) fn ask(
        &mut self,
        registry: &Registry,
        address: IpAddr,
        request: &Request,
    ) -> io::Result<Reply> {
        let reply = match exchange(self.connection.as_fd(), request) {
            Err(_) if self.is_over() => {
                self.recover(registry, address)?;
                exchange(self.connection.as_fd(), request)
            }
            other => other,
        };
        let (reply, _) = reply?;
        self.note(request, &reply);
        Ok(reply)
    }

    /// Whether the broker is gone: it says nothing unasked.
    pub(super) fn is_over(&self) -> bool {
        sys::is_readable(self.connection.as_fd())
    }

    /// Finds the next broker, or starts it, and takes its place there.
    pub(super) fn recover(&mut self, registry: &Registry, address: IpAddr) -> io::Result<()> {
        let now = Instant::now();
        if now < self.again_at {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.again_at = now + AGAIN_AFTER;
        let connection = spawn::reconnect(registry, address, self.estate.as_fd())?;
        sys::set_patience(connection.as_fd(), PATIENCE_SECONDS)?;
        let request = Request::Rejoin { version: VERSION, shard: self.shard };
        sys::send(connection.as_fd(), &request.encode(), &[self.far_mads.as_fd()])?;
        let (reply, fds) = super::client::hear(connection.as_fd())?;
        let Ok([estate]) = <[OwnedFd; 1]>::try_from(fds) else {
            return Err(io::Error::other(format!("the new broker does not take us back: {reply:?}")));
        };
        (self.connection, self.estate) = (connection, estate);
        self.say_again(self.connection.as_fd())
    }

    /// Tells the new broker what the former one knew. Somebody may have taken a port meanwhile; whoever listened first hears
    /// of it by silence.
    fn say_again(&self, connection: BorrowedFd<'_>) -> io::Result<()> {
        let ports = self.ports.iter().map(|&(space, port)| Request::Bind { space, port });
        let services = self.services.iter().map(|&services| Request::Listen(services));
        let wills = self.wills.iter();
        let wills = wills.map(|(&id, (to, mad))| Request::LeaveWill { id, to: *to, mad: mad.clone() });
        for request in ports.chain(services).chain(wills) {
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
            (Request::LeaveWill { id, to, mad }, Reply::Done) => {
                self.wills.insert(*id, (*to, mad.clone()));
            }
            (Request::RevokeWill { id }, _) => drop(self.wills.remove(id)),
            _ => {}
        }
    }
}
