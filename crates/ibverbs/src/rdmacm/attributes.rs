//! A queue pair's attributes at each step of a connection.

use highwire_verbs::Gid;
use libc::c_int;

use super::abi::{RDMA_MAX_RESP_RES, rdma_cm_id};
use super::hub::{Hub, hub};
use super::id::Id;
use super::verbs;
use crate::abi::*;
use crate::boundary::{c_api, minus_one};

/// The index of the GID that connections use: a table of one address, as `rxe` numbers it.
const GID_INDEX: u8 = 1;

/// The way from here to a GID.
pub(super) fn route(id: &Id, to: Gid) -> ibv_ah_attr {
    let flow_label = id.terms.psn.value() & 0xF_FFFF;
    let grh = ibv_global_route {
        dgid: ibv_gid { raw: to.0 },
        flow_label,
        sgid_index: GID_INDEX,
        hop_limit: 64,
        traffic_class: id.options.tos,
    };
    ibv_ah_attr { grh, is_global: 1, port_num: 1, ..ibv_ah_attr::default() }
}

/// The attributes, and which of them count, that take a queue pair of `id` to `state` (`rdma_init_qp_attr(3)`).
///
/// # Errors
/// EINVAL for a state that the conversation has not come to, or that is not on the way.
pub(super) fn of(id: &Id, mtu: u8, state: ibv_qp_state) -> Result<(ibv_qp_attr, u32), c_int> {
    let mut attributes = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
    let mask = match state {
        IBV_QPS_INIT => init(id, &mut attributes),
        IBV_QPS_RTR if id.is_datagram() => IBV_QP_STATE,
        IBV_QPS_RTS if id.is_datagram() => {
            attributes.sq_psn = id.terms.psn.value();
            IBV_QP_STATE | IBV_QP_SQ_PSN
        }
        IBV_QPS_RTR => ready_to_receive(id, mtu, &mut attributes)?,
        IBV_QPS_RTS => ready_to_send(id, &mut attributes)?,
        _ => return Err(libc::EINVAL),
    };
    Ok((attributes, mask))
}

fn init(id: &Id, attributes: &mut ibv_qp_attr) -> u32 {
    attributes.port_num = 1;
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if id.is_datagram() {
        attributes.qkey = id.terms.qkey;
        return mask | IBV_QP_QKEY;
    }
    attributes.qp_access_flags =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    mask | IBV_QP_ACCESS_FLAGS
}

/// From the peer: its queue pair's number, and the PSN at which this end is to begin sending.
fn peer(id: &Id) -> Result<(u32, u32), c_int> {
    match (&id.exchange.request, &id.exchange.reply) {
        (Some(request), _) => Ok((request.qpn.value(), request.starting_psn.value())),
        (None, Some(reply)) => Ok((reply.qpn.value(), reply.starting_psn.value())),
        (None, None) => Err(libc::EINVAL),
    }
}

fn ready_to_receive(id: &Id, mtu: u8, attributes: &mut ibv_qp_attr) -> Result<u32, c_int> {
    (attributes.dest_qp_num, _) = peer(id)?;
    // Each end says at which PSN the other is to begin (IBTA §12.7.31).
    attributes.rq_psn = id.terms.psn.value();
    // The active end sets the MTU; the passive end can only have a smaller one (IBTA §12.7.27).
    attributes.path_mtu =
        u32::from(id.exchange.request.as_ref().map_or(mtu, |request| request.path_mtu.min(mtu)));
    attributes.ah_attr = route(id, id.route.peer);
    let mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if id.qp_type == IBV_QPT_UC {
        return Ok(mask);
    }
    attributes.max_dest_rd_atomic = id.terms.responder_resources;
    // The longest delay, 655 ms (rdma_connect(3)).
    attributes.min_rnr_timer = 0;
    Ok(mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
}

fn ready_to_send(id: &Id, attributes: &mut ibv_qp_attr) -> Result<u32, c_int> {
    (_, attributes.sq_psn) = peer(id)?;
    let mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if id.qp_type == IBV_QPT_UC {
        return Ok(mask);
    }
    attributes.timeout = id.options.ack_timeout;
    (attributes.retry_cnt, attributes.rnr_retry) = match (&id.exchange.request, &id.exchange.reply) {
        (Some(request), _) => (request.retry_count, request.rnr_retry_count),
        (None, Some(reply)) => (id.terms.retry_count, reply.rnr_retry_count),
        (None, None) => (id.terms.retry_count, 7),
    };
    attributes.max_rd_atomic = id.terms.initiator_depth;
    Ok(mask | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
}

/// Takes the queue pair of an identifier to a state.
pub(super) fn advance(
    hub: &Hub,
    c: *mut rdma_cm_id,
    qp: *mut ibv_qp,
    state: ibv_qp_state,
) -> Result<(), c_int> {
    let (mut attributes, mask) = of(hub.lock().id(c)?, hub.mtu, state)?;
    // SAFETY: the queue pair is the identifier's, set by the application or made for it.
    unsafe { verbs::modify(qp, &mut attributes, mask) }
}

/// The peer is known: the queue pair is made ready to receive and to send.
pub(super) fn make_ready(hub: &Hub, c: *mut rdma_cm_id, qp: *mut ibv_qp) -> Result<(), c_int> {
    {
        let mut ece = hub.lock().id(c)?.terms.remote_ece;
        if ece.vendor_id != 0 {
            // SAFETY: as in `advance`. A queue pair that knows no options goes without.
            unsafe { verbs::ibv_set_ece(qp, &mut ece) };
        }
    }
    advance(hub, c, qp, IBV_QPS_RTR)?;
    advance(hub, c, qp, IBV_QPS_RTS)
}

/// As many READs and atomics as asked for, and as the device can do.
pub(super) fn depth(asked: u8, limit: u8) -> u8 {
    if asked == RDMA_MAX_RESP_RES { limit } else { asked.min(limit) }
}

c_api! {
    fn rdma_init_qp_attr(id: *mut rdma_cm_id, qp_attr: *mut ibv_qp_attr, qp_attr_mask: *mut c_int) -> c_int {
        minus_one((|| {
            if qp_attr.is_null() || qp_attr_mask.is_null() {
                return Err(libc::EINVAL);
            }
            let hub = hub()?;
            let (attributes, mask) = of(hub.lock().id(id)?, hub.mtu, (*qp_attr).qp_state)?;
            // A caller with an older header has fewer members.
            crate::boundary::output(&attributes, qp_attr, std::mem::offset_of!(ibv_qp_attr, rate_limit));
            *qp_attr_mask = mask as c_int;
            Ok(())
        })())
    }
}
