//! Completion queues, and polling them.

use crate::abi::*;
use crate::boundary::{answer, c_api, c_ops, c_waits, code, input};
use crate::context::Context;
use crate::cq_ex::Cursor;
use crate::errno;
use crate::events::{self, Acknowledged, Channel};
use crate::failure;
use crate::limits::MAX_CQE;
use crate::refusal::refused;
use crate::registry::{self, Object, Use, Used, Users};
use highwire_host::{ChannelTarget, CompletionQueue, CompletionQueueConfig, EMPTY_COMPLETION, WaitFor};
use highwire_verbs::{Completion, CompletionStatus};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A completion queue.
#[repr(C)]
pub(crate) struct Cq {
    c: UnsafeCell<ibv_cq_ex>,
    pub(crate) host: CompletionQueue,
    /// Where the extended interface stands in the queue.
    pub(crate) cursor: Cursor,
    pub(crate) context: Use<Context>,
    channel: Option<Use<Channel>>,
    pub(crate) events: Acknowledged,
    pub(crate) async_events: Acknowledged,
    users: Users,
}

// SAFETY: the pointers in `c` are to objects that never move; its fields change only between `start_poll` and
// `end_poll`, which the cursor's lock keeps apart.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Object for Cq {
    type C = ibv_cq;
    const LIMIT: usize = crate::limits::MANY as usize;
    fn as_c(&self) -> *mut ibv_cq {
        self.c.get().cast()
    }
    fn handle(&self) -> u32 {
        // SAFETY: C's structure, which lives as long as the object.
        unsafe { (*self.c.get()).base.handle }
    }
}

impl Used for Cq {
    fn users(&self) -> &Users {
        &self.users
    }
}

/// The configuration of a completion queue.
pub(crate) struct CqInit {
    pub(crate) cqe: u32,
    pub(crate) user_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) vector: u32,
}

impl Cq {
    /// Makes a queue; `c` are the functions of its extended interface.
    pub(crate) fn create(
        context: *mut ibv_context,
        init: &CqInit,
        extended: ibv_cq_ex,
    ) -> Result<*mut ibv_cq_ex, c_int> {
        let context = Use::<Context>::find(context)?;
        if init.cqe == 0 || init.cqe > MAX_CQE {
            let asked = init.cqe;
            return Err(refused(libc::EINVAL, || {
                format!("cqe is {asked}; it is 1 to {MAX_CQE} (max_cqe of ibv_query_device)")
            }));
        }
        if init.vector != 0 {
            let asked = init.vector;
            return Err(refused(libc::EINVAL, || {
                format!("comp_vector is {asked}; the device has vector 0 only (num_comp_vectors)")
            }));
        }
        let channel = match init.channel.is_null() {
            true => None,
            false => Some(Use::<Channel>::find(init.channel)?),
        };
        if channel.as_ref().is_some_and(|channel| !Arc::ptr_eq(&channel.context, &context)) {
            return Err(refused(libc::EINVAL, || {
                "the completion channel belongs to another ibv_context".to_string()
            }));
        }
        // The queue's events are known by its address, so it has one before there is a queue behind it.
        let mut place = Arc::<Cq>::new_uninit();
        let tag = crate::boundary::tag(place.as_ptr());
        let config = CompletionQueueConfig {
            channel: channel.as_ref().map(|channel| ChannelTarget { channel: &channel.host, tag }),
            events: Some(context.event_target(place.as_ptr())),
            ..CompletionQueueConfig::new(init.cqe)
        };
        let host = context.device.create_completion_queue(&config);
        let host = host.map_err(|error| errno::of_create(&error))?;
        let mut c = extended;
        c.base.context = context.as_c();
        c.base.channel = init.channel;
        c.base.cq_context = init.user_context;
        c.base.handle = (tag >> 4) as u32;
        c.base.cqe = host.capacity() as c_int;
        let cq = Cq {
            c: UnsafeCell::new(c),
            host,
            cursor: Cursor::default(),
            context,
            channel,
            events: Acknowledged::default(),
            async_events: Acknowledged::default(),
            users: Users::default(),
        };
        Arc::get_mut(&mut place).expect("nobody else has it").write(cq);
        // SAFETY: written in the line above.
        let cq = unsafe { place.assume_init() };
        Ok(registry::publish(cq)?.cast())
    }

    pub(crate) fn user_context(&self) -> *mut c_void {
        // SAFETY: C does not change it while the queue is there.
        unsafe { (*self.c.get()).base.cq_context }
    }

    /// Tells the channel, if there is one, that a completion can be polled which came earlier.
    pub(crate) fn report(&self) {
        if let Some(channel) = &self.channel {
            channel.host.report(crate::boundary::tag(self));
        }
    }

