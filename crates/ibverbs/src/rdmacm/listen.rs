//! Passive ends: who listens for what, and which of several identifiers a request is for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use highwire_wire::cm::IpCm;
use libc::c_int;

use super::abi::rdma_cm_id;
use super::address::plain;
use super::hub::{Hub, World, hub};
use super::id::Phase;
use super::resolve;
use crate::boundary::{c_api, minus_one};

/// The identifier that a request for `service` is for: one with the very address before one without any.
pub(super) fn find(world: &World, service: u64, addresses: Option<&IpCm>) -> Option<usize> {
    let listeners = world.services.get(&service)?;
    let address_of = |c: &usize| -> Option<IpAddr> { Some(plain(world.ids.get(c)?.source?.ip())) };
    let wanted = addresses.map(|addresses| plain(addresses.destination));
    let exact = listeners.iter().find(|c| address_of(c).is_some() && address_of(c) == wanted);
    exact.or_else(|| listeners.iter().find(|c| address_of(c).is_some_and(|ip| ip.is_unspecified()))).copied()
}

fn listen(hub: &Hub, c: *mut rdma_cm_id) -> Result<(), c_int> {
    let mut world = hub.lock();
    if world.id(c)?.phase == Phase::Idle {
        resolve::bind(hub, &mut world, c, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
    }
    let id = world.id(c)?;
    if id.phase != Phase::Bound {
        return Err(libc::EINVAL);
    }
    let service = resolve::service_of(id, id.source.map_or(0, |source| source.port()));
    let address = id.source.map(|source| plain(source.ip()));
    let listeners = world.services.get(&service).cloned().unwrap_or_default();
    if listeners
        .iter()
        .any(|other| world.ids.get(other).and_then(|id| id.source).map(|s| plain(s.ip())) == address)
    {
        return Err(libc::EADDRINUSE);
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

/// An identifier goes: it listens no more, and its port is free.
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
