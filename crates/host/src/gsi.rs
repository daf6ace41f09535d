//! The general services interface: management datagrams from and to queue pair 1 (IBTA §13.5).
//!
//! Connection managers are built on it. The address's broker receives for all processes of the address and
//! tells their messages apart: a REQ or SIDR_REQ goes to the process that listens to its service, any other
//! message to the shard in the low byte of the communication id that it answers to. So every id that a
//! process hands out must end in [`Gsi::shard`]. Sending needs no broker: datagrams leave through the
//! device's own link, with its faults and into its capture.

use crate::device::Device;
use crate::recording::keep_management;
use highwire_broker::{Client, Mad, PortSpace, Reply, ServiceIds};
use highwire_record::PacketFate;
use highwire_verbs::Gid;
use highwire_wire::{Qpn, UDP_PORT};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// Management datagrams of one device. Clones take from the same stream.
#[derive(Clone)]
pub struct Gsi {
    device: Device,
}

/// A datagram that arrived for this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedMad {
    /// The address it came from.
    pub source: IpAddr,
    /// The queue pair it came from; 1 as a rule.
    pub source_qpn: Qpn,
    /// The datagram.
    pub mad: Box<Mad>,
}

/// Why the interface cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GsiError {
    /// The device does not share its address, so it has no queue pair 1.
    #[error("a device that does not share its address has no queue pair 1")]
    Exclusive,
    /// Another process has the service or port.
    #[error("another process has it")]
    InUse,
    /// Every port of the space is taken.
    #[error("every port is taken")]
    NoPortLeft,
    /// The broker is gone, or did not understand.
    #[error("the address's broker does not answer: {0}")]
    Broker(#[source] io::Error),
    /// The network takes nothing more at present.
    #[error("the network takes nothing more at present")]
    LinkFull,
}

impl Device {
    /// Its general services interface.
    ///
    /// # Errors
    /// [`GsiError::Exclusive`] unless the device shares its address.
    pub fn gsi(&self) -> Result<Gsi, GsiError> {
        if self.shard().is_none() {
            return Err(GsiError::Exclusive);
        }
        Ok(Gsi { device: self.clone() })
    }
}

impl Gsi {
    /// The device's address.
    pub fn gid(&self) -> Gid {
        self.device.gid()
    }

    /// The low byte of every communication id and SIDR request id that this process may choose, so that answers find it.
    pub fn shard(&self) -> u8 {
        self.client().shard()
    }

    /// Sends a datagram to queue pair 1 at an address, from queue pair 1.
    ///
    /// # Errors
    /// [`GsiError::LinkFull`]. A datagram that the network loses is no error: the connection manager that waits for an answer
    /// sends it again.
    pub fn send(&self, to: IpAddr, mad: &Mad) -> Result<(), GsiError> {
        let sent = self.device.inner().lanes[0].control(|engine| engine.send_mad(to, mad));
        if sent { Ok(()) } else { Err(GsiError::LinkFull) }
    }

    /// The next datagram for this process; never waits.
    pub fn try_receive(&self) -> Option<ReceivedMad> {
        let device = self.device.inner();
        let arrived = loop {
            let arrived = self.client().try_receive()?;
            // The broker has received it, whose socket no scenario judges.
            let is_lost = device.deafness.as_ref().is_some_and(|faults| faults.loses(|| &arrived.packet));
            if !is_lost {
                break arrived;
            }
        };
        if let Some(capture) = &device.capture {
            let here = SocketAddr::new(device.gid.to_ip(), UDP_PORT);
            // A capture that has stopped shows in its counters.
            let _ = capture.record(device.clock.now(), (arrived.source, here), 0, &arrived.packet);
        }
        if let Some(tap) = &device.record {
            let (now, from) = (device.clock.now(), Gid::from_ip(arrived.source.ip()));
            keep_management(tap, now, PacketFate::Received, from, &arrived.packet);
        }
        Some(ReceivedMad { source: arrived.source.ip(), source_qpn: arrived.source_qpn, mad: arrived.mad })
    }

    /// Readable while [`try_receive`](Gsi::try_receive) has something, for `poll(2)` and the like.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.client().mads_fd()
    }

    /// Asks for every REQ and SIDR_REQ for these services. The broker rejects a request for a service that no process listens
    /// to: REJ with reason 8, SIDR_REP with status 1 (IBTA §12.6.7.2, §12.11.2.4).
    ///
    /// # Errors
    /// [`GsiError::InUse`] if a process, this one included, has asked for one of them; [`GsiError::Broker`].
    pub fn listen(&self, services: ServiceIds) -> Result<(), GsiError> {
        done(self.client().listen(services))
    }

    /// Stops listening; `services` must be the same as for `listen`.
    ///
    /// # Errors
    /// [`GsiError::Broker`].
    pub fn unlisten(&self, services: ServiceIds) -> Result<(), GsiError> {
        done(self.client().unlisten(services))
    }

    /// Takes a port of a port space for this process, or with 0 any free one from 32768 on. This alone
    /// receives nothing; listening is a separate call.
    ///
    /// # Errors
    /// [`GsiError::InUse`] if a process, this one included, has it; [`GsiError::NoPortLeft`]; [`GsiError::Broker`].
    pub fn bind_port(&self, space: PortSpace, port: u16) -> Result<u16, GsiError> {
        match self.client().bind(space, port) {
            Ok(Reply::Port(port)) => Ok(port),
            other => done(other).map(|()| port),
        }
    }

    /// Gives a port back.
    ///
    /// # Errors
    /// [`GsiError::Broker`].
    pub fn release_port(&self, space: PortSpace, port: u16) -> Result<(), GsiError> {
        done(self.client().release(space, port))
    }

    /// Leaves a datagram, usually a DREQ, with the broker, which sends it to queue pair 1 of `to` if this
    /// process ends without having revoked it. A second one with the same `id` replaces the first.
    ///
    /// # Errors
    /// [`GsiError::Broker`].
    pub fn leave_last_message(&self, id: u32, to: IpAddr, mad: &Mad) -> Result<(), GsiError> {
        done(self.client().leave_last_message(id, to, mad))
    }

    /// Revokes the datagram left under `id`.
    ///
    /// # Errors
    /// [`GsiError::Broker`].
    pub fn revoke_last_message(&self, id: u32) -> Result<(), GsiError> {
        done(self.client().revoke_last_message(id))
    }

    fn client(&self) -> &Client {
        self.device.inner().broker.as_ref().expect("checked when the interface was made")
    }
}

fn done(reply: io::Result<Reply>) -> Result<(), GsiError> {
    match reply {
        Ok(Reply::Done) => Ok(()),
        Ok(Reply::InUse) => Err(GsiError::InUse),
        Ok(Reply::Full) => Err(GsiError::NoPortLeft),
        Ok(Reply::Failed(errno)) => Err(GsiError::Broker(io::Error::from_raw_os_error(errno))),
        Ok(_) => Err(GsiError::Broker(io::ErrorKind::InvalidData.into())),
        Err(error) => Err(GsiError::Broker(error)),
    }
}
