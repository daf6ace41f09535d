//! The data path with a scenario: contexts get these functions instead of the usual ones.

use super::{completions, judge_often, may_refuse, play};
use crate::abi::*;
use crate::context::Context;
use crate::qp::Qp;
use crate::srq::Srq;
use crate::{post, srq, wr};

/// The functions of a context: the usual ones, or with a scenario those that ask it.
pub(crate) fn context_ops(usual: ibv_context_ops) -> ibv_context_ops {
    if !may_refuse() {
        return usual;
    }
    ibv_context_ops {
        poll_cq: Some(completions::poll_cq),
        req_notify_cq: Some(completions::req_notify_cq),
        post_send: Some(post_send),
        post_recv: Some(post_recv),
        post_srq_recv: Some(post_srq_recv),
        ..usual
    }
}

/// What a post returns that has posted nothing: the errno of a refusal, or success where the device has failed.
fn instead<T>(
    function: &'static str,
    (context, object): (&Context, usize),
    first: *mut T,
    bad: *mut *mut T,
) -> Option<c_int> {
    let verdict = crate::boundary::guard(|| {
        let errno = verdict(function, context, object);
        if errno > 0 && !bad.is_null() {
            // SAFETY: not null, and C's to be written to.
            unsafe { bad.write(first) };
        }
        errno
    });
    (verdict != 0).then(|| verdict.max(0))
}

/// The errno of a refusal; or [`IN_VAIN`].
fn verdict(function: &'static str, context: &Context, object: usize) -> c_int {
    match judge_often(function, context, object) {
        0 if play().is_some_and(|play| play.heed.is_about(function)) && context.is_dead() => IN_VAIN,
        errno => errno,
    }
}

/// The context of a queue pair, and the number by which rules know it.
///
/// # Safety
/// It is one of ours: these functions are reached through an object's own context only.
unsafe fn of_queue_pair<'a>(qp: *mut ibv_qp) -> (&'a Context, usize) {
    // SAFETY: the caller's promise.
    (unsafe { &(*qp.cast::<Qp>()).context }, qp as usize)
}

/// The request is taken, and never carried out. No errno is negative.
const IN_VAIN: c_int = -1;

unsafe extern "C-unwind" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: reached through its own context.
    match instead("ibv_post_send", unsafe { of_queue_pair(qp) }, wr, bad) {
        // SAFETY: the caller's promise.
        None => unsafe { post::post_send(qp, wr, bad) },
        Some(result) => result,
    }
}

unsafe extern "C-unwind" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: reached through its own context.
    match instead("ibv_post_recv", unsafe { of_queue_pair(qp) }, wr, bad) {
        // SAFETY: the caller's promise.
        None => unsafe { post::post_recv(qp, wr, bad) },
        Some(result) => result,
    }
}

unsafe extern "C-unwind" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: reached through its own context.
    let context = unsafe { (*srq.cast::<Srq>()).context() };
    match instead("ibv_post_srq_recv", (context, srq as usize), wr, bad) {
        // SAFETY: the caller's promise.
        None => unsafe { srq::post_srq_recv(srq, wr, bad) },
        Some(result) => result,
    }
}

/// `ibv_wr_complete` with a scenario: a batch that is refused, or comes too late, is given up.
pub(crate) unsafe extern "C-unwind" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: reached through its own functions.
    let (context, object) = unsafe { of_queue_pair(qp.cast()) };
    let verdict = crate::boundary::guard(|| verdict("ibv_wr_complete", context, object));
    // SAFETY: the caller's promise.
    unsafe {
        if verdict == 0 {
            return wr::wr_complete(qp);
        }
        wr::wr_abort(qp);
    }
    verdict.max(0)
}

/// The function that ends a batch.
pub(crate) fn completing() -> unsafe extern "C-unwind" fn(*mut ibv_qp_ex) -> c_int {
    if may_refuse() { wr_complete } else { wr::wr_complete }
}
