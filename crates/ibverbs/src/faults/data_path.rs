//! The data path with a scenario: contexts get these functions instead of the usual ones.

use super::{completions, is_in_vain, judge_often, may_refuse};
use crate::abi::*;
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
fn instead<T>(function: &'static str, object: usize, first: *mut T, bad: *mut *mut T) -> Option<c_int> {
    let verdict = crate::boundary::guard(|| {
        let errno = verdict(function, object);
        if errno > 0 && !bad.is_null() {
            // SAFETY: not null, and C's to be written to.
            unsafe { bad.write(first) };
        }
        errno
    });
    (verdict != 0).then(|| verdict.max(0))
}

/// The errno of a refusal; or [`IN_VAIN`].
fn verdict(function: &'static str, object: usize) -> c_int {
    match judge_often(function, object) {
        0 if is_in_vain(function, object) => IN_VAIN,
        errno => errno,
    }
}

/// The request is taken, and never carried out. No errno is negative.
const IN_VAIN: c_int = -1;

unsafe extern "C-unwind" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    match instead("ibv_post_send", qp as usize, wr, bad) {
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
    match instead("ibv_post_recv", qp as usize, wr, bad) {
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
    match instead("ibv_post_srq_recv", srq as usize, wr, bad) {
        // SAFETY: the caller's promise.
        None => unsafe { srq::post_srq_recv(srq, wr, bad) },
        Some(result) => result,
    }
}

/// `ibv_wr_complete` with a scenario: a batch that is refused, or comes too late, is given up.
pub(crate) unsafe extern "C-unwind" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let verdict = crate::boundary::guard(|| verdict("ibv_wr_complete", qp as usize));
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
