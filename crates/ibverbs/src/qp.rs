//! Queue pairs: making and destroying them.

use crate::abi::*;
use crate::boundary::{answer, c_api, c_ops, c_waits, code, input, zeroed_mutex};
use crate::context::Context;
use crate::cq::Cq;
use crate::ece::Ece;
use crate::errno;
use crate::events::{self, Acknowledged};
use crate::limits::*;
use crate::pd::Pd;
use crate::post;
use crate::refusal::refused;
use crate::registry::{self, Object, Use, Used, Users};
use crate::srq::Srq;
use crate::wq::Table;
use crate::wr::Batch;
use crate::xrc::Xrcd;
use highwire_host::{QueuePair, QueuePairConfig, SpreadConfig, XrcTargetConfig};
use highwire_verbs::{QpAttr, QpCaps, QpState, SPREAD_KEY_LEN, Service, Spread, SpreadFields};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// A queue pair.
#[repr(C)]
pub(crate) struct Qp {
    c: UnsafeCell<ibv_qp_ex>,
    host: Arc<QueuePair>,
    /// Requests between `wr_start` and `wr_complete`.
    pub(crate) batch: Batch,
    pub(crate) service: Service,
    pub(crate) caps: ibv_qp_cap,
    pub(crate) signal_all: bool,
    pub(crate) ece: Mutex<Ece>,
    pub(crate) context: Use<Context>,
    is_extended: bool,
    /// The objects that it was made of; an XRC target has a domain instead.
    parts: Parts,
    pub(crate) async_events: Acknowledged,
    /// Rules that steer to it.
    users: Users,
    /// Whether its first failed completion was told.
    is_failing: AtomicBool,
    /// The port that it was given, and that which has its peer's GID.
    pub(crate) port: AtomicU8,
    pub(crate) peer_port: AtomicU8,
}

// SAFETY: C writes to `c` under verbs' own rules; this side writes its state in `ibv_modify_qp` only, as rdma-core does.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

impl Object for Qp {
    type C = ibv_qp;
    const LIMIT: usize = crate::limits::MAX_QP as usize;
    fn as_c(&self) -> *mut ibv_qp {
        self.c.get().cast()
    }
    fn handle(&self) -> u32 {
        // SAFETY: C's structure, which lives as long as the object.
        unsafe { (*self.c.get()).qp_base.handle }
    }
}

impl Used for Qp {
    fn users(&self) -> &Users {
        &self.users
    }
}

/// The objects that a queue pair uses, and keeps in use.
#[derive(Default)]
#[allow(dead_code, reason = "most are only held")]
struct Parts {
    pd: Option<Use<Pd>>,
    xrcd: Option<Use<Xrcd>>,
    send_cq: Option<Use<Cq>>,
    recv_cq: Option<Use<Cq>>,
    srq: Option<Use<Srq>>,
    table: Option<Use<Table>>,
}

/// The configuration of a queue pair, from either interface.
#[derive(Clone, Copy)]
struct Init {
    user_context: *mut c_void,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    caps: ibv_qp_cap,
    qp_type: ibv_qp_type,
    signal_all: bool,
    /// The operations that the extended interface is wanted for.
    operations: Option<u64>,
}

fn service_of(qp_type: ibv_qp_type) -> Result<Service, c_int> {
    match qp_type {
        IBV_QPT_RC => Ok(Service::Rc),
        IBV_QPT_UC => Ok(Service::Uc),
        IBV_QPT_UD => Ok(Service::Ud),
        IBV_QPT_XRC_SEND => Ok(Service::XrcInitiator),
        IBV_QPT_XRC_RECV => Ok(Service::XrcTarget),
        IBV_QPT_RAW_PACKET => Ok(Service::Raw),
        IBV_QPT_DRIVER => Err(libc::EOPNOTSUPP),
        _ => Err(refused(libc::EINVAL, || {
            format!("qp_type {qp_type} is none of RC, UC, UD, XRC and raw packet")
        })),
    }
}

