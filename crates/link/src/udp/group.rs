//! One address and port for many processes: a socket for each, among which the kernel chooses.
//!
//! Sockets of a group count in the order in which they were bound, and closing one would renumber others: so one owner
//! binds them all, gives copies of their descriptors away, and closes none while the group lives.

use super::steer::{self, SteerBy};
use super::{OpenError, UdpConfig, UdpLink, share};
use crate::{Link, RxBatch};
use highwire_stdx::Instant;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The sockets of one address and port, numbered from 0.
pub struct SharedPort {
    config: UdpConfig,
    by: SteerBy,
    sockets: Vec<UdpLink>,
}

impl SharedPort {
    /// Takes the address and port, with sockets 0 and 1.
    ///
    /// # Errors
    /// [`OpenError`], whose text says what to do.
    pub fn open(config: &UdpConfig, by: SteerBy) -> Result<SharedPort, OpenError> {
        let failed = |error: io::Error| OpenError::new(config, error);
        // It binds without sharing, so an address that somebody else has is refused even where they would share it.
        let first = UdpLink::bind(config, false).map_err(failed)?;
        share(first.as_fd()).map_err(failed)?;
        let config = UdpConfig { port: first.local.port(), ..*config };
        let mut shared = SharedPort { config, by, sockets: vec![first] };
        // Only a second socket makes a group of them, which can be told how to choose.
        shared.add()?;
        Ok(shared)
    }

    /// Goes on with the sockets of a group whose owner is gone, in the order in which they were bound. Those who use them do
    /// not notice.
    ///
    /// # Errors
    /// [`OpenError`]; fewer than two are no group.
    pub fn inherit(sockets: Vec<OwnedFd>, config: &UdpConfig, by: SteerBy) -> Result<SharedPort, OpenError> {
        let failed = |error: io::Error| OpenError::new(config, error);
        let sockets: io::Result<Vec<_>> = sockets.into_iter().map(UdpLink::inherit).collect();
        let sockets = sockets.map_err(failed)?;
        if sockets.len() < 2 {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let config = UdpConfig { port: sockets[0].local.port(), ..*config };
        Ok(SharedPort { config, by, sockets })
    }

    /// How many sockets there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Binds the next socket, which datagrams for its number go to from now on; returns the number.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has changed then.
    pub fn add(&mut self) -> Result<usize, OpenError> {
        let failed = |error: io::Error| OpenError::new(&self.config, error);
        let socket = UdpLink::bind(&self.config, true).map_err(failed)?;
        let number = self.sockets.len();
        // Nothing is steered to it before this, and afterwards it stays whatever happens: numbers must not move.
        self.sockets.push(socket);
        steer::attach_shards(self.sockets[0].as_fd(), self.by, number + 1).map_err(failed)?;
        Ok(number)
    }

    /// One of the sockets.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn socket(&mut self, number: usize) -> &mut UdpLink {
        &mut self.sockets[number]
    }

    /// The descriptor of one of the sockets, to wait for it or to give a copy away.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn fd(&self, number: usize) -> BorrowedFd<'_> {
        self.sockets[number].as_fd()
    }

    /// Throws away what waits at a socket.
    pub fn drain(&mut self, number: usize, scratch: &mut RxBatch) {
        while self.sockets[number].receive(Instant::ZERO, scratch) > 0 {}
    }
}
