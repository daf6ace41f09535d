//! Endpoints: identifiers with their queue pairs, made in one call and used synchronously.

use libc::{c_int, c_void, sockaddr};

use super::abi::*;
use super::address;
use super::channel::{acknowledge, next_event};
use super::hub::{Hub, hub};
use super::queue_pair::{self, Recipe};
use super::{id, resolve};
use crate::abi::{ibv_context, ibv_pd, ibv_qp_init_attr, ibv_qp_type};
use crate::boundary::{answer, c_api, c_waits, input, minus_one};
use crate::cancel;

/// The template for queue pairs of connections to a passive endpoint.
#[derive(Clone, Copy)]
pub(super) struct Template {
    pd: *mut ibv_pd,
    attributes: ibv_qp_init_attr,
}

// SAFETY: pointers of the application, handed back to verbs as they came.
unsafe impl Send for Template {}

fn create(
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> Result<*mut rdma_cm_id, c_int> {
    // SAFETY: as rdma_create_ep(3) describes the argument.
    let res = unsafe { input(res) }?;
    let hub = hub()?;
    let port_space = rdma_port_space::try_from(res.ai_port_space).map_err(|_| libc::EINVAL)?;
    let qp_type = ibv_qp_type::try_from(res.ai_qp_type).map_err(|_| libc::EINVAL)?;
    let c = id::create_on(hub, std::ptr::null_mut(), std::ptr::null_mut(), port_space, Some(qp_type))?;
    let made = if res.ai_flags & RAI_PASSIVE != 0 {
        passive(hub, c, &res, pd, attributes)
    } else {
        active(hub, c, &res, pd, attributes)
    };
    match made {
        Ok(()) => Ok(c),
        Err(errno) => {
            destroy(hub, c);
            Err(errno)
        }
    }
}

fn passive(
    hub: &Hub,
    c: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> Result<(), c_int> {
    // SAFETY: addresses are as long as their families say.
    let source = unsafe { address::read(res.ai_src_addr) }?;
    let mut world = hub.lock();
    resolve::bind(hub, &mut world, c, source)?;
    if !attributes.is_null() {
        // SAFETY: rdma_create_ep(3) says what they are.
        let attributes = unsafe { input(attributes) }?;
        let id = world.id(c)?;
        id.template =
            Some(Template { pd, attributes: ibv_qp_init_attr { qp_type: id.qp_type, ..attributes } });
    }
    Ok(())
}

fn active(
    hub: &Hub,
    c: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> Result<(), c_int> {
    // SAFETY: addresses are as long as their families say.
    let address = |address: *mut sockaddr| unsafe { address::read(address) };
    let source = if res.ai_src_addr.is_null() { None } else { Some(address(res.ai_src_addr)?) };
    resolve::resolve_address(hub, c, source, address(res.ai_dst_addr)?)?;
    resolve::resolve_route(hub, c)?;
    // SAFETY: rdma_create_ep(3) says what they are.
    if let Some(attributes) = unsafe { attributes.as_mut() } {
        attributes.qp_type = res.ai_qp_type as ibv_qp_type;
        queue_pair::create(hub, c, Recipe::Classic(pd, attributes))?;
    }
    Ok(())
}

fn destroy(hub: &Hub, c: *mut rdma_cm_id) {
    // Destroying missing parts fails, which does not matter: the caller expects no result.
    let _ = queue_pair::destroy(c);
    let _ = queue_pair::destroy_srq(c);
    let _ = id::destroy(hub, c);
}

/// The next request that a synchronous listener was sent, with a queue pair if it has a template.
fn request(hub: &Hub, listener: *mut rdma_cm_id) -> Result<*mut rdma_cm_id, c_int> {
    let (channel, template) = {
        let mut world = hub.lock();
        let id = world.id(listener)?;
        if !id.is_synchronous {
            return Err(libc::EINVAL);
        }
        (id.channel, id.template)
    };
    // SAFETY: the identifier was looked up, and this call is the application's on it.
    let old = unsafe { std::mem::replace(&mut (*listener).event, std::ptr::null_mut()) };
    if !old.is_null() {
        acknowledge(hub, old)?;
    }
    let event = next_event(hub, channel, &mut false)?;
    // SAFETY: the event is ours until it is acknowledged.
    let (kind, c) = unsafe { ((*event).event, (*event).id) };
    if kind != RDMA_CM_EVENT_CONNECT_REQUEST {
        acknowledge(hub, event)?;
        return Err(libc::EINVAL);
    }
    // Queue pair types of the template and of the connection are the same: a mismatch is an error of the peer.
    let with_queue_pair = template.map_or(Ok(()), |mut template| {
        queue_pair::create(hub, c, Recipe::Classic(template.pd, &mut template.attributes))
    });
    if let Err(errno) = with_queue_pair {
        acknowledge(hub, event)?;
        id::destroy(hub, c)?;
        return Err(errno);
    }
    // SAFETY: the identifier was made for this event.
    unsafe { (*c).event = event };
    Ok(c)
}

c_api! {
    fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
        answer((|| {
            let device = hub().and_then(|hub| hub.device());
            let count = usize::from(device.is_ok());
            // From C's allocator, as the list is a program's to free.
            let list = libc::calloc(count + 1, size_of::<*mut ibv_context>()).cast::<*mut ibv_context>();
            if list.is_null() {
                return Err(libc::ENOMEM);
            }
            if let Ok(device) = device {
                list.write(device.context());
            }
            if !num_devices.is_null() {
                num_devices.write(count as c_int);
            }
            Ok(list)
        })())
    }

    fn rdma_free_devices(list: *mut *mut ibv_context) {
        libc::free(list.cast::<c_void>());
    }
}

c_waits! {
    // Its parts wait for nothing: a cancellation is acted on before the first, and finds nothing half made.
    fn rdma_create_ep(
        id: *mut *mut rdma_cm_id,
        res: *mut rdma_addrinfo,
        pd: *mut ibv_pd,
        qp_init_attr: *mut ibv_qp_init_attr,
    ) -> c_int |_: &mut ()| {
        minus_one((|| {
            if id.is_null() {
                return Err(libc::EINVAL);
            }
            *id = cancel::whole(|| create(res, pd, qp_init_attr))?;
            Ok(())
        })())
    }

    // A cancelled thread leaves the identifier, which can be destroyed again.
    fn rdma_destroy_ep(id: *mut rdma_cm_id) |_: &mut ()| {
        if let Ok(hub) = hub() {
            destroy(hub, id);
        }
    }

    fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int |_: &mut ()| {
        minus_one((|| {
            if id.is_null() {
                return Err(libc::EINVAL);
            }
            *id = request(hub()?, listen)?;
            Ok(())
        })())
    }
}
