//! The extended interface of queue pairs: requests built call by call between `wr_start` and `wr_complete`.
//!
//! They are collected in the queue pair and posted together. The first mistake is remembered, and then nothing is posted.

use crate::abi::*;
use crate::errno;
use crate::implicit;
use crate::limits::{MAX_INLINE, MAX_SGE};
use crate::mw::Mw;
use crate::post::{self, datagram, to_sge};
use crate::qp::Qp;
use crate::registry;
use highwire_verbs::{Datagram, Operation, PostError, Remote, RemoteKey, SendFlags, SendWr, Sge};
use highwire_wire::Qpn;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// The requests of one region between `wr_start` and its end. Its vectors keep their room, so that a steady program
/// allocates nothing.
#[derive(Default)]
pub(crate) struct Batch {
    held: AtomicBool,
    inside: UnsafeCell<Collected>,
}

#[derive(Default)]
struct Collected {
    requests: Vec<Request>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    error: Option<PostError>,
}

struct Request {
    wr_id: u64,
    operation: Operation,
    flags: SendFlags,
    sges: Range<usize>,
    inline: Option<Range<usize>>,
    datagram: Option<Datagram>,
    /// The window that it binds, if it does.
    window: *mut ibv_mw,
}

impl Batch {
    fn hold(&self) {
        while self.held.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
    }

    fn release(&self) {
        self.held.store(false, Ordering::Release);
    }
}

impl Collected {
    fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.error = None;
    }

    /// Nothing of it is posted: windows have the keys that they had.
    fn give_up(&mut self) {
        for request in self.requests.drain(..).rev().filter(|request| !request.window.is_null()) {
            registry::with::<Mw, _>(request.window, |mw| mw.take_back(&request.operation));
        }
    }

    fn fail(&mut self, error: PostError) {
        self.error.get_or_insert(error);
    }

    /// Calls a function with the request that was begun last.
    fn last(
        &mut self,
        change: impl FnOnce(&mut Request, &mut Vec<Sge>, &mut Vec<u8>) -> Result<(), PostError>,
    ) {
        let Collected { requests, sges, inline, .. } = self;
        let changed = match requests.last_mut() {
            Some(request) => change(request, sges, inline),
            None => Err(PostError::Unsupported),
        };
        if let Err(error) = changed {
            self.fail(error);
        }
    }
}

/// # Safety
/// `qp` is one of ours: these functions are reached through such queue pairs only.
#[inline]
unsafe fn queue_pair<'a>(qp: *mut ibv_qp_ex) -> &'a Qp {
    // SAFETY: the structure is the first field of the queue pair.
    unsafe { &*qp.cast::<Qp>() }
}

/// # Safety
/// As for [`queue_pair`], and between `wr_start` and its end, which one thread at a time is.
#[inline]
#[allow(clippy::mut_from_ref)]
unsafe fn collected<'a>(qp: *mut ibv_qp_ex) -> &'a mut Collected {
    // SAFETY: the caller holds the batch.
    unsafe { &mut *queue_pair(qp).batch.inside.get() }
}

/// Begins a request with the identifier and flags that C has put into the structure.
unsafe fn begin(qp: *mut ibv_qp_ex, operation: Result<Operation, PostError>) {
    // SAFETY: C calls this between `wr_start` and its end.
    let (collected, wr_id, flags) = unsafe { (collected(qp), (*qp).wr_id, (*qp).wr_flags) };
    match operation {
        Ok(operation) => {
            let sges = collected.sges.len()..collected.sges.len();
            let flags = SendFlags { inline: false, ..post::flags(flags) };
            collected.requests.push(Request {
                wr_id,
                operation,
                flags,
                sges,
                inline: None,
                datagram: None,
                window: std::ptr::null_mut(),
            });
        }
        Err(error) => collected.fail(error),
    }
}

/// The functions that begin a request.
macro_rules! begins {
    ($($name:ident($($arg:ident: $type:ty),*) => $operation:expr;)*) => {$(
        unsafe extern "C-unwind" fn $name(qp: *mut ibv_qp_ex $(, $arg: $type)*) {
            // SAFETY: reached through queue pairs of ours, between `wr_start` and its end.
            crate::boundary::guard(|| unsafe { begin(qp, $operation) });
        }
    )*};
}

fn remote(rkey: u32, va: u64) -> Remote {
    Remote { va, rkey: RemoteKey(rkey) }
}

