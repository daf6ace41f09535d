//! Packets in and out of a real machine: UDP, shared memory, fault and capture decorators.
//!
//! A [`Link`] moves batches of datagrams and does not know their contents. Packets are written once, in
//! place, into a [`TxBatch`]; the batch turns them into *trains*, runs of equal-sized datagrams to one
//! destination that Linux takes in a single call (UDP GSO), because the network stack's cost is per call and
//! not per packet. Decorators wrap any link.
//!
//! Order of composition, outermost first: `Capture<Faulty<UdpLink>>` records what the RNIC sent, including packets that a
//! fault then removes; `Faulty<Capture<UdpLink>>` records what the wire carried. Both are useful, so neither is built in.

mod address;
mod batch;
mod capture;
mod counters;
pub mod environment;
mod faulty;
pub mod floor;
mod memory;
pub mod shm;
pub mod simulated;
mod sys;
mod udp;

pub use address::{LocalAddress, local_addresses, netdev_mtu_of, roce_mtu_bytes};
pub use batch::{
    Ecn, Order, PACKET_BYTES_MAX, Packet, Packets, Path, ReserveError, RxBatch, Slot, TrainLimits, TxBatch,
};
pub use capture::{Capture, CaptureFile};
pub use counters::Counters;
pub use faulty::{
    ConfigError, FaultConfig, Faulty, Rates, Rule, Subject, Verdict, parse_duration, parse_rate,
};
pub use memory::{MemoryLink, memory_pair};
pub use sys::{random_u64, secret_rng};
pub use udp::{
    Datagram, Holder, OpenError, ROCE_PORT, ReceiveBuffer, SharedPort, SteerBy, UdpConfig, UdpLink,
    has_unread, lane_of, receive_buffer, receive_datagram, tell_traffic_class,
};

use highwire_stdx::Instant;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// A packet's place when it is sealed: the parts that its ICRC covers beside its own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address and port it leaves from.
    pub source: SocketAddr,
    /// The address and port it goes to.
    pub destination: SocketAddr,
    /// Its position in its train, which on IPv4 is its identification field: the kernel numbers the segments of a train
    /// from zero, and a lone packet has zero (RoCEv2 A17.3.3: the ICRC covers the identification).
    pub train_index: u16,
}

/// The finishing pass over a packet, run when trains are laid out and just before they leave: writes the ICRC.
///
/// It must depend only on its arguments: a capture runs it on a copy as well.
pub type Seal<'a> = dyn FnMut(&mut [u8], &Place) + 'a;

/// The result of sending a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a blocked batch must be offered again"]
pub enum Transmitted {
    /// Every packet was handed over, or dropped and counted; the batch is empty again.
    All,
    /// The device cannot take more now. The rest stays in the batch, which refuses new packets until a later
    /// `transmit` has sent it.
    Blocked,
}

/// A way to move datagrams. No function blocks, and none panics on received bytes.
pub trait Link {
    /// The address and port that packets leave from.
    fn local(&self) -> SocketAddr;

    /// How long this link's trains may be.
    fn train_limits(&self) -> TrainLimits;

    /// Sends the packets of `batch`, sealing each, and empties it. Also releases packets that a decorator held back until
    /// `now`, so an empty batch is offered when [`poll_timeout`](Link::poll_timeout) has passed.
    fn transmit(&mut self, now: Instant, batch: &mut TxBatch, seal: &mut Seal<'_>) -> Transmitted;

    /// Replaces the contents of `batch` by the packets that arrived next, at most one train, and returns
    /// their number. Zero means that nothing is waiting.
    fn receive(&mut self, now: Instant, batch: &mut RxBatch) -> usize;

    /// When this link next has something to send by itself.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// A descriptor that becomes readable when packets wait, for `poll(2)`.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Reports every counter of this link and of those it wraps, by name.
    fn counters(&self, each: &mut dyn FnMut(&'static str, u64));
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn local(&self) -> SocketAddr {
        (**self).local()
    }

    fn train_limits(&self) -> TrainLimits {
        (**self).train_limits()
    }

    fn transmit(&mut self, now: Instant, batch: &mut TxBatch, seal: &mut Seal<'_>) -> Transmitted {
        (**self).transmit(now, batch, seal)
    }

    fn receive(&mut self, now: Instant, batch: &mut RxBatch) -> usize {
        (**self).receive(now, batch)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (**self).poll_timeout()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).poll_fd()
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        (**self).counters(each);
    }
}