    /// The structure into which the extended interface reads.
    pub(crate) fn extended(&self) -> *mut ibv_cq_ex {
        self.c.get()
    }
}

/// How many completions are fetched at once.
const BATCH: usize = 16;

#[inline]
pub(crate) fn to_wc(from: &Completion) -> ibv_wc {
    let flags = from.flags;
    let bit = |is_set: bool, bit: c_uint| if is_set { bit } else { 0 };
    ibv_wc {
        wr_id: from.wr_id,
        status: from.status as ibv_wc_status,
        opcode: from.operation as ibv_wc_opcode,
        vendor_err: vendor_error(from),
        byte_len: from.byte_len,
        imm_data: immediate(from),
        qp_num: from.qpn.value(),
        src_qp: from.source_qpn.value(),
        wc_flags: bit(flags.grh, IBV_WC_GRH)
            | bit(flags.with_immediate, IBV_WC_WITH_IMM)
            | bit(flags.with_invalidate, IBV_WC_WITH_INV)
            | c_uint::from(flags.tags.0),
        pkey_index: 0,
        slid: 0,
        sl: if flags.grh { crate::context::packet_kind() } else { 0 },
        dlid_path_bits: 0,
    }
}

/// In network order as C wants it, unless it is a key.
#[inline]
pub(crate) fn immediate(from: &Completion) -> u32 {
    if from.flags.with_invalidate { from.immediate } else { from.immediate.to_be() }
}

/// The number of the reason why a request failed, as `docs/errors.md` has it; zero after success.
#[inline]
pub(crate) fn vendor_error(of: &Completion) -> u32 {
    if of.status == CompletionStatus::Success { 0 } else { failure::number_of(of) }
}

pub(crate) unsafe extern "C-unwind" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    crate::boundary::guard(|| {
        // SAFETY: this function is reached through the queue's own context only, so it is one of ours.
        let cq = unsafe { &*cq.cast::<Cq>() };
        if cq.host.is_inherited() {
            return -libc::EPERM;
        }
        let wanted = count.max(0) as usize;
        let mut taken = 0;
        let mut batch = [EMPTY_COMPLETION; BATCH];
        while taken < wanted {
            let room = BATCH.min(wanted - taken);
            let found = cq.host.poll(&mut batch[..room]);
            for completion in &batch[..found] {
                failure::look_at(completion);
                // SAFETY: C has room for `count` entries, wherever they lie.
                unsafe { wc.add(taken).write_unaligned(to_wc(completion)) };
                taken += 1;
            }
            if found < room {
                break;
            }
        }
        taken as c_int
    })
}

pub(crate) unsafe extern "C-unwind" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    crate::boundary::guard(|| {
        // SAFETY: as in `poll_cq`.
        let cq = unsafe { &*cq.cast::<Cq>() };
        if cq.host.is_inherited() {
            return libc::EPERM;
        }
        let what = if solicited_only == 0 { WaitFor::Any } else { WaitFor::Solicited };
        // A queue without a channel has no reader of events, which is no error either.
        let _ = cq.host.request_notify(what);
        0
    })
}

c_ops! {
    /// Moderation delays events, which here come as soon as they can: accepted, and without effect.
    fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
        let run = || {
            registry::find::<Cq>(cq)?;
            let attr = unsafe { input(attr)? };
            if attr.attr_mask & !IBV_CQ_ATTR_MODERATE == 0 { Ok(()) } else { Err(libc::EOPNOTSUPP) }
        };
        code(run())
    }
}

c_api! {
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        user_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int,
    ) -> *mut ibv_cq {
        let run = || {
            let cqe = u32::try_from(cqe).map_err(|_| libc::EINVAL)?;
            let vector = u32::try_from(vector).map_err(|_| libc::EINVAL)?;
            let init = CqInit { cqe, user_context, channel, vector };
            Cq::create(context, &init, crate::cq_ex::no_functions()).map(|cq| cq.cast())
        };
        answer(run())
    }

    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
        let run = || {
            let found = registry::find::<Cq>(cq)?;
            let wanted = u32::try_from(cqe).ok().filter(|cqe| (1..=MAX_CQE).contains(cqe)).ok_or(libc::EINVAL)?;
            found.host.resize(wanted).map_err(|error| errno::of_create(&error))?;
            unsafe { (*cq).cqe = found.host.capacity() as c_int };
            Ok(())
        };
        code(run())
    }
}

c_waits! {
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int |_: &mut ()| {
        let run = || {
            let found = registry::find::<Cq>(cq)?;
            found.users.none()?;
            events::withdraw::<Cq, 2>(cq, [&found.events, &found.async_events])?;
            crate::faults::completions::forget_queue(cq);
            Ok(())
        };
        code(run())
    }
}
