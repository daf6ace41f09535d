//! UDP with nothing on top, over 127.0.0.1.

use super::{Gauge, Pair, Patience, Summary, Throughput, nanos_since};
use crate::batch::{Ecn, TrainView};
use crate::{PACKET_BYTES_MAX, TrainLimits, sys};
use highwire_stdx::Duration;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Calls whose payload may wait in the receiver's buffer: enough to keep both sides busy.
const CALLS_IN_FLIGHT_MAX: u64 = 32;

struct Raw {
    socket: OwnedFd,
    local: SocketAddr,
}

impl Raw {
    fn open(gro: bool) -> io::Result<Raw> {
        let socket = sys::udp_socket(false)?;
        sys::bind(socket.as_fd(), &SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
        sys::set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 8 << 20)?;
        if gro {
            sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).map_err(|_| {
                io::Error::new(io::ErrorKind::Unsupported, "this kernel has no UDP GRO (Linux 5.0)")
            })?;
        }
        let local = sys::bound_address(socket.as_fd())?;
        Ok(Raw { socket, local })
    }

    /// Sends `bytes` as one train of datagrams of `segment_bytes`, which may be just one.
    fn send(&self, to: &Raw, bytes: &[u8], segment_bytes: usize) -> io::Result<()> {
        let segments = bytes.len().div_ceil(segment_bytes);
        let train = TrainView {
            destination: to.local,
            traffic_class: 0,
            segment_bytes,
            segments,
            head: bytes,
            tail: &[],
        };
        sys::send_trains(self.socket.as_fd(), Ecn::NotCapable, std::iter::once(train))?;
        Ok(())
    }

    /// The next datagram or train: its bytes, or `None` if nothing waits.
    fn try_receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match sys::receive(self.socket.as_fd(), buffer) {
            Ok(received) => Ok(Some(received.bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How many calls of `bytes` each the receive buffer holds for certain. The kernel counts its own overhead too, which
    /// at most doubles long payloads and is a kilobyte or so for short ones.
    fn room_for_calls(&self, bytes: usize) -> u64 {
        let granted = sys::option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0);
        (u64::try_from(granted).unwrap_or(0) / (2 * bytes as u64 + 2_048)).max(1)
    }

    fn receive(&self, buffer: &mut [u8], pair: Pair) -> io::Result<usize> {
        let mut patience = Patience::new();
        loop {
            if let Some(bytes) = self.try_receive(buffer)? {
                return Ok(bytes);
            }
            if patience.is_over() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "a datagram did not arrive within a second",
                ));
            }
            pair.pause();
        }
    }
}

