//! `sendmsg` and `recvmsg` with the control messages that trains and congestion marks travel in.

use super::RawAddress;
use crate::batch::{Ecn, TrainView};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The control messages that we send, end to end: the size of a train's segments, and its traffic class. They begin where
/// `CMSG_NXTHDR` looks for them, since the data of each takes eight bytes with its padding.
#[repr(C, align(8))]
struct Controls {
    messages: [Control; 2],
    count: usize,
}

#[repr(C, align(8))]
struct Control {
    header: libc::cmsghdr,
    data: [u8; 8],
}

impl Control {
    fn new<const BYTES: usize>(level: i32, kind: i32, value: [u8; BYTES]) -> Control {
        let mut header: libc::cmsghdr = empty();
        // SAFETY: CMSG_LEN only computes.
        header.cmsg_len = unsafe { libc::CMSG_LEN(BYTES as u32) } as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        let mut data = [0; 8];
        data[..BYTES].copy_from_slice(&value);
        Control { header, data }
    }
}

impl Controls {
    /// The control messages that a train needs.
    fn of(train: &TrainView<'_>, ecn: Ecn) -> Controls {
        let nothing = || Control { header: empty(), data: [0; 8] };
        let mut controls = Controls { messages: [nothing(), nothing()], count: 0 };
        if train.segments > 1 {
            let bytes = (train.segment_bytes as u16).to_ne_bytes();
            controls.push(Control::new(libc::SOL_UDP, libc::UDP_SEGMENT, bytes));
        }
        // Without a DSCP the socket's own option is enough.
        let dscp = train.traffic_class & !Ecn::MASK;
        if dscp != 0 {
            let (level, kind) = match train.destination {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            controls.push(Control::new(level, kind, i32::from(dscp | ecn.bits()).to_ne_bytes()));
        }
        controls
    }

    fn push(&mut self, control: Control) {
        self.messages[self.count] = control;
        self.count += 1;
    }
}

/// Room for the control messages that we ask for: segment size, TOS, overflow count, or an extended error.
#[repr(C, align(8))]
struct ControlBuffer([MaybeUninit<u8>; CONTROL_BYTES]);
const CONTROL_BYTES: usize = 256;

/// One received datagram or train; its bytes are at the front of the buffer.
pub(crate) struct Received {
    pub source: Option<SocketAddr>,
    pub bytes: usize,
    /// Size of the segments, if the kernel put several into the buffer.
    pub segment_bytes: Option<usize>,
    pub tos: u8,
    pub is_truncated: bool,
    /// Datagrams dropped so far because the receive buffer was full.
    pub overflow: Option<u32>,
}

/// A report from the socket's error queue.
pub(crate) struct ErrorReport {
    pub errno: i32,
    /// The destination of the packet that caused it.
    pub destination: Option<SocketAddr>,
    /// Whether it came from the network rather than from this machine.
    pub is_icmp: bool,
}

/// How many trains one call takes: further ones save nothing.
pub(crate) const TRAINS_PER_CALL: usize = 16;

/// Sends trains in one call, [`TRAINS_PER_CALL`] at most, and returns how many of them the kernel took. An error is about the
/// first.
#[inline]
pub(crate) fn send_trains<'a>(
    fd: BorrowedFd<'_>,
    ecn: Ecn,
    trains: impl Iterator<Item = TrainView<'a>>,
) -> io::Result<usize> {
    let mut addresses = [const { MaybeUninit::<RawAddress>::uninit() }; TRAINS_PER_CALL];
    let mut controls = [const { MaybeUninit::<Controls>::uninit() }; TRAINS_PER_CALL];
    let mut parts = [const { MaybeUninit::<[libc::iovec; 2]>::uninit() }; TRAINS_PER_CALL];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; TRAINS_PER_CALL];
    let mut count = 0;
    for (index, train) in trains.take(TRAINS_PER_CALL).enumerate() {
        let (address, address_bytes) = RawAddress::new(&train.destination);
        let message = messages[index].write(libc::mmsghdr { msg_hdr: empty(), msg_len: 0 });
        let header = &mut message.msg_hdr;
        header.msg_name = std::ptr::from_mut(addresses[index].write(address)).cast();
        header.msg_namelen = address_bytes;
        // One part rather than one and an empty one: the kernel is quicker about it.
        let (first, second) =
            if train.head.is_empty() { (train.tail, train.head) } else { (train.head, train.tail) };
        header.msg_iov = parts[index].write([part(first), part(second)]).as_mut_ptr();
        header.msg_iovlen = if second.is_empty() { 1 } else { 2 };
        if train.segments > 1 || train.traffic_class > Ecn::MASK {
            let controls = controls[index].write(Controls::of(&train, ecn));
            header.msg_control = controls.messages.as_mut_ptr().cast();
            header.msg_controllen = (controls.count * size_of::<Control>()) as _;
        }
        count = index + 1;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let fd = fd.as_raw_fd();
    let first: *mut libc::mmsghdr = messages.as_mut_ptr().cast();
    // Lone trains decide latency, and `sendmsg` sends one 100 ns faster. SAFETY: the first `count` messages
    // are initialised, and their pointers lead to initialised elements of the arrays above and to the
    // caller's slices, with the lengths beside them. Of what they lead to, the kernel only reads.
    let sent = unsafe {
        match count {
            1 => libc::sendmsg(fd, &raw const (*first).msg_hdr, flags).min(1),
            _ => libc::sendmmsg(fd, first, count as libc::c_uint, flags as _) as isize,
        }
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives one datagram or train into `buffer` without waiting.
#[inline]
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut exchange = Exchange::new();
    let mut parts = [libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }];
    let (bytes, message) = exchange.receive(fd, &mut parts, libc::MSG_DONTWAIT)?;
    let mut received = Received {
        source: None,
        bytes,
        segment_bytes: None,
        tos: 0,
        is_truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        overflow: None,
    };
    for_each_control(&message, |level, kind, data| match (level, kind) {
        (libc::SOL_UDP, libc::UDP_GRO) => received.segment_bytes = usize::try_from(integer(data)).ok(),
        (libc::IPPROTO_IP, libc::IP_TOS) => received.tos = data.first().copied().unwrap_or(0),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => received.tos = integer(data) as u8,
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => received.overflow = Some(integer(data) as u32),
        _ => {}
    });
    received.source = exchange.address.to_address();
    Ok(received)
}