/// The operations of a service that the extended interface offers.
fn operations_of(service: Service) -> u64 {
    let sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    let writes = IBV_QP_EX_WITH_RDMA_WRITE
        | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        | IBV_QP_EX_WITH_BIND_MW
        | IBV_QP_EX_WITH_LOCAL_INV
        | IBV_QP_EX_WITH_SEND_WITH_INV;
    let reads = IBV_QP_EX_WITH_RDMA_READ
        | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | IBV_QP_EX_WITH_ATOMIC_WRITE;
    match service {
        Service::Ud => sends,
        Service::Uc => sends | writes,
        Service::Raw => IBV_QP_EX_WITH_SEND,
        Service::XrcTarget => 0,
        Service::Rc | Service::XrcInitiator => sends | writes | reads,
    }
}

/// The inline bytes that a program gets when it asks for so many. Devices grant as many as fit into a request
/// anyway, and programs rely on that: rdma-core's own ask for none and send inline.
fn granted_inline(asked: u32) -> u32 {
    asked.next_multiple_of(INLINE_STEP).max(INLINE_STEP)
}

/// # Errors
/// EINVAL for sizes that the device does not have.
fn check_caps(caps: &ibv_qp_cap) -> Result<(), c_int> {
    let sizes = [
        ("max_send_wr", caps.max_send_wr, MAX_WR, "max_qp_wr"),
        ("max_recv_wr", caps.max_recv_wr, MAX_WR, "max_qp_wr"),
        ("max_send_sge", caps.max_send_sge, MAX_SGE, "max_sge"),
        ("max_recv_sge", caps.max_recv_sge, MAX_SGE, "max_sge"),
    ];
    if let Some((name, value, most, field)) = sizes.into_iter().find(|(_, value, most, _)| value > most) {
        let reason = || format!("cap.{name} is {value}; at most {most} ({field} of ibv_query_device)");
        return Err(refused(libc::EINVAL, reason));
    }
    if caps.max_inline_data > MAX_INLINE {
        let asked = caps.max_inline_data;
        return Err(refused(libc::EINVAL, || {
            format!("cap.max_inline_data is {asked}; at most {MAX_INLINE}")
        }));
    }
    Ok(())
}

impl Qp {
    fn create(pd: Use<Pd>, init: &Init) -> Result<*mut ibv_qp, c_int> {
        let service = service_of(init.qp_type)?;
        if service == Service::XrcTarget {
            return Err(libc::EINVAL);
        }
        if init.operations.is_some_and(|operations| operations & !operations_of(service) != 0) {
            return Err(libc::EOPNOTSUPP);
        }
        // With a shared receive queue, and where nothing arrives, there are no receives of its own, and what is asked for them does not matter.
        let has_receives = init.srq.is_null() && !service.is_xrc();
        let (max_recv_wr, max_recv_sge) =
            if has_receives { (init.caps.max_recv_wr, init.caps.max_recv_sge.max(1)) } else { (0, 0) };
        let caps = ibv_qp_cap { max_recv_wr, max_recv_sge, ..init.caps };
        check_caps(&caps)?;
        // The value of an atomic WRITE travels in the request.
        let has_values =
            init.operations.is_some_and(|operations| operations & IBV_QP_EX_WITH_ATOMIC_WRITE != 0);
        let inline_min = if has_values { post::ATOMIC_BYTES } else { 0 };
        let caps = ibv_qp_cap {
            max_send_sge: caps.max_send_sge.max(1),
            max_inline_data: granted_inline(caps.max_inline_data.max(inline_min)),
            ..caps
        };
        let cq = |cq: *mut ibv_cq| {
            let cq = Use::<Cq>::find(cq)?;
            let reason = || {
                "the completion queue belongs to another ibv_context than the protection domain".to_string()
            };
            if Arc::ptr_eq(&cq.context, &pd.context) { Ok(cq) } else { Err(refused(libc::EINVAL, reason)) }
        };
        let send_cq = cq(init.send_cq)?;
        // Nothing arrives at an XRC initiator.
        let recv_cq = if service.is_xrc() { None } else { Some(cq(init.recv_cq)?) };
        let srq = if init.srq.is_null() { None } else { Some(Use::<Srq>::find(init.srq)?) };
        let place = Arc::<Qp>::new_uninit();
        let config = QueuePairConfig {
            service,
            send_cq: &send_cq.host,
            recv_cq: recv_cq.as_ref().map_or(&send_cq.host, |cq| &cq.host),
            srq: srq.as_ref().map(|srq| &srq.host),
            caps: QpCaps {
                max_send_wr: caps.max_send_wr,
                max_recv_wr: caps.max_recv_wr,
                max_send_sge: caps.max_send_sge,
                max_recv_sge: caps.max_recv_sge.max(1),
                max_inline: caps.max_inline_data,
            },
            signal_all: init.signal_all,
            keeps_places: true,
            events: Some(pd.context.event_target(place.as_ptr())),
        };
        let host = pd.host.queue_pair(&config).map_err(|error| errno::of_create(&error))?;
        let context = Use::of(&pd.context);
        let parts = Parts { pd: Some(pd), send_cq: Some(send_cq), recv_cq, srq, ..Parts::default() };
        Qp::publish(place, context, Arc::new(host), &Init { caps, ..*init }, parts)
    }

