//! The sockets of a simulated network, in which a thread may be instead of this machine's.
//!
//! Only with the feature `world` can a thread enter one: without it no link ever asks whether one has, and `Modelled` takes
//! no room.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// A datagram, or a train of datagrams of one size but for the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Where it comes from, or goes to.
    pub peer: SocketAddr,
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// The size of every datagram but the last.
    pub segment_bytes: usize,
    /// The octet of its IP header: DSCP and ECN.
    pub traffic_class: u8,
}

/// A network that a model plays.
pub trait Network {
    /// A socket at this address, as the given one of several lanes.
    ///
    /// # Errors
    /// The address is taken.
    fn bind(&self, address: SocketAddr, lane: usize, lanes: usize) -> io::Result<Box<dyn Socket + Send>>;

    /// Whether datagrams wait at the socket of this address.
    fn has_unread(&self, address: SocketAddr) -> bool;
}

/// A socket of such a network. Dropping it closes it.
pub trait Socket {
    /// A descriptor that is readable while something waits here.
    ///
    /// # Errors
    /// Those of the system, which lends it.
    fn descriptor(&self) -> io::Result<OwnedFd>;

    /// Sends; what cannot be delivered is lost.
    fn send(&self, parcel: Parcel);

    /// The oldest parcel that has arrived.
    fn receive(&self) -> Option<Parcel>;

    /// A peer that has reported its port closed, once for each report.
    fn take_refused(&self) -> Option<SocketAddr>;
}

/// The simulated socket of a link, if it has one.
#[derive(Default)]
pub(crate) struct Modelled {
    #[cfg(feature = "world")]
    socket: Option<Box<dyn Socket + Send>>,
}

impl Modelled {
    #[inline]
    pub(crate) fn get(&self) -> Option<&(dyn Socket + Send)> {
        #[cfg(feature = "world")]
        return self.socket.as_deref();
        #[cfg(not(feature = "world"))]
        None
    }

    #[cfg(feature = "world")]
    pub(crate) fn new(socket: Box<dyn Socket + Send>) -> Modelled {
        Modelled { socket: Some(socket) }
    }

    #[cfg(not(feature = "world"))]
    pub(crate) fn new(_socket: Box<dyn Socket + Send>) -> Modelled {
        unreachable!("no thread is in a simulated network")
    }
}

/// The network that this thread is in.
#[cfg(not(feature = "world"))]
#[inline]
pub(crate) fn network() -> Option<Rc<dyn Network>> {
    None
}

#[cfg(feature = "world")]
pub(crate) use inside::network;

#[cfg(feature = "world")]
pub use inside::{Entered, enter};

#[cfg(feature = "world")]
mod inside {
    use super::{Network, Rc};
    use std::cell::RefCell;

    thread_local! {
        static NETWORK: RefCell<Option<Rc<dyn Network>>> = const { RefCell::new(None) };
    }

    /// Keeps the thread in the network until this is dropped; then the thread is where it was before.
    pub struct Entered {
        before: Option<Rc<dyn Network>>,
    }

    /// Enters a network: from now on this thread opens sockets there.
    #[must_use]
    pub fn enter(network: Rc<dyn Network>) -> Entered {
        Entered { before: NETWORK.replace(Some(network)) }
    }

    impl Drop for Entered {
        fn drop(&mut self) {
            let left = NETWORK.replace(self.before.take());
            drop(left);
        }
    }

    impl std::fmt::Debug for Entered {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Entered").finish_non_exhaustive()
        }
    }

    pub(crate) fn network() -> Option<Rc<dyn Network>> {
        NETWORK.with_borrow(Clone::clone)
    }
}
