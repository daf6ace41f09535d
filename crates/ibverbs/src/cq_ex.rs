//! The extended interface of completion queues: `start_poll`, `next_poll`, `end_poll`, and functions that
//! read the completion.

use crate::abi::*;
use crate::boundary::{answer, c_ops, input, zeroed_mutex};
use crate::cq::{Cq, CqInit, immediate, vendor_error};
use crate::{faults, registry};
use highwire_host::EMPTY_COMPLETION;
use highwire_verbs::{Completion, CompletionStatus};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where a thread stands in a queue. One thread at a time: between `start_poll` and `end_poll` others wait.
pub(crate) struct Cursor {
    held: AtomicBool,
    now: UnsafeCell<Completion>,
    /// The completion's tag, and the sender's data beside it.
    tag: UnsafeCell<(u64, u32)>,
    /// When the completion was read, for queues with timestamps.
    read_at_ns: AtomicU64,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor {
            held: AtomicBool::new(false),
            now: UnsafeCell::new(EMPTY_COMPLETION),
            tag: UnsafeCell::new((0, 0)),
            read_at_ns: AtomicU64::new(0),
        }
    }
}

impl Cursor {
    fn hold(&self) {
        while self.held.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
    }

    fn release(&self) {
        self.held.store(false, Ordering::Release);
    }

    fn now(&self) -> Completion {
        // SAFETY: read between `start_poll` and `end_poll` only, by the thread that holds the cursor.
        unsafe { *self.now.get() }
    }
}

const TIMESTAMPS: u64 = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
const SUPPORTED: u64 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS
    | IBV_WC_EX_WITH_TM_INFO
    | TIMESTAMPS;

/// Nanoseconds of the clock that completions are stamped with.
pub(crate) fn raw_clock_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is written by the call.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A queue of the plain interface: the same structure with nothing in its second half.
pub(crate) fn no_functions() -> ibv_cq_ex {
    let (mutex, cond) = zeroed_mutex();
    ibv_cq_ex {
        base: ibv_cq {
            context: std::ptr::null_mut(),
            channel: std::ptr::null_mut(),
            cq_context: std::ptr::null_mut(),
            handle: 0,
            cqe: 0,
            mutex,
            cond,
            comp_events_completed: 0,
            async_events_completed: 0,
        },
        comp_mask: 0,
        status: 0,
        wr_id: 0,
        start_poll: None,
        next_poll: None,
        end_poll: None,
        read_opcode: None,
        read_vendor_err: None,
        read_byte_len: None,
        read_imm_data: None,
        read_qp_num: None,
        read_src_qp: None,
        read_wc_flags: None,
        read_slid: None,
        read_sl: None,
        read_dlid_path_bits: None,
        read_completion_ts: None,
        read_cvlan: None,
        read_flow_tag: None,
        read_tm_info: None,
        read_completion_wallclock_ns: None,
    }
}

/// The functions for a queue that was asked for `flags`. Programs call only what they have asked for.
fn functions(flags: u64) -> ibv_cq_ex {
    type Start = unsafe extern "C-unwind" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int;
    type Next = unsafe extern "C-unwind" fn(*mut ibv_cq_ex) -> c_int;
    let is_faulty = faults::may_refuse();
    // Chosen here, so that a queue without a scenario does not ask at each poll.
    let (start, next): (Start, Next) = match (flags & TIMESTAMPS != 0, is_faulty) {
        (true, false) => (start_poll::<true, false>, next_poll::<true, false>),
        (false, false) => (start_poll::<false, false>, next_poll::<false, false>),
        (true, true) => (start_poll::<true, true>, next_poll::<true, true>),
        (false, true) => (start_poll::<false, true>, next_poll::<false, true>),
    };
    ibv_cq_ex {
        start_poll: Some(start),
        next_poll: Some(next),
        end_poll: Some(end_poll),
        read_opcode: Some(if is_faulty { read_opcode_of_success } else { read_opcode }),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_zero),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_zero_byte),
        read_completion_ts: Some(read_completion_ts),
        read_tm_info: Some(read_tm_info),
        read_completion_wallclock_ns: Some(read_completion_wallclock_ns),
        ..no_functions()
    }
}

/// # Safety
/// `cq` is a queue of ours: these functions are reached through such queues only.
#[inline]
unsafe fn queue<'a>(cq: *mut ibv_cq_ex) -> &'a Cq {
    // SAFETY: the structure is the first field of the queue.
    unsafe { &*cq.cast::<Cq>() }
}

/// Takes the next completion, if there is one; the cursor is held.
#[inline]
fn advance<const IS_STAMPED: bool, const IS_FAULTY: bool>(cq: &Cq) -> c_int {
    let next = if IS_FAULTY { faults::completions::next(cq) } else { cq.host.poll_tagged() };
    let Some((completion, tag, context)) = next else { return libc::ENOENT };
    if IS_STAMPED {
        cq.cursor.read_at_ns.store(raw_clock_ns(), Ordering::Relaxed);
    }
    let extended = cq.extended();
    // SAFETY: the thread that holds the cursor is the only one that writes here, and C reads in that thread.
    unsafe {
        *cq.cursor.now.get() = completion;
        *cq.cursor.tag.get() = (tag, context);
        (*extended).wr_id = completion.wr_id;
        (*extended).status = completion.status as ibv_wc_status;
    }
    0
}

