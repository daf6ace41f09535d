//! Passive ends: the identifiers that listen, and the choice among them for a request.

use std::net::{Ipv4Addr, SocketAddr};

use highwire_wire::cm::IpCm;
use libc::c_int;

use super::abi::rdma_cm_id;
use super::address::plain;
use super::hub::{Hub, World, hub};
use super::id::Phase;
use super::resolve;
use crate::boundary::{c_api, minus_one};
use crate::refusal::refused;

/// The identifier that a request for `service` is for: one with the very address before one without any, and among these
/// one of the request's family.
pub(super) fn find(world: &World, service: u64, addresses: Option<&IpCm>) -> Option<usize> {
    let listeners = world.services.get(&service)?;
    // One whose device is gone keeps the service until it is destroyed, and takes no requests.
    let living = |c: &usize| world.ids.get(c).filter(|id| !id.has_lost_its_device());
    let source_of = |c: &usize| living(c).and_then(|id| id.route.source);
    let wanted = addresses.map(|addresses| plain(addresses.destination));
    let exact = listeners.iter().find(|c| {
        let address = source_of(c).map(|source| plain(source.ip()));
        address.is_some() && address == wanted
    });
    let is_any = |c: &&usize| source_of(c).is_some_and(|source| source.ip().is_unspecified());
    let is_of_family = |c: &&usize| {
        let family = source_of(c).map(|source| source.is_ipv4());
        is_any(c) && wanted.is_none_or(|wanted| family == Some(wanted.is_ipv4()))
    };
    let any = || listeners.iter().find(is_of_family).or_else(|| listeners.iter().find(is_any));
    exact.or_else(any).copied()
}

fn listen(hub: &Hub, c: *mut rdma_cm_id) -> Result<(), c_int> {
    let mut world = hub.lock();
    if world.id(c)?.phase == Phase::Idle {
        resolve::bind(hub, &mut world, c, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
    }
    let id = world.id(c)?;
    if id.phase != Phase::Bound {
        return Err(refused(libc::EINVAL, || {
            "the identifier is not bound, listens already, or is a connection's".to_string()
        }));
    }
    let service = resolve::service_of(id, id.route.source.map_or(0, |source| source.port()));
    // The wildcards of the two families count as two addresses: whether both may listen was decided when they
    // were bound.
    let address = id.route.source.map(|source| source.ip());
    let listeners = world.services.get(&service).cloned().unwrap_or_default();
    if listeners
        .iter()
        .filter_map(|other| world.ids.get(other).filter(|other| !other.has_lost_its_device()))
        .any(|other| other.route.source.map(|source| source.ip()) == address)
    {
        return Err(refused(libc::EADDRINUSE, || {
            "another identifier of this process listens there".to_string()
        }));
    }
    if listeners.is_empty() {
        hub.gsi.listen(service)?;
        let listening = world.cm.listen(service);
        debug_assert!(listening.is_ok(), "this table and the manager's agree");
    }
    world.services.entry(service).or_default().push(c as usize);
    let id = world.id(c)?;
    (id.phase, id.service) = (Phase::Listening, Some(service));
    Ok(())
}

/// Stops an identifier that is being destroyed from listening, and frees its port.
pub(super) fn stop(hub: &Hub, world: &mut World, c: usize) {
    if let Some(service) = world.ids.get_mut(&c).and_then(|id| id.service.take())
        && let Some(listeners) = world.services.get_mut(&service)
    {
        listeners.retain(|&other| other != c);
        if listeners.is_empty() {
            world.services.remove(&service);
            world.cm.unlisten(super::hub::now(), service);
            hub.gsi.unlisten(service);
        }
    }
    resolve::unreserve(hub, world, c);
}

c_api! {
    fn rdma_listen(id: *mut rdma_cm_id, _backlog: c_int) -> c_int {
        minus_one(hub().and_then(|hub| listen(hub, id)))
    }
}