fn check_size(bytes: usize) -> io::Result<()> {
    if (1..=PACKET_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    let text = format!("{bytes} bytes are no size for a datagram: 1 to {PACKET_BYTES_MAX} are");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// The round trip of one datagram between two threads that poll. Warms up with a tenth as many more.
///
/// # Errors
/// A size that is none, or an error of the sockets.
pub fn udp_round_trip(payload_bytes: usize, iterations: u64) -> io::Result<Summary> {
    check_size(payload_bytes)?;
    let pair = Pair::new();
    let (asker, answerer) = (Raw::open(false)?, Raw::open(false)?);
    let (warm_up, total) = (iterations / 10, iterations + iterations / 10);
    let (asker, answerer) = (&asker, &answerer);
    std::thread::scope(|scope| {
        let answers = scope.spawn(move || -> io::Result<()> {
            pair.settle(1);
            let mut buffer = vec![0; 65_536];
            for _ in 0..total {
                let bytes = answerer.receive(&mut buffer, pair)?;
                answerer.send(asker, &buffer[..bytes], bytes)?;
            }
            Ok(())
        });
        let questions = scope.spawn(move || -> io::Result<Summary> {
            pair.settle(0);
            let (payload, mut buffer) = (vec![0x5A; payload_bytes], vec![0; 65_536]);
            let mut gauge = Gauge::new();
            for turn in 0..total {
                let start = Instant::now();
                asker.send(answerer, &payload, payload_bytes)?;
                asker.receive(&mut buffer, pair)?;
                if turn >= warm_up {
                    gauge.record(nanos_since(start));
                }
            }
            Ok(gauge.summary())
        });
        let summary = questions.join().expect("the measuring thread does not panic");
        answers.join().expect("the answering thread does not panic")?;
        summary
    })
}

/// One thread sends `segments` datagrams of `segment_bytes` in the longest trains there are (UDP GSO), another receives them
/// in trains (UDP GRO). The sender waits while as many trains are under way
/// as the receive buffer holds, so nothing is lost; should a train be lost all the same, the run ends early.
///
/// # Errors
/// A size that is none, a kernel without GSO or GRO, or an error of the sockets.
pub fn udp_gso_throughput(segment_bytes: usize, segments: u64) -> io::Result<Throughput> {
    check_size(segment_bytes)?;
    let per_train = TrainLimits::GSO.segments.min(TrainLimits::GSO.bytes / segment_bytes);
    let train = vec![0x5A; per_train * segment_bytes];
    stream(&train, segment_bytes, segments.div_ceil(per_train as u64).max(1), true)
}

/// One thread sends `messages` datagrams of `payload_bytes`, one per call, and another receives them.
///
/// # Errors
/// A size that is none, or an error of the sockets.
pub fn udp_message_rate(payload_bytes: usize, messages: u64) -> io::Result<Throughput> {
    check_size(payload_bytes)?;
    stream(&vec![0x5A; payload_bytes], payload_bytes, messages.max(1), false)
}

/// Sends `bytes` in each of `calls` calls, and counts in messages of `message_bytes`.
fn stream(bytes: &[u8], message_bytes: usize, calls: u64, gro: bool) -> io::Result<Throughput> {
    let pair = Pair::new();
    let (sender, receiver) = (Raw::open(false)?, Raw::open(gro)?);
    let (sender, receiver) = (&sender, &receiver);
    let arrived = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let (arrived, is_over) = (&arrived, &is_over);
    let all_bytes = calls * bytes.len() as u64;
    std::thread::scope(|scope| {
        let receiving = scope.spawn(move || -> io::Result<()> {
            pair.settle(1);
            let mut buffer = vec![0; 65_536];
            let mut idle = 0u32;
            while arrived.load(Ordering::Relaxed) < all_bytes {
                match receiver.try_receive(&mut buffer)? {
                    Some(more) => {
                        arrived.fetch_add(more as u64, Ordering::Release);
                        idle = 0;
                    }
                    None if is_over.load(Ordering::Acquire) => break,
                    None => pair.pause_politely(&mut idle),
                }
            }
            Ok(())
        });
        let sending = scope.spawn(move || -> io::Result<(u64, Duration, Summary)> {
            pair.settle(0);
            let in_flight_max = receiver.room_for_calls(bytes.len()).min(CALLS_IN_FLIGHT_MAX);
            let mut gauge = Gauge::new();
            let mut sent = 0;
            let begin = Instant::now();
            for call in 1..=calls {
                let start = Instant::now();
                sender.send(receiver, bytes, message_bytes)?;
                gauge.record(nanos_since(start));
                sent = call;
                if !await_arrival(arrived, call.saturating_sub(in_flight_max) * bytes.len() as u64, pair) {
                    break;
                }
            }
            await_arrival(arrived, sent * bytes.len() as u64, pair);
            Ok((sent, Duration::from_nanos(nanos_since(begin).max(1)), gauge.summary()))
        });
        let sent = sending.join().expect("the sending thread does not panic");
        is_over.store(true, Ordering::Release);
        receiving.join().expect("the receiving thread does not panic")?;
        let (sent, elapsed, call) = sent?;
        let received_bytes = arrived.load(Ordering::Acquire);
        Ok(Throughput {
            sent: sent * bytes.len() as u64 / message_bytes as u64,
            received: received_bytes / message_bytes as u64,
            bytes: received_bytes,
            elapsed,
            call,
        })
    })
}

/// Waits for the receiver; false if something has not arrived within a second, and so never will.
fn await_arrival(arrived: &AtomicU64, bytes: u64, pair: Pair) -> bool {
    let mut patience = Patience::new();
    let mut idle = 0;
    while arrived.load(Ordering::Acquire) < bytes {
        if patience.is_over() {
            return false;
        }
        pair.pause_politely(&mut idle);
    }
    true
}
