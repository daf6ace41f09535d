//! One address and port for many processes: a socket for each, among which the kernel chooses.
//!
//! Sockets of a group count in the order in which they were bound, and closing one would renumber others: so one owner
//! binds them all, gives copies of their descriptors away, and closes none while the group lives. An owner may be killed at
//! any moment, so a socket can be had before it is bound ([`SharedPort::prepare`]) and be put where it survives: then no
//! socket that counts is ever closed. The next owner binds the sockets that it has left unbound.

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
    /// The next one, before it is bound.
    next: Option<UdpLink>,
}

impl SharedPort {
    /// Takes the address and port, with sockets 0 and 1.
    ///
    /// # Errors
    /// [`OpenError`], whose text says what to do.
    pub fn open(config: &UdpConfig, by: SteerBy) -> Result<SharedPort, OpenError> {
        let failed = |error: io::Error| OpenError::new(config, error);
        // It binds without sharing, so an address that another process has is refused, even if that process would share it.
        let first = UdpLink::bind(config, false).map_err(failed)?;
        share(first.as_fd()).map_err(failed)?;
        let config = UdpConfig { port: first.local.port(), ..*config };
        let mut shared = SharedPort { config, by, sockets: vec![first], next: None };
        // Only a second socket makes a group of them, which can be told how to choose.
        shared.add()?;
        Ok(shared)
    }

    /// Goes on with the sockets of a group whose owner is gone, in the order in which they were bound or were to be bound.
    /// The processes that use them do not notice.
    ///
    /// # Errors
    /// [`OpenError`]; fewer than two are no group.
    pub fn inherit(sockets: Vec<OwnedFd>, config: &UdpConfig, by: SteerBy) -> Result<SharedPort, OpenError> {
        let failed = |error: io::Error| OpenError::new(config, error);
        let sockets: io::Result<Vec<_>> = sockets.into_iter().map(UdpLink::inherit).collect();
        let mut sockets = sockets.map_err(failed)?;
        if sockets.len() < 2 {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let config = UdpConfig { port: sockets[0].local.port(), ..*config };
        for socket in sockets.iter_mut().filter(|socket| socket.local.port() == 0) {
            socket.take_address(&config).map_err(failed)?;
        }
        // The former owner may have died before it did this.
        steer::attach_shards(sockets[0].as_fd(), by, sockets.len()).map_err(failed)?;
        Ok(SharedPort { config, by, sockets, next: None })
    }

    /// How many sockets there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// The socket that [`add`](Self::add) binds next.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn prepare(&mut self) -> Result<BorrowedFd<'_>, OpenError> {
        let next = match self.next.take() {
            Some(next) => next,
            None => {
                let prepared = UdpLink::prepare(&self.config, true);
                prepared.map_err(|error| OpenError::new(&self.config, error))?
            }
        };
        Ok(self.next.insert(next).socket.as_fd())
    }

    /// Binds the next socket, which datagrams for its number go to from now on; returns the number.
    ///
    /// # Errors
    /// [`OpenError`]; the socket may be bound by then, and the next call goes on from there.
    pub fn add(&mut self) -> Result<usize, OpenError> {
        self.prepare()?;
        let failed = |error: io::Error| OpenError::new(&self.config, error);
        let next = self.next.as_mut().expect("it was prepared");
        next.take_address(&self.config).map_err(failed)?;
        let number = self.sockets.len();
        // No packet is steered to it before this, and afterwards it stays in any case: numbers must not move.
        self.sockets.extend(self.next.take());
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

    /// Throws away the datagrams that wait at a socket.
    pub fn drain(&mut self, number: usize, scratch: &mut RxBatch) {
        while self.sockets[number].receive(Instant::ZERO, scratch) > 0 {}
    }
}
