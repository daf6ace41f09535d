//! Connections by address and port, as `rdma_cm` makes them: listen, connect, accept (IBTA §12 and annex A11).
//!
//! Only a device that shares its address ([`Sharing::Shared`](crate::Sharing::Shared)) has the queue pair 1 that this takes. The
//! other end may be any program of RDMA's: another of these, one that was linked against librdmacm, one on a machine with a card.
//!
//! ```no_run
//! use highwire_host::cm::Terms;
//! use highwire_host::verbs::Service;
//! use highwire_host::{Device, DeviceConfig, QueuePairConfig, Sharing};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open(&DeviceConfig { sharing: Sharing::Shared, ..DeviceConfig::default() })?;
//! let (pd, cq) = (device.protection_domain(), device.completion_queue(64)?);
//! let queue_pair = || pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq));
//! if let Some(server) = std::env::args().nth(1) {
//!     let connection = device.connect(server.parse()?, queue_pair()?, &Terms::default())?;
//!     println!("connected to {}", connection.peer());
//! } else {
//!     let listener = device.listen(7471)?;
//!     while let Some(request) = listener.request(Duration::from_secs(3600)) {
//!         println!("{} says {:?}", request.peer(), request.private_data());
//!         let connection = request.accept(queue_pair()?, &Terms::default())?;
//!         println!("in use: {:?}", connection.ended());
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! One thread of the device, which runs as long as there is a listener or connection, answers peers and
//! repeats lost messages. The state machine is the crate `cm`, which the drop-in `librdmacm.so.1` drives by
//! the same [`Driver`].

mod books;
mod connection;
mod driver;
mod listener;
mod reach;

pub use connection::Connection;
pub use driver::{Application, Driver, now};
pub use highwire_cm::{CallError, CommId, DisconnectCause};
pub use highwire_wire::cm::RejectReason;
pub use listener::{Listener, Request};
pub use reach::is_local;

use crate::device::Device;
use crate::gsi::{Gsi, GsiError};
use crate::queue_pair::ConnectOptions;
use books::Books;
use highwire_cm::{Config, ConnectionManager};
use highwire_stdx::{Duration, Instant, Rng};
use highwire_verbs::{Gid, ModifyError, Service};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use thiserror::Error;

/// One end's terms for a connection.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// How the queue pair is connected. The active end's MTU and retry counts hold for both ends, but no end
    /// exceeds its own MTU. The number of outstanding READs and atomics is the smaller of both ends'.
    pub options: ConnectOptions,
    /// Data for the peer's application, filled up with zeros: a request has room for 56 bytes, an answer for
    /// 196.
    pub private_data: &'a [u8],
    /// How long to wait for the peer.
    pub patience: std::time::Duration,
}

impl Default for Terms<'_> {
    /// The usual options, no data, and 20 seconds.
    fn default() -> Self {
        let patience = std::time::Duration::from_secs(20);
        Terms { options: ConnectOptions::default(), private_data: &[], patience }
    }
}

impl Terms<'_> {
    fn deadline(&self) -> Instant {
        after(self.patience)
    }
}

/// The moment after so long from now.
fn after(patience: std::time::Duration) -> Instant {
    now() + Duration::from_nanos(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4))
}

/// Why there is no listener or no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CmError {
    /// The general services refused: the device does not share its address, or another process has the port.
    #[error(transparent)]
    Services(#[from] GsiError),
    /// The thread that answers peers could not be started.
    #[error("no thread for connection management: {0}")]
    Thread(#[source] io::Error),
    /// This is the child of a `fork`, which has none of its parent's connections; it must open a device of its own.
    #[error("the device belongs to the process that this one was forked from: open another")]
    Inherited,
    /// The device's address leads nowhere near the peer's.
    #[error(
        "{to} cannot be reached from {from}: give the device an address of this machine that leads there"
    )]
    NoRoute {
        /// Where to.
        to: IpAddr,
        /// The device.
        from: IpAddr,
    },
    /// Only RC and UC have connections.
    #[error("a queue pair of {0} cannot be connected to one other")]
    Service(Service),
    /// More private data than the message has room for.
    #[error("{given} bytes of private data, and room for {room}")]
    PrivateData {
        /// The length given.
        given: usize,
        /// The length that fits.
        room: usize,
    },
    /// The peer said no.
    #[error("refused: {reason}")]
    Refused {
        /// Why.
        reason: RejectReason,
        /// The peer application's data, filled up with zeros.
        private_data: Vec<u8>,
    },
    /// The peer's machine did not answer, however often it was asked.
    #[error("no answer")]
    Unanswered,
    /// The peer took longer than the patience; it has been told that the connection is off.
    #[error("not connected within {0:?}")]
    TimedOut(std::time::Duration),
    /// The peer has given up.
    #[error("the peer has given up the connection: {0:?}")]
    Ended(DisconnectCause),
    /// The queue pair could not be set up as the peer asks; the peer has been told.
    #[error("the queue pair cannot be connected so: {0}")]
    QueuePair(#[from] ModifyError),
}

/// Connection management of one device; it lives as long as a listener or a connection does.
pub(crate) struct Running {
    driver: Arc<Driver<Books>>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Running {
    fn start(gsi: Gsi, rng: Rng) -> Result<Running, CmError> {
        let guid = u64::from_be_bytes(guid_of(gsi.gid()));
        let manager = ConnectionManager::new(Config::new(guid, gsi.shard()), rng);
        let (driver, thread) = Driver::start(gsi, Books::new(manager)).map_err(CmError::Thread)?;
        Ok(Running { driver, thread: Some(thread), process: std::process::id() })
    }

    /// Whether the thread belongs to another process.
    fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        self.driver.close();
        if let Some(thread) = self.thread.take() {
            // If it panicked, its message has been printed already.
            let _ = thread.join();
        }
    }
}

impl Device {
    /// The device's connection management; the first caller starts it.
    fn connections(&self) -> Result<Arc<Running>, CmError> {
        let device = self.inner();
        let mut slot = device.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = slot.upgrade() {
            return if running.is_inherited() { Err(CmError::Inherited) } else { Ok(running) };
        }
        if device.lanes[0].is_inherited() {
            return Err(CmError::Inherited);
        }
        let rng = device.rng.lock().unwrap_or_else(PoisonError::into_inner).fork(0);
        let running = Arc::new(Running::start(self.gsi()?, rng)?);
        *slot = Arc::downgrade(&running);
        Ok(running)
    }
}

/// The GUID of a device's channel adapter: made from its address, in the range of locally administered numbers.
pub fn guid_of(gid: Gid) -> [u8; 8] {
    let gid = gid.0;
    let [a, b, c, d] = [gid[12], gid[13], gid[14], gid[15]];
    [0x02, 0x48, 0x57, 0xFF, 0xFE, a ^ gid[0], b ^ gid[7], c.wrapping_mul(31) ^ d]
}
