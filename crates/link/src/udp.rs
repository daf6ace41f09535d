//! RoCEv2 over an ordinary UDP socket: no root, no module, no configuration.
//!
//! The socket stays unconnected and asks for "don't fragment" always. Linux then writes IPv4 identification 0
//! into a lone datagram and 0, 1, 2 … into the segments of a train, which makes the ICRC computable: it
//! covers that field (RoCEv2 A17.3.3) and a socket cannot see it. Connected sockets would count from a hidden
//! base instead.
//!
//! Packets leave from the port they are received at, 4791. RoCEv2 NICs put entropy for ECMP into the source port and peers
//! must ignore it (RoCEv2 A17.9.2), so a constant is as good as any.

mod error;
mod group;
mod steer;
mod table;

pub use error::{Holder, OpenError};
pub use group::SharedPort;
pub use steer::{SteerBy, lane_of};
pub use table::has_unread;

use crate::batch::{Ecn, RxBatch, TrainLimits, TrainView, TxBatch};
use crate::simulated::{self, Modelled, Network, Parcel, Socket};
use crate::{Counters, Link, Seal, Transmitted, sys};
use highwire_stdx::Instant;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The UDP port of RoCEv2 (RoCEv2 A17.3.2).
pub const ROCE_PORT: u16 = 4791;

/// The configuration of a [`UdpLink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// An address of this machine: the GID.
    pub ip: IpAddr,
    /// The port to receive at and send from; 0 takes any free one.
    pub port: u16,
    /// Receive buffer to ask for; the kernel may grant less.
    pub receive_buffer_bytes: usize,
    /// Send buffer to ask for; the kernel may grant less.
    pub send_buffer_bytes: usize,
    /// The ECN bits that packets leave with.
    pub ecn: Ecn,
    /// Hand whole trains to the kernel, if it can.
    pub gso: bool,
    /// Take whole trains from the kernel, if it can.
    pub gro: bool,
}

impl UdpConfig {
    /// RoCEv2 at `ip` with everything that makes it fast.
    pub const fn new(ip: IpAddr) -> UdpConfig {
        UdpConfig {
            ip,
            port: ROCE_PORT,
            receive_buffer_bytes: 8 << 20,
            send_buffer_bytes: 4 << 20,
            ecn: Ecn::NotCapable,
            gso: true,
            gro: true,
        }
    }
}

/// Packets over one UDP socket.
pub struct UdpLink {
    socket: OwnedFd,
    local: SocketAddr,
    limits: TrainLimits,
    /// The ECN bits of its packets.
    ecn: Ecn,
    counters: Counters,
    overflow_seen: u32,
    refused: Option<SocketAddr>,
    modelled: Modelled,
}

impl UdpLink {
    /// Opens the only lane at an address.
    ///
    /// # Errors
    /// [`OpenError`], whose text says what to do.
    pub fn open(config: &UdpConfig) -> Result<UdpLink, OpenError> {
        let mut lanes = UdpLink::open_lanes(config, 1)?;
        Ok(lanes.pop().expect("one lane was asked for"))
    }

    /// Opens `lanes` sockets at one address. The kernel hands a datagram to the lane that its destination QP belongs to,
    /// [`lane_of`]; a train that arrives whole goes to the lane of its first packet. Fewer than one lane means one.
    ///
    /// # Errors
    /// [`OpenError`], whose text says what to do.
    pub fn open_lanes(config: &UdpConfig, lanes: usize) -> Result<Vec<UdpLink>, OpenError> {
        let mut config = *config;
        let mut links: Vec<UdpLink> = Vec::new();
        let failed = |config: &UdpConfig, error: io::Error| OpenError::new(config, error);
        if let Some(network) = simulated::network() {
            let lane = |lane| UdpLink::simulate(&*network, &config, lane, lanes);
            return (0..lanes).map(|at| lane(at).map_err(|e| failed(&config, e))).collect();
        }
        for lane in 0..lanes.max(1) {
            let link = UdpLink::bind(&config, lane > 0).map_err(|e| failed(&config, e))?;
            if lanes > 1 && lane == 0 {
                // Only now: the first lane binds without sharing, so an address that another process has is refused, even if
                // that process would share it.
                share(link.socket.as_fd()).map_err(|e| failed(&config, e))?;
                config.port = link.local.port();
            }
            links.push(link);
        }
        if lanes > 1 {
            steer::attach(links[0].socket.as_fd(), lanes).map_err(|e| failed(&config, e))?;
        }
        Ok(links)
    }

