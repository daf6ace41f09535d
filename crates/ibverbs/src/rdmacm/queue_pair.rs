//! Queue pairs, shared receive queues and completion queues that belong to an identifier.

use std::ptr::null_mut;

use libc::{c_int, c_void};

use super::abi::rdma_cm_id;
use super::hub::{Hub, hub};
use super::{attributes, connect, verbs};
use crate::abi::*;
use crate::boundary::{c_api, minus_one};
use crate::refusal::refused;

/// The protection domain that the application brought, or the identifier's.
fn domain(hub: &Hub, c: &rdma_cm_id, brought: *mut ibv_pd) -> Result<*mut ibv_pd, c_int> {
    if c.verbs.is_null() {
        let reason = || {
            "the identifier has no device yet: rdma_resolve_addr or rdma_bind_addr comes first".to_string()
        };
        return Err(refused(libc::EINVAL, reason));
    }
    if brought.is_null() {
        return if c.pd.is_null() { hub.device()?.default_pd() } else { Ok(c.pd) };
    }
    // SAFETY: the application's protection domain is alive.
    let is_of_device = unsafe { (*brought).context } == c.verbs;
    let reason = || "the protection domain belongs to another ibv_context than id->verbs".to_string();
    if is_of_device { Ok(brought) } else { Err(refused(libc::EINVAL, reason)) }
}

/// A completion queue with a channel of its own; its context is the identifier, which inline functions of the header rely on.
fn completion_queue(c: *mut rdma_cm_id, entries: u32) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), c_int> {
    // SAFETY: the identifier is alive and bound to a device; what is made is taken apart on failure.
    unsafe {
        let channel = verbs::made(verbs::ibv_create_comp_channel((*c).verbs))?;
        let entries = c_int::try_from(entries.max(1)).map_err(|_| libc::EINVAL)?;
        match verbs::made(verbs::ibv_create_cq((*c).verbs, entries, c.cast::<c_void>(), channel, 0)) {
            Ok(cq) => Ok((channel, cq)),
            Err(errno) => {
                verbs::ibv_destroy_comp_channel(channel);
                Err(errno)
            }
        }
    }
}

/// Makes the completion queues that the application did not bring.
fn completion_queues(
    c: *mut rdma_cm_id,
    (send, receive): (&mut *mut ibv_cq, &mut *mut ibv_cq),
    cap: &ibv_qp_cap,
) -> Result<(), c_int> {
    // SAFETY: the identifier is alive, and this call is the application's on it.
    let id = unsafe { &mut *c };
    if send.is_null() {
        if id.send_cq.is_null() {
            (id.send_cq_channel, id.send_cq) = completion_queue(c, cap.max_send_wr)?;
        }
        *send = id.send_cq;
    }
    if receive.is_null() {
        if id.recv_cq.is_null() {
            (id.recv_cq_channel, id.recv_cq) = completion_queue(c, cap.max_recv_wr)?;
        }
        *receive = id.recv_cq;
    }
    Ok(())
}

/// Destroys the completion queues that were made here, unless they are still in use.
fn destroy_completion_queues(c: &mut rdma_cm_id) {
    if !c.qp.is_null() || !c.srq.is_null() {
        return;
    }
    for (channel, cq) in [(&mut c.send_cq_channel, &mut c.send_cq), (&mut c.recv_cq_channel, &mut c.recv_cq)]
    {
        // SAFETY: both were made here and belong to the identifier.
        unsafe {
            if !cq.is_null() {
                verbs::ibv_destroy_cq(std::mem::replace(cq, null_mut()));
            }
            if !channel.is_null() {
                verbs::ibv_destroy_comp_channel(std::mem::replace(channel, null_mut()));
            }
        }
    }
}

