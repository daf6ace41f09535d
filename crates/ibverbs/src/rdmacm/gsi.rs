//! Queue pair 1 for connection management: this process's services and ports, with errnos.

use highwire_host::broker::{PortSpace, ServiceIds};
use highwire_host::{Gsi, GsiError};
use libc::c_int;

use crate::abi::ibv_context;
use crate::context::Context;

/// The device's general services interface, with errnos.
pub(super) struct Services {
    gsi: Gsi,
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
        Ok(Services { gsi })
    }

    /// The low byte of every identifier that this process chooses.
    pub(super) fn shard(&self) -> u8 {
        self.gsi.shard()
    }

    /// The interface itself.
    pub(super) fn gsi(&self) -> &Gsi {
        &self.gsi
    }

    /// Takes requests for a service from now on.
    ///
    /// # Errors
    /// EADDRINUSE if another process has it.
    pub(super) fn listen(&self, service_id: u64) -> Result<(), c_int> {
        self.gsi.listen(ServiceIds::one(service_id)).map_err(|error| errno(&error))
    }

    /// Takes no more requests for the service.
    pub(super) fn unlisten(&self, service_id: u64) {
        say(self.gsi.unlisten(ServiceIds::one(service_id)));
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
        say(self.gsi.release_port(PortSpace(port_space), port));
    }
}

/// Reports an error that has no other consequence.
pub(super) fn say(result: Result<(), GsiError>) {
    if let Err(error) = result {
        crate::env::log(|| error.to_string());
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