    /// The answering half of an extended reliable connection.
    fn create_target(xrcd: Use<Xrcd>, init: &Init) -> Result<*mut ibv_qp, c_int> {
        let place = Arc::<Qp>::new_uninit();
        let context = Use::of(&xrcd.context);
        let config = XrcTargetConfig {
            domain: xrcd.domain,
            lane: 0,
            events: Some(context.event_target(place.as_ptr())),
        };
        let host = context.device.xrc_target(&config).map_err(|error| errno::of_create(&error))?;
        let parts = Parts { xrcd: Some(xrcd), ..Parts::default() };
        let init = Init { caps: ibv_qp_cap::default(), operations: None, ..*init };
        Qp::publish(place, context, Arc::new(host), &init, parts)
    }

    /// Makes a queue pair without queues, which spreads its frames over work queues.
    fn create_spreading(
        pd: Use<Pd>,
        table: Use<Table>,
        hash: &ibv_rx_hash_conf,
        init: &Init,
    ) -> Result<*mut ibv_qp, c_int> {
        let is_usual = hash.rx_hash_function == IBV_RX_HASH_FUNC_TOEPLITZ
            && usize::from(hash.rx_hash_key_len) == SPREAD_KEY_LEN
            && SpreadFields::ALL.contains(SpreadFields(hash.rx_hash_fields_mask));
        if service_of(init.qp_type)? != Service::Raw || !is_usual || !init.srq.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: a key that is as long as its length says.
        let key = unsafe { input(hash.rx_hash_key.cast::<[u8; SPREAD_KEY_LEN]>())? };
        let place = Arc::<Qp>::new_uninit();
        let queues: Vec<_> = table.queues.iter().map(|queue| &queue.host).collect();
        let config = SpreadConfig {
            table: &queues,
            how: Spread { key, fields: SpreadFields(hash.rx_hash_fields_mask) },
            events: Some(pd.context.event_target(place.as_ptr())),
        };
        let host = pd.host.spreading_queue_pair(&config).map_err(|error| errno::of_create(&error))?;
        let context = Use::of(&pd.context);
        let parts = Parts { pd: Some(pd), table: Some(table), ..Parts::default() };
        let init = Init { caps: ibv_qp_cap::default(), operations: None, ..*init };
        Qp::publish(place, context, Arc::new(host), &init, parts)
    }

