//! Receive work queues and tables of them, over which a raw packet queue pair spreads its frames.
//!
//! A work queue is a raw packet queue pair of the layer below that never sends and has no rules.

use crate::abi::*;
use crate::boundary::{answer, c_ops, code, input, zeroed_mutex};
use crate::context::Context;
use crate::cq::Cq;
use crate::errno;
use crate::limits::{MAX_SGE, MAX_SPREAD_LOG, MAX_WR};
use crate::pd::Pd;
use crate::post;
use crate::registry::{self, Object, Use, Used, Users};
use highwire_host::{QueuePair, QueuePairConfig};
use highwire_verbs::{QpAttr, QpCaps, QpState, Service};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A work queue.
#[repr(C)]
pub(crate) struct Wq {
    c: UnsafeCell<ibv_wq>,
    pub(crate) host: QueuePair,
    context: Arc<Context>,
    cq: Use<Cq>,
    _pd: Use<Pd>,
    users: Users,
}

// SAFETY: this side writes to `c` in `modify_wq` only, under verbs' own rules.
unsafe impl Send for Wq {}
// SAFETY: as above.
unsafe impl Sync for Wq {}

impl Object for Wq {
    type C = ibv_wq;
    const LIMIT: usize = crate::limits::MAX_QP as usize;
    fn as_c(&self) -> *mut ibv_wq {
        self.c.get()
    }
    fn handle(&self) -> u32 {
        // SAFETY: C's structure, which lives as long as the object.
        unsafe { (*self.c.get()).handle }
    }
}

impl Used for Wq {
    fn users(&self) -> &Users {
        &self.users
    }
}

/// A table of work queues.
#[repr(C)]
pub(crate) struct Table {
    c: UnsafeCell<ibv_rwq_ind_table>,
    pub(crate) queues: Vec<Use<Wq>>,
    users: Users,
    _context: Use<Context>,
}

// SAFETY: this side writes to `c` when it makes it, and never again.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Object for Table {
    type C = ibv_rwq_ind_table;
    const LIMIT: usize = crate::limits::MAX_QP as usize;
    fn as_c(&self) -> *mut ibv_rwq_ind_table {
        self.c.get()
    }
}

impl Used for Table {
    fn users(&self) -> &Users {
        &self.users
    }
}

fn state_of(state: QpState) -> ibv_wq_state {
    match state {
        QpState::Reset | QpState::Init => IBV_WQS_RESET,
        QpState::Error => IBV_WQS_ERR,
        _ => IBV_WQS_RDY,
    }
}

impl Wq {
    /// Drops its completions that the program has not polled yet.
    fn forget_completions(&self) {
        // Without memory for it they stay, which is no worse than before.
        let _ = self.cq.host.forget(self.host.qpn());
    }

    fn go_to(&self, to: ibv_wq_state) -> Result<(), c_int> {
        let steps: &[QpState] = match (state_of(self.host.state()), to) {
            (_, IBV_WQS_RESET) => &[QpState::Reset],
            (IBV_WQS_RESET, IBV_WQS_RDY) => &[QpState::Init, QpState::Rtr],
            (IBV_WQS_RDY, IBV_WQS_RDY) | (IBV_WQS_ERR, IBV_WQS_ERR) => &[],
            (IBV_WQS_RDY, IBV_WQS_ERR) => &[QpState::Error],
            _ => return Err(libc::EINVAL),
        };
        for state in steps {
            self.host.modify(&QpAttr::to_state(*state)).map_err(|error| errno::of_modify(&error))?;
        }
        if to == IBV_WQS_RESET {
            self.forget_completions();
        }
        Ok(())
    }
}

unsafe extern "C-unwind" fn post_recv(
    wq: *mut ibv_wq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    crate::boundary::guard(|| {
        // SAFETY: this function is reached through the work queue itself, so it is one of ours.
        let wq = unsafe { &*wq.cast::<Wq>() };
        // SAFETY: verbs' callers promise a chain of requests.
        unsafe { post::receives(wr, bad, ("ibv_post_wq_recv", None), |wr| wq.host.post_recv(wr)) }
    })
}