/// Empties the error queue, so that `poll(2)` stops announcing it. Returns how many reports there were.
pub(crate) fn drain_errors(fd: BorrowedFd<'_>, mut each: impl FnMut(ErrorReport)) -> usize {
    let mut count = 0;
    // The packet that caused the report comes along; its bytes are of no interest.
    let mut quote = [0u8; 64];
    loop {
        let mut exchange = Exchange::new();
        let mut parts = [libc::iovec { iov_base: quote.as_mut_ptr().cast(), iov_len: quote.len() }];
        let flags = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE;
        let Ok((_, message)) = exchange.receive(fd, &mut parts, flags) else {
            return count;
        };
        count += 1;
        let mut report = ErrorReport { errno: 0, destination: None, is_icmp: false };
        for_each_control(&message, |level, kind, data| {
            let is_error = matches!(
                (level, kind),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            );
            // `struct sock_extended_err`: errno in four bytes, then the origin in one.
            if is_error && data.len() > 4 {
                report.errno = integer(data);
                report.is_icmp = [libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6].contains(&data[4]);
            }
        });
        report.destination = exchange.address.to_address();
        each(report);
    }
}

/// The memory that one `recvmsg` fills beside the payload.
struct Exchange {
    address: RawAddress,
    control: ControlBuffer,
}

impl Exchange {
    #[inline]
    fn new() -> Exchange {
        Exchange {
            address: RawAddress::empty(),
            control: ControlBuffer([MaybeUninit::uninit(); CONTROL_BYTES]),
        }
    }

    /// The bytes received and the header that describes them, which points into `self`.
    #[inline]
    fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        parts: &mut [libc::iovec; 1],
        flags: i32,
    ) -> io::Result<(usize, libc::msghdr)> {
        let mut message: libc::msghdr = empty();
        message.msg_name = (&raw mut self.address).cast();
        message.msg_namelen = RawAddress::CAPACITY;
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut self.control).cast();
        message.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: every pointer in `message` is to a live place that we borrow mutably, with its length beside it.
        let bytes = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) };
        match usize::try_from(bytes) {
            Ok(bytes) => Ok((bytes, message)),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

/// Calls `each` with level, type and data of every control message.
#[inline]
fn for_each_control(message: &libc::msghdr, mut each: impl FnMut(i32, i32, &[u8])) {
    // SAFETY: the kernel filled `msg_control` with `msg_controllen` bytes of well-formed messages; the macros stay inside,
    // and the data of each message was written by the kernel for its full length.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let bytes = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = std::slice::from_raw_parts(libc::CMSG_DATA(header), bytes);
            each((*header).cmsg_level, (*header).cmsg_type, data);
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

fn integer(data: &[u8]) -> i32 {
    data.first_chunk().map_or(0, |&bytes| i32::from_ne_bytes(bytes))
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// A structure of the C library with every field zero, padding included.
fn empty<T: PlainC>() -> T {
    // SAFETY: `PlainC` is implemented only for C structures of integers and pointers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

/// C structures that may be all zero.
trait PlainC {}
impl PlainC for libc::msghdr {}
impl PlainC for libc::cmsghdr {}
