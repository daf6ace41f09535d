//! The network between the processes: sockets whose datagrams are late, and under faults lost, doubled or overtaken.

use highwire_link::lane_of;
use highwire_link::simulated::{Network, Parcel, Socket};
use highwire_stdx::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the network does to packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub delay_min_ns: u64,
    pub delay_max_ns: u64,
    /// Of a thousand packets, so many are lost.
    pub lost: u64,
    /// Of a thousand trains, so many come twice, or later than those behind them.
    pub doubled: u64,
    pub overtaken: u64,
}

/// How much later than usual a packet is that others overtake.
const LATE_NS: u64 = 300_000;

struct State {
    rng: Rng,
    weather: Weather,
    now_ns: u64,
    /// By time, and then by number.
    under_way: BTreeMap<(u64, u64), (SocketAddr, Parcel)>,
    sent: u64,
    /// When the last train of a pair of addresses arrives: later ones do not overtake it.
    last: BTreeMap<(SocketAddr, SocketAddr), u64>,
    sockets: BTreeMap<u64, Bound>,
    opened: u64,
    has_delivered: bool,
    tells: bool,
}

struct Bound {
    address: SocketAddr,
    lane: usize,
    lanes: usize,
    queue: VecDeque<Parcel>,
    refused: VecDeque<SocketAddr>,
    event: OwnedFd,
}

/// The network.
#[derive(Clone)]
pub struct Wires(Arc<Mutex<State>>);

struct End {
    wires: Wires,
    number: u64,
    local: SocketAddr,
}