    fn simulate(network: &dyn Network, config: &UdpConfig, lane: usize, lanes: usize) -> io::Result<UdpLink> {
        let local = SocketAddr::new(config.ip, config.port);
        let modelled = Modelled::new(network.bind(local, lane, lanes)?);
        let socket =
            modelled.get().map_or_else(|| Err(io::ErrorKind::NotFound.into()), Socket::descriptor)?;
        let (limits, counters) = (TrainLimits::GSO, Counters::default());
        let (ecn, overflow_seen, refused) = (config.ecn, 0, None);
        Ok(UdpLink { socket, local, limits, ecn, counters, overflow_seen, refused, modelled })
    }

    /// Takes over a socket that is bound already, such as one of a [`SharedPort`]. Buffers and features are set as `config`
    /// says; its address is ignored.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn adopt(socket: OwnedFd, config: &UdpConfig) -> Result<UdpLink, OpenError> {
        let adopted = sys::bound_address(socket.as_fd())
            .and_then(|local| UdpLink::configure(socket, local, config).map(|link| (link, local)));
        let (mut link, local) = adopted.map_err(|error| OpenError::new(config, error))?;
        link.local = local;
        // Datagrams that the socket lost before this link took it over do not count.
        link.overflow_seen = sys::memory_info(link.socket.as_fd()).map_or(0, |info| info[8]);
        Ok(link)
    }

    /// A socket that a former broker has set up and other processes may be using: nothing about it changes. Port 0: it is not
    /// bound yet.
    fn inherit(socket: OwnedFd) -> io::Result<UdpLink> {
        let local = sys::bound_address(socket.as_fd())?;
        let overflow_seen = sys::memory_info(socket.as_fd()).map_or(0, |info| info[8]);
        let (limits, counters) = (TrainLimits::SINGLE, Counters::default());
        let ecn = Ecn::NotCapable;
        let modelled = Modelled::default();
        Ok(UdpLink { socket, local, limits, ecn, counters, overflow_seen, refused: None, modelled })
    }

    fn bind(config: &UdpConfig, is_shared: bool) -> io::Result<UdpLink> {
        let mut link = UdpLink::prepare(config, is_shared)?;
        link.take_address(config)?;
        Ok(link)
    }

    /// A socket with every option set, to be bound.
    fn prepare(config: &UdpConfig, is_shared: bool) -> io::Result<UdpLink> {
        let address = with_scope(SocketAddr::new(config.ip, config.port));
        let socket = sys::udp_socket(address.is_ipv6())?;
        if address.is_ipv6() {
            // The option can only be set before the socket is bound; on an adopted socket it is set already.
            sys::set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        let link = UdpLink::configure(socket, address, config)?;
        if is_shared {
            share(link.socket.as_fd())?;
        }
        Ok(link)
    }

    /// Binds the prepared socket.
    fn take_address(&mut self, config: &UdpConfig) -> io::Result<()> {
        sys::bind(self.socket.as_fd(), &with_scope(SocketAddr::new(config.ip, config.port)))?;
        self.local = sys::bound_address(self.socket.as_fd())?;
        Ok(())
    }

    /// Sets every option of a socket.
    fn configure(socket: OwnedFd, address: SocketAddr, config: &UdpConfig) -> io::Result<UdpLink> {
        let fd = socket.as_fd();
        let mut counters = Counters::default();
        set_path_options(fd, address.is_ipv6(), config.ecn)?;
        ask_for_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, config.receive_buffer_bytes)?;
        ask_for_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, config.send_buffer_bytes)?;
        let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
        // Asking for segments of size 0 changes nothing, and fails where the option is unknown.
        let gso = config.gso && sys::set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        let gro =
            sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, i32::from(config.gro)).is_ok() && config.gro;
        counters.gso = u64::from(gso);
        counters.gro = u64::from(gro);
        let limits = if gso { TrainLimits::GSO } else { TrainLimits::SINGLE };
        let ecn = config.ecn;
        let (overflow_seen, refused, modelled) = (0, None, Modelled::default());
        Ok(UdpLink { socket, local: address, limits, ecn, counters, overflow_seen, refused, modelled })
    }

    /// The counters so far.
    pub fn totals(&self) -> &Counters {
        &self.counters
    }

    /// The peer that last reported its port closed, if one did. Asking clears it.
    pub fn take_refused(&mut self) -> Option<SocketAddr> {
        if let Some(socket) = self.modelled.get() {
            return socket.take_refused();
        }
        self.refused.take()
    }

    /// The receive buffer that the kernel granted, in bytes of its own accounting.
    pub fn receive_buffer_bytes(&self) -> usize {
        let granted = sys::option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF);
        usize::try_from(granted.unwrap_or(0)).unwrap_or(0)
    }

    /// Waits until a packet arrives; false after `timeout_ms` milliseconds without.
    ///
    /// # Errors
    /// Those of `poll(2)`.
    pub fn wait_readable(&self, timeout_ms: i32) -> io::Result<bool> {
        sys::wait_readable(self.socket.as_fd(), timeout_ms)
    }

    #[inline]
    fn send<'a>(&self, trains: impl Iterator<Item = TrainView<'a>>) -> io::Result<usize> {
        let Some(socket) = self.modelled.get() else {
            return sys::send_trains(self.socket.as_fd(), self.ecn, trains);
        };
        let mut count = 0;
        for train in trains {
            let bytes = [train.head, train.tail].concat();
            let traffic_class = train.traffic_class & !Ecn::MASK | self.ecn.bits();
            let (peer, segment_bytes) = (train.destination, train.segment_bytes);
            socket.send(Parcel { peer, bytes, segment_bytes, traffic_class });
            count += 1;
        }
        Ok(count)
    }

    #[inline]
    fn take(&self, buffer: &mut [u8]) -> io::Result<sys::Received> {
        let Some(socket) = self.modelled.get() else {
            return sys::receive(self.socket.as_fd(), buffer);
        };
        let Some(parcel) = socket.receive() else { return Err(io::ErrorKind::WouldBlock.into()) };
        let Parcel { peer, bytes, segment_bytes, traffic_class } = parcel;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(sys::Received {
            source: Some(peer),
            bytes: bytes.len(),
            segment_bytes: Some(segment_bytes),
            tos: traffic_class,
            is_truncated: false,
            overflow: None,
        })
    }

    fn note_sent<'a>(&mut self, trains: impl Iterator<Item = TrainView<'a>>) {
        for train in trains {
            self.counters.tx_trains += 1;
            self.counters.tx_packets += train.segments as u64;
            self.counters.tx_bytes += (train.head.len() + train.tail.len()) as u64;
        }
    }

    /// The reaction to a failed call for a train of `packets`.
    #[cold]
    fn on_send_error(&mut self, error: &io::Error, packets: usize, is_retry: bool) -> AfterError {
        let errno = error.raw_os_error().unwrap_or(0);
        if matches!(errno, libc::EAGAIN | libc::EINTR) {
            self.counters.tx_blocked += 1;
            return AfterError::Block;
        }
        // A report about an earlier packet makes the next call fail, even if that one sends to another peer: it deserves a
        // second try.
        if self.drain_errors() > 0 && !is_retry {
            return AfterError::Retry;
        }
        if packets > 1 && matches!(errno, libc::EIO | libc::EINVAL) {
            self.counters.tx_train_refused += 1;
            if errno == libc::EIO {
                // The interface cannot checksum segments, and never will.
                self.limits = TrainLimits::SINGLE;
                self.counters.gso = 0;
            }
            return AfterError::Split;
        }
        let counter = match errno {
            libc::ENOBUFS | libc::ENOMEM => &mut self.counters.tx_no_buffers,
            libc::EMSGSIZE => &mut self.counters.tx_too_big,
            libc::EPERM | libc::EACCES => &mut self.counters.tx_forbidden,
            // EINVAL: a loopback address cannot send to another machine.
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL | libc::EINVAL => {
                &mut self.counters.tx_unreachable
            }
            _ => &mut self.counters.tx_other,
        };
        *counter += packets as u64;
        AfterError::Lose
    }

    fn drain_errors(&mut self) -> usize {
        let (counters, refused) = (&mut self.counters, &mut self.refused);
        sys::drain_errors(self.socket.as_fd(), |report| {
            if report.is_icmp && report.errno == libc::ECONNREFUSED {
                counters.icmp_refused += 1;
                *refused = report.destination.or(*refused);
            } else if report.is_icmp {
                counters.icmp_other += 1;
            }
        })
    }

    fn note_overflow(&mut self, total: u32) {
        self.counters.rx_overflow += u64::from(total.wrapping_sub(self.overflow_seen));
        self.overflow_seen = total;
    }

    /// Checks a datagram or train and makes it the contents of `batch`.
    fn accept(&mut self, received: &sys::Received, batch: &mut RxBatch) -> usize {
        if let Some(total) = received.overflow {
            self.note_overflow(total);
        }
        let Some(source) = received.source else {
            self.counters.rx_malformed += 1;
            return 0;
        };
        if received.bytes == 0 {
            self.counters.rx_rings += 1;
            return 0;
        }
        if received.is_truncated {
            self.counters.rx_truncated += 1;
            return 0;
        }
        let segment_bytes = received.segment_bytes.filter(|&n| n > 0).unwrap_or(received.bytes);
        let (bytes, traffic_class) = (received.bytes, received.tos);
        batch.fill(crate::batch::Arrival { source, bytes, segment_bytes, traffic_class });
        let packets = batch.len();
        self.counters.rx_trains += 1;
        self.counters.rx_packets += packets as u64;
        self.counters.rx_bytes += received.bytes as u64;
        if Ecn::from_tos(traffic_class) == Ecn::CongestionExperienced {
            self.counters.rx_congestion_experienced += packets as u64;
        }
        packets
    }
}

