//! Changing and asking a queue pair's attributes.

use crate::abi::*;
use crate::ah::{address_of, attr_of};
use crate::boundary::{c_api, c_ops, code, input};
use crate::limits::MAX_RD_ATOMIC;
use crate::qp::Qp;
use crate::query::mtu_of;
use crate::refusal::refused;
use crate::registry;
use crate::{env, errno, faults, reach, report};
use highwire_verbs::{
    Access, Address, AttrMask, Gid, Mtu, QpAttr, QpState, Recovery, Service, check_attributes,
};
use highwire_wire::{Psn, Qpn};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

pub(crate) fn state_of(state: ibv_qp_state) -> Result<QpState, c_int> {
    Ok(match state {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::Sqd,
        IBV_QPS_SQE => QpState::Sqe,
        IBV_QPS_ERR => QpState::Error,
        _ => return Err(refused(libc::EINVAL, || format!("{state} is no ibv_qp_state"))),
    })
}

fn to_state(state: QpState) -> ibv_qp_state {
    match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::Rtr => IBV_QPS_RTR,
        QpState::Rts => IBV_QPS_RTS,
        QpState::Sqd => IBV_QPS_SQD,
        QpState::Sqe => IBV_QPS_SQE,
        QpState::Error => IBV_QPS_ERR,
    }
}

fn path_mtu(mtu: ibv_mtu, offered: Mtu) -> Result<Mtu, c_int> {
    let wrong = || {
        refused(libc::EINVAL, || {
            let active = mtu_of(offered);
            format!("path_mtu is {mtu}; it is one of IBV_MTU_256 (1) to the port's active_mtu ({active})")
        })
    };
    let found = Mtu::ALL.into_iter().find(|known| mtu_of(*known) == mtu).ok_or_else(wrong)?;
    if found.bytes() <= offered.bytes() { Ok(found) } else { Err(wrong()) }
}

/// The peers' rights through a queue pair. Drivers must ignore bits for operations that a device has not,
/// such as FLUSH: the kernel passes them on unchecked, and cards' drivers look only at those that they know.
fn access_of_qp(bits: c_uint) -> Access {
    Access::from_bits_truncate(bits)
}

/// The device has neither a second path nor resizing.
const UNSUPPORTED: c_uint = IBV_QP_ALT_PATH | IBV_QP_CAP | IBV_QP_RATE_LIMIT;

