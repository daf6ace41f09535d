//! Who is let in at a node's doors: at most so many connections, and at most so many of one address. Who is not let in is told so.
//!
//! A connection is a task of the node's I/O loop, and a silent client delays no other. Those that are too many get a
//! task as well, for the moment in which they are told, and only some at a time.

use super::pace::{PacedStream, Patience, TooLong};
use super::room::Total;
use crate::access::{Gate, Visitor, count};
use crate::config::DoorLimits;
use crate::tls::Tls;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// Connections that are told at a time that they are too many.
const REFUSALS_MAX: usize = 64;
/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
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
    Protected,
    /// A subscriber that did not read its messages fast enough.
    Subscriber,
}

impl Ended {
    pub(crate) const ALL: [(&'static str, Ended); 8] = [
        ("full", Ended::Full),
        ("address", Ended::Address),
        ("idle", Ended::Idle),
        ("slow", Ended::Slow),
        ("http", Ended::Http),
        ("protocol", Ended::Protocol),
        ("protected", Ended::Protected),
        ("subscriber", Ended::Subscriber),
    ];
}

/// What all doors of a node share.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) limits: DoorLimits,
    pub(crate) gate: Arc<Gate>,
    tls: Option<Arc<Tls>>,
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
    /// Its user.
    pub(crate) user: String,
}

impl Visit {
    pub(crate) fn about(&self) -> MutexGuard<'_, About> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    pub(crate) fn new(limits: DoorLimits, gate: Gate, tls: Option<Arc<Tls>>) -> Keeper {
        Keeper {
            limits,
            gate: Arc::new(gate),
            tls,
            total: Arc::default(),
            ended: Default::default(),
            visits: Mutex::default(),
            next_id: AtomicU64::new(1),
        }
    }

    /// Whether connections are encrypted.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
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
        let about = About {
            name: Vec::new(),
            last: since,
            command: "NULL".into(),
            queued: None,
            protocol: 2,
            user: "default".into(),
        };
        let visit = Arc::new(Visit { id, door, address, local, since, about: Mutex::new(about) });
        self.locked().insert(id, Arc::clone(&visit));
        Ok(visit)
    }
}

/// Why a connection cannot stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There are too many: the words for it.
    TooMany(String),
    /// The node has no users, and the connection comes from elsewhere.
    Protected,
}

/// What is said to clients from elsewhere while there are no users.
pub(crate) const PROTECTED: &str = "this node has no users, and protected_mode lets only clients of a loopback address in: make a users' file with \
     `highwire store user add`, or set protected_mode = false if everybody who reaches this address may do everything";

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::TooMany(why) => f.write_str(why),
            Refused::Protected => f.write_str(PROTECTED),
        }
    }
}

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) stream: PacedStream,
    pub(crate) visit: Arc<Visit>,
    pub(crate) visitor: Visitor,
    /// Why it cannot stay.
    pub(crate) refused: Option<Refused>,
    keeper: Arc<Keeper>,
    _place: Place,
}

impl Guest {
    /// Ends the conversation; the other side can read the last words.
    pub(crate) async fn part(&mut self) {
        self.stream.part(REFUSAL_PATIENCE, DRAIN_BYTES_MAX).await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.keeper.locked().remove(&self.visit.id);
    }
}

/// Accepts connections for ever, and serves each by a task of the node's I/O loop.
pub(crate) fn serve<W>(
    listener: TcpListener,
    name: &'static str,
    keeper: &Arc<Keeper>,
    io: &Handle,
    converse: impl Fn(Guest) -> W + Send + 'static,
) -> io::Result<()>
where
    W: Future<Output = ()> + Send + 'static,
{
    listener.set_nonblocking(true)?;
    let entered = io.enter();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    drop(entered);
    let (keeper, places) = (Arc::clone(keeper), Arc::<Places>::default());
    io.spawn(async move {
        loop {
            let Ok((stream, address)) = listener.accept().await else {
                // Perhaps descriptors have run out: other conversations will end.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            if let Some(guest) = admit(stream, address, name, &keeper, &places) {
                tokio::spawn(converse(guest));
            }
        }
    });
    Ok(())
}

fn admit(
    stream: TcpStream,
    address: SocketAddr,
    name: &'static str,
    keeper: &Arc<Keeper>,
    places: &Arc<Places>,
) -> Option<Guest> {
    let (place, refused) = match places.take(address.ip(), &keeper.limits) {
        Ok(place) if keeper.gate.is_closed_to(address.ip()) => {
            keeper.count(Ended::Protected);
            count(&keeper.gate.counts.protected);
            // It takes no place of a client's.
            drop(place);
            (places.refuse()?, Some(Refused::Protected))
        }
        Ok(place) => (place, None),
        Err((ended, why)) => {
            keeper.count(ended);
            // The others of a crowd are not told.
            (places.refuse()?, Some(Refused::TooMany(why)))
        }
    };
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let visit = keeper.enter(name, &stream).ok()?;
    let patience = match refused {
        Some(_) => Patience { idle: Some(REFUSAL_PATIENCE), slow: REFUSAL_PATIENCE },
        None => keeper.patience(),
    };
    let mut stream = PacedStream::new(stream, patience);
    if let Some(tls) = &keeper.tls {
        stream.seal(tls.connection().ok()?);
    }
    let visitor = Visitor::new(&keeper.gate, address);
    Some(Guest { stream, visit, visitor, refused, keeper: Arc::clone(keeper), _place: place })
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
pub(crate) fn counted(address: IpAddr) -> IpAddr {
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