unsafe extern "C-unwind" fn start_poll<const IS_STAMPED: bool, const IS_FAULTY: bool>(
    cq: *mut ibv_cq_ex,
    attr: *mut ibv_poll_cq_attr,
) -> c_int {
    crate::boundary::guard(|| {
        // SAFETY: the attributes are null or point to such a structure, as verbs' callers promise.
        if unsafe { input(attr) }.is_ok_and(|attr| attr.comp_mask != 0) {
            return libc::EINVAL;
        }
        // SAFETY: this function is reached through queues of ours only.
        let cq = unsafe { queue(cq) };
        cq.cursor.hold();
        let result = advance::<IS_STAMPED, IS_FAULTY>(cq);
        if result != 0 {
            // `ibv_create_cq_ex(3)`: after ENOENT there is no `end_poll`.
            cq.cursor.release();
        }
        result
    })
}

unsafe extern "C-unwind" fn next_poll<const IS_STAMPED: bool, const IS_FAULTY: bool>(
    cq: *mut ibv_cq_ex,
) -> c_int {
    // SAFETY: this function is reached through queues of ours only.
    crate::boundary::guard(|| advance::<IS_STAMPED, IS_FAULTY>(unsafe { queue(cq) }))
}

unsafe extern "C-unwind" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: as above.
    crate::boundary::guard(|| unsafe { queue(cq) }.cursor.release());
}

/// Functions that return part of the completion under the cursor.
macro_rules! readers {
    ($($name:ident -> $type:ty = |$completion:ident| $value:expr;)*) => {$(
        unsafe extern "C-unwind" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: reached through queues of ours only.
            let $completion = unsafe { queue(cq) }.cursor.now();
            $value
        }
    )*};
}

readers! {
    read_opcode -> ibv_wc_opcode = |completion| completion.operation as ibv_wc_opcode;
    read_opcode_of_success -> ibv_wc_opcode = |completion| match completion.status {
        CompletionStatus::Success => completion.operation as ibv_wc_opcode,
        _ => faults::completions::NO_OPCODE,
    };
    read_vendor_err -> u32 = |completion| vendor_error(&completion);
    read_byte_len -> u32 = |completion| completion.byte_len;
    read_imm_data -> u32 = |completion| immediate(&completion);
    read_qp_num -> u32 = |completion| completion.qpn.value();
    read_src_qp -> u32 = |completion| completion.source_qpn.value();
    read_sl -> u8 = |completion| if completion.flags.grh { crate::context::packet_kind() } else { 0 };
    read_wc_flags -> c_uint = |completion| {
        let flags = completion.flags;
        let bit = |is_set: bool, bit: c_uint| if is_set { bit } else { 0 };
        bit(flags.grh, IBV_WC_GRH)
            | bit(flags.with_immediate, IBV_WC_WITH_IMM)
            | bit(flags.with_invalidate, IBV_WC_WITH_INV)
            | c_uint::from(flags.tags.0)
    };
}

unsafe extern "C-unwind" fn read_tm_info(cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: reached through queues of ours only, by the thread that holds the cursor; C has room for the answer.
    unsafe {
        let (tag, priv_) = *queue(cq).cursor.tag.get();
        info.write(ibv_wc_tm_info { tag, priv_ });
    }
}

unsafe extern "C-unwind" fn read_zero(_cq: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C-unwind" fn read_zero_byte(_cq: *mut ibv_cq_ex) -> u8 {
    0
}

unsafe extern "C-unwind" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: reached through queues of ours only.
    unsafe { queue(cq) }.cursor.read_at_ns.load(Ordering::Relaxed)
}

unsafe extern "C-unwind" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: as above.
    let read_at = unsafe { queue(cq) }.cursor.read_at_ns.load(Ordering::Relaxed);
    clock_ns(libc::CLOCK_REALTIME).saturating_sub(raw_clock_ns().saturating_sub(read_at))
}

c_ops! {
    fn create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
        let run = || {
            let attr = unsafe { input(attr)? };
            let known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
            if attr.comp_mask & !known != 0 {
                return Err(libc::EINVAL);
            }
            if attr.wc_flags & !SUPPORTED != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            let has_flags = attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
            // The program's promise to use one thread needs nothing here; to ignore overruns is impossible,
            // because they are always noticed.
            if has_flags && attr.flags & !(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0 {
                return Err(libc::EINVAL);
            }
            if has_flags && attr.flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
                registry::find::<crate::pd::Pd>(attr.parent_domain)?;
            }
            let init = CqInit {
                cqe: attr.cqe,
                user_context: attr.cq_context,
                channel: attr.channel,
                vector: attr.comp_vector,
            };
            Cq::create(context, &init, functions(attr.wc_flags))
        };
        answer(run())
    }
}