enum AfterError {
    /// Try the same call again.
    Retry,
    /// Send the packets of the train one by one.
    Split,
    /// Give the packets up; they are counted.
    Lose,
    /// Keep them for later.
    Block,
}

impl Link for UdpLink {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn train_limits(&self) -> TrainLimits {
        self.limits
    }

    fn transmit(&mut self, _now: Instant, batch: &mut TxBatch, seal: &mut Seal<'_>) -> Transmitted {
        batch.plan(self.limits);
        let mut is_retry = false;
        loop {
            let ready = batch.prepare(self.local, sys::TRAINS_PER_CALL, seal);
            if ready == 0 {
                return Transmitted::All;
            }
            match self.send(batch.ready(ready)) {
                Ok(sent) => {
                    self.note_sent(batch.ready(sent));
                    batch.depart(sent);
                    is_retry = false;
                }
                Err(error) => {
                    let packets = batch.ready(1).map(|train| train.segments).sum();
                    match self.on_send_error(&error, packets, is_retry) {
                        AfterError::Retry => is_retry = true,
                        AfterError::Split => batch.split_train(),
                        AfterError::Lose => {
                            batch.depart(1);
                            is_retry = false;
                        }
                        AfterError::Block => return Transmitted::Blocked,
                    }
                }
            }
        }
    }