begins! {
    wr_send() => Ok(Operation::Send);
    wr_send_imm(imm: u32) => Ok(Operation::SendImm(u32::from_be(imm)));
    wr_send_inv(rkey: u32) => Ok(Operation::SendInvalidate(RemoteKey(rkey)));
    wr_rdma_write(rkey: u32, va: u64) => Ok(Operation::Write(remote(rkey, va)));
    wr_rdma_write_imm(rkey: u32, va: u64, imm: u32) => Ok(Operation::WriteImm(remote(rkey, va), u32::from_be(imm)));
    wr_rdma_read(rkey: u32, va: u64) => Ok(Operation::Read(remote(rkey, va)));
    wr_atomic_cmp_swp(rkey: u32, va: u64, compare: u64, swap: u64) =>
        Ok(Operation::CompareSwap { remote: remote(rkey, va), compare, swap });
    wr_atomic_fetch_add(rkey: u32, va: u64, add: u64) =>
        Ok(Operation::FetchAdd { remote: remote(rkey, va), add });
    wr_local_inv(rkey: u32) => Ok(Operation::LocalInvalidate(RemoteKey(rkey)));
    wr_send_tso(_header: *mut c_void, _bytes: u16, _mss: u16) => Err(PostError::Unsupported);
    wr_flush(_rkey: u32, _va: u64, _length: usize, _type: u8, _level: u8) => Err(PostError::Unsupported);
}

unsafe extern "C-unwind" fn wr_atomic_write(qp: *mut ibv_qp_ex, rkey: u32, va: u64, value: *const c_void) {
    crate::boundary::guard(|| {
        // SAFETY: reached through queue pairs of ours.
        let service = unsafe { queue_pair(qp) }.service;
        let operation = post::atomic_write(service, remote(rkey, va));
        let value = ibv_data_buf { addr: value.cast_mut(), length: post::ATOMIC_BYTES as usize };
        // SAFETY: reached through queue pairs of ours, between `wr_start` and its end; verbs' callers promise eight bytes.
        unsafe {
            begin(qp, operation);
            if operation.is_ok() {
                collected(qp).last(|request, _, inline| copy_inline(request, inline, std::iter::once(value)));
            }
        }
    });
}

unsafe extern "C-unwind" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    crate::boundary::guard(|| {
        // SAFETY: reached through queue pairs of ours, between `wr_start` and its end; verbs' callers promise the rest.
        unsafe {
            let operation = bind(mw, rkey, info);
            begin(qp, operation);
            // Another bind of the window may follow in this batch, so its new key is there now.
            if let Ok(operation) = operation {
                registry::with::<Mw, _>(mw, |mw| mw.posted(&operation));
                collected(qp).last(|request, _, _| {
                    request.window = mw;
                    Ok(())
                });
            }
        }
    });
}

unsafe fn bind(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) -> Result<Operation, PostError> {
    // SAFETY: verbs' callers promise that it points to such a structure.
    let info = unsafe { crate::boundary::input(info) };
    let bound = info.and_then(|info| registry::find::<Mw>(mw)?.bind(rkey, &info));
    bound.map_err(|_| PostError::Unsupported)
}

/// The functions that complete the request that was begun last.
macro_rules! sets {
    ($($name:ident($($arg:ident: $type:ty),*) => |$request:pat_param, $sges:pat_param, $inline:pat_param| $body:block)*) => {$(
        unsafe extern "C-unwind" fn $name(qp: *mut ibv_qp_ex, $($arg: $type),*) {
            // SAFETY: reached through queue pairs of ours, between `wr_start` and its end; the arguments are what
            // their types say, as verbs' callers promise.
            crate::boundary::guard(|| unsafe {
                collected(qp).last(|$request, $sges, $inline| $body)
            });
        }
    )*};
}

sets! {
    wr_set_sge(lkey: u32, addr: u64, length: u32) => |request, sges, _| {
        let first = sges.len();
        if length > 0 {
            sges.push(to_sge(&ibv_sge { addr, length, lkey }));
        }
        implicit::verify(&mut sges[first..], request.operation.is_read_or_atomic());
        request.sges = first..sges.len();
        Ok(())
    }
    wr_set_sge_list(count: usize, list: *const ibv_sge) => |request, sges, _| {
        if count > MAX_SGE as usize {
            return Err(PostError::TooManySges);
        }
        let first = sges.len();
        sges.extend((0..count).map(|index| to_sge(&list.add(index).read_unaligned())));
        implicit::verify(&mut sges[first..], request.operation.is_read_or_atomic());
        request.sges = first..sges.len();
        Ok(())
    }
    wr_set_inline_data(addr: *mut c_void, length: usize) => |request, _, inline| {
        copy_inline(request, inline, std::iter::once(ibv_data_buf { addr, length }))
    }
    wr_set_inline_data_list(count: usize, list: *const ibv_data_buf) => |request, _, inline| {
        copy_inline(request, inline, (0..count).map(|index| list.add(index).read_unaligned()))
    }
    wr_set_ud_addr(ah: *mut ibv_ah, qpn: u32, qkey: u32) => |request, _, _| {
        request.datagram = Some(datagram(ah, qpn, qkey)?);
        Ok(())
    }
    wr_set_xrc_srqn(srqn: u32) => |request, _, _| {
        request.datagram = Some(Datagram::to_shared_queue(Qpn::new(srqn)));
        Ok(())
    }
}