fn modify(qp: &Qp, attr: &ibv_qp_attr, mask: c_uint) -> Result<(), c_int> {
    let host = qp.host()?;
    if qp.spreads() {
        // It works from the beginning, and has no queues whose state could change.
        let reason =
            || "a queue pair with an indirection table has no states: it works from the beginning".into();
        return Err(refused(libc::EOPNOTSUPP, reason));
    }
    let from = host.state();
    // perftest gives each half of an XRC connection what belongs to the other as well.
    let mask = match qp.service {
        Service::XrcInitiator => mask & !(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
        Service::XrcTarget => mask & !(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY),
        _ => mask,
    };
    let has = |bit: c_uint| mask & bit != 0;
    if has(IBV_QP_CUR_STATE) && state_of(attr.cur_qp_state)? != from {
        return Err(refused(libc::EINVAL, || format!("cur_qp_state is not the state that it is in, {from}")));
    }
    let to = if has(IBV_QP_STATE) { state_of(attr.qp_state)? } else { from };
    check_attributes(qp.service, from, to, AttrMask(mask)).map_err(|error| errno::of_modify(&error))?;
    if has(UNSUPPORTED) {
        let reason =
            || "alternate paths, resizing and rate limits do not exist here: clear their bits in attr_mask";
        return Err(refused(libc::EOPNOTSUPP, || reason().to_string()));
    }
    let index = qp.context.index;
    let port = match has(IBV_QP_PORT) {
        true => faults::check_port(index, u32::from(attr.port_num))?,
        false => qp.port.load(Ordering::Relaxed),
    };
    if has(IBV_QP_AV) && to == QpState::Rtr && from != to && attr.ah_attr.port_num != port {
        let asked = attr.ah_attr.port_num;
        faults::check_port(index, u32::from(asked))
            .map_err(|errno| refused(errno, || format!("ah_attr.{}", faults::ports(index, asked.into()))))?;
        return Err(refused(libc::EINVAL, || {
            format!("ah_attr.port_num is {asked}; the queue pair was given port {port} at INIT")
        }));
    }
    if has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0 {
        let index = attr.pkey_index;
        return Err(refused(libc::EINVAL, || {
            format!("pkey_index is {index}; the table has the default at 0 only")
        }));
    }
    let reads =
        [(IBV_QP_MAX_QP_RD_ATOMIC, attr.max_rd_atomic), (IBV_QP_MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic)];
    if let Some((_, value)) = reads.iter().find(|(bit, value)| has(*bit) && *value > MAX_RD_ATOMIC) {
        let limit = "max_qp_rd_atom of ibv_query_device";
        let reason =
            || format!("max_rd_atomic or max_dest_rd_atomic is {value}; at most {MAX_RD_ATOMIC} ({limit})");
        return Err(refused(libc::EINVAL, reason));
    }
    let offered = qp.context.device.mtu();
    let begins = from == QpState::Rtr && to == QpState::Rts && qp.service == Service::Rc;
    // As cards do, whose contexts have three or five bits for these fields, and whose drivers look at no others.
    let change = QpAttr {
        state: has(IBV_QP_STATE).then_some(to),
        access: has(IBV_QP_ACCESS_FLAGS).then(|| access_of_qp(attr.qp_access_flags)),
        qkey: has(IBV_QP_QKEY).then_some(attr.qkey),
        address: has(IBV_QP_AV).then(|| address_of(&attr.ah_attr, index)).transpose()?,
        remote_qpn: has(IBV_QP_DEST_QPN).then(|| Qpn::new(attr.dest_qp_num)),
        path_mtu: has(IBV_QP_PATH_MTU).then(|| path_mtu(attr.path_mtu, offered)).transpose()?,
        rq_psn: has(IBV_QP_RQ_PSN).then(|| Psn::new(attr.rq_psn)),
        sq_psn: has(IBV_QP_SQ_PSN).then(|| Psn::new(attr.sq_psn)),
        max_dest_rd_atomic: has(IBV_QP_MAX_DEST_RD_ATOMIC).then_some(attr.max_dest_rd_atomic),
        max_rd_atomic: has(IBV_QP_MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic),
        min_rnr_timer: has(IBV_QP_MIN_RNR_TIMER).then_some(attr.min_rnr_timer & 31),
        timeout: has(IBV_QP_TIMEOUT).then_some(attr.timeout),
        retry_count: has(IBV_QP_RETRY_CNT).then_some(attr.retry_cnt & 7),
        rnr_retry: has(IBV_QP_RNR_RETRY).then_some(attr.rnr_retry & 7),
        recovery: begins.then(|| recovery(qp)),
        notify_drained: has(IBV_QP_EN_SQD_ASYNC_NOTIFY).then_some(attr.en_sqd_async_notify != 0),
    };
    host.modify(&change).map_err(|error| errno::of_modify(&error))?;
    qp.port.store(port, Ordering::Relaxed);
    if has(IBV_QP_AV) {
        qp.peer_port.store(faults::behind(Gid(attr.ah_attr.grh.dgid.raw)).1, Ordering::Relaxed);
    }
    if faults::may_refuse() && (has(IBV_QP_PORT) || has(IBV_QP_AV)) {
        let now = host.query();
        let peer = has(IBV_QP_AV).then(|| (now.address.gid, now.remote_qpn.value()));
        faults::place(index, qp.number(), port, peer);
    }
    if to == QpState::Rtr && from != to && env::is_loud() {
        let now = host.query();
        // A datagram service has no peer of its own, nor have raw packets.
        if matches!(qp.service, Service::Rc | Service::Uc) || qp.service.is_xrc() {
            reach::tell(qp, now.address.gid, now.remote_qpn.value());
        }
    }
    if to == QpState::Reset {
        qp.forget_completions();
    }
    Ok(())
}

/// As the environment wishes, unless the peer has declined through ECE.
fn recovery(qp: &Qp) -> Recovery {
    let ece = qp.ece.lock().unwrap_or_else(PoisonError::into_inner);
    let wish = env::settings().map_or(Recovery::GoBackN, |settings| settings.recovery);
    if ece.allows_irn() { wish } else { Recovery::GoBackN }
}

fn query(qp: &Qp) -> Result<ibv_qp_attr, c_int> {
    let now = qp.host()?.query();
    let state = to_state(now.state);
    let port = qp.port.load(Ordering::Relaxed);
    let peer = Address {
        gid: faults::gid_of_port(now.address.gid, qp.peer_port.load(Ordering::Relaxed)),
        ..now.address
    };
    Ok(ibv_qp_attr {
        qp_state: state,
        cur_qp_state: state,
        path_mtu: mtu_of(now.mtu),
        qkey: now.qkey,
        rq_psn: now.rq_psn.value(),
        sq_psn: now.sq_psn.value(),
        dest_qp_num: now.remote_qpn.value(),
        qp_access_flags: now.access.bits(),
        cap: qp.caps,
        ah_attr: attr_of(&peer, port),
        max_rd_atomic: now.max_rd_atomic,
        max_dest_rd_atomic: now.max_dest_rd_atomic,
        min_rnr_timer: now.min_rnr_timer,
        port_num: port,
        timeout: now.timeout,
        retry_cnt: now.retry_count,
        rnr_retry: now.rnr_retry,
        sq_draining: u8::from(now.is_draining),
        ..ibv_qp_attr::default()
    })
}

c_api! {
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
        let run = || {
            let found = registry::find::<Qp>(qp)?;
            // The last field is newer than some programs.
            let bytes = std::mem::offset_of!(ibv_qp_attr, rate_limit);
            let mut known = ibv_qp_attr::default();
            if attr.is_null() {
                return Err(libc::EINVAL);
            }
            unsafe { std::ptr::copy_nonoverlapping(attr.cast::<u8>(), (&raw mut known).cast::<u8>(), bytes) };
            modify(&found, &known, mask as c_uint)?;
            report::stands(&found.context.device);
            if mask as c_uint & IBV_QP_STATE != 0 {
                unsafe { (*qp).state = known.qp_state };
            }
            Ok(())
        };
        code(run())
    }

    fn ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, _mask: c_int, init: *mut ibv_qp_init_attr) -> c_int {
        let run = || {
            let found = registry::find::<Qp>(qp)?;
            let now = query(&found)?;
            if attr.is_null() || init.is_null() {
                return Err(libc::EINVAL);
            }
            let bytes = std::mem::offset_of!(ibv_qp_attr, rate_limit);
            unsafe { std::ptr::copy_nonoverlapping((&raw const now).cast::<u8>(), attr.cast::<u8>(), bytes) };
            let c = unsafe { &*qp };
            let made_with = ibv_qp_init_attr {
                qp_context: c.qp_context,
                send_cq: c.send_cq,
                recv_cq: c.recv_cq,
                srq: c.srq,
                cap: found.caps,
                qp_type: c.qp_type,
                sq_sig_all: c_int::from(found.signal_all),
            };
            unsafe {
                init.write(made_with);
                (*qp).state = now.qp_state;
            }
            Ok(())
        };
        code(run())
    }

    /// A message's last bytes become visible last, but those before them in any order.
    fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, _op: ibv_wr_opcode, _flags: u32) -> c_int {
        let _ = registry::find::<Qp>(qp);
        0
    }
}

c_ops! {
    fn modify_qp_rate_limit(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int {
        let run = || {
            registry::find::<Qp>(qp)?;
            unsafe { input(attr)? };
            Err(libc::EOPNOTSUPP)
        };
        code(run())
    }
}
