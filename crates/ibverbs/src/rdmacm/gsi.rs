//! Queue pair 1, as connection management uses it: datagrams in and out, services and ports that are ours.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use highwire_host::broker::{PortSpace, ServiceIds};
use highwire_host::{Gsi, GsiError};
use highwire_link::shm::Registry;
use highwire_verbs::Gid;
use highwire_wire::cm::MAD_LEN;
use libc::c_int;

use crate::abi::ibv_context;
use crate::context::Context;

/// The device's general services interface, with errnos and GIDs.
pub(super) struct Services {
    gsi: Gsi,
    registry: Option<Registry>,
}

impl Services {
    /// The interface of an open device.
    ///
    /// # Errors
    /// ENODEV for a device that does not share its address: it has no queue pair 1.
    pub(super) fn open(context: *mut ibv_context) -> Result<Services, c_int> {
        let context = crate::registry::find::<Context>(context)?;
        let gsi = context.device.gsi().map_err(|error| {
            crate::env::log(|| format!("no connection management: {error}"));
            libc::ENODEV
        })?;
        Ok(Services { gsi, registry: Registry::open().ok() })
    }

    /// The low byte of every identifier that this process chooses.
    pub(super) fn shard(&self) -> u8 {
        self.gsi.shard()
    }

    /// Sends a MAD. What cannot be sent is lost, as anything on a network may be: whoever waits for an answer repeats it.
    pub(super) fn send(&self, to: Gid, mad: &[u8; MAD_LEN]) {
        if let Err(error) = self.gsi.send(to.to_ip(), mad) {
            crate::env::log(|| format!("a message to {to} is lost: {error}"));
        }
    }

    /// The next MAD that has arrived, and whose queue pair 1 it came from.
    pub(super) fn receive(&self) -> Option<(Gid, Box<[u8; MAD_LEN]>)> {
        self.gsi.try_receive().map(|received| (Gid::from_ip(received.source), received.mad))
    }

    /// Readable while one waits.
    pub(super) fn fd(&self) -> RawFd {
        self.gsi.fd().as_raw_fd()
    }

    /// Takes requests for a service from now on.
    ///
    /// # Errors
    /// EADDRINUSE if another process has it.
    pub(super) fn listen(&self, service_id: u64) -> Result<(), c_int> {
        self.gsi.listen(ServiceIds::one(service_id)).map_err(|error| errno(&error))
    }

    /// Takes no more of them.
    pub(super) fn unlisten(&self, service_id: u64) {
        self.say(self.gsi.unlisten(ServiceIds::one(service_id)));
    }

    /// Reserves a port of a port space, or any if it is 0.
    ///
    /// # Errors
    /// EADDRINUSE if another process has it, EADDRNOTAVAIL if all are taken.
    pub(super) fn bind(&self, port_space: u16, port: u16) -> Result<u16, c_int> {
        self.gsi.bind_port(PortSpace(port_space), port).map_err(|error| errno(&error))
    }

    /// Gives a port back.
    pub(super) fn unbind(&self, port_space: u16, port: u16) {
        self.say(self.gsi.release_port(PortSpace(port_space), port));
    }

    /// Has `mad` sent if this process ends without a word.
    pub(super) fn leave_will(&self, id: u32, to: Gid, mad: &[u8; MAD_LEN]) {
        self.say(self.gsi.leave_will(id, to.to_ip(), mad));
    }

    /// Takes that back.
    pub(super) fn revoke_will(&self, id: u32) {
        self.say(self.gsi.revoke_will(id));
    }

    /// Whether a process of this user on this machine has a device of that address.
    pub(super) fn is_served(&self, ip: IpAddr) -> bool {
        self.registry
            .as_ref()
            .is_some_and(|registry| registry.is_shared(ip) || registry.directory(ip).exists())
    }

    /// What cannot be helped is only said.
    fn say(&self, result: Result<(), GsiError>) {
        if let Err(error) = result {
            crate::env::log(|| error.to_string());
        }
    }
}

fn errno(error: &GsiError) -> c_int {
    match error {
        GsiError::InUse => libc::EADDRINUSE,
        GsiError::NoPortLeft => libc::EADDRNOTAVAIL,
        GsiError::Broker(error) => error.raw_os_error().unwrap_or(libc::EIO),
        GsiError::Exclusive => libc::ENODEV,
        _ => libc::EIO,
    }
}