unsafe fn copy_inline(
    request: &mut Request,
    inline: &mut Vec<u8>,
    from: impl Iterator<Item = ibv_data_buf>,
) -> Result<(), PostError> {
    let first = inline.len();
    for piece in from {
        if piece.length > MAX_INLINE as usize || inline.len() - first + piece.length > MAX_INLINE as usize {
            return Err(PostError::TooLong);
        }
        if piece.length > 0 {
            // SAFETY: verbs' callers promise readable memory.
            inline.extend_from_slice(unsafe {
                std::slice::from_raw_parts(piece.addr.cast::<u8>(), piece.length)
            });
        }
    }
    request.inline = Some(first..inline.len());
    Ok(())
}

unsafe extern "C-unwind" fn wr_start(qp: *mut ibv_qp_ex) {
    crate::boundary::guard(|| {
        // SAFETY: reached through queue pairs of ours only; held from here on.
        unsafe {
            queue_pair(qp).batch.hold();
            collected(qp).clear();
        }
    });
}

pub(crate) unsafe extern "C-unwind" fn wr_abort(qp: *mut ibv_qp_ex) {
    crate::boundary::guard(|| {
        // SAFETY: reached through queue pairs of ours, after `wr_start`.
        let (collected, qp) = unsafe { (collected(qp), queue_pair(qp)) };
        collected.give_up();
        qp.batch.release();
    });
}

pub(crate) unsafe extern "C-unwind" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    crate::boundary::guard(|| {
        // SAFETY: reached through queue pairs of ours, after `wr_start`.
        let (collected, qp) = unsafe { (collected(qp), queue_pair(qp)) };
        let posted = match collected.error {
            Some(error) => Err(error),
            None => check_sizes(qp, collected).and_then(|()| post_all(qp, collected)),
        };
        if posted.is_err() {
            collected.give_up();
        }
        qp.batch.release();
        posted.map_or_else(|error| errno::of_post("ibv_wr_complete", Some(qp), error), |()| 0)
    })
}

/// What the program asked for when it made the queue pair holds for every request, whoever runs the engine.
fn check_sizes(qp: &Qp, collected: &Collected) -> Result<(), PostError> {
    let caps = qp.caps();
    for request in &collected.requests {
        match &request.inline {
            Some(inline) if inline.len() > caps.max_inline_data as usize => return Err(PostError::TooLong),
            None if request.sges.len() > caps.max_send_sge as usize => return Err(PostError::TooManySges),
            _ => {}
        }
    }
    Ok(())
}

/// Posts all of them or none.
fn post_all(qp: &Qp, collected: &Collected) -> Result<(), PostError> {
    let host = qp.host().map_err(|_| PostError::NoSuchQueue)?;
    let to_post = |request: &Request| {
        let sges = match request.inline {
            Some(_) => &[],
            None => &collected.sges[request.sges.clone()],
        };
        let Request { wr_id, operation, flags, datagram, .. } = *request;
        SendWr { wr_id, operation, flags, sges, datagram }
    };
    host.chain(|chain| {
        // One alone is refused as a whole when it is posted.
        if collected.requests.len() > 1 {
            let all = collected.requests.iter();
            chain.check(all.map(|request| (to_post(request), request.inline.as_ref().map(Range::len))))?;
        }
        for request in &collected.requests {
            let wr = to_post(request);
            match &request.inline {
                Some(inline) => chain.push_inline(&wr, &collected.inline[inline.clone()])?,
                None => chain.push(&wr)?,
            }
        }
        Ok(())
    })
}

/// The structure that C sees, with all functions: programs only call those that they have asked for.
pub(crate) fn functions(base: ibv_qp) -> ibv_qp_ex {
    ibv_qp_ex {
        qp_base: base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: Some(wr_atomic_cmp_swp),
        wr_atomic_fetch_add: Some(wr_atomic_fetch_add),
        wr_bind_mw: Some(wr_bind_mw),
        wr_local_inv: Some(wr_local_inv),
        wr_rdma_read: Some(wr_rdma_read),
        wr_rdma_write: Some(wr_rdma_write),
        wr_rdma_write_imm: Some(wr_rdma_write_imm),
        wr_send: Some(wr_send),
        wr_send_imm: Some(wr_send_imm),
        wr_send_inv: Some(wr_send_inv),
        wr_send_tso: Some(wr_send_tso),
        wr_set_ud_addr: Some(wr_set_ud_addr),
        wr_set_xrc_srqn: Some(wr_set_xrc_srqn),
        wr_set_inline_data: Some(wr_set_inline_data),
        wr_set_inline_data_list: Some(wr_set_inline_data_list),
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: Some(wr_set_sge_list),
        wr_start: Some(wr_start),
        wr_complete: Some(crate::faults::completing()),
        wr_abort: Some(wr_abort),
        wr_atomic_write: Some(wr_atomic_write),
        wr_flush: Some(wr_flush),
    }
}