impl Wires {
    pub fn new(rng: Rng, weather: Weather) -> Wires {
        Wires(Arc::new(Mutex::new(State {
            rng,
            weather,
            now_ns: 0,
            under_way: BTreeMap::new(),
            sent: 0,
            last: BTreeMap::new(),
            sockets: BTreeMap::new(),
            opened: 0,
            has_delivered: false,
            tells: std::env::var_os("HIGHWIRE_TRACE").is_some(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everything arrive that is due; whether anything did.
    pub fn deliver(&self, now_ns: u64) -> bool {
        let mut state = self.state();
        (state.now_ns, state.has_delivered) = (now_ns, false);
        while let Some(entry) = state.under_way.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            let (to, parcel) = entry.remove();
            state.arrive(to, parcel);
            state.has_delivered = true;
        }
        state.has_delivered
    }

    /// When something arrives next.
    pub fn next_ns(&self) -> Option<u64> {
        self.state().under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// The end of a process: its sockets are closed.
    pub fn close_all(&self, ip: IpAddr) {
        self.state().sockets.retain(|_, socket| socket.address.ip() != ip);
    }

    /// How many sockets are open.
    pub fn open(&self) -> usize {
        self.state().sockets.len()
    }
}

impl State {
    fn send(&mut self, from: SocketAddr, mut parcel: Parcel) {
        let to = std::mem::replace(&mut parcel.peer, from);
        let segments = parcel.bytes.chunks(parcel.segment_bytes.max(1)).count();
        let is_hit = (0..segments).any(|_| self.rng.below(1000) < self.weather.lost);
        let trains = if is_hit { self.thin_out(&parcel) } else { vec![parcel] };
        for train in trains {
            let Weather { delay_min_ns, delay_max_ns, doubled, overtaken, .. } = self.weather;
            let mut at = self.now_ns + self.rng.between(delay_min_ns, delay_max_ns);
            if self.rng.below(1000) < overtaken {
                at += self.rng.below(LATE_NS);
            } else {
                let last = self.last.entry((from, to)).or_default();
                at = at.max(*last + 1);
                *last = at;
            }
            if self.rng.below(1000) < doubled {
                self.sent += 1;
                let again = at + self.rng.between(1, LATE_NS);
                self.under_way.insert((again, self.sent), (to, train.clone()));
            }
            self.sent += 1;
            self.under_way.insert((at, self.sent), (to, train));
        }
    }

    /// Loses one packet of a train; what is left comes in pieces.
    fn thin_out(&mut self, train: &Parcel) -> Vec<Parcel> {
        let packets: Vec<&[u8]> = train.bytes.chunks(train.segment_bytes).collect();
        let victim = self.rng.below(packets.len() as u64) as usize;
        let part = |packets: &[&[u8]]| Parcel { bytes: packets.concat(), ..train.clone() };
        let parts = [part(&packets[..victim]), part(&packets[victim + 1..])];
        parts.into_iter().filter(|part| !part.bytes.is_empty()).collect()
    }

    fn arrive(&mut self, to: SocketAddr, parcel: Parcel) {
        if self.tells {
            let (from, packets) = (parcel.peer, parcel.bytes.len().div_ceil(parcel.segment_bytes.max(1)));
            let number = |range: std::ops::Range<usize>| {
                parcel.bytes.get(range).map(|bytes| bytes.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)))
            };
            let (opcode, qpn, psn) = (number(0..1), number(5..8), number(9..12));
            eprintln!(
                "{:>12} {packets} packets from {from} arrive at {to}: {opcode:02x?} for {qpn:06x?}, {psn:06x?}",
                self.now_ns
            );
        }
        let here =
            |socket: &&mut Bound| socket.address == to && socket.lane == lane_of(&parcel.bytes, socket.lanes);
        if let Some(socket) = self.sockets.values_mut().find(here) {
            socket.queue.push_back(parcel);
            signal(&socket.event);
        } else if let Some(sender) = self.sockets.values_mut().find(|socket| socket.address == parcel.peer) {
            sender.refused.push_back(to);
            signal(&sender.event);
        }
    }
}

impl Network for Wires {
    fn bind(&self, address: SocketAddr, lane: usize, lanes: usize) -> io::Result<Box<dyn Socket + Send>> {
        let mut state = self.state();
        if state.sockets.values().any(|socket| socket.address == address && socket.lane == lane) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        state.opened += 1;
        let number = state.opened;
        let (queue, refused, event) = (VecDeque::new(), VecDeque::new(), event()?);
        state.sockets.insert(number, Bound { address, lane, lanes, queue, refused, event });
        Ok(Box::new(End { wires: self.clone(), number, local: address }))
    }

    fn has_unread(&self, address: SocketAddr) -> bool {
        self.state().sockets.values().any(|socket| socket.address == address && !socket.queue.is_empty())
    }
}

impl Socket for End {
    fn descriptor(&self) -> io::Result<OwnedFd> {
        let state = self.wires.state();
        state.sockets.get(&self.number).ok_or(io::ErrorKind::NotFound)?.event.try_clone()
    }

    fn send(&self, parcel: Parcel) {
        self.wires.state().send(self.local, parcel);
    }

    fn receive(&self) -> Option<Parcel> {
        let mut state = self.wires.state();
        let socket = state.sockets.get_mut(&self.number)?;
        let parcel = socket.queue.pop_front();
        socket.settle();
        parcel
    }

    fn take_refused(&self) -> Option<SocketAddr> {
        let mut state = self.wires.state();
        let socket = state.sockets.get_mut(&self.number)?;
        let refused = socket.refused.pop_front();
        socket.settle();
        refused
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.wires.state().sockets.remove(&self.number);
    }
}

impl Bound {
    /// Nothing waits here any more: the descriptor says so. A report of a closed port is taken as soon as the socket is read.
    fn settle(&mut self) {
        if self.queue.is_empty() {
            let mut count = [0u8; 8];
            // SAFETY: there is room for eight bytes. The call fails if the counter is zero.
            unsafe { libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        }
    }
}

fn event() -> io::Result<OwnedFd> {
    // SAFETY: a plain system call, whose result is checked.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn signal(event: &OwnedFd) {
    // SAFETY: eight bytes are there to read.
    unsafe { libc::write(event.as_raw_fd(), 1u64.to_ne_bytes().as_ptr().cast(), 8) };
}
