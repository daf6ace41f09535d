//! Local addresses, peers' addresses, and routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use highwire_host::cm::is_local;
use highwire_verbs::Gid;
use libc::{c_int, sockaddr};

use super::abi::{RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_PS_IB, rdma_cm_id};
use super::address::{self, plain};
use super::channel::{self, complete, in_steps, push};
use super::deliver::What;
use super::hub::{Hub, World, hub};
use super::id::{Attached, Id, Phase};
use crate::abi::{ibv_gid, ibv_sa_path_rec};
use crate::boundary::{c_api, c_waits, minus_one};
use crate::refusal::refused;

/// Gives an identifier the device, if it has none yet. C sees it in the identifier.
///
/// # Errors
/// ENODEV while a scenario has taken the device out.
pub(super) fn attach(hub: &Hub, world: &mut World, c: *mut rdma_cm_id) -> Result<(), c_int> {
    if world.id(c)?.attached.is_some() {
        return Ok(());
    }
    let device = hub.device()?;
    world.attached += 1;
    let order = world.attached;
    let id = world.id(c)?;
    id.attached = Some(Attached { place: device.place, order });
    // SAFETY: the identifier is alive and its call or event is being made.
    let c = unsafe { &mut *id.c };
    (c.verbs, c.port_num) = (device.context(), 1);
    // An identifier that has a device has a protection domain, too: programs make queue pairs and address handles of their own in it
    // before they ask for anything else. Without a domain, the calls that need one report why.
    if c.pd.is_null() {
        c.pd = device.default_pd().unwrap_or(std::ptr::null_mut());
    }
    Ok(())
}

/// Shows C the addresses of an identifier, and the path to its peer.
pub(super) fn show_route(hub: &Hub, id: &mut Id) {
    // SAFETY: the identifier is alive and its call or event is being made.
    let c = unsafe { &mut *id.c };
    if let Some(source) = id.route.source {
        c.route.addr.src = address::write(source).0;
    }
    if let Some(destination) = id.route.destination {
        c.route.addr.dst = address::write(destination).0;
    }
    c.route.addr.ibaddr.sgid = ibv_gid { raw: hub.gid.0 };
    c.route.addr.ibaddr.dgid = ibv_gid { raw: id.route.peer.0 };
    c.route.addr.ibaddr.pkey = 0xFFFF;
    if matches!(id.phase, Phase::RouteResolved | Phase::Requested) {
        show_path(hub, id, c);
    }
}

fn show_path(hub: &Hub, id: &Id, c: &mut rdma_cm_id) {
    /// "Exactly", in the selectors of a path record.
    const EXACTLY: u8 = 2;
    let path = ibv_sa_path_rec {
        dgid: ibv_gid { raw: id.route.peer.0 },
        sgid: ibv_gid { raw: hub.gid.0 },
        hop_limit: 64,
        traffic_class: id.options.tos,
        reversible: 1,
        numb_path: 1,
        pkey: 0xFFFF,
        mtu_selector: EXACTLY,
        mtu: hub.mtu,
        rate_selector: EXACTLY,
        rate: 3,
        packet_life_time_selector: EXACTLY,
        packet_life_time: id.options.ack_timeout.saturating_sub(1),
        ..ibv_sa_path_rec::default()
    };
    if c.route.path_rec.is_null() {
        c.route.path_rec = Box::into_raw(Box::new(path));
        c.route.num_paths = 1;
    } else {
        // SAFETY: it was made here.
        unsafe { *c.route.path_rec = path };
    }
}

