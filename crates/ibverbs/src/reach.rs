//! Whether a peer's address can be one, told when a queue pair gets it: packets to nowhere get no answer, and a queue pair that is connected
//! to nowhere looks connected.

use crate::qp::Qp;
use crate::registry;
use highwire_host::running_devices;
use highwire_verbs::Gid;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

/// What can be said of a peer before a packet was sent to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// Nothing speaks against it.
    Maybe,
    /// The GID is zero, or an unspecified address.
    Zero,
    /// A loopback address at which no device of this user runs.
    NoNeighbour,
    /// This process's own part of an address, in which there is no such queue pair.
    NotHere,
    /// The machine has no route to it; the system's words.
    NoRoute(String),
}

/// The devices that run: an address, and the last byte of the numbers of its queue pairs, if processes share the address.
type Devices = Vec<(IpAddr, Option<u8>)>;

/// Looks where packets to a queue pair would go.
pub(crate) fn look(gid: Gid, number: u32) -> Reach {
    let devices = || -> Option<Devices> {
        let running = running_devices().ok()?;
        Some(running.into_iter().map(|device| (device.address.to_canonical(), device.shard)).collect())
    };
    let own = crate::context::open_places();
    let is_here = || registry::first::<Qp>(|qp| qp.number() == number).is_some();
    judge(gid.to_ip().to_canonical(), number, own, devices, is_here)
}

fn judge(
    address: IpAddr,
    number: u32,
    own: impl IntoIterator<Item = (Gid, Option<u8>)>,
    devices: impl FnOnce() -> Option<Devices>,
    is_here: impl FnOnce() -> bool,
) -> Reach {
    if address.is_unspecified() {
        return Reach::Zero;
    }
    let shard = number as u8;
    let is_own = own
        .into_iter()
        .any(|(gid, part)| gid.to_ip().to_canonical() == address && part.is_none_or(|part| part == shard));
    if is_own {
        return if is_here() { Reach::Maybe } else { Reach::NotHere };
    }
    if address.is_loopback() {
        // Where the list cannot be read, nothing is claimed.
        let runs = |devices: Devices| {
            devices.iter().any(|(at, part)| *at == address && part.is_none_or(|part| part == shard))
        };
        return if devices().is_none_or(runs) { Reach::Maybe } else { Reach::NoNeighbour };
    }
    match route_to(address) {
        Ok(()) => Reach::Maybe,
        Err(error) => Reach::NoRoute(error.to_string()),
    }
}

/// Asks the kernel for a route. No packet is sent.
fn route_to(address: IpAddr) -> std::io::Result<()> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0))?.connect(SocketAddr::new(address, highwire_link::ROCE_PORT))
}

impl Reach {
    /// What is wrong with it, and what to change; nothing where packets may arrive.
    pub(crate) fn words(&self, address: IpAddr) -> Option<String> {
        let words = match self {
            Reach::Maybe => return None,
            Reach::Zero => "grh.dgid is zero: exchange the GID that ibv_query_gid returns".to_string(),
            Reach::NoNeighbour => format!(
                "{address} is this machine's loopback, and no device of this user with such a queue pair runs at it here: a peer \
                 elsewhere, or in a container, has an address of that name of its own. Give both sides HIGHWIRE_ADDR"
            ),
            Reach::NotHere => format!(
                "{address} is this process's own address, and it has no such queue pair: a peer in another container or on another \
                 machine has an address of the same name. Give both sides HIGHWIRE_ADDR"
            ),
            Reach::NoRoute(error) => {
                format!(
                    "this machine has no way to {address} ({error}): the GID is wrong, or an interface is down"
                )
            }
        };
        Some(words)
    }
}

/// What a machine lacks without which errors blame other things.
pub(crate) fn missing() -> impl Iterator<Item = String> {
    missing_in(Path::new("/"))
}

fn missing_in(root: &Path) -> impl Iterator<Item = String> {
    let parts = [
        (
            "dev/null",
            "/dev/null is missing here, and no program can be started without it: mount /dev, or mknod /dev/null c 1 3",
        ),
        ("proc/self", "/proc is not mounted here: mount -t proc proc /proc"),
    ];
    parts.into_iter().filter(|(path, _)| !root.join(path).exists()).map(|(_, words)| words.to_string())
}

/// Why nothing comes back from a loopback address, if the interface is the cause.
pub(crate) fn of_loopback(address: IpAddr) -> Option<String> {
    let is_down = address.is_loopback() && route_to(address).is_err();
    is_down.then(|| "the interface lo is down: ip link set lo up".to_string())
}

/// A queue pair gets its peer.
pub(crate) fn tell(qp: &Qp, gid: Gid, number: u32) {
    let address = gid.to_ip();
    if let Some(words) = look(gid, number).words(address) {
        let own = qp.number();
        crate::refusal::say_once(&format!(
            "queue pair {own:#x} ({}) goes to RTR, and its packets will not arrive at queue pair {number:#x}: {words}",
            qp.service
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_nowhere_is_told_apart() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let own = Some((Gid::from_ip(ip("127.83.0.1")), Some(4)));
        let check = |address: &str, number, is_here, expected| {
            let devices = || {
                Some(vec![(ip("127.83.0.1"), Some(4)), (ip("127.83.0.1"), Some(5)), (ip("127.9.9.9"), None)])
            };
            assert_eq!(
                judge(ip(address), number, own, devices, || is_here),
                expected,
                "{address} {number:#x}"
            );
        };
        check("0.0.0.0", 1, false, Reach::Zero);
        check("::", 1, false, Reach::Zero);
        check("127.83.0.1", 0x1204, true, Reach::Maybe);
        // Two containers: the address and the part are the own ones, and the queue pair is another container's.
        check("127.83.0.1", 0x1304, false, Reach::NotHere);
        check("127.83.0.1", 0x1305, false, Reach::Maybe);
        check("127.83.0.1", 0x1306, false, Reach::NoNeighbour);
        check("127.9.9.9", 0x1306, false, Reach::Maybe);
        check("127.9.9.8", 0x1306, false, Reach::NoNeighbour);
        let unreadable = judge(ip("127.9.9.8"), 1, own, || None, || false);
        assert_eq!(unreadable, Reach::Maybe, "nothing is claimed");
    }

    #[test]
    fn what_a_machine_lacks_is_named() {
        assert_eq!(missing_in(Path::new("/")).count(), 0);
        let lacks: Vec<String> = missing_in(Path::new("/nowhere")).collect();
        assert!(lacks[0].contains("/dev/null") && lacks[1].contains("/proc"), "{lacks:?}");
    }
}