c_ops! {
    fn create_wq(context: *mut ibv_context, init: *mut ibv_wq_init_attr) -> *mut ibv_wq {
        let run = || {
            let context = registry::find::<Context>(context)?;
            let asked = unsafe { input(init)? };
            let has_flags = asked.comp_mask & IBV_WQ_INIT_ATTR_FLAGS != 0 && asked.create_flags != 0;
            if asked.comp_mask & !IBV_WQ_INIT_ATTR_FLAGS != 0 || has_flags {
                return Err(libc::EOPNOTSUPP);
            }
            let is_sized = (1..=MAX_WR).contains(&asked.max_wr) && asked.max_sge <= MAX_SGE;
            if asked.wq_type != IBV_WQT_RQ || !is_sized {
                return Err(libc::EINVAL);
            }
            let pd = Pd::of_context(asked.pd, &context)?;
            let cq = Use::<Cq>::find(asked.cq)?;
            if !Arc::ptr_eq(&cq.context, &context) {
                return Err(libc::EINVAL);
            }
            let caps = QpCaps {
                max_send_wr: 0,
                max_recv_wr: asked.max_wr,
                max_send_sge: 0,
                max_recv_sge: asked.max_sge.max(1),
                max_inline: 0,
            };
            let config = QueuePairConfig { caps, ..QueuePairConfig::new(Service::Raw, &cq.host) };
            let host = pd.host.queue_pair(&config).map_err(|error| errno::of_create(&error))?;
            let (mutex, cond) = zeroed_mutex();
            let number = host.qpn().value();
            let c = UnsafeCell::new(ibv_wq {
                context: context.as_c(),
                wq_context: asked.wq_context,
                pd: asked.pd,
                cq: asked.cq,
                wq_num: number,
                handle: number,
                state: IBV_WQS_RESET,
                wq_type: IBV_WQT_RQ,
                post_recv: Some(post_recv),
                mutex,
                cond,
                events_completed: 0,
                comp_mask: 0,
            });
            unsafe { (*init).max_sge = caps.max_recv_sge };
            registry::publish(Arc::new(Wq { c, host, context, cq, _pd: pd, users: Users::default() }))
        };
        answer(run())
    }

    fn modify_wq(wq: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int {
        let run = || {
            let found = registry::find::<Wq>(wq)?;
            let asked = unsafe { input(attr)? };
            let has = |bit| asked.attr_mask & bit != 0;
            if has(IBV_WQ_ATTR_FLAGS) {
                return Err(libc::EOPNOTSUPP);
            }
            let is_known = asked.attr_mask & !(IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE) == 0;
            let is_as_assumed =
                !has(IBV_WQ_ATTR_CURR_STATE) || asked.curr_wq_state == state_of(found.host.state());
            if !is_known || !is_as_assumed {
                return Err(libc::EINVAL);
            }
            if has(IBV_WQ_ATTR_STATE) {
                found.go_to(asked.wq_state)?;
                unsafe { (*wq).state = asked.wq_state };
            }
            Ok(())
        };
        code(run())
    }

    fn destroy_wq(wq: *mut ibv_wq) -> c_int {
        let run = || {
            let found = registry::find::<Wq>(wq)?;
            found.users.none()?;
            registry::withdraw::<Wq>(wq);
            found.forget_completions();
            Ok(())
        };
        code(run())
    }

    fn create_rwq_ind_table(
        context: *mut ibv_context,
        init: *mut ibv_rwq_ind_table_init_attr,
    ) -> *mut ibv_rwq_ind_table {
        let run = || {
            let context = Use::<Context>::find(context)?;
            let asked = unsafe { input(init)? };
            if asked.comp_mask != 0 || asked.log_ind_tbl_size > MAX_SPREAD_LOG || asked.ind_tbl.is_null() {
                return Err(libc::EINVAL);
            }
            let of_this = |index| {
                let queue = Use::<Wq>::find(unsafe { *asked.ind_tbl.add(index) })?;
                if Arc::ptr_eq(&queue.context, &context) { Ok(queue) } else { Err(libc::EINVAL) }
            };
            let queues = (0..1 << asked.log_ind_tbl_size).map(of_this).collect::<Result<Vec<_>, c_int>>()?;
            let number = queues[0].host.qpn().value() as c_int;
            let c = ibv_rwq_ind_table {
                context: context.as_c(),
                ind_tbl_handle: number,
                ind_tbl_num: number,
                comp_mask: 0,
            };
            let (c, users) = (UnsafeCell::new(c), Users::default());
            registry::publish(Arc::new(Table { c, queues, users, _context: context }))
        };
        answer(run())
    }

    fn destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int {
        let run = || {
            registry::find::<Table>(table)?.users.none()?;
            registry::withdraw::<Table>(table);
            Ok(())
        };
        code(run())
    }
}