/// Gives an identifier a local address and a port.
pub(super) fn bind(
    hub: &Hub,
    world: &mut World,
    c: *mut rdma_cm_id,
    address: SocketAddr,
) -> Result<(), c_int> {
    let id = world.id(c)?;
    if id.phase != Phase::Idle {
        return Err(refused(libc::EINVAL, || "the identifier has an address already".to_string()));
    }
    let ip = plain(address.ip());
    if !ip.is_unspecified() && ip != hub.gid.to_ip() && !is_local(ip) {
        let own = hub.gid.to_ip();
        return Err(refused(libc::ENODEV, || {
            format!("{ip} is no address of this machine, nor the device's, {own}")
        }));
    }
    if !ip.is_unspecified() {
        attach(hub, world, c)?;
    }
    let id = world.id(c)?;
    let space = id.port_space as u16;
    let wanted = Claim { ip, is_reusable: id.options.is_reusable, family: only_family(id, address) };
    let port = reserve(hub, world, (space, address.port()), c as usize, &wanted)?;
    let id = world.id(c)?;
    id.phase = Phase::Bound;
    id.route.source = Some(SocketAddr::new(address.ip(), port));
    show_route(hub, id);
    Ok(())
}

/// The addresses that an identifier claims together with a port.
struct Claim {
    ip: IpAddr,
    is_reusable: bool,
    /// The family, if the claim is for one family alone.
    family: Option<Family>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// The one family that an identifier is for: IPv4 always, IPv6 if it was asked to be (`RDMA_OPTION_ID_AFONLY`).
fn only_family(id: &Id, address: SocketAddr) -> Option<Family> {
    match address {
        SocketAddr::V4(_) => Some(Family::V4),
        SocketAddr::V6(_) => id.options.is_family_only.then_some(Family::V6),
    }
}

impl Claim {
    /// Whether the two claims exclude each other.
    fn excludes(&self, other: &Id) -> bool {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let source = other.route.source.unwrap_or(any);
        let family = only_family(other, source);
        if self.family.is_some() && family.is_some() && self.family != family {
            return false;
        }
        let taken = plain(source.ip());
        let overlaps = taken == self.ip || taken.is_unspecified() || self.ip.is_unspecified();
        overlaps && !(self.is_reusable && other.options.is_reusable && other.phase != Phase::Listening)
    }
}

/// Reserves a port, which identifiers of this process may share where their addresses differ or all of them agreed to it.
fn reserve(
    hub: &Hub,
    world: &mut World,
    (space, port): (u16, u16),
    c: usize,
    wanted: &Claim,
) -> Result<u16, c_int> {
    if let Some(holders) = world.ports.get(&(space, port)) {
        let others = holders.iter().filter_map(|holder| world.ids.get(holder));
        let mut others = others.filter(|other| !other.has_lost_its_device());
        let is_refused = others.any(|other| wanted.excludes(other));
        if is_refused {
            let reason = || {
                format!(
                    "another identifier of this process has port {port}: destroy it, or rdma_set_option(RDMA_OPTION_ID_REUSEADDR)"
                )
            };
            return Err(refused(libc::EADDRINUSE, reason));
        }
    }
    let port = match world.ports.get(&(space, port)) {
        Some(_) => port,
        None => hub.gsi.bind(space, port)?,
    };
    world.ports.entry((space, port)).or_default().push(c);
    Ok(port)
}

/// Gives a port back, if no other identifier holds it.
pub(super) fn unreserve(hub: &Hub, world: &mut World, c: usize) {
    let held = world.ports.iter().find(|(_, holders)| holders.contains(&c)).map(|(&key, _)| key);
    let Some(key) = held else { return };
    if let Some(holders) = world.ports.get_mut(&key) {
        holders.retain(|&holder| holder != c);
        if holders.is_empty() {
            world.ports.remove(&key);
            hub.gsi.unbind(key.0, key.1);
        }
    }
}

/// The local address towards a peer, where the application does not care.
fn source_towards(hub: &Hub, destination: IpAddr, peer: Gid) -> IpAddr {
    // As in IP routing: to reach an address of its own, a machine uses that address as the source.
    if peer == hub.gid && !destination.is_unspecified() { destination } else { hub.gid.to_ip() }
}

fn resolve(
    hub: &Hub,
    c: *mut rdma_cm_id,
    source: Option<SocketAddr>,
    destination: SocketAddr,
) -> Result<(), c_int> {
    let mut world = hub.lock();
    let id = world.id(c)?;
    if !matches!(id.phase, Phase::Idle | Phase::Bound) {
        return Err(refused(libc::EINVAL, || {
            "the identifier's address was resolved already, or it listens".to_string()
        }));
    }
    let group = address::multicast_gid(destination.ip());
    let peer = match group {
        Some(gid) => Gid(gid),
        None => hub.gid_of(destination.ip())?,
    };
    if id.phase == Phase::Idle {
        let any = |ip: IpAddr| match ip {
            IpAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            IpAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        };
        let source = source.unwrap_or_else(|| any(destination.ip()));
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(refused(libc::EINVAL, || {
                "source and destination are of different address families".to_string()
            }));
        }
        bind(hub, &mut world, c, source)?;
    }
    attach(hub, &mut world, c)?;
    let id = world.id(c)?;
    // An unspecified destination is this machine, as for sockets.
    let destination_ip = match destination.ip() {
        ip if ip.is_unspecified() => match ip {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        },
        ip => ip,
    };
    if let Some(source) = &mut id.route.source
        && source.ip().is_unspecified()
    {
        let ip = source_towards(hub, destination_ip, peer);
        source.set_ip(if source.is_ipv6() { as_v6(ip) } else { ip });
    }
    id.route.destination = Some(SocketAddr::new(destination_ip, destination.port()));
    (id.route.peer, id.phase) = (peer, Phase::AddressResolved);
    show_route(hub, id);
    push(&mut world, c as usize, What::Plain(RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    Ok(())
}

fn as_v6(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        IpAddr::V6(_) => ip,
    }
}

/// `rdma_resolve_addr` with addresses of ours.
pub(super) fn resolve_address(
    hub: &Hub,
    c: *mut rdma_cm_id,
    source: Option<SocketAddr>,
    destination: SocketAddr,
) -> Result<(), c_int> {
    resolve(hub, c, source, destination)?;
    complete(hub, c)
}

/// `rdma_resolve_route`: there is one route to every destination.
pub(super) fn resolve_route(hub: &Hub, c: *mut rdma_cm_id) -> Result<(), c_int> {
    begin_route(hub, c)?;
    complete(hub, c)
}

fn begin_route(hub: &Hub, c: *mut rdma_cm_id) -> Result<(), c_int> {
    let mut world = hub.lock();
    let id = world.id(c)?;
    if id.phase != Phase::AddressResolved {
        return Err(refused(libc::EINVAL, || "rdma_resolve_addr and its event come first".to_string()));
    }
    id.phase = Phase::RouteResolved;
    show_route(hub, id);
    channel::push(&mut world, c as usize, What::Plain(RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    Ok(())
}

c_api! {
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
        minus_one((|| {
            let (hub, address) = (hub()?, address::read(addr)?);
            bind(hub, &mut hub.lock(), id, address)
        })())
    }
}

c_waits! {
    fn rdma_resolve_addr(
        id: *mut rdma_cm_id,
        src_addr: *mut sockaddr,
        dst_addr: *mut sockaddr,
        _timeout_ms: c_int,
    ) -> c_int |kept| {
        minus_one((|| {
            let source = if src_addr.is_null() { None } else { Some(address::read(src_addr)?) };
            let (hub, destination) = (hub()?, address::read(dst_addr)?);
            in_steps(hub, id, kept, || resolve(hub, id, source, destination).map(|()| true))
        })())
    }

    fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int |kept| {
        minus_one(hub().and_then(|hub| in_steps(hub, id, kept, || begin_route(hub, id).map(|()| true))))
    }
}

/// The service identifier of an identifier's port.
pub(super) fn service_of(id: &Id, port: u16) -> u64 {
    debug_assert!(id.port_space <= RDMA_PS_IB, "port spaces are checked when identifiers are made");
    highwire_wire::cm::service_id(id.port_space as u16, port)
}