    /// Hands a queue pair to C.
    fn publish(
        mut place: Arc<MaybeUninit<Qp>>,
        context: Use<Context>,
        host: Arc<QueuePair>,
        init: &Init,
        parts: Parts,
    ) -> Result<*mut ibv_qp, c_int> {
        let (mutex, cond) = zeroed_mutex();
        let base = ibv_qp {
            context: context.as_c(),
            qp_context: init.user_context,
            pd: parts.pd.as_ref().map_or(std::ptr::null_mut(), |pd| pd.as_c()),
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            handle: host.qpn().value(),
            qp_num: host.qpn().value(),
            state: if parts.table.is_some() { IBV_QPS_RTS } else { IBV_QPS_RESET },
            qp_type: init.qp_type,
            mutex,
            cond,
            events_completed: 0,
        };
        let service = host.service();
        let (index, number) = (context.index, host.qpn().value());
        let qp = Qp {
            c: UnsafeCell::new(crate::wr::functions(base)),
            host,
            batch: Batch::default(),
            service,
            caps: init.caps,
            signal_all: init.signal_all,
            ece: Mutex::new(Ece::default()),
            context,
            is_extended: init.operations.is_some(),
            parts,
            async_events: Acknowledged::default(),
            users: Users::default(),
            is_failing: AtomicBool::new(false),
            port: AtomicU8::new(PORT),
            peer_port: AtomicU8::new(PORT),
        };
        Arc::get_mut(&mut place).expect("nobody else has it").write(qp);
        // SAFETY: written in the line above.
        let made = registry::publish(unsafe { place.assume_init() })?;
        crate::faults::made_queue_pair(made, index, number);
        Ok(made)
    }

    /// What its program may use.
    pub(crate) fn caps(&self) -> &ibv_qp_cap {
        &self.caps
    }

    /// Notes a failed completion; true of the first since it was made or reset.
    pub(crate) fn begin_failing(&self) -> bool {
        !self.is_failing.swap(true, Ordering::Relaxed)
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.host.qpn().value()
    }

    /// The queue pair behind it.
    #[inline]
    pub(crate) fn host(&self) -> Result<&QueuePair, c_int> {
        Ok(&self.host)
    }

    /// After this, datagrams find no receive. Programs free the memory of a datagram service's receives
    /// before its queue pair, and a cache of registrations (UCX's) lets the region outlive the memory: a card
    /// has it pinned, here it is gone.
    fn stop_receiving(&self) {
        if self.service == Service::Ud {
            let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
            // Refused only in states in which nothing is received anyway.
            let _ = self.host.modify(&reset);
        }
    }

    /// Drops its completions that the program has not polled yet: the queue pair is being reset or destroyed.
    pub(crate) fn forget_completions(&self) {
        self.is_failing.store(false, Ordering::Relaxed);
        for cq in [&self.parts.send_cq, &self.parts.recv_cq].into_iter().flatten() {
            // Without memory for it they stay, which is no worse than before.
            let _ = cq.host.forget(self.host.qpn());
        }
    }

    /// Whether it has no queues of its own.
    pub(crate) fn spreads(&self) -> bool {
        self.parts.table.is_some()
    }

    /// The extended interface's structure.
    pub(crate) fn extended(&self) -> *mut ibv_qp_ex {
        self.c.get()
    }
}

