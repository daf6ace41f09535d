//! Multicast groups of datagram identifiers.

use std::net::SocketAddr;

use highwire_verbs::Gid;
use libc::{c_int, c_void, sockaddr};

use super::abi::*;
use super::address;
use super::channel::{Held, in_steps, push};
use super::deliver::What;
use super::hub::{Hub, hub};
use super::id::Phase;
use super::{attributes, verbs};
use crate::abi::{ibv_gid, ibv_qp};
use crate::boundary::{c_api, c_waits, input, minus_one};

/// A group that an identifier is in, or about to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    address: SocketAddr,
    group: Gid,
    /// Whether datagrams to the group are received, once the event is taken.
    is_attached: bool,
}

/// The contents of the event of a joined group.
#[derive(Clone, Copy)]
pub(super) struct Joined {
    group: Gid,
    /// The application's pointer.
    context: usize,
    /// Whether it will only send.
    is_send_only: bool,
}

/// The multicast queue pair number (IBTA §10.5.2.1).
const MULTICAST_QPN: u32 = 0xFF_FFFF;

fn join(c: *mut rdma_cm_id, address: SocketAddr, flags: u32, context: *mut c_void) -> Result<bool, c_int> {
    let hub = hub()?;
    let group = Gid(address::multicast_gid(address.ip()).ok_or(libc::EINVAL)?);
    let is_send_only = match flags {
        RDMA_MC_JOIN_FLAG_FULLMEMBER => false,
        RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => true,
        _ => return Err(libc::EINVAL),
    };
    let mut world = hub.lock();
    let id = world.id(c)?;
    // Joining needs a device, and so an address that is not a wildcard.
    let is_bound =
        id.route.destination.is_some() || id.route.source.is_some_and(|source| !source.ip().is_unspecified());
    if !id.is_datagram() || id.phase == Phase::Idle || !is_bound {
        return Err(libc::EINVAL);
    }
    if id.memberships.iter().any(|membership| membership.group == group) {
        return Err(libc::EADDRINUSE);
    }
    id.memberships.push(Membership { address, group, is_attached: false });
    push(&mut world, c as usize, What::Join(Joined { group, context: context as usize, is_send_only }), 0);
    Ok(true)
}

/// The event of a joined group: the queue pair, if there is one, is attached now.
pub(super) fn prepare(hub: &Hub, c: *mut rdma_cm_id, joined: Joined, mut status: c_int) -> Option<Box<Held>> {
    // SAFETY: the application keeps the identifier alive until it has given back the event that is being made.
    let qp = unsafe { (*c).qp };
    let mut kind = RDMA_CM_EVENT_MULTICAST_JOIN;
    if !qp.is_null() && !joined.is_send_only {
        match attach(qp, joined.group) {
            Ok(()) => {
                if let Ok(id) = hub.lock().id(c) {
                    let of_group =
                        id.memberships.iter_mut().filter(|membership| membership.group == joined.group);
                    of_group.for_each(|membership| membership.is_attached = true);
                }
            }
            Err(errno) => (kind, status) = (RDMA_CM_EVENT_MULTICAST_ERROR, -errno),
        }
    }
    let mut held = Held::new(c, kind, status);
    let world = hub.lock();
    let id = world.ids.get(&(c as usize))?;
    held.event.param.ud = rdma_ud_param {
        private_data: joined.context as *const c_void,
        private_data_len: 0,
        ah_attr: attributes::route(id, joined.group),
        qp_num: MULTICAST_QPN,
        qkey: id.terms.qkey,
    };
    Some(held)
}

fn attach(qp: *mut ibv_qp, group: Gid) -> Result<(), c_int> {
    let gid = ibv_gid { raw: group.0 };
    // SAFETY: the queue pair is the identifier's.
    verbs::done(unsafe { verbs::ibv_attach_mcast(qp, &gid, 0) })
}

fn leave_group(hub: &Hub, c: *mut rdma_cm_id, group: Gid) -> Result<(), c_int> {
    let membership = {
        let mut world = hub.lock();
        let id = world.any_id(c)?;
        let at = id
            .memberships
            .iter()
            .position(|membership| membership.group == group)
            .ok_or(libc::EADDRNOTAVAIL)?;
        id.memberships.remove(at)
    };
    // SAFETY: the identifier was looked up, and this call is the application's on it.
    let qp = unsafe { (*c).qp };
    if membership.is_attached && !qp.is_null() {
        let gid = ibv_gid { raw: group.0 };
        // SAFETY: the queue pair is the identifier's.
        verbs::done(unsafe { verbs::ibv_detach_mcast(qp, &gid, 0) })?;
    }
    Ok(())
}

/// Leaves every group.
pub(super) fn leave_all(hub: &Hub, c: *mut rdma_cm_id) {
    loop {
        let Some(group) = hub.lock().any_id(c).ok().and_then(|id| Some(id.memberships.first()?.group)) else {
            return;
        };
        // The queue pair may be gone already, and its attachments with it.
        let _ = leave_group(hub, c, group);
    }
}

fn leave(c: *mut rdma_cm_id, address: SocketAddr) -> Result<(), c_int> {
    let hub = hub()?;
    let group = {
        let mut world = hub.lock();
        let id = world.id(c)?;
        let joined = id.memberships.iter().find(|membership| membership.address.ip() == address.ip());
        joined.ok_or(libc::EADDRNOTAVAIL)?.group
    };
    leave_group(hub, c, group)
}

c_api! {
    fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
        minus_one((|| leave(id, address::read(addr)?))())
    }
}

c_waits! {
    fn rdma_join_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr, context: *mut c_void) -> c_int |kept| {
        minus_one((|| {
            let address = address::read(addr)?;
            in_steps(hub()?, id, kept, || join(id, address, RDMA_MC_JOIN_FLAG_FULLMEMBER, context))
        })())
    }

    fn rdma_join_multicast_ex(
        id: *mut rdma_cm_id,
        mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
        context: *mut c_void,
    ) -> c_int |kept| {
        minus_one((|| {
            let attributes = input(mc_join_attr)?;
            let known = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
            if attributes.comp_mask & !known != 0 {
                return Err(libc::ENOTSUP);
            }
            if attributes.comp_mask != known {
                return Err(libc::EINVAL);
            }
            let address = address::read(attributes.addr)?;
            in_steps(hub()?, id, kept, || join(id, address, attributes.join_flags, context))
        })())
    }
}
