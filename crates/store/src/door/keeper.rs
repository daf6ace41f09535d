//! Who is let in at a node's doors: at most so many connections, and at most so many of one address. Who is not let in is told so.
//!
//! A connection is a thread, which may wait for its client: so a silent client delays no other. Those that are too many get a
//! thread as well, for the moment in which they are told, and only some at a time.

use super::pace::{Patience, TooLong};
use super::room::Total;
use crate::config::DoorLimits;
use crate::engine::named;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections that are told at a time that they are too many.
const REFUSALS_MAX: usize = 64;
/// How long one of them may take to hear it.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(1);
/// What is read of a connection that ends, so that its end does not overtake the last words to it.
const DRAIN_BYTES_MAX: u64 = 4 << 20;

/// Why connections were not let in, or were ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Full,
    Address,
    Idle,
    Slow,
    Http,
    Protocol,
}

impl Ended {
    pub(crate) const ALL: [(&'static str, Ended); 6] = [
        ("full", Ended::Full),
        ("address", Ended::Address),
        ("idle", Ended::Idle),
        ("slow", Ended::Slow),
        ("http", Ended::Http),
        ("protocol", Ended::Protocol),
    ];
}

/// What all doors of a node share.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) limits: DoorLimits,
    pub(crate) total: Arc<Total>,
    ended: [AtomicU64; Ended::ALL.len()],
    visits: Mutex<BTreeMap<u64, Arc<Visit>>>,
    next_id: AtomicU64,
}

/// A connection, as others may see it.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) id: u64,
    pub(crate) door: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) since: Instant,
    pub(crate) about: Mutex<About>,
}

/// What a client has said about itself, and what it did last.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) name: Vec<u8>,
    pub(crate) last: Instant,
    pub(crate) command: String,
    /// Commands queued since MULTI.
    pub(crate) queued: Option<usize>,
    pub(crate) protocol: u8,
}

impl Visit {
    pub(crate) fn about(&self) -> MutexGuard<'_, About> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    pub(crate) fn new(limits: DoorLimits) -> Keeper {
        Keeper {
            limits,
            total: Arc::default(),
            ended: Default::default(),
            visits: Mutex::default(),
            next_id: AtomicU64::new(1),
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        let idle = Duration::from_secs(self.limits.idle_s);
        Patience { idle: (!idle.is_zero()).then_some(idle), slow: Duration::from_secs(self.limits.slow_s) }
    }