c_ops! {
    fn create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
        let run = || {
            let context = registry::find::<Context>(context)?;
            if attr.is_null() {
                return Err(libc::EINVAL);
            }
            // A program with an older header has a shorter structure, and no bits for what is beyond.
            let init = unsafe { &*attr };
            let comp_mask = init.comp_mask;
            let spreading = IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE;
            let known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS
                | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | spreading;
            if comp_mask & !known != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            let has = |bit| comp_mask & bit != 0;
            // None of the flags has an effect here, so a program that needs one is told.
            if has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init.create_flags != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            let from = Init {
                user_context: init.qp_context,
                send_cq: init.send_cq,
                recv_cq: init.recv_cq,
                srq: init.srq,
                caps: init.cap,
                qp_type: init.qp_type,
                signal_all: init.sq_sig_all != 0,
                operations: has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(init.send_ops_flags),
            };
            if init.qp_type == IBV_QPT_XRC_RECV {
                if !has(IBV_QP_INIT_ATTR_XRCD) {
                    return Err(libc::EINVAL);
                }
                return Qp::create_target(Use::<Xrcd>::find(init.xrcd)?, &from);
            }
            if !has(IBV_QP_INIT_ATTR_PD) {
                return Err(libc::EINVAL);
            }
            let pd = Pd::of_context(init.pd, &context)?;
            if has(spreading) {
                if comp_mask & spreading != spreading {
                    return Err(libc::EINVAL);
                }
                let table = Use::<Table>::find(init.rwq_ind_tbl)?;
                return Qp::create_spreading(pd, table, &init.rx_hash_conf, &from);
            }
            let qp = Qp::create(pd, &from)?;
            if let Some(caps) = registry::with::<Qp, _>(qp, |qp| qp.caps) {
                unsafe { (*attr).cap = caps };
            }
            Ok(qp)
        };
        answer(run())
    }

    /// Another pointer to an XRC target of this process.
    fn open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
        let run = || {
            let context = Use::<Context>::find(context)?;
            let attr = unsafe { input(attr)? };
            let has = |bits| attr.comp_mask & bits == bits;
            if !has(IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE)
                || attr.qp_type != IBV_QPT_XRC_RECV
            {
                return Err(libc::EINVAL);
            }
            let xrcd = Use::<Xrcd>::find(attr.xrcd)?;
            let is_it = |qp: &Qp| qp.service == Service::XrcTarget && qp.host.qpn().value() == attr.qp_num;
            let target = registry::first::<Qp>(is_it).ok_or(libc::ENOENT)?;
            let init = Init {
                user_context: if has(IBV_QP_OPEN_ATTR_CONTEXT) { attr.qp_context } else { std::ptr::null_mut() },
                send_cq: std::ptr::null_mut(),
                recv_cq: std::ptr::null_mut(),
                srq: std::ptr::null_mut(),
                caps: ibv_qp_cap::default(),
                qp_type: attr.qp_type,
                signal_all: false,
                operations: None,
            };
            let parts = Parts { xrcd: Some(xrcd), ..Parts::default() };
            Qp::publish(Arc::new_uninit(), context, Arc::clone(&target.host), &init, parts)
        };
        answer(run())
    }
}

c_api! {
    fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
        let run = || {
            let pd = Use::<Pd>::find(pd)?;
            let attr = unsafe { input(init)? };
            let from = Init {
                user_context: attr.qp_context,
                send_cq: attr.send_cq,
                recv_cq: attr.recv_cq,
                srq: attr.srq,
                caps: attr.cap,
                qp_type: attr.qp_type,
                signal_all: attr.sq_sig_all != 0,
                operations: None,
            };
            let qp = Qp::create(pd, &from)?;
            if let Some(caps) = registry::with::<Qp, _>(qp, |qp| qp.caps) {
                unsafe { (*init).cap = caps };
            }
            Ok(qp)
        };
        answer(run())
    }

    fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
        let run = || {
            let qp = registry::find::<Qp>(qp)?;
            if qp.is_extended { Ok(qp.extended()) } else { Err(libc::EINVAL) }
        };
        answer(run())
    }
}

c_waits! {
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int |_: &mut ()| {
        let run = || {
            let found = registry::find::<Qp>(qp)?;
            found.users.none()?;
            events::withdraw::<Qp, 1>(qp, [&found.async_events])?;
            crate::report::ends(&found);
            found.stop_receiving();
            found.forget_completions();
            crate::faults::forget_queue_pair(qp, found.context.index, found.number());
            Ok(())
        };
        code(run())
    }
}