    fn receive(&mut self, _now: Instant, batch: &mut RxBatch) -> usize {
        batch.clear();
        // An unusable datagram or an error report must not look like an empty socket, and a flood of them must not hold the
        // caller here.
        for _ in 0..16 {
            match self.take(batch.buffer()) {
                Ok(received) => match self.accept(&received, batch) {
                    0 => {}
                    packets => return packets,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return 0,
                Err(error) => {
                    if self.drain_errors() == 0 && error.kind() != io::ErrorKind::Interrupted {
                        self.counters.rx_other += 1;
                    }
                }
            }
        }
        0
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.counters.each(each);
    }
}

impl AsFd for UdpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for UdpLink {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// "Don't fragment" on every packet, the ECN bits out and in, and ICMP reports although the socket is unconnected.
fn set_path_options(fd: BorrowedFd<'_>, is_ipv6: bool, ecn: Ecn) -> io::Result<()> {
    let tos = i32::from(ecn.bits());
    if is_ipv6 {
        let level = libc::IPPROTO_IPV6;
        // The ICRC protects the same bytes, so peers may leave the UDP checksum zero, as Linux's rxe does;
        // over IPv6 the kernel drops such datagrams unless told otherwise.
        sys::set_option(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
        sys::set_option(fd, level, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
        sys::set_option(fd, level, libc::IPV6_DONTFRAG, 1)?;
        sys::set_option(fd, level, libc::IPV6_TCLASS, tos)?;
        sys::set_option(fd, level, libc::IPV6_RECVTCLASS, 1)?;
        sys::set_option(fd, level, libc::IPV6_RECVERR, 1)
    } else {
        let level = libc::IPPROTO_IP;
        sys::set_option(fd, level, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        sys::set_option(fd, level, libc::IP_TOS, tos)?;
        sys::set_option(fd, level, libc::IP_RECVTOS, 1)?;
        sys::set_option(fd, level, libc::IP_RECVERR, 1)
    }
}

/// A datagram that was received beside a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// How many bytes of the buffer it takes.
    pub bytes: usize,
    /// The address of its sender.
    pub source: SocketAddr,
    /// The traffic class octet, or TOS, of its IP header, if the socket was [told](tell_traffic_class) to
    /// report it.
    pub traffic_class: u8,
}

/// Receives one datagram into `buffer` without waiting, from a socket that is no link.
///
/// # Errors
/// Those of `recvmsg(2)`; one that does not fit is `InvalidData`.
pub fn receive_datagram(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Datagram> {
    let received = sys::receive(socket, buffer)?;
    match received.source {
        Some(source) if !received.is_truncated => {
            Ok(Datagram { bytes: received.bytes, source, traffic_class: received.tos })
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Lets a socket say with which traffic class each datagram came.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn tell_traffic_class(socket: BorrowedFd<'_>, is_ipv6: bool) -> io::Result<()> {
    match is_ipv6 {
        true => sys::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
        false => sys::set_option(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
    }
}

/// How full a socket is that datagrams wait at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// The waiting bytes, in the kernel's accounting: more than the datagrams' own.
    pub used_bytes: u32,
    /// The bytes that may wait: beyond them the kernel drops datagrams.
    pub size_bytes: u32,
}

/// How full a socket is, which may be another process's.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn receive_buffer(socket: BorrowedFd<'_>) -> io::Result<ReceiveBuffer> {
    let [used_bytes, size_bytes, ..] = sys::memory_info(socket)?;
    Ok(ReceiveBuffer { used_bytes, size_bytes })
}

/// The forced variant passes the administrator's limit and needs a privilege; the plain one is cut off at the limit.
fn ask_for_buffer(fd: BorrowedFd<'_>, forced: i32, plain: i32, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    sys::set_option(fd, libc::SOL_SOCKET, forced, bytes)
        .or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, plain, bytes))
}

fn share(fd: BorrowedFd<'_>) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
}

/// A link-local IPv6 address is complete only with the interface that it belongs to.
fn with_scope(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            let found = crate::local_addresses().unwrap_or_default();
            let scope_id = found.iter().find(|a| a.ip == address.ip()).map_or(0, |a| a.scope_id);
            SocketAddr::V6(SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope_id))
        }
        _ => address,
    }
}