/// The attributes of a new queue pair: classic or extended.
pub(super) enum Recipe<'a> {
    /// `rdma_create_qp`.
    Classic(*mut ibv_pd, &'a mut ibv_qp_init_attr),
    /// `rdma_create_qp_ex`.
    Extended(&'a mut ibv_qp_init_attr_ex),
}

/// Makes the queue pair of an identifier and moves it as far as it can go without a peer.
pub(super) fn create(hub: &Hub, c: *mut rdma_cm_id, recipe: Recipe<'_>) -> Result<(), c_int> {
    let (qp_type, is_datagram) = {
        let mut world = hub.lock();
        let id = world.id(c)?;
        (id.qp_type, id.is_datagram())
    };
    // SAFETY: the identifier was looked up, and this call is the application's on it.
    let id = unsafe { &mut *c };
    if !id.qp.is_null() {
        return Err(refused(libc::EINVAL, || "the identifier has a queue pair already".to_string()));
    }
    let made = match recipe {
        Recipe::Classic(pd, attributes) => classic(hub, c, qp_type, pd, attributes),
        Recipe::Extended(attributes) => extended(hub, c, qp_type, attributes),
    };
    let (qp, pd) = made.inspect_err(|_| destroy_completion_queues(id))?;
    let ready = attributes::advance(hub, c, qp, IBV_QPS_INIT)
        .and_then(|()| if is_datagram { connect::make_datagrams_flow(hub, c, qp) } else { Ok(()) });
    if let Err(errno) = ready {
        // SAFETY: it was made above.
        unsafe { verbs::ibv_destroy_qp(qp) };
        destroy_completion_queues(id);
        return Err(errno);
    }
    (id.qp, id.pd) = (qp, pd);
    Ok(())
}

/// EINVAL, and its reason.
fn other_type(implied: ibv_qp_type, asked: ibv_qp_type) -> c_int {
    refused(libc::EINVAL, || {
        format!(
            "qp_type is {asked}, and the identifier's port space implies {implied} (RDMA_PS_TCP RC, RDMA_PS_UDP UD)"
        )
    })
}

fn classic(
    hub: &Hub,
    c: *mut rdma_cm_id,
    qp_type: ibv_qp_type,
    pd: *mut ibv_pd,
    attributes: &mut ibv_qp_init_attr,
) -> Result<(*mut ibv_qp, *mut ibv_pd), c_int> {
    // SAFETY: as in `create`.
    let (pd, srq) = unsafe { (domain(hub, &*c, pd)?, (*c).srq) };
    if qp_type != attributes.qp_type {
        return Err(other_type(qp_type, attributes.qp_type));
    }
    completion_queues(c, (&mut attributes.send_cq, &mut attributes.recv_cq), &attributes.cap)?;
    if attributes.srq.is_null() {
        attributes.srq = srq;
    }
    // SAFETY: the domain is alive and the attributes are the application's.
    Ok((verbs::made(unsafe { verbs::ibv_create_qp(pd, attributes) })?, pd))
}

fn extended(
    hub: &Hub,
    c: *mut rdma_cm_id,
    qp_type: ibv_qp_type,
    attributes: &mut ibv_qp_init_attr_ex,
) -> Result<(*mut ibv_qp, *mut ibv_pd), c_int> {
    if qp_type != attributes.qp_type {
        return Err(other_type(qp_type, attributes.qp_type));
    }
    let brought = if attributes.comp_mask & IBV_QP_INIT_ATTR_PD != 0 { attributes.pd } else { null_mut() };
    // SAFETY: as in `create`.
    let (srq, context) = unsafe { ((*c).srq, (*c).verbs) };
    let mut pd = null_mut();
    if qp_type != IBV_QPT_XRC_RECV {
        // SAFETY: as in `create`.
        pd = domain(hub, unsafe { &*c }, brought)?;
        attributes.pd = pd;
        attributes.comp_mask |= IBV_QP_INIT_ATTR_PD;
        completion_queues(c, (&mut attributes.send_cq, &mut attributes.recv_cq), &attributes.cap)?;
        if attributes.srq.is_null() {
            attributes.srq = srq;
        }
    }
    // SAFETY: the context is open and the attributes are the application's.
    Ok((verbs::made(unsafe { crate::qp::create_qp_ex(context, attributes) })?, pd))
}

/// Takes the queue pair of an identifier apart.
pub(super) fn destroy(c: *mut rdma_cm_id) -> Result<(), c_int> {
    hub()?.lock().any_id(c)?;
    // SAFETY: the identifier was looked up, and this call is the application's on it.
    let id = unsafe { &mut *c };
    if !id.qp.is_null() {
        // SAFETY: the queue pair is the identifier's.
        unsafe { verbs::ibv_destroy_qp(std::mem::replace(&mut id.qp, null_mut())) };
    }
    destroy_completion_queues(id);
    Ok(())
}

fn create_srq(c: *mut rdma_cm_id, attributes: &mut ibv_srq_init_attr_ex) -> Result<(), c_int> {
    let hub = hub()?;
    hub.lock().id(c)?;
    // SAFETY: the identifier was looked up, and this call is the application's on it.
    let id = unsafe { &mut *c };
    if !id.srq.is_null() || id.verbs.is_null() {
        return Err(libc::EINVAL);
    }
    let brought = if attributes.comp_mask & IBV_SRQ_INIT_ATTR_PD != 0 { attributes.pd } else { null_mut() };
    let pd = domain(hub, id, brought)?;
    attributes.pd = pd;
    attributes.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    let is_xrc = attributes.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0 && attributes.srq_type == IBV_SRQT_XRC;
    if is_xrc && attributes.cq.is_null() {
        if id.recv_cq.is_null() {
            (id.recv_cq_channel, id.recv_cq) = completion_queue(c, attributes.attr.max_wr)?;
        }
        attributes.cq = id.recv_cq;
        attributes.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    }
    // SAFETY: the context is open and the attributes are the application's.
    let made = verbs::made(unsafe { crate::srq::create_srq_ex(id.verbs, attributes) });
    let srq = made.inspect_err(|_| destroy_completion_queues(id))?;
    (id.srq, id.pd) = (srq, pd);
    Ok(())
}

/// Takes the shared receive queue of an identifier apart.
pub(super) fn destroy_srq(c: *mut rdma_cm_id) -> Result<(), c_int> {
    hub()?.lock().any_id(c)?;
    // SAFETY: the identifier was looked up, and this call is the application's on it.
    let id = unsafe { &mut *c };
    if !id.srq.is_null() {
        // SAFETY: the queue is the identifier's.
        unsafe { verbs::ibv_destroy_srq(std::mem::replace(&mut id.srq, null_mut())) };
    }
    destroy_completion_queues(id);
    Ok(())
}

c_api! {
    fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> c_int {
        minus_one((|| {
            let attributes = qp_init_attr.as_mut().ok_or(libc::EINVAL)?;
            create(hub()?, id, Recipe::Classic(pd, attributes))
        })())
    }

    fn rdma_create_qp_ex(id: *mut rdma_cm_id, qp_init_attr: *mut ibv_qp_init_attr_ex) -> c_int {
        minus_one((|| {
            let attributes = qp_init_attr.as_mut().ok_or(libc::EINVAL)?;
            create(hub()?, id, Recipe::Extended(attributes))
        })())
    }

    fn rdma_destroy_qp(id: *mut rdma_cm_id) {
        // The call has no result: an invalid identifier has no queue pair.
        let _ = destroy(id);
    }

    fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
        minus_one((|| create_srq(id, attr.as_mut().ok_or(libc::EINVAL)?))())
    }

    fn rdma_create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> c_int {
        minus_one((|| {
            let classic = attr.as_mut().ok_or(libc::EINVAL)?;
            let mut extended: ibv_srq_init_attr_ex = std::mem::zeroed();
            (extended.srq_context, extended.attr) = (classic.srq_context, classic.attr);
            (extended.comp_mask, extended.srq_type) = (IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD, IBV_SRQT_BASIC);
            extended.pd = pd;
            create_srq(id, &mut extended)?;
            classic.attr = extended.attr;
            Ok(())
        })())
    }

    fn rdma_destroy_srq(id: *mut rdma_cm_id) {
        let _ = destroy_srq(id);
    }
}
