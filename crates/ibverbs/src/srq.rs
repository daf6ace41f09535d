//! Shared receive queues.

use crate::abi::*;
use crate::boundary::{answer, c_api, c_ops, c_waits, code, input, zeroed_mutex};
use crate::context::Context;
use crate::cq::Cq;
use crate::errno;
use crate::events::{self, Acknowledged};
use crate::limits::{MAX_SGE, MAX_TAGS, MAX_WR};
use crate::pd::Pd;
use crate::post;
use crate::registry::{self, Object, Use, Used, Users};
use crate::xrc::Xrcd;
use highwire_host::{SharedReceiveQueue, SharedReceiveQueueConfig};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    c: UnsafeCell<ibv_srq>,
    pub(crate) host: SharedReceiveQueue,
    pd: Use<Pd>,
    /// Further objects that it keeps in use.
    _more: More,
    pub(crate) async_events: Acknowledged,
    users: Users,
}

// SAFETY: this side only reads `c`.
unsafe impl Send for Srq {}
// SAFETY: as above.
unsafe impl Sync for Srq {}

impl Object for Srq {
    type C = ibv_srq;
    const LIMIT: usize = crate::limits::MAX_SRQ as usize;
    fn as_c(&self) -> *mut ibv_srq {
        self.c.get()
    }
    fn handle(&self) -> u32 {
        // SAFETY: C's structure, which lives as long as the object.
        unsafe { (*self.c.get()).handle }
    }
}

impl Used for Srq {
    fn users(&self) -> &Users {
        &self.users
    }
}

/// The parts that only some queues have.
enum More {
    Nothing,
    /// The domain whose targets it serves, and the completion queue of its receives.
    Xrc(Use<Xrcd>, Use<Cq>),
    /// How many tagged buffers it holds, and the completion queue of all its requests.
    Tags(u32, Use<Cq>),
}

impl Srq {
    pub(crate) fn context(&self) -> &Context {
        &self.pd.context
    }

    /// Makes a queue, and writes its real limits back.
    fn create(
        pd: Use<Pd>,
        user_context: *mut c_void,
        attr: &mut ibv_srq_attr,
        more: More,
    ) -> Result<*mut ibv_srq, c_int> {
        if attr.max_wr == 0 || attr.max_wr > MAX_WR || attr.max_sge > MAX_SGE {
            return Err(libc::EINVAL);
        }
        attr.max_sge = attr.max_sge.max(1);
        let mut place = Arc::<Srq>::new_uninit();
        let config = SharedReceiveQueueConfig {
            events: Some(pd.context.event_target(place.as_ptr())),
            xrc: match &more {
                More::Xrc(xrcd, cq) => Some((xrcd.domain, &cq.host)),
                _ => None,
            },
            tags: match &more {
                More::Tags(count, cq) => Some((*count, &cq.host)),
                _ => None,
            },
            ..SharedReceiveQueueConfig::new(attr.max_wr, attr.max_sge)
        };
        let host = pd.context.device.create_shared_receive_queue(&pd.host, &config);
        let host = host.map_err(|error| errno::of_create(&error))?;
        let (mutex, cond) = zeroed_mutex();
        let c = UnsafeCell::new(ibv_srq {
            context: pd.context.as_c(),
            srq_context: user_context,
            pd: pd.as_c(),
            handle: (place.as_ptr() as usize >> 4) as u32,
            mutex,
            cond,
            events_completed: 0,
        });
        let srq =
            Srq { c, host, pd, _more: more, async_events: Acknowledged::default(), users: Users::default() };
        Arc::get_mut(&mut place).expect("nobody else has it").write(srq);
        // SAFETY: written in the line above.
        registry::publish(unsafe { place.assume_init() })
    }
}

pub(crate) unsafe extern "C-unwind" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    crate::boundary::guard(|| {
        // SAFETY: this function is reached through the queue's own context only, so it is one of ours.
        let srq = unsafe { &*srq.cast::<Srq>() };
        // SAFETY: verbs' callers promise a chain of requests.
        unsafe { post::receives(wr, bad, ("ibv_post_srq_recv", None), |wr| srq.host.post_recv(wr)) }
    })
}

c_ops! {
    fn create_srq_ex(context: *mut ibv_context, attr: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq {
        let run = || {
            let context = registry::find::<crate::context::Context>(context)?;
            let mut init = unsafe { input(attr)? };
            let has = |bit| init.comp_mask & bit != 0;
            let kind = if has(IBV_SRQ_INIT_ATTR_TYPE) { init.srq_type } else { IBV_SRQT_BASIC };
            let wants_more = init.comp_mask
                & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ
                    | IBV_SRQ_INIT_ATTR_TM);
            if kind > IBV_SRQT_TM || wants_more != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            if !has(IBV_SRQ_INIT_ATTR_PD) {
                return Err(libc::EINVAL);
            }
            let pd = Pd::of_context(init.pd, &context)?;
            let more = match kind {
                IBV_SRQT_XRC if has(IBV_SRQ_INIT_ATTR_XRCD) && has(IBV_SRQ_INIT_ATTR_CQ) => {
                    More::Xrc(Use::<Xrcd>::find(init.xrcd)?, Use::<Cq>::find(init.cq)?)
                }
                IBV_SRQT_TM if has(IBV_SRQ_INIT_ATTR_TM) && has(IBV_SRQ_INIT_ATTR_CQ) => {
                    if init.tm_cap.max_num_tags > MAX_TAGS || init.tm_cap.max_ops > MAX_WR {
                        return Err(libc::EINVAL);
                    }
                    More::Tags(init.tm_cap.max_num_tags, Use::<Cq>::find(init.cq)?)
                }
                IBV_SRQT_XRC | IBV_SRQT_TM => return Err(libc::EINVAL),
                _ => More::Nothing,
            };
            let srq = Srq::create(pd, init.srq_context, &mut init.attr, more)?;
            unsafe { (*attr).attr = init.attr };
            Ok(srq)
        };
        answer(run())
    }
}

c_api! {
    fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
        let run = || {
            let mut attr = unsafe { input(init)? };
            let srq = Srq::create(Use::<Pd>::find(pd)?, attr.srq_context, &mut attr.attr, More::Nothing)?;
            unsafe { (*init).attr = attr.attr };
            Ok(srq)
        };
        answer(run())
    }

    fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
        let run = || {
            let srq = registry::find::<Srq>(srq)?;
            let asked = unsafe { input(attr)? };
            if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
                return Err(libc::EINVAL);
            }
            let max_wr = (mask & IBV_SRQ_MAX_WR != 0).then_some(asked.max_wr);
            if max_wr.is_some_and(|max_wr| max_wr > MAX_WR) {
                return Err(libc::EINVAL);
            }
            let limit = (mask & IBV_SRQ_LIMIT != 0).then_some(asked.srq_limit);
            srq.host.modify(max_wr, limit).map_err(|error| errno::of_modify(&error))
        };
        code(run())
    }

    fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
        let run = || {
            let srq = registry::find::<Srq>(srq)?;
            if attr.is_null() {
                return Err(libc::EINVAL);
            }
            let now = srq.host.query();
            unsafe {
                attr.write(ibv_srq_attr { max_wr: now.max_wr, max_sge: now.max_sge, srq_limit: now.limit });
            }
            Ok(())
        };
        code(run())
    }
}

c_waits! {
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int |_: &mut ()| {
        let run = || {
            let found = registry::find::<Srq>(srq)?;
            found.users.none()?;
            events::withdraw::<Srq, 1>(srq, [&found.async_events])?;
            Ok(())
        };
        code(run())
    }
}