    /// Counts a connection that this node has ended; returns how many there were.
    pub(crate) fn count(&self, why: Ended) -> u64 {
        self.ended[why as usize].fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn count_too_long(&self, why: Option<TooLong>) {
        match why {
            Some(TooLong::Idle) => drop(self.count(Ended::Idle)),
            Some(TooLong::Slow) => drop(self.count(Ended::Slow)),
            None => {}
        }
    }

    pub(crate) fn ended(&self) -> [(&'static str, u64); Ended::ALL.len()] {
        Ended::ALL.map(|(name, why)| (name, self.ended[why as usize].load(Ordering::Relaxed)))
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Visit>>> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connections at a door, by their numbers.
    pub(crate) fn visits(&self, door: &str) -> Vec<Arc<Visit>> {
        self.locked().values().filter(|visit| visit.door == door).cloned().collect()
    }

    fn enter(&self, door: &'static str, stream: &TcpStream) -> io::Result<Arc<Visit>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (address, local, since) = (stream.peer_addr()?, stream.local_addr()?, Instant::now());
        let about =
            About { name: Vec::new(), last: since, command: "NULL".into(), queued: None, protocol: 2 };
        let visit = Arc::new(Visit { id, door, address, local, since, about: Mutex::new(about) });
        self.locked().insert(id, Arc::clone(&visit));
        Ok(visit)
    }
}

/// A connection that was accepted.
pub(crate) struct Guest {
    pub(crate) stream: TcpStream,
    pub(crate) visit: Arc<Visit>,
    /// Why it cannot stay.
    pub(crate) refused: Option<String>,
    keeper: Arc<Keeper>,
    _place: Place,
}

impl Guest {
    pub(crate) fn patience(&self) -> Patience {
        match self.refused {
            Some(_) => Patience { idle: Some(REFUSAL_PATIENCE), slow: REFUSAL_PATIENCE },
            None => self.keeper.patience(),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.keeper.locked().remove(&self.visit.id);
    }
}

/// Accepts connections for ever, each in a thread of its own.
pub(crate) fn serve(
    listener: TcpListener,
    name: &'static str,
    keeper: &Arc<Keeper>,
    converse: impl Fn(Guest) + Send + Sync + 'static,
) -> io::Result<()> {
    let (converse, keeper, places) = (Arc::new(converse), Arc::clone(keeper), Arc::<Places>::default());
    let work = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Perhaps descriptors have run out: other conversations will end.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let Ok(address) = stream.peer_addr() else { continue };
            let (place, refused) = match places.take(address.ip(), &keeper.limits) {
                Ok(place) => (place, None),
                Err((ended, why)) => {
                    keeper.count(ended);
                    // The others of a crowd are not told.
                    let Some(place) = places.refuse() else { continue };
                    (place, Some(why))
                }
            };
            let _ = stream.set_nodelay(true);
            let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
            let Ok(visit) = keeper.enter(name, &stream) else { continue };
            let guest = Guest { stream, visit, refused, keeper: Arc::clone(&keeper), _place: place };
            let converse = Arc::clone(&converse);
            // Without a thread the guest is dropped, and its connection ends.
            let _ = named(name.into()).spawn(move || converse(guest));
        }
    };
    named(name.into()).spawn(work).map(drop)
}

/// Ends a conversation so that the other side can read the last words: what it has sent meanwhile must be taken, or the
/// connection is reset.
pub(crate) fn part(mut stream: TcpStream) {
    let _ = stream.flush();
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(REFUSAL_PATIENCE));
    let until = Instant::now() + REFUSAL_PATIENCE;
    let (mut bytes, mut taken) = ([0; 4096], 0);
    while let Ok(length @ 1..) = stream.read(&mut bytes) {
        taken += length as u64;
        if taken > DRAIN_BYTES_MAX || Instant::now() > until {
            return;
        }
    }
}

/// The connections of one door.
#[derive(Debug, Default)]
struct Places(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    refusals: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    /// `None`: of one that is refused.
    address: Option<IpAddr>,
}

/// The address that counts. A network of IPv6 has addresses without number for each of its machines.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        IpAddr::V6(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        address => address,
    }
}

impl Places {
    fn locked(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Places>, address: IpAddr, limits: &DoorLimits) -> Result<Place, (Ended, String)> {
        let (mut taken, address) = (self.locked(), counted(address));
        if taken.all >= limits.connections {
            return Err((Ended::Full, format!("the door has {} connections, which is the most", taken.all)));
        }
        let of_address = taken.by_address.get(&address).copied().unwrap_or_default();
        if of_address >= limits.connections_per_address {
            let why = format!(
                "{address} has {of_address} connections to this door, which is the most for one address"
            );
            return Err((Ended::Address, why));
        }
        taken.all += 1;
        *taken.by_address.entry(address).or_default() += 1;
        Ok(Place { places: Arc::clone(self), address: Some(address) })
    }

    fn refuse(self: &Arc<Places>) -> Option<Place> {
        let mut taken = self.locked();
        if taken.refusals >= REFUSALS_MAX {
            return None;
        }
        taken.refusals += 1;
        Some(Place { places: Arc::clone(self), address: None })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.locked();
        let Some(address) = self.address else {
            taken.refusals -= 1;
            return;
        };
        taken.all -= 1;
        if let Some(count) = taken.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn places_are_limited_in_all_and_for_an_address_and_come_back() {
        let limits = DoorLimits { connections: 3, connections_per_address: 2, ..DoorLimits::default() };
        let places = Arc::<Places>::default();
        let take = |address: &str| places.take(of(address), &limits).map_err(|why| why.0);
        let first = take("192.0.2.1").expect("a place");
        // The same machine, whatever it calls itself.
        let second = take("::ffff:192.0.2.1").expect("a place");
        assert_eq!(take("192.0.2.1").expect_err("two"), Ended::Address);
        let third = take("2001:db8::1").expect("a place");
        assert_eq!(take("192.0.2.9").expect_err("three"), Ended::Full);
        drop(second);
        let again = take("2001:db8::ffff:2").expect("a place");
        drop(first);
        assert_eq!(take("2001:db8::3").expect_err("one network"), Ended::Address);
        drop((third, again));
        let taken = places.locked();
        assert_eq!((taken.all, taken.by_address.len()), (0, 0));
    }
}
